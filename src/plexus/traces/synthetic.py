"""Generated devices, availability and latency: everything a run needs with nothing downloaded.

Availability is an alternating renewal process per device. A device has an online share of its own;
sessions and gaps are heavy-tailed; gaps are measured on a clock that runs faster in the hours when
people plug their phones in, which makes the day's pattern. All devices advance together, one
session at a time, so that 100,000 of them take a second. The numbers behind it are in `calibrations.toml`.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from statistics import NormalDist

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from plexus.errors import PlexusError
from plexus.rng import array_stream
from plexus.traces.readers.devices import KBPS_TO_BYTES_PER_S
from plexus.traces.sessions import Sessions, bounds_of, concatenate
from plexus.traces.world import DAY_S, HOUR_S, Availability, City, Device, great_circle_km

Quantiles = tuple[tuple[float, float], ...]
"""Points (share of devices, value) of a distribution's quantile function; log-linear in between."""


class DeviceQuantiles(Struct, frozen=True, forbid_unknown_fields=True):
    compute_ms_per_sample: Quantiles
    """Inference time of one sample."""
    bandwidth_kbps: Quantiles
    """In kilobits (1000 bits) a second, the same up and down, independent of compute."""


class Routes(Struct, frozen=True, forbid_unknown_fields=True):
    fibre_km_per_ms: float
    """Light in glass."""
    last_mile_ms: float
    """Both ends together, also between two nodes of one city."""
    inflation_at_1000_km: float
    """Cables bend: a route is this many times the great circle at 1000 km..."""
    inflation_exponent: float
    """...and less farther on."""
    spread_sigma: float
    """Routes of equal distance differ by a log-normal factor."""


class Durations(Struct, frozen=True, forbid_unknown_fields=True):
    """A mixture of two log-normals: flickers of seconds, and the sessions or gaps one thinks of."""

    flicker_share: float
    flicker_median_s: float
    flicker_sigma: float
    sigma: float
    median_s: float = 0.0
    """Of the long component. Unused for gaps: their scale gives a device its online share."""


class Calibration(Struct, frozen=True, forbid_unknown_fields=True):
    rare_share: float
    """This share of devices is hardly ever online..."""
    rare_online: float
    """...namely this share of the time."""
    share_alpha: float
    """The others' online shares follow a Beta distribution with these two parameters."""
    share_beta: float
    peak_online: float
    """The share of devices online in the best hour of the day that follows from all the rest."""
    sessions: Durations
    gaps: Durations
    start_rate_by_hour: tuple[float, ...]
    """How readily an offline device comes online in each hour of the day; the mean is 1."""

    def with_peak(self, peak_online: float) -> Calibration:
        """The same world, but with `peak_online` of the devices online in the best hour."""
        total = self.share_alpha + self.share_beta
        mean = self.share_alpha / total * peak_online / self.peak_online
        if not 0 < mean < 1:
            highest = self.peak_online * total / self.share_alpha
            raise PlexusError(f"traces.peak_online = {peak_online}: must be below {highest:.2f}")
        return replace(self, share_alpha=total * mean, share_beta=total * (1 - mean), peak_online=peak_online)


class _Fitted(Struct, frozen=True, forbid_unknown_fields=True):
    devices: DeviceQuantiles
    latency: Routes
    availability: dict[str, Calibration]


_FITTED = msgspec.toml.decode(files("plexus.traces").joinpath("calibrations.toml").read_bytes(), type=_Fitted)
DEVICES, ROUTES, CALIBRATIONS = _FITTED.devices, _FITTED.latency, _FITTED.availability


PERIOD_S = 7 * DAY_S
"""A generated week repeats."""
BATCH = 16384
"""Devices generated together: enough to be quick, few enough that memory is used again."""
SIZE = 1 << 14
"""Of a table of durations."""

Floats = NDArray[np.float64]
Lengths = NDArray[np.float32]
_Step = tuple[NDArray[np.int32], Floats, Floats]
"""The k-th session of each device still in play: the devices, and when theirs start and end, in seconds."""


