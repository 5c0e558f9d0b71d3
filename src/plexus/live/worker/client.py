"""The other side of training workers: a peer's, which replaces its worker if it dies, and a fleet's."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import time
from asyncio import StreamReader as Reader
from asyncio import StreamWriter as Writer
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from plexus.errors import MissingModuleError, PlexusError, TaskError
from plexus.live.models import LiveModel
from plexus.live.operator.log import Log
from plexus.live.worker import channel
from plexus.live.worker.channel import Evaluated, EvaluateJob, Finished, Interrupt, Ready, Stopped, TrainJob

WORKER_MODULE = "plexus.live.worker.process"
RESTART_S = 1.0
MAX_RESTART_S = 60.0
Hired = tuple[Reader, Writer, Ready, bytes]
"""A worker for one job: its socket, what it said when it was set up, and the initial model."""
MOST_LOSSES = 3
"""So many workers may die of one training before it is given up."""
WORKER_DIED = "the training worker died of it"
SOCKET_FILE, LOG_FILE = "forkserver.sock", "forkserver.log"
START_S = 60.0
"""A fork server has to be there within this time."""


class TrainingWorker:
    """At most one training at a time; a newer one interrupts it. Evaluations wait until nothing trains."""

    def __init__(
        self,
        setup: channel.SetUp,
        log: Log,
        on_trained: Callable[[int, LiveModel], None],
        on_evaluated: Callable[[int, float, float], None],
        fork_server: Path | None = None,
    ) -> None:
        self._setup = setup
        self._log = log
        self._on_trained = on_trained
        self._on_evaluated = on_evaluated
        self._fork_server = fork_server
        self._last_job = 0
        self._training: tuple[TrainJob, LiveModel] | None = None
        self._losses = 0
        """Workers that this training has cost."""
        self._evaluating: tuple[EvaluateJob, int] | None = None
        self._to_evaluate: tuple[int, LiveModel] | None = None
        self._outbox: asyncio.Queue[tuple[channel.Header, memoryview]] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._process: asyncio.subprocess.Process | None = None
        self._writer: Writer | None = None
        self.ready: Ready | None = None
        self.since_s: float | None = None
        """When the training under way began."""

    @property
    def round(self) -> int | None:
        """The round that is being trained."""
        return None if self._training is None else self._training[0].round

    async def start(self) -> bytes:
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
        self._training = TrainJob(self._last_job, round), model
        self.since_s = asyncio.get_running_loop().time()
        self._outbox.put_nowait((self._training[0], model.data))

    def interrupt(self) -> None:
        """Stop training, within one step."""
        if self._training is not None:
            self._training = self.since_s = None
            self._outbox.put_nowait((Interrupt(self._last_job + 1), memoryview(b"")))

    def evaluate(self, round: int, model: LiveModel) -> None:
        """Measure `model` when the worker has nothing better to do; only the newest is kept."""
        self._to_evaluate = round, model
        self._evaluate_if_idle()

    def _evaluate_if_idle(self) -> None:
        if self._to_evaluate is None or self._training is not None or self._evaluating is not None:
            return
        (round, model), self._to_evaluate = self._to_evaluate, None
        self._last_job += 1
        self._evaluating = EvaluateJob(self._last_job), round
        self._outbox.put_nowait((self._evaluating[0], model.data))

    def _on_answer(self, answer: channel.Header, body: bytes) -> None:
        match answer:
            case Finished(job, seal) if self._training and job == self._training[0].job:
                round = self._training[0].round
                self._training = self.since_s = None
                self._on_trained(round, LiveModel(memoryview(body), seal))
            case Stopped(job, reason) if self._training and job == self._training[0].job:
                # Nobody asked for this: bad data, or a model that cannot be trained.
                self._give_up(reason)
            case Evaluated(job, value, loss) if self._evaluating and job == self._evaluating[0].job:
                round, self._evaluating = self._evaluating[1], None
                self._on_evaluated(round, value, loss)
            case Stopped(job, reason, kind) if self._evaluating and job == self._evaluating[0].job:
                round, self._evaluating = self._evaluating[1], None
                if kind:  # else a training came in between
                    self._log.error("evaluation_failed", round=round, reason=reason)
        self._evaluate_if_idle()

    def _give_up(self, reason: str) -> None:
        assert self._training is not None
        self._log.error("training_failed", round=self._training[0].round, reason=reason)
        self._training = self.since_s = None

    async def _supervise(self, reader: Reader) -> None:
        pause_s = RESTART_S
        while True:
            try:
                await self._converse(reader)
            except (OSError, EOFError) as error:
                self._log.warning("worker_lost", reason=str(error) or type(error).__name__)
            except Exception:
                self._log.exception("failure", where="worker")
            await self._disconnect()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_RESTART_S)
            try:
                reader, _ = await self._connect()
            except (OSError, EOFError, PlexusError) as error:
                self._log.warning("worker_not_started", reason=str(error))
                continue
            pause_s = RESTART_S
            self._resume()

    def _resume(self) -> None:
        """Give a new worker the training that was lost with the old one, unless it takes them all down."""
        self._outbox = asyncio.Queue()
        if self._evaluating is not None:
            self._log.error("evaluation_failed", round=self._evaluating[1], reason=WORKER_DIED)
            self._evaluating = None
        elif self._training is not None:
            self._losses += 1
            if self._losses == MOST_LOSSES:
                self._give_up(f"{WORKER_DIED} {MOST_LOSSES} times")
        if self._training is not None:
            self._outbox.put_nowait((self._training[0], self._training[1].data))

    async def _converse(self, reader: Reader) -> None:
        writing = asyncio.create_task(self._write())
        try:
            while True:
                answer, body = await channel.receive_async(reader)
                try:
                    self._on_answer(answer, body)
                except Exception:
                    self._log.exception("failure", where="worker's answer")
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    async def _write(self) -> None:
        assert self._writer is not None
        while True:
            header, body = await self._outbox.get()
            wanted = self._training and self._training[0]
            if not isinstance(header, TrainJob) or header == wanted:  # else it is overtaken
                await channel.send_async(self._writer, header, body)

    async def _connect(self) -> tuple[Reader, bytes]:
        reader, self._writer = await self._open()
        try:
            self.ready, initial = await channel.set_up(reader, self._writer, self._setup)
        except EOFError:
            status = "" if self._process is None else f" with {await self._process.wait()}"
            raise TaskError(f"the training worker ended{status} before it was ready") from None
        except MissingModuleError as error:
            raise MissingModuleError(f"{error}; say with --task-dir which folder it is in") from None
        return reader, initial

    async def _open(self) -> tuple[Reader, Writer]:
        limit = 2**20
        if self._fork_server is not None:
            return await asyncio.open_unix_connection(self._fork_server, limit=limit)
        mine, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", WORKER_MODULE, "--fd", str(theirs.fileno())]
            self._process = await asyncio.create_subprocess_exec(*command, pass_fds=[theirs.fileno()])
        return await asyncio.open_unix_connection(sock=mine, limit=limit)

    async def _disconnect(self) -> None:
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()
            self._writer = None
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()  # it holds nothing that must be kept
            await self._process.wait()
            self._process = None


class ForkServer:
    """The process that a fleet's training workers are forked from, with torch imported once.

    Its socket and its log are in `directory`.
    """

    files = (SOCKET_FILE, LOG_FILE)

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: asyncio.subprocess.Process | None = None

    @property
    def socket(self) -> Path:
        return self._directory / SOCKET_FILE

    async def start(self) -> None:
        """Start it, unless it runs; returns when workers can be asked for."""
        if self._process is not None:
            return
        command = [sys.executable, "-m", WORKER_MODULE, "--fork-server", str(self.socket)]
        self.socket.unlink(missing_ok=True)
        with (self._directory / LOG_FILE).open("wb") as log:
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
        lines = (self._directory / LOG_FILE).read_text(errors="replace").splitlines()
        return lines[-1] if lines else "no reason given"

    async def ask(self, setup: channel.SetUp) -> Ready:
        """What a worker says that is set up like this; its complaint is raised."""
        async with self._worker(setup, "tried its task") as (_, _, ready, _):
            return ready

    async def evaluate(self, setup: channel.SetUp, model: memoryview | None) -> Evaluated:
        """The metric of a model, or of the initial one."""
        async with self._worker(setup, "measured the model") as (reader, writer, _, initial):
            await channel.send_async(writer, EvaluateJob(1), initial if model is None else model)
            answer, _ = await channel.receive_async(reader)
        if isinstance(answer, Stopped):
            raise PlexusError(f"the newest model cannot be measured: {answer.reason}")
        assert isinstance(answer, Evaluated)
        return answer

    @contextlib.asynccontextmanager
    async def _worker(self, setup: channel.SetUp, job: str) -> AsyncIterator[Hired]:
        reader, writer = await asyncio.open_unix_connection(self.socket)
        try:
            yield reader, writer, *await channel.set_up(reader, writer, setup)
        except (OSError, EOFError):
            raise TaskError(f"the training worker died as it {job}: {self._said}") from None
        finally:
            writer.close()

    async def close(self) -> None:
        if self._process is not None:
            if self._process.returncode is None:
                self._process.kill()
            await self._process.wait()

    def tidy_up(self) -> None:
        """Remove what it left in its directory."""
        for name in self.files:
            (self._directory / name).unlink(missing_ok=True)
