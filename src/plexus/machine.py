"""This machine: the cores it gives to a process, what the process has cost so far, and a pool of processes.

The pool is for work that takes long: each process has a core of its own and is given one job at a time. What
`concurrent.futures` has not: a job may say how far it is, a process that dies costs its own job and no other,
and on Ctrl-C those at work are asked to stop (SIGTERM) and heard out: they keep what they have.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NamedTuple

from plexus.errors import described

Say = Callable[[Any], None]
"""How a job tells how far it is. To call it is to be ready to stop there: it raises `KeyboardInterrupt`."""
Work = Callable[[Any, Say], Any]
"""What is done with a job, in another process; a function of some module."""

ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Threads of numerical libraries: one for each process, which has one core."""
LOOK_EVERY_S = 0.2
SAY_EVERY_S = 0.1


def usable_cores() -> int:
    """How many processors this process may use: in a container or a batch job fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_s() -> float:
    """The processor time that this process has taken, in seconds."""
    return time.process_time()


def peak_mb() -> float:
    """The most memory this process ever held, in megabytes of 10⁶ bytes."""
    status = Path("/proc/self/status")
    if status.exists():
        # On Linux ru_maxrss survives exec: a child of a large process would report its parent's size.
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    import resource  # here: Windows has none

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


class Heard(NamedTuple):
    """News of a job."""

    job: Any
    kind: Literal["said", "done", "failed", "stopped"]
    """It goes on; it came to its end; it went wrong; its process ended after it was asked to stop."""
    value: Any
    """What it said; what came of it; what went wrong, in words."""


@dataclass(eq=False)
class _Worker:
    process: SpawnProcess
    pipe: Connection
    job: Any = None


class Pool:
    """As many processes as wanted, or jobs if those are fewer."""

    def __init__(self, work: Work, count: int) -> None:
        self._work = work
        self._count = count
        self._workers: list[_Worker] = []
        self._is_stopping = False

    def run(
        self, jobs: Iterable[Any], hear: Callable[[Heard], None], look: Callable[[], None] = lambda: None
    ) -> None:
        """Do all `jobs`, each taken when a process is free for it.

        News goes to `hear`; `look` is called every so often. Ctrl-C stops those under way and is raised.
        """
        waiting = iter(jobs)
        try:
            while self._feed(waiting):
                self._listen(hear)
                look()
        except KeyboardInterrupt:
            with stopped_by(signal.SIG_IGN):  # a second one does not cut short what the first asked for
                self._stop(hear)
            raise
        finally:
            self._close()

    def _feed(self, waiting: Iterator[Any]) -> bool:
        """Give those who have none a job. Whether anybody has one."""
        idle = [worker for worker in self._workers if worker.job is None]
        while idle or len(self._workers) < self._count:
            job = next(waiting, None)
            if job is None:
                break
            worker = idle.pop() if idle else self._start()
            worker.job = job
            with suppress(OSError):  # it is gone: to be noticed when listening
                worker.pipe.send(job)
        return any(worker.job is not None for worker in self._workers)

    def _listen(self, hear: Callable[[Heard], None]) -> None:
        busy: dict[Any, _Worker] = {each.pipe: each for each in self._workers if each.job is not None}
        for pipe in connection.wait(list(busy), LOOK_EVERY_S):
            worker = busy[pipe]
            try:
                kind, value = worker.pipe.recv()
            except (EOFError, OSError):
                worker.process.join()
                kind = "stopped" if self._is_stopping else "failed"
                value = f"its process ended with {worker.process.exitcode}"
                self._workers.remove(worker)
            news = Heard(worker.job, kind, value)
            if kind != "said":
                worker.job = None
            hear(news)

    def _stop(self, hear: Callable[[Heard], None]) -> None:
        """Ask all at work to come to an end, and wait until they did."""
        self._is_stopping = True
        for worker in self._workers:
            worker.process.terminate()
        while any(worker.job is not None for worker in self._workers):
            self._listen(hear)

    def _close(self) -> None:
        for worker in self._workers:
            worker.pipe.close()  # one whose parent has no more to say ends
            if worker.job is not None:
                worker.process.kill()
        for worker in self._workers:
            worker.process.join(5)
            worker.process.kill()
            worker.process.join()
        self._workers = []

    def _start(self) -> _Worker:
        context = get_context("spawn")  # not fork: threads of numerical libraries do not survive it
        here, there = context.Pipe()
        process = context.Process(target=_serve, args=(there, self._work), daemon=True)
        before = dict(os.environ)
        os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
        try:
            process.start()
        finally:
            for name in ONE_THREAD:
                del os.environ[name]
            os.environ.update(before)
        there.close()
        self._workers.append(_Worker(process, here))
        return self._workers[-1]


def _serve(parent: Connection, work: Work) -> None:
    """In a process of the pool: work until the parent has no more, or is gone."""
    # Ctrl-C reaches all processes of a terminal at once; the parent alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # who has no job has nothing to keep
            job = parent.recv()
            speaker = _Speaker(parent)
            signal.signal(signal.SIGTERM, speaker.ask)
            try:
                answer = "done", work(job, speaker)
            except Exception as error:
                answer = "failed", described(error)
            parent.send(answer)


class _Speaker:
    """Passes on what a job says, every so often; once asked to stop, it stops the job instead.

    A job that has said nothing yet has nothing to keep, and stops at once.
    """

    def __init__(self, parent: Connection) -> None:
        self._parent = parent
        self._due_s = 0.0
        self._has_spoken = self._is_asked = False

    def __call__(self, value: Any) -> None:
        self._has_spoken = True
        if self._is_asked:
            raise KeyboardInterrupt
        if time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + SAY_EVERY_S
            self._parent.send(("said", value))

    def ask(self, number: int, frame: FrameType | None) -> None:
        if not self._has_spoken:
            raise KeyboardInterrupt
        self._is_asked = True


@contextmanager
def stopped_by(handler: Any) -> Iterator[None]:
    """Ctrl-C and a polite `kill` are for `handler`; afterwards for whom they were for before."""
    before = {each: signal.signal(each, handler) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, other in before.items():
            signal.signal(each, other)


def end_with_input() -> None:
    """End this process when its standard input ends: when whoever started it is gone or closes it."""

    def wait() -> None:
        sys.stdin.read()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()
