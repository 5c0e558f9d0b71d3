"""Live nodes as the dashboard reaches them: at a socket file in their home, or at an address."""

from __future__ import annotations

import http.client
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import msgspec

from plexus.errors import PlexusError
from plexus.live.operator import control
from plexus.live.transport.addresses import parse

TIMEOUT_S = 3.0
MAX_ANSWER_BYTES = 1_000_000
LOG_FILE = "log.jsonl"

Picture = dict[str, Any]
NOT_YET: Picture = {
    "address": "",
    "certificate_days_left": None,
    "round": 0,
    "training": None,
    "waiting_for": [],
    "peers": {"known": 0, "linked": 0},
    "transfers": [],
    "bandwidth_bytes_per_s": 0,
    "metric": None,
    "counts": {"errors": 0, "link_sent_bytes": 0, "link_received_bytes": 0},
}
"""What a node that has just been started does not say of itself."""


class Member(Protocol):
    """One node."""

    label: str
    log: Path | None

    def ask(self) -> Picture | None:
        """Its status (see `plexus.live.operator.status`), or None if it does not answer."""


class HomeMember:
    """A node on this machine, by its home."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.label = home.name
        self.log: Path | None = home / LOG_FILE

    def ask(self) -> Picture | None:
        try:
            return control.ask(self.home, "status")
        except (PlexusError, msgspec.DecodeError):
            return None


class AddressMember:
    """A node by the address of its `--metrics`."""

    def __init__(self, address: str) -> None:
        self.label = address
        self.log: Path | None = None
        self._address = parse(address)

    def ask(self) -> Picture | None:
        connection = http.client.HTTPConnection(*self._address, timeout=TIMEOUT_S)
        try:
            connection.request("GET", control.STATUS_PATH)
            answer = connection.getresponse()
            body = answer.read(MAX_ANSWER_BYTES)
            picture = msgspec.json.decode(body)
        except (OSError, http.client.HTTPException, msgspec.DecodeError):
            return None
        finally:
            connection.close()
        return picture if isinstance(picture, dict) and "phase" in picture else None


def members_of(fleet: Path) -> list[Member]:
    """The nodes of a fleet directory, in order."""
    return [HomeMember(home) for home in sorted(fleet.glob("node-*")) if home.is_dir()]


def ask_all(members: Sequence[Member]) -> list[Picture | None]:
    """The status of each, asked at the same time."""
    if not members:
        return []
    with ThreadPoolExecutor(max_workers=min(32, len(members))) as pool:
        found = pool.map(lambda member: member.ask(), members)
        return [None if picture is None else NOT_YET | picture for picture in found]
