"""Runs side by side, a process each on its own core, until all are done or somebody stops them."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from plexus.cli.progress import Tick
from plexus.errors import PlexusError
from plexus.runs.directory import claim
from plexus.studies.plan import Planned

# A process that carries out one run after the other, and tells its parent how far it came.


class Job(Struct, frozen=True):
    """What a worker is asked to do: everything as text, so that it means the same in any process."""

    spec_toml: str
    base_dir: str
    out: str
    resume: bool
    device: str | None


class Word(Struct, frozen=True):
    """What a worker says: how far it is, or how a job ended."""

    kind: str
    """`at`, `done`, `stopped` or `failed`."""
    simulated_s: float = 0.0
    metric: str = ""
    text: str = ""


class Reporter:
    """Passes on how far a run is."""

    def __init__(self, parent: Connection) -> None:
        self._parent = parent
        self._told_s = -1.0

    def tick(self, at: Tick) -> None:
        """Tell the parent, ten times per simulated hour at most."""
        if at.simulated_s >= self._told_s + 360:
            self._told_s = at.simulated_s
            self._parent.send(Word("at", at.simulated_s, at.metric))


def main(parent: Connection) -> None:
    """Work until the parent has no more, or is gone."""
    # Ctrl-C reaches all processes of a terminal at once; the parent alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # between two runs
    try:
        while True:
            job: Job | None = parent.recv()
            if job is None:
                return
            parent.send(_carry_out(job, parent))
    except (EOFError, OSError, KeyboardInterrupt):
        return


def _carry_out(job: Job, parent: Connection) -> Word:
    from plexus.cli.run import stoppable
    from plexus.experiment.simulation import Machinery, simulate
    from plexus.spec.experiment import parse_spec

    options: dict[str, Any] = {"workers": 1, "device": job.device}
    try:
        with stoppable(Reporter(parent), [signal.SIGTERM]) as watched:
            result = simulate(
                parse_spec(job.spec_toml, job.out),
                Path(job.base_dir),
                Path(job.out),
                watched,
                Machinery(**options),
                resume=job.resume,
            )
    except (PlexusError, MemoryError, RuntimeError) as error:
        return Word("failed", text=f"{type(error).__name__}: {error}")
    return Word("stopped" if result.interrupted else "done", result.simulated_s)


ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Threads of numerical libraries: one for each process, which has one core."""
LOOK_EVERY_S = 0.2


class Watcher(Protocol):
    """Who wants to see the runs progress."""

    def began(self, run: Planned) -> None: ...
    def at(self, run: Planned, simulated_s: float, metric: str) -> None: ...
    def ended(self, run: Planned, word: Word) -> None: ...
    def look(self) -> None: ...


@dataclass
class Worker:
    """A process and the run it is at."""

    process: SpawnProcess
    pipe: connection.Connection
    run: Planned | None = None


class Pool:
    """As many workers as there are cores, or runs if those are fewer."""

    def __init__(self, jobs: int, device: str | None) -> None:
        self._jobs = jobs
        self._device = device
        self._workers: list[Worker] = []
        self.failures: dict[str, str] = {}
        """By run directory: what went wrong."""

    def carry_out(self, runs: Sequence[Planned], watcher: Watcher) -> None:
        """Do all `runs`. Ctrl-C stops those under way, keeps what they have, and is raised again."""
        todo = deque(sorted(runs, key=lambda run: -run.cost))
        try:
            for _ in range(min(self._jobs, len(todo))):
                self._workers.append(self._new_worker())
            while todo or any(each.run for each in self._workers):
                for idle in (each for each in self._workers if each.run is None and todo):
                    self._begin(idle, todo.popleft(), watcher)
                self._listen(watcher)
                watcher.look()
        except KeyboardInterrupt:
            with _deaf_to_ctrl_c():
                self._stop(watcher)
            raise
        finally:
            self._end()

    def _begin(self, idle: Worker, run: Planned, watcher: Watcher) -> None:
        resume = run.can_resume
        if not resume:
            # What is there has no result and nothing to go on from.
            claim(run.out, run.spec.digest(), force=True)
        idle.run = run
        spec = run.spec.to_toml()
        idle.pipe.send(Job(spec, str(run.base_dir), str(run.out), resume, self._device))
        watcher.began(run)

    def _listen(self, watcher: Watcher) -> None:
        pipes = {each.pipe: each for each in self._workers if each.run is not None}
        for pipe in connection.wait(list(pipes), LOOK_EVERY_S):
            assert isinstance(pipe, connection.Connection)
            each = pipes[pipe]
            assert each.run is not None
            try:
                word: Word = pipe.recv()
            except (EOFError, OSError):
                each.process.join()
                word = Word("failed", text=f"its process ended with {each.process.exitcode}")
                self._workers[self._workers.index(each)] = self._new_worker()
            if word.kind == "at":
                watcher.at(each.run, word.simulated_s, word.metric)
                continue
            if word.kind == "failed":
                self.failures[str(each.run.out)] = word.text
            watcher.ended(each.run, word)
            each.run = None

    def _stop(self, watcher: Watcher) -> None:
        """Ask every worker to write down what it has, and wait until it did."""
        busy = [each for each in self._workers if each.run is not None]
        for each in busy:
            if each.process.pid is not None and each.process.is_alive():
                os.kill(each.process.pid, signal.SIGTERM)
        for each in busy:
            while each.run is not None:
                try:
                    word: Word = each.pipe.recv()
                except (EOFError, OSError):
                    word = Word("stopped")
                if word.kind != "at":
                    watcher.ended(each.run, word)
                    each.run = None

    def _end(self) -> None:
        for each in self._workers:
            each.pipe.close()  # a worker whose parent has no more to say ends
        for each in self._workers:
            each.process.join(5)
            if each.process.is_alive():
                each.process.kill()
                each.process.join()
        self._workers = []

    def _new_worker(self) -> Worker:
        context = get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=main, args=(there,), daemon=True)
        with _environment(dict.fromkeys(ONE_THREAD, "1")):
            process.start()
        there.close()
        return Worker(process, here)


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """What a process that is started now sees."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """An impatient second Ctrl-C does not cut short what the first one asked for."""
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {each: signal.signal(each, signal.SIG_IGN) for each in signals}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
