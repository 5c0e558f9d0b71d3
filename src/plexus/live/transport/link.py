"""A link that is up: messages and models between this node and one other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from plexus.live.identity.admission import MAX_REVOCATIONS_BYTES
from plexus.live.models import LiveModel
from plexus.live.transport.connection import Connection
from plexus.live.transport.frames import HEAD_BYTES, FrameError, Hello, Kind, WholeFrame, frame, number_of
from plexus.live.transport.limits import MESSAGE
from plexus.live.transport.receiving import Buffers, Receiving, Ticket
from plexus.live.transport.sending import Sending

if TYPE_CHECKING:
    from plexus.live.transport.hub import Hub

MEASURE_EVERY_S = 60.0


class Inbox(Protocol):
    """Who gets what arrives. A `WireError` from here ends the link that it came from."""

    buffers: Buffers

    def message(self, src: bytes, payload: bytes) -> None: ...
    def offered(self, src: bytes, payload: bytes) -> Any:
        """The message of a model, decoded, or None if the model is not worth receiving."""

    def model(self, src: bytes, body: Any, model: LiveModel, ticket: Ticket) -> None:
        """A whole model, its seal not yet checked, what `offered` made of its message, and the ticket of the
        buffer it is in."""

    def not_coming(self, src: bytes, body: Any) -> None:
        """A model that was offered and wanted does not come after all."""

    def sent(self, dst: bytes, tag: Any) -> None:
        """The model that was sent with this tag is there."""

    def not_sent(self, dst: bytes, tag: Any, reason: str) -> None:
        """What was sent with this tag is known not to have arrived."""

    def link_down(self, key: bytes, reason: str) -> None: ...
    def measured(self, size_bytes: int, seconds: float, sent: bool) -> None: ...
    def revocations(self, src: bytes, list_der: bytes) -> None: ...


class PeerLink:
    """One per pair of nodes."""

    def __init__(self, hub: Hub, connection: Connection, hello: Hello) -> None:
        assert connection.peer is not None
        self.key = connection.peer.key
        self.hub = hub
        self.hello = hello
        self.connection = connection
        self._measured_at = -MEASURE_EVERY_S
        self.sending = Sending(self)
        self.receiving = Receiving(self)
        self._on_kind: dict[Kind, Callable[[bytearray], None]] = {
            Kind.MESSAGE: self._on_message,
            Kind.HEARTBEAT: lambda _: None,
            Kind.OFFER: self.receiving.on_offer,
            Kind.GRANT: self.sending.on_grant,
            Kind.DONE: self.sending.on_done,
            Kind.CANCEL: self.receiving.on_cancel,
            Kind.DECLINE: self.sending.on_decline,
            Kind.RECEIVED: self.sending.on_received,
            Kind.REVOCATIONS: self._on_revocations,
            Kind.MEASURE_ME: self._on_measure_me,
        }

    @property
    def is_idle(self) -> bool:
        return not self.sending.under_way and not self.receiving.under_way

    def send(self, message: bytes) -> None:
        """Send a message as `protocol.wire` encodes it, head and all."""
        self._used()
        self.hub.traffic.message(message)
        self.connection.send(message)

    def send_model(self, payload: bytes, model: LiveModel, tag: Any) -> None:
        """Send a model with its message (without head); `tag` comes back with the outcome."""
        self._used()
        self.sending.offer(payload, model, tag)

    def measure(self) -> None:
        """Find out how fast this link is, both ways."""
        self.sending.probe()
        self.connection.send(frame(Kind.MEASURE_ME))

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

    def _on_message(self, payload: bytearray) -> None:
        self.hub.traffic.note(MESSAGE, HEAD_BYTES + len(payload), sent=False)
        self.hub.inbox.message(self.key, bytes(payload))

    def _on_revocations(self, payload: bytearray) -> None:
        if len(payload) > MAX_REVOCATIONS_BYTES:
            raise FrameError("the list of revocations is too long")
        self.hub.inbox.revocations(self.key, bytes(payload))

    def _on_measure_me(self, _: bytearray) -> None:
        now = self.connection.heard_at
        if now >= self._measured_at + MEASURE_EVERY_S:
            self._measured_at = now
            self.sending.probe()

    def _used(self) -> None:
        self.connection.used_at = asyncio.get_running_loop().time()
