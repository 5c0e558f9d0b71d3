"""A simulated session from its spec to its result: wires devices, learning and nodes, and keeps records."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

from plexus.learn.engines.inline import InlineEngine
from plexus.learn.graph import Expression, LazyModels
from plexus.learn.task import Metrics, Task
from plexus.learn.tasks import build_task
from plexus.metrics.recorder import Recorder
from plexus.metrics.result import Metric, Result, Traffic, Trainings
from plexus.metrics.store import RunDirectory
from plexus.protocol.facts import AggregationCompleted, Fact
from plexus.sim.setup import plexus_session
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
        self._every_rounds = spec.evaluation.every_rounds
        self._recorder = recorder
        world = build_world(spec.traces, spec.nodes, spec.seed, base_dir)
        task: Task = build_task(spec.task.parameters, spec.nodes, spec.seed)
        self._models = LazyModels(task, InlineEngine(task))
        self._measure = task.measure
        durations_s = [training_time_s(d, task.local_steps, task.batch) for d in world.devices]
        self._runtime = plexus_session(
            world=world,
            parameters=spec.protocol.parameters,
            models=self._models,
            initial_model=self._models.initial(),
            training_s=durations_s.__getitem__,
            seed=spec.seed,
            observe=self._on_fact,
            sharing=spec.network.sharing,
            graceful_share=spec.traces.graceful_share,
        )
        self._newest: Expression = self._models.initial()
        self._round = 0
        self._evaluated: tuple[Expression, Metrics] | None = None
        self._evaluated_round = 0
        self._best: Metrics | None = None

    def run(self, observe: Observer, out: Path) -> Result:
        """Let virtual time pass until the end of the session."""
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        interrupted = False
        try:
            self._pass_time(observe)
            self._evaluate(self._round, self._newest)
        except KeyboardInterrupt:
            interrupted = True
        return self._result(
            interrupted, time.perf_counter() - wall_s, time.process_time() - cpu_s, out
        )

    def _pass_time(self, observe: Observer) -> None:
        runtime, now_s = self._runtime, 0.0
        while now_s < self._until_s:
            if now_s % ONLINE_EVERY_S == 0:
                runtime.run(now_s)
                self._recorder.record("online", simulated_s=now_s, online=runtime.online_count)
            now_s = min(now_s + STEP_S, self._until_s)
            runtime.run(now_s)
            value = self._evaluated[1].value if self._evaluated else None
            observe.tick(now_s, self._round, runtime.online_count, self._measure.name, value)

    def _on_fact(self, now_s: float, node: int, fact: Fact) -> None:
        if isinstance(fact, AggregationCompleted):
            self._on_aggregation(now_s, node, fact)

    def _on_aggregation(self, now_s: float, node: int, fact: AggregationCompleted) -> None:
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
        # Where views differ a round can have two aggregators; the first result stands for the round.
        if fact.round > self._round:
            self._round, self._newest = fact.round, fact.model
            if fact.round // self._every_rounds > self._evaluated_round // self._every_rounds:
                self._evaluate(fact.round, fact.model)

    def _evaluate(self, round: int, model: Expression) -> None:
        if self._evaluated is not None and self._evaluated[0] is model:
            return
        metrics = self._models.evaluate(model)
        accounts = self._runtime.accounts
        self._evaluated, self._evaluated_round = (model, metrics), round
        if self._best is None or metrics.better_than(self._best):
            self._best = metrics
        self._recorder.record(
            "evaluations",
            simulated_s=self._runtime.kernel.now,
            round=round,
            **{metrics.name: metrics.value, **metrics.others, "loss": metrics.loss},
            sent_bytes=sum(accounts.sent_bytes),
            training_s=sum(accounts.training_s),
        )

    def _result(self, interrupted: bool, wall_s: float, cpu_s: float, out: Path) -> Result:
        accounts = self._runtime.accounts
        model, final = self._evaluated or (self._models.initial(), None)
        return Result(
            digest=self._runtime.kernel.digest(),
            weights_hash=self._models.weights_hash(model),
            rounds=self._round,
            simulated_s=self._runtime.kernel.now,
            cpu_s=cpu_s,
            wall_s=wall_s,
            metric=Metric(
                name=self._measure.name,
                best=self._best.value if self._best else None,
                final=final.value if final else None,
                higher_is_better=self._measure.higher_is_better,
            ),
            messages={name: Traffic(**entry) for name, entry in sorted(accounts.table().items())},
            training_s=sum(accounts.training_s),
            trainings=Trainings(self._models.asked, self._models.computed),
            interrupted=interrupted,
            out=str(out),
        )
