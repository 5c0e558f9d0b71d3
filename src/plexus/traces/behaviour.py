"""FedScale's behaviour trace: the seconds at which each client becomes active and inactive."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plexus.traces.files import Record, fault, number
from plexus.traces.recorded import AvailabilityTrace, fit_period, gather
from plexus.traces.sessions import Rows


def from_behaviour(path: Path, clients: list[Record], period_s: float | None) -> AvailabilityTrace:
    """Clients with `active`, `inactive` and `finish_time`, after which a client's trace repeats."""
    parts, periods_s = [], np.empty(len(clients))
    for i, client in enumerate(clients):
        if "finish_time" not in client[1]:
            raise fault(path, client[0], "finish_time", "missing")
        finish_s = number(path, client[0], "finish_time", client[1]["finish_time"], positive=True)
        parts.append(_sessions(path, client, finish_s))
        periods_s[i] = finish_s if period_s is None else period_s
    owners, rows = gather(parts)
    return fit_period(owners, rows, periods_s, crosses=True)


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
