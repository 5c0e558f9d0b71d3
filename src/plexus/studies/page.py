"""From the runs of a study to a section of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

import numpy as np

from plexus import quantities
from plexus.protocol.view import Snapshot
from plexus.protocol.wire import view_bytes
from plexus.report import naming, plots
from plexus.report.arms import Arm, common_metric
from plexus.report.comparison import summary_table
from plexus.report.document import Cell, Picture, Quantity, Section, Table, over_seeds
from plexus.report.plots import durations_s
from plexus.runs.result import Result, Traffic
from plexus.runs.run import Run, load_run
from plexus.studies.plan import Plan, Planned
from plexus.studies.study import Drawing, PaperTable, Sized

# Tables of a study that no other comparison has.

NOTHING = Traffic(0, 0)


def totals(arms: Sequence[Arm], id: str, title: str, note: str) -> Table:
    """What a whole session came to and cost."""
    metric, _ = common_metric(arms)
    columns = (
        "Setting",
        f"Best {quantities.metric_name(metric)}",
        "Rounds",
        "Mean round [s]",
        "Timed out",
        "Sent [GB]",
        "Training [h]",
    )
    rows = tuple(_totals_of(arm, metric) for arm in arms)
    return Table(id, title, columns, rows, note)


def _totals_of(arm: Arm, metric: str) -> tuple[Cell, ...]:
    results = [result_of(run) for run in arm.runs]
    best = [result.metric.best for result in results if result.metric.best is not None]
    rounds = [run.tables["rounds"] for run in arm.runs]
    each_seed = [durations_s(Arm(arm.label, (run,), arm.is_ours)) for run in arm.runs]
    mean_round_s = [float(found.mean()) for found in each_seed if len(found)]
    late = [100 * fmean(each["timed_out"]) for each in rounds if each]
    return (
        arm.label,
        over_seeds(best, lambda value: quantities.metric(metric, value)),
        over_seeds([float(result.rounds) for result in results], lambda value: f"{value:,.0f}"),
        over_seeds(mean_round_s, lambda value: f"{value:.1f}"),
        over_seeds(late, lambda value: f"{value:.1f} %"),
        over_seeds([result.sent_bytes / 1e9 for result in results], lambda value: f"{value:.3g}"),
        over_seeds([result.training_s / 3600 for result in results], lambda value: f"{value:.3g}"),
    )


def overhead(arms: Sequence[Arm], id: str, title: str, note: str) -> Table:
    """What share of all that is sent is the models themselves, and what the rest is."""
    columns = (
        "Setting",
        "Sent [GB]",
        "Models, of bytes",
        "Views, of bytes",
        "Membership, of messages",
        "A view, on average",
        "A view of all nodes",
    )
    return Table(id, title, columns, tuple(map(_overhead_of, arms)), note)


def _overhead_of(arm: Arm) -> tuple[Cell, ...]:
    results = [result_of(run) for run in arm.runs]
    nodes = int(arm.runs[0].spec["nodes"])
    whole = view_bytes(Snapshot(np.ones(nodes, np.uint32), np.zeros(nodes, np.uint32)))

    def share(kind: str, of: str) -> Quantity:
        shares = [_share(result, kind, of) for result in results]
        return over_seeds(shares, lambda value: f"{100 * value:.1f} %")

    views = [result.messages.get("view", NOTHING) for result in results]
    mean_view = [view.bytes / view.count for view in views if view.count]
    return (
        arm.label,
        over_seeds([result.sent_bytes / 1e9 for result in results], lambda value: f"{value:.3g}"),
        share("model", "bytes"),
        share("view", "bytes"),
        share("membership", "count"),
        over_seeds(mean_view, quantities.size),
        Quantity(quantities.size(whole), float(whole)),
    )


def _share(result: Result, kind: str, of: str) -> float:
    parts = {name: getattr(traffic, of) for name, traffic in result.messages.items()}
    total = sum(parts.values())
    return float(parts.get(kind, 0) / total) if total else 0.0


def views(arms: Sequence[Arm], id: str, title: str, note: str) -> Table:
    """How far the views of nodes are from the truth."""
    columns = ("Setting", "Online, mean", "In a view, mean", "Mean difference", "Largest difference")
    return Table(id, title, columns, tuple(map(_views_of, arms)), note)


def _views_of(arm: Arm) -> tuple[Cell, ...]:
    found = [run.tables["views"] for run in arm.runs]
    differences = [np.abs(each["mean_view"] - each["online"]) / each["online"] for each in found]
    return (
        arm.label,
        over_seeds([float(each["online"].mean()) for each in found], lambda value: f"{value:.1f}"),
        over_seeds([float(each["mean_view"].mean()) for each in found], lambda value: f"{value:.1f}"),
        over_seeds([float(each.mean()) for each in differences], _percent),
        over_seeds([float(each.max()) for each in differences], _percent),
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def of_the_paper(study: str, table: PaperTable) -> Table:
    """The paper's own numbers."""
    return Table(f"{study}-paper", table.title, table.columns, table.rows, table.note)


