"""On/off events: per device a list of [second, state]; offline before the first one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plexus.traces.readers.files import fault, number, short
from plexus.traces.readers.recorded import AvailabilityTrace, fit_period, gather, whole_days_s

STATES: dict[object, bool] = {
    "AVL_TRAIN": True, "AVL_EVAL": False, "UN_AVL": False,
    "online": True, "offline": False, "on": True, "off": False, 1: True, 0: False,
}  # fmt: skip
"""AVL_EVAL is a device that may evaluate but not train: offline to Plexus."""


def from_events(
    path: Path, devices: dict[str, object], period_s: float | None
) -> AvailabilityTrace:
    """Devices with their events. Without a period, the last event tells how many whole days."""
    changes = [_changes(path, f"device {name}", events) for name, events in devices.items()]
    last_s = max((float(times_s[-1]) for times_s, _ in changes if len(times_s)), default=0.0)
    until_s = period_s or whole_days_s(last_s)
    parts = []
    for times_s, online in changes:
        ends_s = np.append(times_s, until_s)[1:]  # the last state holds to the end
        parts.append(np.column_stack((times_s, np.maximum(times_s, ends_s)))[online])
    owners, rows = gather(parts)
    return fit_period(owners, rows, np.full(len(parts), until_s), crosses=False)


def _changes(
    path: Path, device: str, events: object
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
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
