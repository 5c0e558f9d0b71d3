"""When models are measured on the test set, which ones, and what is kept of it.

A protocol with a global model is judged by it, every so many rounds. Where every node has a model of its
own, all nodes that are online or a seeded share of them are judged, every so many hours. Both as in
the paper; what is to be compared is judged at the same hours, whatever the protocol.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, pstdev
from typing import Any, NamedTuple

from plexus.learn.expressions import Expression
from plexus.learn.graph import LazyModels
from plexus.learn.task import Metrics, Task
from plexus.protocol.api import Measured
from plexus.protocol.facts import AggregationCompleted, Fact, ModelUpdated
from plexus.rng import stream
from plexus.runs.model_files import BEST_MODEL, FINAL_MODEL
from plexus.runs.recorder import Recorder
from plexus.runs.result import Metric
from plexus.sim.runtime import Runtime
from plexus.spec.experiment import EvaluationSpec


class Taken(NamedTuple):
    """A model that was measured."""

    model: Expression
    round: int
    value: float


class Evaluation:
    """Follows the rounds of a session. This one measures nothing, as nothing is learned."""

    def __init__(self) -> None:
        self.round = 0
        """How many rounds led to the newest model."""
        self.tell: Callable[[int, Measured], None] | None = None
        """Tells a node what was found of its model, where the end of the session depends on it."""

    @property
    def next_s(self) -> float:
        """When it wants to look at models next, whatever happens until then."""
        return math.inf

    def on_fact(self, node: int, fact: Fact) -> None:
        """A node reported something."""
        if isinstance(fact, AggregationCompleted):
            self.round = max(self.round, fact.ordinal)
        elif isinstance(fact, ModelUpdated):
            self.round = max(self.round, fact.round)

    def look(self) -> None:
        """Measure what there is now, unless that has just been done."""

    def weights_hash(self) -> str:
        """Names what was measured last: equal weights, equal hash."""
        return ""

    def take_home(self) -> dict[str, Taken]:
        """The models that the run leaves, by the name of the file."""
        return {}

    def metric(self) -> Metric:
        """How good models became."""
        return Metric("none", None, None, higher_is_better=True)


class ModelEvaluation(Evaluation):
    """Measures models and keeps the outcome."""

    def __init__(
        self, spec: EvaluationSpec, task: Task, models: LazyModels, runtime: Runtime, recorder: Recorder
    ) -> None:
        super().__init__()
        self._spec = spec
        self._task = task
        self._models = models
        self._runtime = runtime
        self._recorder = recorder
        self._of_nodes = False
        """Whether it measures models of nodes, each for itself."""
        self._newest: float | None = None
        """The metric when it was last measured."""
        self._best: Metrics | None = None
        self._best_model: tuple[Expression, int] | None = None
        """That model, and its round."""
        self._own_columns: dict[str, float] = {}
        """What nodes found on their own data just now, if they measure."""
        self._looks = 0
        self._looked_s = 0.0

    @property
    def next_s(self) -> float:
        return 3600 * self._spec.every_hours * (self._looks + 1)

    def _is_seen(self) -> bool:
        """Whether there was a look at this moment already; if not, this is one."""
        now_s = self._runtime.kernel.now
        is_seen, self._looked_s = now_s == self._looked_s, now_s
        self._looks += not is_seen and now_s >= self.next_s
        return is_seen

    def metric(self) -> Metric:
        measure = self._task.measure
        best = self._best.value if self._best else None
        name = f"own_{measure.name}" if self._spec.on == "own" else measure.name
        return Metric(name, best, self._newest, measure.higher_is_better, self._of_nodes)

    def take_home(self) -> dict[str, Taken]:
        if self._best is None or self._best_model is None or self._newest is None:
            return {}
        final = Taken(*self._final(), self._newest)
        return {FINAL_MODEL: final, BEST_MODEL: Taken(*self._best_model, self._best.value)}

    def weights_hash(self) -> str:
        return self._models.weights_hash(self._final()[0])

    def _final(self) -> tuple[Expression, int]:
        """What was measured last, and its round; of models of nodes, the mean."""
        raise NotImplementedError

    def _measure_own(self, models: Mapping[int, Expression]) -> Metrics | None:
        """Let nodes measure models on their own data, if the spec wants it."""
        if self._spec.on == "test":
            return None
        nodes = [node for node in models if len(self._task.held[node])]
        training = {node for node in nodes if self._runtime.is_training(node)}
        found = self._models.evaluate_own([(models[node], node) for node in nodes], training)
        self._own_columns = {found.name: found.value, **found.others}
        return found

    def _record(self, models: Sequence[Expression], found: Sequence[Metrics], **columns: Any) -> None:
        """Keep the mean of what was found just now, and the best."""
        self._newest = fmean(metrics.value for metrics in found)
        for model, metrics in zip(models, found, strict=True):
            if self._best is None or metrics.score > self._best.score:
                self._best, self._best_model = metrics, (model, self.round)
        accounts = self._runtime.accounts
        columns |= self._own_columns
        self._recorder.record(
            "evaluations",
            simulated_s=self._runtime.kernel.now,
            round=self.round,
            **_columns(found),
            **columns,
            sent_bytes=sum(accounts.sent_bytes),
            training_s=sum(accounts.training_s),
        )


class GlobalModelEvaluation(ModelEvaluation):
    """Measures the model that a round ends with, every so many rounds; or what there is, every so many
    hours."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._model = self._measured = self._models.initial()
        self._number = self._measured_round = 0

    @property
    def next_s(self) -> float:
        return math.inf if self._spec.every_rounds else super().next_s

    def on_fact(self, node: int, fact: Fact) -> None:
        # Where views differ a round can have two aggregators; the first result stands for the round.
        if isinstance(fact, AggregationCompleted) and fact.round > self._number:
            self._number, self.round, self._model = fact.round, fact.ordinal, fact.model
            every = self._spec.every_rounds
            # After a fork the newest model may be behind fewer rounds than one that is forgotten.
            if every and fact.ordinal // every != self._measured_round // every:
                self.look()
                if self.tell is not None:
                    found, of = self._found, (fact.round, fact.ordinal, fact.model)
                    self.tell(node, Measured(*of, found.score, found.by_name))

    def look(self) -> None:
        is_new = self._newest is None or self._measured is not self._model
        if not self._spec.every_rounds and self._is_seen():
            return
        if is_new:
            own = self._measure_own(dict.fromkeys(range(self._task.nodes), self._model))
            if self._spec.on == "own" and own is not None:
                found, self._own_columns = own, {}
            else:
                found = self._models.evaluate(self._model)
            self._measured, self._measured_round, self._found = self._model, self.round, found
        if is_new or not self._spec.every_rounds:  # on a grid every moment counts, though nothing changed
            self._record([self._measured], [self._found])

    def _final(self) -> tuple[Expression, int]:
        return self._measured, self._measured_round


