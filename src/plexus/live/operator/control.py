"""How a running peer is reached: a socket file in its home, a page for Prometheus, the service manager."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from plexus.errors import PlexusError
from plexus.files import lock_directory, socket_in
from plexus.live.operator.log import Log
from plexus.live.operator.status import PeerStatus, as_prometheus
from plexus.live.transport.addresses import Address, show

SOCKET_FILE = "control.sock"
STATUS_PATH = "/status"
"""Where a node's `--metrics` tells all that `plexus node status` does, as JSON."""
HEALTH_PATH, READY_PATH = "/healthz", "/readyz"
OK, UNAVAILABLE = "200 OK", "503 Service Unavailable"
REQUEST_TIMEOUT_S = 5.0
MAX_REQUEST_BYTES = 4096

Now = Callable[[], PeerStatus]


async def serve_control(home: Path, now: Now, stop: Callable[[], None]) -> asyncio.Server:
    """Answer `status` and `stop` at the socket in `home`, which only the owner can open."""
    path = socket_path(home)
    path.unlink(missing_ok=True)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with _answering(writer):
            command = (await reader.readline()).strip()
            if command == b"stop":
                stop()
            writer.write(msgspec.json.encode(now()) + b"\n")

    server = await asyncio.start_unix_server(answer, path, limit=MAX_REQUEST_BYTES)
    path.chmod(0o600)
    return server


def ask(home: Path, command: str) -> dict[str, Any]:
    """Send `command` to the peer that runs in `home`; its status comes back."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(REQUEST_TIMEOUT_S)
        try:
            sock.connect(str(socket_path(home)))
            sock.sendall(command.encode() + b"\n")
            with sock.makefile("rb") as file:
                return msgspec.json.decode(file.readline(), type=dict[str, Any])
        except TimeoutError:
            raise PlexusError(
                f"{home}: a peer is running here, but has not answered for {REQUEST_TIMEOUT_S:g} s"
            ) from None
        except (OSError, msgspec.DecodeError):  # it may have ended in the middle of its answer
            raise PlexusError(f"{home}: no peer is running here") from None


def wait_until_gone(home: Path, at_most_s: float = 30.0) -> None:
    until = time.monotonic() + at_most_s
    while time.monotonic() < until:
        try:
            os.close(lock_home(home))
        except PlexusError:
            time.sleep(0.05)
        else:
            return
    raise PlexusError(f"{home}: the peer has not ended after {at_most_s:g} s")


def lock_home(home: Path) -> int:
    """A descriptor that keeps other peers out of this home until it is closed or the process ends."""
    if not home.exists():
        raise PlexusError(f"{home}: no such folder; make one with: plexus node key --home {home}")
    socket_path(home)  # too long a path is better found out now
    return lock_directory(home, "another peer is running here")


def socket_path(home: Path) -> Path:
    return socket_in(home, SOCKET_FILE, "use a shorter --home")


def page(path: str, status: PeerStatus) -> tuple[str, bytes, str]:
    """What is answered to a request for this path: code, body and type of the body."""
    text = "text/plain; charset=utf-8"
    if path == STATUS_PATH:
        return OK, msgspec.json.encode(status), "application/json"
    if path == HEALTH_PATH:  # that it answers at all says that its event loop turns
        return OK, b"ok\n", text
    if path == READY_PATH:
        wrong = [] if status.phase in ("online", "ended") else [f"the peer is {status.phase}"]
        said = "; ".join([*wrong, *status.problems]) or "ok"
        return UNAVAILABLE if said != "ok" else OK, f"{said}\n".encode(), text
    return OK, as_prometheus(status), "text/plain; version=0.0.4"


async def serve_metrics(address: Address, now: Now) -> asyncio.Server:
    """Answer every HTTP request at `address`: with the peer's metrics, unless `page` has something else."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with _answering(writer):
            try:
                request = await reader.readuntil(b"\r\n\r\n")
            except (asyncio.LimitOverrunError, asyncio.IncompleteReadError):
                return
            code, body, kind = page(request.split(b" ")[1].decode() if b" " in request else "", now())
            head = (
                f"HTTP/1.1 {code}\r\nContent-Type: {kind}\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            )
            writer.write(head.encode() + body)

    try:
        return await asyncio.start_server(answer, *address, limit=MAX_REQUEST_BYTES)
    except OSError as error:
        raise PlexusError(f"--metrics {show(address)}: {error.strerror or error}") from None


@contextlib.asynccontextmanager
async def _answering(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    """End a connection in time, whatever happens in it; a client that misbehaves is not our failure."""
    try:
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            yield
            writer.close()
            await writer.wait_closed()  # until all is written
    except (OSError, TimeoutError, ValueError):
        pass
    finally:
        writer.transport.abort()  # if it is not closed by now


@contextlib.contextmanager
def notifying(log: Log) -> Iterator[None]:
    """Tell the service manager (systemd's `Type=notify`) that the peer is ready, alive as long as its event
    loop turns, and stops when this is left."""
    _tell("READY=1", log)
    alive = asyncio.get_running_loop().create_task(_stay_alive(log))
    try:
        yield
    finally:
        alive.cancel()
        _tell("STOPPING=1", log)


async def _stay_alive(log: Log) -> None:
    """Twice as often as the service manager wants to hear of it."""
    limit_s = int(os.environ.get("WATCHDOG_USEC", 0)) / 1e6
    is_meant = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    while limit_s and is_meant:
        _tell("WATCHDOG=1", log)
        await asyncio.sleep(limit_s / 2)


def _tell(state: str, log: Log) -> None:
    name = os.environ.get("NOTIFY_SOCKET")
    if not name:
        return
    path = "\0" + name[1:] if name.startswith("@") else name  # Linux's abstract sockets
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.sendto(state.encode(), path)
    except OSError as error:
        log.warning("not_notified", state=state, reason=f"{name}: {error.strerror}")
