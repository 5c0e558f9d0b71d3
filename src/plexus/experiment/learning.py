"""What a session learns with: the task's data, the engine that computes, the models, and who judges them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from plexus.errors import PlexusError
from plexus.experiment.evaluation import Evaluation, GlobalModelEvaluation, NodeModelsEvaluation, Outline
from plexus.learn.engines import Precision, create_engine
from plexus.learn.rules import built
from plexus.learn.tasks import build_task
from plexus.learn.tasks.specs import UntrainedSpec
from plexus.machine import usable_cores
from plexus.runs.encoding import Wire
from plexus.runs.recorder import Recorder
from plexus.runs.result import ChosenEngine, Costs, Metrics
from plexus.sim.protocols import JudgedBy
from plexus.sim.runtime import Runtime
from plexus.sim.session import Symbol, SymbolicModels
from plexus.spec.attackers import poisoners
from plexus.spec.experiment import ExperimentSpec
from plexus.traces.world import Device, World, training_time_s

if TYPE_CHECKING:
    from plexus.experiment.ahead import ModelsAhead
    from plexus.learn.graph import LazyModels
    from plexus.learn.task import Task

ANSWERS_S = 5.0
"""What messages and transfers of a small model add to a round."""
WORTH_A_PROCESS = 50_000
"""With fewer trainings to expect, a process for learning saves a second at best. Where most devices are away,
three times as many are expected as there are."""


class Machinery(Struct, frozen=True, kw_only=True):
    """What carries out a run on this machine. Of no influence on events; weights are those of any other
    machinery, bit for bit or to the tolerance that the engines state."""

    engine: str = "auto"
    device: str | None = None
    precision: Precision = "tf32"
    """Of products on a GPU."""
    workers: int | None = None
    address: str | None = None
    """Of a Ray cluster; without one the engine `ray` starts one of its own."""
    model_memory_gb: float = 2.0
    """Models that somebody holds go to disk past this."""
    checkpoint_every_s: float = 300.0
    ahead: bool | None = None
    """Whether learning has a process of its own, so that events need not wait for it; None: where it pays.
    Where the session depends on what is measured, the two take turns in any case."""


class UntrainedModels(SymbolicModels):
    """Models that are a size and nothing else, for questions of time and traffic alone: the task `untrained`.

    Counts what was asked for. Nothing is learned, so a checkpoint holds nothing.
    """

    initial_hash = ""

    def __init__(self, model_bytes: int) -> None:
        super().__init__(model_bytes)
        self.costs = Costs()
        self.evaluated: list[Metrics] = []

    def train(self, model: Symbol, node: int, round: int) -> Symbol:
        self.costs.asked += 1
        return super().train(model, node, round)

    def _nothing(self, *what: Any, **how: Any) -> None: ...

    interrupted = hear = drop = leave = replay = save = restore = close = _nothing


Models: TypeAlias = "LazyModels | ModelsAhead | UntrainedModels"


@dataclass(frozen=True)
class Learning:
    """The learning half of a session. The simulator knows the models alone."""

    models: Models
    engine: ChosenEngine
    task: Outline | UntrainedSpec
    judge: Callable[[JudgedBy, Runtime, Recorder], Evaluation]
    """Who measures models during the session, given what the protocol is judged by."""
    sets: int | None = None
    """How many different sets of examples there are, where several nodes have the same one."""


def require_data(spec: ExperimentSpec, base_dir: Path) -> None:
    """Raise `MissingDataError` unless the data of the spec's task is on this machine."""
    speeds = range(spec.nodes)  # whose data is whose does not matter here
    build_task(spec.task.parameters, spec.nodes, spec.seed, base_dir, speeds)


def durations_s(task: Task | Outline | UntrainedSpec, devices: Sequence[Device]) -> list[float]:
    """How long each device takes for a training."""
    return [training_time_s(device, task.steps(at), task.batch) for at, device in enumerate(devices)]


def expected_trainings(spec: ExperimentSpec, task: Task | UntrainedSpec, devices: Sequence[Device]) -> int:
    """About how many local trainings a session has: a round takes what a device needs to train and answer."""
    round_s = median(durations_s(task, devices)) + ANSWERS_S
    of_protocol = spec.protocol.parameters
    sizes = (getattr(of_protocol, name, None) for name in ("sample_size", "concurrency", "active"))
    at_once = next(filter(None, sizes), spec.nodes)
    return round(3600 * spec.hours / round_s * min(at_once, spec.nodes))


