"""One local training and one evaluation on one device: what a single worker does, and the engine `inline`.

Gradients are applied to the parameters directly (see `optimiser`), without an object of `torch.optim`: five
steps on a small model are over before one is set up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from plexus.errors import TaskError, blaming
from plexus.learn.engines import LocalTraining
from plexus.learn.layout import Layout, named_tensors, weights_hash
from plexus.learn.optimiser import Descent
from plexus.learn.task import Batch, Draw, Examples, Inputs, Task, batch_of, called, each_leaf, taken
from plexus.runs.result import Metrics

CHANNELS_LAST = frozenset({nn.Conv2d, nn.MaxPool2d, nn.GroupNorm, nn.ReLU, nn.Flatten, nn.Linear})
"""All the same to them is how images lie in memory. Modules of one's own may look at them by `view`."""
EVALUATION_BATCH = 500
"""Examples per forward pass of an evaluation; decides the result's last bits, hence fixed."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread: results must not depend on how many cores the machine has."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class DeviceData:
    """The examples of a task in the memory of one device."""

    def __init__(self, task: Task, device: torch.device) -> None:
        self._task = task
        self._device = device
        self._train = task.train.to(device)
        self._test = task.test.to(device)

    def batches(self, draw: Draw) -> Iterator[Batch]:
        """Inputs and targets of one local training, step by step."""
        size, count = self._task.batch, len(draw.examples)
        batches = [slice(start, start + size) for start in range(0, count, size)]
        if self._task.collate is not None:
            yield from (self._batch(self._train.rows(draw.examples[rows])) for rows in batches)
            return
        inputs, targets = self._examples(draw.examples, draw.augmentation)
        yield from ((taken(inputs, rows), targets[rows]) for rows in batches)

    def stacked(self, draws: Sequence[Draw]) -> tuple[Inputs, Tensor]:
        """Inputs and targets of many local trainings: step x client x example in the batch."""
        batch = self._task.batch
        shape = (len(draws[0].examples) // batch, len(draws), batch)

        def by_step(arrays: list[NDArray[np.int64]]) -> NDArray[np.int64]:
            rows = np.stack(arrays).reshape(len(draws), *shape[::2], *arrays[0].shape[1:])
            return rows.swapaxes(0, 1).reshape(-1, *arrays[0].shape[1:])

        drawn = [draw.augmentation for draw in draws if draw.augmentation is not None]
        found = self._examples(by_step([d.examples for d in draws]), by_step(drawn) if drawn else None)
        inputs, targets = each_leaf(lambda t: t.view(*shape, *t.shape[1:]), found)
        return inputs, targets

    def test_batch(self, number: int) -> Batch:
        """One of the batches of the test set, ready for the model."""
        rows = slice(number * EVALUATION_BATCH, (number + 1) * EVALUATION_BATCH)
        test = self._test
        return self._batch(Examples(taken(test.inputs, rows), test.targets[rows], test.ids[rows]))

    def held_batch(self, node: int) -> Batch:
        return self._batch(self._train.rows(self._task.held[node]))

    def _batch(self, examples: Examples) -> Batch:
        batch = batch_of(examples, self._task.prepare, self._task.collate)
        found: Batch = tree_map(lambda t: t.to(self._device) if isinstance(t, Tensor) else t, batch)
        return found

    def _examples(
        self, examples: NDArray[np.int64], augmentation: NDArray[np.int64] | None
    ) -> tuple[Inputs, Tensor]:
        inputs, targets = batch_of(self._train.rows(examples), self._task.prepare, collate=None)
        if self._task.augment is not None and augmentation is not None:
            inputs = self._task.augment.apply(inputs, torch.from_numpy(augmentation).to(self._device))
        return inputs, targets


class Trainer:
    """Trains and evaluates models of one task, one at a time."""

    def __init__(self, task: Task, device: torch.device) -> None:
        module = task.initial_model().to(device)
        self.task = task
        self.data = DeviceData(task, device)
        with blaming(f"task {task.name}"):
            self.layout = Layout.of(module, task.shared, task.local)
        tensors = named_tensors(module)
        self.initial = self.layout.flatten(tensors)
        # They stay where they are in memory: the module may hold views of them.
        self.module, self._tensors = module, {e.name: tensors[e.name] for e in self.layout.entries}
        layers = {type(layer) for layer in module} if type(module) is nn.Sequential else set()
        self._channels_last = device.type == "cpu" and nn.Conv2d in layers and layers <= CHANNELS_LAST
        """Convolutions on a CPU take two thirds of the time so."""
        inside = {id(each) for each in self._tensors.values()}
        kept = {id(each): each.clone() for each in module.buffers() if id(each) not in inside}
        self.frozen = {n: kept.get(id(tensors[n]), tensors[n].detach()) for n in self.layout.frozen}
        """What nobody trains, sends or averages; everybody has it."""
        self._buffers = [
            (part, name, each, kept.get(id(each)))
            for part in module.modules()
            for name, each in part._buffers.items()
            if each is not None
        ]
        """Where each buffer is; of those that are in no vector, also what every training begins with."""
        trainable = [entry.name for entry in self.layout.entries if entry.trainable]
        self._parameters = [self._tensors[name] for name in trainable]
        self.descent = None if task.optimiser is None else Descent(task.optimiser, task.proximal, trainable)

    def train(self, base: Tensor, node: int, round: int) -> Tensor:
        """The weights after `node` trained `base` on its own data in `round`."""
        with blaming(f"task {self.task.name}: training node {node} in round {round}"):
            self._load(base)
            self.module.train()
            if self.descent is None:
                self._loop(node, round)
            else:
                self._descend(self.descent, node, round)
            self._take_back()
            return self.layout.flatten(self._tensors)

    def train_all(self, jobs: Sequence[LocalTraining]) -> list[Tensor]:
        return [self.train(job.base, job.node, job.round) for job in jobs]

    def _loop(self, node: int, round: int) -> None:
        task = self.task
        assert task.loop is not None, "checked by the task"
        context = task.context(node, round)
        torch.default_generator.manual_seed(context.generator.initial_seed())
        with torch.enable_grad():
            own = task.train.rows(task.parts[node]).to(self.initial.device)
            made: object = task.loop(self.module, own, context)
        if made is not None:
            wrong = f"and returns nothing: not a {type(made).__name__}"
            raise TypeError(f"a loop trains the model that it is given, {wrong}")
        self.module.zero_grad(set_to_none=True)

    def _descend(self, descent: Descent, node: int, round: int) -> None:
        task, parameters = self.task, self._parameters
        draw, scale = task.draw(node, round), descent.optimiser.scale(round)
        # Drawing by name, not by who computes: any worker gives this training the same numbers.
        torch.default_generator.manual_seed(draw.torch_seed)
        begun = descent.begin(parameters)
        for inputs, targets in self.data.batches(draw):
            loss = task.loss(self._outputs(inputs), targets)
            gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
            descent.step(parameters, list(gradients), begun, scale)

    def _outputs(self, inputs: Inputs) -> Any:
        if self._channels_last and isinstance(inputs, Tensor):
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        return called(self.module, inputs)

    def _take_back(self) -> None:
        """Where the module has another tensor in a buffer's place (`self.mean = …`): its numbers, in that."""
        for part, name, buffer, _ in self._buffers:
            found = part._buffers.get(name)
            if found is not buffer:
                part._buffers[name] = buffer if found is None else buffer.copy_(found.detach())

    @torch.no_grad()
    def _load(self, vector: Tensor) -> None:
        """The module as it is with these weights, whatever it did before."""
        self._take_back()
        for _, _, buffer, initial in self._buffers:
            if initial is not None and 0 not in buffer.stride():  # one that is expanded cannot change
                buffer.copy_(initial)
        torch._foreach_copy_(list(self._tensors.values()), list(self.layout.tensors(vector).values()))

    def evaluate(self, vector: Tensor) -> Metrics:
        batches = range(evaluation_batches(self.task))
        sums = torch.stack([self.evaluate_batch(vector, number) for number in batches])
        # Read from the device once, at the end.
        return metrics_of(self.task, sums.tolist())

    def evaluate_batch(self, vector: Tensor, number: int) -> Tensor:
        """The sums of metrics and loss over one batch of the test set."""
        with blaming(f"task {self.task.name}: evaluating"):
            batch = self.data.test_batch(number)
            count = min(EVALUATION_BATCH, len(self.task.test) - number * EVALUATION_BATCH)
            return self._sums(vector, batch, count)

    def evaluate_own(self, vector: Tensor, node: int) -> Tensor:
        """The sums of metrics and loss over what `node` holds back of its own examples."""
        with blaming(f"task {self.task.name}: evaluating on the data of node {node}"):
            return self._sums(vector, self.data.held_batch(node), len(self.task.held[node]))

    @torch.no_grad()
    def _sums(self, vector: Tensor, batch: Batch, count: int) -> Tensor:
        task = self.task
        self._load(vector)
        self.module.eval()
        inputs, targets = batch
        outputs = self._outputs(inputs)
        found = ((each.name, each.per_example(outputs, targets)) for each in (task.measure, *task.measures))
        measured = [_total(task, name, values, count) for name, values in found]
        return torch.stack([measured[0], task.loss(outputs, targets).double() * count, *measured[1:]])

    def try_out(self, node: int) -> None:
        """One step on the node's first batch, and one batch evaluated: what is wrong shows now."""
        trial = Trainer(replace(self.task, local_steps=1, local_epochs=None), self.initial.device)
        trained = trial.train(trial.initial, node, round=1)
        metrics_of(self.task, [trial.evaluate_batch(trained, 0).tolist()])


