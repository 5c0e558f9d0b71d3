"""What this node carries for members that cannot reach each other, and how much of it at most."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from plexus.live.transport.frames import Kind
from plexus.live.transport.streams import PIECE_BYTES, Stream

if TYPE_CHECKING:
    from plexus.live.transport.hub import Hub
    from plexus.live.transport.link import PeerLink

MOST_PER_PAIR = 4
"""One, and some that are being replaced."""
BURST_S = 0.05
"""So much may be made up for, where bandwidth is bounded."""
Piece = tuple[bytes, memoryview]


class Carried(Stream):
    """One half of a stream that this node carries: what comes here goes out there."""

    other: Carried

    def __init__(self, link: PeerLink, number: int, relay: Relay) -> None:
        super().__init__(link, number)
        self._relay = relay
        relay.carried.add(self)

    def arrived(self, data: memoryview) -> None:
        if not self.other.is_ending:
            self._relay.waiting_bytes += len(data) + PIECE_BYTES
            self._relay.relayed_bytes += len(data)
            self.other.send(data)
            self._relay.keep_within_memory()

    def take(self) -> Piece | None:
        return self._relay.in_time(self.link, super().take)

    def gone(self, count: int) -> None:
        self._relay.waiting_bytes -= count
        self.other.used(count)

    def ended(self, reason: str) -> None:
        self.other.finish(reason)

    def forget(self) -> None:
        self._relay.carried.discard(self)
        super().forget()


class Relay:
    """All streams that this node carries."""

    def __init__(self, hub: Hub) -> None:
        self._hub, self._limits = hub, hub.limits
        self._loop = asyncio.get_running_loop()
        self.carried: set[Carried] = set()
        """Two halves of each."""
        self.waiting_bytes = self.relayed_bytes = 0
        self._free_at = 0.0
        """When what was sent so far is over, at the bandwidth that is allowed."""
        self._timer: asyncio.TimerHandle | None = None
        self._held_up: dict[PeerLink, None] = {}
        """Who waits for it, who is next first."""

    def carry(self, near: PeerLink, number: int, key: bytes) -> str | None:
        """Begin to carry a stream from `near` to the node `key`, or say why not."""
        far, most = self._hub.links.get(key), self._limits.max_relayed
        if self._limits.relay_bytes_per_s == 0:
            return "this node does not relay"
        if far is None or far is near or not far.streams.are_possible:
            return "it has no link with that node"
        theirs = [each for each in near.streams.under_way.values() if isinstance(each, Carried)]
        if sum(each.other.link is far for each in theirs) >= MOST_PER_PAIR:
            return near.streams.refuse(f"more than {MOST_PER_PAIR} relayed links with one node")
        if len(self.carried) >= 2 * most:
            return near.streams.refuse(f"more than {most} relayed links at a time")
        here = Carried(near, number, self)
        here.other = Carried(far, far.streams.begin(Kind.CALL, near.key), self)
        here.other.other = here
        return None

    def keep_within_memory(self) -> None:
        """Those who send to somebody slow must not take the memory that others need."""
        while self.waiting_bytes > self._limits.relay_memory_bytes:
            fullest = max(self.carried, key=lambda each: each.queued_bytes)
            why = fullest.other.link.streams.refuse("too much waits for a node that does not take it")
            fullest.other.end(why)
            fullest.end(why)

    def in_time(self, link: PeerLink, take: Callable[[], Piece | None]) -> Piece | None:
        """Take something to send if that is within the bandwidth for relaying; else the link has to wait."""
        rate, now = self._limits.relay_bytes_per_s, self._loop.time()
        if rate is None:
            return take()
        if now < self._free_at or self._timer is not None:
            self._held_up[link] = None
            self._timer = self._timer or self._loop.call_at(self._free_at, self._go_on)
            return None
        found = take()
        if found is not None:
            self._free_at = max(self._free_at, now - BURST_S) + len(found[1]) / rate
        return found

    def _go_on(self) -> None:
        self._timer = None
        while self._held_up and self._timer is None:
            link = next(iter(self._held_up))
            del self._held_up[link]
            link.connection.pump()
