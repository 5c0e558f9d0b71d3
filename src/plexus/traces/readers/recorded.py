"""What the readers of availability share: the trace they return, and how raw rows become one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plexus.traces.readers.files import counted
from plexus.traces.sessions import Rows, Sessions, join
from plexus.traces.world import Availability

DAY_S = 86400.0


@dataclass(frozen=True)
class AvailabilityTrace:
    """When recorded devices were online."""

    sessions: Sessions
    periods_s: NDArray[np.float64]
    notes: tuple[str, ...]
    """What the file said that the sessions no longer show, and what had to be mended."""

    def __len__(self) -> int:
        return len(self.sessions)

    def availability(self) -> Availability:
        """As the simulator sees it."""
        return Availability(self.sessions, self.periods_s)


def whole_days_s(last_s: float) -> float:
    """A period for a trace that names none: whole days keep morning in the morning."""
    return max(1.0, round(last_s / DAY_S)) * DAY_S


def gather(parts: list[Rows]) -> tuple[NDArray[np.int64], Rows]:
    """Rows of all devices, with the device of each."""
    owners = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    return owners, np.concatenate([np.empty((0, 2)), *parts])


def fit_period(
    owners: NDArray[np.int64], rows: Rows, periods_s: NDArray[np.float64], *, crosses: bool
) -> AvailabilityTrace:
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
    return AvailabilityTrace(sessions, periods_s, (*recorded, *notes))


def _as_recorded(lengths_s: NDArray[np.float64], after: int) -> list[str]:
    """The sessions before any were joined: recorders often log one session as several."""
    if not len(lengths_s):
        return ["no sessions at all"]
    median, mean = np.median(lengths_s) / 60, lengths_s.mean() / 60
    count = counted(len(lengths_s), "session")
    notes = [f"{count} recorded, median {median:.1f} min, mean {mean:.0f} min"]
    empty = int((lengths_s == 0).sum())
    if empty:
        notes.append(f"{counted(empty, 'session')} of 0 s dropped")
    joined = len(lengths_s) - empty - after
    if joined:
        notes.append(f"{counted(joined, 'session')} joined with one they touch")
    return notes
