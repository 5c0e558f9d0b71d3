"""When models are measured on the test set, which ones, and what is kept of it.

A protocol with a global model is judged by it, every so many rounds. Where every node has a model of its
own, all nodes that are online or a seeded share of them are judged, every so many hours. Both as in
the paper; what is to be compared is judged at the same hours, whatever the protocol.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any, NamedTuple

from plexus.protocol.api import Measured
from plexus.protocol.facts import AggregationCompleted, EndClaimed, Fact, ModelUpdated
from plexus.rng import stream
from plexus.runs.model_files import BEST_MODEL, FINAL_MODEL
from plexus.runs.recorder import Recorder
from plexus.runs.result import Metric, Metrics
from plexus.sim.runtime import Runtime
from plexus.spec.experiment import EvaluationSpec

if TYPE_CHECKING:
    from plexus.experiment.ahead import ModelsAhead
    from plexus.learn.graph import LazyModels


class Taken(NamedTuple):
    model: Any
    round: int
    value: float


class Moment(NamedTuple):
    """When models were asked about, and what had happened by then: what is found may come later."""

    simulated_s: float
    round: int
    sent_bytes: int
    training_s: float


@dataclass(frozen=True)
class Outline:
    """A task for those who need nothing of its data. By node: examples, steps, examples held back."""

    seed: int
    batch: int
    metric: str
    higher_is_better: bool
    average_only: bool
    samples: Sequence[int]
    steps_of: Sequence[int]
    held: Sequence[int]

    def steps(self, node: int) -> int:
        return self.steps_of[node]


Then = Callable[[list[Metrics], Metrics | None], None]
"""Is told what was found: of each model on the test set, and of all of them on nodes' own data."""


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
        return Metric("none", None, None, higher_is_better=True)


@dataclass(eq=False)
class ModelEvaluation(Evaluation):
    _spec: EvaluationSpec
    _task: Outline
    _models: LazyModels | ModelsAhead
    _runtime: Runtime
    _recorder: Recorder

    def __post_init__(self) -> None:
        super().__init__()
        self._of_nodes = False
        """Whether it measures models of nodes, each for itself."""
        self._newest: float | None = None
        """The metric when it was last measured."""
        self._best: tuple[Metrics, Any, int] | None = None
        """With the model, and its round."""
        self._own_columns: dict[str, float | None] = {}
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
        best = self._best[0].value if self._best else None
        name = f"own_{self._task.metric}" if self._spec.on == "own" else self._task.metric
        return Metric(name, best, self._newest, self._task.higher_is_better, self._of_nodes)

    def take_home(self) -> dict[str, Taken]:
        if self._best is None or self._newest is None:
            return {}
        best, model, number = self._best
        final = Taken(*self._final(), self._newest)
        return {FINAL_MODEL: final, BEST_MODEL: Taken(model, number, best.value)}

    def weights_hash(self) -> str:
        return self._models.weights_hash(self._final()[0])

    def _final(self) -> tuple[Any, int]:
        """What was measured last, and its round; of models of nodes, the mean."""
        raise NotImplementedError

    def _now(self) -> Moment:
        accounts = self._runtime.accounts
        sent_bytes, training_s = sum(accounts.sent_bytes), sum(accounts.training_s)
        return Moment(self._runtime.kernel.now, self.round, sent_bytes, training_s)

    def _measure(self, of_nodes: Mapping[int, Any], models: Sequence[Any], then: Then) -> None:
        """Let nodes measure their models on their own data and measure `models` on the test set, whichever
        the spec wants."""
        on = self._spec.on
        nodes = [node for node in of_nodes if on != "test" and self._task.held[node]]
        training = {node for node in nodes if self._runtime.is_training(node)}
        own = [(of_nodes[node], node) for node in nodes] or None
        self._models.measure(then, [] if on == "own" else models, own, training)

    def _keep_own(self, tested: list[Metrics], own: Metrics | None) -> list[Metrics]:
        """What decides of what was found; what nodes found beside that has columns of its own."""
        if self._spec.on == "own":
            assert own is not None, "somebody was asked"
            return [own]
        if own is not None:
            self._own_columns = {own.name: own.value, **own.others}
        elif self._spec.on == "both":  # nobody who was asked holds anything back
            name = f"own_{self._task.metric}"
            self._own_columns = dict.fromkeys((name, f"{name}_p10", f"{name}_p90", "own_loss"))
        return tested

    def _record(self, at: Moment, models: Sequence[Any], found: Sequence[Metrics], **columns: Any) -> None:
        """Keep the mean of what was found, and the best."""
        self._newest = fmean(metrics.value for metrics in found)
        for model, metrics in zip(models, found, strict=True):
            # The first may be no number: a model that one begins with, by a measure that has none for it.
            if self._best is None or math.isnan(self._best[0].score) or metrics.score > self._best[0].score:
                self._best = metrics, model, at.round
        columns |= self._own_columns
        self._recorder.record(
            "evaluations",
            simulated_s=at.simulated_s,
            round=at.round,
            **_columns(found),
            **columns,
            sent_bytes=at.sent_bytes,
            training_s=at.training_s,
        )


