"""Half-hour matrices: a row per half hour, a column per device; 1 is online, NaN unknown."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plexus.errors import PlexusError
from plexus.traces.readers.files import fault
from plexus.traces.readers.recorded import DAY_S, AvailabilityTrace, fit_period

HALF_HOUR_S = 1800.0
SLOTS_PER_DAY = round(DAY_S / HALF_HOUR_S)


def from_half_hours(
    path: Path, matrix: NDArray[np.float64], period_s: float | None
) -> AvailabilityTrace:
    """A matrix of half hours by devices. Without a period, it repeats after its last whole day."""
    _check(path, matrix)
    filled, notes = _fill(matrix)
    length_s = len(matrix) * HALF_HOUR_S
    until_s = period_s or (length_s // DAY_S * DAY_S if length_s >= DAY_S else length_s)
    change = np.diff(np.pad(filled.T.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    owners, starts = np.nonzero(change == 1)
    ends = np.nonzero(change == -1)[1]  # as many, in the same order
    rows = np.column_stack((starts, ends)).astype(np.float64) * HALF_HOUR_S
    trace = fit_period(owners, rows, np.full(matrix.shape[1], until_s), crosses=False)
    return AvailabilityTrace(trace.sessions, trace.periods_s, (*notes, *trace.notes))


def _check(path: Path, matrix: NDArray[np.float64]) -> None:
    if matrix.ndim != 2 or matrix.size == 0:
        raise PlexusError(f"{path}: must be a matrix of half hours by devices, is {matrix.shape}")
    wrong = np.argwhere(~np.isnan(matrix) & (matrix != 0) & (matrix != 1))
    if len(wrong):
        slot, device = wrong[0].tolist()
        problem = f"must be 1, 0 or NaN, is {matrix[slot, device]:g}"
        raise fault(path, f"device {device}", f"half hour {slot}", problem)


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
        filled[begin::SLOTS_PER_DAY, found] = np.take_along_axis(
            days[:, found], nearest[:, found], 0
        )
    unknown, left = int(np.isnan(matrix).sum()), int(np.isnan(filled).sum())
    if unknown == matrix.size:
        return filled == 1, ["nothing was recorded: all devices count as offline"]
    notes = [f"{np.nanmean(matrix) * 100:.1f} % online of the half hours recorded"]
    if unknown:
        notes.append(
            f"{unknown / matrix.size * 100:.0f} % of the half hours were not recorded: {unknown - left} "
            f"are taken from the same time of the nearest day, {left} count as offline"
        )
    return filled == 1, notes
