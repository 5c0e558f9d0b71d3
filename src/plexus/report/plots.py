"""The figures of a comparison, each one panel, one arm one colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from plexus.errors import PlexusError
from plexus.metrics import words
from plexus.report.arms import Arm, common_metric
from plexus.report.comparison import Judge
from plexus.report.look import PALETTE, SOFT, legend, panel, strokes, styled
from plexus.report.series import Axis, curve

if TYPE_CHECKING:
    from matplotlib.figure import Figure

X_LABELS = {
    "simulated_h": "simulated time [h]",
    "sent_gb": "sent by all nodes [GB]",
    "training_h": "training on all devices [device hours]",
}


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
    metric = metric or common_metric(arms)[0]
    with styled():
        figure, axes = panel()
        drawn = 0
        for arm in arms:
            found = curve(arm, x, metric, judge)
            if found is None:
                continue
            drawn += 1
            stroke = strokes(arms)[arm.label]
            few = len(found.x) < 12
            axes.plot(
                found.x,
                found.mean,
                color=stroke.colour,
                linestyle=stroke.line,
                linewidth=1.8,
                marker=stroke.marker if few else None,
                markersize=4,
                label=arm.label,
                zorder=4 if arm.is_ours else 3,
            )
            if len(arm.runs) > 1:
                axes.fill_between(
                    found.x, found.low, found.high, color=stroke.colour, alpha=0.18, linewidth=0
                )
        if not drawn:
            raise PlexusError("nothing was evaluated")
        _dress_curves(axes, x, metric, log)
        if reference is not None:
            _refer(axes, *reference)
        legend(axes, drawn)
    return figure


def bars_of_messages(arms: Sequence[Arm], of: str = "bytes") -> Figure:
    """The share of each type of message in the bytes (or the `count`) that an arm sends."""
    shares = [(arm.label, *_shares(arm, of)) for arm in arms]
    heaviest: dict[str, float] = {}
    for _, parts, _ in shares:
        for name, share in parts.items():
            heaviest[name] = max(heaviest.get(name, 0.0), share)
    names = sorted(heaviest, key=lambda name: -heaviest[name])
    colours = dict(zip(names, [*PALETTE.values()] * 3, strict=False))
    with styled():
        figure, axes = panel(height=1.1 + 0.42 * len(arms) + 0.17 * len(names))
        for row, (_, parts, total) in enumerate(shares):
            left = 0.0
            for name in names:
                share = 100 * parts.get(name, 0.0)
                label = name if row == 0 else None
                axes.barh(row, share, left=left, height=0.62, color=colours[name], label=label)
                left += share
            text = words.size(total) if of == "bytes" else words.whole(round(total))
            axes.annotate(text, (100, row), (5, 0), textcoords="offset points", va="center")
        axes.set_yticks(range(len(arms)), [label for label, *_ in shares])
        axes.invert_yaxis()
        axes.set_xlim(0, 100)
        axes.grid(axis="y", visible=False)
        axes.xaxis.set_major_formatter("{x:g} %")
        axes.set_xlabel("share of all bytes sent" if of == "bytes" else "share of all messages")
        legend(axes, len(names))
    return figure


def _shares(arm: Arm, of: str) -> tuple[dict[str, float], float]:
    """By type of message, its share; and the whole, the mean over seeds."""
    sums: dict[str, float] = {}
    for run in arm.runs:
        for name, traffic in run.result.messages.items() if run.result else ():
            sums[name] = sums.get(name, 0.0) + getattr(traffic, of) / len(arm.runs)
    total = sum(sums.values())
    return {name: value / total for name, value in sums.items() if value}, total


def round_durations(arms: Sequence[Arm]) -> Figure:
    """How long rounds last: the share of rounds that took at most so many seconds."""
    with styled():
        figure, axes = panel()
        drawn = 0
        for arm in arms:
            durations = durations_s(arm)
            if not len(durations):
                continue
            drawn += 1
            stroke = strokes(arms)[arm.label]
            share = np.arange(1, len(durations) + 1) / len(durations)
            kept = np.unique(np.linspace(0, len(durations) - 1, 400).round().astype(int))
            axes.step(
                durations[kept],
                100 * share[kept],
                where="post",
                color=stroke.colour,
                linestyle=stroke.line,
                linewidth=1.8,
                label=f"{arm.label} (mean {durations.mean():.1f} s)",
            )
        if not drawn:
            raise PlexusError("no rounds with a global model were completed")
        axes.set_xscale("log")
        _plain_log(axes.xaxis)
        axes.set_xlabel("duration of a round [s]")
        axes.set_ylabel("rounds that are over")
        axes.yaxis.set_major_formatter("{x:g} %")
        axes.set_ylim(0, 101)
        legend(axes, max(drawn, 2))
    return figure


def durations_s(arm: Arm) -> np.ndarray:
    """The times between completions of rounds, of all seeds, in seconds and sorted."""
    found = [np.array([])]
    for run in arm.runs:
        rounds = run.tables["rounds"]
        if rounds:
            # Where two nodes aggregated one round, the first to finish completed it.
            _, first = np.unique(rounds["round"], return_index=True)
            found.append(np.diff(np.sort(rounds["simulated_s"][first])))
    every = np.sort(np.concatenate(found))
    return every[every > 0]


def online_and_views(arms: Sequence[Arm]) -> Figure:
    """How many nodes are online, and how many the views of those nodes believe to be."""
    with styled():
        figure, axes = panel()
        several = len(arms) > 1
        found = strokes(arms)
        for arm in arms:
            name = f"{arm.label}: " if several else ""
            colour = found[arm.label].colour if several else PALETTE["blue"]
            _draw_online(axes, arm, f"{name}online", colour if several else SOFT)
            _draw_views(axes, arm, f"{name}mean of their views", colour)
        if not axes.lines:
            raise PlexusError("neither online nodes nor views were recorded")
        axes.set_xlabel(X_LABELS["simulated_h"])
        axes.set_ylabel("nodes")
        axes.set_ylim(bottom=0)
        axes.set_xlim(left=0)
        legend(axes, 2)
    return figure


def _draw_online(axes: Any, arm: Arm, label: str, colour: str) -> None:
    for run in arm.runs[:1]:  # which nodes are online depends on the seed: one is shown
        online = run.tables.get("online") or run.tables.get("views")
        if online:
            hours = online["simulated_s"] / 3600
            axes.step(hours, online["online"], where="post", color=colour, lw=1, label=label)


def _draw_views(axes: Any, arm: Arm, label: str, colour: str) -> None:
    for run in arm.runs[:1]:
        views = run.tables.get("views")
        if views:
            hours = views["simulated_s"] / 3600
            axes.plot(hours, views["mean_view"], color=colour, lw=1.8, label=label)
            axes.fill_between(
                hours, views["min_view"], views["max_view"], color=colour, alpha=0.18, linewidth=0
            )


def _dress_curves(axes: Any, x: Axis, metric: str, log: bool) -> None:
    axes.set_xlabel(X_LABELS[x])
    axes.set_ylabel(f"test {words.metric_name(metric)}")
    if log:
        axes.set_xscale("log")
        _plain_log(axes.xaxis)
    else:
        axes.set_xlim(left=0)
    if words.is_percentage(metric):
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")


def _plain_log(axis: Any) -> None:
    """Powers of ten as people write them."""
    axis.set_major_formatter(lambda value, _: f"{value:,.10g}")


def _refer(axes: Any, value: float, name: str) -> None:
    axes.axhline(value, color=SOFT, linewidth=1, linestyle=(0, (2, 2)), zorder=2)
    axes.annotate(
        name,
        (1, value),
        (-2, 3),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        ha="right",
        va="bottom",
        fontsize=8.5,
        color=SOFT,
    )
