"""The paper's figures beside ours: tables for docs/figures.md, and pictures in which stars are the paper's.

`tools.readme_tables` writes and draws them, from the runs in results/ and the numbers in results/paper.toml.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from plexus import quantities
from plexus.report import naming, plots
from plexus.report.arms import Arm
from plexus.report.comparison import Comparison, compare, saved
from plexus.report.document import number, over_seeds, text_of
from plexus.report.measuring import at_the_end, values_of
from plexus.report.strokes import strokes
from plexus.runs.run import Run
from plexus.style import INK, PALETTE, SOFT, figure, percent_ticks, styled
from tools.kept_runs import Setting, arms_by, is_papers, markdown, settings

ROOT = Path(__file__).parents[1]
STATED: dict[str, dict[str, Any]] = tomllib.loads((ROOT / "results/paper.toml").read_text(encoding="utf-8"))
NOT_YET = "not run yet"
GB_PER_GIB = 2**30 / 1e9
PARTS = ("time", "bytes", "training")
AXES: tuple[plots.Axis, ...] = ("simulated_h", "sent_gb", "training_h")
BLUE, RED, GREEN = (PALETTE[name] for name in ("blue", "vermilion", "green"))
NETWORKS = {1000: "CIFAR-10", 500: "CelebA", 355: "FEMNIST", 610: "MovieLens"}
"""The paper's tasks by their number of nodes."""
OF_TABLE2 = {
    "cifar10": "CIFAR-10",
    "digits-by-writer": "FEMNIST",
    "movielens-biased": "MovieLens",
    "movielens": "MovieLens",
}
"""By folder, the paper's task that it is, or is nearest to."""

Rows = list[list[str]]


def row(what: str, stated: float | None, ours: Sequence[float], write: Callable[[float], str]) -> list[str]:
    """A line of a table; the ratio is ours to the paper's."""
    mean = over_seeds(ours, write)
    ratio = number(mean.value / stated) if stated and mean.value is not None else "–"
    return [what, "not stated" if stated is None else write(stated), mean.text, ratio]


def beside(rows: Rows) -> str:
    return f"\n{markdown(['', 'the paper', 'here', 'here / paper'], rows)}\n" if rows else NOT_YET


def seconds(value: float) -> str:
    return f"{value:.1f} s"


def hours(value: float) -> str:
    return f"{number(value)} h"


def gigabytes(value: float) -> str:
    return f"{number(value)} GB"


def times(value: float) -> str:
    return f"{value:.2f} times"


def points(value: float) -> str:
    return f"{100 * value:.1f} points"


def share(value: float) -> str:
    return f"{100 * value:.2f} %"


def at_end(arm: Arm) -> list[float]:
    return [at_the_end(values_of(run, "accuracy", "mean")) or 0.0 for run in arm.runs]


# Figure 1: churn and averaging in D-PSGD


def fig1_arms(results: Path) -> dict[str, Arm]:
    def label(run: Run) -> str:
        if run.spec["protocol"]["topology"] == "full":
            return "everybody, no churn"
        return f"one peer, {'no churn' if run.spec['traces']['availability'] == 'none' else '8.8 % online'}"

    return {arm.label: arm for arm in reversed(arms_by(results / "figures/fig1", label))}


def fig1(results: Path) -> str:
    rows: Rows = []
    for label, arm in fig1_arms(results).items():
        if arm.has_churn:
            peaks = [float(run.tables["online"]["online"].max()) / run.spec["nodes"] for run in arm.runs]
            rows.append(row("nodes online at best", STATED["fig1"]["online"], peaks, quantities.share))
        rows.append(row(f"at the end: {label}", None, at_end(arm), quantities.share))
    return beside(rows)


def draw_fig1(results: Path) -> Any:
    arms = fig1_arms(results)
    pairs = (("one peer, 8.8 % online", RED), ("everybody, no churn", GREEN))
    with panels(2, "simulated time [h]", "test accuracy, mean over nodes") as (drawn, axes):
        for panel, (other, colour) in zip(axes, pairs, strict=True):
            line(panel, arms["one peer, no churn"], "simulated_h", BLUE, "one peer, no churn")
            line(panel, arms[other], "simulated_h", colour, other)
            panel.legend(loc="lower right")
    return drawn


