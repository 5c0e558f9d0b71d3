"""From the runs of a study to a section of the page, with tables that no other comparison has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from plexus import quantities
from plexus.experiment.recording import whole_view_bytes
from plexus.report import naming, plots
from plexus.report.arms import Arm, common_metric, group, load
from plexus.report.comparison import summary_table
from plexus.report.document import Picture, Quantity, Section, Table, heading
from plexus.report.standard import slug, standard_sections
from plexus.runs.result import Traffic
from plexus.runs.run import Run
from plexus.studies import reality
from plexus.studies.plan import Planned, RunPlan
from plexus.studies.reality import ONE, SENT, Column, Told, result, tabulated
from plexus.studies.study import Drawing, Sized
from plexus.style import Figure


class Album:
    """All runs of a plan, each loaded once, and what is made of them."""

    def __init__(self, plan: RunPlan) -> None:
        self.plan = plan
        self.runs: dict[Path, Run] = {run.out: load(run.out) for run in plan.all_runs}
        self.seen: list[tuple[str, str]] = []
        """By title of its section, what is seen in each table drawn so far, in words."""

    def arms(self) -> list[Arm]:
        """Every run of the plan once, in the arm that asked for it first."""
        arms: list[Arm] = []
        listed: set[Path] = set()
        studies = {study.name: study.study for study in self.plan.studies}
        for (study, task, name), runs in self.plan.runs.items():
            if new := [run for run in runs if run.out not in listed]:
                listed |= {run.out for run in new}
                arms.append(self._arm(f"{naming.task(task)}: {studies[study].label(name)}", new))
        return arms

    def sections(self, study: Sized) -> list[Section]:
        """A study's figures and tables, task by task; of one that draws nothing, those of a report."""
        if study.study.draw:
            return [self._section(study)]
        planned = (runs for (name, _, _), runs in self.plan.runs.items() if name == study.name)
        arms = group(self.runs[run.out] for runs in planned for run in runs)
        return standard_sections(arms, about=study.study.about, name=study.name)

    def _section(self, study: Sized) -> Section:
        tasks, told = self.plan.tasks_of(study), len(self.seen)
        drawn = [
            self._draw(study, task, drawing, number, several=len(tasks) > 1)
            for task in tasks
            for number, drawing in enumerate(study.study.draw, start=1)
        ]
        pictures = [each for each in drawn if isinstance(each, Picture)]
        tables = [each for each in drawn if isinstance(each, Table)]
        if (paper := study.study.paper_table) is not None:
            tables.append(Table(id_of(study, "paper"), paper.title, paper.columns, paper.rows, paper.note))
        of_paper = f" ({study.study.paper} of the paper)" if study.study.paper else ""
        skipped = [(task, why) for task, why in self.plan.skipped.items() if task in study.tasks]
        notes = [f"Not shown here: {naming.task(task)}. {why}." for task, why in skipped]
        text = "\n\n".join([study.study.about.strip(), *(seen for _, seen in self.seen[told:]), *notes])
        return Section(id_of(study), study.study.title + of_paper, text, pictures, tables)

    def _draw(self, study: Sized, task: str, drawing: Drawing, number: int, several: bool) -> Picture | Table:
        arms = [
            self._arm(study.study.label(arm), self.plan.runs[study.name, task, arm])
            for arm in drawing.arms or study.study.arms
        ]
        id = id_of(study, task, number)
        title = f"{naming.task(task)}: {drawing.title}" if several else drawing.title
        if drawing.kind == "summary":
            return summary_table(arms, judge="best", id=id, title=title)
        if drawing.kind in TABLES:
            told = TABLES[drawing.kind](arms)
            if told.seen:
                self.seen.append((study.study.title, f"{heading(title)}. {told.seen}"))
            return Table(id, title, told.columns, tuple(told.rows), drawing.caption)
        return Picture(id, title, drawing.caption, FIGURES[drawing.kind](arms, drawing), drawing.paper)

    def _arm(self, label: str, runs: Iterable[Planned]) -> Arm:
        return Arm(label, tuple(self.runs[run.out] for run in runs))