def _total(task: Task, measure: str, values: object, count: int) -> Tensor:
    if not isinstance(values, Tensor) or values.numel() != count:
        found = (
            f"tensor of shape {tuple(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
        )
        wrong = f"the measure {measure} must give a number for each of {count} examples, not a {found}"
        raise TaskError(f"task {task.name}: {wrong}; are outputs and targets of different shapes?")
    return values.sum(dtype=torch.float64)


class InlineEngine:
    """One client after the other, here and now, on one thread: the plainest engine, the others' oracle."""

    workers_cpu_s = 0.0

    def __init__(self, task: Task, device: str = "cpu") -> None:
        self.device = torch.device(device)
        self.trainer = Trainer(task, self.device)
        self.layout, self.initial = self.trainer.layout, self.trainer.initial
        self.frozen = self.trainer.frozen

    def train(self, jobs: Sequence[LocalTraining]) -> list[Tensor]:
        with one_thread():
            return self.trainer.train_all(jobs)

    def evaluate(self, vector: Tensor) -> Metrics:
        with one_thread():
            return self.trainer.evaluate(vector)

    def evaluate_own(self, vector: Tensor, node: int) -> Metrics:
        with one_thread():
            sums = self.trainer.evaluate_own(vector, node).tolist()
        return metrics_of(self.trainer.task, [sums], node)

    def close(self) -> None:
        """Nothing is held."""


