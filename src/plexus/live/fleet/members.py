"""The processes of a fleet: one for each node, over all its lives, and how traces let them come and go; and
one that their training workers are forked from, so that a fleet on one machine starts quickly."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import os
import signal
import sys
import time
from asyncio import StreamReader, StreamWriter
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from plexus.errors import PlexusError, TaskError
from plexus.files import socket_in
from plexus.live.operator.log import LOG_FILE
from plexus.live.room import BOUNDLESS
from plexus.live.worker import client as channel
from plexus.live.worker.client import WORKER_MODULE, Evaluated, EvaluateJob, Ready, SetUp, Stopped
from plexus.rng import stream

if TYPE_CHECKING:
    from plexus.traces.build import TracesSpec
    from plexus.traces.world import World

Hired = tuple[StreamReader, StreamWriter, Ready, memoryview]
"""A worker for one job: its socket, what it said when it was set up, and the initial model."""
WORKERS_SOCKET, WORKERS_LOG = "forkserver.sock", "forkserver.log"
START_S, STOP_S = 60.0, 20.0
"""How long the fork server may take to be there, and a process to end."""
FAILURES = ("training_failed", "evaluation_failed")
"""What a node's log calls it when its worker could not do a job."""


@dataclass(eq=False)
class LogReader:
    """One node's log file, read while it grows: how it fares, and why it ended.

    What it did is in its tables (`live.operator.peer_tables`).
    """

    _path: Path
    _at: int = 0
    _rest: bytes = b""
    newest: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By event, its newest line."""
    counts: Counter[str] = field(default_factory=Counter)
    """By event, how many lines there are."""
    errors: int = 0
    last_words: str = ""
    """The last line that is not of the log: an interpreter's, or why the peer did not start."""

    @property
    def round(self) -> int:
        """The newest round that this node aggregated, or made a model of its own in."""
        return max(self._number("AggregationCompleted"), self._number("ModelUpdated"))

    @property
    def worked_on(self) -> int:
        """The newest round that it trained in or aggregated."""
        return max(self.round, self._number("TrainingStarted"))

    @property
    def failure(self) -> str:
        return next((str(self.newest[event]["reason"]) for event in FAILURES if event in self.newest), "")

    def read(self) -> None:
        """Take in the lines written since the last time."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._at)
            text = file.read()
        self._at += len(text)
        *lines, self._rest = (self._rest + text).split(b"\n")
        for line in lines:
            try:
                said = msgspec.json.decode(line)
                self.errors += said["level"] == "error"
                self.newest[said["event"]] = said
                self.counts[said["event"]] += 1
            except (msgspec.DecodeError, KeyError, TypeError):
                # Not one of ours: an interpreter's last words, a line cut by kill -9.
                self.errors += 1
                self.last_words = line.decode(errors="replace")

    def _number(self, event: str) -> int:
        return int(self.newest.get(event, {}).get("round", 0))


class NodeResult(Struct, frozen=True, kw_only=True):
    number: int
    id: str
    round: int
    trained: int
    aggregated: int
    sent_bytes: int
    received_bytes: int
    starts: int
    errors: int
    exit_status: int
    """0, or what it ended with when nobody had told it to end, or otherwise than it should have."""
    last_words: str
    """What it said last outside its log."""
    failure: str
    """Why it could not train or evaluate, if it could not."""


@dataclass(eq=False)
class Member:
    """One process of the fleet, over all its lives."""

    number: int
    home: Path
    id: str
    command: list[str]
    process: asyncio.subprocess.Process | None = None
    starts: int = 0
    unexpected: list[int] = field(default_factory=list)
    _is_told: bool = False
    """To end: then it does not do so by itself."""

    def __post_init__(self) -> None:
        self.log = LogReader(self.home / LOG_FILE)

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    @property
    def has_finished(self) -> bool:
        """The session has come to its end, and so has this process."""
        return not self.is_running and bool(self.log.counts["session_ended"])

    async def start(self) -> None:
        if self.is_running or self.has_finished:
            return
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        pipe = asyncio.subprocess.PIPE  # by whose end it knows that the fleet is gone
        with (self.home / LOG_FILE).open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self.command, stdin=pipe, stderr=log, env=environment, process_group=0
            )  # Ctrl-C is for the fleet alone
        self.starts += 1

    async def end(self, number: signal.Signals) -> None:
        """Send a signal and wait for the end; a process that ends otherwise is noted."""
        if self.process is None or not self.is_running:
            return
        self._is_told = True
        self.process.send_signal(number)
        try:
            async with asyncio.timeout(STOP_S):
                status = await self.process.wait()
        except TimeoutError:
            self.process.kill()
            status = await self.process.wait()
        self.log.read()
        is_polite = number is signal.SIGTERM and self.log.counts["listening"] == self.starts
        if status != 0 if is_polite else status not in (0, -number):
            self.unexpected.append(status)
        self.process, self._is_told = None, False

    def notice_death(self) -> bool:
        """Whether the process ended by itself since last asked."""
        if self.process is None or self.process.returncode is None or self._is_told:
            return False
        self.log.read()
        status, self.process = self.process.returncode, None
        if status == 0 and self.has_finished:
            return False
        self.unexpected.append(status)
        return True

    def result(self, state: dict[str, Any]) -> NodeResult:
        """`state`: its newest row of `states.csv`."""
        log = self.log
        return NodeResult(
            number=self.number,
            id=self.id,
            round=log.worked_on,
            trained=log.counts["TrainingStarted"] or log.counts["ModelUpdated"],
            aggregated=log.counts["AggregationCompleted"],
            sent_bytes=state.get("sent_bytes", 0),
            received_bytes=state.get("received_bytes", 0),
            starts=self.starts,
            errors=log.errors,
            exit_status=self.unexpected[0] if self.unexpected else 0,
            last_words=log.last_words,
            failure=log.failure,
        )


class TraceChurn:
    """The traces' changes in the order of their times, `speed` times as fast."""

    def __init__(
        self, members: list[Member], world: World, traces: TracesSpec, seed: int, speed: float
    ) -> None:
        self._members = members
        self._speed = speed
        self._graceful_share = traces.graceful_share
        self._rng = stream(seed, "leaves")

        def changes(node: int) -> Iterator[tuple[float, int, bool]]:
            return ((at_s, node, online) for at_s, online in world.availability.toggles(node))

        self._changes = heapq.merge(*map(changes, range(len(members))))
        self._next = next(self._changes, None)

    async def go_on(self, now_s: float) -> None:
        """Do everything that is due by `now_s` of real time."""
        while self._next is not None and self._next[0] <= now_s * self._speed:
            _, node, online = self._next
            if online:
                await self._members[node].start()
            else:
                is_graceful = self._rng.random() < self._graceful_share
                await self._members[node].end(signal.SIGTERM if is_graceful else signal.SIGKILL)
            self._next = next(self._changes, None)


