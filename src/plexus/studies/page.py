"""From the runs of a study to a section of the page."""

from __future__ import annotations

from collections.abc import Iterable

from plexus.report import naming, plots
from plexus.report.arms import Arm
from plexus.report.comparison import summary_table
from plexus.report.document import Picture, Section, Table
from plexus.runs.directory import Run, load_run
from plexus.studies import tables
from plexus.studies.plan import Plan, Planned
from plexus.studies.study import Drawing, Sized


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
            found.append(tables.of_the_paper(study.name, study.study.paper_table))
        of_paper = f" ({study.study.paper} of the paper)" if study.study.paper else ""
        return Section(study.name, study.study.title + of_paper, self._text(study), pictures, found)

    def _text(self, study: Sized) -> str:
        notes = [
            f"Not shown here: {naming.task(task)}. {why}."
            for task, why in self._plan.skipped.items()
            if task in study.tasks
        ]
        return "\n\n".join([study.study.about.strip(), *notes])

    def _draw(
        self, study: Sized, task: str, drawing: Drawing, number: int, several: bool
    ) -> Picture | Table:
        arms = [self._arm(study, task, arm) for arm in study.study.shown(drawing)]
        id = f"{study.name}-{task}-{number}"
        title = f"{naming.task(task)}: {drawing.title}" if several else drawing.title
        if drawing.kind == "summary":
            return summary_table(arms, judge="best", id=id, title=title)
        if drawing.kind in tables.TABLES:
            return tables.TABLES[drawing.kind](arms, id, title, drawing.caption)
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
