"""The learning curve of one run, the picture in its directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from plexus import quantities
from plexus.errors import PlexusError
from plexus.files import named
from plexus.report.arms import is_complete, metric_of, reached_h
from plexus.report.strokes import mountain, shade_faults
from plexus.runs.run import Run
from plexus.runs.tables import Columns
from plexus.style import BLUE, PALETTE, VERMILION, Figure, figure, percent_ticks, styled, subtitle


def accuracy_over_time(run: Run, path_png: Path) -> None:
    """Write the test metric over simulated hours, and below it how many nodes were online."""
    drawn = learning_curve(run)
    with named(path_png):
        drawn.savefig(path_png, dpi=160)


def learning_curve(run: Run) -> Figure:
    """As `accuracy_over_time`, not yet written."""
    if not (evaluations := run.tables["evaluations"]):
        raise PlexusError("nothing was evaluated")
    with styled():
        drawn = figure(8, 5, pad=0.14)
        upper, lower = drawn.subplots(2, 1, sharex=True, height_ratios=(4, 1))
        end_hours = reached_h(run)
        upper.set_xlim(0, end_hours)
        _draw_metric(upper, evaluations, *metric_of(run))
        _draw_online(lower, run.tables["online"], end_hours)
        shade_faults(lower, [run])
        if faults := shade_faults(upper, [run]):
            upper.legend(handles=faults, loc="lower right")
        upper.set_title(run.spec["name"], fontsize=14, pad=30)
        spec, facts = run.spec, [f"{run.result.rounds:,} rounds"] if run.result else []
        facts += [] if is_complete(run) else ["interrupted"]
        what = f"{spec['protocol']['name']} on {spec['task']['name']}"
        about = [what, f"{spec['nodes']:,} nodes", f"seed {spec['seed']}", *facts]
        subtitle(upper, " · ".join(about), above=12)
        drawn.align_ylabels()
    return drawn


def _draw_metric(axes: Any, evaluations: Columns, name: str, higher_is_better: bool) -> None:
    hours = evaluations["simulated_s"] / 3600
    values = evaluations[name].astype(float)
    axes.plot(hours, values, color=BLUE, linewidth=1.8, solid_joinstyle="round", zorder=3)
    axes.set_ylabel(f"test {quantities.metric_name(name)}")
    if quantities.is_percentage(name):
        percent_ticks(axes.yaxis)
        axes.set_ylim(min(0.0, values.min()), 1.0)
    _draw_band(axes, evaluations, name, BLUE)
    if f"own_{name}" in evaluations:
        own = evaluations[f"own_{name}"].astype(float)
        axes.plot(hours, own, color=PALETTE["green"], label="nodes' own data: mean, 10 to 90 %")
        _draw_band(axes, evaluations, f"own_{name}", PALETTE["green"])
        axes.legend(loc="lower right")
    if not np.isnan(values).all():
        best = int(np.nanargmax(values) if higher_is_better else np.nanargmin(values))
        _mark(axes, hours[best], values[best], f"best {quantities.metric(name, values[best])}")


def _draw_band(axes: Any, evaluations: Columns, name: str, colour: str) -> None:
    """Where all nodes but a tenth below and a tenth above are, if nodes measured."""
    if f"{name}_p10" in evaluations:
        low, high = (evaluations[f"{name}_p{share}"].astype(float) for share in (10, 90))
        axes.fill_between(evaluations["simulated_s"] / 3600, low, high, color=colour, alpha=0.15)


def _mark(axes: Any, hour: float, value: float, label: str) -> None:
    """A point with its label, inside the panel and readable over whatever it covers."""
    from matplotlib.patheffects import withStroke

    axes.plot(hour, value, "o", color=VERMILION, markersize=6, zorder=4)
    axes.margins(y=0.1)
    across = hour / axes.get_xlim()[1]
    above, va = (-12, "top") if value > sum(axes.get_ylim()) / 2 else (12, "bottom")
    ha = "left" if across < 0.1 else "right" if across > 0.9 else "center"
    look = {"color": VERMILION, "fontweight": "bold", "zorder": 5}
    text = axes.annotate(label, (hour, value), (0, above), textcoords="offset points", ha=ha, va=va, **look)
    text.set_path_effects([withStroke(linewidth=3, foreground="white")])


def _draw_online(axes: Any, online: Columns, end_hours: float) -> None:
    axes.set_xlabel("simulated hours")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_ylabel("online")
    axes.set_ylim(0, 1)
    if not online:
        return
    mountain(axes, online, end_hours)
    axes.set_ylim(0, max(1.0, 1.15 * float(online["online"].max())))
    axes.yaxis.get_major_locator().set_params(nbins=3, integer=True)