# Figure 3: convergence, communication and training


def of_paper(arms: Sequence[Arm]) -> list[Arm]:
    """Those that the paper compares."""
    return [arm for arm in arms if is_papers(arm) or arm.protocol in ("gossip", "dpsgd")]


def named(arm: Arm) -> str:
    graph = arm.spec["protocol"].get("topology")
    of_graph = {None: "", "regular": ", 10-regular"}.get(graph, ", one peer")
    return naming.protocol(arm.protocol) + of_graph


def fig3_costs() -> list[dict[str, float]]:
    """To the target, in hours, GB and device hours, by protocol."""
    stated = STATED["fig3"]
    in_gb = {protocol: GB_PER_GIB * size for protocol, size in stated["sent_gib"].items()}
    return [stated["simulated_h"], in_gb, stated["training_h"]]


def fig3(results: Path) -> str:
    stated, rows = STATED["fig3"], []
    for setting in settings(results / "cifar10")[:1]:
        arms = of_paper(setting.arms)
        found = compare(arms, stated["target"], judge="best")
        for arm, outcome in zip(arms, found.arms, strict=True):
            best = stated["best"].get(arm.protocol)
            rows.append(row(f"best: {named(arm)}", best, outcome.best, quantities.share))
        for part, goals, cost, write in zip(
            PARTS, fig3_costs(), costs_of(found)[0], (hours, gigabytes, hours), strict=True
        ):
            rows.append(row(f"Plexus to 65.9 %: {part}", goals["plexus"], cost, write))
    return beside(rows)


def costs_of(found: Comparison) -> list[list[tuple[float, ...]]]:
    """By arm: hours, bytes and training to the target, of each seed that came to it."""
    return [[*zip(*(astuple(cost) for cost in arm.costs if cost), strict=True)] for arm in found.arms]


def draw_fig3(results: Path) -> Any:
    arms, stated = of_paper(settings(results / "cifar10")[0].arms), STATED["fig3"]
    colours = {arm.label: stroke.colour for arm, stroke in zip(arms, strokes(arms).values(), strict=True)}
    with panels(3, "", "test accuracy, best node") as (drawn, axes):
        for panel, x, goals in zip(axes, AXES, fig3_costs(), strict=True):
            for arm in arms:
                line(panel, arm, x, colours[arm.label], named(arm), "best")
                if arm.protocol in goals:
                    star(panel, goals[arm.protocol], stated["target"], colour=colours[arm.label])
            panel.axhline(stated["best"]["plexus"], color=SOFT, linewidth=1, linestyle=(0, (2, 2)), zorder=1)
            panel.set_xlabel(plots.AXES[x][2])
            if x != "simulated_h":
                panel.set_xscale("log")
                panel.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
        star(axes[0], [], [], "the paper, at 65.9 %")
        axes[0].plot([], [], color=SOFT, linewidth=1, linestyle=(0, (2, 2)), label="the paper's best, 75.8 %")
        drawn.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=3)
    return drawn


def fig3_churn_arms(results: Path) -> list[Arm]:
    """The same protocols on digits, with and without churn."""

    def label(run: Run) -> str:
        quiet = run.spec["traces"]["availability"] == "none"
        return named(Arm("", (run,))) + (", no churn" if quiet else "")

    arms = arms_by(results / "figures/fig3", label)
    return sorted(arms, key=lambda arm: (naming.rank(arm.protocol), arm.label))


def fig3_churn(results: Path) -> str:
    arms = {arm.label: at_end(arm) for arm in fig3_churn_arms(results)}
    rows: Rows = []
    for label, ended in arms.items():
        if quiet := arms.get(f"{label}, no churn"):
            lost = [one - other for one, other in zip(quiet, ended, strict=True)]
            both = [over_seeds(values, quantities.share).text for values in (quiet, ended)]
            rows.append([label, *both, over_seeds(lost, points).text])
    return f"\n{markdown(['at the end', 'without churn', 'with churn', 'lost'], rows)}\n" if rows else NOT_YET


# Figure 4: overhead


