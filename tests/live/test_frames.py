"""Frames: what is sent is read, whatever the pieces it comes in; anything else ends the link, no more."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plexus.live.transport import connection as connections
from plexus.live.transport.connection import Connection
from plexus.live.transport.frames import (
    HEAD_BYTES,
    ID_BYTES,
    FrameError,
    FrameReader,
    Hello,
    Kind,
    Taker,
    WholeFrame,
    frame,
    numbered,
    parse,
)
from plexus.live.transport.limits import Limits
from plexus.protocol import wire
from plexus.protocol.messages import Ping
from plexus.protocol.roster import Roster
from tests.live.fakes import StubOwner, StubTls, StubTransport
from tests.live.party import Party

MALFORMED, PER_EXAMPLE = 10_000, 25


class Sinks:
    """Buffers for chunks, by number."""

    def __init__(self) -> None:
        self.buffers = {number: bytearray() for number in range(4)}

    def __call__(self, number: int, length: int) -> Taker:
        if number not in self.buffers:
            raise FrameError("nowhere")
        return self.buffers[number].extend


def read(stream: bytes, cuts: list[int], sinks: Sinks, most: int = 2**16) -> list[WholeFrame]:
    """Feed `stream` in pieces that end at `cuts`."""
    reader = FrameReader(sinks, most)
    frames = []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        piece = memoryview(stream)[start:stop]
        while len(piece):
            space = reader.space()
            count = min(len(space), len(piece))
            space[:count] = piece[:count]
            piece = piece[count:]
            complete = reader.received(count)
            if complete is not None:
                frames.append(complete)
    return frames


plain_kinds = st.sampled_from([kind for kind in Kind if kind is not Kind.CHUNK])
plain_frames = st.tuples(plain_kinds, st.binary(max_size=300))
chunks = st.tuples(st.integers(0, 3), st.binary(min_size=1, max_size=300))


@given(st.lists(plain_frames | chunks, max_size=8), st.data())
def test_frames_come_out_as_they_went_in_however_they_are_cut(
    sent: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    stream, wanted, wanted_chunks = b"", [], Sinks().buffers
    for what, content in sent:
        if isinstance(what, Kind):
            stream += frame(what, content)
            wanted.append(WholeFrame(what, bytearray(content)))
        else:
            stream += numbered(Kind.CHUNK, what, content)
            number = bytearray(what.to_bytes(ID_BYTES, "big"))
            wanted.append(WholeFrame(Kind.CHUNK, number, len(content)))
            wanted_chunks[what] += content
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    sinks = Sinks()
    assert read(stream, cuts, sinks) == wanted
    assert sinks.buffers == wanted_chunks


def test_a_message_on_a_link_has_the_bytes_that_the_simulator_accounts() -> None:
    encoded = wire.encode(Ping(1, 2), Roster(b"s"))
    assert frame(Kind.MESSAGE, encoded[wire.LENGTH_BYTES :]) == encoded
    assert len(encoded) == wire.frame_bytes(Ping(1, 2))


@pytest.mark.parametrize(
    ("stream", "complaint"),
    [
        (b"\xff\xff\xff\xff", "no frame of kind 255"),
        (b"\x00\xff\xff\xff", "at most 65536 are accepted"),
        (b"\x07\x00\x00\x04", "a chunk without bytes"),
        (b"\x07\x00\x00\x05\x00\x00\x00\x09", "nowhere"),
    ],
)
def test_what_no_peer_sends_is_an_error_at_once(stream: bytes, complaint: str) -> None:
    """Before a byte of the contents is read, and without making room for them."""
    with pytest.raises(FrameError, match=complaint):
        read(stream, [], Sinks())


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x90", b"\x91" * 2000, b"\x95\xa0\x00\x00\x00\x00"])
def test_a_malformed_greeting_is_an_error(payload: bytes) -> None:
    with pytest.raises(FrameError, match="not a Hello"):
        parse(payload, Hello)


# 10,000 malformed frames against codec and connection. TLS is left out: it authenticates every byte, so
# only an admitted peer gets this far.

heads = st.integers(0, 2**32 - 1).map(lambda value: value.to_bytes(HEAD_BYTES, "big"))
wrong_frames = st.one_of(
    st.binary(min_size=1, max_size=100),
    st.tuples(heads, st.binary(max_size=60)).map(b"".join),
    st.builds(frame, st.sampled_from(Kind), st.binary(max_size=60)),
    st.builds(
        lambda kind, values: frame(kind, msgspec.msgpack.encode(values)),
        st.sampled_from([Kind.MESSAGE, Kind.HELLO, Kind.WELCOME, Kind.REFUSED]),
        st.lists(st.integers() | st.binary(max_size=20) | st.none() | st.floats(), max_size=8).filter(
            lambda values: all(not isinstance(v, int) or -(2**63) <= v < 2**64 for v in values)
        ),
    ),
    st.builds(numbered, st.sampled_from(Kind), st.integers(0, 3), st.binary(max_size=60)),
)


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StubOwner:
    monkeypatch.setattr(connections, "Tls", StubTls)
    return StubOwner(Party(tmp_path).admission("a"), Limits(max_frame_bytes=4096))


@pytest.mark.slow
@settings(max_examples=MALFORMED // PER_EXAMPLE, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(wrong_frames, min_size=PER_EXAMPLE, max_size=PER_EXAMPLE), st.booleans())
def test_malformed_frames_end_their_link_and_nothing_else(
    owner: StubOwner, pieces: list[bytes], greeted: bool
) -> None:
    async def attack() -> None:
        connection: Connection | None = None
        for piece in pieces:
            if connection is None or connection.reason is not None:
                connection = Connection(owner, dialled=False)
                transport = StubTransport()
                connection.connection_made(transport)
                if greeted:
                    give(connection, owner.greeting())
                    assert connection.is_up
            give(connection, piece)
            assert transport.closed == (connection.reason is not None)
            assert greeted or not connection.is_up

    asyncio.run(attack())
    assert owner.failures == [], "an exception got past the border"


def give(connection: Connection, data: bytes) -> None:
    while data and connection.reason is None:
        space = connection.get_buffer(-1)
        count = min(len(space), len(data))
        space[:count] = data[:count]
        connection.buffer_updated(count)
        data = data[count:]
