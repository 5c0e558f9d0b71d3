"""From the `[traces]` table of a spec to the world of a run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta, Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from plexus.errors import PlexusError
from plexus.rng import array_stream
from plexus.traces import synthetic
from plexus.traces.readers.availability import read_availability
from plexus.traces.readers.devices import KBPS_TO_BYTES_PER_S, choose_devices, read_devices
from plexus.traces.readers.files import find
from plexus.traces.readers.latency import LatencyKind, read_latency, read_places
from plexus.traces.sessions import Sessions, choose, drop_before, shift
from plexus.traces.synthetic import CALIBRATIONS
from plexus.traces.world import (
    DAY_S,
    Availability,
    City,
    Device,
    Latency,
    World,
    always_online,
    nearest_cities,
    world_cities,
)

Positive = Annotated[float, Meta(gt=0, le=1e12)]
Seconds = Annotated[float, Meta(ge=0, le=1e12)]


class TracesSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """Where devices, availability and latency of a run come from.

    Every file may be given relative to the spec, as `$NAME/...` or as `data:...`, a path in the
    data directory.
    """

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


def build_world(spec: TracesSpec, nodes: int, seed: int, base_dir: Path) -> World:
    """The devices of a run of `nodes` nodes. Same spec, nodes and seed, same world."""
    return World(
        _devices(spec, nodes, seed, base_dir),
        _availability(spec, nodes, seed, base_dir),
        _latency(spec, nodes, seed, base_dir),
    )


def _devices(spec: TracesSpec, nodes: int, seed: int, base_dir: Path) -> list[Device]:
    if spec.devices == "generated":
        devices = synthetic.generate_devices(nodes, seed)
    else:
        recorded = read_devices(find(spec.devices, base_dir, "traces.devices"))
        devices = [recorded[i] for i in choose_devices(len(recorded), nodes, seed, "devices")]
    given = {
        "compute_ms_per_sample": (spec.uniform_compute_ms_per_sample, 1.0),
        "up_bytes_per_s": (spec.uniform_up_kbps, KBPS_TO_BYTES_PER_S),
        "down_bytes_per_s": (spec.uniform_down_kbps, KBPS_TO_BYTES_PER_S),
    }
    uniform = {field: value * unit for field, (value, unit) in given.items() if value is not None}
    return [replace(device, **uniform) for device in devices] if uniform else devices


def _availability(spec: TracesSpec, nodes: int, seed: int, base_dir: Path) -> Availability:
    if spec.availability == "none":
        return always_online(nodes)
    if spec.availability in CALIBRATIONS:
        calibration = CALIBRATIONS[spec.availability]
        if spec.peak_online is not None:
            calibration = calibration.with_peak(spec.peak_online)
        generated = synthetic.generate_availability(nodes, calibration, seed)
        sessions, periods_s = generated.sessions, generated.periods_s
    else:
        trace = read_availability(find(spec.availability, base_dir, "traces.availability"), spec.period_s)
        chosen = choose_devices(len(trace.sessions), nodes, seed, "availability")
        kept = drop_before(trace.sessions, spec.drop_before_s)
        sessions, periods_s = choose(kept, chosen), trace.periods_s[chosen]
    return Availability(_offset(spec, sessions, periods_s, seed), periods_s)


def _offset(spec: TracesSpec, sessions: Sessions, periods_s: NDArray[np.float64], seed: int) -> Sessions:
    """Begin where the spec says, each device elsewhere if it says so."""
    by_s = np.full(len(sessions), spec.start_s)
    if spec.offsets != "none":
        drawn = array_stream(seed, "traces", "offsets").random(len(sessions)) * periods_s
        by_s += np.floor(drawn / DAY_S) * DAY_S if spec.offsets == "days" else drawn
    return shift(sessions, by_s, periods_s) if by_s.any() else sessions


def _latency(spec: TracesSpec, nodes: int, seed: int, base_dir: Path) -> Latency:
    cities: list[City] | None = None
    if spec.latency == "generated":
        cities = world_cities()
        matrix_s = synthetic.generate_latency(cities, seed)
        named = cities
    else:
        trace = read_latency(find(spec.latency, base_dir, "traces.latency"), spec.latency_kind)
        matrix_s = trace.matrix_s
        named = [City(name, "", math.nan, math.nan) for name in trace.cities]
        if spec.cities is not None:
            cities = _cities_of(find(spec.cities, base_dir, "traces.cities"), trace.cities)
    if spec.places is None:
        return Latency(matrix_s, synthetic.deal_cities(nodes, len(matrix_s), seed), cities or named)
    if cities is None:
        raise PlexusError("traces.cities: needed beside traces.places, to say where cities are")
    places = [place for _, place in read_places(find(spec.places, base_dir, "traces.places"))]
    return Latency(matrix_s, nearest_cities(places, cities, nodes), cities)


def _cities_of(path: Path, ids: tuple[str, ...]) -> list[City]:
    """The coordinates of the matrix's rows; a row without any is nowhere near anything."""
    known = dict(read_places(path))
    if known.keys().isdisjoint(ids):
        raise PlexusError(f"{path}: knows none of the cities of traces.latency, e.g. {ids[0]}")
    return [known.get(name, City("", "", math.nan, math.nan)) for name in ids]
