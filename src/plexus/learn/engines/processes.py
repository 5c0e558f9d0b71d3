"""A pool of processes on this machine's cores: for convolution networks without a GPU."""

from __future__ import annotations

import io
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

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plexus.errors import PlexusError, TaskError, described
from plexus.learn.engines.worker_pool import PoolEngine, RemoteTrainer, Request, WorkerLostError
from plexus.learn.task import Task
from plexus.machine import usable_cores

LARGE_BYTES = 1 << 16
PICKLE = "task.pickle"


class ProcessesEngine(PoolEngine):
    """Trains on several cores of this machine."""

    name = "processes"

    def __init__(self, task: Task, workers: int | None = None) -> None:
        count = workers or usable_cores()
        if count < 1:
            raise PlexusError(f"workers is {workers}: the engine processes needs at least 1")
        self._folder = tempfile.TemporaryDirectory(prefix="plexus-task-")
        try:
            pack(task, Path(self._folder.name))
            super().__init__(task, count)
        except PlexusError:
            self._folder.cleanup()
            raise

    def close(self) -> None:
        super().close()
        self._folder.cleanup()

    def _new_worker(self) -> WorkerProcess:
        return WorkerProcess(self._folder.name)

    def _first(self, answers: Sequence[Any]) -> Any:
        return wait(answers)[0]


class WorkerProcess:
    """A process, and which weights it was sent last."""

    def __init__(self, folder: str) -> None:
        context = _context()
        self.connection, far_end = context.Pipe()
        self.process = context.Process(target=work, args=(far_end, folder), daemon=True)
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


def work(connection: Connection, folder: str) -> None:
    """What a worker process does: answers requests, or says why not, until nobody is there any more."""
    # Ctrl-C reaches every process of the terminal; when to stop is for the engine to say.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    worker: RemoteTrainer | None = None
    answer: tuple[NDArray[Any], float] | str
    with suppress(EOFError, OSError):
        while True:
            request = connection.recv()
            try:
                worker = worker or RemoteTrainer(unpack(Path(folder)))
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


def pack(task: Task, folder: Path) -> None:
    """Write `task` into the empty `folder`: large arrays as files that all processes map, the rest pickled.

    So arrays are neither copied per worker nor put into shared memory, which is small in containers. Only our
    own worker processes read this, from a folder that only we can write.
    """
    files = 0

    def is_small(buffer: pickle.PickleBuffer) -> bool:
        nonlocal files
        content = buffer.raw()
        if content.nbytes >= LARGE_BYTES:
            (folder / f"{files:06}").write_bytes(content)
            files += 1
        return content.nbytes < LARGE_BYTES

    text = io.BytesIO()
    try:
        _Pickler(text, protocol=5, buffer_callback=is_small).dump(task)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise PlexusError(
            f"task {task.name} cannot be sent to worker processes, use the engine inline, or define"
            f" its functions at the top of a module: {error}"
        ) from error
    (folder / PICKLE).write_bytes(text.getvalue())


class _Pickler(pickle.Pickler):
    def reducer_override(self, thing: Any) -> Any:
        """Large tensors as arrays, which `pickle` can keep out of its text; torch's own cannot be."""
        if type(thing) is Tensor and thing.nbytes >= LARGE_BYTES:
            return torch.from_numpy, (thing.detach().cpu().numpy(),)
        return NotImplemented


def unpack(folder: Path) -> Task:
    """Read the task that `pack` wrote."""
    # Copy on write: pages are shared until somebody writes, which nobody does.
    arrays = [np.memmap(path, mode="c") for path in sorted(folder.glob("[0-9]*"))]
    task: Task = pickle.loads((folder / PICKLE).read_bytes(), buffers=arrays)
    return task
