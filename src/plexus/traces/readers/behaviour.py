"""FedScale's behaviour trace: the seconds at which each client becomes active and inactive."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plexus.traces.readers.availability import AvailabilityTrace, fit_period, gather
from plexus.traces.readers.files import Record, fault, number
from plexus.traces.sessions import Rows


def from_behaviour(path: Path, clients: list[Record], period_s: float | None) -> AvailabilityTrace:
    """Clients with `active`, `inactive` and `finish_time`, after which a client's trace repeats."""
    finish_s = np.empty(len(clients))
    for i, (name, fields) in enumerate(clients):
        if "finish_time" not in fields:
            raise fault(path, name, "finish_time", "missing")
        finish_s[i] = number(path, name, "finish_time", fields["finish_time"], positive=True)
    regular, owners, rows = _plain_sessions(clients)
    parts = [
        np.empty((0, 2)) if regular[i] else _sessions(path, client, float(finish_s[i]))
        for i, client in enumerate(clients)
    ]
    more_owners, more_rows = gather(parts)
    owners, rows = np.concatenate((owners, more_owners)), np.concatenate((rows, more_rows))
    periods_s = finish_s if period_s is None else np.full(len(clients), period_s)
    return fit_period(owners, rows, periods_s, crosses=True)


def _plain_sessions(clients: list[Record]) -> tuple[NDArray[np.bool_], NDArray[np.int64], Rows]:
    """The sessions of all clients at once, for those with nothing special: as many ends as starts,
    each end after its start. Which clients these are comes first; the others need a closer look."""
    chosen, starts_of, ends_of = [], [], []
    for i, (_, fields) in enumerate(clients):
        active, inactive = fields.get("active"), fields.get("inactive")
        if isinstance(active, list) and isinstance(inactive, list) and len(active) == len(inactive):
            chosen.append(i)
            starts_of.append(active)
            ends_of.append(inactive)
    try:
        starts, ends = (np.array(list(chain.from_iterable(x))) for x in (starts_of, ends_of))
    except ValueError:  # a list within a list
        starts = ends = np.empty(0, object)
    if starts.dtype.kind not in "iuf" or ends.dtype.kind not in "iuf":
        return np.zeros(len(clients), np.bool_), np.empty(0, np.int64), np.empty((0, 2))
    owners = np.repeat(np.array(chosen, np.int64), [len(times) for times in starts_of])
    rows = np.column_stack((starts, ends)).astype(np.float64)
    wrong = ~np.isfinite(rows).all(axis=1) | (rows[:, 0] < 0) | (rows[:, 1] < rows[:, 0])
    regular = np.zeros(len(clients), np.bool_)
    regular[chosen] = True
    regular[owners[wrong]] = False
    kept = regular[owners]
    return regular, owners[kept], rows[kept]


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
    checked = [number(path, client[0], f"{field}[{i}]", v) for i, v in enumerate(values)]
    return np.array(checked, np.float64)