def id_of(study: Sized, *parts: str | int) -> str:
    """What files and links of the page call it: a study and its tasks may be called anything."""
    id = slug("-".join(map(str, [study.name, *parts])))
    return id if id[:1].isalpha() else f"study-{id}"


FIGURES: dict[str, Callable[[Sequence[Arm], Drawing], Figure]] = {
    "curves": lambda arms, drawing: plots.curves(arms, drawing.x, log=drawing.x != "simulated_h"),
    "messages": lambda arms, drawing: plots.bars_of_messages(arms, drawing.of),
    "round-durations": lambda arms, _: plots.round_durations(arms),
    "views": lambda arms, _: plots.online_and_views(arms),
    "hourly-rounds": lambda arms, _: plots.hourly_rounds(arms),
    "used": lambda arms, _: plots.used_by_speed(arms),
}


def totals(arms: Sequence[Arm]) -> Told:
    """What a whole session came to and cost."""
    metric, _ = common_metric(arms)
    write = partial(quantities.metric, metric)

    def mean_round_s(run: Run) -> float | None:
        durations_s = plots.durations_s(Arm("", (run,)))
        return float(durations_s.mean()) if len(durations_s) else None

    def timed_out(run: Run) -> float | None:
        return fmean(run.tables["rounds"]["timed_out"]) if run.tables["rounds"] else None

    columns = (
        Column(f"Best {quantities.metric_name(metric)}", lambda run: result(run).metric.best, write),
        Column("Rounds", lambda run: float(result(run).rounds)),
        Column("Mean round [s]", mean_round_s, ONE),
        Column("Timed out", timed_out, quantities.share),
        SENT,
        Column("Training [h]", lambda run: result(run).training_s / 3600, "{:.3g}".format),
    )
    return tabulated(arms, columns)


def overhead(arms: Sequence[Arm]) -> Told:
    """What share of all that is sent is the models themselves, and what the rest is."""

    def share(name: str, kind: str, of: str) -> Column:
        def part(run: Run) -> float:
            parts = {each: getattr(traffic, of) for each, traffic in result(run).messages.items()}
            return float(parts.get(kind, 0) / (sum(parts.values()) or 1))

        return Column(name, part, quantities.share)

    def view_bytes(run: Run) -> float | None:
        view = result(run).messages.get("view", Traffic(0, 0))
        return view.bytes / view.count if view.count else None

    def whole(arm: Arm) -> Quantity:
        protocol, nodes = arm.spec["protocol"], int(arm.spec["nodes"])
        size = whole_view_bytes(nodes, protocol.get("signed_views", False))
        return Quantity(quantities.size(size), float(size))

    columns = (
        SENT,
        share("Models, of bytes", "model", "bytes"),
        share("Views, of bytes", "view", "bytes"),
        share("Membership, of messages", "membership", "count"),
        Column("A view, on average", view_bytes, quantities.size),
    )
    told = tabulated(arms, columns)
    rows = [(*row, whole(arm)) for row, arm in zip(told.rows, arms, strict=True)]
    return Told((*told.columns, "A view of all nodes"), rows)


def views(arms: Sequence[Arm]) -> Told:
    """How far the views of nodes are from the truth."""

    def off(run: Run) -> Any:
        return np.abs(run.tables["views"]["mean_view"] / run.tables["views"]["online"] - 1)

    columns = (
        Column("Online, mean", lambda run: float(run.tables["views"]["online"].mean()), ONE),
        Column("In a view, mean", lambda run: float(run.tables["views"]["mean_view"].mean()), ONE),
        Column("Mean difference", lambda run: float(off(run).mean()), quantities.share),
        Column("Largest difference", lambda run: float(off(run).max()), quantities.share),
    )
    return tabulated(arms, columns)


TABLES: dict[str, Callable[[Sequence[Arm]], Told]] = {
    **reality.TABLES,
    "totals": totals,
    "overhead": overhead,
    "view-table": views,
}
