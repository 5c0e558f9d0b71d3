"""When many devices are online, stored compactly, and the arithmetic on it.

A million sessions are two columns of numbers, not a million objects: `Sessions` keeps the rows of
all devices in one array and hands out a view per device. The functions below are the only place
where sessions are sorted, joined or shifted; readers and generators bring rows in any order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Rows = NDArray[np.float64]


class Sessions(Sequence[Rows]):
    """Per device, rows [start_s, end_s): sorted, disjoint, not touching."""

    __slots__ = ("bounds", "rows")

    def __init__(self, rows: Rows, bounds: NDArray[np.int64]) -> None:
        assert rows.shape == (bounds[-1], 2), "bounds must cover the rows"
        self.rows = rows
        """The sessions of all devices, one device after the other."""
        self.bounds = bounds
        """Device i owns rows bounds[i] to bounds[i + 1]."""

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, device: int) -> Rows:  # type: ignore[override]  # nobody wants some of them
        if not 0 <= device < len(self):
            raise IndexError(f"device {device} of {len(self)}")
        return self.rows[self.bounds[device] : self.bounds[device + 1]]

    def owners(self) -> NDArray[np.int64]:
        return np.repeat(np.arange(len(self)), np.diff(self.bounds))


def pack(sessions: Sequence[Rows]) -> Sessions:
    """The compact form of a list of per-device rows."""
    if isinstance(sessions, Sessions):
        return sessions
    return Sessions(np.concatenate([np.empty((0, 2)), *sessions]), bounds_of([len(s) for s in sessions]))


def concatenate(parts: Sequence[Sessions]) -> Sessions:
    counts = np.concatenate([np.diff(part.bounds) for part in parts])
    return Sessions(np.concatenate([part.rows for part in parts]), bounds_of(counts))


def join(owners: NDArray[np.int64], rows: Rows, devices: int) -> Sessions:
    """Sort rows of any order; unite those of a device that overlap or touch; drop empty ones."""
    kept = rows[:, 1] > rows[:, 0]
    owners, rows = owners[kept], rows[kept]
    order = np.lexsort((rows[:, 0], owners))
    owners, rows = owners[order], rows[order]
    if len(rows) == 0:
        return Sessions(rows, np.zeros(devices + 1, np.int64))
    # On one time line with the devices side by side, a running maximum finds the overlaps of all.
    finite = rows[:, 1][np.isfinite(rows[:, 1])]
    stride_s = 1.0 + max(rows[:, 0].max(), finite.max(initial=0.0))
    lane_s = owners * stride_s
    reach_s = np.maximum.accumulate(np.minimum(rows[:, 1], stride_s - 0.5) + lane_s)
    first = np.ones(len(rows), np.bool_)
    first[1:] = (owners[1:] != owners[:-1]) | (rows[1:, 0] + lane_s[1:] > reach_s[:-1])
    if first.all():
        return Sessions(rows, bounds_of(np.bincount(owners, minlength=devices)))
    firsts = np.flatnonzero(first)
    united = np.column_stack((rows[firsts, 0], np.maximum.reduceat(rows[:, 1], firsts)))
    return Sessions(united, bounds_of(np.bincount(owners[firsts], minlength=devices)))


def choose(sessions: Sessions, devices: NDArray[np.intp]) -> Sessions:
    """The sessions of `devices`, in that order; a device may be chosen more than once."""
    counts = np.diff(sessions.bounds)[devices]
    bounds = bounds_of(counts)
    within = np.arange(bounds[-1]) - np.repeat(bounds[:-1], counts)
    return Sessions(sessions.rows[np.repeat(sessions.bounds[devices], counts) + within], bounds)


def drop_before(sessions: Sessions, time_s: float) -> Sessions:
    """Without what lies before `time_s`; a session under way then begins there."""
    rows = np.column_stack((np.maximum(sessions.rows[:, 0], time_s), sessions.rows[:, 1]))
    return join(sessions.owners(), rows, len(sessions)) if time_s > 0 else sessions


def shift(sessions: Sessions, by_s: NDArray[np.float64], period_s: NDArray[np.float64]) -> Sessions:
    """Let each device's trace begin `by_s` into its (finite) period; what it skips comes last."""
    owners = sessions.owners()
    period = period_s[owners]
    start_s = np.mod(sessions.rows[:, 0] - by_s[owners], period)
    end_s = start_s + (sessions.rows[:, 1] - sessions.rows[:, 0])
    over = end_s > period
    within = np.column_stack((start_s, np.minimum(end_s, period)))
    rest = np.column_stack((np.zeros(over.sum()), (end_s - period)[over]))
    return join(np.concatenate((owners, owners[over])), np.concatenate((within, rest)), len(sessions))


def bounds_of(counts: ArrayLike) -> NDArray[np.int64]:
    """Where each device's rows begin and end, given how many it has."""
    return np.concatenate(([0], np.cumsum(np.asarray(counts, np.int64)))).astype(np.int64)