def generate_devices(nodes: int, seed: int) -> list[Device]:
    """Compute speed and bandwidth, independent of each other as in the published traces."""
    rng = array_stream(seed, "traces", "devices")
    compute_ms = _from_quantiles(DEVICES.compute_ms_per_sample, rng.random(nodes))
    bytes_per_s = _from_quantiles(DEVICES.bandwidth_kbps, rng.random(nodes)) * KBPS_TO_BYTES_PER_S
    pairs = zip(compute_ms.tolist(), bytes_per_s.tolist(), strict=True)
    return [Device(ms, rate, rate) for ms, rate in pairs]


def _from_quantiles(quantiles: Quantiles, uniform: Floats) -> Floats:
    shares, values = zip(*quantiles, strict=True)
    return np.exp(np.interp(uniform, shares, np.log(values)))


def generate_latency(cities: list[City], seed: int) -> Floats:
    """One-way seconds between cities: great circle, speed of light in fibre, detours, last mile."""
    count = len(cities)
    distance_km = np.maximum(great_circle_km(cities), 1.0)
    inflation = ROUTES.inflation_at_1000_km * (distance_km / 1000) ** ROUTES.inflation_exponent
    spread = array_stream(seed, "traces", "latency").standard_normal((count, count))
    spread = np.triu(spread, 1) + np.triu(spread, 1).T  # a detour is one both ways
    fibre_ms = distance_km / ROUTES.fibre_km_per_ms * inflation
    matrix_ms = ROUTES.last_mile_ms + fibre_ms * np.exp(ROUTES.spread_sigma * spread)
    np.fill_diagonal(matrix_ms, ROUTES.last_mile_ms)
    return np.asarray(matrix_ms / 1000, np.float64)


def deal_cities(nodes: int, cities: int, seed: int) -> NDArray[np.intp]:
    """The city of each node: in turn, as in the paper, but in an order drawn by seed.

    Cities are listed by country: in the order of the list a hundred nodes would be in one part of the world.
    """
    order = array_stream(seed, "traces", "cities").permutation(cities)
    return order[np.arange(nodes) % cities].astype(np.intp)


def generate_availability(nodes: int, calibration: Calibration, seed: int) -> Availability:
    """One looping week per device, begun and ended at a moment of its own.

    If all began at the same moment, many would come and go at once whenever the week repeats.
    """
    weeks = [
        _weeks(min(BATCH, nodes - first), calibration, array_stream(seed, "traces", "availability", first))
        for first in range(0, nodes, BATCH)
    ]
    return Availability(concatenate(weeks), PERIOD_S)


def _weeks(nodes: int, calibration: Calibration, rng: np.random.Generator) -> Sessions:
    shares = rng.beta(calibration.share_alpha, calibration.share_beta, nodes)
    shares[rng.random(nodes) < calibration.rare_share] = calibration.rare_online
    seam_s = rng.random(nodes) * PERIOD_S
    return _wrap(_renewal(np.clip(shares, 1e-4, 0.99), seam_s, calibration, rng))


def _renewal(shares: Floats, seam_s: Floats, calibration: Calibration, rng: np.random.Generator) -> Sessions:
    """Sessions over one period from `seam_s` on, all devices one session further in each step."""
    clock = _DayClock(calibration.start_rate_by_hour)
    sessions, gaps = DurationTable(calibration.sessions), DurationTable(calibration.gaps)
    session_median_s = np.full(1, calibration.sessions.median_s, np.float32)
    # A device's gaps are as long as its online share wants.
    gap_median_s = gaps.median_for(sessions.mean_s(session_median_s) * (1 - shares) / shares)
    nodes = len(shares)
    devices, counts = np.arange(nodes, dtype=np.int32), np.zeros(nodes, np.int64)
    until_s = seam_s + PERIOD_S - 1.0  # a second short, lest a last session touches the first
    online = rng.random(nodes) < shares
    wait_s = gaps.draw_rest(gap_median_s, nodes, rng)
    start_s = np.where(online, seam_s, clock.later(seam_s, wait_s))
    first_s = sessions.draw(session_median_s, nodes, rng)
    end_s = start_s + np.where(online, sessions.draw_rest(session_median_s, nodes, rng), first_s)
    steps: list[_Step] = []
    while len(devices):
        alive = start_s < until_s
        counts[devices[~alive]] = len(steps)
        devices, start_s, end_s = devices[alive], start_s[alive], end_s[alive]
        until_s, gap_median_s = until_s[alive], gap_median_s[alive]
        steps.append((devices, start_s, np.minimum(end_s, until_s)))
        start_s = clock.later(end_s, gaps.draw(gap_median_s, len(devices), rng))
        end_s = start_s + sessions.draw(session_median_s, len(devices), rng)
    return _by_device(steps, counts)


