"""TLS over memory, against Python's own: how the end of a conversation looks from the inside."""

from __future__ import annotations

import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from plexus.live.transport.tls import Tls
from tests.live.party import Party, lax_context

pytestmark = pytest.mark.timeout(20)


class Client:
    """Python's TLS, its bytes carried to ours and back."""

    def __init__(self, context: ssl.SSLContext, other: Tls) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.side = context.wrap_bio(self._incoming, self._outgoing)
        self._other = other
        while not other.ready:
            with suppress(ssl.SSLWantReadError):
                self.side.do_handshake()
            self.carry()
            other.handshake()
            self._incoming.write(other.to_send())

    def carry(self) -> None:
        self._other.feed(self._outgoing.read())


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Client, Tls]:
    party = Party(tmp_path)
    mine = Tls(party.admission("a").server_context, server_side=True)
    return Client(lax_context(party.home("b")), mine), mine


def test_a_close_is_the_end_after_everything_said_before_it(pair: tuple[Client, Tls]) -> None:
    client, mine = pair
    client.side.write(b"the last words")
    with pytest.raises(ssl.SSLWantReadError):
        client.side.unwrap()
    client.carry()
    space = memoryview(bytearray(100))
    assert mine.read_into(space) == 14
    assert bytes(space[:14]) == b"the last words"
    for _ in range(2):
        with pytest.raises(EOFError, match="the other side closed the connection"):
            mine.read_into(space)


def test_a_close_in_the_middle_of_a_frame_gives_out_what_came_of_it(pair: tuple[Client, Tls]) -> None:
    client, mine = pair
    for piece in (b"a fra", b"me th"):
        client.side.write(piece)
    with pytest.raises(ssl.SSLWantReadError):
        client.side.unwrap()
    client.carry()
    space = memoryview(bytearray(12))
    assert mine.read_into(space) == 10
    with pytest.raises(EOFError):
        mine.read_into(space[10:])


def test_silence_is_not_the_end(pair: tuple[Client, Tls]) -> None:
    client, mine = pair
    space = memoryview(bytearray(10))
    assert mine.read_into(space) == 0
    client.side.write(b"more")
    client.carry()
    assert mine.read_into(space) == 4
