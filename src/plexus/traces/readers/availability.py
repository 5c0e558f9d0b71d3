"""Recorded availability: FedScale's behaviour trace, on/off events, half hours, our own CSV.

All end as rows [start_s, end_s) per device within the device's period, after which it repeats. What
had to be changed on the way is said in the trace's `notes`; nothing is changed silently.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plexus.errors import PlexusError
from plexus.traces.readers import files
from plexus.traces.readers.files import Content, CsvFile, Record, counted, fault, number, number_in, short
from plexus.traces.sessions import Rows, join, pack
from plexus.traces.world import DAY_S, Availability

MOST_S = 1e10
"""Of a trace: as much as three centuries. What is longer has its times in another unit."""


def read_availability(
    path: Path, period_s: float | None = None, content: Content | None = None
) -> Availability:
    """An availability trace, or that in the `content` of a file which is loaded already.

    `period_s` says after what time it repeats, whatever the file says.
    """
    trace = _trace(path, files.load(path) if content is None else content, period_s)
    longest_s = trace.periods_s.max()
    if period_s is None and longest_s > MOST_S:
        why = f"at most {MOST_S:g} are read: are these milliseconds?"
        raise PlexusError(f"{path}: lasts for {longest_s:g} s; {why}")
    return trace


def _trace(path: Path, content: Content, period_s: float | None) -> Availability:
    if isinstance(content, np.ndarray):
        return _from_half_hours(path, content, period_s)
    if isinstance(content, CsvFile):
        return _from_rows(path, files.records(path, content), period_s)
    if isinstance(content, list) or not content:
        raise PlexusError(f"{path}: must be an object with one entry per device")
    if any(isinstance(value, dict) for value in content.values()):
        return _from_behaviour(path, files.records(path, content), period_s)
    return _from_events(path, content, period_s)


def _whole_days_s(last_s: float) -> float:
    """A period for a trace that names none: whole days keep morning in the morning."""
    return max(1.0, round(last_s / DAY_S)) * DAY_S


def fit_period(
    owners: NDArray[np.int64], rows: Rows, periods_s: NDArray[np.float64], *, crosses: bool
) -> Availability:
    """Bring raw rows within each device's period.

    Where a session reaches past the end it goes on at the beginning if it `crosses` the wrap (the
    trace names its period), and is cut otherwise (the period is our choice).
    """
    notes = []
    until_s = periods_s[owners]
    past = rows[:, 1] > until_s
    late = rows[:, 0] >= until_s
    cut = int(late.sum() if crosses else past.sum())
    if cut:
        notes.append(f"{counted(cut, 'session')} cut where the trace repeats")
    inside = np.column_stack((rows[:, 0], np.minimum(rows[:, 1], until_s)))[~late]
    owner_of, rest = owners[~late], past & ~late
    if crosses and rest.any():
        over = np.minimum(rows[rest, 1] - until_s[rest], until_s[rest])
        inside = np.concatenate((inside, np.column_stack((np.zeros(len(over)), over))))
        owner_of = np.concatenate((owner_of, owners[rest]))
        notes.append(f"{counted(len(over), 'session')} going on across the wrap")
    sessions = join(owner_of, inside, len(periods_s))
    recorded = _as_recorded(inside[:, 1] - inside[:, 0], len(sessions.rows))
    return Availability(sessions, periods_s, (*recorded, *notes))


def _as_recorded(lengths_s: NDArray[np.float64], after: int) -> list[str]:
    """The sessions before any were joined: recorders often log one session as several."""
    if not len(lengths_s):
        return ["no sessions at all"]
    median, mean = np.median(lengths_s) / 60, lengths_s.mean() / 60
    count = counted(len(lengths_s), "session")
    notes = [f"{count} recorded, median {median:.1f} min, mean {mean:.0f} min"]
    if empty := int((lengths_s == 0).sum()):
        notes.append(f"{counted(empty, 'session')} of 0 s dropped")
    if joined := len(lengths_s) - empty - after:
        notes.append(f"{counted(joined, 'session')} joined with one they touch")
    return notes


# FedScale's behaviour trace: the seconds at which each client becomes active and inactive.


def _from_behaviour(path: Path, clients: list[Record], period_s: float | None) -> Availability:
    """Clients with `active`, `inactive` and `finish_time`, after which a client's trace repeats."""
    finish_s = [number_in(path, client, "finish_time", positive=True) for client in clients]
    raw = pack([_sessions(path, *pair) for pair in zip(clients, finish_s, strict=True)])
    periods_s = np.array(finish_s) if period_s is None else np.full(len(clients), period_s)
    return fit_period(raw.owners(), raw.rows, periods_s, crosses=True)


