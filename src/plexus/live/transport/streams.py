"""Links by way of another member: two that cannot reach each other have TLS with each other inside a stream
that a third one carries, which sees nothing but ciphertext.

A stream is numbered on each link that it goes over. Each end of a link says how many bytes more it takes, so
that whoever is slow holds up nobody but who sends to it, and a relay holds little. Bytes of streams go out
as chunks of models do: behind control frames, everybody in turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from plexus.live.operator.log import REFUSED
from plexus.live.transport.connection import CLOSE_S, Connection
from plexus.live.transport.frames import ID_BYTES, RELAYS_SINCE, FrameError, Kind, head, number_of, numbered
from plexus.protocol.roster import KEY_BYTES

if TYPE_CHECKING:
    from plexus.live.transport.link import PeerLink

WINDOW_BYTES = 2**20
"""Of one stream on one link, one way: on their way, or not taken by who is next."""
DATA_BYTES = 64 * 1024
PIECE_BYTES = 256
"""What a piece counts beside its bytes: very many small ones take memory, too."""
MAX_REASON_BYTES = 300
CLOSED = "the other side closed the connection"


class Stream:
    """One end of a stream on one link."""

    def __init__(self, link: PeerLink, number: int) -> None:
        self.link, self.number = link, number
        self._queue: deque[memoryview] = deque()
        self.queued_bytes = 0
        self.may_send_bytes = self._may_come_bytes = WINDOW_BYTES
        self._used_bytes = 0
        """Of what came, and not yet told."""
        self._last_words: str | None = None
        link.streams.under_way[number] = self

    def arrived(self, data: memoryview) -> None:
        """More bytes have come; `used` is to be called when they need no more room."""

    def gone(self, count: int) -> None:
        """So many queued bytes have been sent, or are not going to be."""

    def ended(self, reason: str) -> None:
        """By the other end of the link, or with the link itself."""

    @property
    def is_over(self) -> bool:
        return self.link.streams.under_way.get(self.number) is not self

    @property
    def is_ending(self) -> bool:
        return self.is_over or self._last_words is not None

    @property
    def is_ready(self) -> bool:
        return bool(self._queue) and self.may_send_bytes > PIECE_BYTES

    def send(self, data: memoryview) -> None:
        if not self.is_ending:
            self._queue.append(data)
            self.queued_bytes += len(data) + PIECE_BYTES
            self.link.streams.wake(self)

    def take(self) -> tuple[bytes, memoryview] | None:
        """The next bytes to be sent, as a frame; None if they are to wait."""
        first = self._queue.popleft()
        piece = first[: min(DATA_BYTES, self.may_send_bytes - PIECE_BYTES)]
        count = len(piece) + PIECE_BYTES
        self.may_send_bytes -= count
        if len(piece) < len(first):
            self._queue.appendleft(first[len(piece) :])
            count = len(piece)
        self.queued_bytes -= count
        self.gone(count)
        if not self._queue and self._last_words is not None:
            # Behind this piece, which is on its way out already.
            asyncio.get_running_loop().call_soon(self.end, self._last_words)
        return head(Kind.DATA, ID_BYTES + len(piece)) + self.number.to_bytes(ID_BYTES, "big"), piece

    def used(self, count: int) -> None:
        """There is room for as much again, which is told when it is worth a frame."""
        self._used_bytes += count
        if self._used_bytes >= WINDOW_BYTES // 4 and not self.is_over:
            self._may_come_bytes += self._used_bytes
            self._tell(Kind.CREDIT, self._used_bytes.to_bytes(ID_BYTES, "big"))
            self._used_bytes = 0

    def finish(self, reason: str) -> None:
        """End it as soon as what is queued has been sent, if that is soon."""
        if not self._queue:
            self.end(reason)
        elif self._last_words is None:
            self._last_words = reason
            asyncio.get_running_loop().call_later(CLOSE_S, self.end, reason)

    def end(self, reason: str) -> None:
        """At once, whatever is queued."""
        if not self.is_over:
            self._tell(Kind.CLOSE, reason.encode()[:MAX_REASON_BYTES])
            self.forget()

    def forget(self) -> None:
        self.link.streams.drop(self)
        self._queue.clear()
        count, self.queued_bytes = self.queued_bytes, 0
        self.gone(count)

    def on_data(self, data: memoryview) -> None:
        self._may_come_bytes -= len(data) + PIECE_BYTES
        if self._may_come_bytes < 0 or not 0 < len(data) <= DATA_BYTES:
            why = "more bytes of a relayed link than it may send"
            self.link.streams.refuse(why)
            raise FrameError(why)
        self.arrived(data)

    def _tell(self, kind: Kind, rest: bytes) -> None:
        self.link.connection.send(numbered(kind, self.number, rest))


class RelayedTransport(Stream, asyncio.Transport):
    """This node's end of a stream, for a connection to be made over it as over a socket."""

    def __init__(self, link: PeerLink, number: int, protocol: Connection) -> None:
        asyncio.Transport.__init__(self, {"peername": link.connection.remote})
        super().__init__(link, number)
        self._protocol = protocol
        self._is_full = self._is_deaf = False
        self._unread: deque[memoryview] = deque()
        protocol.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.send(memoryview(data))
        if self.queued_bytes and not self._is_full:
            self._is_full = True
            self._protocol.pause_writing()

    def gone(self, count: int) -> None:
        if self._is_full and not self.queued_bytes and not self.is_over:
            self._is_full = False
            self._protocol.resume_writing()

    def arrived(self, data: memoryview) -> None:
        self._unread.append(data)
        self._read()

    def ended(self, reason: str) -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(self._protocol.connection_lost, ConnectionError(f"by way of another node: {reason}"))

    def _read(self) -> None:
        while self._unread and not self._is_deaf:
            data = self._unread.popleft()
            self._protocol.get_buffer(len(data))[: len(data)] = data
            self._protocol.buffer_updated(len(data))
            self.used(len(data) + PIECE_BYTES)

    def pause_reading(self) -> None:
        self._is_deaf = True

    def resume_reading(self) -> None:
        self._is_deaf = False
        asyncio.get_running_loop().call_soon(self._read)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """It is full when anything is queued, as connections want it."""

    def get_write_buffer_size(self) -> int:
        return self.queued_bytes

    def is_closing(self) -> bool:
        return self.is_ending

    def close(self) -> None:
        self.finish(CLOSED)

    def abort(self) -> None:
        self.end(CLOSED)