def result_of(run: Run) -> Result:
    """The result of a run that came to its end."""
    assert run.result is not None, "only finished runs are drawn"
    return run.result


TABLES: dict[str, Callable[[Sequence[Arm], str, str, str], Table]] = {
    "totals": totals,
    "overhead": overhead,
    "view-table": views,
}


class Album:
    """Loads each run once, and makes sections of them."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._loaded: dict[str, Run] = {}

    def runs(self) -> list[Run]:
        """Every run of the plan."""
        return [self._load(run) for run in self._plan.all_runs]

    def arms(self) -> list[Arm]:
        """Every run of the plan once, in the arm that asked for it first."""
        arms: list[Arm] = []
        listed: set[str] = set()
        studies = {study.name: study for study in self._plan.studies}
        for (study, task, name), runs in self._plan.runs.items():
            new = [run for run in runs if str(run.out) not in listed]
            if new:
                listed |= {str(run.out) for run in new}
                label = f"{naming.task(task)}: {studies[study].study.label(name)}"
                arms.append(_arm(label, map(self._load, new)))
        return arms

    def section(self, study: Sized) -> Section:
        """A study's figures and tables, task by task."""
        tasks = self._plan.tasks_of(study)
        pictures: list[Picture] = []
        found: list[Table] = []
        for task in tasks:
            for number, drawing in enumerate(study.study.draw, start=1):
                thing = self._draw(study, task, drawing, number, several=len(tasks) > 1)
                if isinstance(thing, Table):
                    found.append(thing)
                else:
                    pictures.append(thing)
        if study.study.paper_table is not None:
            found.append(of_the_paper(study.name, study.study.paper_table))
        of_paper = f" ({study.study.paper} of the paper)" if study.study.paper else ""
        return Section(study.name, study.study.title + of_paper, self._text(study), pictures, found)

    def _text(self, study: Sized) -> str:
        notes = [
            f"Not shown here: {naming.task(task)}. {why}."
            for task, why in self._plan.skipped.items()
            if task in study.tasks
        ]
        return "\n\n".join([study.study.about.strip(), *notes])

    def _draw(self, study: Sized, task: str, drawing: Drawing, number: int, several: bool) -> Picture | Table:
        arms = [self._arm(study, task, arm) for arm in study.study.shown(drawing)]
        id = f"{study.name}-{task}-{number}"
        title = f"{naming.task(task)}: {drawing.title}" if several else drawing.title
        if drawing.kind == "summary":
            return summary_table(arms, judge="best", id=id, title=title)
        if drawing.kind in TABLES:
            return TABLES[drawing.kind](arms, id, title, drawing.caption)
        if drawing.kind == "curves":
            figure = plots.curves(arms, drawing.x, log=drawing.x != "simulated_h")
        elif drawing.kind == "messages":
            figure = plots.bars_of_messages(arms, drawing.of)
        elif drawing.kind == "round-durations":
            figure = plots.round_durations(arms)
        else:
            figure = plots.online_and_views(arms)
        return Picture(id, title, drawing.caption, figure, drawing.paper)

    def _arm(self, study: Sized, task: str, arm: str) -> Arm:
        runs = self._plan.runs[study.name, task, arm]
        return _arm(study.study.label(arm), map(self._load, runs))

    def _load(self, run: Planned) -> Run:
        key = str(run.out)
        if key not in self._loaded:
            self._loaded[key] = load_run(run.out)
        return self._loaded[key]


def _arm(label: str, runs: Iterable[Run]) -> Arm:
    found = tuple(runs)
    return Arm(label, found, found[0].spec["protocol"]["name"] == "plexus")
