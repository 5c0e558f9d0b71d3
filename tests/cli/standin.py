"""A session that simulates nothing, so that what the command line does around it can be seen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec import Struct

from plexus.experiment.progress import Progress, Tick
from plexus.runs.directory import RunDirectory
from plexus.runs.result import Metric, Result, Traffic, Trainings
from plexus.spec import experiment as spec

SPEC = 'name = "small"\nnodes = 10\nhours = 2\n[task]\nname = "digits"\n'


class Session(ModuleType):
    """Stands in for `plexus.experiment.simulation`; `stop_at` is where somebody presses Ctrl-C."""

    stop_at: int | None = None
    evaluates: bool = True
    fails: Exception | None = None
    base_dir: Path | None = None
    machinery: dict[str, Any] | None = None
    Machinery = dict

    def simulate(
        self,
        spec: spec.ExperimentSpec,
        base_dir: Path,
        out: Path,
        progress: Progress,
        machinery: dict[str, Any],
        resume: bool,
        listen: Any,
        about: Any = None,
        force: bool = False,
    ) -> Result:
        """Ten steps, each with a row in every table."""
        self.base_dir = base_dir
        self.machinery = machinery
        if self.fails is not None:
            raise self.fails
        with RunDirectory(out, spec.to_toml(), spec.digest(), force=force) as directory:
            directory.begun()
            interrupted, step = False, 0
            try:
                for step in range(10):
                    self._step(spec, directory, progress, step)
            except KeyboardInterrupt:
                interrupted = True
            result = Result(
                digest=f"digest-of-{spec.seed}",
                weights_hash="77aa",
                rounds=step,
                simulated_s=step * 720.0,
                cpu_s=1.5,
                wall_s=2.5,
                metric=Metric("accuracy", best=0.97, final=0.964, higher_is_better=True),
                messages={"ping": Traffic(300, 5000), "model": Traffic(10, 95_000)},
                training_s=5400.0,
                trainings=Trainings(asked=20, computed=15),
                interrupted=interrupted,
                out=str(out),
            )
            directory.finish(result)
            return result

    def _step(
        self, spec: spec.ExperimentSpec, directory: RunDirectory, progress: Progress, step: int
    ) -> None:
        if step == self.stop_at:
            raise KeyboardInterrupt
        now_s = step * spec.hours * 360
        progress(Tick(now_s, step, 3, "accuracy", step / 10))
        directory.recorder.record("online", simulated_s=now_s, online=3)
        if self.evaluates:
            directory.recorder.record(
                "evaluations", simulated_s=now_s, round=step, accuracy=step / 10, loss=1.0
            )


class Outcome(Struct):
    """What a command left behind."""

    status: int
    out: str
    err: str


Plexus = Callable[..., Outcome]
