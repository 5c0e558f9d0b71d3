"""Models that this side of a link receives: granted when there is room, straight into their buffer.

Nothing is received that was not granted, so back-pressure reaches the sender as a late grant, and the
memory that peers can take is the size of the buffers. A buffer is granted for as long as bytes come: there is
a time by which more must have come, by how much has and how fast the two ends are known to be.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.poly1305 import Poly1305

from plexus.errors import PlexusError
from plexus.live.models import KEY_BYTES, SEAL_BYTES, LiveModel, verified
from plexus.live.room import BOUNDLESS, Room, put
from plexus.live.transport.frames import ID_BYTES, FrameError, Kind, Taker, number_of, numbered
from plexus.live.transport.limits import MODEL, PROBE, PROBES_BYTES

if TYPE_CHECKING:
    from plexus.live.transport.link import PeerLink


@dataclass(slots=True, eq=False)
class Ticket:
    """A place in the queue, then a buffer."""

    granted: Callable[[], None]
    """Called when the buffer is there."""
    asked_at: float = 0.0
    owner: bytes = b""
    """Whose model it is for."""
    buffer: memoryview | None = None
    refused: Callable[[str], None] = lambda _: None
    """Called when there is none to be had, and why: the disk is full."""


class Buffers:
    """Room for models that are arriving: a fixed number of buffers, given out first come, first served; but
    nobody has more than half of them.

    Every model of a session has the same size, so a buffer fits any of them.
    """

    def __init__(self, size_bytes: int, memory_bytes: int, room: Room = BOUNDLESS) -> None:
        self._room = room
        self.size_bytes = size_bytes
        # Those that do not fit into memory arrive in files: some come while others are looked at.
        self.count = memory_bytes // max(1, size_bytes)
        self.count = IN_FILES if self.count < 2 else self.count
        self.free = self.count
        self._spare: list[memoryview] = []
        self.waiting: deque[Ticket] = deque()
        self._held: Counter[bytes] = Counter()
        """By owner: buffers."""

    def request(self, ticket: Ticket) -> None:
        """Ask for a buffer, now or when it is this ticket's turn."""
        self.waiting.append(ticket)
        self._serve()

    def withdraw(self, ticket: Ticket) -> None:
        """The ticket is no longer needed."""
        if ticket.buffer is not None:
            self.give_back(ticket)
        elif ticket in self.waiting:
            self.waiting.remove(ticket)

    def give_back(self, ticket: Ticket) -> None:
        """The model has been used up, or does not come; the buffer can take another."""
        assert ticket.buffer is not None, "given back twice"
        if not self._spare:
            self._spare.append(ticket.buffer)
        self.let_go(ticket)

    def let_go(self, ticket: Ticket) -> None:
        """The model is kept by somebody, buffer and all; make room for another."""
        assert ticket.buffer is not None, "let go twice"
        ticket.buffer = None
        self._free_again(ticket)
        self._serve()

    def _free_again(self, ticket: Ticket) -> None:
        self.free += 1
        self._held[ticket.owner] -= 1

    def _serve(self) -> None:
        def may_have_one(ticket: Ticket) -> bool:
            return not ticket.owner or self._held[ticket.owner] < self.count // 2

        while self.free and (ticket := next(filter(may_have_one, self.waiting), None)) is not None:
            self.waiting.remove(ticket)
            self.free -= 1
            self._held[ticket.owner] += 1
            try:
                ticket.buffer = self._spare.pop() if self._spare else self._room.space(self.size_bytes)
            except PlexusError as error:
                self._free_again(ticket)
                ticket.refused(str(error))
            else:
                ticket.granted()


ACKNOWLEDGE_BYTES, ACKNOWLEDGE_S = 2**20, 0.002
PATIENCE = 100
"""So many times slower than its ends a link may be: they may share it among many others."""
MIN_BYTES_PER_S = 1024
"""Whatever is known of its ends, a link may be this slow."""

MAX_CHUNK_BYTES = 2**20
IN_FILES = 6
OVERDUE = "its bytes do not come"
NO_ROOM = "it has no room for another model"


