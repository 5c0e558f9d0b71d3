"""The figures of a comparison, each one panel, one arm one colour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from plexus import quantities
from plexus.errors import PlexusError
from plexus.report import strokes as drawn_as
from plexus.report.arms import Arm, common_metric, reached_h, work_of
from plexus.report.document import number
from plexus.report.measuring import Judge, evenly, values_of
from plexus.report.strokes import legend, legend_of_arms, mountain, panel, shade_faults, strokes
from plexus.runs.run import Run
from plexus.runs.tables import Columns
from plexus.style import CARD, ON_COLOUR, SOFT, Figure, percent_ticks, styled

Axis = Literal["simulated_h", "sent_gb", "training_h"]
Values = NDArray[np.float64]
AXES = {
    "simulated_h": ("simulated_s", 3600.0, "simulated time [h]"),
    "sent_gb": ("sent_bytes", 1e9, "sent by all nodes [GB]"),
    "training_h": ("training_s", 3600.0, "training on all devices [device hours]"),
}
"""A column of evaluations, the unit it is shown in, and what that is called."""
MOST_POINTS = 300
"""Of a curve."""
_ABOVE: Any = {"textcoords": "offset points", "va": "bottom", "fontsize": 9}


def curves(
    arms: Sequence[Arm],
    x: Axis = "simulated_h",
    metric: str | None = None,
    *,
    log: bool = False,
    judge: Judge = "mean",
    reference: tuple[float, str] | None = None,
) -> Figure:
    """The metric over time, bytes or training: the mean over seeds in a band from lowest to highest.

    `reference` is a value of the metric to be marked, with its name: what the paper reports, a target.
    """
    judged_by, higher_is_better = common_metric(arms)
    metric = metric or judged_by
    with styled():
        figure, axes = panel()
        if not (drawn := [arm for arm in arms if _draw_curve(axes, arm, arms, x, metric, judge)]):
            raise PlexusError("nothing was evaluated")
        axes.set_xlabel(AXES[x][2])
        axes.set_ylabel(f"test {quantities.metric_name(metric)}")
        if log:
            _log_scale(axes)
        else:
            axes.set_xlim(left=0)
        if quantities.is_percentage(metric):
            percent_ticks(axes.yaxis)
        faults = []
        if x == "simulated_h":
            faults = shade_faults(axes, [arm.runs[0] for arm in drawn])
            _say_time(axes, arms)
        if reference is not None:
            _refer(axes, *reference, higher_is_better)
        legend_of_arms(axes, drawn, faults)
    return figure


def _draw_curve(axes: Any, arm: Arm, arms: Sequence[Arm], x: Axis, metric: str, judge: Judge) -> bool:
    """Whether there was anything to draw. A point that stands alone must be seen above the lines."""
    if (found := curve(arm, x, metric, judge)) is None:
        return False
    look: dict[str, Any] = {"zorder": 4 if arm.is_ours else 3}
    if len(found.x) >= 12:
        look |= {"marker": None}
    elif len(found.x) == 1:
        look |= {"markersize": 8, "markeredgecolor": CARD, "clip_on": False, "zorder": 5}
    band = (found.low, found.high) if len(arm.runs) > 1 else None
    _plot(axes, arm, arms, found.x, found.mean, band, **look)
    return True


def _plot(
    axes: Any, arm: Arm, arms: Sequence[Arm], x: Values, y: Values, band: Any = None, **look: Any
) -> None:
    """An arm's line, as it looks in every figure, in a band from lowest to highest if there is one."""
    stroke = strokes(arms)[arm.label]
    usual = {"linewidth": 1.8, "marker": stroke.marker, "markersize": 4, "label": arm.label}
    axes.plot(x, y, color=stroke.colour, linestyle=stroke.line, **usual | look)
    if band is not None:
        axes.fill_between(x, *band, color=stroke.colour, alpha=0.18, linewidth=0)


class Curve(NamedTuple):
    x: Values
    mean: Values
    low: Values
    high: Values


def curve(arm: Arm, x: Axis, metric: str, judge: Judge = "mean") -> Curve | None:
    """The metric of an arm over `x`; None where nothing was evaluated."""
    column, unit, _ = AXES[x]
    points = []
    for run in arm.runs:
        ys, evaluations = values_of(run, metric, judge), run.tables["evaluations"]
        if column not in evaluations or not len(ys):
            continue
        xs = evaluations[column].astype(float) / unit
        known = ~np.isnan(xs) & ~np.isnan(ys)  # a live peer alone does not know what all have sent
        if known.any():
            points.append((xs[known], ys[known]))
    return average(points)


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
    grid = grid[evenly(len(grid), MOST_POINTS)]
    rows = np.array([np.interp(grid, xs, ys) for xs, ys in points])
    return Curve(grid, rows.mean(axis=0), rows.min(axis=0), rows.max(axis=0))


