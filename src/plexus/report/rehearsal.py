"""A live session beside its rehearsal: whether both took the same course, round by round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from statistics import fmean

import numpy as np

from plexus import quantities
from plexus.report.arms import Arm, common_metric
from plexus.report.document import Cell, Quantity, Table, number, over_seeds
from plexus.report.plots import durations_s

WITHIN = 0.02
"""By so much measurements of the same round may differ."""
MOST_ROWS = 12
WHY = " Where it differs, other trainings counted: by sample_size, success_fraction or a timeout."


def agreements(arms: Sequence[Arm], suffix: str = "") -> Iterator[Table]:
    """A table for each session that is here both live and simulated, from the same file."""
    for live in arms:
        for simulated in arms:
            is_pair = live.runs[0].is_live and not simulated.runs[0].is_live
            if is_pair and live.spec == simulated.spec:
                yield _agreement(live, simulated, f"rehearsal{suffix}")


def _agreement(live: Arm, simulated: Arm, id: str) -> Table:
    metric, _ = common_metric([live, simulated])
    write = partial(quantities.metric, metric)
    found, rehearsed = _by_round(live, metric), _by_round(simulated, metric)
    common = sorted(found.keys() & rehearsed.keys())
    apart = {k: abs(fmean(found[k]) - fmean(rehearsed[k])) for k in common}
    rows: list[tuple[Cell, ...]] = []
    for at in sorted({round(each) for each in np.linspace(0, len(common) - 1, min(MOST_ROWS, len(common)))}):
        k = common[at]
        both = over_seeds(found[k], write), over_seeds(rehearsed[k], write)
        rows.append((str(k), *both, Quantity(quantities.difference(metric, apart[k]), apart[k])))
    name = quantities.metric_name(metric)
    columns = ("Round", f"Live {name}", f"Simulated {name}", "Difference")
    note = f"{_rounds(live, simulated)} {_difference(apart, metric)}"
    return Table(id, "The session and its rehearsal", columns, tuple(rows), note)


def _by_round(arm: Arm, metric: str) -> dict[int, list[float]]:
    """What was measured of the model of each round, by all runs."""
    found: dict[int, list[float]] = {}
    for run in arm.runs:
        if evaluations := run.tables["evaluations"]:
            for k, value in zip(evaluations["round"], evaluations[metric], strict=True):
                found.setdefault(int(k), []).append(float(value))
    return found


def _rounds(live: Arm, simulated: Arm) -> str:
    came_to = [fmean(run.result.rounds for run in arm.runs if run.result) for arm in (live, simulated)]
    durations = [durations_s(arm) for arm in (live, simulated)]
    took = [number(float(np.median(each))) if len(each) else "?" for each in durations]
    far = f"Live it came to round {came_to[0]:g}, simulated to round {came_to[1]:g}"
    if came_to[0] == came_to[1]:
        far = f"Both came to round {came_to[0]:g}"
    return f"{far}; one round in two took less than {took[0]} s live and {took[1]} s simulated."


def _difference(apart: dict[int, float], metric: str) -> str:
    if not apart:
        return "No round was measured in both."
    name, worst, last = quantities.metric_name(metric), max(apart, key=lambda k: apart[k]), max(apart)
    most, at_last = (quantities.difference(metric, apart[k]) for k in (worst, last))
    text = f"Of {len(apart)} rounds measured in both, {name} differs by {most} at most (round {worst}) and by"
    text += f" {at_last} in the last"
    if quantities.is_percentage(metric):
        alike = sum(each <= WITHIN for each in apart.values())
        text += f"; in {alike} of {len(apart)} it is the same to within {100 * WITHIN:g} points"
    return f"{text}.{WHY if apart[worst] > WITHIN else ''}"
