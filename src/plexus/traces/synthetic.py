"""Generated devices, availability and latency: everything a run needs with nothing downloaded.

Availability is an alternating renewal process per device. A device has an online share of its own;
sessions and gaps are heavy-tailed; gaps are measured on a clock that runs faster in the hours when
people plug their phones in, which makes the day's pattern. All devices advance together, one
session at a time, so that 100,000 of them take a second.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from plexus.rng import array_stream
from plexus.traces import calibrations as fitted
from plexus.traces.api import Availability, Device
from plexus.traces.calibrations import Calibration, Durations, Quantiles
from plexus.traces.cities import City, great_circle_km
from plexus.traces.sessions import Sessions, shift

DAY_S = 86400.0
PERIOD_S = 7 * DAY_S
"""A generated week repeats. Each device begins it at a moment of its own: no common seam."""
KBPS_TO_BYTES_PER_S = 125.0

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
    seam_s = rng.random(nodes) * PERIOD_S
    week = _renewal(shares, seam_s, calibration, rng)
    periods_s = np.full(nodes, PERIOD_S)
    return Availability(shift(week, PERIOD_S - seam_s, periods_s), PERIOD_S)


def _online_shares(nodes: int, calibration: Calibration, rng: np.random.Generator) -> Floats:
    shares = rng.beta(calibration.share_alpha, calibration.share_beta, nodes)
    shares[rng.random(nodes) < calibration.rare_share] = calibration.rare_online
    return np.clip(shares, 1e-4, 0.99)


def _renewal(
    shares: Floats, seam_s: Floats, calibration: Calibration, rng: np.random.Generator
) -> Sessions:
    """Sessions over one period; time 0 of device i is `seam_s[i]` on the clock of the day."""
    clock = _DayClock(calibration.start_rate_by_hour)
    gap_median_s = _gap_medians(shares, calibration)
    devices = np.arange(len(shares))
    online = rng.random(len(shares)) < shares
    # What remains of the session or gap under way: lengths seen from inside are length-biased.
    here = rng.random(len(shares))
    session_s = here * _draw(calibration.sessions, calibration.sessions.median_s, rng, here.size, 1)
    gap_s = here * _draw(calibration.gaps, gap_median_s, rng, here.size, 1)
    start_s = np.where(online, 0.0, clock.later(seam_s, gap_s) - seam_s)
    end_s = start_s + np.where(
        online,
        session_s,
        _draw(calibration.sessions, calibration.sessions.median_s, rng, here.size),
    )
    steps: list[tuple[NDArray[np.intp], Floats, Floats]] = []
    while len(devices):
        alive = start_s < PERIOD_S
        devices, start_s, end_s = devices[alive], start_s[alive], end_s[alive]
        steps.append((devices, start_s, np.minimum(end_s, PERIOD_S)))
        seam, gap_median_s = seam_s[devices], gap_median_s[alive]
        gap_s = _draw(calibration.gaps, gap_median_s, rng, len(devices))
        start_s = clock.later(seam + end_s, gap_s) - seam
        end_s = start_s + _draw(
            calibration.sessions, calibration.sessions.median_s, rng, len(devices)
        )
    return _by_device(steps, len(shares))


def _by_device(steps: list[tuple[NDArray[np.intp], Floats, Floats]], nodes: int) -> Sessions:
    """Step k holds the k-th session of each device still in play: its place needs no sorting."""
    counts = np.zeros(nodes, np.int64)
    for devices, _, _ in steps:
        counts[devices] += 1
    bounds = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    rows = np.empty((int(bounds[-1]), 2))
    for k, (devices, start_s, end_s) in enumerate(steps):
        place = bounds[devices] + k
        rows[place, 0] = start_s
        rows[place, 1] = end_s
    return Sessions(rows, bounds)


def _draw(
    durations: Durations,
    median_s: Floats | float,
    rng: np.random.Generator,
    count: int,
    bias: int = 0,
) -> Floats:
    """Lengths of at least a second. `bias` 1 draws them as a random instant would meet them."""
    flicker = durations.flicker_share
    if bias:  # each component weighs as much as the time it covers
        short_s = flicker * durations.flicker_median_s * np.exp(durations.flicker_sigma**2 / 2)
        long_s = (1 - flicker) * np.asarray(median_s) * np.exp(durations.sigma**2 / 2)
        flicker = short_s / (short_s + long_s)
    short = rng.random(count) < flicker
    sigma = np.where(short, durations.flicker_sigma, durations.sigma)
    log_median = np.where(short, np.log(durations.flicker_median_s), np.log(median_s))
    drawn = np.exp(log_median + sigma * (rng.standard_normal(count) + bias * sigma))
    return np.asarray(np.maximum(drawn, 1.0), np.float64)


def _gap_medians(shares: Floats, calibration: Calibration) -> Floats:
    """The median of each device's long gaps that gives it its online share."""
    session_s = _mean_s(calibration.sessions, calibration.sessions.median_s)
    gap_s = session_s * (1 - shares) / shares
    gaps = calibration.gaps
    flicker_s = gaps.flicker_share * gaps.flicker_median_s * np.exp(gaps.flicker_sigma**2 / 2)
    long_mean_s = np.maximum(gap_s - flicker_s, 1.0) / (1 - gaps.flicker_share)
    return np.asarray(long_mean_s / np.exp(gaps.sigma**2 / 2), np.float64)


def _mean_s(durations: Durations, median_s: float) -> float:
    short_s = durations.flicker_median_s * np.exp(durations.flicker_sigma**2 / 2)
    long_s = median_s * np.exp(durations.sigma**2 / 2)
    return float(durations.flicker_share * short_s + (1 - durations.flicker_share) * long_s)


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