def overhead_arms(results: Path) -> list[Arm]:
    arms = arms_by(results / "figures/overhead", lambda run: NETWORKS[run.spec["nodes"]])
    return sorted(arms, key=lambda arm: [*NETWORKS.values()].index(arm.label))


def fig4(results: Path) -> str:
    stated, of_bytes, of_views, of_members = STATED["fig4"], [], [], []
    for arm in overhead_arms(results):
        sent = [run.result.messages for run in arm.runs if run.result]
        models = [each["model"].bytes / sum(of.bytes for of in each.values()) for each in sent]
        share, size = stated["models"].get(arm.label), stated["view_kib"].get(str(arm.spec["nodes"]))
        of_bytes.append(row(f"models, of all bytes: {arm.label}", share, models, quantities.share))
        views = [each["view"].bytes / each["view"].count for each in sent]
        of_views.append(row(f"a view, {arm.label}", size and 1024 * size, views, quantities.size))
        counts = [each["membership"].count / sum(of.count for of in each.values()) for each in sent]
        joins = [each["membership"].bytes / each["membership"].count for each in sent]
        of_members.append(row(f"membership, of all messages: {arm.label}", None, counts, quantities.share))
    if of_members:
        of_members.append(row("a membership message", stated["membership_bytes"], joins, quantities.size))
    return beside([*of_bytes, *of_views, *of_members])


def draw_fig4(results: Path) -> Any:
    arms = overhead_arms(results)
    drawn = plots.bars_of_messages([Arm(f"{arm.label}, n = {arm.spec['nodes']}", arm.runs) for arm in arms])
    with styled():
        for at, arm in enumerate(arms):
            if share := STATED["fig4"]["models"].get(arm.label):
                star(drawn.axes[0], 100 * share, at)
    return drawn


# Figures 5 and 6: sample size and success fraction


def sample_size(run: Run) -> str:
    return str(run.spec["protocol"]["sample_size"])


def success_fraction(run: Run) -> str:
    return f"{run.spec['protocol']['success_fraction']:g}"


def round_s(arm: Arm, longest_s: float = np.inf) -> list[float]:
    """The mean duration of rounds, of each seed."""
    every = [plots.durations_s(Arm("", (run,))) for run in arm.runs]
    return [float(each[each <= longest_s].mean()) for each in every]


def fig5(results: Path) -> str:
    stated, folder, rows = STATED["fig5"], results / "figures/sample-size", []
    for arm in arms_by(folder / "traffic", sample_size):
        means = round_s(arm, stated["longest_s"])
        rows.append(row(f"a round, s = {arm.label}", stated["round_s"].get(arm.label), means, seconds))
    if learning := arms_by(folder / "digits", sample_size):
        small, *_, large = costs_of(compare(learning))
        for part, name in ((1, "times_bytes"), (2, "times_training")):
            ratios = [one / other for one, other in zip(large[part], small[part], strict=True)]
            what = f"{PARTS[part]} to the same accuracy, s = 40 / s = 10"
            rows.append(row(what, stated[name], ratios, times))
        fewest, *_, most = map(at_end, learning)
        lost = [one - other for one, other in zip(fewest, most, strict=True)]
        stated_lost = stated["final"]["10"] - stated["final"]["40"]
        rows.append(row("lost at the end with s = 40 against s = 10", stated_lost, lost, points))
    return beside(rows)


def fig6(results: Path) -> str:
    stated, folder = STATED["fig6"]["round_s"], results / "figures/success-fraction"
    arms, rows = arms_by(folder / "traffic", success_fraction), []
    for arm in arms:
        rows.append(row(f"a round, sf = {arm.label}", stated.get(arm.label), round_s(arm), seconds))
    if arms:
        longer = [one / other for one, other in zip(round_s(arms[-1]), round_s(arms[0]), strict=True)]
        rows.append(row("sf = 0.95 / sf = 0.85", stated["0.95"] / stated["0.85"], longer, times))
    for arm in arms:
        ended = [float(np.mean(run.tables["rounds"]["timed_out"])) for run in arm.runs]
        rows.append(row(f"rounds that timed out, sf = {arm.label}", None, ended, quantities.share))
    for arm in arms_by(folder / "digits", success_fraction):
        rows.append(row(f"accuracy at the end, sf = {arm.label}", None, at_end(arm), quantities.share))
    return beside(rows)


