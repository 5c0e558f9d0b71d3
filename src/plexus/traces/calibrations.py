"""The numbers behind the generated traces.

They are our own, fitted so that generated statistics agree with published ones (docs/traces.md says
with which, how closely, and how to check). Changing one changes every generated run.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from plexus.errors import PlexusError

# Points (share of devices, value) of a distribution's quantile function; log-linear in between.
Quantiles = tuple[tuple[float, float], ...]

COMPUTE_MS_PER_SAMPLE: Quantiles = (
    (0.00, 15.0), (0.05, 18.8), (0.10, 21.0), (0.20, 23.0), (0.30, 25.0), (0.42, 28.0),
    (0.47, 31.5), (0.48, 38.5), (0.50, 41.0), (0.55, 49.5), (0.60, 64.0), (0.64, 96.0),
    (0.65, 117.0), (0.67, 136.0), (0.75, 148.0), (0.85, 158.0), (0.90, 174.0), (0.95, 191.0),
    (1.00, 199.0),
)  # fmt: skip
"""Inference time of one sample: two camps, recent and old phones, with little in between."""

BANDWIDTH_KBPS: Quantiles = (
    (0.00, 1000.0), (0.05, 1400.0), (0.10, 1800.0), (0.20, 2300.0), (0.30, 3600.0), (0.40, 4800.0),
    (0.50, 6050.0), (0.60, 8450.0), (0.70, 11800.0), (0.80, 19500.0), (0.90, 32500.0),
    (0.95, 51700.0), (0.99, 98500.0), (1.00, 207000.0),
)  # fmt: skip
"""Capacity in kilobits (1000 bits) a second, the same up and down, independent of compute."""


class Durations(Struct, frozen=True):
    """A mixture of two log-normals: flickers of seconds, and the sessions or gaps one thinks of."""

    flicker_share: float
    flicker_median_s: float
    flicker_sigma: float
    median_s: float
    """Of the long component. Unused for gaps: their scale gives a device its online share."""
    sigma: float


class Calibration(Struct, frozen=True):
    """One world of availability."""

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


FEDSCALE = Calibration(
    rare_share=0.0,
    rare_online=0.0,
    share_alpha=3.31,
    share_beta=12.89,
    peak_online=0.235,
    sessions=Durations(0.37, 8.0, 1.4, 28.0 * 60, 1.5),
    gaps=Durations(0.42, 4.0, 1.8, 0.0, 1.2),
    start_rate_by_hour=(
        1.22, 0.89, 1.28, 1.28, 1.32, 1.35, 1.33, 1.27, 1.24, 1.11, 1.03, 0.97,
        0.94, 0.93, 0.88, 0.91, 0.86, 0.93, 0.86, 0.86, 0.77, 0.67, 0.58, 0.52,
    ),
)  # fmt: skip
"""15 to 24 % online by the hour, sessions of 8 minutes in the median and an hour on average."""

STRICT = Calibration(
    rare_share=0.27,
    rare_online=0.001,
    share_alpha=0.98,
    share_beta=7.72,
    peak_online=0.119,
    sessions=Durations(0.37, 8.0, 1.4, 14.5 * 60, 1.5),
    gaps=Durations(0.42, 4.0, 1.8, 0.0, 1.2),
    start_rate_by_hour=(
        1.21, 1.61, 1.71, 1.88, 1.81, 1.66, 1.44, 0.97, 0.77, 0.77, 0.59, 0.50,
        0.64, 0.36, 0.64, 0.60, 0.85, 0.85, 1.12, 0.34, 0.60, 0.70, 1.02, 1.36,
    ),
)  # fmt: skip
"""Idle, charging and on WiFi: 8 % online on average, a quarter of the devices hardly ever."""

CALIBRATIONS = {"fedscale": FEDSCALE, "strict": STRICT}

FIBRE_KM_PER_MS = 200.0
"""Light in glass."""
LAST_MILE_MS = 2.5
"""Both ends together, also between two nodes of one city."""
PATH_INFLATION_AT_1000_KM = 2.46
PATH_INFLATION_EXPONENT = -0.15
"""Cables bend: a route is this many times the great circle at 1000 km, and less farther on."""
PATH_SPREAD_SIGMA = 0.3
"""Routes of equal distance differ by a log-normal factor."""
