"""A simulated session from its spec to its result: wires devices, learning and nodes, and keeps records."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from plexus.errors import PlexusError, StopRun
from plexus.experiment.checkpoint import Checkpoint, Checkpoints, read_checkpoint, restore
from plexus.experiment.learning import Machinery, durations_s, set_up
from plexus.experiment.progress import Progress, Tick
from plexus.experiment.recording import Recording
from plexus.protocol.facts import Fact, FinalHeld
from plexus.protocol.parameters import PlexusParameters, unknown_metric
from plexus.runs.directory import RunDirectory
from plexus.runs.recorder import Listener
from plexus.runs.result import Cut, Evaluations, Result, Traffic, Trainings
from plexus.sim.faults import FaultyRuntime, PlannedFault, drawn_nodes
from plexus.sim.lineage import TracedModels, WhoseWork
from plexus.sim.protocols import JudgedBy, find
from plexus.sim.session import Setting, assemble
from plexus.spec.attackers import liars
from plexus.spec.experiment import ExperimentSpec
from plexus.traces.build import build_world

__all__ = ["Machinery", "Simulation", "simulate"]

STEP_S = 60.0
"""Progress is shown and interruption noticed this often, in simulated seconds."""
ONLINE_EVERY_S = 300.0


def simulate(
    spec: ExperimentSpec,
    base_dir: Path,
    out: Path,
    progress: Progress | None = None,
    machinery: Machinery | None = None,
    resume: bool = False,
    listen: Listener | None = None,
    about: Mapping[str, Any] | None = None,
    force: bool = False,
) -> Result:
    """Run `spec` in virtual time and leave a run directory at `out`, or go on with the run there.

    `listen` is told of every row that is recorded; `about` (tags, a note) is added to its versions. With
    `force` another run that is there is replaced, if this one can begin. An interruption (Ctrl-C) ends the
    run early; its directory is as valid as that of a whole one.
    """
    checkpoint = read_checkpoint(out) if resume else None
    with RunDirectory(
        out,
        spec.to_toml(),
        spec.digest(),
        base_dir=base_dir,
        resume=resume,
        replay=checkpoint is not None,
        force=force,
        about=about,
    ) as directory:
        if listen is not None:
            directory.recorder.listen = listen
        simulation = Simulation(spec, base_dir, directory, machinery or Machinery(), checkpoint)
        directory.begun()
        result = simulation.run(progress)
        directory.finish(result)
    return result


class Simulation:
    def __init__(
        self,
        spec: ExperimentSpec,
        base_dir: Path,
        directory: RunDirectory,
        machinery: Machinery,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self._until_s = 3600 * spec.hours
        self._directory, self._out = directory, directory.path
        self._checkpoints = Checkpoints(directory.path, machinery.checkpoint_every_s)
        self._resumed = checkpoint
        entry, parameters = find(spec.protocol.name, spec.protocol.parameters, base_dir)
        world = build_world(spec.traces, spec.nodes, spec.seed, base_dir)
        learning = set_up(spec, base_dir, machinery, world)
        self.engine, self._models = learning.engine, learning.models
        self._spec_digest, self._sets = spec.digest(), learning.sets
        with ExitStack() as failing:
            failing.callback(self._models.close)
            if checkpoint is not None:
                self._models.replay(checkpoint.evaluated)
            self._durations_s = durations_s(learning.task, world.devices)
            self._traced = TracedModels(self._models) if entry.judged_by == "global model" else None
            setting = Setting(
                world=world,
                models=self._traced or self._models,
                initial_model=self._models.initial(),
                training_s=self._durations_s.__getitem__,
                seed=spec.seed,
                sharing=spec.network.sharing,
                graceful_share=spec.traces.graceful_share,
                liars=liars(spec.attackers, spec.nodes, spec.seed),
                course=spec.session,
                base_dir=base_dir,
            )
            if setting.liars and not isinstance(parameters, PlexusParameters):
                behaviour = next(iter(setting.liars.values()))
                raise PlexusError(f"attackers.behaviour {behaviour} needs the protocol plexus")
            self._recording = Recording(directory.recorder, self._until_s, self._models.interrupted)
            self._nodes = entry.build(setting, parameters)
            faults = planned(spec, entry.judged_by)
            self._runtime = assemble(setting, self._nodes, self._on_fact, self._recording, faults)
            self._recording.begin(self._nodes, setting.training_s)
            self._evaluation = learning.judge(entry.judged_by, self._runtime, directory.recorder)
            self._ended: dict[int, int] = {}
            """By node that knows of the end: the round of the final model."""
            if spec.session.is_measured:
                if wrong := unknown_metric(spec.session, self._evaluation.metric().name):
                    raise PlexusError(wrong)
                self._evaluation.tell = self._runtime.tell
            failing.pop_all()

    def run(self, progress: Progress | None = None) -> Result:
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        interrupted = False
        with closing(self._models):
            try:
                self._pass_time(progress)
                self._evaluation.look()
                self._models.hear(wait=True)
            except (KeyboardInterrupt, StopRun):
                if self._resumed is not None:
                    raise  # nothing is learned anew yet: the checkpoint it began from says more
                self._models.drop()
                interrupted = True
            result = self._result(interrupted, time.perf_counter() - wall_s, time.process_time() - cpu_s)
            digests = {"digest": result.digest, "spec_digest": self._spec_digest}
            for name, (model, number, value) in self._evaluation.take_home().items():
                facts = {**digests, "round": str(number), "value": repr(value)}
                self._models.leave(model, self._out / name, facts)
            return result

    def _pass_time(self, progress: Progress | None) -> None:
        runtime, evaluation, now_s = self._runtime, self._evaluation, 0.0
        while now_s < self._until_s and not self._is_over:
            if now_s % ONLINE_EVERY_S == 0:
                runtime.run(now_s)
                self._recording.look(now_s, runtime)
            now_s = min(STEP_S * (now_s // STEP_S + 1), evaluation.next_s, self._until_s)
            runtime.run(now_s)
            if now_s == evaluation.next_s:
                evaluation.look()
            self._keep(now_s)
            self._models.hear()
            try:
                if progress is not None:
                    progress(self._tick(now_s))
            except (KeyboardInterrupt, StopRun):
                self._keep(now_s, is_last=True)
                raise

    @property
    def _is_over(self) -> bool:
        """The session has ended, and all who are there have its model."""
        there = [node for node, is_online in enumerate(self._runtime.online) if is_online]
        rounds = {self._ended.get(node, 0) for node in there}
        return bool(self._ended) and rounds == {max(self._ended.values())}

    def _tick(self, now_s: float) -> Tick:
        metric = self._evaluation.metric()
        replay_s = None if self._resumed is None else self._resumed.simulated_s
        online = self._runtime.online_count - self._nodes.servers
        return Tick(now_s, self._evaluation.round, online, metric.name, metric.final, replay_s)

    def _keep(self, now_s: float, is_last: bool = False) -> None:
        """A moment between two steps: go on from a checkpoint here, or write one."""
        if self._resumed is None:
            self._checkpoints.offer(self._runtime.kernel, self._models, is_last)
        elif now_s == self._resumed.simulated_s:
            restore(self._resumed, self._out, self._runtime.kernel, self._models)
            self._directory.caught_up()
            self._resumed = None

    def _on_fact(self, now_s: float, node: int, fact: Fact) -> None:
        self._recording.on_fact(now_s, node, fact, self._runtime)
        self._evaluation.on_fact(node, fact)
        if isinstance(fact, FinalHeld):
            self._ended[node] = fact.round
        if self._traced is not None:
            self._traced.on_fact(now_s, node, fact)

    def _whose(self) -> WhoseWork | None:
        """Whose work is behind the final model, if there is one; the devices have a table of it."""
        if self._traced is None:
            return None
        trainings = self._runtime.accounts.trainings[: len(self._durations_s)]
        found = self._traced.whose(trainings, self._durations_s)
        self._recording.used(trainings, found)
        return found

    def _cuts(self) -> tuple[Cut, ...]:
        """Whose work survived each cut that began."""
        if self._traced is None or not isinstance(self._runtime, FaultyRuntime):
            return ()
        struck = self._runtime.struck.items()
        cuts = [(fault, nodes) for fault, nodes in struck if fault.kind == "partition"]
        return tuple(self._traced.survivors(fault.from_s, fault.until_s, nodes) for fault, nodes in cuts)

    def _result(self, interrupted: bool, wall_s: float, cpu_s: float) -> Result:
        accounts, costs, whose = self._runtime.accounts, self._models.costs, self._whose()
        return Result(
            digest=self._runtime.kernel.digest(),
            weights_hash=self._evaluation.weights_hash(),
            rounds=self._evaluation.round,
            simulated_s=self._runtime.kernel.now,
            cpu_s=cpu_s + costs.workers_cpu_s,
            wall_s=wall_s,
            metric=self._evaluation.metric(),
            messages={name: Traffic(**entry) for name, entry in sorted(accounts.table().items())},
            training_s=sum(accounts.training_s),
            trainings=Trainings(costs.asked, costs.computed, costs.training_s),
            evaluations=Evaluations(len(self._models.evaluated), costs.evaluation_s),
            used=whose.used if whose else None,
            lineage=whose.lineage if whose else None,
            cuts=self._cuts(),
            membership=self._recording.believed(),
            suspects=self._recording.suspects(),
            notes=() if interrupted else self._recording.notes(),
            tuning=self._nodes.tuning,
            sets=self._sets,
            interrupted=interrupted,
            engine=self.engine,
            out=str(self._out),
        )


def planned(spec: ExperimentSpec, judged_by: JudgedBy) -> list[PlannedFault]:
    """The faults of a spec: what is to go wrong, and for whom."""
    found = []
    for at, fault in enumerate(spec.faults):
        match fault.nodes:
            case tuple() as listed:
                nodes: frozenset[int] | None = frozenset(listed)
            case str():
                if judged_by == "models of nodes":
                    raise PlexusError(f"faults[{at}].nodes: protocol {spec.protocol.name} has no aggregators")
                nodes = None
            case share:
                nodes = drawn_nodes(share, spec.nodes, spec.seed, at)
        factor = 1.0 if fault.factor is None else fault.factor
        found.append(PlannedFault(fault.kind, 3600 * fault.from_h, 3600 * fault.to_h, nodes, factor))
    return found