def draw_fig5(results: Path) -> Any:
    stated, folder = STATED["fig5"], results / "figures/sample-size"
    learning = arms_by(folder / "digits", sample_size)
    costs = costs_of(compare(learning))
    with panels(3, "s", "") as (drawn, axes):
        draw_curves(axes[0], learning, "s")
        for part, name, colour, aside in (
            (1, "times_bytes", BLUE, -0.18),
            (2, "times_training", GREEN, 0.18),
        ):
            heights = [np.mean(np.divide(each[part], costs[0][part])) for each in costs]
            axes[1].bar(np.arange(len(costs)) + aside, heights, 0.34, color=colour, label=PARTS[part])
            star(axes[1], len(costs) - 1 + aside, stated[name], "the paper" if part == 2 else None)
        axes[1].set_xticks(range(len(learning)), [arm.label for arm in learning])
        axes[1].set_ylabel("to the same accuracy, against s = 10")
        axes[1].legend(loc="upper left")
        traffic = arms_by(folder / "traffic", sample_size)
        draw_durations(axes[2], traffic, stated["round_s"], stated["longest_s"])
    axes[0].set_xlabel("simulated time [h]")
    return drawn


def draw_fig6(results: Path) -> Any:
    folder = results / "figures/success-fraction"
    with panels(2, "sf", "") as (drawn, axes):
        draw_curves(axes[0], arms_by(folder / "digits", success_fraction), "sf")
        traffic = arms_by(folder / "traffic", success_fraction)
        draw_durations(axes[1], traffic, STATED["fig6"]["round_s"])
    axes[0].set_xlabel("simulated time [h]")
    return drawn


def draw_curves(axes: Any, arms: Sequence[Arm], symbol: str) -> None:
    for arm, colour in zip(arms, (BLUE, RED, GREEN), strict=True):
        line(axes, arm, "simulated_h", colour, f"{symbol} = {arm.label}")
    axes.set_ylabel("test accuracy")
    axes.legend(loc="lower right")


def draw_durations(
    axes: Any, arms: Sequence[Arm], stated: dict[str, float], longest_s: float = np.inf
) -> None:
    """How long rounds last: half of them in the box, four fifths along the line."""
    for at, arm in enumerate(arms):
        every_s = plots.durations_s(arm)
        every_s = every_s[every_s <= longest_s]
        low, quarter, half, rest, high = np.percentile(every_s, [10, 25, 50, 75, 90])
        axes.plot([at, at], [low, high], color=BLUE, linewidth=1.2)
        axes.bar(at, rest - quarter, 0.5, quarter, color=PALETTE["sky"], alpha=0.6)
        axes.plot([at - 0.25, at + 0.25], [half, half], color=BLUE, linewidth=1.4)
        label = None if at else "our mean"
        axes.plot(at, every_s.mean(), color=BLUE, ls="", marker="o", markersize=7, label=label)
        if arm.label in stated:
            star(axes, at, stated[arm.label], None if at else "the paper's mean")
    axes.set_xticks(range(len(arms)), [arm.label for arm in arms])
    axes.set_ylim(bottom=0)
    axes.set_ylabel("duration of a round [s]")
    axes.legend(loc="lower right")


# Figure 7: views


def view_arms(results: Path) -> list[Arm]:
    return [arm for arm in overhead_arms(results) if arm.runs[0].tables.get("views")]


def fig7(results: Path) -> str:
    rows = []
    for arm in view_arms(results):
        size, views = f"n = {arm.spec['nodes']}", [run.tables["views"] for run in arm.runs]
        peaks = [float(each["simulated_s"][each["online"].argmax()]) % 86_400 / 3600 for each in views]
        rows.append(row(f"hour of the day with most online, {size}", STATED["fig7"]["peak_h"], peaks, hours))
        off = [float(np.mean(each["mean_view"] / each["online"] - 1)) for each in views]
        rows.append(row(f"in a view, more than online, {size}", None, off, share))
        few = [float(np.mean(each["mean_view"] < each["online"])) for each in views]
        rows.append(row(f"moments at which views hold too few, {size}", None, few, quantities.share))
    return beside(rows)