def _sessions(path: Path, client: Record, finish_s: float) -> Rows:
    active, inactive = _times(path, client, "active"), _times(path, client, "inactive")
    online_at_0 = inactive.size > 0 and (active.size == 0 or inactive[0] < active[0])
    if online_at_0 and inactive.size == active.size:
        # The session that began last is the one that ends first: it crosses the wrap.
        inactive = np.append(inactive[1:], inactive[0] + finish_s)
    elif online_at_0 and inactive.size == active.size + 1:
        active = np.insert(active, 0, 0.0)
    elif active.size == inactive.size + 1:
        inactive = np.append(inactive, max(finish_s, active[-1]))
    elif active.size != inactive.size:
        problem = f"{active.size} starts but {inactive.size} ends"
        raise fault(path, client[0], "active and inactive", problem)
    elif active.size and inactive[-1] < active[-1]:
        inactive[-1] += finish_s
    backwards = np.flatnonzero(inactive < active)
    if backwards.size:
        at = int(backwards[0])
        problem = f"ends at {inactive[at]:g} s, before it starts at {active[at]:g} s"
        raise fault(path, client[0], f"session {at}", problem)
    return np.column_stack((active, inactive))


def _times(path: Path, client: Record, field: str) -> NDArray[np.float64]:
    values = client[1].get(field)
    if not isinstance(values, list):
        raise fault(path, client[0], field, "must be a list of seconds")
    try:
        times_s = np.array(values)
    except ValueError:  # a list within a list
        times_s = np.empty(0, object)
    # Millions of times are checked at once; where one is wrong, a closer look finds which.
    is_plain = times_s.dtype.kind in "iuf" and times_s.ndim == 1
    if not is_plain or not (np.isfinite(times_s) & (times_s >= 0)).all():
        times_s = np.array([number(path, client[0], f"{field}[{i}]", v) for i, v in enumerate(values)])
    return times_s.astype(np.float64)


# On/off events: per device a list of [second, state]; offline before the first one.

STATES: dict[object, bool] = {
    "AVL_TRAIN": True, "AVL_EVAL": False, "UN_AVL": False,
    "online": True, "offline": False, "on": True, "off": False, 1: True, 0: False,
}  # fmt: skip
"""AVL_EVAL is a device that may evaluate but not train: offline to Plexus."""


def _from_events(path: Path, devices: dict[str, object], period_s: float | None) -> Availability:
    """Devices with their events. Without a period, the last event tells how many whole days."""
    changes = [_changes(path, f"device {name}", events) for name, events in devices.items()]
    last_s = max((float(times_s[-1]) for times_s, _ in changes if len(times_s)), default=0.0)
    until_s = period_s or _whole_days_s(last_s)
    parts = []
    for times_s, online in changes:
        ends_s = np.append(times_s, until_s)[1:]  # the last state holds to the end
        parts.append(np.column_stack((times_s, np.maximum(times_s, ends_s)))[online])
    raw = pack(parts)
    return fit_period(raw.owners(), raw.rows, np.full(len(parts), until_s), crosses=False)


def _changes(path: Path, device: str, events: object) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    if not isinstance(events, list):
        raise fault(path, device, "", "must be a list of [second, state]")
    times_s, online = np.empty(len(events)), np.empty(len(events), np.bool_)
    for i, event in enumerate(events):
        where = f"event {i}"
        if not (isinstance(event, list) and len(event) == 2):
            raise fault(path, device, where, f"must be [second, state], is {short(event)}")
        times_s[i] = number(path, device, where, event[0])
        if not isinstance(event[1], str | int) or event[1] not in STATES:
            known = ", ".join(str(state) for state in STATES)
            raise fault(path, device, where, f"state {short(event[1])} is none of {known}")
        online[i] = STATES[event[1]]
        if i and times_s[i] < times_s[i - 1]:
            raise fault(path, device, where, "is earlier than the one before it")
    return times_s, online


