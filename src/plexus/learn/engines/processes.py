"""A pool of processes on this machine's cores: for convolution networks without a GPU."""

from __future__ import annotations

import multiprocessing
import multiprocessing.context
import pickle
import signal
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from plexus.errors import PlexusError, TaskError, described
from plexus.learn.engines.worker_pool import PoolEngine, RemoteTrainer, Request, WorkerLostError
from plexus.learn.task import Task
from plexus.machine import usable_cores


class ProcessesEngine(PoolEngine):
    """Trains on several cores of this machine."""

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


class WorkerProcess:
    """A process, and which weights it was sent last."""

    def __init__(self, task: Path) -> None:
        context = _context()
        self.connection, far_end = context.Pipe()
        self.process = context.Process(target=work, args=(far_end, task), daemon=True)
        self.process.start()
        far_end.close()
        self._sent: Tensor | None = None

    def give(self, request: Request) -> Connection:
        """Send a request; weights only if they are not those of the request before."""
        weights = None if request.vector is self._sent else request.vector.numpy()
        self._sent = request.vector
        with suppress(OSError):  # a process that is gone is found out when its answer is read
            self.connection.send((request.method, weights, *request.arguments))
        return self.connection

    def take(self) -> tuple[NDArray[Any], float]:
        """The answer to the request."""
        try:
            answer = self.connection.recv()
        except (EOFError, OSError):
            self.process.join(timeout=5)  # it has closed its end
            raise WorkerLostError(f"exit code {self.process.exitcode}") from None
        if isinstance(answer, str):
            raise TaskError(answer)
        result, spent_s = answer
        return result, spent_s

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        self.connection.close()
        self.process.terminate()
        self.process.join()
        self.process.close()


def work(connection: Connection, task: Path) -> None:
    """What a worker process does: answers requests, or says why not, until nobody is there any more."""
    # Ctrl-C reaches every process of the terminal; when to stop is for the engine to say.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    worker: RemoteTrainer | None = None
    answer: tuple[NDArray[Any], float] | str
    with suppress(EOFError, OSError):
        while True:
            request = connection.recv()
            try:
                # From a folder that only we can write; pages are shared until somebody writes: nobody does.
                worker = worker or RemoteTrainer(torch.load(task, mmap=True, weights_only=False))
                answer = worker.answer(*request)
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
        raise PlexusError(
            f"task {task.name} cannot be sent to worker processes, use the engine inline, or define"
            f" its functions at the top of a module: {error}"
        ) from error