def draw_fig7(results: Path) -> Any:
    arms = view_arms(results)
    with panels(len(arms), "simulated time [h]", "nodes") as (drawn, axes):
        for panel, arm in zip(axes, arms, strict=True):
            views = arm.runs[0].tables["views"]
            at_h, low, high = views["simulated_s"] / 3600, views["min_view"], views["max_view"]
            panel.plot(at_h, views["online"], color=RED, linewidth=2.6, label="online")
            panel.plot(at_h, views["mean_view"], color=BLUE, linewidth=1, label="in the mean of their views")
            panel.fill_between(at_h, low, high, color=BLUE, alpha=0.25, linewidth=0)
            peak = {"color": SOFT, "linestyle": (0, (2, 2)), "label": "the paper's peak"}
            panel.axvline(STATED["fig7"]["peak_h"], **peak)
            panel.set_title(f"n = {arm.spec['nodes']}")
            panel.set_ylim(0, 1.12 * views["online"].max())
        axes[0].legend(loc="lower right")
    return drawn


# Table II: what is saved


def of_table2(results: Path) -> Iterator[tuple[str, Setting, Comparison]]:
    """The paper's tasks, in all settings in which Plexus was run beside the paper's baselines."""
    for folder, task in OF_TABLE2.items():
        for setting in settings(results / folder):
            arms = of_paper(setting.arms)
            if len({arm.is_ours for arm in arms}) > 1:
                yield task, setting, compare(arms, judge="best")


def size_of(setting: Setting) -> str:
    spec, seeds = setting.arms[0].spec, max(len(arm.seeds) for arm in setting.arms)
    return f"n = {spec['nodes']}, {spec['hours']:g} h" + ("" if seeds > 1 else ", one seed")


def stated_in_table2() -> dict[str, tuple[list[Any], list[Any]]]:
    """By task the rows of Plexus and of Gossip Learning, from the study."""
    text = (ROOT / "experiments/table2.toml").read_text(encoding="utf-8")
    rows = tomllib.loads(text)["paper_table"]["rows"]
    return {ours[0]: (ours, other) for ours, other in zip(rows[::2], rows[1::2], strict=True)}


def savings_of(row: Sequence[Any]) -> list[float]:
    return [float(cell.removesuffix("x")) for cell in row[7:]]


def table2(results: Path) -> str:
    rows: Rows = []
    for task, setting, found in of_table2(results):
        (theirs, gossip), write = stated_in_table2()[task], partial(quantities.metric, found.metric)
        ours, others = found.arms[0], {each.label: each for each in found.arms}
        rows.append([f"**{task}**", f"{theirs[1]} h", setting.title, ""])
        rows.append(["best, Plexus", theirs[3], over_seeds(ours.best, write).text, ""])
        if baseline := others.get(found.best_baseline or ""):
            best = f"{over_seeds(baseline.best, write).text}, {baseline.label}"
            rows.append(["best baseline", f"{gossip[3]}, Gossip Learning", best, ""])
        cells = saved(ours) or ["not reached"] * 3
        for part, stated, cell in zip(PARTS, savings_of(theirs), cells, strict=True):
            value = getattr(cell, "value", None)
            ratio = number(value / stated) if value else "–"
            rows.append([f"{part} saved", f"{stated:g}×", text_of(cell), ratio])
    return beside(rows)


def successor(results: Path) -> str:
    """What the paper and its successor save on all their tasks, and what is saved here on each."""
    found, stated = list(of_table2(results)), [savings_of(ours) for ours, _ in stated_in_table2().values()]
    cells = [[text_of(cell) for cell in saved(each.arms[0])] or ["not reached"] * 3 for *_, each in found]
    rows = [
        [f"{part} saved", _range([each[at] for each in stated]), _range(STATED["successor"][part])]
        + [each[at] for each in cells]
        for at, part in enumerate(PARTS)
    ]
    ours = [f"{naming.task(each.arms[0].spec['task']['name'])}, {size_of(each)}" for _, each, _ in found]
    return f"\n{markdown(['', 'the paper', 'its successor', *ours], rows)}\n" if found else NOT_YET


