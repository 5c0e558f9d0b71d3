"""A fleet's training workers: forked from one process, so that a fleet on one machine starts quickly."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from asyncio import StreamReader as Reader
from asyncio import StreamWriter as Writer
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from plexus.errors import PlexusError, TaskError
from plexus.files import socket_in
from plexus.live.room import BOUNDLESS
from plexus.live.worker import client as channel
from plexus.live.worker.client import WORKER_MODULE, Evaluated, EvaluateJob, Ready, SetUp, Stopped

Hired = tuple[Reader, Writer, Ready, memoryview]
"""A worker for one job: its socket, what it said when it was set up, and the initial model."""
SOCKET_FILE, LOG_FILE = "forkserver.sock", "forkserver.log"
START_S = 60.0
"""A fork server has to be there within this time."""


@dataclass(eq=False)
class ForkServer:
    """The process that a fleet's training workers are forked from, with torch imported once."""

    _directory: Path
    """Where its socket and its log are."""
    _process: asyncio.subprocess.Process | None = None
    files = (SOCKET_FILE, LOG_FILE)

    @property
    def socket(self) -> Path:
        return socket_in(self._directory, SOCKET_FILE, "use a shorter --out")

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
        reader, writer = await asyncio.open_unix_connection(self.socket)
        try:
            yield reader, writer, *await channel.set_up(reader, writer, setup, BOUNDLESS)
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
        for name in self.files:
            (self._directory / name).unlink(missing_ok=True)
