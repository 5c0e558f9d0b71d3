"""Sessions in which nothing is learned: the task `untrained`, for questions of time and traffic alone."""

from __future__ import annotations

from plexus.experiment.evaluation import Evaluation
from plexus.learn.graph import Costs, Expression
from plexus.learn.task import Metrics
from plexus.protocol.facts import AggregationCompleted, Fact, ModelUpdated
from plexus.runs.result import Metric
from plexus.sim.symbolic import SymbolicModels


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
