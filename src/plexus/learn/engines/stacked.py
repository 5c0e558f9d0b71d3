"""Many clients at once, with stacked weights: for a GPU, and for small models on a CPU.

Within rounding the weights are those of `inline`: the same examples and steps, with sums in another
order. The tests hold one local training to a difference of 1e-4 of the largest weight.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from plexus.errors import PlexusError, blaming
from plexus.learn.engines import LocalTraining
from plexus.learn.engines.stacking import CannotStackError, RecordedStack, Stack
from plexus.learn.layout import TensorSlice
from plexus.learn.task import Task
from plexus.learn.trainer import InlineEngine, one_thread

MOST_CLIENTS = {"cpu": 64, "cuda": 128}
"""Clients in one stack: enough to fill the machine; memory grows with it."""
COMPILED_CLIENTS = 64
"""On a GPU, stacks from this size on are compiled: 100 clients of GN-LeNet on an H200 take 0.35 ms each
instead of 0.53, ten clients gain little (benchmarks/gpu_cifar.py)."""
COMPILE_AFTER = 3000
"""Compiling takes the better part of a minute: it must be earned back by so many stacks of one size."""


class StackedEngine(InlineEngine):
    """Trains all clients of a wave together; evaluates one model after the other."""

    def __init__(self, task: Task, device: str = "cpu", most_clients: int | None = None) -> None:
        super().__init__(task, device)
        self._task = task
        self._most = most_clients or MOST_CLIENTS.get(self.device.type, 64)
        self._module = task.initial_model().to(self.device).train()
        for part in self._module.modules():
            if isinstance(part, nn.Embedding | nn.EmbeddingBag):
                part.sparse = False  # stacking knows no sparse gradients
        self._stacks: dict[tuple[int, bool], Stack | RecordedStack] = {}
        self._used: Counter[int] = Counter()
        self.compile_after = COMPILE_AFTER
        if self.device.type == "cuda":
            # As torch does by default for convolutions: half the time, and rounding far below the
            # differences between clients.
            torch.backends.cuda.matmul.allow_tf32 = True
            torch.backends.cudnn.allow_tf32 = True

    def train(self, jobs: Sequence[LocalTraining]) -> list[Tensor]:
        trained: list[Tensor] = []
        with one_thread(), blaming(f"task {self._task.name}: training"):
            while len(trained) < len(jobs):
                try:
                    trained += self._train_stack(jobs[len(trained) :][: self._most])
                except torch.OutOfMemoryError:
                    self._shrink()
        return trained

    def _shrink(self) -> None:
        """The stack did not fit into the GPU's memory: smaller ones from now on."""
        if self._most == 1:
            raise PlexusError(f"task {self._task.name}: not even one client fits into the GPU's memory")
        self._most //= 2
        self._stacks.clear()
        torch.cuda.empty_cache()

    def _train_stack(self, jobs: Sequence[LocalTraining]) -> list[Tensor]:
        clients = min(stack_size(len(jobs)), self._most)
        draws = [self._task.draw(job.node, job.round) for job in jobs]
        # Idle places repeat the first client, and are thrown away.
        idle = clients - len(jobs)
        inputs, targets = self._trainer.data.stacked(draws + draws[:1] * idle)
        bases = torch.stack([job.base for job in jobs] + [jobs[0].base] * idle)
        rows = self._stack(clients).train(bases, inputs, targets)
        # Each its own memory: one model that is kept must not keep its whole stack.
        return [row.clone() for row in rows[: len(jobs)]]

    def _stack(self, clients: int) -> Stack | RecordedStack:
        on_gpu = self.device.type == "cuda"
        compiled = on_gpu and clients >= COMPILED_CLIENTS and self._used[clients] >= self.compile_after
        self._used[clients] += 1
        if (clients, compiled) not in self._stacks:
            self._stacks.pop((clients, False), None)
            # On a GPU vmap's grouped convolutions are faster than ours, unless ours are compiled.
            by_hand = compiled or not on_gpu
            stack = Stack(self._task, self.layout, self._module, clients, by_hand, compiled)
            self._stacks[clients, compiled] = RecordedStack(stack) if on_gpu else stack
        return self._stacks[clients, compiled]

    def close(self) -> None:
        self._stacks.clear()


def stack_size(jobs: int) -> int:
    """The size of the stack for so many jobs: few sizes, as each is compiled, and few idle places."""
    for upto, multiple in ((1, 1), (16, 2), (64, 4), (128, 8)):
        if jobs <= upto:
            return -(-jobs // multiple) * multiple
    return -(-jobs // 16) * 16


def cannot_stack(task: Task) -> str | None:
    """Why the task's model cannot be trained stacked; None if it can.

    Found by training two clients for a step or two, both ways. A model that reaches its parameters other than
    as attributes of their modules (in a list, in a closure) does not fail when stacked: it learns nothing.
    """
    task = replace(task, local_steps=min(2, task.local_steps))
    inline, stacked = InlineEngine(task), StackedEngine(task)
    jobs = [LocalTraining(inline.initial, 0, 1), LocalTraining(2 * inline.initial, task.nodes - 1, 1)]
    wanted = inline.train(jobs)
    try:
        found = stacked.train(jobs)
    except CannotStackError as error:
        return error.reason
    for entry in inline.layout.entries:
        if not all(map(partial(_agree, entry), jobs, wanted, found)):
            return (
                f"its {entry.name} would not change as it does when one client trains alone;"
                " are parameters reached other than as attributes of their module?"
            )
    return None


def _agree(entry: TensorSlice, job: LocalTraining, wanted: Tensor, found: Tensor) -> bool:
    """Whether a tensor became the same, up to rounding of its change, of sums that cancel, of its values."""
    if not torch.isfinite(wanted).all():
        return True  # training diverges, with any engine
    change = (wanted - job.base).abs()
    part = slice(entry.start, entry.stop)
    tolerated = 0.01 * change[part] + 1e-3 * change.max() + 1e-6 * job.base[part].abs()
    return entry.start == entry.stop or bool((found - wanted)[part].abs().max() <= tolerated.max())