def _range(values: Sequence[float]) -> str:
    return f"{min(values):g}–{max(values):g}×"


def draw_table2(results: Path) -> Any:
    found, stated = list(of_table2(results)), stated_in_table2()
    specs = [setting.arms[0].spec for _, setting, _ in found]
    names = [
        f"{naming.task(spec['task']['name'])}\nn = {spec['nodes']}, {spec['hours']:g} h" for spec in specs
    ]
    with panels(3, "", "", 1.6 + 0.55 * len(found)) as (drawn, axes):
        for part, (panel, name) in enumerate(zip(axes, PARTS, strict=True)):
            band = {"color": GREEN, "alpha": 0.18, "linewidth": 0}
            panel.axvspan(*STATED["successor"][name], label="its successor, on three tasks", **band)
            for at, (task, _, comparison) in enumerate(found):
                ours, first = comparison.arms[0], at == 0
                star(panel, savings_of(stated[task][0])[part], at, "the paper" if first else None)
                if ours.savings:
                    look = {"marker": "o", "ls": "", "label": "here, with 95 % interval" if first else None}
                    panel.plot(astuple(ours.savings)[part], at, color=BLUE, **look)
                if ours.savings_95:
                    panel.plot([astuple(bound)[part] for bound in ours.savings_95], [at, at], color=BLUE)
            panel.axvline(1, color=SOFT, linewidth=1)
            panel.set_xscale("log")
            if not part:  # within one power of ten
                panel.set_xticks([1, 2, 5, 10])
            panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}×")
            panel.set_title(f"{name} saved")
            panel.set_yticks(range(len(found)), [""] * len(found) if part else names)
            panel.set_ylim(len(found) - 0.5, -0.5)
        drawn.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=3)
    return drawn


# How they are drawn


@contextmanager
def panels(count: int, x: str, y: str, height: float = 3.3) -> Iterator[tuple[Any, Any]]:
    """A figure with panels side by side, of which the first says what is upwards."""
    with styled():
        drawn = figure(3.6 * count, height)
        axes = drawn.subplots(1, count)
        yield drawn, axes
        axes[0].set_ylabel(y or axes[0].get_ylabel())
        for panel in axes:
            panel.set_xlabel(x or panel.get_xlabel())


def line(axes: Any, arm: Arm, x: plots.Axis, colour: str, label: str, judge: Any = "mean") -> None:
    """An arm's mean over seeds, in a band from lowest to highest."""
    if found := plots.curve(arm, x, "accuracy", judge):
        axes.plot(found.x, found.mean, color=colour, linewidth=1.8, label=label)
        axes.fill_between(found.x, found.low, found.high, color=colour, alpha=0.18, linewidth=0)
        percent_ticks(axes.yaxis)


def star(axes: Any, x: Any, y: Any, label: str | None = None, colour: str = PALETTE["yellow"]) -> None:
    """What the paper states."""
    look = {"markersize": 13, "markeredgecolor": INK, "markeredgewidth": 0.8, "clip_on": False, "zorder": 6}
    axes.plot(x, y, color=colour, ls="", marker="*", label=label, **look)


TABLES: dict[str, Callable[[Path], str]] = {
    "fig1": fig1,
    "fig3": fig3,
    "fig3-churn": fig3_churn,
    "fig4": fig4,
    "fig5": fig5,
    "fig6": fig6,
    "fig7": fig7,
    "table2": table2,
    "successor": successor,
}
PICTURES: dict[str, Callable[[Path], Any]] = {
    "fig1": draw_fig1,
    "fig3": draw_fig3,
    "fig3-churn": lambda results: plots.curves(fig3_churn_arms(results)),
    "fig4": draw_fig4,
    "fig5": draw_fig5,
    "fig6": draw_fig6,
    "fig7": draw_fig7,
    "table2": draw_table2,
}


def draw(results: Path) -> None:
    """results/figures/NAME.png, of what there are runs."""
    for name, make in PICTURES.items():
        if TABLES[name](results) != NOT_YET:
            (results / "figures").mkdir(exist_ok=True)
            make(results).savefig(results / f"figures/{name}.png", dpi=200)
