"""One connection, over TCP or by way of another member: TLS, the greeting, then frames.

Until the greeting is over, nothing but the greeting is accepted, and who dialled does not take the link
for up before the other side's welcome: in TLS 1.3 the handshake of a rejected client looks successful.

Control frames overtake models: they go out before the next chunk, and only so much of a model is on its
way as `window` allows.
"""

from __future__ import annotations

import asyncio
import mmap
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from plexus.live.identity.admission import MAX_LIST_BYTES, LinkedPeer, RefusedError, RevokedPeerError
from plexus.live.transport import addresses
from plexus.live.transport.addresses import Address
from plexus.live.transport.frames import (
    FrameError,
    FrameReader,
    Hello,
    Kind,
    Refused,
    Taker,
    WholeFrame,
    frame,
    parse,
)
from plexus.live.transport.tls import Tls
from plexus.protocol.messages import OLDEST_WIRE, WIRE_VERSION
from plexus.protocol.wire import WireError

if TYPE_CHECKING:
    from plexus.live.transport.hub import Hub
    from plexus.live.transport.link import PeerLink

RECEIVE_BYTES, FEED_BYTES = 4 * 2**20, 512 * 1024
"""Taken from the network in one go, and from there by TLS, which keeps room for as much on every link. What
is received of a model empties the processor's caches, so between two pieces everything is slow: they are
large."""
TURN_S = 0.02
"""How long one connection may be busy with what it received before others get their turn."""
PUMP_BYTES = 4 * 2**20
"""Sent in one go before others get their turn."""
CLOSE_S = 2.0
NOWHERE: Address = ("0.0.0.0", 0)
UNREAD = "the other side does not read what it is sent"

# Filled and emptied within one callback of the loop, so all connections can share it. Mapped, so that what is
# never filled takes no memory.
_received = memoryview(mmap.mmap(-1, RECEIVE_BYTES))


class RaceError(RefusedError):
    """Both sides dialled at once, and this connection is not the one that is kept."""


