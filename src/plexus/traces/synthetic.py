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
from plexus.traces.sessions import Sessions, bounds_of, concatenate

HOUR_S = 3600.0
DAY_S = 86400.0
PERIOD_S = 7 * DAY_S
"""A generated week repeats."""
BATCH = 16384
"""Devices generated together: enough to be quick, few enough that memory is used again."""


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
    """One looping week per device, begun and ended at a moment of its own.

    If all began at the same moment, many would come and go at once whenever the week repeats.
    """
    weeks = [
        _weeks(
            min(BATCH, nodes - first),
            calibration,
            array_stream(seed, "traces", "availability", first),
        )
        for first in range(0, nodes, BATCH)
    ]
    return Availability(concatenate(weeks), PERIOD_S)


def _weeks(nodes: int, calibration: Calibration, rng: np.random.Generator) -> Sessions:
    shares = _online_shares(nodes, calibration, rng)
    seam_s = rng.random(nodes) * PERIOD_S
    return _wrap(_renewal(shares, seam_s, calibration, rng))


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
) -> Sessions:
    """Sessions over one period from `seam_s` on, all devices one session further in each step."""
    clock = _DayClock(calibration.start_rate_by_hour)
    sessions, gaps = calibration.sessions, calibration.gaps
    session_log = np.log(np.full(1, sessions.median_s))
    gap_log = np.log(_gap_medians(shares, calibration))
    devices, counts = np.arange(len(shares), dtype=np.int32), np.zeros(len(shares), np.int64)
    until_s = seam_s + PERIOD_S - 1.0  # a second short, lest a last session touches the first
    # What remains of the session or gap under way: lengths seen from inside are length-biased.
    online = rng.random(len(shares)) < shares
    here = rng.random(len(shares), np.float32)
    rest_s = here * _draw(sessions, session_log, rng, len(shares), bias=1)
    wait_s = here * _draw(gaps, gap_log, rng, len(shares), bias=1)
    start_s = np.where(online, seam_s, clock.later(seam_s, wait_s))
    end_s = start_s + np.where(online, rest_s, _draw(sessions, session_log, rng, len(shares)))
    steps: list[_Step] = []
    while len(devices):
        alive = start_s < until_s
        counts[devices[~alive]] = len(steps)
        devices, start_s, end_s = devices[alive], start_s[alive], end_s[alive]
        until_s, gap_log = until_s[alive], gap_log[alive]
        steps.append(_Step(devices, start_s, np.minimum(end_s, until_s)))
        start_s = clock.later(end_s, _draw(gaps, gap_log, rng, len(devices)))
        end_s = start_s + _draw(sessions, session_log, rng, len(devices))
    return _by_device(steps, counts)


def _by_device(steps: list[_Step], counts: NDArray[np.int64]) -> Sessions:
    """Lay the steps out by device. The place of every row is known: no sorting."""
    bounds = bounds_of(counts)
    rows = np.empty((int(bounds[-1]), 2))
    first = bounds[:-1]
    for k, (devices, start_s, end_s) in enumerate(steps):
        place = first[devices] + k
        rows[place, 0] = start_s
        rows[place, 1] = end_s
    return Sessions(rows, bounds)


def _wrap(sessions: Sessions) -> Sessions:
    """Bring rows of two periods into the first: those of the second come before those of the first,
    and what a session has left at the end of the first comes before all, in a row of its own."""
    rows, bounds = sessions.rows, sessions.bounds
    late = rows[:, 0] >= PERIOD_S
    counts = np.diff(bounds)
    late_counts = np.diff(
        np.concatenate((np.zeros(1, np.int64), np.cumsum(late, dtype=np.int64)))[bounds]
    )
    early_counts = counts - late_counts
    left_s = np.zeros(len(counts))
    some = early_counts > 0
    left_s[some] = rows[(bounds[:-1] + early_counts - 1)[some], 1] - PERIOD_S
    crosses = left_s > 0
    wrapped_bounds = bounds_of(counts + crosses)
    wrapped = np.empty((int(wrapped_bounds[-1]), 2))
    wrapped[wrapped_bounds[:-1][crosses], 0] = 0.0
    wrapped[wrapped_bounds[:-1][crosses], 1] = left_s[crosses]
    forward = wrapped_bounds[:-1] - bounds[:-1] + crosses
    place = np.arange(len(rows)) + np.repeat(forward + late_counts, counts)
    place[late] -= np.repeat(counts, late_counts)
    wrapped[place] = np.minimum(rows - np.where(late, PERIOD_S, 0.0)[:, None], PERIOD_S)
    return Sessions(wrapped, wrapped_bounds)


def _draw(
    durations: Durations, log_median: Floats, rng: np.random.Generator, count: int, bias: int = 0
) -> NDArray[np.float32]:
    """Lengths of at least a second. `bias` 1 draws them as a random instant would meet them."""
    flicker: Floats | float = durations.flicker_share
    if bias:  # each component weighs as much as the time it covers
        flicker_log = np.log(durations.flicker_median_s)
        short_s = flicker * _log_normal_mean_s(flicker_log, durations.flicker_sigma)
        long_s = (1 - flicker) * _log_normal_mean_s(log_median, durations.sigma)
        flicker = short_s / (short_s + long_s)
    short = rng.random(count, np.float32) < flicker
    sigma = np.where(short, np.float32(durations.flicker_sigma), np.float32(durations.sigma))
    exponent = rng.standard_normal(count, np.float32)
    if bias:
        exponent += sigma
    exponent *= sigma
    exponent += np.where(short, np.log(durations.flicker_median_s), log_median).astype(np.float32)
    return np.maximum(np.exp(exponent, out=exponent), np.float32(1.0), out=exponent)


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
        assert len(rate_by_hour) == 24
        self._rate = np.asarray(rate_by_hour) / np.mean(rate_by_hour)
        self._true_s = np.arange(25) * HOUR_S
        self._shown_s = np.concatenate(([0.0], np.cumsum(self._rate))) * HOUR_S
        self._shown_s[-1] = DAY_S

    def later(self, time_s: Floats, shown_gap_s: NDArray[np.float32]) -> Floats:
        """The true time when the clock shows `shown_gap_s` more than at `time_s`."""
        hour = (time_s / HOUR_S).astype(np.int32)
        of_day = hour % 24
        midnight_s = (hour - of_day) * HOUR_S
        past_s = self._shown_s[of_day] + self._rate[of_day] * (time_s - hour * HOUR_S) + shown_gap_s
        days_s = np.floor(past_s / DAY_S) * DAY_S
        within_s = np.interp(past_s - days_s, self._shown_s, self._true_s)
        return np.asarray(midnight_s + days_s + within_s, np.float64)
