"""Models that were granted and do not come: given up, and their buffers go to others."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from plexus.live.fleet.shaping import Pipe, Proxy, Route, Way
from plexus.live.identity.keys import load_key, short
from plexus.live.models import SEAL_BYTES
from plexus.live.transport.frames import Kind, number_of, numbered
from plexus.live.transport.limits import Limits
from plexus.live.transport.receiving import Buffers, Ticket
from plexus.protocol.roster import key_of
from tests.live.ends import End
from tests.live.party import Party, greeted

HASTY = Limits(transfer_grace_s=0.3)
SIZE = 200_000


@pytest.fixture
def party(tmp_path: Path) -> Party:
    return Party(tmp_path)


@asynccontextmanager
async def receiver(party: Party, limits: Limits = HASTY) -> AsyncIterator[End]:
    end = End(party.admission("a"), SIZE, limits)
    await end.open()
    try:
        yield end
    finally:
        await end.hub.close("the test is over")


class Member:
    """One that offers a model, and then does as it likes."""

    def __init__(self, party: Party, home: Path, to: End) -> None:
        self.home = home
        self._socket: ssl.SSLSocket = greeted(party, self.home, to.address)
        self._heard = b""
        self._socket.sendall(numbered(Kind.OFFER, 1, bytes(SEAL_BYTES) + b"a model"))
        assert self.hear(Kind.GRANT)[:4] == (1).to_bytes(4, "big")

    @property
    def name(self) -> str:
        return short(key_of(load_key(self.home / "node.key").public_key().public_bytes_raw()))

    def hear(self, kind: Kind) -> bytes:
        """The payload of the next frame of this kind."""
        while True:
            while len(self._heard) < 4 or len(self._heard) < 4 + self._length:
                data = self._socket.recv(65536)
                assert data, "the link is gone"
                self._heard += data
            found, payload = self._heard[0], self._heard[4 : 4 + self._length]
            self._heard = self._heard[4 + self._length :]
            if found == kind:
                return payload

    @property
    def _length(self) -> int:
        return int.from_bytes(self._heard[1:4], "big")

    def say(self, count: int) -> None:
        """Some bytes of the model."""
        self._socket.sendall(numbered(Kind.CHUNK, 1, bytes(count)))

    def say_raw(self, data: bytes) -> None:
        self._socket.sendall(data)

    def close(self) -> None:
        self._socket.close()


def test_a_granted_model_that_does_not_come_makes_room_and_its_sender_is_named(party: Party) -> None:
    async def story() -> None:
        homes = [party.home(name) for name in "xy"]
        async with receiver(party, Limits(transfer_grace_s=2.0)) as a:
            members = [await asyncio.to_thread(Member, party, home, a) for home in homes]
            assert (a.buffers.free, a.buffers.count) == (0, 2)
            b = End(party.admission("b"), SIZE)
            b.knows(a)
            data = os.urandom(SIZE)
            b.send_model(a, data, "tag")
            await b.until(lambda: b.fates)
            assert b.fates == [("tag", "sent")]
            for member in members:
                answer = await asyncio.to_thread(member.hear, Kind.DECLINE)
                assert (number_of(bytearray(answer)), answer[4:]) == (1, b"its bytes do not come")
                # The link is kept, and what comes late is thrown away.
                await asyncio.to_thread(member.say, SIZE)
                await asyncio.to_thread(member.hear, Kind.RECEIVED)
                member.close()
            await a.until(lambda: a.buffers.free == a.buffers.count)
            assert a.models == [(b.key, b"a model", data)]
            said = [line for line in a.warnings() if line["event"] == "model_overdue"]
            assert {line["peer"] for line in said} == {member.name for member in members}
            assert [(line["received_bytes"], line["of_bytes"]) for line in said] == 2 * [(0, SIZE)]
            await b.hub.close("the test is over")

    asyncio.run(story())


def test_what_comes_late_of_a_chunk_is_in_nobody_elses_model(party: Party) -> None:
    """A model is given up in the middle of a chunk, and its buffer is another's when the rest comes."""

    async def story() -> None:
        async with receiver(party) as a:
            a.known_bandwidth = 100_000_000
            member = await asyncio.to_thread(Member, party, party.home("x"), a)
            chunk = numbered(Kind.CHUNK, 1, b"x" * SIZE)
            await asyncio.to_thread(member.say_raw, chunk[: SIZE // 2])
            await asyncio.to_thread(member.hear, Kind.DECLINE)
            assert a.buffers.free == a.buffers.count
            a.holding, data = [], os.urandom(SIZE)
            b = End(party.admission("b"), SIZE)
            b.knows(a)
            b.send_model(a, data, "tag")
            await b.until(lambda: b.fates)
            await asyncio.to_thread(member.say_raw, chunk[SIZE // 2 :])
            await asyncio.to_thread(member.hear, Kind.RECEIVED)
            [ticket] = a.holding
            assert bytes(ticket.buffer or b"") == data
            member.close()
            await b.hub.close("the test is over")

    asyncio.run(story())


def test_a_model_that_drips_is_given_up(party: Party) -> None:
    """It comes a hundred times slower than its ends are."""

    async def story() -> None:
        async with receiver(party) as a:
            a.known_bandwidth = 100_000_000
            member = await asyncio.to_thread(Member, party, party.home("x"), a)
            async with asyncio.timeout(20):
                while a.buffers.free < a.buffers.count:
                    await asyncio.to_thread(member.say, 100)
                    await asyncio.sleep(0.02)
            [said] = [line for line in a.warnings() if line["event"] == "model_overdue"]
            assert 0 < said["received_bytes"] < SIZE
            member.close()

    asyncio.run(story())


def test_a_slow_model_whose_bytes_keep_coming_arrives(party: Party) -> None:
    async def story() -> None:
        async with receiver(party) as a:
            b = End(party.admission("b"), SIZE)
            a.known_bandwidth = SIZE
            pipe = Way(pipes=[Pipe(SIZE)])
            proxy = Proxy(a.address, lambda _: Route(there=pipe))
            b.learn(a.key, await proxy.listen(("127.0.0.1", 0)))
            b.send_model(a, bytes(SIZE), "tag")
            await b.until(lambda: b.fates)
            assert b.fates == [("tag", "sent")]
            assert a.warnings() == []
            await b.hub.close("the test is over")
            await proxy.close()

    asyncio.run(story())


def test_nobody_has_more_than_half_of_the_buffers() -> None:
    buffers = Buffers(10, 20)
    tickets = [Ticket(lambda: None, 0.0, owner) for owner in (b"a", b"a", b"b", b"b")]
    for ticket in tickets:
        buffers.request(ticket)
    assert [ticket.buffer is not None for ticket in tickets] == [True, False, True, False]
    buffers.withdraw(tickets[2])
    assert [ticket.buffer is not None for ticket in tickets] == [True, False, False, True]
    buffers.withdraw(tickets[0])
    assert tickets[1].buffer is not None
    assert (buffers.free, len(buffers.waiting)) == (0, 0)
