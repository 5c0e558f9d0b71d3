"""A pool of workers, which engines with other processes share: whoever is free gets the next piece of work.

Which worker computes what depends on who is free first; what comes out does not: a training is determined
by its base, node and round, and each worker computes on one thread like `inline`. The weights are those of
`inline`, bit for bit, where all processors are of one kind. The work of a lost worker is done again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor

from plexus.errors import TaskError
from plexus.learn.engines import LocalTraining
from plexus.learn.task import Metrics, Task
from plexus.learn.trainer import Trainer, evaluation_batches, metrics_of
from plexus.machine import cpu_s

MOST_LOSSES = 3
"""So many workers may die of one and the same request before we give up on it."""


@dataclass
class Request:
    """One piece of work, its place in the answers, and how many workers it has cost."""

    place: int
    method: str
    """Of `Trainer`: `train` or `evaluate_batch`."""
    vector: Tensor
    arguments: tuple[int, ...]
    losses: int = 0


class RemoteTrainer:
    """What a worker does, wherever it lives: answers one request after the other."""

    def __init__(self, task: Task) -> None:
        torch.set_num_threads(1)
        self._trainer = Trainer(task, torch.device("cpu"))
        self._vector = self._trainer.initial
        self._told_s = 0.0

    def answer(
        self, method: str, weights: NDArray[Any] | None, *arguments: int
    ) -> tuple[NDArray[Any], float]:
        """The result, and the processor time since the answer before; no weights: those of last time."""
        if weights is not None:
            self._vector = torch.tensor(weights)
        result: Tensor = getattr(self._trainer, method)(self._vector, *arguments)
        spent_s = cpu_s() - self._told_s
        self._told_s += spent_s
        return result.numpy(), spent_s


class WorkerLostError(Exception):
    """A worker died before it answered: killed, or out of memory. The text says what is known of it."""


class WorkerHandle(Protocol):
    """A worker as the engine sees it: at most one request at a time."""

    def give(self, request: Request) -> Hashable:
        """Let it begin; what comes back stands for its answer."""

    def take(self) -> tuple[NDArray[Any], float]:
        """The answer, when there is one; WorkerLostError if none will come, TaskError if the work failed."""

    def stop(self) -> None:
        """End it, whatever it is doing."""


class PoolEngine(ABC):
    """Hands requests to workers and collects their answers."""

    def __init__(self, task: Task, count: int) -> None:
        self.device = torch.device("cpu")
        self._task = task
        trainer = Trainer(task, self.device)
        self.layout, self.initial = trainer.layout, trainer.initial
        self.workers_cpu_s = 0.0
        self._workers: list[WorkerHandle] = [self._new_worker() for _ in range(count)]
        self._count = count

    @abstractmethod
    def _new_worker(self) -> WorkerHandle: ...

    @abstractmethod
    def _first(self, answers: Sequence[Any]) -> Any:
        """Wait for one of these."""

    def train(self, jobs: Sequence[LocalTraining]) -> list[Tensor]:
        requests = [
            Request(place, "train", job.base, (job.node, job.round)) for place, job in enumerate(jobs)
        ]
        # By base, so that a worker rarely needs new weights.
        requests.sort(key=lambda request: id(request.vector))
        return [torch.tensor(weights) for weights in self._answers(requests)]

    def evaluate(self, vectors: Sequence[Tensor]) -> list[Metrics]:
        batches = evaluation_batches(self._task)
        requests = [
            Request(place * batches + batch, "evaluate_batch", vector, (batch,))
            for place, vector in enumerate(vectors)
            for batch in range(batches)
        ]
        sums = [batch.tolist() for batch in self._answers(requests)]
        return [metrics_of(self._task, sums[at : at + batches]) for at in range(0, len(sums), batches)]

    def close(self) -> None:
        while self._workers:
            self._workers.pop().stop()

    def _answers(self, requests: Sequence[Request]) -> list[NDArray[Any]]:
        self._workers = self._workers or [self._new_worker() for _ in range(self._count)]
        try:
            return self._collect(requests)
        except BaseException:
            # Also Ctrl-C: answers still under way must not be taken for those of later requests.
            PoolEngine.close(self)
            raise

    def _collect(self, requests: Sequence[Request]) -> list[NDArray[Any]]:
        found: dict[int, NDArray[Any]] = {}
        waiting, free = deque(requests), deque(self._workers)
        running: dict[Hashable, tuple[WorkerHandle, Request]] = {}
        while waiting or running:
            while waiting and free:
                worker, request = free.popleft(), waiting.popleft()
                running[worker.give(request)] = worker, request
            worker, request = running.pop(self._first(list(running)))
            try:
                found[request.place], spent_s = worker.take()
                self.workers_cpu_s += spent_s
            except WorkerLostError as loss:
                worker = self._replaced(worker, request, loss)
                waiting.appendleft(request)
            free.append(worker)
        return [found[place] for place in range(len(requests))]

    def _replaced(self, lost: WorkerHandle, request: Request, loss: WorkerLostError) -> WorkerHandle:
        """A new worker in the place of one that died."""
        request.losses += 1
        if request.losses >= MOST_LOSSES:
            training = "training node {} in round {}".format
            what = training(*request.arguments) if request.method == "train" else "evaluating"
            raise TaskError(
                f"task {self._task.name}: {MOST_LOSSES} worker processes died on the same work,"
                f" {what} ({loss}): is there enough memory?"
            )
        lost.stop()
        new = self._new_worker()
        self._workers[self._workers.index(lost)] = new
        return new
