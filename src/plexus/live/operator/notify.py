"""Tells the service manager (systemd's `Type=notify`) that the peer is ready, alive, and about to stop."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from plexus.live.operator.log import Log


@contextmanager
def running(log: Log) -> Iterator[None]:
    """The peer is ready, alive as long as its event loop turns, and stops when this is left."""
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
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        try:
            sock.sendto(state.encode(), path)
        except OSError as error:
            log.warning("not_notified", state=state, reason=f"{name}: {error.strerror}")
