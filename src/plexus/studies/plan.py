"""Which runs a set of studies needs: each once, whoever asks for it, in a directory named by its spec."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from plexus.checked import Source
from plexus.errors import MissingDataError, PlexusError
from plexus.runs.directory import CHECKPOINT
from plexus.runs.run import RESULT, VERSIONS, result_of, spec_digest_of
from plexus.spec.experiment import ExperimentSpec, typed_spec
from plexus.spec.toml import FULL_SIZE, located, read_text, read_toml, sized
from plexus.studies.study import Sized

ONLINE_WITH_CHURN = 0.2
"""About this share of nodes, to guess what a run costs."""


@dataclass(frozen=True)
class Planned:
    """One run: a spec, what its paths start from, and where it goes."""

    spec: ExperimentSpec
    base_dir: Path
    out: Path

    @property
    def title(self) -> str:
        """`gossip on digits, seed 2`."""
        churn = ", no churn" if self.spec.traces.availability == "none" else ""
        return f"{self.spec.protocol.name} on {self.spec.task.name}{churn}, seed {self.spec.seed}"

    @property
    def is_done(self) -> bool:
        """Whether its result is there. A run that was stopped early has one too, which does not count."""
        if not (self.out / RESULT).exists() or spec_digest_of(self.out) != self.spec.digest():
            return False
        try:
            result = result_of(self.out)
        except PlexusError:  # damaged: it is done again
            return False
        return result is not None and not result.interrupted

    @property
    def can_resume(self) -> bool:
        """Whether it was begun and left something to go on from."""
        return (self.out / VERSIONS).exists() and (self.out / CHECKPOINT).exists()

    @property
    def cost(self) -> float:
        """A guess at trainings, good enough to begin with the longest run and to draw a bar."""
        spec = self.spec
        online = spec.nodes * (1 if spec.traces.availability == "none" else ONLINE_WITH_CHURN)
        # Where a sample trains in each round, the others do not.
        return float(spec.hours * min(online, getattr(spec.protocol.parameters, "sample_size", online)))


@dataclass
class RunPlan:
    studies: list[Sized]
    runs: dict[tuple[str, str, str], list[Planned]] = field(default_factory=dict)
    """By study, task and arm: a run for each seed."""
    skipped: dict[str, str] = field(default_factory=dict)
    """By task: why it cannot be run here, and what to do."""

    @property
    def all_runs(self) -> list[Planned]:
        """Each run once."""
        return list({run.out: run for runs in self.runs.values() for run in runs}.values())

    def tasks_of(self, study: Sized) -> list[str]:
        """The tasks of a study that can be run here."""
        first = next(iter(study.study.arms))
        return [task for task in study.tasks if (study.name, task, first) in self.runs]


def make_plan(studies: Sequence[Sized], out: Path, only: Sequence[str] = ()) -> RunPlan:
    """The runs that `studies` need, of all their tasks or `only` of some."""
    plan = RunPlan(list(studies))
    known = list(dict.fromkeys(task for study in studies for task in study.tasks))
    for task in only:
        if task not in known:
            raise PlexusError(f"--task {task}: at size {studies[0].size} there are {', '.join(known)}")
    files: dict[str, Path] = {}
    for study in studies:
        if files.setdefault(study.name, study.file) != study.file:
            raise PlexusError(f"{study.file}: is called as {files[study.name]}: give one another name")
        for task in study.tasks:
            if task in plan.skipped or (only and task not in only):
                continue
            beside = study.file.parent / (task if task.endswith(".toml") else f"{task}.toml")
            packaged = located(Path(task))
            file = beside if beside.is_file() or packaged == Path(task) else packaged
            planned = planned_runs(file, study, out)
            try:
                _require_data([run for runs in planned.values() for run in runs])
                plan.runs |= {(study.name, task, arm): runs for arm, runs in planned.items()}
            except MissingDataError as error:
                plan.skipped[task] = str(error)
    return plan


def planned_runs(file: Path, study: Sized, out: Path) -> dict[str, list[Planned]]:
    """By arm, one run for each seed, from a task's spec file at the size of a study."""
    tables = read_toml(read_text(file), str(file))
    # One of the two must say what the size means: else a first look would take as long as it all.
    is_said = study.changes and "sizes" not in tables
    tables = sized(tables, FULL_SIZE if is_said else study.size, str(file))
    found: dict[str, list[Planned]] = {arm: [] for arm in study.study.arms}
    for arm, runs in found.items():
        source = Source(f"{study.file}: arms.{arm} of {file.name}")
        for seed in study.seeds_for.get(file.stem, study.seeds):
            spec = typed_spec({**study.tables(tables, arm), "seed": seed}, source)
            # Named by what it is, so that studies that ask for the same run find it.
            name = f"{spec.task.name}-{spec.protocol.name}".replace(":", "-")  # of one's own: module:name
            spec = msgspec.structs.replace(spec, name=name)
            runs.append(Planned(spec, file.parent, out / "runs" / f"{name}-{spec.digest()}"))
    return found


def _require_data(runs: Sequence[Planned]) -> None:
    """Of a task; nothing is asked of one whose runs are all done."""
    if hasattr(runs[0].spec.task.parameters, "data") and not all(run.is_done for run in runs):
        from plexus.experiment.learning import require_data

        require_data(runs[0].spec, runs[0].base_dir)
