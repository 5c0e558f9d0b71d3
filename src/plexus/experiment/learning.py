"""What a session learns with: the task's data, the engine that computes, the models, and who judges them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from msgspec import Struct

from plexus.experiment.evaluation import Evaluation, GlobalModelEvaluation, NodeModelsEvaluation
from plexus.learn.aggregation import aggregation_named
from plexus.learn.engines import create_engine
from plexus.learn.graph import Costs, Expression, LazyModels
from plexus.learn.task import Metrics, Task
from plexus.learn.tasks import build_task
from plexus.learn.tasks.specs import UntrainedSpec
from plexus.protocol.facts import AggregationCompleted, Fact, ModelUpdated
from plexus.runs.recorder import Recorder
from plexus.runs.result import ChosenEngine, Metric
from plexus.sim.protocols import Entry
from plexus.sim.runtime import Runtime
from plexus.sim.session import SymbolicModels
from plexus.spec.experiment import EvaluationSpec, ExperimentSpec

# Sessions in which nothing is learned: the task `untrained`, for questions of time and traffic alone.


class UntrainedModels(SymbolicModels):
    """Models that are a size and nothing else; counts what was asked for."""

    def __init__(self, model_bytes: int) -> None:
        super().__init__(model_bytes)
        self.costs = Costs()
        self.evaluated: list[Metrics] = []

    def train(self, model: None, node: int, round: int) -> None:
        self.costs.asked += 1

    def initial(self) -> None:
        """There is no model."""

    def close(self) -> None:
        """Nothing is held."""


class NoEvaluation(Evaluation):
    """Follows the rounds, and has nothing to measure."""

    def __init__(self) -> None:
        self.round = 0
        self.newest = None

    def on_fact(self, node: int, fact: Fact) -> None:
        if isinstance(fact, AggregationCompleted | ModelUpdated):
            self.round = max(self.round, fact.round)

    def look(self) -> None:
        """Nothing to see."""

    def final_model(self) -> Expression:
        raise LookupError("nothing was learned")

    def weights_hash(self) -> str:
        return ""

    def metric(self) -> Metric:
        return Metric("none", None, None, higher_is_better=True)


JUDGES: dict[str, type[Evaluation]] = {
    "global model": GlobalModelEvaluation,
    "models of nodes": NodeModelsEvaluation,
}


class Machinery(Struct, frozen=True, kw_only=True):
    """What carries out a run on this machine. Of no influence on events; weights are those of any other
    machinery, bit for bit or to the tolerance that the engines state."""

    engine: str = "auto"
    device: str | None = None
    workers: int | None = None
    address: str | None = None
    """Of a Ray cluster; without one the engine `ray` starts one of its own."""
    model_memory_gb: float = 2.0
    """Models that somebody holds go to disk past this."""
    checkpoint_every_s: float = 300.0


@dataclass(frozen=True)
class Learning:
    """The learning half of a session. The simulator knows the models alone."""

    models: LazyModels | UntrainedModels
    engine: ChosenEngine
    local_steps: int
    batch: int
    task: Task | None
    """None where nothing is learned."""

    def judge(
        self, protocol: Entry, spec: EvaluationSpec, runtime: Runtime, recorder: Recorder
    ) -> Evaluation:
        """Who measures models during the session."""
        if self.task is None or not isinstance(self.models, LazyModels):
            return NoEvaluation()
        judge = JUDGES[protocol.judged_by]
        return judge(spec, self.task, self.models, runtime, recorder)


def set_up(spec: ExperimentSpec, base_dir: Path, machinery: Machinery) -> Learning:
    """Everything that learning needs, ready to compute."""
    parameters = spec.task.parameters
    if isinstance(parameters, UntrainedSpec):
        models = UntrainedModels(parameters.model_bytes)
        nothing = ChosenEngine("none", "cpu", "nothing is learned")
        return Learning(models, nothing, parameters.local_steps, parameters.batch, None)
    task: Task = build_task(parameters, spec.nodes, spec.seed, base_dir)
    engine, chosen = create_engine(
        machinery.engine, task, workers=machinery.workers, device=machinery.device, address=machinery.address
    )
    lazy = LazyModels(
        task, engine, aggregation_named(spec.aggregation), budget_bytes=round(machinery.model_memory_gb * 1e9)
    )
    return Learning(lazy, chosen, task.local_steps, task.batch, task)