# Half-hour matrices: a row per half hour, a column per device; 1 is online, NaN unknown.

HALF_HOUR_S = 1800.0
SLOTS_PER_DAY = round(DAY_S / HALF_HOUR_S)


def _from_half_hours(path: Path, matrix: NDArray[np.float64], period_s: float | None) -> Availability:
    """A matrix of half hours by devices. Without a period, it repeats after its last whole day."""
    if matrix.ndim != 2 or matrix.size == 0:
        raise PlexusError(f"{path}: must be a matrix of half hours by devices, is {matrix.shape}")
    wrong = np.argwhere(~np.isnan(matrix) & (matrix != 0) & (matrix != 1))
    if len(wrong):
        slot, device = wrong[0].tolist()
        problem = f"must be 1, 0 or NaN, is {matrix[slot, device]:g}"
        raise fault(path, f"device {device}", f"half hour {slot}", problem)
    filled, notes = _fill(matrix)
    length_s = len(matrix) * HALF_HOUR_S
    until_s = period_s or (length_s // DAY_S * DAY_S if length_s >= DAY_S else length_s)
    change = np.diff(np.pad(filled.T.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    owners, starts = np.nonzero(change == 1)
    ends = np.nonzero(change == -1)[1]  # as many, in the same order
    rows = np.column_stack((starts, ends)).astype(np.float64) * HALF_HOUR_S
    trace = fit_period(owners, rows, np.full(matrix.shape[1], until_s), crosses=False)
    return Availability(trace.sessions, trace.periods_s, (*notes, *trace.notes))


def _fill(matrix: NDArray[np.float64]) -> tuple[NDArray[np.bool_], list[str]]:
    """What was not recorded is taken from the same half hour of the nearest day that was."""
    filled = matrix.copy()
    for begin in range(min(SLOTS_PER_DAY, len(matrix))):
        days = matrix[begin::SLOTS_PER_DAY]
        day = np.arange(len(days))[:, None]
        known = ~np.isnan(days)
        earlier = np.maximum.accumulate(np.where(known, day, -len(days)), axis=0)
        later = np.minimum.accumulate(np.where(known, day, 2 * len(days))[::-1], axis=0)[::-1]
        nearest = np.where(later - day <= day - earlier, later, earlier)
        found = known.any(axis=0)
        filled[begin::SLOTS_PER_DAY, found] = np.take_along_axis(days[:, found], nearest[:, found], 0)
    unknown, left = int(np.isnan(matrix).sum()), int(np.isnan(filled).sum())
    if unknown == matrix.size:
        return filled == 1, ["nothing was recorded: all devices count as offline"]
    notes = [f"{np.nanmean(matrix) * 100:.1f} % online of the half hours recorded"]
    if unknown:
        taken = f"{unknown - left} are taken from the same time of the nearest day, {left} count as offline"
        share = f"{unknown / matrix.size * 100:.0f} % of the half hours"
        notes.append(f"{share} were not recorded: {taken}")
    return filled == 1, notes


def _from_rows(path: Path, lines: list[Record], period_s: float | None) -> Availability:
    """Our own CSV: device, start_s, end_s, perhaps period_s. Never online: no start, no end."""
    for field in ("device", "start_s", "end_s"):
        if field not in lines[0][1]:
            raise fault(path, lines[0][0], field, "missing")
    index: dict[object, int] = {}
    owners, rows, periods = [], [], {}
    for record in lines:
        device = index.setdefault(record[1]["device"], len(index))
        if record[1].get("period_s"):
            periods[device] = number_in(path, record, "period_s", positive=True)
        if record[1]["start_s"] == "" and record[1]["end_s"] == "":
            continue
        start_s, end_s = (number_in(path, record, field) for field in ("start_s", "end_s"))
        if end_s < start_s:
            raise fault(path, record[0], "end_s", f"{end_s:g} is before the start, {start_s:g}")
        owners.append(device)
        rows.append((start_s, end_s))
    ends = np.array(rows, np.float64).reshape(-1, 2)
    usual_s = _whole_days_s(float(ends[:, 1].max(initial=0.0)))
    periods_s = np.array([period_s or periods.get(i, usual_s) for i in range(len(index))])
    return fit_period(np.array(owners, np.int64), ends, periods_s, crosses=bool(periods))
