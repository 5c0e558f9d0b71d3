"""What the numbers behind the generated traces, in `calibrations.toml`, mean."""

from __future__ import annotations

from importlib.resources import files

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from plexus.errors import PlexusError

Quantiles = tuple[tuple[float, float], ...]
"""Points (share of devices, value) of a distribution's quantile function; log-linear in between."""


class DeviceQuantiles(Struct, frozen=True, forbid_unknown_fields=True):
    """How fast devices are."""

    compute_ms_per_sample: Quantiles
    """Inference time of one sample."""
    bandwidth_kbps: Quantiles
    """In kilobits (1000 bits) a second, the same up and down, independent of compute."""


class Routes(Struct, frozen=True, forbid_unknown_fields=True):
    """From distances to delays."""

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


class _Fitted(Struct, frozen=True, forbid_unknown_fields=True):
    devices: DeviceQuantiles
    latency: Routes
    availability: dict[str, Calibration]


_FITTED = msgspec.toml.decode(files("plexus.traces").joinpath("calibrations.toml").read_bytes(), type=_Fitted)
DEVICES, ROUTES, CALIBRATIONS = _FITTED.devices, _FITTED.latency, _FITTED.availability
