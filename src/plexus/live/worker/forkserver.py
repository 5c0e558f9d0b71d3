"""The process that a fleet's training workers are forked from: a fork server, with torch imported once."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from plexus.errors import PlexusError, TaskError
from plexus.live.worker import channel
from plexus.live.worker.channel import Ready, SetUp

SOCKET_FILE = "forkserver.sock"
LOG_FILE = "forkserver.log"
START_S = 60.0


class ForkServer:
    """Its socket and its log are in `directory`."""

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
        command = [sys.executable, "-m", "plexus.live.worker.process", "--fork-server", str(self.socket)]
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
        reader, writer = await asyncio.open_unix_connection(self.socket)
        try:
            ready, _ = await channel.set_up(reader, writer, setup)
        except (OSError, EOFError):
            raise TaskError(f"the training worker died as it tried its task: {self._said}") from None
        finally:
            writer.close()
        return ready

    async def close(self) -> None:
        if self._process is not None:
            if self._process.returncode is None:
                self._process.kill()
            await self._process.wait()

    def tidy_up(self) -> None:
        """Remove what it left in its directory."""
        for name in self.files:
            (self._directory / name).unlink(missing_ok=True)
