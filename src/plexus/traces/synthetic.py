"""Generated devices, availability and latency: everything a run needs with nothing downloaded.

Availability is an alternating renewal process per device. A device has an online share of its own;
sessions and gaps are heavy-tailed; gaps are measured on a clock that runs faster in the hours when
people plug their phones in, which makes the day's pattern. All devices advance together, one
session at a time, so that 100,000 of them take a second.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from plexus.rng import array_stream
from plexus.traces import calibrations as fitted
from plexus.traces.api import Availability, Device
from plexus.traces.calibrations import Calibration, Durations, Quantiles
from plexus.traces.cities import City, great_circle_km
from plexus.traces.devices import KBPS_TO_BYTES_PER_S
from plexus.traces.sessions import Sessions

DAY_S = 86400.0
PERIOD_S = 7 * DAY_S
"""A generated week repeats. Each device begins it at a moment of its own: no common seam."""


Floats = NDArray[np.float64]


def generate_devices(nodes: int, seed: int) -> list[Device]:
    """Compute speed and bandwidth, independent of each other as in the published traces."""
    rng = array_stream(seed, "traces", "devices")
    compute_ms = _from_quantiles(fitted.COMPUTE_MS_PER_SAMPLE, rng.random(nodes))
    bytes_per_s = _from_quantiles(fitted.BANDWIDTH_KBPS, rng.random(nodes)) * KBPS_TO_BYTES_PER_S
    pairs = zip(compute_ms.tolist(), bytes_per_s.tolist(), strict=True)
    return [Device(ms, rate, rate) for ms, rate in pairs]


def _from_quantiles(quantiles: Quantiles, uniform: Floats) -> Floats:
    shares, values = zip(*quantiles, strict=True)
    return np.exp(np.interp(uniform, shares, np.log(values)))


def generate_latency(cities: list[City], seed: int) -> Floats:
    """One-way seconds between cities: great circle, speed of light in fibre, detours, last mile."""
    count = len(cities)
    distance_km = np.maximum(great_circle_km(cities), 1.0)
    inflation = fitted.PATH_INFLATION_AT_1000_KM * (distance_km / 1000) ** (
        fitted.PATH_INFLATION_EXPONENT
    )
    spread = array_stream(seed, "traces", "latency").standard_normal((count, count))
    spread = np.triu(spread, 1) + np.triu(spread, 1).T  # a detour is one both ways
    fibre_ms = distance_km / fitted.FIBRE_KM_PER_MS * inflation
    matrix_ms = fitted.LAST_MILE_MS + fibre_ms * np.exp(fitted.PATH_SPREAD_SIGMA * spread)
    np.fill_diagonal(matrix_ms, fitted.LAST_MILE_MS)
    return np.asarray(matrix_ms / 1000, np.float64)


def round_robin(nodes: int, cities: int) -> NDArray[np.intp]:
    """Node i lives in city i modulo the number of cities, as in the paper."""
    return np.arange(nodes, dtype=np.intp) % cities


def generate_availability(nodes: int, calibration: Calibration, seed: int) -> Availability:
    """One looping week per device."""
    rng = array_stream(seed, "traces", "availability")
    shares = _online_shares(nodes, calibration, rng)
    # Whole seconds, so that adding and taking off a week leaves them exact.
    seam_s = np.floor(rng.random(nodes) * PERIOD_S)
    return Availability(_rotate(_renewal(shares, seam_s, calibration, rng), seam_s), PERIOD_S)


def _online_shares(nodes: int, calibration: Calibration, rng: np.random.Generator) -> Floats:
    shares = rng.beta(calibration.share_alpha, calibration.share_beta, nodes)
    shares[rng.random(nodes) < calibration.rare_share] = calibration.rare_online
    return np.clip(shares, 1e-4, 0.99)


class _Step(NamedTuple):
    """The k-th session of each device still in play."""

    devices: NDArray[np.int32]
    start_s: Floats
    end_s: Floats


def _renewal(
    shares: Floats, seam_s: Floats, calibration: Calibration, rng: np.random.Generator
) -> list[_Step]:
    """Sessions over one period from `seam_s` on, all devices one session further in each step."""
    clock = _DayClock(calibration.start_rate_by_hour)
    sessions, gaps = calibration.sessions, calibration.gaps
    session_log = np.log(np.full(1, sessions.median_s))
    gap_log = np.log(_gap_medians(shares, calibration))
    devices = np.arange(len(shares), dtype=np.int32)
    until_s = seam_s + PERIOD_S
    # What remains of the session or gap under way: lengths seen from inside are length-biased.
    online = rng.random(len(shares)) < shares
    here = rng.random(len(shares))
    rest_s = here * _draw(sessions, session_log, rng, len(shares), bias=1)
    wait_s = here * _draw(gaps, gap_log, rng, len(shares), bias=1)
    start_s = np.where(online, seam_s, clock.later(seam_s, wait_s))
    end_s = start_s + np.where(online, rest_s, _draw(sessions, session_log, rng, len(shares)))
    steps: list[_Step] = []
    while True:
        alive = start_s < until_s
        devices, start_s, end_s = devices[alive], start_s[alive], end_s[alive]
        until_s, gap_log = until_s[alive], gap_log[alive]
        if not len(devices):
            return steps
        steps.append(_Step(devices, start_s, np.minimum(end_s, until_s)))
        start_s = clock.later(end_s, _draw(gaps, gap_log, rng, len(devices)))
        end_s = start_s + _draw(sessions, session_log, rng, len(devices))


def _rotate(steps: list[_Step], seam_s: Floats) -> Sessions:
    """Lay the steps out by device, wrapped into one period. Every row's place is known: no sorting.

    A device's rows that begin after the period's end come first there, before them the end of a
    session that crosses it.
    """
    before = np.zeros(len(seam_s), np.int64)
    after, crosses = before.copy(), before.copy()
    for devices, start_s, end_s in steps:
        late = start_s >= PERIOD_S
        after[devices] += late
        before[devices] += ~late
        crosses[devices] += ~late & (end_s > PERIOD_S)
    bounds = np.concatenate((np.zeros(1, np.int64), np.cumsum(before + after + crosses)))
    first_late, first_early = bounds[:-1] + crosses - before, bounds[:-1] + crosses + after
    rows = np.empty((int(bounds[-1]), 2))
    for k, (devices, start_s, end_s) in enumerate(steps):
        late = start_s >= PERIOD_S
        place = np.where(late, first_late[devices], first_early[devices]) + k
        rows[place, 0] = np.where(late, start_s - PERIOD_S, start_s)
        rows[place, 1] = np.where(late, end_s - PERIOD_S, np.minimum(end_s, PERIOD_S))
        over = ~late & (end_s > PERIOD_S)
        rows[bounds[devices[over]], 0] = 0.0
        rows[bounds[devices[over]], 1] = end_s[over] - PERIOD_S
    return _unite_touching(rows, bounds)


def _unite_touching(rows: Floats, bounds: NDArray[np.int64]) -> Sessions:
    """A device online where its week begins and ends has two rows that meet: make them one."""
    meets = np.zeros(len(rows), np.bool_)
    meets[:-1] = rows[:-1, 1] == rows[1:, 0]
    meets[bounds[1:][bounds[1:] > bounds[:-1]] - 1] = False  # the next row is another device's
    rows[1:, 0][meets[:-1]] = rows[:-1, 0][meets[:-1]]
    removed = np.concatenate((np.zeros(1, np.int64), np.cumsum(meets, dtype=np.int64)))
    return Sessions(rows[~meets], bounds - removed[bounds])


def _draw(
    durations: Durations, log_median: Floats, rng: np.random.Generator, count: int, bias: int = 0
) -> Floats:
    """Lengths of at least a second. `bias` 1 draws them as a random instant would meet them."""
    flicker: Floats | float = durations.flicker_share
    if bias:  # each component weighs as much as the time it covers
        short_s = durations.flicker_share * _log_normal_mean_s(
            np.log(durations.flicker_median_s), durations.flicker_sigma
        )
        long_s = (1 - durations.flicker_share) * _log_normal_mean_s(log_median, durations.sigma)
        flicker = short_s / (short_s + long_s)
    short = rng.random(count) < flicker
    sigma = np.where(short, durations.flicker_sigma, durations.sigma)
    exponent = rng.standard_normal(count)
    if bias:
        exponent += sigma
    exponent *= sigma
    exponent += np.where(short, np.log(durations.flicker_median_s), log_median)
    return np.maximum(np.exp(exponent, out=exponent), 1.0, out=exponent)


def _gap_medians(shares: Floats, calibration: Calibration) -> Floats:
    """The median of each device's long gaps that gives it its online share."""
    sessions, gaps = calibration.sessions, calibration.gaps
    session_s = sessions.flicker_share * _log_normal_mean_s(
        np.log(sessions.flicker_median_s), sessions.flicker_sigma
    ) + (1 - sessions.flicker_share) * _log_normal_mean_s(np.log(sessions.median_s), sessions.sigma)
    gap_s = session_s * (1 - shares) / shares
    flicker_s = gaps.flicker_share * _log_normal_mean_s(
        np.log(gaps.flicker_median_s), gaps.flicker_sigma
    )
    long_mean_s = np.maximum(gap_s - flicker_s, 1.0) / (1 - gaps.flicker_share)
    return np.asarray(long_mean_s / np.exp(gaps.sigma**2 / 2), np.float64)


def _log_normal_mean_s(log_median: Floats | float, sigma: float) -> Floats:
    return np.asarray(np.exp(np.asarray(log_median) + sigma**2 / 2), np.float64)


class _DayClock:
    """A clock that gains in busy hours and loses in quiet ones, and is right at midnight."""

    def __init__(self, rate_by_hour: tuple[float, ...]) -> None:
        rate = np.asarray(rate_by_hour) / np.mean(rate_by_hour)
        self._true_s = np.arange(len(rate) + 1) * (DAY_S / len(rate))
        self._shown_s = np.concatenate(([0.0], np.cumsum(rate))) * (DAY_S / len(rate))
        self._shown_s[-1] = DAY_S

    def later(self, time_s: Floats, shown_gap_s: Floats) -> Floats:
        """The true time when the clock shows `shown_gap_s` more than at `time_s`."""
        day = np.floor(time_s / DAY_S)
        shown_s = np.interp(time_s - day * DAY_S, self._true_s, self._shown_s) + shown_gap_s
        days = np.floor(shown_s / DAY_S)
        within_s = np.interp(shown_s - days * DAY_S, self._shown_s, self._true_s)
        return np.asarray((day + days) * DAY_S + within_s, np.float64)
