"""Recorded availability: FedScale's behaviour trace, on/off events, half hours, our own CSV.

All end as rows [start_s, end_s) per device within the device's period, after which it repeats. What
had to be changed on the way is said in the trace's `notes`; nothing is changed silently.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from plexus.errors import PlexusError
from plexus.traces.readers.behaviour import from_behaviour
from plexus.traces.readers.events import from_events
from plexus.traces.readers.files import Content, Record, Table, fault, load, number, records
from plexus.traces.readers.half_hours import from_half_hours
from plexus.traces.readers.recorded import AvailabilityTrace, fit_period, whole_days_s


def read_availability(path: Path, period_s: float | None = None) -> AvailabilityTrace:
    """An availability trace; `period_s` says after what time it repeats, whatever the file says."""
    return availability_from(path, load(path), period_s)


def availability_from(
    path: Path, content: Content, period_s: float | None = None
) -> AvailabilityTrace:
    """The availability in a loaded file."""
    if isinstance(content, np.ndarray):
        return from_half_hours(path, content, period_s)
    if isinstance(content, Table):
        return _from_rows(path, records(path, content), period_s)
    if isinstance(content, list) or not content:
        raise PlexusError(f"{path}: must be an object with one entry per device")
    if any(isinstance(value, dict) for value in content.values()):
        return from_behaviour(path, records(path, content), period_s)
    return from_events(path, content, period_s)


def _from_rows(path: Path, lines: list[Record], period_s: float | None) -> AvailabilityTrace:
    """Our own CSV: device, start_s, end_s, perhaps period_s. Never online: no start, no end."""
    for field in ("device", "start_s", "end_s"):
        if field not in lines[0][1]:
            raise fault(path, lines[0][0], field, "missing")
    index: dict[object, int] = {}
    owners, rows, periods = [], [], {}
    for record in lines:
        device = index.setdefault(record[1]["device"], len(index))
        if record[1].get("period_s"):
            periods[device] = number(
                path, record[0], "period_s", record[1]["period_s"], positive=True
            )
        if record[1]["start_s"] == "" and record[1]["end_s"] == "":
            continue
        start_s, end_s = (number(path, record[0], f, record[1][f]) for f in ("start_s", "end_s"))
        if end_s < start_s:
            raise fault(path, record[0], "end_s", f"{end_s:g} is before the start, {start_s:g}")
        owners.append(device)
        rows.append((start_s, end_s))
    ends = np.array(rows, np.float64).reshape(-1, 2)
    usual_s = whole_days_s(float(ends[:, 1].max(initial=0.0)))
    periods_s = np.array([period_s or periods.get(i, usual_s) for i in range(len(index))])
    return fit_period(np.array(owners, np.int64), ends, periods_s, crosses=bool(periods))
