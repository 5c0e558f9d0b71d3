"""What a session learns with: the task's data, the engine that computes, the models, and who judges them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TypeAlias

from msgspec import Struct

from plexus.errors import PlexusError
from plexus.experiment.evaluation import Evaluation, GlobalModelEvaluation, NodeModelsEvaluation, Taken
from plexus.learn.attacks import PoisonedEngine, mislabelled
from plexus.learn.engines import Precision, create_engine
from plexus.learn.graph import Costs, LazyModels
from plexus.learn.rules import built
from plexus.learn.saved import about, save_model
from plexus.learn.task import Metrics, Task, hold_out
from plexus.learn.tasks import build_task
from plexus.learn.tasks.specs import UntrainedSpec
from plexus.runs.encoding import Wire
from plexus.runs.recorder import Recorder
from plexus.runs.result import ChosenEngine
from plexus.sim.protocols import JudgedBy
from plexus.sim.runtime import Runtime
from plexus.sim.session import Symbol, SymbolicModels
from plexus.spec.attackers import poisoners
from plexus.spec.experiment import ExperimentSpec
from plexus.traces.world import World, training_time_s

ANSWERS_S = 5.0
"""What messages and transfers of a small model add to a round."""


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

    def interrupted(self, node: int) -> None: ...
    def replay(self, known: Sequence[Metrics]) -> None: ...
    def save(self, folder: Path) -> None: ...
    def restore(self, folder: Path, computed: int) -> None: ...
    def close(self) -> None: ...


Models: TypeAlias = LazyModels | UntrainedModels


@dataclass(frozen=True)
class Learning:
    """The learning half of a session. The simulator knows the models alone."""

    models: Models
    engine: ChosenEngine
    task: Task | UntrainedSpec
    judge: Callable[[JudgedBy, Runtime, Recorder], Evaluation]
    """Who measures models during the session, given what the protocol is judged by."""
    sets: int | None = None
    """How many different sets of examples there are, where several nodes have the same one."""

    def keep(self, taken: Mapping[str, Taken], out: Path, metadata: Mapping[str, str]) -> None:
        """Write the models that a run leaves."""
        if isinstance(self.models, LazyModels):
            for name, (model, number, value) in taken.items():
                measured = {"round": str(number), "value": repr(value)}
                facts = {**about(self.models.task), **metadata, **measured}
                save_model(out / name, self.models.weights(model), facts)


def require_data(spec: ExperimentSpec, base_dir: Path) -> None:
    """Raise `MissingDataError` unless the data of the spec's task is on this machine."""
    speeds = range(spec.nodes)  # whose data is whose does not matter here
    build_task(spec.task.parameters, spec.nodes, spec.seed, base_dir, speeds)


def durations_s(task: Task | UntrainedSpec, world: World) -> list[float]:
    """How long each device takes for a training."""
    devices = enumerate(world.devices)
    return [training_time_s(device, task.steps(node), task.batch) for node, device in devices]


def expected_trainings(spec: ExperimentSpec, task: Task, world: World) -> int:
    """About how many local trainings a session has: a round takes what a device needs to train and answer."""
    round_s = median(durations_s(task, world)) + ANSWERS_S
    of_protocol = spec.protocol.parameters
    sizes = (getattr(of_protocol, name, None) for name in ("sample_size", "concurrency", "active"))
    at_once = next(filter(None, sizes), spec.nodes)
    return round(3600 * spec.hours / round_s * min(at_once, spec.nodes))


def set_up(spec: ExperimentSpec, base_dir: Path, machinery: Machinery, world: World) -> Learning:
    """Everything that learning needs, ready to compute."""
    parameters = spec.task.parameters
    if isinstance(parameters, UntrainedSpec):
        nothing = ChosenEngine("none", "cpu", "nothing is learned")
        untrained = UntrainedModels(parameters.model_bytes)
        return Learning(untrained, nothing, parameters, lambda *_: Evaluation())
    ms_per_sample = [device.compute_ms_per_sample for device in world.devices]
    attackers = poisoners(spec.attackers, spec.nodes, spec.seed)
    task = build_task(parameters, spec.nodes, spec.seed, base_dir, ms_per_sample)
    sets = len(set(map(id, task.parts)))
    if attackers and getattr(parameters, "reuse", False):
        raise PlexusError("task.reuse: not with attackers, whose examples would be those of others too")
    if spec.evaluation.on != "test":
        task = hold_out(task, spec.evaluation.own_share)
    task = mislabelled(task, attackers)
    how = {name: getattr(machinery, name) for name in ("workers", "device", "precision", "address")}
    expected = expected_trainings(spec, task, world)
    engine, chosen = create_engine(machinery.engine, task, expected=expected, **how)
    budget_bytes = round(machinery.model_memory_gb * 1e9)
    wire: Wire = getattr(spec.protocol.parameters, "wire", "float32")
    poisoned = PoisonedEngine(engine, attackers, task) if attackers else engine
    rule = built(spec.aggregation.parameters, base_dir)
    models = LazyModels(task, poisoned, rule, budget_bytes, wire=wire)

    def judge(judged_by: JudgedBy, runtime: Runtime, recorder: Recorder) -> Evaluation:
        given = (spec.evaluation, task, models, runtime, recorder)
        if judged_by == "global model":
            return GlobalModelEvaluation(*given)
        evaluation = NodeModelsEvaluation(*given)
        evaluation.active = getattr(spec.protocol.parameters, "active", None)
        return evaluation

    return Learning(models, chosen, task, judge, sets if sets < task.nodes else None)