class NodeModelsEvaluation(ModelEvaluation):
    """Measures the models of nodes, every so many hours."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._of_nodes = not self._task.average_only
        self._current: dict[int, tuple[int, Expression]] = {}
        """By node, its own model and the round that it is of, the newest last; not the initial one."""
        self.active: int | None = None
        """Where only so many nodes are active at a time, those that were so last are judged."""
        self._measured: list[Expression] = [self._models.initial()]

    def on_fact(self, node: int, fact: Fact) -> None:
        if isinstance(fact, ModelUpdated):
            self._current.pop(node, None)
            self._current[node] = (fact.round, fact.model)
            self.round = max(self.round, fact.round)

    def look(self) -> None:
        if self._is_seen():
            return
        nodes = self._chosen()
        if not nodes:
            return
        models = [self._current.get(node, (0, self._models.initial()))[1] for node in nodes]
        self._measured = models
        own = self._measure_own(dict(zip(nodes, models, strict=True)))
        if self._spec.on == "own" and own is not None:
            self._own_columns = {}
            self._record([self._average(models)], [own], nodes=len(nodes))
            return
        if self._of_nodes:
            found = self._measure_each(nodes, models)
        else:
            models = [self._average(models)]
            found = self._models.evaluate_all(models)
        values = [metrics.value for metrics in found]
        name, best = found[0].name, max if found[0].higher_is_better else min
        spread = {f"{name}_std": pstdev(values), f"{name}_best": best(values)}
        self._record(models, found, **spread, nodes=len(nodes))

    def _final(self) -> tuple[Expression, int]:
        return self._average(self._measured), self.round

    def _chosen(self) -> list[int]:
        """The nodes to look at: all that are online, or a share of them drawn by seed."""
        online = [node for node in range(self._task.nodes) if self._runtime.online[node]]
        if self.active is not None and self._current:
            online = sorted([node for node in self._current if self._runtime.online[node]][-self.active :])
        share = self._spec.node_share
        if share >= 1 or not online:
            return online
        rng = stream(self._task.seed, "evaluation", self._looks)
        return sorted(rng.sample(online, max(1, round(share * len(online)))))

    def _measure_each(self, nodes: list[int], models: list[Expression]) -> list[Metrics]:
        found = self._models.evaluate_all(models)
        for node, metrics in zip(nodes, found, strict=True):
            self._recorder.record(
                "node_evaluations",
                simulated_s=self._runtime.kernel.now,
                node=node,
                round=self._current.get(node, (0, None))[0],
                **_columns([metrics]),
            )
        return found

    def _average(self, models: list[Expression]) -> Expression:
        return self._models.merge(models, [1] * len(models))


def _columns(found: Sequence[Metrics]) -> dict[str, float]:
    """The columns of a row: each metric, as its mean over all that were measured."""
    rows = [metrics.by_name for metrics in found]
    return {name: fmean(row[name] for row in rows) for name in rows[0]}
