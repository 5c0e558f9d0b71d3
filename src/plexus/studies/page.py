"""From the runs of a study to a section of the page, with tables that no other comparison has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np

from plexus import quantities
from plexus.experiment.recording import whole_view_bytes
from plexus.report import naming, plots
from plexus.report.arms import Arm, common_metric
from plexus.report.comparison import summary_table
from plexus.report.document import Cell, Picture, Quantity, Section, Table, over_seeds
from plexus.runs.result import Result, Traffic
from plexus.runs.run import Run, load_run
from plexus.studies.plan import Planned, RunPlan
from plexus.studies.study import Drawing, Sized


class Album:
    """All runs of a plan, each loaded once, and what is made of them."""

    def __init__(self, plan: RunPlan) -> None:
        self._plan = plan
        self.runs: dict[Path, Run] = {run.out: load_run(run.out) for run in plan.all_runs}

    def arms(self) -> list[Arm]:
        """Every run of the plan once, in the arm that asked for it first."""
        arms: list[Arm] = []
        listed: set[Path] = set()
        studies = {study.name: study.study for study in self._plan.studies}
        for (study, task, name), runs in self._plan.runs.items():
            new = [run for run in runs if run.out not in listed]
            if new:
                listed |= {run.out for run in new}
                arms.append(self._arm(f"{naming.task(task)}: {studies[study].label(name)}", new))
        return arms

    def section(self, study: Sized) -> Section:
        """A study's figures and tables, task by task."""
        tasks = self._plan.tasks_of(study)
        drawn = [
            self._draw(study, task, drawing, number, several=len(tasks) > 1)
            for task in tasks
            for number, drawing in enumerate(study.study.draw, start=1)
        ]
        pictures = [each for each in drawn if isinstance(each, Picture)]
        tables = [each for each in drawn if isinstance(each, Table)]
        if (paper := study.study.paper_table) is not None:
            tables.append(Table(f"{study.name}-paper", paper.title, paper.columns, paper.rows, paper.note))
        of_paper = f" ({study.study.paper} of the paper)" if study.study.paper else ""
        return Section(study.name, study.study.title + of_paper, self._text(study), pictures, tables)

    def _text(self, study: Sized) -> str:
        skipped = [(task, why) for task, why in self._plan.skipped.items() if task in study.tasks]
        notes = [f"Not shown here: {naming.task(task)}. {why}." for task, why in skipped]
        return "\n\n".join([study.study.about.strip(), *notes])

    def _draw(self, study: Sized, task: str, drawing: Drawing, number: int, several: bool) -> Picture | Table:
        arms = [
            self._arm(study.study.label(arm), self._plan.runs[study.name, task, arm])
            for arm in drawing.arms or study.study.arms
        ]
        id = f"{study.name}-{task}-{number}"
        title = f"{naming.task(task)}: {drawing.title}" if several else drawing.title
        if drawing.kind == "summary":
            return summary_table(arms, judge="best", id=id, title=title)
        if drawing.kind in TABLES:
            columns, rows = TABLES[drawing.kind](arms)
            return Table(id, title, columns, tuple(rows), drawing.caption)
        if drawing.kind == "curves":
            figure = plots.curves(arms, drawing.x, log=drawing.x != "simulated_h")
        elif drawing.kind == "messages":
            figure = plots.bars_of_messages(arms, drawing.of)
        elif drawing.kind == "round-durations":
            figure = plots.round_durations(arms)
        else:
            figure = plots.online_and_views(arms)
        return Picture(id, title, drawing.caption, figure, drawing.paper)

    def _arm(self, label: str, runs: Iterable[Planned]) -> Arm:
        return Arm(label, tuple(self.runs[run.out] for run in runs))


Columns = tuple[str, ...]
Rows = Iterable[tuple[Cell, ...]]


def totals(arms: Sequence[Arm]) -> tuple[Columns, Rows]:
    """What a whole session came to and cost."""
    metric, _ = common_metric(arms)
    best = f"Best {quantities.metric_name(metric)}"
    columns = ("Setting", best, "Rounds", "Mean round [s]", "Timed out", "Sent [GB]", "Training [h]")
    return columns, (_totals_of(arm, metric) for arm in arms)


def _totals_of(arm: Arm, metric: str) -> tuple[Cell, ...]:
    results = _results(arm)
    rounds = [run.tables["rounds"] for run in arm.runs]
    durations_s = [plots.durations_s(Arm(arm.label, (run,))) for run in arm.runs]
    best = [result.metric.best for result in results if result.metric.best is not None]
    return (
        arm.label,
        over_seeds(best, lambda value: quantities.metric(metric, value)),
        over_seeds([float(result.rounds) for result in results], "{:,.0f}".format),
        over_seeds([float(found.mean()) for found in durations_s if len(found)], "{:.1f}".format),
        over_seeds([100 * fmean(each["timed_out"]) for each in rounds if each], "{:.1f} %".format),
        over_seeds([result.sent_bytes / 1e9 for result in results], "{:.3g}".format),
        over_seeds([result.training_s / 3600 for result in results], "{:.3g}".format),
    )


def overhead(arms: Sequence[Arm]) -> tuple[Columns, Rows]:
    """What share of all that is sent is the models themselves, and what the rest is."""
    shares = ("Models, of bytes", "Views, of bytes", "Membership, of messages")
    columns = ("Setting", "Sent [GB]", *shares, "A view, on average", "A view of all nodes")
    return columns, map(_overhead_of, arms)


def _overhead_of(arm: Arm) -> tuple[Cell, ...]:
    results = _results(arm)
    whole = whole_view_bytes(int(arm.runs[0].spec["nodes"]))
    views = [result.messages.get("view", Traffic(0, 0)) for result in results]
    return (
        arm.label,
        over_seeds([result.sent_bytes / 1e9 for result in results], "{:.3g}".format),
        over_seeds([_share(result, "model", "bytes") for result in results], _percent),
        over_seeds([_share(result, "view", "bytes") for result in results], _percent),
        over_seeds([_share(result, "membership", "count") for result in results], _percent),
        over_seeds([view.bytes / view.count for view in views if view.count], quantities.size),
        Quantity(quantities.size(whole), float(whole)),
    )


def _share(result: Result, kind: str, of: str) -> float:
    parts = {name: getattr(traffic, of) for name, traffic in result.messages.items()}
    total = sum(parts.values())
    return float(parts.get(kind, 0) / total) if total else 0.0


def views(arms: Sequence[Arm]) -> tuple[Columns, Rows]:
    """How far the views of nodes are from the truth."""
    columns = ("Setting", "Online, mean", "In a view, mean", "Mean difference", "Largest difference")
    return columns, map(_views_of, arms)


def _views_of(arm: Arm) -> tuple[Cell, ...]:
    found = [run.tables["views"] for run in arm.runs]
    differences = [np.abs(each["mean_view"] - each["online"]) / each["online"] for each in found]
    return (
        arm.label,
        over_seeds([float(each["online"].mean()) for each in found], "{:.1f}".format),
        over_seeds([float(each["mean_view"].mean()) for each in found], "{:.1f}".format),
        over_seeds([float(each.mean()) for each in differences], _percent),
        over_seeds([float(each.max()) for each in differences], _percent),
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _results(arm: Arm) -> list[Result]:
    results = [run.result for run in arm.runs if run.result is not None]
    assert len(results) == len(arm.runs), "only finished runs are drawn"
    return results


TABLES: dict[str, Callable[[Sequence[Arm]], tuple[Columns, Rows]]] = {
    "totals": totals,
    "overhead": overhead,
    "view-table": views,
}
