"""Many clients at once, with stacked weights: for a GPU, and for small models on a CPU.

Within rounding the weights are those of `inline`: the same examples and steps, with sums in another
order. The tests hold one local training to a difference of 1e-4 of the largest weight.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from plexus.learn.engines.api import Job
from plexus.learn.stacking import RecordedStack, Stack, stackable
from plexus.learn.task import Metrics, Task
from plexus.learn.trainer import Trainer, one_thread

MOST_CLIENTS = {"cpu": 64, "cuda": 128}
"""Clients in one stack: enough to fill the machine; memory grows with it."""


class StackedEngine:
    """Trains all clients of a wave together."""

    name = "stacked"

    def __init__(self, task: Task, device: str = "cpu", most_clients: int | None = None) -> None:
        self.device = torch.device(device)
        self._task = task
        self._most = most_clients or MOST_CLIENTS.get(self.device.type, 64)
        self._trainer = Trainer(task, self.device)
        self.layout = self._trainer.layout
        self.initial = self._trainer.initial
        self._module = stackable(task.initial_model().to(self.device)).train()
        self._stacks: dict[int, Stack | RecordedStack] = {}

    def train(self, jobs: Sequence[Job]) -> list[Tensor]:
        trained: list[Tensor] = []
        with one_thread():
            for start in range(0, len(jobs), self._most):
                trained += self._train_stack(jobs[start : start + self._most])
        return trained

    def _train_stack(self, jobs: Sequence[Job]) -> list[Tensor]:
        clients = min(stack_size(len(jobs)), self._most)
        # Idle places repeat the first client, and are thrown away.
        padded = [*jobs, *[jobs[0]] * (clients - len(jobs))]
        draws = [self._task.draw(job.node, job.round) for job in jobs]
        inputs, targets = self._trainer.data.stacked([*draws, *[draws[0]] * (clients - len(jobs))])
        bases = torch.stack([job.base for job in padded])
        if clients not in self._stacks:
            stack = Stack(self._task, self.layout, self._module, clients)
            self._stacks[clients] = RecordedStack(stack) if self.device.type == "cuda" else stack
        rows = self._stacks[clients].train(bases, inputs, targets)
        # Each its own memory: one model that is kept must not keep its whole stack.
        return [row.clone() for row in rows[: len(jobs)]]

    def evaluate(self, vectors: Sequence[Tensor]) -> list[Metrics]:
        with one_thread():
            return [self._trainer.evaluate(vector) for vector in vectors]

    def close(self) -> None:
        self._stacks.clear()


def stack_size(jobs: int) -> int:
    """The size of the stack for so many jobs: few sizes, as each is compiled, and few idle places."""
    for upto, multiple in ((1, 1), (16, 2), (64, 8)):
        if jobs <= upto:
            return -(-jobs // multiple) * multiple
    return -(-jobs // 32) * 32
