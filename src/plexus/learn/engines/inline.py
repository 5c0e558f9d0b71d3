"""One client after the other in this process: the plainest engine, and the oracle of the others."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from plexus.learn.engines import LocalTraining
from plexus.learn.task import Metrics, Task
from plexus.learn.trainer import Trainer, one_thread


class InlineEngine:
    """Trains here and now, on one thread."""

    name = "inline"
    workers_cpu_s = 0.0

    def __init__(self, task: Task, device: str = "cpu") -> None:
        self.device = torch.device(device)
        self._trainer = Trainer(task, self.device)
        self.layout = self._trainer.layout
        self.initial = self._trainer.initial

    def train(self, jobs: Sequence[LocalTraining]) -> list[Tensor]:
        with one_thread():
            return [self._trainer.train(job.base, job.node, job.round) for job in jobs]

    def evaluate(self, vectors: Sequence[Tensor]) -> list[Metrics]:
        with one_thread():
            return [self._trainer.evaluate(vector) for vector in vectors]

    def close(self) -> None:
        """Nothing is held."""
