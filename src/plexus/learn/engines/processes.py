"""Pools of workers: whoever is free gets the next piece of work. Here they are processes, on this machine's
cores, for convolution networks without a GPU; in `ray` they are actors of a cluster.

Which worker computes what depends on who is free first; what comes out does not: a training is determined
by its base, node and round, and each worker computes on one thread like `inline`. The weights are those of
`inline`, bit for bit, where all processors are of one kind. The work of a lost worker is done again.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.context
import pickle
import signal
import tempfile
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor

from plexus.errors import PlexusError, TaskError, described
from plexus.learn.engines import LocalTraining
from plexus.learn.task import Task
from plexus.learn.trainer import Trainer, evaluation_batches, metrics_of
from plexus.machine import cpu_s, usable_cores
from plexus.runs.result import Metrics

CPU = torch.device("cpu")
MOST_LOSSES = 3
"""So many workers may die of one and the same request before we give up on it."""


@dataclass
class Request:
    """One piece of work, and how many workers it has cost."""

    method: str
    """Of `Trainer`: `train`, `evaluate_batch` or `evaluate_own`."""
    vector: Tensor
    arguments: tuple[int, ...]
    losses: int = 0

    @property
    def node(self) -> int | None:
        """Whose data it needs."""
        return None if self.method == "evaluate_batch" else self.arguments[0]


class WorkerLostError(Exception):
    """A worker died before it answered: killed, or out of memory. The text says what is known of it."""


class WorkerHandle(Protocol):
    """A worker as the engine sees it: at most one share of the work at a time."""

    def give(self, share: Sequence[Request]) -> Hashable:
        """Let it begin; what comes back stands for its answers."""

    def take(self) -> tuple[Sequence[NDArray[Any]], float]:
        """The answers, when they are there, and the processor time that they took; WorkerLostError if none
        will come, TaskError if the work failed."""

    def stop(self) -> None:
        """End it, whatever it is doing."""


W = TypeVar("W", bound=WorkerHandle)


class PoolEngine(ABC, Generic[W]):
    def __init__(self, task: Task, count: int) -> None:
        self.device = CPU
        self._task = task
        trainer = Trainer(task, self.device)
        self.layout, self.initial, self.frozen = trainer.layout, trainer.initial, trainer.frozen
        self.workers_cpu_s = 0.0
        self._workers: list[W] = [self._new_worker() for _ in range(count)]
        self._count = count

    @abstractmethod
    def _new_worker(self) -> W: ...

    def _able(self, nobody_works: bool) -> Sequence[W]:
        """Those who can be given work: at least one if nobody has any."""
        return self._workers

    def _share(self, worker: W, waiting: deque[Request], most: int) -> list[Request]:
        """Take out of `waiting` what `worker` is to do; `most` would leave the others as much."""
        return [waiting.popleft()]

    @abstractmethod
    def _first(self, answers: Sequence[Any]) -> Any:
        """Wait for one of these."""

    def train(self, jobs: Sequence[LocalTraining]) -> list[Tensor]:
        requests = [Request("train", job.base, (job.node, job.round)) for job in jobs]
        return [torch.tensor(weights) for weights in self._answers(requests)]

    def evaluate(self, vector: Tensor) -> Metrics:
        batches = range(evaluation_batches(self._task))
        sums = self._answers([Request("evaluate_batch", vector, (at,)) for at in batches])
        return metrics_of(self._task, [each.tolist() for each in sums])

    def evaluate_own(self, vector: Tensor, node: int) -> Metrics:
        (sums,) = self._answers([Request("evaluate_own", vector, (node,))])
        return metrics_of(self._task, [sums.tolist()], node)

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
        # By base, so that a worker rarely needs new weights.
        waiting = deque(sorted(requests, key=lambda request: id(request.vector)))
        running: dict[Hashable, tuple[W, list[Request]]] = {}
        while waiting or running:
            if waiting:
                self._hand_out(waiting, running)
            worker, share = running.pop(self._first(list(running)))
            try:
                answers, spent_s = worker.take()
                found |= zip(map(id, share), answers, strict=True)
                self.workers_cpu_s += spent_s
            except WorkerLostError as loss:
                self._replace(worker, share, loss)
                waiting.extendleft(reversed(share))
        return [found[id(request)] for request in requests]

    def _hand_out(self, waiting: deque[Request], running: dict[Hashable, tuple[W, list[Request]]]) -> None:
        at_work = [worker for worker, _ in running.values()]
        idle = [worker for worker in self._able(not running) if worker not in at_work]
        for others, worker in zip(reversed(range(len(idle))), idle, strict=True):
            if waiting:
                share = self._share(worker, waiting, -(-len(waiting) // (1 + others)))
                running[worker.give(share)] = worker, share

    def _replace(self, lost: W, share: Sequence[Request], loss: WorkerLostError) -> None:
        for request in share:
            request.losses += 1
        if share[0].losses >= MOST_LOSSES:
            training = "training node {} in round {}".format
            what = training(*share[0].arguments) if share[0].method == "train" else "evaluating"
            died = f"{MOST_LOSSES} worker processes died on the same work, {what} ({loss})"
            raise TaskError(f"task {self._task.name}: {died}: is there enough memory?")
        lost.stop()
        self._workers[self._workers.index(lost)] = self._new_worker()


class WorkerProcess:
    def __init__(self, task: Path) -> None:
        context = _context()
        self.connection, far_end = context.Pipe()
        self.process = context.Process(target=work, args=(far_end, task), daemon=True)
        self.process.start()
        far_end.close()
        self._sent: Tensor | None = None

    def give(self, share: Sequence[Request]) -> Connection:
        (request,) = share
        # Weights only if they are not those of the request before.
        weights = None if request.vector is self._sent else request.vector.numpy()
        self._sent = request.vector
        with suppress(OSError):  # a process that is gone is found out when its answer is read
            self.connection.send((request.method, weights, *request.arguments))
        return self.connection

    def take(self) -> tuple[list[NDArray[Any]], float]:
        try:
            answer: tuple[NDArray[Any], float] | str = self.connection.recv()
        except (EOFError, OSError):
            self.process.join(timeout=5)  # it has closed its end
            raise WorkerLostError(f"exit code {self.process.exitcode}") from None
        if isinstance(answer, str):
            raise TaskError(answer)
        return [answer[0]], answer[1]

    def stop(self) -> None:
        self.connection.close()
        self.process.terminate()
        self.process.join()
        self.process.close()


class ProcessesEngine(PoolEngine[WorkerProcess]):
    def __init__(self, task: Task, workers: int | None = None) -> None:
        count = workers or usable_cores()
        if count < 1:
            raise PlexusError(f"workers is {workers}: the engine processes needs at least 1")
        self._folder = tempfile.TemporaryDirectory(prefix="plexus-task-")
        self._path = Path(self._folder.name) / "task.pt"
        try:
            _pack(task, self._path)
            super().__init__(task, count)
        except PlexusError:
            self._folder.cleanup()
            raise

    def close(self) -> None:
        super().close()
        self._folder.cleanup()

    def _new_worker(self) -> WorkerProcess:
        return WorkerProcess(self._path)

    def _first(self, answers: Sequence[Any]) -> Any:
        return wait(answers)[0]


def work(connection: Connection, task: Path) -> None:
    """What a worker process does: answers requests, or says why not, until nobody is there any more."""
    # Ctrl-C reaches every process of the terminal; when to stop is for the engine to say.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    trainer: Trainer | None = None
    vector, told_s = torch.empty(0), 0.0
    answer: tuple[NDArray[Any], float] | str
    with suppress(EOFError, OSError):
        while True:
            method, weights, *arguments = connection.recv()
            try:
                # From a folder that only we can write; pages are shared until somebody writes: nobody does.
                trainer = trainer or Trainer(torch.load(task, mmap=True, weights_only=False), CPU)
                vector = vector if weights is None else torch.tensor(weights)
                found = getattr(trainer, method)(vector, *arguments).numpy()
                spent_s = cpu_s() - told_s
                told_s += spent_s
                answer = found, spent_s
            except PlexusError as error:
                answer = str(error)
            except Exception as error:
                answer = f"a worker process failed: {described(error)}"
            connection.send(answer)


def _context() -> multiprocessing.context.ForkServerContext | multiprocessing.context.SpawnContext:
    """How processes start: never by forking this one, which may have threads that hold locks."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    # Imports torch once, in the server; workers are forks of that.
    context.set_forkserver_preload([__name__])
    return context


def _pack(task: Task, path: Path) -> None:
    """Write `task` to a file whose tensors all processes map: the data is neither copied per worker nor put
    into shared memory, which is small in containers."""
    try:
        torch.save(task, path, pickle_protocol=5)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        remedy = "use the engine inline, or define its functions at the top of a module"
        cannot = f"task {task.name} cannot be sent to worker processes"
        raise PlexusError(f"{cannot}, {remedy}: {error}") from error
