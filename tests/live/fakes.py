"""Stand-ins around a connection: TLS that does not encrypt, a transport without a socket, an owner."""

from __future__ import annotations

import asyncio
import ssl
import traceback
from collections.abc import Callable
from typing import Any

import msgspec

from plexus.live.identity.admission import Admission, LinkedPeer
from plexus.live.models import LiveModel
from plexus.live.operator.log import Log
from plexus.live.transport.addresses import Address, pack
from plexus.live.transport.connection import Connection
from plexus.live.transport.frames import Hello, Kind, frame
from plexus.live.transport.limits import ByteCounts, Limits
from plexus.live.transport.link import PeerLink
from plexus.live.transport.receiving import Buffers, Ticket
from plexus.protocol import wire
from plexus.protocol.messages import NO_ADDRESS
from plexus.protocol.roster import Roster

SOMEBODY = LinkedPeer(b"somebody's key!!", 2.0**40, 1)


class StubTls:
    """Passes everything through."""

    def __init__(self, context: ssl.SSLContext, server_side: bool) -> None:
        self._incoming = bytearray()
        self._outgoing = bytearray()
        self.ready = False

    def feed(self, data: bytes | memoryview) -> None:
        self._incoming += data

    def handshake(self) -> None:
        self.ready = True

    def read_into(self, space: memoryview) -> int:
        count = min(len(space), len(self._incoming))
        space[:count] = self._incoming[:count]
        del self._incoming[:count]
        return count

    def write(self, data: bytes | memoryview) -> None:
        self._outgoing += data

    def to_send(self) -> bytes:
        data, self._outgoing = bytes(self._outgoing), bytearray()
        return data

    def peer_certificate(self) -> bytes | None:
        return b""

    def close(self, last_words: bytes = b"") -> None:
        self._outgoing += last_words

    def forget(self) -> None: ...


class StubTransport(asyncio.Transport):
    """Remembers what was written."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 9)})
        self.written = bytearray()
        self.closed = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


class Recorder:
    """An inbox that understands messages like a node, and does nothing about them."""

    def __init__(self) -> None:
        self.buffers = Buffers(1000, 4000)
        self._roster = Roster(b"session")

    def message(self, src: bytes, payload: bytes) -> None:
        wire.decode(payload, self._roster)

    def offered(self, src: bytes, payload: bytes) -> bytes:
        wire.decode(payload, self._roster)
        return payload

    def model(self, src: bytes, payload: bytes, model: LiveModel, ticket: Ticket) -> None:
        self.buffers.give_back(ticket)

    def not_coming(self, src: bytes, body: Any) -> None: ...
    def overdue(self, src: bytes) -> None: ...
    def outcome(self, dst: bytes, tag: Any, reason: str | None) -> None: ...
    def measured(self, size_bytes: int, seconds: float, sent: bool) -> None: ...
    def link_down(self, key: bytes, reason: str) -> None: ...

    def list_offered(self, src: bytes, list_der: bytes) -> None: ...


class StubOwner:
    """A hub of one connection at a time."""

    def __init__(self, admission: Admission, limits: Limits) -> None:
        self.admission = admission
        self.limits = limits
        self.inbox = Recorder()
        self.traffic, self.log, self.bandwidth = ByteCounts(), Log(), lambda _: 0
        self.failures: list[str] = []
        self.ending: set[object] = set()
        admission.admit = lambda _: SOMEBODY  # type: ignore[method-assign]

    def greeting(self) -> bytes:
        return frame(Kind.HELLO, msgspec.msgpack.encode(self.hello(("127.0.0.1", 1))))

    def hello(self, observed: Address) -> Hello:
        return Hello(self.admission.session.digest, bytes(8), NO_ADDRESS, 1, pack(observed))

    def begin_handshake(self, connection: Connection) -> bool:
        return True

    def greeted(self, connection: Connection, hello: Hello) -> None: ...

    def up(self, connection: Connection, hello: Hello) -> PeerLink:
        self.inbox = Recorder()
        return PeerLink(self, connection, hello)  # type: ignore[arg-type]

    def closed(self, connection: Connection, reason: str) -> None: ...

    def guarded(self, where: str, action: Callable[..., None], *arguments: Any) -> None:
        try:
            action(*arguments)
        except Exception:
            self.failed(where)

    def failed(self, where: str) -> None:
        self.failures.append(traceback.format_exc())