def goes_ahead(spec: ExperimentSpec, machinery: Machinery, devices: Sequence[Device]) -> bool:
    """Whether learning is to have a process of its own.

    Not if the session waits for what is measured, nor where no other process can import what it needs.
    """
    cannot = spec.session.is_measured or os.name != "posix" or "__main__:" in spec.to_toml()
    if cannot or machinery.ahead is False:
        return False
    if machinery.ahead or machinery.engine.startswith("ray") or usable_cores() < 2:
        return bool(machinery.ahead)
    known = {key: getattr(spec.task.parameters, key, None) for key in ("local_steps", "batch")}
    about = UntrainedSpec(**{key: value for key, value in known.items() if value})
    return expected_trainings(spec, about, devices) >= WORTH_A_PROCESS


def set_up(spec: ExperimentSpec, base_dir: Path, machinery: Machinery, world: World) -> Learning:
    parameters = spec.task.parameters
    if isinstance(parameters, UntrainedSpec):
        nothing = ChosenEngine("none", "cpu", "nothing is learned")
        return Learning(UntrainedModels(parameters.model_bytes), nothing, parameters, lambda *_: Evaluation())
    models: LazyModels | ModelsAhead
    if goes_ahead(spec, machinery, world.devices):
        from plexus.experiment.ahead import ModelsAhead

        models = ModelsAhead(spec, base_dir, machinery, world.devices)
        engine, task, sets = models.made
    else:
        models, (engine, task, sets) = lazy_models(spec, base_dir, machinery, world.devices)

    def judge(judged_by: JudgedBy, runtime: Runtime, recorder: Recorder) -> Evaluation:
        given = (spec.evaluation, task, models, runtime, recorder)
        if judged_by == "global model":
            return GlobalModelEvaluation(*given)
        evaluation = NodeModelsEvaluation(*given)
        evaluation.active = getattr(spec.protocol.parameters, "active", None)
        return evaluation

    return Learning(models, engine, task, judge, sets)


def lazy_models(
    spec: ExperimentSpec, base_dir: Path, machinery: Machinery, devices: Sequence[Device]
) -> tuple[LazyModels, tuple[ChosenEngine, Outline, int | None]]:
    """The models of a session in which something is learned, to be computed in this process; and what
    computes them, the task in outline, and the sets of examples, as `Learning` has them."""
    from plexus.learn.attacks import PoisonedEngine, mislabelled
    from plexus.learn.graph import LazyModels
    from plexus.learn.task import hold_out

    parameters = spec.task.parameters
    ms_per_sample = [device.compute_ms_per_sample for device in devices]
    attackers = poisoners(spec.attackers, spec.nodes, spec.seed)
    task = build_task(parameters, spec.nodes, spec.seed, base_dir, ms_per_sample)
    sets = len(set(map(id, task.parts)))
    if attackers and getattr(parameters, "reuse", False):
        raise PlexusError("task.reuse: not with attackers, whose examples would be those of others too")
    if spec.evaluation.on != "test":
        task = hold_out(task, spec.evaluation.own_share)
    task = mislabelled(task, attackers)
    how = {name: getattr(machinery, name) for name in ("workers", "device", "precision", "address")}
    expected = expected_trainings(spec, task, devices)
    engine, chosen = create_engine(machinery.engine, task, expected=expected, **how)
    budget_bytes = round(machinery.model_memory_gb * 1e9)
    wire: Wire = getattr(spec.protocol.parameters, "wire", "float32")
    poisoned = PoisonedEngine(engine, attackers, task) if attackers else engine
    models = LazyModels(task, poisoned, built(spec.aggregation.parameters, base_dir), budget_bytes, wire=wire)
    measure = (task.measure.name, task.measure.higher_is_better, task.average_only)
    of_nodes = [(len(part), task.steps(node)) for node, part in enumerate(task.parts)]
    samples, steps = map(list, zip(*of_nodes, strict=True))
    outline = Outline(task.seed, task.batch, *measure, samples, steps, [len(rows) for rows in task.held])
    return models, (chosen, outline, sets if sets < task.nodes else None)
