"""Lazy models: what the simulator passes around is an expression, computed only when looked at.

When things happen in virtual time never depends on weights. So `train` and `mean` merely note what
was asked for; `evaluate`, `weights` and `weights_hash` force an expression, which computes its
ancestors in waves of trainings that do not depend on each other. A model nobody ever looks at, nor
anything made from it, is never trained.

Memory: an expression that has its value lets go of what it was made from, and Python's reference
counts free every expression that neither the simulator nor a younger expression holds. What is still
held goes to disk past a budget (see `spill`).
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from plexus.errors import PlexusError
from plexus.learn import aggregation, layout
from plexus.learn.engines import Engine, LocalTraining
from plexus.learn.spill import DEFAULT_BUDGET_BYTES, Kept, VectorStore
from plexus.learn.task import Metrics, Task
from plexus.learn.trainer import one_thread

UNCHECKED = 1000
"""Trainings whose results are looked at together: looking makes a GPU wait."""
FILE_BYTES = 256 << 20
"""Models that are saved in one file: so much is in memory at once, beside the budget."""


class Expression:
    """A model that may or may not have been computed yet."""

    __slots__ = ("__weakref__", "metrics", "number", "parents", "value")

    number: int
    """Its place in the order in which the models of a run were asked for."""

    def __init__(self, parents: tuple[Expression, ...]) -> None:
        self.parents = parents
        self.value: Kept | None = None
        self.metrics: Metrics | None = None

    def settle(self, value: Kept) -> None:
        """Take the computed weights and let go of what they were made from."""
        self.value = value
        self.parents = ()

    def vector(self) -> Tensor:
        """The weights, which must have been computed."""
        assert self.value is not None, "forced before it is read"
        return self.value.get()


class TrainedModel(Expression):
    """The base model after one local training."""

    __slots__ = ("node", "round")

    def __init__(self, base: Expression, node: int, round: int) -> None:
        super().__init__((base,))
        self.node = node
        self.round = round


class MeanModel(Expression):
    """Models combined: by the aggregation rule, told the examples behind each, or merged by weights."""

    __slots__ = ("merged", "weights")

    def __init__(self, parts: tuple[Expression, ...], weights: tuple[Any, ...], merged: bool = False) -> None:
        if len(parts) != len(weights) or not parts:
            raise ValueError(f"{len(parts)} models and {len(weights)} weights to merge")
        super().__init__(parts)
        self.weights = weights
        self.merged = merged


@dataclass
class Wave:
    """Trainings that can run at once, and the means that can be taken right after them."""

    trainings: list[TrainedModel]
    means: list[MeanModel]


def in_order(wanted: Sequence[Expression]) -> list[Expression]:
    """All that `wanted` is made from and that has no value yet, parents before children."""
    done: dict[Expression, None] = {}
    # A stack of our own: chains grow by two expressions a round, beyond Python's recursion limit.
    stack = list(reversed(wanted))
    while stack:
        expression = stack[-1]
        if expression.value is not None or expression in done:
            stack.pop()
            continue
        missing = [p for p in expression.parents if p.value is None and p not in done]
        if missing:
            stack.extend(reversed(missing))
        else:
            done[stack.pop()] = None
    return list(done)


def waves(wanted: Sequence[Expression]) -> list[Wave]:
    """All that must be computed for `wanted`, each wave needing only the ones before it."""
    level: dict[Expression, int] = {}
    found: list[Wave] = []
    for expression in in_order(wanted):
        after = max((level[p] for p in expression.parents if p in level), default=-1)
        level[expression] = max(after, 0) if isinstance(expression, MeanModel) else after + 1
        if len(found) <= level[expression]:
            found.append(Wave([], []))
        wave = found[level[expression]]
        if isinstance(expression, MeanModel):
            wave.means.append(expression)
        else:
            assert isinstance(expression, TrainedModel), f"{expression} is computed by nobody"
            wave.trainings.append(expression)
    return found


@dataclass
class Costs:
    """What learning took so far. Times are of this machine, and in no result that must repeat."""

    asked: int = 0
    """Local trainings the protocol asked for."""
    computed: int = 0
    """Local trainings that something evaluated needed."""
    training_s: float = 0.0
    evaluation_s: float = 0.0
    workers_cpu_s: float = 0.0
    """Processor time of worker processes."""


class LazyModels:
    """The models of one run. `budget_bytes` bounds the memory of those held, not of a wave's work."""

    def __init__(
        self,
        task: Task,
        engine: Engine,
        aggregation: aggregation.Aggregation = aggregation.mean,
        budget_bytes: int = DEFAULT_BUDGET_BYTES,
        spill_to: Path | None = None,
    ) -> None:
        self.task = task
        self.engine = engine
        self._aggregate = aggregation
        self.store = VectorStore(budget_bytes, spill_to)
        self.costs = Costs()
        self._unchecked: list[tuple[int, int, Tensor]] = []
        self._made = 0
        self.alive: weakref.WeakValueDictionary[int, Expression] = weakref.WeakValueDictionary()
        """All models that somebody holds, by number."""
        self.evaluated: list[Metrics] = []
        """Every evaluation made, in order."""
        self._known: deque[Metrics] = deque()
        self._merged: tuple[Any, Expression] | None = None
        """The newest merge, and of what: where everybody hears from everybody, all ask for the same."""
        self._initial = Expression(())
        self._initial.number = -1
        self._initial.settle(self.store.keep(engine.initial))
        if not torch.isfinite(engine.initial).all():
            raise PlexusError(f"task {task.name}: the initial model has weights that are not finite")
        tensors = engine.layout.tensors(engine.initial)
        self.model_bytes = len(layout.encode(tensors))
        self.initial_hash = layout.weights_hash(tensors)
        """Names task, seed and model."""

    def initial(self) -> Expression:
        """The model everybody starts from."""
        return self._initial

    def train(self, model: Expression, node: int, round: int) -> Expression:
        """`model` after a local training by `node`, to be computed if it is ever needed."""
        self.costs.asked += 1
        return self._new(TrainedModel(model, node, round))

    def mean(
        self,
        models: Sequence[Expression],
        samples: Sequence[int],
        changes: Sequence[Any] = (),
        change_samples: Sequence[int] = (),
    ) -> Expression:
        """The aggregate of `models`, `samples[i]` examples being behind `models[i]`. `changes` are added to
        it: of each that has `trained` a `base`, the difference."""
        if not (changes and models):
            return self._new(MeanModel(tuple(models), tuple(samples)))
        weights, late = aggregation.with_changes(self._aggregate, samples, change_samples)
        parts = list(models)
        for change, weight in zip(changes, late, strict=True):
            parts += change.trained, change.base
            weights += weight, -weight
        return self._new(MeanModel(tuple(parts), tuple(weights), merged=True))

    def merge(self, models: Sequence[Expression], weights: Sequence[float]) -> Expression:
        """The mean in which `models[i]` counts `weights[i]`, whatever the aggregation rule."""
        parts = (tuple(model.number for model in models), tuple(weights))
        if self._merged is None or parts != self._merged[0]:
            self._merged = (parts, self._new(MeanModel(tuple(models), tuple(weights), merged=True)))
        return self._merged[1]

    def samples(self, node: int) -> int:
        """How many examples are behind a local training of `node`."""
        return self.task.samples(node)

    def evaluate(self, model: Expression) -> Metrics:
        """The metrics of `model` on the test set; computes it if need be."""
        return self.evaluate_all([model])[0]

    def evaluate_all(self, models: Sequence[Expression]) -> list[Metrics]:
        """The metrics of each model: forced together, so that their trainings share waves."""
        fresh = list(dict.fromkeys(model for model in models if model.metrics is None))
        if self._known:
            for model in fresh:
                model.metrics = self._known.popleft()
        else:
            self._force(fresh)
            started = time.perf_counter()
            for model in fresh:
                # One at a time: they need not all fit into memory.
                model.metrics = self.engine.evaluate([model.vector()])[0]
                self.evaluated.append(model.metrics)
            self.costs.evaluation_s += time.perf_counter() - started
            self.costs.workers_cpu_s = self.engine.workers_cpu_s
        return [model.metrics for model in models if model.metrics is not None]

    def weights(self, model: Expression) -> dict[str, Tensor]:
        """The named tensors of `model` on the CPU, the caller's own; computes it if need be."""
        self._force([model])
        tensors = self.engine.layout.tensors(model.vector())
        return {name: tensor.cpu().clone() for name, tensor in tensors.items()}

    def weights_hash(self, model: Expression) -> str:
        """Names the weights of `model`: equal weights, equal hash."""
        return layout.weights_hash(self.weights(model))

    def replay(self, known: Sequence[Metrics]) -> None:
        """Answer the next evaluations with what they found in an earlier run of the same session."""
        self._known = deque(known)
        self.evaluated = list(known)

    def save(self, folder: Path) -> None:
        """Write all models that somebody holds and that are computed; nothing is computed for this."""
        held = [(number, model) for number, model in self.alive.items() if model.value is not None]
        per_file = max(1, FILE_BYTES // self._initial.vector().nbytes)
        for start in range(0, len(held), per_file):
            vectors = {str(number): model.vector() for number, model in held[start : start + per_file]}
            (folder / f"models-{start}.safetensors").write_bytes(layout.encode(vectors))

    def restore(self, folder: Path, computed: int) -> None:
        """Put what was saved in place: the same models have been asked for again, and none was computed."""
        for path in folder.glob("*.safetensors"):
            for number, vector in safetensors.torch.load(path.read_bytes()).items():
                if int(number) in self.alive:
                    # Each its own memory: one model that is kept must not keep its whole file.
                    own = vector.to(self.engine.device, copy=True)
                    self.alive[int(number)].settle(self.store.keep(own))
        self.costs.computed = computed

    def close(self) -> None:
        """Give back workers and files."""
        self.engine.close()
        self.store.close()

    def _new(self, expression: Expression) -> Expression:
        expression.number = self._made
        self.alive[self._made] = expression
        self._made += 1
        return expression

    def _force(self, wanted: Sequence[Expression]) -> None:
        started = time.perf_counter()
        pending = waves(wanted)[::-1]
        # Means too: threads that a short sum wakes up keep spinning, at several times its cost.
        with one_thread():
            while pending:
                # Popped, so that nothing but its heirs keeps a model of this wave in memory.
                wave = pending.pop()
                self._train_wave(wave.trainings)
                for mean in wave.means:
                    rule = aggregation.weighted_mean if mean.merged else self._aggregate
                    vector = rule([part.vector() for part in mean.parents], mean.weights)
                    mean.settle(self.store.keep(vector))
            self._check_finite()
        self.costs.training_s += time.perf_counter() - started
        self.costs.workers_cpu_s = self.engine.workers_cpu_s

    def _train_wave(self, trainings: list[TrainedModel]) -> None:
        # A wave may be wider than memory: at most half the budget for what goes in and what comes out.
        at_once = max(1, self.store.budget_bytes // (4 * self._initial.vector().nbytes))
        for start in range(0, len(trainings), at_once):
            some = trainings[start : start + at_once]
            jobs = [LocalTraining(t.parents[0].vector(), t.node, t.round) for t in some]
            for trained, vector in zip(some, self.engine.train(jobs), strict=True):
                self._unchecked.append((trained.node, trained.round, vector.sum()))
                trained.settle(self.store.keep(vector))
            self.costs.computed += len(some)
        if len(self._unchecked) > UNCHECKED:
            self._check_finite()

    def _check_finite(self) -> None:
        if not self._unchecked:
            return
        # A sum is not finite if any weight is not; all of them are read from the device at once.
        finite = torch.isfinite(torch.stack([total for _, _, total in self._unchecked])).tolist()
        checked, self._unchecked = self._unchecked, []
        if not all(finite):
            node, round, _ = checked[finite.index(False)]
            sgd = self.task.sgd
            raise PlexusError(
                f"task {self.task.name}: the model of node {node} after round {round} has weights"
                " that are not finite: training diverged at"
                f" learning rate {sgd.learning_rate:g}, momentum {sgd.momentum:g}"
            )