def _by_device(steps: list[_Step], counts: NDArray[np.int64]) -> Sessions:
    """Lay the steps out by device. The place of every row is known: no sorting."""
    bounds = bounds_of(counts)
    rows = np.empty((int(bounds[-1]), 2))
    for k, (devices, start_s, end_s) in enumerate(steps):
        place = bounds[devices] + k
        rows[place, 0] = start_s
        rows[place, 1] = end_s
    return Sessions(rows, bounds)


def _wrap(sessions: Sessions) -> Sessions:
    """Bring rows of two periods into the first: those of the second come before those of the first,
    and what a session has left at the end of the first comes before all, in a row of its own."""
    rows, bounds = sessions.rows, sessions.bounds
    late = rows[:, 0] >= PERIOD_S
    counts = np.diff(bounds)
    late_counts = np.diff(np.concatenate((np.zeros(1, np.int64), np.cumsum(late, dtype=np.int64)))[bounds])
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
    wrapped[place] = rows
    wrapped[wrapped[:, 0] >= PERIOD_S] -= PERIOD_S
    np.minimum(wrapped[:, 1], PERIOD_S, out=wrapped[:, 1])
    return Sessions(wrapped, wrapped_bounds)


class DurationTable:
    """A mixture of flickers and long durations; the median of the latter is given when drawing.

    A length comes from a table of quantiles: one random number picks an entry. That is several times
    faster than drawing log-normals one by one, and with this many entries as good.
    """

    def __init__(self, durations: Durations) -> None:
        self._durations = durations
        self._flickers = round(durations.flicker_share * SIZE)
        flickers = durations.flicker_median_s * _log_normal(durations.flicker_sigma, self._flickers)
        relative = _log_normal(durations.sigma, SIZE - self._flickers)
        self._table = np.concatenate((flickers, relative)).astype(np.float32)

    def draw(self, median_s: Lengths, count: int, rng: np.random.Generator) -> Lengths:
        """Lengths of at least a second."""
        pick = rng.integers(0, SIZE, count, np.uint16)
        length_s: Lengths = self._table[pick]
        length_s *= np.where(pick < self._flickers, np.float32(1), median_s)
        np.maximum(length_s, np.float32(1), out=length_s)
        return length_s

    def draw_rest(self, median_s: Lengths, count: int, rng: np.random.Generator) -> Lengths:
        """What is left of lengths under way at a random instant: the longer, the likelier met."""
        short_s, long_s = self._parts(median_s)
        short = rng.random(count) < short_s / (short_s + long_s)
        own = self._durations
        sigma = np.where(short, own.flicker_sigma, own.sigma)
        median = np.where(short, own.flicker_median_s, median_s)
        length_s = median * np.exp(sigma * (rng.standard_normal(count) + sigma))
        return np.asarray(rng.random(count) * np.maximum(length_s, 1.0), np.float32)

    def mean_s(self, median_s: Lengths) -> Floats:
        """The average length, flickers included."""
        short_s, long_s = self._parts(median_s)
        return np.asarray(short_s + long_s, np.float64)

    def median_for(self, mean_s: Floats) -> Lengths:
        """The median of long durations that makes the average `mean_s`."""
        short_s, long_s = self._parts(np.ones(1, np.float32))
        return (np.maximum(mean_s - short_s, 1.0) / long_s).astype(np.float32)

    def _parts(self, median_s: Lengths) -> tuple[float, Floats]:
        """What flickers and long durations contribute to the average."""
        own = self._durations
        short_s = own.flicker_share * own.flicker_median_s * np.exp(own.flicker_sigma**2 / 2)
        long_s = (1 - own.flicker_share) * median_s.astype(np.float64) * np.exp(own.sigma**2 / 2)
        return float(short_s), long_s


@cache
def _log_normal(sigma: float, count: int) -> Floats:
    """Quantiles of a log-normal with median 1, one for each of `count` equal parts."""
    normal = NormalDist()
    middle = [normal.inv_cdf((i + 0.5) / count) for i in range(count)]
    return np.exp(sigma * np.array(middle, np.float64))


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
