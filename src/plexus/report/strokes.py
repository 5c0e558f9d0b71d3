"""How arms are drawn, in every figure the same: one colour for each protocol, and what the legend says."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np

from plexus.report import naming
from plexus.report.arms import Arm, reached_h
from plexus.report.naming import NAMES
from plexus.runs.run import Run
from plexus.runs.tables import Columns
from plexus.style import PALETTE, SOFT, Figure, figure

_SECOND_COLOURS = ("vermilion", "green", "purple", "orange", "sky", "yellow", "brown", "blue", "grey")
_DASHES, _DOTS = (0, (4, 2)), (0, (1, 1.6))
WIDEST = 50
"""Characters of a line in a legend: more do not fit beside a figure's edge."""
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h")
_CHURN = re.compile(r"(, |^)(no churn|churn( \([^)]*\))?)(?=,|$)")


class Stroke(NamedTuple):
    colour: str
    line: Any
    """Solid; dashed without churn where both are there; dotted if the run did not end."""
    marker: str


def strokes(arms: Sequence[Arm]) -> dict[str, Stroke]:
    """By label. Arms that differ only in churn share a colour; so does nothing else."""
    both = len({arm.has_churn for arm in arms}) > 1
    usual = {_colour(arm) for arm in arms}
    spare = iter(name for name in _SECOND_COLOURS if name not in usual)
    colours: dict[str, str] = {}
    found = {}
    for arm in arms:
        if (kind := _kind(arm)) not in colours:
            wanted = _colour(arm)
            colours[kind] = next(spare, "grey") if wanted in colours.values() else wanted
        line: Any = _DOTS if not arm.is_complete else _DASHES if both and not arm.has_churn else "-"
        marker = _MARKERS[list(colours).index(kind) % len(_MARKERS)]
        found[arm.label] = Stroke(PALETTE[colours[kind]], line, marker)
    return found


def _colour(arm: Arm) -> str:
    """The usual colour of a protocol; D-PSGD has one for each of the paper's two topologies."""
    regular = arm.runs[0].spec["protocol"].get("topology") == "regular"
    return NAMES["protocol_colours"].get(f"{arm.protocol} regular" if regular else arm.protocol, "sky")


def _kind(arm: Arm) -> str:
    """What decides the colour: everything but who is online when."""
    spec = sorted((key, value) for key, value in arm.spec.items() if key != "traces")
    goodbyes = arm.spec.get("traces", {}).get("graceful_share", 1.0)
    return repr([arm.runs[0].is_live, goodbyes, spec])


def message_colours(names: Sequence[str]) -> dict[str, str]:
    known = {name: PALETTE[colour] for name, colour in NAMES["message_colours"].items()}
    spare = [PALETTE[name] for name in ("yellow", "grey", "sky")]
    return known | {name: spare[at % len(spare)] for at, name in enumerate(sorted(set(names) - set(known)))}


def panel(width: float = 5.0, height: float = 3.2) -> tuple[Figure, Any]:
    """A figure with one panel; call it inside `styled`."""
    drawn = figure(width, height)
    return drawn, drawn.subplots()


def mountain(axes: Any, online: Columns, end_h: float, label: str | None = None) -> None:
    """How many nodes were online, to the end of the run."""
    hours = np.append(online["simulated_s"] / 3600, end_h)
    count = np.append(online["online"], online["online"][-1])
    axes.fill_between(hours, count, step="post", color=SOFT, alpha=0.18, linewidth=0)
    axes.step(hours, count, where="post", color=SOFT, linewidth=0.8, label=label)


def shade_faults(axes: Any, runs: Sequence[Run]) -> list[Any]:
    """What went wrong on purpose, as spans of time behind everything else; for the legend, each name once."""
    handles: dict[str, Any] = {}
    drawn: set[tuple[str, float, float]] = set()
    for run in runs:
        for fault in run.spec.get("faults", ()):
            name, from_h, to_h = naming.fault(fault), fault["from_h"], min(fault["to_h"], reached_h(run))
            if from_h < to_h and (name, from_h, to_h) not in drawn:
                drawn.add((name, from_h, to_h))
                colour = PALETTE[NAMES["fault_colours"].get(fault["kind"], "grey")]
                look = {"color": colour, "alpha": 0.2, "linewidth": 0, "zorder": 0}
                span = axes.axvspan(from_h, to_h, label=None if name in handles else name, **look)
                handles.setdefault(name, span)
    return list(handles.values())


def legend_of_arms(axes: Any, arms: Sequence[Arm], more: Sequence[Any] = ()) -> None:
    """One line for each colour; where dashes mean no churn, that is said once for all; then `more`."""
    from matplotlib.lines import Line2D

    found = strokes(arms)
    named = {_CHURN.sub("", label).removeprefix(", "): stroke.colour for label, stroke in found.items()}
    if len(named) == len(found):  # no two share a line
        lines = [(label, stroke.colour, stroke.line) for label, stroke in found.items()]
    else:
        lines = [(name, colour, "-") for name, colour in named.items() if name]
        lines += [("with churn", SOFT, "-"), ("without", SOFT, _DASHES)]
    handles = [Line2D([], [], color=c, ls=line, lw=1.8, label=name) for name, c, line in lines]
    legend(axes, handles=[*handles, *more])


def legend(axes: Any, *, ncols: int | None = None, handles: Sequence[Any] = (), **options: Any) -> None:
    """Above the panel, where it covers nothing: the figure grows by its lines."""
    handles = handles or axes.get_legend_handles_labels()[0]
    labels = [handle.get_label() for handle in handles]
    if not labels:
        return
    ncols = ncols or (1 if sum(sorted(map(len, labels))[-2:]) > 46 else 2)
    labels = [fill(label, WIDEST) for label in labels]
    lines = math.ceil(len(labels) / ncols) + sum(label.count("\n") for label in labels)
    width, height = axes.figure.get_size_inches()
    axes.figure.set_size_inches(width, height + 0.2 * lines)
    place = {"loc": "lower left", "bbox_to_anchor": (-0.02, 1.0), "borderaxespad": 0.4}
    spaces = {"handlelength": 1.8, "columnspacing": 1.4, "labelspacing": 0.35}
    axes.legend(handles=handles, labels=labels, ncols=ncols, **place, **spaces, **options)