@dataclass(eq=False, repr=False)
class Connection(asyncio.BufferedProtocol):
    """An asyncio protocol; the hub decides about it and gets told of its life."""

    _hub: Hub
    dialled: bool
    """By this side."""
    expected: bytes | None = None
    relay: bytes | None = None
    """Who carries it, if it is not direct."""

    def __post_init__(self) -> None:
        admission = self._hub.admission
        context = admission.client_context if self.dialled else admission.server_context
        self._tls = Tls(context, server_side=not self.dialled)
        self._reader = FrameReader(self._sink, self._hub.limits.max_greeting_bytes)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._link: PeerLink | None = None
        self._control: deque[bytes] = deque()
        self._unread = memoryview(b"")
        """What has come and TLS has not been given yet."""
        self._paused = self._pumping = self._is_behind = False
        """Behind: nothing more is read before what has come is handled."""
        self._deadline: asyncio.TimerHandle | None = None
        self.peer: LinkedPeer | None = None
        self.remote = NOWHERE
        """Of a relayed one, the relay's."""
        self.reason: str | None = None
        """Why it was closed."""
        self.was_race = False
        self.settled = asyncio.Event()
        """Set when the link is up or will never be."""
        self.heard_at = self.spoke_at = self.used_at = self._loop.time()
        self.sent_bytes = self.received_bytes = self._control_bytes = 0

    @property
    def is_up(self) -> bool:
        return self._link is not None and self.reason is None

    @property
    def has_unsent(self) -> bool:
        return bool(self._control) or self._paused

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        name = transport.get_extra_info("peername")
        if name:
            self.remote = addresses.normal((name[0], name[1]))
        # One that somebody else dialled is counted against the limits before anything else.
        if not self.dialled and not (name and self._hub.begin_handshake(self)):
            self.close("too many connections that are not admitted yet")
            transport.abort()
            return
        self._transport = transport
        transport.set_write_buffer_limits(high=0)
        timeout_s = self._hub.limits.handshake_timeout_s
        late = f"no link within {timeout_s:g} s"
        self._deadline = self._loop.call_later(timeout_s, lambda: self.close(late, tell=False))
        self._guarded(self._advance)

    def get_buffer(self, sizehint: int) -> memoryview:
        return _received

    def buffer_updated(self, count: int) -> None:
        if self.reason is not None:
            return
        self.heard_at = self._loop.time()
        self.received_bytes += count
        assert not self._unread, "nothing is read before what has come is handled"
        self._unread = _received[:count]
        self._guarded(self._advance)
        # Mostly nothing is left, else others fill the memory that it is in.
        self._unread = memoryview(bytes(self._unread) if self.reason is None else b"")

    def eof_received(self) -> None:
        self.close("the other side closed the connection", tell=False)

    def connection_lost(self, error: Exception | None) -> None:
        self.close(f"connection lost: {error}" if error else "the connection was closed", tell=False)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.pump()

    def send(self, data: bytes) -> None:
        """Send a frame, before any further chunk of a model."""
        if self.reason is not None:
            return
        self._control.append(data)
        self._control_bytes += len(data)
        if self._control_bytes > self._hub.limits.max_unsent_bytes:
            self.close(UNREAD, tell=False)
            return
        self.pump()

    def pump(self) -> None:
        """Send what there is, for as long as the network takes it at once."""
        if self._pumping or self._transport is None:
            return
        self._pumping = True
        try:
            left = PUMP_BYTES
            while not self._paused and left > 0 and self.reason is None:
                data = self._next()
                if data is None:
                    return
                *heads, body = data
                for each in heads:
                    self._tls.write(each)
                for at in range(0, len(body), FEED_BYTES):
                    if self.reason is None:
                        self._tls.write(body[at : at + FEED_BYTES])
                        self._flush()
                left -= len(body)
        finally:
            self._pumping = False
        if not self._paused and self.reason is None:
            self._loop.call_soon(self.pump)

    def close(self, reason: str, tell: bool = True, is_race: bool = False) -> None:
        """End it, once; `reason` goes to the other side (if it may know), the log and the hub."""
        if self.reason is not None:
            return
        self.reason, self.was_race = reason, is_race
        if self._deadline is not None:
            self._deadline.cancel()
        if self._transport is not None:
            if self._tls.ready:
                refused = msgspec.msgpack.encode(Refused(reason[:300], is_race))
                self._tls.close(frame(Kind.REFUSED, refused) if tell else b"")
            self._flush()  # of a failed handshake, this is TLS's own alert
            self._transport.close()
            self._hub.ending.add(self._transport)
            self._loop.call_later(CLOSE_S, self._transport.abort)
        if self._link is not None:
            self._hub.guarded("link", self._link.close, reason)
        self._hub.closed(self, reason)
        self.settled.set()
        self._loop.call_soon(self._tls.forget)  # who closed it may be at work with it

    def _guarded(self, step: Callable[[], None]) -> None:
        """Whatever a peer sends, the worst that happens is that its connection ends."""
        try:
            step()
        except (RefusedError, FrameError, WireError, EOFError) as error:
            is_race, has_gone = isinstance(error, RaceError), isinstance(error, EOFError)
            self.close(str(error), tell=not has_gone, is_race=is_race)
        except Exception:
            self._hub.failed("connection")
            self.close("internal error")

    def _advance(self) -> None:
        if self.reason is not None:
            return
        while not self._tls.ready:
            self._feed()
            self._handshake()
            if not (self._unread or self._tls.ready):
                return
        reader, tls, now = self._reader, self._tls, self._loop.time
        until = now() + TURN_S
        while self.reason is None:
            count = tls.read_into(reader.space())
            if count == 0:
                if self._feed():
                    continue
                self._catch_up()
                return
            complete = reader.received(count)
            if complete is not None:
                self._on_frame(complete)
                if now() > until:  # a peer may send more in a moment than can be handled in one
                    assert self._transport is not None
                    self._is_behind = True
                    self._transport.pause_reading()
                    self._loop.call_soon(self._guarded, self._advance)
                    return

    def _feed(self) -> bool:
        """Whether TLS got something more."""
        some, self._unread = self._unread[:FEED_BYTES], self._unread[FEED_BYTES:]
        self._tls.feed(some)
        return bool(some)

    def _catch_up(self) -> None:
        if self._is_behind and self._transport is not None:
            self._is_behind = False
            self._transport.resume_reading()
        self._flush()  # answers to TLS's own messages
        if self._link is not None:
            self._link.receiving.acknowledge()

    def _handshake(self) -> None:
        self._tls.handshake()
        self._flush()
        if not self._tls.ready:
            return
        admission = self._hub.admission
        try:
            self.peer = admission.admit(self._tls.peer_certificate())
        except RevokedPeerError:
            # On the authority's word it ends. It may have been cut off when others heard it.
            self._tls.write(frame(Kind.LIST, admission.list.der))
            raise
        self._reader.max_bytes = max(self._hub.limits.max_greeting_bytes, MAX_LIST_BYTES)
        if self.expected is not None and self.peer.key != self.expected:
            raise RefusedError(f"expected node {self.expected.hex()} at this address")
        if self.dialled:
            self._send_now(Kind.HELLO)

    def _on_frame(self, complete: WholeFrame) -> None:
        kind = complete.kind
        if kind is Kind.REFUSED:
            refused = parse(complete.payload, Refused)
            self.close(f"refused: {refused.reason}", tell=False, is_race=refused.is_race)
        elif self._link is not None:
            self._link.on_frame(complete)
        elif kind is Kind.LIST and self.peer is not None:
            self._hub.inbox.list_offered(self.peer.key, bytes(complete.payload))
        elif kind is (Kind.WELCOME if self.dialled else Kind.HELLO):
            self._on_greeting(parse(complete.payload, Hello))
        else:
            raise FrameError(f"a {kind.name} before the greeting")

    def _on_greeting(self, hello: Hello) -> None:
        mine = self._hub.admission.session.digest
        if hello.digest != mine:
            raise RefusedError(f"this is session {mine.hex()}, not {hello.digest.hex()}")
        if hello.wire < OLDEST_WIRE:
            spoken = f"{OLDEST_WIRE} to {WIRE_VERSION}"
            raise RefusedError(f"it speaks version {hello.wire} of the wire, this node {spoken}: upgrade it")
        self._hub.greeted(self, hello)
        if not self.dialled:
            self._send_now(Kind.WELCOME)
        assert self._deadline is not None
        self._deadline.cancel()
        self._reader.max_bytes = self._hub.limits.max_frame_bytes
        self._link = self._hub.up(self, hello)
        self.settled.set()
        self.pump()

    def _send_now(self, kind: Kind) -> None:
        hello = self._hub.hello(NOWHERE if self.relay else self.remote)
        self._tls.write(frame(kind, msgspec.msgpack.encode(hello)))
        self._flush()

    def _sink(self, number: int, length: int) -> Taker:
        if self._link is None:
            raise FrameError("a CHUNK before the greeting")
        return self._link.receiving.sink(number, length)

    def _next(self) -> tuple[bytes | memoryview, ...] | None:
        if self._link is None:
            return None
        if self._control:
            data = b"".join(self._control)
            self._control.clear()
            self._control_bytes = 0
            return (data,)
        return self._link.next_bulk()

    def _flush(self) -> None:
        assert self._transport is not None
        data = self._tls.to_send()
        if data and not self._transport.is_closing():  # by now, many relayed links may end on a dead one
            self.spoke_at = self._loop.time()
            self.sent_bytes += len(data)
            self._transport.write(memoryview(data))  # what does not fit is copied once, not twice
            if self._transport.get_write_buffer_size() > self._hub.limits.max_unsent_bytes:
                self.close(UNREAD, tell=False)
