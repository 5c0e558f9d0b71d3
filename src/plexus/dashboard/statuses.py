"""What only a running peer can say: asked at the socket in its home, or at the address of its `--metrics`."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from plexus.errors import PlexusError

SOCKET_FILE, STATUS_PATH = "control.sock", "/status"
TIMEOUT_S = 3.0
MAX_ANSWER_BYTES = 1_000_000
FRESH_S = 0.8
"""Peers are not asked more often than this, however many pages are open."""

Status = dict[str, Any]


def at_home(home: Path) -> bytes:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(TIMEOUT_S)
        connection.connect(str(home / SOCKET_FILE))
        connection.sendall(b"status\n")
        with connection.makefile("rb") as file:
            return file.readline(MAX_ANSWER_BYTES)


def at_address(address: str) -> Callable[[], bytes]:
    """The same, of a peer elsewhere; complains at once if `address` is none."""
    parts = urlsplit(f"//{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if host is None or port is None:
        raise PlexusError(f"{address!r} is not an address: give a host and a port, as 192.0.2.7:9100")

    def ask() -> bytes:
        with closing(http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)) as connection:
            connection.request("GET", STATUS_PATH)
            return connection.getresponse().read(MAX_ANSWER_BYTES)

    return ask


class Statuses:
    """Of some peers, in their order; None of one that does not answer."""

    def __init__(self, asks: Sequence[Callable[[], bytes]]) -> None:
        self._asks = asks
        self._lock = threading.Lock()
        self._found: list[Status | None] = []
        self.looked_s = 0.0

    def newest(self) -> list[Status | None]:
        """Ask all at the same time, unless that has just been done."""
        with self._lock:
            if self._asks and time.monotonic() - self.looked_s >= FRESH_S:
                with ThreadPoolExecutor(max_workers=min(32, len(self._asks))) as pool:
                    self._found = list(pool.map(_status, self._asks))
                self.looked_s = time.monotonic()
            return self._found


def _status(ask: Callable[[], bytes]) -> Status | None:
    try:
        found = msgspec.json.decode(ask())
    except (OSError, http.client.HTTPException, msgspec.DecodeError):
        return None
    return found if isinstance(found, dict) and "phase" in found else None
