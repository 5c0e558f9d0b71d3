"""A pool of processes on this machine's cores: for convolution networks without a GPU.

Which worker computes what depends on who is free first; what comes out does not: a training is
determined by its base, node and round, and each worker computes on one thread like `inline`. The
weights are those of `inline`, bit for bit.
"""

from __future__ import annotations

import io
import multiprocessing
import multiprocessing.context
import pickle
import signal
import tempfile
from collections import deque
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plexus.errors import PlexusError, TaskError, described
from plexus.learn.engines import LocalTraining
from plexus.learn.task import Metrics, Task
from plexus.learn.trainer import Trainer, evaluation_batches, metrics_of
from plexus.machine import cpu_s, usable_cores

# Sends a task to another process: large arrays as files that all processes map, the rest pickled.
#
# Arrays are neither copied per worker nor put into shared memory, which is small in containers. Only
# our own worker processes read this, from a folder that only we can write.

LARGE_BYTES = 1 << 16
PICKLE = "task.pickle"


def pack(task: Task, folder: Path) -> None:
    """Write `task` into the empty `folder`."""
    buffer = io.BytesIO()
    try:
        _Packer(buffer, folder).dump(task)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise PlexusError(
            f"task {task.name} cannot be sent to worker processes, use the engine inline, or define"
            f" its functions at the top of a module: {error}"
        ) from error
    (folder / PICKLE).write_bytes(buffer.getvalue())


def unpack(folder: Path) -> Task:
    """Read the task that `pack` wrote."""
    task: Task = _Unpacker(io.BytesIO((folder / PICKLE).read_bytes()), folder).load()
    return task


class _Packer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, folder: Path) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._folder = folder
        self._names: dict[int, str] = {}
        self._kept: list[object] = []

    def persistent_id(self, thing: Any) -> tuple[str, str] | None:
        if isinstance(thing, Tensor) and thing.nbytes >= LARGE_BYTES:
            return "tensor", self._save(thing, thing.detach().cpu().numpy())
        if isinstance(thing, np.ndarray) and thing.nbytes >= LARGE_BYTES:
            return "array", self._save(thing, thing)
        return None

    def _save(self, thing: object, array: np.ndarray[Any, Any]) -> str:
        if id(thing) not in self._names:
            self._names[id(thing)] = f"{len(self._names)}.npy"
            self._kept.append(thing)
            np.save(self._folder / self._names[id(thing)], array, allow_pickle=False)
        return self._names[id(thing)]


class _Unpacker(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, folder: Path) -> None:
        super().__init__(file)
        self._folder = folder

    def persistent_load(self, saved: Any) -> Any:
        kind, name = saved
        # Copy on write: pages are shared until somebody writes, which nobody does.
        array = np.load(self._folder / name, mmap_mode="c", allow_pickle=False)
        return torch.from_numpy(array) if kind == "tensor" else array


# What a worker process of the engine `processes` does: read a request, compute, answer.
#
# A request is (kind, key, weights or None, arguments), or None to stop. `key` names the weights, which
# are sent only if they are not those of the request before. An answer is (True, result, s) or (False, why, s)
# with the seconds of processor time that were spent since the answer before.


def work(connection: Connection, folder: str) -> None:
    """Serve requests until told to stop or until nobody is there any more."""
    # Ctrl-C reaches every process of the terminal; when to stop is for the engine to say.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    worker: _Worker | None = None
    told_s = 0.0
    while True:
        try:
            request = connection.recv()
            if request is None:
                return
            try:
                worker = worker or _Worker(Trainer(unpack(Path(folder)), torch.device("cpu")))
                answer = True, worker.answer(*request)
            except PlexusError as error:
                answer = False, str(error)
            except Exception as error:
                answer = False, f"a worker process failed: {described(error)}"
            spent_s = cpu_s() - told_s
            told_s += spent_s
            connection.send((*answer, spent_s))
        except (EOFError, OSError):
            return


class _Worker:
    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._key = -1
        self._vector = trainer.initial

    def answer(self, kind: str, key: int, weights: Any, *arguments: int) -> Any:
        vector = self._known(key, weights)
        if kind == "train":
            return self._trainer.train(vector, *arguments).numpy()
        return self._trainer.evaluate_batch(vector, *arguments).tolist()

    def _known(self, key: int, weights: np.ndarray[Any, Any] | None) -> Tensor:
        if weights is not None:
            self._key, self._vector = key, torch.from_numpy(weights)
        assert key == self._key, "weights are sent unless they are those of the request before"
        return self._vector


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


class WorkerProcess:
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
        count = workers or usable_cores()
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
        self._workers: list[WorkerProcess] = []
        self._start()

    def train(self, jobs: Sequence[LocalTraining]) -> list[Tensor]:
        # By base, so that a worker rarely needs new weights.
        order = sorted(range(len(jobs)), key=lambda place: id(jobs[place].base))
        requests = [
            Request(place, "train", jobs[place].base, jobs[place].node, jobs[place].round) for place in order
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
            metrics_of(self._task, sums[start : start + batches]) for start in range(0, len(sums), batches)
        ]

    def close(self) -> None:
        self._stop()
        self._folder.cleanup()

    def _start(self) -> None:
        self._workers = [WorkerProcess(self._folder.name) for _ in range(self._count)]

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

    def _feed(self, worker: WorkerProcess, waiting: deque[Request]) -> None:
        if not waiting:
            return
        request = waiting.popleft()
        try:
            worker.give(request)
        except (BrokenPipeError, ConnectionResetError):
            self._replace(worker, waiting)

    def _replace(self, lost: WorkerProcess, waiting: deque[Request]) -> None:
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
        self._workers[place] = WorkerProcess(self._folder.name)
        self._feed(self._workers[place], waiting)


def _context() -> multiprocessing.context.ForkServerContext | multiprocessing.context.SpawnContext:
    """How processes start: never by forking this one, which may have threads that hold locks."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    # Imports torch once, in the server; workers are forks of that.
    context.set_forkserver_preload(["plexus.learn.engines.processes"])
    return context
