"""From the `[traces]` table of a spec to the world of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from msgspec import Struct

from plexus.errors import PlexusError
from plexus.traces.api import Availability, Device, Latency, World, always_online
from plexus.traces.calibrations import CALIBRATIONS
from plexus.traces.cities import world_cities
from plexus.traces.synthetic import (
    KBPS_TO_BYTES_PER_S,
    generate_availability,
    generate_devices,
    generate_latency,
    round_robin,
)


class TracesSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """Where devices, availability and latency of a run come from."""

    devices: Literal["generated"] = "generated"
    """Compute and bandwidth."""
    availability: Literal["none", "strict", "fedscale"] = "fedscale"
    """Who is online when: `none` (all, always), `strict` (about 8 %) or `fedscale` (15 to 24 %)."""
    latency: Literal["generated"] = "generated"
    """Delays between cities."""
    uniform_compute_ms_per_sample: float | None = None
    """Give every device this compute speed instead."""
    uniform_up_kbps: float | None = None
    """Give every device this upload capacity (kilobits a second) instead."""
    uniform_down_kbps: float | None = None
    """Give every device this download capacity (kilobits a second) instead."""
    graceful_share: float = 1.0
    """Share of departures that are announced; the others are crashes."""

    def __post_init__(self) -> None:
        if not 0 <= self.graceful_share <= 1:
            raise PlexusError(f"graceful_share = {self.graceful_share}: must be between 0 and 1")
        for key in ("uniform_compute_ms_per_sample", "uniform_up_kbps", "uniform_down_kbps"):
            value = getattr(self, key)
            if value is not None and not 0 < value < float("inf"):
                raise PlexusError(f"{key} = {value}: must be a positive number")


def build_world(spec: TracesSpec, nodes: int, seed: int, base_dir: Path) -> World:
    """The devices of a run of `nodes` nodes. Same spec, nodes and seed, same world."""
    return World(
        _devices(spec, nodes, seed), _availability(spec, nodes, seed), _latency(nodes, seed)
    )


def _devices(spec: TracesSpec, nodes: int, seed: int) -> list[Device]:
    devices = generate_devices(nodes, seed)
    compute_ms, up, down = (
        spec.uniform_compute_ms_per_sample,
        spec.uniform_up_kbps,
        spec.uniform_down_kbps,
    )
    if compute_ms is up is down is None:
        return devices
    return [
        Device(
            device.compute_ms_per_sample if compute_ms is None else compute_ms,
            device.up_bytes_per_s if up is None else up * KBPS_TO_BYTES_PER_S,
            device.down_bytes_per_s if down is None else down * KBPS_TO_BYTES_PER_S,
        )
        for device in devices
    ]


def _availability(spec: TracesSpec, nodes: int, seed: int) -> Availability:
    if spec.availability == "none":
        return always_online(nodes)
    return generate_availability(nodes, CALIBRATIONS[spec.availability], seed)


def _latency(nodes: int, seed: int) -> Latency:
    cities = world_cities()
    return Latency(generate_latency(cities, seed), round_robin(nodes, len(cities)))