class Streams:
    """Those on one link."""

    def __init__(self, link: PeerLink) -> None:
        self._link, self._hub = link, link.hub
        # Both sides open streams: one has the odd numbers, the other the even ones.
        self._last_number = 1 if link.connection.dialled else 2
        self.under_way: dict[int, Stream] = {}
        self._ready: dict[int, Stream] = {}

    @property
    def are_possible(self) -> bool:
        """Not over a link that is in a stream itself, so that nothing goes round in circles."""
        return self._link.connection.relay is None and self._link.hello.wire >= RELAYS_SINCE

    def begin(self, kind: Kind, key: bytes) -> int:
        """Tell the other end of a new stream to or from the node `key`; returns its number."""
        self._last_number = (self._last_number + 2) % 2 ** (8 * ID_BYTES)
        self._link.connection.send(numbered(kind, self._last_number, key))
        return self._last_number

    def wake(self, stream: Stream) -> None:
        """There may be something to send."""
        if stream.is_ready:
            self._ready[stream.number] = stream
            self._link.connection.pump()

    def next_frame(self) -> tuple[bytes, memoryview] | None:
        """The next piece of a stream, each of them in turn."""
        for stream in list(self._ready.values()):
            found = stream.take()
            if found is not None:
                self._ready.pop(stream.number, None)
                if stream.is_ready:
                    self._ready[stream.number] = stream
                return found
        return None

    def drop(self, stream: Stream) -> None:
        self.under_way.pop(stream.number, None)
        self._ready.pop(stream.number, None)

    def close(self, reason: str) -> None:
        """The link is down."""
        for stream in list(self.under_way.values()):
            stream.forget()
            stream.ended(reason)

    def refuse(self, why: str) -> str:
        """What the other end asks for is too much, and the log says whose that was."""
        self._hub.log.warning(REFUSED, peer=self._link.key, what="a relayed link", reason=why)
        return why

    def on_frame(self, kind: Kind, payload: bytearray) -> None:
        number, rest = number_of(payload), payload[ID_BYTES:] if kind is not Kind.DATA else b""
        stream = self.under_way.get(number)
        if kind in (Kind.OPEN, Kind.CALL):
            self._on_begun(kind, number, bytes(rest))
        elif stream is None:
            return  # it has ended meanwhile
        elif kind is Kind.DATA:
            stream.on_data(memoryview(payload)[ID_BYTES:])
        elif kind is Kind.CREDIT:
            stream.may_send_bytes += number_of(rest)
            self.wake(stream)
        else:
            stream.forget()
            stream.ended(rest[:MAX_REASON_BYTES].decode(errors="replace"))

    def _on_begun(self, kind: Kind, number: int, key: bytes) -> None:
        is_mine, most = number % 2 == self._last_number % 2, self._hub.limits.max_relayed_per_link
        if len(key) != KEY_BYTES or is_mine or number in self.under_way:
            raise FrameError("a malformed stream")
        why = None
        if self._link.connection.relay is not None:
            why = self.refuse("a relayed link is not relayed again")
        elif len(self.under_way) >= most:
            why = self.refuse(f"more than {most} relayed links at a time")
        elif kind is Kind.OPEN:
            why = self._hub.relay.carry(self._link, number, key)
        else:
            connection = Connection(self._hub, dialled=False, expected=key, relay=self._link.key)
            RelayedTransport(self._link, number, connection)
        if why is not None:
            self._link.connection.send(numbered(Kind.CLOSE, number, why.encode()))