def _refer(axes: Any, value: float, name: str, higher_is_better: bool) -> None:
    """A line across, named where curves seldom are: at the left, on the side they come to last."""
    axes.axhline(value, color=SOFT, linewidth=1, linestyle=(0, (2, 2)), zorder=2)
    above, va = (3, "bottom") if higher_is_better else (-3, "top")
    box = {"facecolor": CARD, "edgecolor": "none", "alpha": 0.8, "pad": 0.5}
    look = {"va": va, "fontsize": 8.5, "color": SOFT, "zorder": 6, "bbox": box}
    at: Any = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
    axes.annotate(name, (0, value), (3, above), **at, **look)


def _log_scale(axes: Any) -> None:
    """Numbers as people write them: powers of ten, and steps between where there are few of those."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    axes.set_xscale("log")
    low, high = axes.get_xlim()
    steps = (1.0, 2.0, 5.0) if high < 200 * low else (1.0,)
    axes.xaxis.set_major_locator(LogLocator(subs=steps) if high > 5 * low else MaxNLocator(4))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.xaxis.set_minor_formatter(NullFormatter())


@contextmanager
def _labelled(x: str, y: str, log: bool = False, percent: bool = False) -> Iterator[Any]:
    """A panel to draw lines of arms in; its axes are labelled when that is done."""
    with styled():
        _, axes = panel()
        yield axes
        if log:
            _log_scale(axes)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.set_ylim(bottom=0)
        if percent:
            axes.yaxis.set_major_formatter("{x:g} %")
            axes.set_ylim(0, 101)
        legend(axes)


def round_durations(arms: Sequence[Arm]) -> Figure:
    """How long rounds last: the share of rounds that took at most so many seconds."""
    with _labelled("duration of a round [s]", "rounds that are over", log=True, percent=True) as axes:
        for arm in arms:
            if not len(durations := durations_s(arm)):
                continue
            share = np.arange(1, len(durations) + 1) / len(durations)
            kept = evenly(len(durations), 400)
            label = f"{arm.label} (mean {number(durations.mean())} s)"
            steps = {"drawstyle": "steps-post", "marker": None, "label": label}
            _plot(axes, arm, arms, durations[kept], 100 * share[kept], **steps)
        if not axes.lines:
            raise PlexusError("no rounds with a global model were completed")
    return axes.figure  # type: ignore[no-any-return]


def durations_s(arm: Arm) -> np.ndarray:
    """The times between completions of rounds, of all seeds, in seconds and sorted."""
    every = np.sort(np.concatenate([np.array([]), *(np.diff(completions_s(run)) for run in arm.runs)]))
    return every[every > 0]


def completions_s(run: Run) -> Values:
    """When each round was completed, in seconds and sorted."""
    if not (rounds := run.tables["rounds"]):
        return np.array([])
    # Where two nodes aggregated one round, the first to finish completed it.
    _, first = np.unique(rounds["round"], return_index=True)
    return np.sort(rounds["simulated_s"][first]).astype(float)


def rounds_by_hour(run: Run) -> Values:
    """How many rounds were completed in each whole simulated hour; of less than one, in all of it."""
    edges = np.arange(1 + max(1, int(reached_h(run)))) * 3600.0
    return np.histogram(completions_s(run), edges)[0].astype(float)


def hourly_rounds(arms: Sequence[Arm]) -> Figure:
    """Rounds completed in each hour: the mean over seeds in a band from lowest to highest."""
    with _labelled("simulated hour", "rounds completed in it") as axes:
        for arm in arms:
            rows = np.array([rounds_by_hour(run) for run in arm.runs])
            hours, band = np.arange(1, rows.shape[1] + 1), (rows.min(axis=0), rows.max(axis=0))
            _plot(axes, arm, arms, hours, rows.mean(axis=0), band)
        axes.xaxis.get_major_locator().set_params(integer=True)
    return axes.figure  # type: ignore[no-any-return]


def used_by_speed(arms: Sequence[Arm]) -> Figure:
    """The share of trainings that are behind the final model, for each tenth of the devices by speed."""
    with _labelled("one training on the device [s]", "trainings used", log=True, percent=True) as axes:
        for arm in arms:
            training_s, shares = used_shares(arm)
            if len(shares):
                _plot(axes, arm, arms, training_s, 100 * shares)
        if not axes.lines:
            raise PlexusError("nothing is known of whose trainings were used")
    return axes.figure  # type: ignore[no-any-return]


def used_shares(arm: Arm) -> tuple[Values, Values]:
    """For each tenth of the devices of all seeds, the fastest first: the mean time of a training, and the
    share of those finished that are used. A tenth that finished none is left out."""
    if not (works := [work for work in map(work_of, arm.runs) if work]):
        return np.array([]), np.array([])
    training_s, finished, used = (np.concatenate([work[name] for work in works]) for name in works[0])
    tenths = np.array_split(np.argsort(training_s, kind="stable"), 10)
    kept = [tenth for tenth in tenths if finished[tenth].sum()]
    shares = [used[tenth].sum() / finished[tenth].sum() for tenth in kept]
    return np.array([training_s[tenth].mean() for tenth in kept]), np.array(shares)


def online_and_views(arms: Sequence[Arm]) -> Figure:
    """How many nodes are online, and how many the views of those nodes believe to be.

    Who is online when depends on the seed: one is shown, the first.
    """
    with styled():
        figure, axes = panel()
        for arm in arms:
            if views := arm.runs[0].tables.get("views"):
                name, colour = f"{arm.label}: " if len(arms) > 1 else "", strokes(arms)[arm.label].colour
                hours, label = views["simulated_s"] / 3600, f"{name}in the mean of their views"
                marker = "o" if len(hours) == 1 else None  # a line of one point is not seen
                axes.plot(hours, views["mean_view"], color=colour, linewidth=1.4, marker=marker, label=label)
                low, high = views["min_view"], views["max_view"]
                axes.fill_between(hours, low, high, color=colour, alpha=0.18, linewidth=0)
        _draw_online(axes, arms)
        if not axes.lines:
            raise PlexusError("neither online nodes nor views were recorded")
        axes.set_ylabel("nodes")
        axes.yaxis.get_major_locator().set_params(integer=True)
        axes.set_ylim(bottom=0)
        shade_faults(axes, [arm.runs[0] for arm in arms])
        axes.set_xlim(left=0)
        _say_time(axes, arms)
        legend(axes)
    return figure


def _say_time(axes: Any, arms: Sequence[Arm]) -> None:
    """Hours; of live peers that were tried out for some minutes, seconds."""
    axes.set_xlabel(AXES["simulated_h"][2])
    if any(run.is_live for arm in arms for run in arm.runs):
        longest_s = 3600 * axes.get_xlim()[1]
        axes.set_xlabel("time [h]")
        if longest_s < 600:
            from matplotlib.ticker import MaxNLocator

            ticks = [tick for tick in MaxNLocator(6).tick_values(0, longest_s) if tick <= longest_s]
            axes.set_xticks([tick / 3600 for tick in ticks], [f"{tick:g}" for tick in ticks])
            axes.set_xlabel("time [s]")


def _draw_online(axes: Any, arms: Sequence[Arm]) -> None:
    """A grey mountain for each that differs from the others."""
    found: dict[tuple[int, bool, bool], tuple[Arm, Columns]] = {}
    for arm in arms:
        if online := arm.runs[0].tables.get("online") or arm.runs[0].tables.get("views"):
            found.setdefault((arm.seeds[0], arm.has_churn, arm.runs[0].is_live), (arm, online))
    for arm, online in found.values():
        label = "online" if len(found) == 1 else f"online ({arm.label})"
        mountain(axes, online, reached_h(arm.runs[0]), label)


def bars_of_messages(arms: Sequence[Arm], of: Literal["bytes", "count"] = "bytes") -> Figure:
    """The share of each type of message in the bytes (or the number of messages) that an arm sends."""
    sums = [_sums(arm, of) for arm in arms]
    heaviest: dict[str, float] = {}
    for each in sums:
        for name, value in each.items():
            heaviest[name] = max(heaviest.get(name, 0.0), value / sum(each.values()))
    if not heaviest:
        raise PlexusError("no messages were counted: the runs did not end")
    names = sorted(heaviest, key=lambda name: -heaviest[name])
    colours = drawn_as.message_colours(names)
    with styled():
        from matplotlib.patches import Patch

        figure, axes = panel(height=0.75 + 0.5 * len(arms))
        for row, (arm, each) in enumerate(zip(arms, sums, strict=True)):
            left, total = 0.0, sum(each.values())
            for name in (name for name in names if name in each):
                share = 100 * each[name] / total
                axes.barh(row, share, left=left, height=0.46, color=colours[name])
                if share > 8:  # else the text is wider than the bar
                    inside = {"ha": "center", "va": "center", "fontsize": 8, "color": ON_COLOUR}
                    axes.text(left + share / 2, row + 0.01, f"{share:.3g} %", **inside)
                left += share
            text = quantities.size(total) if of == "bytes" else f"{total:,.0f}"
            axes.annotate(arm.label, (0, row - 0.23), (0, 2), **_ABOVE)
            axes.annotate(text, (100, row - 0.23), (0, 2), ha="right", color=SOFT, **_ABOVE)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.set_ylim(len(arms) - 0.6, -0.75)
        axes.set_xlim(0, 100)
        axes.grid(visible=False)
        axes.xaxis.set_major_formatter("{x:g} %")
        axes.set_xlabel("share of all bytes sent" if of == "bytes" else "share of all messages")
        handles = [Patch(color=colours[name], label=name) for name in names]
        legend(axes, handles=handles, ncols=min(4, len(names)), handleheight=0.8)
    return figure


def _sums(arm: Arm, of: str) -> dict[str, float]:
    """What an arm sends by type of message, as the mean over seeds; what it sends nothing of is left out."""
    sums: dict[str, float] = {}
    for run in arm.runs:
        for name, traffic in run.result.messages.items() if run.result else ():
            sums[name] = sums.get(name, 0.0) + getattr(traffic, of) / len(arm.runs)
    return {name: value for name, value in sums.items() if value}
