"""One local training and one evaluation on one device: what a single worker does.

Gradients are applied to the parameters directly, without an optimiser object: five steps on a small
model are over before `torch.optim.SGD` is set up. That both give the same bits is tested.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from plexus.learn.layout import Layout
from plexus.learn.task import Metrics, Sgd, Task

EVALUATION_BATCH = 1000
"""Examples per forward pass of an evaluation; part of the result's last bits, hence fixed."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread: results must not depend on how many cores the machine has."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Trainer:
    """Trains and evaluates models of one task, one at a time."""

    def __init__(self, task: Task, device: torch.device) -> None:
        module = task.initial_model().to(device)
        self._task = task
        self._device = device
        self.layout = Layout.of(module)
        self.initial = self.layout.vector_of(module)
        self._bound = self.layout.bind(module)
        self._train = task.train.to(device)
        self._test = task.test.to(device)

    def train(self, base: Tensor, node: int, round: int) -> Tensor:
        """The weights after `node` trained `base` on its own data in `round`."""
        task, bound = self._task, self._bound
        inputs, targets, torch_seed = self._batches(node, round)
        # Drawing by name, not by who computes: any worker gives this training the same numbers.
        torch.default_generator.manual_seed(torch_seed)
        bound.load(base)
        bound.module.train()
        momenta: list[Tensor] = []
        for batch, wanted in _batched(inputs, targets, task.batch):
            loss = task.loss(bound.module(batch), wanted)
            gradients = torch.autograd.grad(loss, bound.parameters, materialize_grads=True)
            sgd_step(task.sgd, bound.parameters, list(gradients), momenta)
        return bound.saved()

    @torch.no_grad()
    def evaluate(self, vector: Tensor) -> Metrics:
        """How good these weights are on the test set."""
        task, module = self._task, self._bound.module
        self._bound.load(vector)
        module.eval()
        total, loss = 0.0, 0.0
        for batch, wanted in _batched(self._test.inputs, self._test.targets, EVALUATION_BATCH):
            outputs = module(batch if task.prepare is None else task.prepare(batch))
            total += task.measure.per_example(outputs, wanted).sum(dtype=torch.float64).item()
            loss += task.loss(outputs, wanted).item() * len(wanted)
        return metrics_of(task, total, loss)

    def _batches(self, node: int, round: int) -> tuple[Tensor, Tensor, int]:
        draw = self._task.draw(node, round)
        rows = torch.from_numpy(draw.examples).to(self._device)
        inputs, targets = self._train.inputs[rows], self._train.targets[rows]
        if self._task.prepare is not None:
            inputs = self._task.prepare(inputs)
        if self._task.augment is not None and draw.augmentation is not None:
            drawn = torch.from_numpy(draw.augmentation).to(self._device)
            inputs = self._task.augment.apply(inputs, drawn)
        return inputs, targets, draw.torch_seed


def _batched(inputs: Tensor, targets: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(torch.split(inputs, size), torch.split(targets, size), strict=True)


@torch.no_grad()
def sgd_step(
    sgd: Sgd, parameters: list[Tensor], gradients: list[Tensor], momenta: list[Tensor]
) -> None:
    """One step of `torch.optim.SGD`; `momenta` is empty before the first and filled by it."""
    if sgd.weight_decay:
        torch._foreach_add_(gradients, parameters, alpha=sgd.weight_decay)
    if sgd.momentum:
        if momenta:
            torch._foreach_mul_(momenta, sgd.momentum)
            torch._foreach_add_(momenta, gradients)
        else:
            momenta.extend(gradients)
        gradients = momenta
    torch._foreach_add_(parameters, gradients, alpha=-sgd.learning_rate)


def metrics_of(task: Task, total: float, loss: float) -> Metrics:
    """The metrics from sums over the test set."""
    measure, count = task.measure, len(task.test)
    value = total / count
    others = {name: derive(value) for name, derive in measure.derived.items()}
    return Metrics(measure.name, value, measure.higher_is_better, loss / count, others)
