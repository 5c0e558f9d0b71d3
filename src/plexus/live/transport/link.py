"""A link that is up: messages and models between this node and one other.

With the half of it that sends models: they are offered, granted, sent in chunks, acknowledged.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from plexus.live.identity.admission import MAX_LIST_BYTES
from plexus.live.models import SEAL_BYTES, LiveModel
from plexus.live.transport.connection import Connection
from plexus.live.transport.frames import (
    HEAD_BYTES,
    ID_BYTES,
    OF_STREAMS,
    FrameError,
    Hello,
    Kind,
    WholeFrame,
    frame,
    head,
    number_of,
    numbered,
)
from plexus.live.transport.limits import MESSAGE, MODEL, PROBE, PROBES_BYTES, Transfer
from plexus.live.transport.receiving import MAX_CHUNK_BYTES, Buffers, Receiving, Ticket
from plexus.live.transport.streams import Streams
from plexus.protocol.messages import ordinal_of

if TYPE_CHECKING:
    from plexus.live.transport.hub import Hub

MEASURE_EVERY_S = 60.0
QUEUE_S = 0.02
"""How long chunks may queue somewhere, beyond twice the round trip of an idle link."""
BY_WAY = 3
"""By way of another node they queue in two links and in its program."""
MIN_CHUNK_BYTES = 4 * 1024
CHUNKS_PER_WINDOW = 4
MIN_BYTES, INITIAL_BYTES, MAX_BYTES = 16 * 1024, 128 * 1024, 64 * 2**20
CROWDED = 2
"""How many times as long as wanted a chunk takes that finds its way crowded."""
RATE_MEMORY_S = 1.0
LOOK_AGAIN_S = 30.0


class Inbox(Protocol):
    """Who gets what arrives. A `WireError` from here ends the link that it came from."""

    buffers: Buffers

    def message(self, src: bytes, payload: bytes) -> None: ...
    def offered(self, src: bytes, payload: bytes) -> Any:
        """The message of a model, decoded; None if the model is of no use, or why else it is not taken."""

    def model(self, src: bytes, body: Any, model: LiveModel, ticket: Ticket) -> None:
        """A whole model, its seal not yet checked, what `offered` made of its message, and the ticket of the
        buffer it is in."""

    def not_coming(self, src: bytes, body: Any) -> None:
        """A model that was offered and wanted does not come after all."""

    def overdue(self, src: bytes) -> None:
        """A model was granted, and nothing came of it."""

    def outcome(self, dst: bytes, tag: Any, reason: str | None) -> None:
        """The model that was sent with this tag is there; or why what was sent with it has not arrived."""

    def link_down(self, key: bytes, reason: str) -> None: ...
    def measured(self, size_bytes: int, seconds: float, sent: bool) -> None: ...
    def list_offered(self, src: bytes, list_der: bytes) -> None: ...


class PeerLink:
    """One per pair of nodes."""

    def __init__(self, hub: Hub, connection: Connection, hello: Hello) -> None:
        assert connection.peer is not None
        self.key = connection.peer.key
        self.hub = hub
        self.hello = hello
        self.connection = connection
        self._measured_at = -MEASURE_EVERY_S
        self.sending, self.receiving = Sending(self), Receiving(self)
        self.streams = Streams(self)
        self._bulk = [self.sending.next_chunk, self.streams.next_frame]
        self._on_kind: dict[Kind, Callable[[bytearray], None]] = {
            Kind.MESSAGE: self._on_message,
            Kind.HEARTBEAT: lambda _: None,
            Kind.OFFER: self.receiving.on_offer,
            Kind.CANCEL: self.receiving.on_cancel,
            Kind.RECEIVED: self.sending.on_received,
            Kind.LIST: self._on_list,
            Kind.MEASURE_ME: self._on_measure_me,
            **{kind: partial(self.sending.on_answer, kind) for kind in ANSWERS},
            **{kind: partial(self.streams.on_frame, kind) for kind in OF_STREAMS},
        }

    @property
    def is_idle(self) -> bool:
        return not (self.sending.under_way or self.receiving.under_way or self.streams.under_way)

    def send(self, message: bytes, tag: Any, model: LiveModel | None) -> None:
        """See `Hub.send`."""
        self._used()
        if model is not None:
            self.sending.offer(message, model, tag)
            return
        self.hub.traffic.message(message)
        self.connection.send(message)

    def measure(self) -> None:
        """Find out how fast this link is, both ways."""
        self.sending.probe()
        self.connection.send(frame(Kind.MEASURE_ME))

    def next_bulk(self) -> tuple[bytes, memoryview] | None:
        """The next piece of a model or of a stream, in turn."""
        self._bulk.reverse()
        return self._bulk[0]() or self._bulk[1]()

    def on_frame(self, complete: WholeFrame) -> None:
        if complete.kind is Kind.CHUNK:
            self.receiving.on_chunk(number_of(complete.payload), complete.chunk_bytes)
            return
        handler = self._on_kind.get(complete.kind)
        if handler is None:
            raise FrameError(f"a {complete.kind.name} on a link that is up")
        if complete.kind is not Kind.HEARTBEAT:
            self._used()
        handler(complete.payload)

    def close(self, reason: str) -> None:
        self.receiving.close()
        self.sending.close(reason)
        self.streams.close(reason)

    def _on_message(self, payload: bytearray) -> None:
        self.hub.traffic.note(MESSAGE, HEAD_BYTES + len(payload), sent=False)
        self.hub.inbox.message(self.key, bytes(payload))

    def _on_list(self, payload: bytearray) -> None:
        if len(payload) > MAX_LIST_BYTES:
            raise FrameError("the authority's list is too long")
        self.hub.inbox.list_offered(self.key, bytes(payload))

    def _on_measure_me(self, _: bytearray) -> None:
        now = self.connection.heard_at
        if now >= self._measured_at + MEASURE_EVERY_S:
            self._measured_at = now
            self.sending.probe()

    def _used(self) -> None:
        self.connection.used_at = asyncio.get_running_loop().time()


class Chunk(NamedTuple):
    size_bytes: int
    sent_at: float
    arrived_before: int
    """Bytes that had been acknowledged when it was sent."""
    is_alone: bool


class Peak:
    """The largest value of the last one to two spans of `RATE_MEMORY_S`."""

    def __init__(self) -> None:
        self._older = self._newer = 0.0
        self._since = float("-inf")

    def note(self, value: float, now: float) -> float:
        if now - self._since > RATE_MEMORY_S:
            self._older, self._newer, self._since = self._newer, 0.0, now
        self._newer = max(self._newer, value)
        return max(self._older, self._newer)


class Window:
    """How much of a model may be on its way: enough to fill the link, little enough that others get through.

    Every chunk is acknowledged by the receiver's program, so the sender sees at which rate chunks arrive and
    how long the way takes, sockets, routers and busy processors included. The congestion window is what
    arrives in twice the round trip of an idle link and a little more. Control frames wait behind what is on
    its way, so that little is also what a transfer may add to their way. Now and then a small chunk travels
    alone, to see the idle link again.
    """

    def __init__(self, queues: int = 1) -> None:
        self.bytes, self._queue_s = INITIAL_BYTES, queues * QUEUE_S
        self._chunks: deque[Chunk] = deque()
        self._in_flight_bytes = 0
        self._arrived_bytes = 0
        self._rate = Peak()
        self._idle_s = 0.0
        self._looked_at = 0.0
        self._is_looking = True
        """The next chunk goes alone, once all others have arrived."""

    @property
    def is_open(self) -> bool:
        return self._in_flight_bytes < (1 if self._is_looking else self.bytes)

    @property
    def chunk_bytes(self) -> int:
        """Several chunks fit into the window, so that other frames find gaps."""
        if self._is_looking:
            return MIN_CHUNK_BYTES
        return max(MIN_CHUNK_BYTES, min(self.bytes // CHUNKS_PER_WINDOW, MAX_CHUNK_BYTES))

    def sent(self, size_bytes: int, now: float) -> None:
        self._chunks.append(Chunk(size_bytes, now, self._arrived_bytes, self._is_looking))
        self._in_flight_bytes += size_bytes

    def acknowledged(self, now: float) -> bool:
        """The oldest chunk on its way has arrived; False if there is none."""
        if not self._chunks:
            return False
        chunk = self._chunks.popleft()
        self._in_flight_bytes -= chunk.size_bytes
        self._arrived_bytes += chunk.size_bytes
        took_s = max(now - chunk.sent_at, 1e-6)
        if chunk.is_alone:
            self._idle_s, self._looked_at, self._is_looking = took_s, now, False
            return True
        self._idle_s = min(self._idle_s, took_s)
        self._is_looking |= now - self._looked_at > LOOK_AGAIN_S
        rate = (self._arrived_bytes - chunk.arrived_before) / took_s
        peak = self._rate.note(rate, now)
        target_s = 2 * self._idle_s + self._queue_s
        # Where the way is that crowded, by other links as well, the peak was of a moment without them.
        wanted = (rate if took_s > CROWDED * target_s else peak) * target_s
        self.bytes = int(min(max(wanted, MIN_BYTES), MAX_BYTES))
        return True


QUICK_S = 0.2
ANSWERS = (Kind.GRANT, Kind.DONE, Kind.DECLINE)
DECLINED = "declined"
"""Why a model was not sent: the receiver has no use for it."""
MAX_REASON_BYTES = 300
_zeros = memoryview(bytes(PROBES_BYTES[-1]))


@dataclass(slots=True, eq=False)
class Outgoing:
    """A model on its way out."""

    number: int
    message_bytes: int
    model: LiveModel
    tag: Any
    offered_at: float
    granted_at: float = 0.0
    started_at: float = 0.0
    moved_bytes: int = 0
    first_bytes: int = 0
    """Of the first chunk, which may travel alone: the rate is measured from the second on."""

    @property
    def kind(self) -> str:
        return PROBE if self.tag is None else MODEL


class Sending:
    """The outgoing half of a link's models."""

    def __init__(self, link: PeerLink) -> None:
        self._key = link.key
        self._inbox = link.hub.inbox
        self._traffic = link.hub.traffic
        self._send, self._wake = link.connection.send, link.connection.pump
        self._most = link.hub.limits.max_transfers
        self._now = asyncio.get_running_loop().time
        self._last_number = 0
        self._granted: deque[Outgoing] = deque()
        self._window = Window(1 if link.connection.relay is None else BY_WAY)
        self.under_way: dict[int, Outgoing] = {}

    def offer(self, message: bytes, model: LiveModel, tag: Any) -> None:
        """Begin to send a model; the oldest under way makes room if there are too many."""
        if len(self.under_way) >= self._most:
            self._stop(next(iter(self.under_way.values())), "superseded by a newer model")
        self._last_number = (self._last_number + 1) % 2 ** (8 * ID_BYTES)
        outgoing = Outgoing(self._last_number, len(message), model, tag, self._now())
        self.under_way[outgoing.number] = outgoing
        self._traffic.note(outgoing.kind, len(model.seal) + len(message), sent=True)
        self._send(numbered(Kind.OFFER, outgoing.number, model.seal + message))

    def probe(self, step: int = 0) -> None:
        """Send some bytes to find out how fast they go, unless models show it anyway."""
        if not self.under_way:
            size = PROBES_BYTES[step]
            message = size.to_bytes(ID_BYTES, "big")
            self.offer(message, LiveModel(_zeros[:size], bytes(SEAL_BYTES)), None)

    def cancel(self, is_obsolete: Callable[[Any], bool], reason: str) -> None:
        """Stop sending the models whose tag is obsolete."""
        for outgoing in list(self.under_way.values()):
            if outgoing.tag is not None and is_obsolete(outgoing.tag):
                self._stop(outgoing, reason)

    def next_chunk(self) -> tuple[bytes, memoryview] | None:
        """The next piece of a model, each of those granted in turn, if the window has room for it."""
        if not self._granted or not self._window.is_open:
            return None
        outgoing = self._granted.popleft()
        at, data = outgoing.moved_bytes, outgoing.model.data
        piece = data[at : at + self._window.chunk_bytes]
        now = self._now()
        if not at:
            outgoing.first_bytes = len(piece)
        elif at == outgoing.first_bytes:
            outgoing.started_at = now
        outgoing.moved_bytes += len(piece)
        self._window.sent(len(piece), now)
        self._traffic.note(outgoing.kind, len(piece), sent=True)
        if outgoing.moved_bytes < len(data):
            self._granted.append(outgoing)
        number = outgoing.number.to_bytes(ID_BYTES, "big")
        return head(Kind.CHUNK, ID_BYTES + len(piece)) + number, piece

    def on_answer(self, kind: Kind, payload: bytearray) -> None:
        outgoing = self.under_way.get(number_of(payload))
        if outgoing is None:
            return  # cancelled meanwhile
        if kind is Kind.DECLINE:
            reason = payload[ID_BYTES : ID_BYTES + MAX_REASON_BYTES].decode(errors="replace")
            self._end(outgoing, reason or DECLINED)
        elif kind is Kind.DONE:
            self._done(outgoing)
        elif outgoing.moved_bytes or outgoing in self._granted:
            raise FrameError("a model was granted twice")
        else:
            outgoing.granted_at = outgoing.started_at = self._now()
            self._granted.append(outgoing)
            self._wake()

    def on_received(self, payload: bytearray) -> None:
        now = self._now()
        for _ in range(number_of(payload)):
            if not self._window.acknowledged(now):
                raise FrameError("a chunk was acknowledged that was not sent")
        self._wake()

    def _done(self, outgoing: Outgoing) -> None:
        if outgoing.moved_bytes < len(outgoing.model.data):
            raise FrameError("a model was acknowledged before it was sent")
        self._end(outgoing, None)
        round_trip_s = outgoing.granted_at - outgoing.offered_at
        elapsed_s = self._now() - outgoing.started_at
        took_s = elapsed_s - round_trip_s
        # The way there and back may take longer than a small probe, and vary by more.
        measured_s = took_s if outgoing.tag is not None else max(took_s, elapsed_s / 2)
        if measured_s > 0:
            self._inbox.measured(outgoing.moved_bytes - outgoing.first_bytes, measured_s, sent=True)
        if outgoing.tag is None and took_s < QUICK_S:
            step = PROBES_BYTES.index(outgoing.moved_bytes) + 1
            if step < len(PROBES_BYTES) and PROBES_BYTES[step] <= self._inbox.buffers.size_bytes:
                self.probe(step)

    def close(self, reason: str) -> None:
        for outgoing in list(self.under_way.values()):
            self._end(outgoing, reason)

    def _stop(self, outgoing: Outgoing, reason: str) -> None:
        self._send(numbered(Kind.CANCEL, outgoing.number))
        self._end(outgoing, reason)

    def _end(self, outgoing: Outgoing, reason: str | None) -> None:
        if outgoing in self._granted:
            self._granted.remove(outgoing)
        del self.under_way[outgoing.number]
        tag, cut = outgoing.tag, reason is not None
        if tag is None:
            self._traffic.add(PROBE, outgoing.message_bytes + outgoing.moved_bytes)
            return
        transfer = Transfer(self._key, type(tag), ordinal_of(tag), outgoing.offered_at, self._now(), cut)
        self._traffic.ended(transfer, outgoing.message_bytes, outgoing.moved_bytes)
        self._inbox.outcome(self._key, tag, reason)
