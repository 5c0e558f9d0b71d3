"""One curve out of several seeds: what happens on average, and between which bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from plexus.report.arms import Arm
from plexus.report.comparison import Judge, values_of
from plexus.runs.run import Run

Axis = Literal["simulated_h", "sent_gb", "training_h"]
Values = NDArray[np.float64]
MOST_POINTS = 300

_COLUMNS = {
    "simulated_h": ("simulated_s", 3600.0),
    "sent_gb": ("sent_bytes", 1e9),
    "training_h": ("training_s", 3600.0),
}


class Curve(NamedTuple):
    """The mean over seeds, and the lowest and highest of them."""

    x: Values
    mean: Values
    low: Values
    high: Values


def curve(arm: Arm, x: Axis, metric: str, judge: Judge = "mean") -> Curve | None:
    """The metric of an arm over `x`; None where nothing was evaluated."""
    column, unit = _COLUMNS[x]
    points = [_points(run, column, unit, metric, judge) for run in arm.runs]
    return average([(xs, ys) for xs, ys in points if len(xs)])


def average(points: Sequence[tuple[Values, Values]]) -> Curve | None:
    """Curves of several seeds as one, over the stretch that all of them cover.

    Seeds are not evaluated at the same moments: between its evaluations a seed is taken to change evenly.
    """
    if not points:
        return None
    start = max(xs[0] for xs, _ in points)
    end = min(xs[-1] for xs, _ in points)
    grid = np.unique(np.concatenate([xs for xs, _ in points]))
    grid = grid[(grid >= start) & (grid <= end)]
    if not len(grid):  # seeds that share no moment, such as a single evaluation each
        grid = np.array([np.mean([xs[-1] for xs, _ in points])])
    if len(grid) > MOST_POINTS:
        grid = grid[np.linspace(0, len(grid) - 1, MOST_POINTS).round().astype(int)]
    rows = np.array([np.interp(grid, xs, ys) for xs, ys in points])
    return Curve(grid, rows.mean(axis=0), rows.min(axis=0), rows.max(axis=0))


def _points(run: Run, column: str, unit: float, metric: str, judge: Judge) -> tuple[Values, Values]:
    ys = values_of(run, metric, judge)
    evaluations = run.tables["evaluations"]
    if not len(ys) or column not in evaluations:
        return np.array([]), np.array([])
    xs = evaluations[column].astype(float) / unit
    known = ~np.isnan(xs) & ~np.isnan(ys)  # a live peer alone does not know what all have sent
    return xs[known], ys[known]