@dataclass(eq=False)
class ForkServer:
    """The process that a fleet's training workers are forked from, with torch imported once."""

    _directory: Path
    """Where its socket and its log are."""
    _process: asyncio.subprocess.Process | None = None
    files = (WORKERS_SOCKET, WORKERS_LOG)

    @property
    def socket(self) -> Path:
        return socket_in(self._directory, WORKERS_SOCKET, "use a shorter --out")

    async def start(self) -> None:
        """Start it, unless it runs; returns when workers can be asked for."""
        if self._process is not None:
            return
        command = [sys.executable, "-m", WORKER_MODULE, "--fork-server", str(self.socket)]
        self.socket.unlink(missing_ok=True)
        with (self._directory / WORKERS_LOG).open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.PIPE, stderr=log
            )
        until = time.monotonic() + START_S
        while not self.socket.exists():
            if self._process.returncode is not None or time.monotonic() > until:
                raise PlexusError(f"the training workers did not start: {self._said}")
            await asyncio.sleep(0.05)

    @property
    def _said(self) -> str:
        """The last line that it or a worker wrote."""
        lines = (self._directory / WORKERS_LOG).read_text(errors="replace").splitlines()
        return lines[-1] if lines else "no reason given"

    async def ask(self, setup: SetUp) -> Ready:
        """What a worker says that is set up like this; its complaint is raised."""
        async with self._worker(setup, "tried its task") as (_, _, ready, _):
            return ready

    async def evaluate(self, setup: SetUp, model: memoryview | None) -> Evaluated:
        """The metric of a model, or of the initial one."""
        async with self._worker(setup, "measured the model") as (reader, writer, _, initial):
            await channel.send_async(writer, EvaluateJob(1), initial if model is None else model)
            answer, _ = await channel.receive_async(reader)
        if isinstance(answer, Stopped):
            raise PlexusError(f"the newest model cannot be measured: {answer.reason}")
        assert isinstance(answer, Evaluated)
        return answer

    @contextlib.asynccontextmanager
    async def _worker(self, setup: SetUp, job: str) -> AsyncIterator[Hired]:
        try:
            reader, writer = await asyncio.open_unix_connection(self.socket)
            with contextlib.closing(writer):
                yield reader, writer, *await channel.set_up(reader, writer, setup, BOUNDLESS)
        except (OSError, EOFError):
            raise TaskError(f"the training worker died as it {job}: {self._said}") from None

    async def close(self) -> None:
        if self._process is not None:
            if self._process.returncode is None:
                self._process.kill()
            await self._process.wait()

    def tidy_up(self) -> None:
        for name in self.files:
            (self._directory / name).unlink(missing_ok=True)
