"""A simulated session from its spec to its result: wires devices, learning and nodes, and keeps records."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

from plexus.evaluation import Evaluation, GlobalModelEvaluation, NodeModelsEvaluation
from plexus.learn.engines.inline import InlineEngine
from plexus.learn.graph import LazyModels
from plexus.learn.task import Task
from plexus.learn.tasks import build_task
from plexus.metrics.recorder import Recorder
from plexus.metrics.result import Result, Traffic, Trainings
from plexus.metrics.store import RunDirectory
from plexus.protocol.facts import AggregationCompleted, Fact
from plexus.sim.registry import PROTOCOLS
from plexus.sim.setting import Setting
from plexus.sim.setup import simulated_session
from plexus.spec import ExperimentSpec
from plexus.traces.api import training_time_s
from plexus.traces.world import build_world

STEP_S = 60.0
"""Progress is shown and interruption noticed this often, in simulated seconds."""
ONLINE_EVERY_S = 300.0


class Observer(Protocol):
    """Who wants to see a run progress."""

    def tick(
        self,
        simulated_s: float,
        round: int,
        online: int,
        metric_name: str,
        metric_value: float | None,
    ) -> None: ...


def simulate(spec: ExperimentSpec, base_dir: Path, out: Path, observe: Observer) -> Result:
    """Run `spec` in virtual time and leave a run directory at `out`.

    An interruption (Ctrl-C) ends the run early; its directory is as valid as that of a whole one.
    """
    with RunDirectory(out, spec.to_toml(), spec.digest()) as directory:
        session = Session(spec, base_dir, directory.recorder)
        result = session.run(observe, out)
        directory.finish(result)
    return result


class Session:
    """One simulated session and what is known of it so far."""

    def __init__(self, spec: ExperimentSpec, base_dir: Path, recorder: Recorder) -> None:
        self._until_s = 3600 * spec.hours
        self._recorder = recorder
        world = build_world(spec.traces, spec.nodes, spec.seed, base_dir)
        task: Task = build_task(spec.task.parameters, spec.nodes, spec.seed)
        self._models = LazyModels(task, InlineEngine(task))
        durations_s = [training_time_s(d, task.local_steps, task.batch) for d in world.devices]
        setting = Setting(
            world=world,
            models=self._models,
            initial_model=self._models.initial(),
            training_s=durations_s.__getitem__,
            seed=spec.seed,
            sharing=spec.network.sharing,
            graceful_share=spec.traces.graceful_share,
            base_dir=base_dir,
        )
        name, parameters = spec.protocol.name, spec.protocol.parameters
        self._runtime, self._cast = simulated_session(name, parameters, setting, self._on_fact)
        judge = JUDGES[PROTOCOLS[name].judged_by]
        self._evaluation = judge(spec.evaluation, task, self._models, self._runtime, recorder)

    @property
    def _online(self) -> int:
        """How many devices are online; servers are none."""
        return self._runtime.online_count - self._cast.servers

    def run(self, observe: Observer, out: Path) -> Result:
        """Let virtual time pass until the end of the session."""
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        interrupted = False
        try:
            self._pass_time(observe)
            self._evaluation.look()
        except KeyboardInterrupt:
            interrupted = True
        return self._result(
            interrupted, time.perf_counter() - wall_s, time.process_time() - cpu_s, out
        )

    def _pass_time(self, observe: Observer) -> None:
        runtime, evaluation, now_s = self._runtime, self._evaluation, 0.0
        while now_s < self._until_s:
            if now_s % ONLINE_EVERY_S == 0:
                runtime.run(now_s)
                self._recorder.record("online", simulated_s=now_s, online=self._online)
            now_s = min(STEP_S * (now_s // STEP_S + 1), evaluation.next_s, self._until_s)
            runtime.run(now_s)
            if now_s == evaluation.next_s:
                evaluation.look()
            metric = evaluation.metric()
            observe.tick(now_s, evaluation.round, self._online, metric.name, metric.final)

    def _on_fact(self, now_s: float, node: int, fact: Fact) -> None:
        if isinstance(fact, AggregationCompleted):
            self._recorder.record(
                "rounds",
                simulated_s=now_s,
                round=fact.round,
                aggregator=node,
                models=fact.models,
                participants=fact.participants,
                timed_out=fact.timed_out,
                waited_s=fact.waited_s,
            )
        self._evaluation.on_fact(node, fact)

    def _result(self, interrupted: bool, wall_s: float, cpu_s: float, out: Path) -> Result:
        accounts = self._runtime.accounts
        return Result(
            digest=self._runtime.kernel.digest(),
            weights_hash=self._models.weights_hash(self._evaluation.final_model()),
            rounds=self._evaluation.round,
            simulated_s=self._runtime.kernel.now,
            cpu_s=cpu_s,
            wall_s=wall_s,
            metric=self._evaluation.metric(),
            messages={name: Traffic(**entry) for name, entry in sorted(accounts.table().items())},
            training_s=sum(accounts.training_s),
            trainings=Trainings(self._models.asked, self._models.computed),
            tuning=self._cast.tuning,
            interrupted=interrupted,
            out=str(out),
        )


JUDGES: dict[str, type[Evaluation]] = {
    "global model": GlobalModelEvaluation,
    "models of nodes": NodeModelsEvaluation,
}
