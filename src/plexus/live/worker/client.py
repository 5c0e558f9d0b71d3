"""A peer's side of its training worker, which it replaces if it dies; and how the two talk.

Over a socket: a small header and then raw bytes. Headers are MessagePack, bodies are models in safetensors:
nothing is ever unpickled.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
from asyncio import StreamReader as Reader
from asyncio import StreamWriter as Writer
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from plexus.errors import MissingModuleError, PlexusError, TaskError
from plexus.live.models import LiveModel
from plexus.live.operator.log import Log
from plexus.live.room import BOUNDLESS, Room, put

WORKER_MODULE = "plexus.live.worker.process"
RESTART_S, MAX_RESTART_S = 1.0, 60.0
MOST_LOSSES = 3
"""So many workers may die of one training before it is given up."""
WORKER_DIED = "the training worker died of it"
_HEAD, PIECE_BYTES, MOST_AHEAD_BYTES = struct.Struct(">IQ"), 2**18, 2**20


class SetUp(Struct, frozen=True, tag=True):
    """To the worker, first: what to learn, and from which data."""

    spec: str
    """The session file's text."""
    data: str
    """The number of a part of the session's data, or a file."""
    folder: str = ""
    """Where a task of the user's own and relative paths in the session file are searched."""
    try_out: bool = False
    """Be ready only when a step of training and a batch of evaluation have worked."""
    home: str = ""
    """Where what a model needs to be taken home is left: the file `REST_FILE`. Nowhere if empty."""


class Ready(Struct, frozen=True, tag=True):
    """From the worker; the initial model follows."""

    metric: str
    higher_is_better: bool
    samples: int
    """How many examples this node has."""
    shared_out: int = 0
    """How many examples all nodes have together, each counted once."""
    examples: int = 0
    """How many there are to train on."""
    notes: list[str] = []
    """What somebody should know about the node's own data."""
    frozen: str = ""
    """The hash of the model's tensors that nobody trains or sends; empty if there are none."""


class TrainJob(Struct, frozen=True, tag=True):
    """To the worker; the model follows. Interrupts all earlier jobs; numbers grow."""

    job: int
    round: int


class EvaluateJob(Struct, frozen=True, tag=True):
    """To the worker; the model follows."""

    job: int


class Interrupt(Struct, frozen=True, tag=True):
    """To the worker: stop all jobs with a smaller number, within one step."""

    before: int


class Finished(Struct, frozen=True, tag=True):
    """From the worker; the trained model follows."""

    job: int
    seal: bytes
    change: float
    """How far it is from the model that the training began with."""


class Evaluated(Struct, frozen=True, tag=True):
    """From the worker: the metric and the loss on the test set, and whatever else was measured."""

    job: int
    value: float
    loss: float
    others: dict[str, float] = {}


class Stopped(Struct, frozen=True, tag=True):
    """From the worker: the job was interrupted, or failed for a reason."""

    job: int
    reason: str
    kind: str = ""
    """Of error, if it is one."""

    @property
    def error(self) -> PlexusError:
        """What the worker ran into, to be raised here."""
        kinds = {kind.__name__: kind for kind in (MissingModuleError, TaskError)}
        return kinds.get(self.kind, PlexusError)(self.reason)


Body: TypeAlias = memoryview | PlexusError
"""What follows a header, or why there is no room for it."""
Header: TypeAlias = SetUp | TrainJob | EvaluateJob | Interrupt | Ready | Finished | Evaluated | Stopped

_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Header)


def send(sock: socket.socket, header: Header, body: bytes | memoryview = b"") -> None:
    """Blocking; for the worker."""
    text = _encode(header)
    sock.sendall(_HEAD.pack(len(text), len(body)) + text)
    if len(body):
        sock.sendall(body)


def receive(sock: socket.socket) -> tuple[Header, memoryview]:
    """Blocking; EOFError when the other side is gone."""
    header_bytes, body_bytes = _HEAD.unpack(_exactly(sock, _HEAD.size))
    return _decoder.decode(_exactly(sock, header_bytes)), _exactly(sock, body_bytes)


def _exactly(sock: socket.socket, count: int) -> memoryview:
    space, filled = memoryview(bytearray(count)), 0
    while filled < count:
        if not (got := sock.recv_into(space[filled:])):
            raise EOFError("the other side is gone")
        filled += got
    return space


