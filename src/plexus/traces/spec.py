"""The `[traces]` table of a spec: where devices, availability and latency of a run come from."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from plexus.errors import PlexusError
from plexus.traces.calibrations import CALIBRATIONS
from plexus.traces.readers.latency import LatencyKind

Positive = Annotated[float, Meta(gt=0, le=1e12)]
Seconds = Annotated[float, Meta(ge=0, le=1e12)]


class TracesSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """Every file may be given relative to the spec, as `$NAME/...` or as `data:...`, a path in the
    data directory."""

    devices: str = "generated"
    """Compute and bandwidth: `generated`, or a capacity file."""
    availability: str = "fedscale"
    """Who is online when: `none` (all, always), `strict` (about 8 %), `fedscale` (15 to 24 %), or
    a file. A file with fewer devices than nodes is used more than once; see `offsets`."""
    latency: str = "generated"
    """Delays between cities: `generated`, or a matrix file."""
    peak_online: Annotated[float, Meta(gt=0, lt=1)] | None = None
    """Share of devices online in the best hour, if generated (the paper says 0.088)."""
    period_s: Positive | None = None
    """After what time an availability file repeats, instead of what it says itself."""
    start_s: Seconds = 0.0
    """The moment of the availability trace at which the run begins."""
    drop_before_s: Seconds = 0.0
    """Ignore what an availability file says of its first seconds (FLASH made up 300)."""
    offsets: Literal["none", "days", "any"] = "none"
    """Let each node begin its trace a random number of whole days later, or at any moment of it."""
    latency_kind: LatencyKind = "one-way"
    """Whether a latency file holds delays one way or round trips."""
    cities: str | None = None
    """Coordinates of a latency file's cities: a CSV with columns lat and lon."""
    places: str | None = None
    """Where the nodes are: a CSV with columns lat and lon; each node joins the nearest city.
    Without it, nodes go to cities in turn, as in the paper, in an order drawn by seed."""
    uniform_compute_ms_per_sample: Positive | None = None
    """Give every device this compute speed instead of its own."""
    uniform_up_kbps: Positive | None = None
    """Give every device this upload capacity (kilobits a second) instead of its own."""
    uniform_down_kbps: Positive | None = None
    """Give every device this download capacity (kilobits a second) instead of its own."""
    graceful_share: Annotated[float, Meta(ge=0, le=1)] = 1.0
    """Share of departures that are announced; the others are crashes."""

    def __post_init__(self) -> None:
        if self.peak_online is not None and self.availability not in CALIBRATIONS:
            known = " or ".join(CALIBRATIONS)
            raise PlexusError(f"peak_online is for generated availability only ({known})")
