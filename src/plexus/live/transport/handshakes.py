"""Connections from others that have not been admitted yet: how many there may be, and who makes way.

Anybody can open them and each takes memory, so there is a limit, and whoever fills it up must not keep others
out. So one makes way: an outsider's for that of a host which members are at, and among equals the oldest
one of the host that has most.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from plexus.live.transport.connection import Connection
from plexus.live.transport.limits import Limits

MAX_FAMILIAR = 1024


class Handshake(NamedTuple):
    """One that is under way."""

    origin: bytes
    is_known: bool
    """From a host that a member is at, or was."""
    since_s: float


class Handshakes:
    """Those under way, the oldest first."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._under_way: dict[Connection, Handshake] = {}
        self._familiar: dict[bytes, None] = {}
        """Where admitted peers came from, the latest last."""

    def __len__(self) -> int:
        return len(self._under_way)

    def begin(self, connection: Connection, origin: bytes, is_known: bool, now: float) -> bool:
        """Whether it may begin; another one may have to make way for it."""
        fresh = Handshake(origin, is_known or origin in self._familiar, now)
        counts = Counter(each.origin for each in self._under_way.values())
        rivals = list(self._under_way.items())
        if counts[origin] >= self._limits.max_handshakes_per_host:
            rivals = [(other, its) for other, its in rivals if its.origin == origin]
        elif len(rivals) < self._limits.max_handshakes:
            rivals = []
        if rivals:
            # The first of those that are equal, which is the oldest.
            other, its = min(rivals, key=lambda each: (each[1].is_known, -counts[each[1].origin]))
            if not self._makes_way(its, fresh, counts):
                return False
            other.close("made way for another connection", tell=False)
        self._under_way[connection] = fresh
        return True

    def _makes_way(self, its: Handshake, fresh: Handshake, counts: Counter[bytes]) -> bool:
        if its.is_known != fresh.is_known:
            return fresh.is_known
        # Where everybody has as many, as when all peers of a large session arrive at once, all must get time
        # enough, or nobody would ever finish.
        has_more = counts[its.origin] > counts[fresh.origin] + 1
        return has_more or fresh.since_s - its.since_s >= self._limits.handshake_grace_s

    def end(self, connection: Connection) -> None:
        self._under_way.pop(connection, None)

    def admitted(self, origin: bytes) -> None:
        """Somebody from there has shown a good certificate."""
        self._familiar.pop(origin, None)
        self._familiar[origin] = None
        if len(self._familiar) > MAX_FAMILIAR:
            del self._familiar[next(iter(self._familiar))]
