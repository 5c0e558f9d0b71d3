"""What this node carries for members that cannot reach each other, and how much of it at most."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from plexus.live.transport.frames import Kind, numbered
from plexus.live.transport.streams import DATA_BYTES, Stream

if TYPE_CHECKING:
    from plexus.live.transport.hub import Hub
    from plexus.live.transport.link import PeerLink

MOST_PER_PAIR = 4
"""One, and some that are being replaced."""
BURST_S = 0.05
"""For so long may be sent at once what was not sent before, where bandwidth is bounded."""


class Carried(Stream):
    """One half of a stream that this node carries: what comes here goes out there."""

    other: Carried

    def __init__(self, link: PeerLink, number: int, relay: Relay) -> None:
        super().__init__(link, number)
        self._relay = relay
        relay.carried.add(self)

    def arrived(self, data: memoryview) -> None:
        if self.other.is_ending:
            return
        self._relay.waiting_bytes += len(data)
        self._relay.relayed_bytes += len(data)
        self.other.send(data)
        self._relay.keep_within_memory()

    def gone(self, count: int) -> None:
        self._relay.waiting_bytes -= count
        self.other.used(count)

    def may_go_on(self) -> bool:
        return self._relay.may_send(self.link)

    def take(self) -> tuple[bytes, memoryview]:
        about, piece = super().take()
        self._relay.spent(len(piece))
        return about, piece

    def leads_to(self, link: PeerLink) -> bool:
        return self.other.link is link

    def ended(self, reason: str) -> None:
        self.other.finish(reason)

    def forget(self) -> None:
        self._relay.carried.discard(self)
        super().forget()


class Relay:
    """What this node carries for others, and how much of it."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._limits = hub.limits
        self._now = asyncio.get_running_loop().time
        self.carried: set[Carried] = set()
        """Two halves of each."""
        self.waiting_bytes = self.relayed_bytes = 0
        self._left_bytes, self._left_at = 0.0, self._now()
        """Of what may be sent by now; below nothing after a piece that was larger."""
        self._held_up: dict[PeerLink, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def carry(self, near: PeerLink, number: int, key: bytes) -> str | None:
        """Begin to carry a stream from `near` to the node `key`, or say why not."""
        far = self._hub.links.get(key)
        if self._limits.relay_bytes_per_s == 0:
            return "this node does not relay"
        if far is None or far is near or not far.streams.are_possible:
            return "it has no link with that node"
        why = None
        if len(self.carried) >= 2 * self._limits.max_relayed:
            why = f"more than {self._limits.max_relayed} relayed links at a time"
        elif sum(each.leads_to(far) for each in near.streams.under_way.values()) >= MOST_PER_PAIR:
            why = f"more than {MOST_PER_PAIR} relayed links with one node"
        if why is not None:
            near.streams.refused(why)
            return why
        here, there = Carried(near, number, self), Carried(far, far.streams.new_number(), self)
        here.other, there.other = there, here
        far.connection.send(numbered(Kind.CALL, there.number, near.key))
        return None

    def keep_within_memory(self) -> None:
        """Those who send to somebody slow must not take the memory that others need."""
        while self.waiting_bytes > self._limits.relay_memory_bytes:
            fullest = max(self.carried, key=lambda each: each.queued_bytes)
            why = "too much waits for a node that does not take it"
            fullest.other.link.streams.refused(why)
            fullest.other.end(why)
            fullest.end(why)

    def may_send(self, link: PeerLink) -> bool:
        """Whether it is within the bandwidth for relaying; if not, the link gets its turn later."""
        rate = self._limits.relay_bytes_per_s
        if rate is None:
            return True
        now, most = self._now(), max(DATA_BYTES, rate * BURST_S)
        self._left_bytes = min(self._left_bytes + rate * (now - self._left_at), most)
        self._left_at = now
        if self._left_bytes > 0 and self._timer is None:
            return True
        self._held_up[link] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(-self._left_bytes / rate, self._go_on)
        return False

    def spent(self, count: int) -> None:
        self._left_bytes -= count

    def _go_on(self) -> None:
        self._timer = None
        while self._held_up and self._timer is None:
            link = next(iter(self._held_up))
            del self._held_up[link]
            link.connection.pump()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
