"""What goes over a link: frames, each a kind, a length and that many bytes.

The first byte of the four-byte head is the kind, the other three are the length. Kind 0 is a message of
the protocol, so a message on a link has exactly the bytes that `protocol.wire` makes of it (and that the
simulator accounts). A model follows its message in chunks, so that other frames can go in between.

The reader is told how many bytes came and says where the next ones belong. Those of a chunk are handed on
as they come, while the processor still has them in its cache.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from plexus.protocol.messages import ADDRESS_BYTES

HEAD_BYTES = 4
ID_BYTES = 4
MAX_LENGTH = 2**24 - 1

# Handed on of a chunk at a time. Filled and emptied within one callback of the loop, so all connections can
# share it.
_piece = memoryview(bytearray(256 * 1024))
Taker = Callable[[memoryview], None]
"""Gets the next bytes of a chunk; they are overwritten when it returns."""


class Kind(IntEnum):
    MESSAGE = 0
    """A message of the protocol, without a model."""
    HELLO = 1
    """The first frame of who dialled."""
    WELCOME = 2
    """The first frame of who was dialled: the link is up."""
    REFUSED = 3
    """Instead of a welcome, or at any time: why the link ends."""
    HEARTBEAT = 4
    OFFER = 5
    """Number, seal and message of a model to come; with a size instead of a message, a
    measurement of bandwidth."""
    GRANT = 6
    """There is room for the model with this number: send it."""
    CHUNK = 7
    """Number, then the next bytes of the model."""
    DONE = 8
    """The model with this number has arrived."""
    CANCEL = 9
    """From the sender: nothing more of this model will come."""
    DECLINE = 10
    """From the receiver: this model is not wanted (any more); with a reason, not waited for."""
    LIST = 11
    """The authority's newest list of who belongs to the session."""
    MEASURE_ME = 12
    """Please send a measurement of bandwidth."""
    RECEIVED = 13
    """So many chunks more have arrived."""
    OPEN = 14
    """Number and key: carry this stream to the node with that key."""
    CALL = 15
    """Number and key: a stream from the node with that key, which the sender carries."""
    DATA = 16
    """Number, then the next bytes of the stream."""
    CREDIT = 17
    """Number and count: so many bytes more of the stream may come."""
    CLOSE = 18
    """Number and reason: the stream has ended, or is not carried."""


KINDS = frozenset(Kind)
OF_STREAMS = (Kind.OPEN, Kind.CALL, Kind.DATA, Kind.CREDIT, Kind.CLOSE)
RELAYS_SINCE = 5
"""The version of the wire that brought streams: nobody who speaks an older one is sent a frame of them."""


class FrameError(ValueError):
    """Bytes that no peer sends."""


class Hello(Struct, frozen=True, array_like=True):
    """How the two ends of a link introduce themselves, beyond their certificates."""

    digest: Annotated[bytes, Meta(min_length=16, max_length=16)]
    incarnation: Annotated[bytes, Meta(min_length=8, max_length=8)]
    """Drawn at the start of the process: tells a restarted peer from the one before."""
    address: Annotated[bytes, Meta(min_length=ADDRESS_BYTES, max_length=ADDRESS_BYTES)]
    """Where the sender wants to be dialled."""
    list_number: Annotated[int, Meta(ge=0, lt=2**62)]
    """The number of the authority's list that the sender has."""
    observed: Annotated[bytes, Meta(min_length=ADDRESS_BYTES, max_length=ADDRESS_BYTES)]
    """Where the sender sees the other side come from."""
    wire: Annotated[int, Meta(ge=0, lt=2**31)] = 4
    """The newest version of the wire that the sender speaks; those who do not say it speak this one."""


class Refused(Struct, frozen=True, array_like=True):
    """Why a link ends."""

    reason: Annotated[str, Meta(max_length=300)]
    is_race: bool = False
    """Both dialled at once and the other connection is kept."""


Body = TypeVar("Body")


def parse(payload: bytes | bytearray, kind: type[Body]) -> Body:
    """The struct in a frame's payload."""
    try:
        return msgspec.msgpack.decode(payload, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise FrameError(f"not a {kind.__name__}: {error}") from None


def frame(kind: Kind, payload: bytes = b"") -> bytes:
    return head(kind, len(payload)) + payload


def head(kind: Kind, length: int) -> bytes:
    assert 0 <= length <= MAX_LENGTH, "a frame's length has 24 bits"
    return (kind << 24 | length).to_bytes(HEAD_BYTES, "big")


def numbered(kind: Kind, number: int, rest: bytes = b"") -> bytes:
    """A frame about the model with this number."""
    return frame(kind, number.to_bytes(ID_BYTES, "big") + rest)


def number_of(payload: bytes | bytearray) -> int:
    """The number that a payload begins with."""
    if len(payload) < ID_BYTES:
        raise FrameError("a number is missing")
    return int.from_bytes(payload[:ID_BYTES], "big")


class WholeFrame(Struct, frozen=True):
    """Of a chunk, the payload is only its number: the rest was handed on."""

    kind: Kind
    payload: bytearray
    chunk_bytes: int = 0


class FrameReader:
    """Cuts the stream into frames."""

    def __init__(self, sink: Callable[[int, int], Taker], max_bytes: int) -> None:
        """`sink` says who gets a chunk, by its model's number and its length; FrameError if nobody."""
        self._sink = sink
        self.max_bytes = max_bytes
        self._kind = Kind.MESSAGE
        self._payload = bytearray()
        self._chunk_bytes = self._left_bytes = 0
        self._take: Taker | None = None
        self._on_filled = self._on_head
        self._space, self._filled = memoryview(bytearray(HEAD_BYTES)), 0

    def space(self) -> memoryview:
        """Where the next bytes belong; never empty."""
        return self._space[self._filled :]

    def received(self, count: int) -> WholeFrame | None:
        """`count` bytes have been put into `space()`. Returns the frame that they completed, if any."""
        if self._take is not None:
            self._take(self._space[:count])
            self._left_bytes -= count
            self._space = _piece[: self._left_bytes]
            return None if self._left_bytes else self._complete()
        self._filled += count
        return self._on_filled() if self._filled == len(self._space) else None

    def _expect(self, space: memoryview) -> None:
        self._space, self._filled = space, 0

    def _on_head(self) -> WholeFrame | None:
        value = int.from_bytes(self._space, "big")
        kind, length = value >> 24, value & MAX_LENGTH
        if kind not in KINDS:
            raise FrameError(f"there is no frame of kind {kind}")
        if length > self.max_bytes:
            raise FrameError(f"a frame of {length} bytes: at most {self.max_bytes} are accepted")
        self._kind, self._chunk_bytes = Kind(kind), 0
        if self._kind is Kind.CHUNK:
            if length <= ID_BYTES:
                raise FrameError("a chunk without bytes")
            self._chunk_bytes = length - ID_BYTES
            length = ID_BYTES
        self._payload = bytearray(length)
        if not length:
            return self._complete()
        self._expect(memoryview(self._payload))
        self._on_filled = self._on_number if self._chunk_bytes else self._complete
        return None

    def _on_number(self) -> None:
        self._take = self._sink(number_of(self._payload), self._chunk_bytes)
        self._left_bytes = self._chunk_bytes
        self._expect(_piece[: self._left_bytes])

    def _complete(self) -> WholeFrame:
        self._take = None
        self._expect(memoryview(bytearray(HEAD_BYTES)))
        self._on_filled = self._on_head
        return WholeFrame(self._kind, self._payload, self._chunk_bytes)
