"""Runs side by side, a process each on its own core, until all are done or somebody stops them."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Literal

from msgspec import Struct

from plexus.errors import PlexusError
from plexus.experiment.progress import Tick, stoppable
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


class Ending(Struct, frozen=True):
    """How a job ended. Before that, a worker says how far it is with ticks."""

    kind: Literal["done", "stopped", "failed"]
    text: str = ""


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


def _carry_out(job: Job, parent: Connection) -> Ending:
    from plexus.experiment.simulation import Machinery, simulate
    from plexus.spec.experiment import parse_spec

    told_s = -TICK_EVERY_S

    def tell(at: Tick) -> None:
        nonlocal told_s
        if at.simulated_s >= told_s + TICK_EVERY_S:
            told_s = at.simulated_s
            parent.send(at)

    try:
        with stoppable(tell, [signal.SIGTERM]) as progress:
            result = simulate(
                parse_spec(job.spec_toml, job.out),
                Path(job.base_dir),
                Path(job.out),
                progress,
                Machinery(workers=1, device=job.device),
                resume=job.resume,
            )
    except (PlexusError, MemoryError, RuntimeError) as error:
        return Ending("failed", f"{type(error).__name__}: {error}")
    return Ending("stopped" if result.interrupted else "done")


ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Threads of numerical libraries: one for each process, which has one core."""
LOOK_EVERY_S = 0.2
TICK_EVERY_S = 360.0
"""A worker says how far it is ten times per simulated hour at most."""


@dataclass
class Standing:
    """How far a set of runs has come."""

    runs: Sequence[Planned]
    done_before: int = 0
    """Of other runs, which need not be done again."""
    under_way: dict[Path, tuple[Planned, Tick | None]] = field(default_factory=dict)
    """By run directory."""
    done: int = 0
    failures: dict[Path, str] = field(default_factory=dict)
    """By run directory: what went wrong."""
    _finished: float = 0.0

    def ended(self, run: Planned, ending: Ending) -> None:
        """Take note of it; what was stopped goes on another time."""
        del self.under_way[run.out]
        if ending.kind == "failed":
            self.failures[run.out] = ending.text
        if ending.kind != "stopped":
            self.done += 1
            self._finished += run.cost

    @property
    def share(self) -> float:
        """How much is done, by a guess at what runs cost."""
        all_runs = sum(run.cost for run in self.runs)
        partly = sum(
            run.cost * at.simulated_s / 3600 / run.spec.hours for run, at in self.under_way.values() if at
        )
        return (self._finished + partly) / all_runs if all_runs else 1.0


@dataclass
class Worker:
    """A process and the run it is at."""

    process: SpawnProcess
    pipe: connection.Connection
    run: Planned | None = None


class Pool:
    """As many workers as there are cores, or runs if those are fewer."""

    def __init__(self, jobs: int, device: str | None, standing: Standing) -> None:
        self._jobs = jobs
        self._device = device
        self._workers: list[Worker] = []
        self._standing = standing

    def carry_out(self, progress: Callable[[Standing], None]) -> None:
        """Do all runs. Ctrl-C stops those under way, keeps what they have, and is raised again."""
        todo = deque(sorted(self._standing.runs, key=lambda run: -run.cost))
        try:
            for _ in range(min(self._jobs, len(todo))):
                self._workers.append(self._new_worker())
            while todo or any(each.run for each in self._workers):
                for idle in (each for each in self._workers if each.run is None and todo):
                    self._begin(idle, todo.popleft())
                self._listen()
                progress(self._standing)
        except KeyboardInterrupt:
            with _deaf_to_ctrl_c():
                self._stop()
            raise
        finally:
            self._end()

    def _begin(self, idle: Worker, run: Planned) -> None:
        resume = run.can_resume
        if not resume:
            # What is there has no result and nothing to go on from.
            claim(run.out, run.spec.digest(), force=True)
        idle.run = run
        spec = run.spec.to_toml()
        idle.pipe.send(Job(spec, str(run.base_dir), str(run.out), resume, self._device))
        self._standing.under_way[run.out] = (run, None)

    def _listen(self) -> None:
        pipes = {each.pipe: each for each in self._workers if each.run is not None}
        for pipe in connection.wait(list(pipes), LOOK_EVERY_S):
            assert isinstance(pipe, connection.Connection)
            each = pipes[pipe]
            assert each.run is not None
            try:
                said: Tick | Ending = pipe.recv()
            except (EOFError, OSError):
                each.process.join()
                said = Ending("failed", f"its process ended with {each.process.exitcode}")
                self._workers[self._workers.index(each)] = self._new_worker()
            if isinstance(said, Tick):
                self._standing.under_way[each.run.out] = (each.run, said)
                continue
            self._standing.ended(each.run, said)
            each.run = None

    def _stop(self) -> None:
        """Ask every worker to write down what it has, and wait until it did."""
        busy = [each for each in self._workers if each.run is not None]
        for each in busy:
            if each.process.pid is not None and each.process.is_alive():
                os.kill(each.process.pid, signal.SIGTERM)
        for each in busy:
            while each.run is not None:
                try:
                    said: Tick | Ending = each.pipe.recv()
                except (EOFError, OSError):
                    said = Ending("stopped")
                if isinstance(said, Ending):
                    self._standing.ended(each.run, said)
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
