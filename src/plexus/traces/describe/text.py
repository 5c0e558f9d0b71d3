"""Open a spec or a trace file of any kind, and say in words what it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec.structs import asdict
from numpy.typing import NDArray

from plexus.errors import PlexusError
from plexus.quantities import share
from plexus.traces.describe import facts as measured
from plexus.traces.describe.facts import AvailabilityFacts, DeviceFacts, Facts, LatencyFacts, Spread
from plexus.traces.readers.availability import read_availability
from plexus.traces.readers.devices import COMPUTE, read_devices
from plexus.traces.readers.files import Content, CsvFile, counted, load
from plexus.traces.readers.latency import LatencyKind, read_latency
from plexus.traces.world import DAY_S, Availability, Device


@dataclass(frozen=True)
class Opened:
    """The traces in a file or spec; a kind that is not there is None."""

    source: str
    devices: list[Device] | None = None
    availability: Availability | None = None
    matrix_s: NDArray[np.float64] | None = None
    latency_notes: tuple[str, ...] = ()


def open_file(path: Path, latency_kind: LatencyKind = "one-way") -> Opened:
    """The traces in a file, whose kind follows from what is in it."""
    content = load(path)
    kind = kind_of(content)
    if kind == "devices":
        return Opened(path.name, devices=read_devices(path, content))
    if kind == "availability":
        return Opened(path.name, availability=read_availability(path, content=content))
    if kind == "latency":
        latency = read_latency(path, latency_kind, content)
        return Opened(path.name, matrix_s=latency.matrix_s, latency_notes=latency.notes)
    lacks = "it has neither compute and bandwidth, nor times online, nor latencies"
    raise PlexusError(f"{path}: is no trace: {lacks}")


def kind_of(content: Content) -> str | None:
    """`devices`, `availability` or `latency`, from columns, fields or shape."""
    if isinstance(content, np.ndarray):
        return "availability"
    if isinstance(content, CsvFile):
        if content.header is None or {"source", "destination"} <= set(content.header):
            return "latency"
        square = len(content.header) - len(content.rows) in (0, 1)  # with names, perhaps on both sides
        return _kind_of_fields(content.header) or ("latency" if square else None)
    first = next(iter(content.values() if isinstance(content, dict) else content), None)
    if isinstance(first, dict):
        return _kind_of_fields(list(first))
    return "availability" if isinstance(first, list) else None


def _kind_of_fields(fields: list[str]) -> str | None:
    if not set(COMPUTE).isdisjoint(fields):
        return "devices"
    return "availability" if {"active", "start_s"} & set(fields) else None


def facts_of(opened: Opened) -> Facts:
    devices = availability = latency = None
    if opened.devices is not None:
        rows = [(d.compute_ms_per_sample, d.up_bytes_per_s, d.down_bytes_per_s) for d in opened.devices]
        devices = measured.device_facts(*np.array(rows).T)
    if opened.availability is not None:
        availability = measured.availability_facts(opened.availability)
    if opened.matrix_s is not None:
        latency = measured.latency_facts(opened.matrix_s, opened.latency_notes)
    return Facts(opened.source, devices, availability, latency)


def lines(facts: Facts) -> Iterator[str]:
    yield facts.source
    yield from _device_lines(facts.devices) if facts.devices else ()
    yield from _availability_lines(facts.availability) if facts.availability else ()
    yield from _latency_lines(facts.latency) if facts.latency else ()


def _line(label: str, text: str) -> str:
    return f"  {label:<20}{text}"


def _device_lines(facts: DeviceFacts) -> Iterator[str]:
    yield f"Hardware of {counted(facts.devices, 'device')}"
    yield _line("compute", _quantiles(facts.compute_ms_per_sample, _plain) + " ms a sample")
    ways = {"upload": facts.up_kbps, "download": facts.down_kbps}
    if facts.up_kbps == facts.down_kbps:
        ways = {"bandwidth": facts.up_kbps}
    for way, kbps in ways.items():
        yield _line(way, _quantiles(kbps, _plain) + " kbit/s")
    yield _line("a local training", _quantiles(facts.training_s, seconds) + " (5 steps of 20)")


def _availability_lines(facts: AvailabilityFacts) -> Iterator[str]:
    best, worst = int(np.argmax(facts.online_by_hour)), int(np.argmin(facts.online_by_hour))
    yield f"Availability of {counted(facts.devices, 'device')}"
    by_hour = facts.online_by_hour
    ends = f"best hour {share(by_hour[best])} ({best:02}h), worst {share(by_hour[worst])} ({worst:02}h)"
    yield _line("online", f"{share(facts.online)} on average; {ends}")
    for first in (0, 12):
        hours = " ".join(f"{online * 100:4.1f}" for online in by_hour[first : first + 12])
        yield _line(f"  {first:02}h to {first + 12:02}h, %", hours)
    never = f"{facts.never_online * 100:.0f} % of them never"
    yield _line("a device is online", f"{_quantiles(facts.online_by_device, share)} of the time; {never}")
    for label, lengths in (("sessions", facts.session_s), ("gaps", facts.gap_s)):
        yield _line(label, "none" if lengths is None else _quantiles(lengths, seconds))
    changes = f"{facts.changes_per_hour:.0f} joins and leaves an hour in 1000 devices"
    yield _line("churn", f"{counted(facts.sessions, 'session')}; {changes}")
    if (period := facts.period_days) is not None:
        shortest, longest = seconds(period.min * DAY_S), seconds(period.max * DAY_S)
        yield _line("repeats after", longest if shortest == longest else f"{shortest} to {longest}")
    yield from (_line("note", note) for note in facts.notes)


def _latency_lines(facts: LatencyFacts) -> Iterator[str]:
    yield f"Latency between {facts.cities:,} cities"
    yield _line("one-way latency", _quantiles(facts.one_way_ms, _plain) + " ms")
    yield _line("detours that pay", f"{share(facts.detours)} of those via a third city are faster")
    yield from (_line("note", note) for note in facts.notes)


def _quantiles(spread: Spread, word: Callable[[float], str]) -> str:
    return ", ".join(f"{name} {word(value)}" for name, value in asdict(spread).items() if name != "min")


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def seconds(value: float) -> str:
    """A duration in the unit people would use."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if value >= 2 * size or (unit == "min" and value >= size):
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} s"