async def send_async(writer: asyncio.StreamWriter, header: Header, body: bytes | memoryview = b"") -> None:
    text = _encode(header)
    writer.write(_HEAD.pack(len(text), len(body)) + text)
    for at in range(0, max(1, len(body)), PIECE_BYTES):
        writer.write(body[at : at + PIECE_BYTES])
        await writer.drain()


async def receive_async(reader: asyncio.StreamReader, room: Room = BOUNDLESS) -> tuple[Header, Body]:
    """For the peer; asyncio.IncompleteReadError when the worker is gone."""
    header_bytes, left = _HEAD.unpack(await reader.readexactly(_HEAD.size))
    header = _decoder.decode(await reader.readexactly(header_bytes))
    body: Body
    try:
        body = room.space(left)
    except PlexusError as error:
        body = error  # what comes is read nevertheless
    while left:
        piece = await reader.read(min(left, PIECE_BYTES))
        if not piece:
            raise asyncio.IncompleteReadError(b"", left)
        if isinstance(body, memoryview):
            put(body, len(body) - left, piece)
        left -= len(piece)
    return header, body


async def set_up(reader: Reader, writer: Writer, setup: SetUp, room: Room) -> tuple[Ready, memoryview]:
    """For the peer: what a new worker says, and the initial model. Its complaint is raised."""
    await send_async(writer, setup)
    answer, initial = await receive_async(reader, room)
    complaint = answer.error if isinstance(answer, Stopped) else initial
    if isinstance(complaint, PlexusError):
        raise complaint
    assert isinstance(answer, Ready)
    return answer, complaint


class ModelJob(NamedTuple):
    header: TrainJob | EvaluateJob
    round: int
    model: LiveModel
    number: int = 0
    """Given back with what was measured."""


