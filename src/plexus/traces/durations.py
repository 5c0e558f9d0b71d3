"""Draw lengths of sessions and gaps, millions a second.

A length comes from a table of quantiles: one random number picks an entry. That is several times
faster than drawing log-normals one by one, and with this many entries as good.
"""

from __future__ import annotations

from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from plexus.traces.calibrations import Durations

SIZE = 1 << 14

Floats = NDArray[np.float64]
Lengths = NDArray[np.float32]


class DurationTable:
    """A mixture of flickers and long durations; the median of the latter is given when drawing."""

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
        one = np.ones(1, np.float32)
        short_s, long_s = self._parts(one)
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
