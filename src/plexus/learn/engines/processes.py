"""A pool of processes on this machine's cores: for convolution networks without a GPU.

Which worker computes what depends on who is free first; what comes out does not: a training is
determined by its base, node and round, and each worker computes on one thread like `inline`. The
weights are those of `inline`, bit for bit.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.context
import os
import tempfile
from collections import deque
from collections.abc import Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from plexus.errors import PlexusError, TaskError
from plexus.learn.engines.api import Job
from plexus.learn.engines.shipping import pack
from plexus.learn.engines.worker import work
from plexus.learn.task import Metrics, Task
from plexus.learn.trainer import Trainer, evaluation_batches, metrics_of

MOST_LOSSES = 3
"""So many workers may die of one and the same request before we give up on it."""


class Request:
    """One piece of work, its place in the answers, and how many workers it has cost."""

    __slots__ = ("arguments", "kind", "losses", "place", "vector")

    def __init__(self, place: int, kind: str, vector: Tensor, *arguments: int) -> None:
        self.place = place
        self.kind = kind
        self.vector = vector
        self.arguments = arguments
        self.losses = 0

    @property
    def what(self) -> str:
        """`training node 3 in round 7`."""
        training = "training node {} in round {}".format
        return training(*self.arguments) if self.kind == "train" else "evaluating"


class Worker:
    """A process, and which weights it was sent last."""

    def __init__(self, folder: str) -> None:
        context = _context()
        self.connection, far_end = context.Pipe()
        self.process = context.Process(target=work, args=(far_end, folder), daemon=True)
        self.process.start()
        far_end.close()
        self.request: Request | None = None
        self._sent: Tensor | None = None
        self._key = 0

    def give(self, request: Request) -> None:
        """Send a request; weights only if they are not those of the request before."""
        weights = None
        if request.vector is not self._sent:
            weights, self._sent, self._key = request.vector.numpy(), request.vector, self._key + 1
        self.request = request
        self.connection.send((request.kind, self._key, weights, *request.arguments))

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        self.connection.close()
        self.process.terminate()
        self.process.join()
        self.process.close()


class ProcessesEngine:
    """Trains on several cores of this machine."""

    name = "processes"

    def __init__(self, task: Task, workers: int | None = None) -> None:
        self.device = torch.device("cpu")
        self._task = task
        count = workers or available_cores()
        if count < 1:
            raise PlexusError(f"workers is {workers}: the engine processes needs at least 1")
        trainer = Trainer(task, self.device)
        self.layout = trainer.layout
        self.initial = trainer.initial
        self._folder = tempfile.TemporaryDirectory(prefix="plexus-task-")
        try:
            pack(task, Path(self._folder.name))
        except PlexusError:
            self._folder.cleanup()
            raise
        self._count = count
        self.workers_cpu_s = 0.0
        self._workers: list[Worker] = []
        self._start()

    def train(self, jobs: Sequence[Job]) -> list[Tensor]:
        # By base, so that a worker rarely needs new weights.
        order = sorted(range(len(jobs)), key=lambda place: id(jobs[place].base))
        requests = [
            Request(place, "train", jobs[place].base, jobs[place].node, jobs[place].round)
            for place in order
        ]
        return [torch.from_numpy(answer) for answer in self._answers(requests)]

    def evaluate(self, vectors: Sequence[Tensor]) -> list[Metrics]:
        batches = evaluation_batches(self._task)
        requests = [
            Request(place * batches + batch, "evaluate", vector, batch)
            for place, vector in enumerate(vectors)
            for batch in range(batches)
        ]
        sums = self._answers(requests)
        return [
            metrics_of(self._task, sums[start : start + batches])
            for start in range(0, len(sums), batches)
        ]

    def close(self) -> None:
        self._stop()
        self._folder.cleanup()

    def _start(self) -> None:
        self._workers = [Worker(self._folder.name) for _ in range(self._count)]

    def _stop(self) -> None:
        for worker in self._workers:
            worker.stop()
        self._workers = []

    def _answers(self, requests: Sequence[Request]) -> list[Any]:
        if not self._workers:
            self._start()
        try:
            return self._collect(requests)
        except BaseException:
            # Also Ctrl-C: answers still under way must not be taken for those of later requests.
            self._stop()
            raise

    def _collect(self, requests: Sequence[Request]) -> list[Any]:
        answers: list[Any] = [None] * len(requests)
        waiting = deque(requests)
        for worker in self._workers:
            self._feed(worker, waiting)
        while busy := {w.connection: w for w in self._workers if w.request is not None}:
            for ready in wait(list(busy)):
                worker = busy[ready]  # type: ignore[index]
                request = worker.request
                assert request is not None
                try:
                    good, answer, spent_s = worker.connection.recv()
                except (EOFError, OSError):
                    self._replace(worker, waiting)
                    continue
                self.workers_cpu_s += spent_s
                if not good:
                    raise TaskError(answer)
                answers[request.place] = answer
                worker.request = None
                self._feed(worker, waiting)
        return answers

    def _feed(self, worker: Worker, waiting: deque[Request]) -> None:
        if not waiting:
            return
        request = waiting.popleft()
        try:
            worker.give(request)
        except (BrokenPipeError, ConnectionResetError):
            self._replace(worker, waiting)

    def _replace(self, lost: Worker, waiting: deque[Request]) -> None:
        """A worker died (killed, out of memory): start another and do its work again."""
        request = lost.request
        assert request is not None
        request.losses += 1
        if request.losses >= MOST_LOSSES:
            lost.process.join(timeout=5)  # it has closed its end
            raise TaskError(
                f"task {self._task.name}: {MOST_LOSSES} worker processes died on the same work,"
                f" {request.what} (exit code {lost.process.exitcode}): is there enough memory?"
            )
        waiting.appendleft(request)
        place = self._workers.index(lost)
        lost.stop()
        self._workers[place] = Worker(self._folder.name)
        self._feed(self._workers[place], waiting)


def _context() -> multiprocessing.context.ForkServerContext | multiprocessing.context.SpawnContext:
    """How processes start: never by forking this one, which may have threads that hold locks."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    # Imports torch once, in the server; workers are forks of that.
    context.set_forkserver_preload(["plexus.learn.engines.worker"])
    return context


def available_cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
