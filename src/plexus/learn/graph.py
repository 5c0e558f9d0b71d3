"""Lazy models: what the simulator passes around is an expression, computed only when looked at.

When things happen in virtual time never depends on weights. So `train` and `mean` merely note what
was asked for; `evaluate`, `weights` and `weights_hash` force an expression, which computes its
ancestors in waves of trainings that do not depend on each other. A model nobody ever looks at, nor
anything made from it, is never trained.

Memory: an expression that has its value lets go of what it was made from, and Python's reference
counts free every expression that neither the simulator nor a younger expression holds. What is still
held goes to disk past a budget (see `expressions`).
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from plexus.errors import PlexusError
from plexus.learn import aggregation, layout
from plexus.learn.engines import Engine, LocalTraining
from plexus.learn.expressions import Expression, MeanModel, OwnPart, TrainedModel, VectorStore, waves
from plexus.learn.rules import MeanRule, Rule
from plexus.learn.saved import about, save_model
from plexus.learn.task import Task
from plexus.learn.trainer import one_thread, spread_over_nodes
from plexus.rng import array_stream
from plexus.runs.encoding import Wire
from plexus.runs.result import Costs, Metrics

UNCHECKED = 1000
"""Trainings whose results are looked at together: looking makes a GPU wait."""
MEAN = MeanRule()
Owned = Sequence[tuple[Expression, int]]
"""Models, each with the node by whose data it is measured."""
FILE_BYTES = 256 << 20
"""Models that are saved in one file: so much is in memory at once, beside the budget."""


class LazyModels:
    """The models of one run. `budget_bytes` bounds the memory of those held, not of a wave's work."""

    def __init__(
        self, task: Task, engine: Engine, rule: Rule = MEAN, budget_bytes: int = 2**31, wire: Wire = "float32"
    ) -> None:
        self.task = task
        self.engine = engine
        self._rule = rule
        self.store = VectorStore(budget_bytes)
        self.costs = Costs()
        self._unchecked: list[tuple[int, int, Tensor]] = []
        self._made = 0
        self.alive: weakref.WeakValueDictionary[int, Expression] = weakref.WeakValueDictionary()
        """All models that somebody holds, by number."""
        self.evaluated: list[Metrics] = []
        self._known: deque[Metrics] = deque()
        self._merged: tuple[Any, Expression] | None = None
        """The newest merge, and of what: where everybody hears from everybody, all ask for the same."""
        self._own: dict[int, OwnPart] = {}
        """By node, what it keeps to itself."""
        self._initial = Expression(())
        self._initial.number = -1
        shared = engine.layout.shared_size
        self._shared, self._own_initial = engine.initial[:shared], engine.initial[shared:]
        self._has_own = len(self._own_initial) > 0
        if not torch.isfinite(engine.initial).all():
            raise PlexusError(f"task {task.name}: the initial model has weights that are not finite")
        self.wire = wire
        self._packing = layout.Packing(engine.layout, wire, layout.weights_hash(engine.frozen))
        self._initial.settle(self._rounded(self._shared, self._initial.number), self.store)
        rng = array_stream(task.seed, "wire", self._initial.number)
        self.model_bytes = len(self._packing.encode(self._shared, rng))
        self.initial_hash = layout.weights_hash({**engine.layout.tensors(engine.initial), **engine.frozen})
        """Names task, seed and model."""

    def initial(self) -> Expression:
        return self._initial

    def train(self, model: Expression, node: int, round: int) -> Expression:
        """`model` after a local training by `node`, to be computed if it is ever needed."""
        self.costs.asked += 1
        before = self._own.get(node)
        trained = TrainedModel(model, node, round, before)
        if self._has_own:
            if before is not None:
                before.before = None  # that training is finished, so nobody goes back behind it
            self._own[node] = OwnPart(trained, before)
            # Numbers of their own: others count models, and these are none.
            self._own[node].number = -2 - self._made
            self.alive[self._own[node].number] = self._own[node]
        return self._new(trained)

    def interrupted(self, node: int) -> None:
        """The training that `node` began last does not come to its end: it keeps what it had."""
        last = self._own.pop(node, None)
        if last is not None and last.before is not None:
            self._own[node] = last.before

    def mean(
        self,
        models: Sequence[Expression],
        samples: Sequence[int],
        changes: Sequence[Any] = (),
        change_samples: Sequence[int] = (),
    ) -> Expression:
        """The aggregate of `models`, `samples[i]` examples being behind `models[i]`. `changes` are added to
        it: of each that has `trained` a `base`, the difference."""
        parts = (*models, *(model for change in changes for model in (change.trained, change.base)))
        if not (changes and models) or type(self._rule) not in aggregation.MEANS:
            return self._new(MeanModel(parts, tuple(samples), late=len(changes)))
        weights, late = aggregation.with_changes(self._rule, samples, change_samples)
        weights += (sign * weight for weight in late for sign in (1, -1))
        return self._new(MeanModel(parts, tuple(weights), merged=True, late=len(changes)))

    def merge(self, models: Sequence[Expression], weights: Sequence[float]) -> Expression:
        """The mean in which `models[i]` counts `weights[i]`, whatever the aggregation rule."""
        parts = (tuple(model.number for model in models), tuple(weights))
        if self._merged is None or parts != self._merged[0]:
            self._merged = (parts, self._new(MeanModel(tuple(models), tuple(weights), merged=True)))
        return self._merged[1]

    def samples(self, node: int) -> int:
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
                model.metrics = self.engine.evaluate(self._whole(model))
                self.evaluated.append(model.metrics)
            self.costs.evaluation_s += time.perf_counter() - started
            self.costs.workers_cpu_s = self.engine.workers_cpu_s
        return [model.metrics for model in models if model.metrics is not None]

    def evaluate_own(self, models: Owned, training: Container[int] = ()) -> Metrics:
        """How good models are for nodes: on what each holds back of its data, with the part that is its own.

        `training` are the nodes whose newest training is not finished: what it leaves them does not count.
        """
        if self._known:
            return self._known.popleft()
        own = {node: part.before if node in training else part for node, part in self._own.items()}
        found = [(model, node, own.get(node)) for model, node in models]
        self._force([each for model, _, own in found for each in (model, own) if each is not None])
        started = time.perf_counter()
        measured = [self.engine.evaluate_own(self._whole(model, own), node) for model, node, own in found]
        self.costs.evaluation_s += time.perf_counter() - started
        self.evaluated.append(spread_over_nodes(measured))
        return self.evaluated[-1]

    def measured(
        self, models: Sequence[Expression], own: Owned | None, training: Container[int]
    ) -> tuple[list[Metrics], Metrics | None]:
        """How good `models` are on the test set, and those in `own` for nodes, if it is given."""
        found = None if own is None else self.evaluate_own(own, training)
        return self.evaluate_all(models), found

    def measure(self, then: Callable[[list[Metrics], Metrics | None], None], *what: Any) -> None:
        """Tell `then` what is `measured`."""
        then(*self.measured(*what))

    def hear(self, wait: bool = False) -> None:
        """Nothing is outstanding: whoever asks is told at once. See `experiment.ahead`."""

    def drop(self) -> None:
        """Nothing is outstanding, so there is nothing to forget."""

    def weights(self, model: Expression) -> dict[str, Tensor]:
        """The named tensors of `model` on the CPU, the caller's own; computes it if need be."""
        self._force([model])
        tensors = {**self.engine.layout.tensors(self._whole(model)), **self.engine.frozen}
        return {name: tensor.cpu().clone() for name, tensor in tensors.items()}

    def _whole(self, model: Expression, own: Expression | None = None) -> Tensor:
        """The vector of a model with the part that a node keeps to itself, or with the initial one."""
        if not self._has_own:
            return model.vector()
        return torch.cat([model.vector(), self._own_initial if own is None else own.vector()])

    def weights_hash(self, model: Expression) -> str:
        return layout.weights_hash(self.weights(model))

    def leave(self, model: Expression, path: Path, facts: Mapping[str, str]) -> None:
        """Write `model` into a file to take home, which says these `facts` of it as well."""
        save_model(path, self.weights(model), {**about(self.task), **facts})

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
                    self.alive[int(number)].settle(own, self.store)
        self.costs.computed = computed

    def close(self) -> None:
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
                    mean.settle(self._rounded(self._combined(mean), mean.number), self.store)
            self._check_finite()
        self.costs.training_s += time.perf_counter() - started
        self.costs.workers_cpu_s = self.engine.workers_cpu_s

    def _combined(self, mean: MeanModel) -> Tensor:
        vectors = [part.vector() for part in mean.parents]
        late = range(len(vectors) - 2 * mean.late, len(vectors), 2)
        means = aggregation.weighted_mean if mean.merged else aggregation.MEANS.get(type(self._rule))
        if means is None:
            changes = [self._change(mean.parents[at], *vectors[at : at + 2]) for at in late]
            return aggregation.robust(self._rule, self.engine.layout, vectors[: late.start], changes)
        if self.wire != "float32":
            for at in late:
                vectors[at] = vectors[at + 1] + self._change(mean.parents[at], *vectors[at : at + 2])
        return means(vectors, mean.weights)

    def _change(self, late: Expression, trained: Tensor, base: Tensor) -> Tensor:
        """What the training changed that came late: the difference was sent, and rounded for that."""
        return self._rounded(trained - base, "change", late.number)

    def _train_wave(self, trainings: list[TrainedModel]) -> None:
        # A wave may be wider than memory: at most half the budget for what goes in and what comes out.
        at_once = max(1, self.store.budget_bytes // (4 * self._initial.vector().nbytes))
        for start in range(0, len(trainings), at_once):
            some = trainings[start : start + at_once]
            jobs = [LocalTraining(self._whole(*t.parents), t.node, t.round) for t in some]
            for trained, vector in zip(some, self.engine.train(jobs), strict=True):
                self._unchecked.append((trained.node, trained.round, vector.sum()))
                self._settle(trained, vector)
            self.costs.computed += len(some)
        if len(self._unchecked) > UNCHECKED:
            self._check_finite()

    def _settle(self, trained: TrainedModel, vector: Tensor) -> None:
        own = None if trained.kept is None else trained.kept()
        if self._has_own:
            # Each its own memory: what is kept of one must not keep all of it.
            vector, rest = vector[: len(self._shared)].clone(), vector[len(self._shared) :].clone()
            if own is not None:
                own.settle(rest, self.store)
        trained.settle(self._rounded(vector, trained.number), self.store)

    def _rounded(self, vector: Tensor, *which: str | int) -> Tensor:
        """As it is sent. A stream of its own decides whether numbers go up or down, where any do."""
        if self.wire == "float32":
            return vector
        return self._packing.rounded(vector, array_stream(self.task.seed, "wire", *which))

    def _check_finite(self) -> None:
        if not self._unchecked:
            return
        # A sum is not finite if any weight is not; all of them are read from the device at once.
        finite = torch.isfinite(torch.stack([total for _, _, total in self._unchecked])).tolist()
        checked, self._unchecked = self._unchecked, []
        if not all(finite):
            node, round, _ = checked[finite.index(False)]
            used = self.task.optimiser
            how = f" at learning rate {used.learning_rate:g}, momentum {used.momentum:g}" if used else ""
            whose = f"task {self.task.name}: the model of node {node} after round {round}"
            raise PlexusError(f"{whose} has weights that are not finite: training diverged{how}")