def frozen_hash(task: Task) -> str:
    """Names the tensors of the task's model that nobody trains or sends; empty if there are none."""
    return weights_hash(Trainer(task, torch.device("cpu")).frozen)


def evaluation_batches(task: Task) -> int:
    return -(-len(task.test) // EVALUATION_BATCH)


def metrics_of(task: Task, sums: Sequence[Sequence[float]], node: int | None = None) -> Metrics:
    """The metrics from each batch's sums of metrics and loss, added in the order of the batches: of the test
    set, or of what `node` holds back."""
    measure, count = task.measure, len(task.test) if node is None else len(task.held[node])
    value = sum(batch[0] for batch in sums) / count
    loss = sum(batch[1] for batch in sums)
    with blaming(f"task {task.name}: evaluating"):
        others = {name: derive(value) for name, derive in measure.derived.items()}
        for at, more in enumerate(task.measures, start=2):
            found = sum(batch[at] for batch in sums) / count
            others |= {more.name: found, **{name: derive(found) for name, derive in more.derived.items()}}
    return Metrics(measure.name, value, measure.higher_is_better, loss / count, others)


def spread_over_nodes(found: Sequence[Metrics]) -> Metrics:
    """What nodes found, each by itself, as one: the mean, and the tenth from below and from above."""
    first, values = found[0], sorted(metrics.value for metrics in found)
    name = f"own_{first.name}"
    spread = {f"{name}_p{share}": float(np.percentile(values, share)) for share in (10, 90)}
    loss = float(np.mean([metrics.loss for metrics in found]))
    return Metrics(name, float(np.mean(values)), first.higher_is_better, loss, {**spread, "own_loss": loss})