@dataclass(eq=False)
class TrainingWorker:
    """At most one training at a time; a newer one interrupts it. Evaluations wait until nothing trains."""

    _setup: SetUp
    _log: Log
    _on_trained: Callable[[int, LiveModel, float], None]
    _on_evaluated: Callable[[int, LiveModel, int, Evaluated], None]
    _fork_server: Path | None = None
    _room: Room = BOUNDLESS
    _measures_first: bool = False
    """A training waits for an evaluation under way, rather than interrupting it."""
    ready: Ready | None = None
    since_s: float | None = None
    """When the training under way began."""
    unread_since: float | None = None
    """Since when the worker does not read what it is sent."""
    failed: int = 0
    """Trainings and evaluations that came to nothing."""
    _last_job: int = 0
    _training: ModelJob | None = None
    _losses: int = 0
    """Workers that this training has cost."""
    _evaluating: ModelJob | None = None
    _to_evaluate: tuple[int, LiveModel, int] | None = None
    _outbox: asyncio.Queue[Header] = field(default_factory=asyncio.Queue)
    """Without models: the worker may stand still."""
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _process: asyncio.subprocess.Process | None = None
    _writer: Writer | None = None

    @property
    def is_evaluating(self) -> bool:
        """Or about to."""
        return self._evaluating is not None or self._to_evaluate is not None

    @property
    def round(self) -> int | None:
        return None if self._training is None else self._training.round

    async def start(self) -> memoryview:
        """Start the worker; returns the initial model."""
        reader, initial = await self._connect()
        self._tasks = [asyncio.create_task(self._supervise(reader))]
        return initial

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._disconnect()

    def train(self, round: int, model: LiveModel) -> None:
        """Train for `round`; what was under way is interrupted and its result never seen."""
        self._last_job += 1
        self._losses = 0
        self._training = ModelJob(TrainJob(self._last_job, round), round, model)
        self.since_s = asyncio.get_running_loop().time()
        if not self._measures_first or self._evaluating is None:
            self._outbox.put_nowait(self._training.header)

    def interrupt(self) -> None:
        """Stop training, within one step."""
        if self._training is not None:
            self._training = self.since_s = None
            self._outbox.put_nowait(Interrupt(self._last_job + 1))

    def evaluate(self, round: int, model: LiveModel, number: int = 0) -> None:
        """Measure `model` when nothing trains; only the newest is kept. `number` is given back."""
        self._to_evaluate = round, model, number
        self._evaluate_if_idle()

    def _evaluate_if_idle(self) -> None:
        if self._to_evaluate is None or self._training is not None or self._evaluating is not None:
            return
        self._last_job += 1
        self._evaluating = ModelJob(EvaluateJob(self._last_job), *self._to_evaluate)
        self._to_evaluate = None
        self._outbox.put_nowait(self._evaluating.header)

    def _on_answer(self, answer: Header, body: Body) -> None:
        training, evaluating = self._training, self._evaluating
        match answer:
            case Finished(job, seal, change) if training and job == training.header.job:
                if isinstance(body, PlexusError):
                    self._give_up(str(body))
                else:
                    self._training = self.since_s = None
                    self._on_trained(training.round, LiveModel(body, seal), change)
            case Stopped(job, reason) if training and job == training.header.job:
                # Nobody asked for this: bad data, or a model that cannot be trained.
                self._give_up(reason)
            case Evaluated(job) if evaluating and job == evaluating.header.job:
                self._evaluating = None
                self._on_evaluated(evaluating.round, evaluating.model, evaluating.number, answer)
            case Stopped(job, reason, kind) if evaluating and job == evaluating.header.job:
                self._evaluating = None
                if kind:  # else a training came in between
                    self.failed += 1
                    self._log.error("evaluation_failed", round=evaluating.round, reason=reason)
        is_measured = self._measures_first and self._evaluating is not evaluating
        if is_measured and training is not None and self._training is training:  # it was held back
            self._outbox.put_nowait(training.header)
        self._evaluate_if_idle()

    def _give_up(self, reason: str) -> None:
        assert self._training is not None
        self.failed += 1
        self._log.error("training_failed", round=self._training.round, reason=reason)
        self._training = self.since_s = None

    async def _supervise(self, reader: Reader) -> None:
        while True:
            try:
                await self._converse(reader)
            except (OSError, EOFError) as error:
                self._log.warning("worker_lost", reason=str(error) or type(error).__name__)
            except Exception:
                self._log.exception("failure", where="worker")
            reader = await self._replaced()
            self._resume()

    async def _replaced(self) -> Reader:
        pause_s = RESTART_S
        while True:
            await self._disconnect()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_RESTART_S)
            try:
                return (await self._connect())[0]
            except (OSError, EOFError, PlexusError) as error:
                self._log.warning("worker_not_started", reason=str(error))

    def _resume(self) -> None:
        """Give a new worker the training that was lost with the old one, unless it takes them all down."""
        self._outbox = asyncio.Queue()
        if self._evaluating is not None:
            self._log.error("evaluation_failed", round=self._evaluating.round, reason=WORKER_DIED)
            self._evaluating = None
        elif self._training is not None:
            self._losses += 1
            if self._losses == MOST_LOSSES:
                self._give_up(f"{WORKER_DIED} {MOST_LOSSES} times")
        if self._training is not None:
            self._outbox.put_nowait(self._training.header)

    async def _converse(self, reader: Reader) -> None:
        writing = asyncio.create_task(self._write())
        try:
            while True:
                answer, body = await receive_async(reader, self._room)
                try:
                    self._on_answer(answer, body)
                except Exception:
                    self._log.exception("failure", where="worker's answer")
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    async def _write(self) -> None:
        while True:
            header = await self._outbox.get()
            self.unread_since = asyncio.get_running_loop().time()
            await self._send(header)
            self.unread_since = None

    async def _send(self, header: Header) -> None:
        assert self._writer is not None
        jobs = [each for each in (self._training, self._evaluating) if each and each.header == header]
        if jobs or isinstance(header, Interrupt):  # else it is overtaken
            await send_async(self._writer, header, jobs[0].model.data if jobs else b"")

    async def _connect(self) -> tuple[Reader, memoryview]:
        reader, self._writer = await self._open()
        try:
            self.ready, initial = await set_up(reader, self._writer, self._setup, self._room)
        except EOFError:
            status = "" if self._process is None else f" with {await self._process.wait()}"
            raise TaskError(f"the training worker ended{status} before it was ready") from None
        except MissingModuleError as error:
            raise MissingModuleError(f"{error}; say with --task-dir which folder it is in") from None
        return reader, initial

    async def _open(self) -> tuple[Reader, Writer]:
        if self._fork_server is not None:
            return await asyncio.open_unix_connection(self._fork_server, limit=MOST_AHEAD_BYTES)
        mine, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", WORKER_MODULE, "--fd", str(theirs.fileno())]
            self._process = await asyncio.create_subprocess_exec(*command, pass_fds=[theirs.fileno()])
        return await asyncio.open_unix_connection(sock=mine, limit=MOST_AHEAD_BYTES)

    async def _disconnect(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()  # a worker that stands still never takes what waits for it
            with contextlib.suppress(OSError):
                await asyncio.shield(self._writer.wait_closed())  # who closes waits, too
            self._writer = self.unread_since = None
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()  # it holds nothing that must be kept
            await self._process.wait()
            self._process = None
