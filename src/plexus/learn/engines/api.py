"""What the graph asks of an engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from plexus.learn.layout import Layout
from plexus.learn.task import Metrics


@dataclass(frozen=True)
class Job:
    """One local training: `base` trained by `node` in `round`."""

    base: Tensor
    node: int
    round: int


class Engine(Protocol):
    """Carries out trainings that do not depend on each other; results in the order of the jobs."""

    name: str
    device: torch.device
    layout: Layout
    initial: Tensor
    """The weights everybody starts from."""
    workers_cpu_s: float
    """Processor time of other processes that computed for this one, so far."""

    def train(self, jobs: Sequence[Job]) -> list[Tensor]:
        """The trained weights of each job."""
        ...

    def evaluate(self, vectors: Sequence[Tensor]) -> list[Metrics]:
        """Each model's metrics on the test set."""
        ...

    def close(self) -> None:
        """Give back workers and memory. The engine is not used afterwards."""
        ...