class GlobalModelEvaluation(ModelEvaluation):
    """Measures the model that a round ends with, every so many rounds; or what there is, every so many
    hours."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._model = self._measured = self._models.initial()
        self._asked: Any = None
        self._number = self._asked_round = self._measured_round = 0

    @property
    def next_s(self) -> float:
        return math.inf if self._spec.every_rounds else super().next_s

    def on_fact(self, node: int, fact: Fact) -> None:
        # Where views differ a round can have two aggregators; the first result stands for the round.
        if isinstance(fact, AggregationCompleted) and fact.round > self._number:
            self._number, self.round, self._model = fact.round, fact.ordinal, fact.model
            every = self._spec.every_rounds
            # After a fork the newest model may be behind fewer rounds than one that is forgotten.
            if every and fact.ordinal // every != self._asked_round // every:
                self.look()
                if self.tell is not None:
                    self._tell(node, fact, self._found)
        elif isinstance(fact, EndClaimed) and self.tell is not None:
            self._of_everybody(fact.model, lambda tested, own: self._tell(node, fact, *(tested or (own,))))

    def _tell(self, node: int, of: AggregationCompleted | EndClaimed, found: Any) -> None:
        assert self.tell is not None
        self.tell(node, Measured(of.round, of.ordinal, of.model, found.score, found.by_name))

    def look(self) -> None:
        if not self._spec.every_rounds and self._is_seen():
            return
        model, at = self._model, self._now()
        if self._asked is not model:
            self._asked, self._asked_round = model, at.round
            self._of_everybody(model, partial(self._on_found, at, model))
        elif not self._spec.every_rounds:  # on a grid every moment counts, though nothing changed
            self._models.measure(lambda *_: self._record(at, [self._measured], [self._found]), [], None, ())

    def _of_everybody(self, model: Any, then: Then) -> None:
        self._measure(dict.fromkeys(range(len(self._task.samples)), model), [model], then)

    def _on_found(self, at: Moment, model: Any, tested: list[Metrics], own: Metrics | None) -> None:
        [self._found] = self._keep_own(tested, own)
        self._measured, self._measured_round = model, at.round
        self._record(at, [model], [self._found])

    def _final(self) -> tuple[Any, int]:
        return self._measured, self._measured_round


class NodeModelsEvaluation(ModelEvaluation):
    """Measures the models of nodes, every so many hours."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._of_nodes = not self._task.average_only
        self._current: dict[int, tuple[int, Any]] = {}
        """By node, its own model and the round that it is of, the newest last; not the initial one."""
        self.active: int | None = None
        """Where only so many nodes are active at a time, those that were so last are judged."""
        self._measured: list[Any] = [self._models.initial()]

    def on_fact(self, node: int, fact: Fact) -> None:
        if isinstance(fact, ModelUpdated):
            self._current.pop(node, None)
            self._current[node] = (fact.round, fact.model)
            self.round = max(self.round, fact.round)

    def look(self) -> None:
        if self._is_seen() or not (nodes := self._chosen()):
            return
        current = {node: self._current.get(node, (0, self._models.initial())) for node in nodes}
        rounds = {node: number for node, (number, _) in current.items()}
        models = [model for _, model in current.values()]
        is_each = self._of_nodes and self._spec.on != "own"
        judged = models if is_each else [self._average(models)]
        at = self._now()

        def then(tested: list[Metrics], own: Metrics | None) -> None:
            self._measured = models
            found = self._keep_own(tested, own)
            if self._spec.on == "own":
                self._record(at, judged, found, nodes=len(rounds))
                return
            if self._of_nodes:
                for (node, number), metrics in zip(rounds.items(), found, strict=True):
                    columns = {"simulated_s": at.simulated_s, "node": node, "round": number}
                    self._recorder.record("node_evaluations", **columns, **_columns([metrics]))
            values = [metrics.value for metrics in found]
            name, best = found[0].name, max if found[0].higher_is_better else min
            spread = {f"{name}_std": pstdev(values), f"{name}_best": best(values)}
            self._record(at, judged, found, **spread, nodes=len(rounds))

        self._measure(dict(zip(nodes, models, strict=True)), judged, then)

    def _final(self) -> tuple[Any, int]:
        return self._average(self._measured), self.round

    def _chosen(self) -> list[int]:
        """The nodes to look at: all that are online, or a share of them drawn by seed; if they alone measure,
        none where none of these holds anything back."""
        online = [node for node in range(len(self._task.samples)) if self._runtime.online[node]]
        if self.active is not None and self._current:
            online = sorted([node for node in self._current if self._runtime.online[node]][-self.active :])
        share = self._spec.node_share
        if share < 1 and online:
            rng = stream(self._task.seed, "evaluation", self._looks)
            online = sorted(rng.sample(online, max(1, round(share * len(online)))))
        can_measure = self._spec.on != "own" or any(self._task.held[node] for node in online)
        return online if can_measure else []

    def _average(self, models: list[Any]) -> Any:
        return self._models.merge(models, [1] * len(models))


def _columns(found: Sequence[Metrics]) -> dict[str, float]:
    """The columns of a row: each metric, as its mean over all that were measured."""
    rows = [metrics.by_name for metrics in found]
    return {name: fmean(row[name] for row in rows) for name in rows[0]}
