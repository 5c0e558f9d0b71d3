"""A link that is up: messages and models between this node and one other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from plexus.live.identity.admission import MAX_REVOCATIONS_BYTES
from plexus.live.identity.keys import short
from plexus.live.models import LiveModel
from plexus.live.operator.log import Log
from plexus.live.transport.connection import Connection
from plexus.live.transport.frames import HEAD_BYTES, Frame, FrameError, Hello, Kind, frame, number_of
from plexus.live.transport.limits import MESSAGE, ByteCounts, Limits, Transfer
from plexus.live.transport.receiving import Buffers, Incoming, Receiving, Ticket
from plexus.live.transport.sending import Outgoing, Sending

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
    def failed(self, where: str) -> None: ...


class Link:
    """One per pair of nodes."""

    def __init__(
        self,
        connection: Connection,
        hello: Hello,
        inbox: Inbox,
        limits: Limits,
        log: Log,
        traffic: ByteCounts,
        bandwidth: Callable[[bytes], int],
    ) -> None:
        assert connection.peer is not None
        self.key = connection.peer.key
        self.hello = hello
        self.connection = connection
        self._inbox = inbox
        self._measured_at = -MEASURE_EVERY_S
        self._log = log
        self._traffic = traffic
        self._bandwidth = bandwidth
        self.sending = Sending(
            connection.send, connection.pump, self, limits.max_transfers, inbox.buffers.size_bytes
        )
        self.receiving = Receiving(connection.send, self, inbox.buffers, limits)
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
        self._traffic.message(message)
        self.connection.send(message)

    def send_model(self, payload: bytes, model: LiveModel, tag: Any) -> None:
        """Send a model with its message (without head); `tag` comes back with the outcome."""
        self._used()
        self.sending.offer(payload, model, tag)

    def measure(self) -> None:
        """Find out how fast this link is, both ways."""
        self.sending.probe()
        self.connection.send(frame(Kind.MEASURE_ME))

    # What the connection calls

    def on_frame(self, complete: Frame) -> None:
        if complete.kind is Kind.CHUNK:
            self.receiving.on_chunk(number_of(complete.payload), complete.chunk_bytes)
            return
        handler = self._on_kind.get(complete.kind)
        if handler is None:
            raise FrameError(f"a {complete.kind.name} on a link that is up")
        if complete.kind is not Kind.HEARTBEAT:
            self._used()
        handler(complete.payload)

    def next_chunk(self) -> tuple[bytes | memoryview, ...] | None:
        return self.sending.next_chunk()

    def caught_up(self) -> None:
        self.receiving.acknowledge()

    def sink(self, number: int, length: int) -> memoryview:
        return self.receiving.sink(number, length)

    def close(self, reason: str) -> None:
        self.receiving.close()
        self.sending.close(reason)

    # What the two halves call

    def offered(self, message: bytes) -> Any:
        return self._inbox.offered(self.key, message)

    def arrived(self, body: Any, model: LiveModel, ticket: Ticket) -> None:
        try:
            self._inbox.model(self.key, body, model, ticket)
        except Exception:
            self._inbox.failed("model")

    def not_coming(self, body: Any) -> None:
        self._inbox.not_coming(self.key, body)

    def sent(self, tag: Any) -> None:
        self._inbox.sent(self.key, tag)

    def not_sent(self, tag: Any, reason: str) -> None:
        self._inbox.not_sent(self.key, tag, reason)

    def measured(self, size_bytes: int, seconds: float, sent: bool) -> None:
        self._inbox.measured(size_bytes, seconds, sent)

    def ended(self, outgoing: Outgoing, cut: bool) -> None:
        now = asyncio.get_running_loop().time()
        transfer = Transfer(self.key, outgoing.tag, outgoing.offered_at, now, cut)
        self._traffic.ended(transfer, outgoing.message_bytes, outgoing.sent_bytes)

    def moved(self, what: str, size_bytes: int, sent: bool) -> None:
        self._traffic.note(what, size_bytes, sent)

    def bandwidth(self) -> int:
        """Of the slower end, in bytes per second, as far as it is known; else 0."""
        return self._bandwidth(self.key)

    def overdue(self, incoming: Incoming, waited_s: float) -> None:
        self._log.warning(
            "model_overdue",
            peer=short(self.key),
            waited_s=waited_s,
            received_bytes=incoming.received_bytes,
            of_bytes=incoming.probe_bytes if incoming.is_probe else self._inbox.buffers.size_bytes,
        )

    def _on_message(self, payload: bytearray) -> None:
        self.moved(MESSAGE, HEAD_BYTES + len(payload), sent=False)
        self._inbox.message(self.key, bytes(payload))

    def _on_revocations(self, payload: bytearray) -> None:
        if len(payload) > MAX_REVOCATIONS_BYTES:
            raise FrameError("the list of revocations is too long")
        self._inbox.revocations(self.key, bytes(payload))

    def _on_measure_me(self, _: bytearray) -> None:
        now = self.connection.heard_at
        if now >= self._measured_at + MEASURE_EVERY_S:
            self._measured_at = now
            self.sending.probe()

    def _used(self) -> None:
        self.connection.used_at = asyncio.get_running_loop().time()
