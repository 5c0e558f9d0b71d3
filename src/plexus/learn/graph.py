"""Lazy models: what the simulator passes around is an expression, computed only when looked at.

When things happen in virtual time never depends on weights. So `train` and `mean` merely note what
was asked for; `evaluate`, `weights` and `weights_hash` force an expression, which computes its
ancestors in waves of trainings that do not depend on each other. A model nobody ever looks at, nor
anything made from it, is never trained.

Memory: an expression that has its value lets go of what it was made from, and Python's reference
counts free every expression that neither the simulator nor a younger expression holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from plexus.errors import PlexusError
from plexus.learn import aggregation, models
from plexus.learn.engines.api import Engine, Job
from plexus.learn.task import Metrics, Task


class Expression:
    """A model that may or may not have been computed yet."""

    __slots__ = ("metrics", "parents", "value")

    def __init__(self, parents: tuple[Expression, ...]) -> None:
        self.parents = parents
        self.value: Tensor | None = None
        self.metrics: Metrics | None = None

    def settle(self, value: Tensor) -> None:
        """Take the computed weights and let go of what they were made from."""
        self.value = value
        self.parents = ()


class Initial(Expression):
    """The model everybody starts from."""

    __slots__ = ()


class Trained(Expression):
    """The base model after one local training."""

    __slots__ = ("node", "round")

    def __init__(self, base: Expression, node: int, round: int) -> None:
        super().__init__((base,))
        self.node = node
        self.round = round


class Mean(Expression):
    """Models combined by the aggregation rule."""

    __slots__ = ("samples",)

    def __init__(self, parts: tuple[Expression, ...], samples: tuple[int, ...]) -> None:
        super().__init__(parts)
        self.samples = samples


@dataclass
class Counters:
    """How many local trainings the protocol asked for, and how many an evaluation needed."""

    asked: int = 0
    computed: int = 0

    @property
    def spared(self) -> int:
        """Asked for and not computed: never needed, or not needed yet."""
        return self.asked - self.computed


class LazyModels:
    """The models of one run."""

    def __init__(
        self,
        task: Task,
        engine: Engine,
        aggregation: aggregation.Aggregation = aggregation.mean,
    ) -> None:
        self._task = task
        self._engine = engine
        self._aggregate = aggregation
        self._initial = Initial(())
        self._initial.settle(engine.initial)
        self._check_finite([engine.initial], ["everybody at the start"])
        self.counters = Counters()
        self.model_bytes = models.model_bytes(engine.layout, engine.initial)

    @property
    def asked(self) -> int:
        return self.counters.asked

    @property
    def computed(self) -> int:
        return self.counters.computed

    @property
    def spared(self) -> int:
        return self.counters.spared

    def initial(self) -> Expression:
        """The model everybody starts from."""
        return self._initial

    def train(self, model: Expression, node: int, round: int) -> Expression:
        """`model` after a local training by `node`, to be computed if it is ever needed."""
        self.counters.asked += 1
        return Trained(model, node, round)

    def mean(self, models: Sequence[Expression], samples: Sequence[int]) -> Expression:
        """The aggregate of `models`, `samples[i]` examples being behind `models[i]`."""
        if len(models) != len(samples) or not models:
            raise ValueError(f"{len(models)} models and {len(samples)} sample counts to aggregate")
        return Mean(tuple(models), tuple(samples))

    def samples(self, node: int) -> int:
        """How many examples are behind a local training of `node`."""
        return self._task.samples(node)

    def evaluate(self, model: Expression) -> Metrics:
        """The metrics of `model` on the test set; computes it if need be."""
        return self.evaluate_all([model])[0]

    def evaluate_all(self, models: Sequence[Expression]) -> list[Metrics]:
        """The metrics of each model: forced together, so that their trainings share waves."""
        fresh = list(dict.fromkeys(model for model in models if model.metrics is None))
        vectors = self._force(fresh)
        for model, metrics in zip(fresh, self._engine.evaluate(vectors), strict=True):
            model.metrics = metrics
        return [model.metrics for model in models if model.metrics is not None]

    def weights(self, model: Expression) -> dict[str, Tensor]:
        """The named tensors of `model` on the CPU, the caller's own; computes it if need be."""
        (vector,) = self._force([model])
        tensors = self._engine.layout.tensors(vector)
        return {name: tensor.cpu().clone() for name, tensor in tensors.items()}

    def weights_hash(self, model: Expression) -> str:
        """Names the weights of `model`: equal weights, equal hash."""
        return models.weights_hash(self.weights(model))

    def _force(self, wanted: Sequence[Expression]) -> list[Tensor]:
        pending = waves(wanted)
        pending.reverse()
        while pending:
            # Popped, so that nothing but its heirs keeps a model of this wave in memory.
            wave = pending.pop()
            self._train_wave(wave.trainings)
            for mean in wave.means:
                vectors = [_value(part) for part in mean.parents]
                mean.settle(self._aggregate(vectors, mean.samples))
        return [_value(model) for model in wanted]

    def _train_wave(self, trainings: list[Trained]) -> None:
        if not trainings:
            return
        jobs = [Job(_value(t.parents[0]), t.node, t.round) for t in trainings]
        vectors = self._engine.train(jobs)
        self._check_finite(vectors, [f"node {t.node} after round {t.round}" for t in trainings])
        for trained, vector in zip(trainings, vectors, strict=True):
            trained.settle(vector)
        self.counters.computed += len(trainings)

    def _check_finite(self, vectors: Sequence[Tensor], owners: Sequence[str]) -> None:
        # A sum is not finite if any weight is not; one look at the device for all of them.
        finite = torch.isfinite(torch.stack([vector.sum() for vector in vectors])).tolist()
        if not all(finite):
            sgd = self._task.sgd
            raise PlexusError(
                f"task {self._task.name}: the model of {owners[finite.index(False)]} has weights"
                " that are not finite: training diverged at"
                f" learning rate {sgd.learning_rate:g}, momentum {sgd.momentum:g}"
            )


@dataclass
class Wave:
    """Trainings that can run at once, and the means that can be taken right after them."""

    trainings: list[Trained]
    means: list[Mean]


def waves(wanted: Sequence[Expression]) -> list[Wave]:
    """All that must be computed for `wanted`, each wave needing only the ones before it."""
    level: dict[Expression, int] = {}
    found: list[Wave] = []
    # A stack of our own: chains grow by two expressions a round, beyond Python's recursion limit.
    stack = list(reversed(wanted))
    while stack:
        expression = stack[-1]
        if expression.value is not None or expression in level:
            stack.pop()
            continue
        missing = [p for p in expression.parents if p.value is None and p not in level]
        if missing:
            stack.extend(reversed(missing))
            continue
        stack.pop()
        after = max((level[p] for p in expression.parents if p in level), default=-1)
        level[expression] = max(after, 0) if isinstance(expression, Mean) else after + 1
        while len(found) <= level[expression]:
            found.append(Wave([], []))
        wave = found[level[expression]]
        if isinstance(expression, Mean):
            wave.means.append(expression)
        else:
            assert isinstance(expression, Trained), f"{expression} is computed by nobody"
            wave.trainings.append(expression)
    return found


def _value(expression: Expression) -> Tensor:
    assert expression.value is not None, "forced before it is read"
    return expression.value