@dataclass(slots=True, eq=False)
class Incoming:
    """A model on its way in."""

    number: int
    seal: bytes
    size_bytes: int
    is_probe: bool
    tag: Any = None
    """The message, decoded."""
    granted_at: float | None = None
    deadline: asyncio.TimerHandle | None = None
    moved_bytes: int = 0
    chunks: int = 0
    started_at: float = 0.0
    started_bytes: int = 0
    ticket: Ticket | None = None
    seen: Poly1305 | None = None
    """Checks the seal of what is wanted as it comes: it need not be looked up again."""

    @property
    def kind(self) -> str:
        return PROBE if self.is_probe else MODEL

    @property
    def buffer(self) -> memoryview:
        assert self.ticket is not None
        assert self.ticket.buffer is not None, "a model arrives in the buffer it was granted"
        return self.ticket.buffer


class Receiving:
    """The incoming half of a link's models."""

    def __init__(self, link: PeerLink) -> None:
        self._key = link.key
        self._hub, self._connection = link.hub, link.connection
        self._inbox = link.hub.inbox
        self._send = link.connection.send
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time
        self._unacknowledged = self._unacknowledged_bytes = 0
        self._soon: asyncio.TimerHandle | None = None
        self.under_way: dict[int, Incoming] = {}

    def decline(self, is_obsolete: Callable[[Any], bool]) -> None:
        """Tell the senders of models that are no longer wanted to stop."""
        for incoming in list(self.under_way.values()):
            if not incoming.is_probe and is_obsolete(incoming.tag):
                self._end(incoming, Kind.DECLINE)

    def on_offer(self, payload: bytearray) -> None:
        number = number_of(payload)
        seal = bytes(payload[ID_BYTES : ID_BYTES + SEAL_BYTES])
        if len(seal) < SEAL_BYTES or number in self.under_way:
            raise FrameError("a malformed offer")
        most = self._hub.limits.max_transfers
        if len(self.under_way) >= most:
            raise FrameError(f"more than {most} models at a time")
        message = bytes(payload[ID_BYTES + SEAL_BYTES :])
        is_probe = len(message) == ID_BYTES  # its size; messages are longer
        incoming = Incoming(number, seal, self._inbox.buffers.size_bytes, is_probe)
        self.under_way[number] = incoming
        self._hub.traffic.note(incoming.kind, len(payload) - ID_BYTES, sent=False)
        if incoming.is_probe:
            incoming.size_bytes = int.from_bytes(message, "big")
            if incoming.size_bytes not in PROBES_BYTES:
                raise FrameError("a measurement of an odd size")
            self._grant(incoming)
            return
        answer = self._inbox.offered(self._key, message)
        if answer is not None and not isinstance(answer, str):
            incoming.tag, incoming.seen = answer, Poly1305(seal[:KEY_BYTES])
            incoming.ticket = Ticket(lambda: self._grant(incoming), self._now(), self._key)
            incoming.ticket.refused = lambda why: self._refuse(incoming, why)
            self._inbox.buffers.request(incoming.ticket)
        else:
            self._end(incoming, Kind.DECLINE, (answer or "").encode())

    def sink(self, number: int, length: int) -> Taker:
        """Who gets the next chunk of the model with this number."""
        incoming = self.under_way.get(number)
        if incoming is None:
            return lambda _: None  # it was declined meanwhile
        if incoming.granted_at is None:
            raise FrameError("a chunk of a model that was not granted")
        if incoming.moved_bytes + length > incoming.size_bytes:
            raise FrameError("more bytes than the model has")
        return partial(self._take, incoming)

    def _take(self, incoming: Incoming, piece: memoryview) -> None:
        if incoming.seen is not None:
            incoming.seen.update(piece)
            try:
                put(incoming.buffer, incoming.moved_bytes, piece)
            except OSError as error:
                self._refuse(incoming, f"a model cannot be written: {error.strerror}")
        incoming.moved_bytes += len(piece)

    def on_chunk(self, number: int, length: int) -> None:
        self._unacknowledged += 1
        self._unacknowledged_bytes += length
        incoming = self.under_way.get(number)
        self._hub.traffic.note(MODEL if incoming is None else incoming.kind, length, sent=False)
        if incoming is None:
            return
        incoming.chunks += 1
        if incoming.chunks == 2:
            incoming.started_at, incoming.started_bytes = self._now(), incoming.moved_bytes
        if incoming.moved_bytes == incoming.size_bytes:
            self._measure(incoming)
            if incoming.is_probe:
                self._end(incoming, Kind.DONE)
            else:
                self._complete(incoming)

    def acknowledge(self) -> None:
        """Tell the sender how many chunks came since the last time: when they are many, or soon."""
        if self._unacknowledged_bytes >= ACKNOWLEDGE_BYTES:
            self._acknowledge_now()
        elif self._unacknowledged and self._soon is None:
            self._soon = self._loop.call_later(ACKNOWLEDGE_S, self._acknowledge_now)

    def _acknowledge_now(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        self._send(numbered(Kind.RECEIVED, self._unacknowledged))
        self._unacknowledged = self._unacknowledged_bytes = 0

    def on_cancel(self, payload: bytearray) -> None:
        incoming = self.under_way.get(number_of(payload))
        if incoming is not None:
            self._end(incoming)

    def close(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
        for incoming in list(self.under_way.values()):
            self._end(incoming)

    def _grant(self, incoming: Incoming) -> None:
        incoming.granted_at = self._now()
        self._send(numbered(Kind.GRANT, incoming.number))
        self._await(incoming)

    def _refuse(self, incoming: Incoming, why: str) -> None:
        self._hub.log.warning("no_room", peer=self._key, reason=why)
        self._end(incoming, Kind.DECLINE, NO_ROOM.encode())

    def _await(self, incoming: Incoming) -> None:
        """Give a model up if more of it should have come by now, else look again when it should have."""
        assert incoming.granted_at is not None
        slowest = max(MIN_BYTES_PER_S, self._hub.bandwidth(self._key) / PATIENCE)
        waited_s = self._now() - incoming.granted_at
        left_s = self._hub.limits.transfer_grace_s + incoming.moved_bytes / slowest - waited_s
        if left_s > 0:
            incoming.deadline = self._loop.call_later(left_s, self._await, incoming)
        else:
            got = {"received_bytes": incoming.moved_bytes, "of_bytes": incoming.size_bytes}
            relay = self._connection.relay
            self._hub.log.warning("model_overdue", peer=self._key, relay=relay, waited_s=waited_s, **got)
            self._end(incoming, Kind.DECLINE, OVERDUE.encode())
            if relay is not None:
                self._connection.close(OVERDUE)  # whose fault it is nobody can say: try another way
            elif not incoming.is_probe:
                self._inbox.overdue(self._key)

    def _measure(self, incoming: Incoming) -> None:
        # From the second chunk to the last: the first may have travelled alone.
        took_s = self._now() - incoming.started_at
        size_bytes = incoming.moved_bytes - incoming.started_bytes
        if took_s > 0 and incoming.chunks > 2:
            self._inbox.measured(size_bytes, took_s, sent=False)

    def _complete(self, incoming: Incoming) -> None:
        self._forget(incoming)
        self._send(numbered(Kind.DONE, incoming.number))
        assert incoming.ticket is not None and incoming.seen is not None
        is_whole = verified(incoming.seen, incoming.seal)
        model = LiveModel(incoming.buffer, incoming.seal, is_whole=is_whole)
        self._hub.guarded("model", self._inbox.model, self._key, incoming.tag, model, incoming.ticket)

    def _end(self, incoming: Incoming, answer: Kind | None = None, reason: bytes = b"") -> None:
        self._forget(incoming)
        incoming.seen = None  # the rest of a chunk may still be on its way
        if answer is not None:
            self._send(numbered(answer, incoming.number, reason))
        if incoming.ticket is not None:
            self._inbox.buffers.withdraw(incoming.ticket)
        if incoming.tag is not None:
            self._inbox.not_coming(self._key, incoming.tag)

    def _forget(self, incoming: Incoming) -> None:
        del self.under_way[incoming.number]
        if incoming.deadline is not None:
            incoming.deadline.cancel()
