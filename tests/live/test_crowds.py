"""More connections than a node takes, over real sockets: who gets in, and what the log says of the rest."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from plexus.live.operator.log import ALIKE
from plexus.live.transport.addresses import Address
from plexus.live.transport.limits import Limits
from tests.live.ends import End
from tests.live.party import Party

FULL = 4
NEWCOMER, OUTSIDERS = "127.0.0.9", [f"127.0.1.{number}" for number in range(1, 200)]


@pytest.fixture
def party(tmp_path: Path) -> Party:
    return Party(tmp_path)


@asynccontextmanager
async def besieged(party: Party, limits: Limits | None = None) -> AsyncIterator[tuple[End, End]]:
    """A node that listens, and one that was invited and dials from an address of its own."""
    a = End(party.admission("a"), limits=limits)
    b = End(party.admission("b"), source=NEWCOMER)
    await a.open()
    try:
        yield a, b
    finally:
        for each in (a, b):
            await each.hub.close("the test is over")


@asynccontextmanager
async def half_open(address: Address, sources: list[str]) -> AsyncIterator[list[socket.socket]]:
    """Connections that never say anything, one from each of the sources."""
    connect = socket.create_connection
    with ExitStack() as stack:
        yield [
            stack.enter_context(await asyncio.to_thread(connect, address, 10, (source, 0)))
            for source in sources
        ]


async def hears(sock: socket.socket) -> bytes:
    return await asyncio.to_thread(sock.recv, 1000)


def test_five_hosts_with_half_open_connections_do_not_keep_a_newcomer_out(party: Party) -> None:
    async def story() -> None:
        async with besieged(party) as (a, b):
            hosts = OUTSIDERS[:5]
            async with half_open(a.address, 32 * hosts):
                await a.until(lambda: len(a.hub.handshakes.under_way) == Limits().max_handshakes)
                # Whatever is closed is opened again: there is never room.
                async with half_open(a.address, 8 * hosts):
                    assert await b.hub.dialler.introduce(a.address) is None
            assert a.is_linked(b)

    asyncio.run(story())


def test_who_just_came_is_not_sent_away_for_somebody_who_has_as_many(party: Party) -> None:
    """Or in a crowd of honest peers nobody would ever finish."""

    async def story() -> None:
        limits = Limits(max_handshakes=FULL, handshake_grace_s=60)
        async with besieged(party, limits) as (a, b), half_open(a.address, OUTSIDERS[:FULL]):
            await a.until(lambda: len(a.hub.handshakes.under_way) == FULL)
            assert await b.hub.dialler.introduce(a.address) is not None
            assert len(a.hub.handshakes.under_way) == FULL

    asyncio.run(story())


def test_the_oldest_makes_way_when_it_has_had_its_time(party: Party) -> None:
    async def story() -> None:
        limits = Limits(max_handshakes=FULL, handshake_grace_s=0)
        async with besieged(party, limits) as (a, b), half_open(a.address, OUTSIDERS[:FULL]) as they:
            await a.until(lambda: len(a.hub.handshakes.under_way) == FULL)
            assert await b.hub.dialler.introduce(a.address) is None
            assert await hears(they[0]) == b"", "the first who came was closed"
            assert len(a.hub.handshakes.under_way) == FULL - 1

    asyncio.run(story())


@pytest.mark.parametrize("known_by", ["address", "earlier link"])
def test_a_host_of_members_goes_before_outsiders(party: Party, known_by: str) -> None:
    async def story() -> None:
        async with besieged(party, Limits(max_handshakes=FULL, handshake_grace_s=60)) as (a, b):
            if known_by == "address":
                a.learn(b.key, (NEWCOMER, 7000))
            else:
                assert await b.hub.dialler.introduce(a.address) is None
                b.hub.links[a.key].connection.close("for a while")
                await a.until(lambda: not a.is_linked(b))
            async with half_open(a.address, OUTSIDERS[:FULL]):
                await a.until(lambda: len(a.hub.handshakes.under_way) == FULL)
                assert await b.hub.dialler.introduce(a.address) is None

    asyncio.run(story())


def test_outsiders_do_not_push_members_out(party: Party) -> None:
    async def story() -> None:
        async with besieged(party, Limits(max_handshakes=FULL, handshake_grace_s=0)) as (a, b):
            a.learn(b.key, (OUTSIDERS[0], 7000))
            async with half_open(a.address, FULL * [OUTSIDERS[0]]):
                await a.until(lambda: len(a.hub.handshakes.under_way) == FULL)
                async with half_open(a.address, OUTSIDERS[1:10]) as others:
                    for each in others:
                        with suppress(ConnectionResetError):
                            assert await hears(each) == b""
                assert len(a.hub.handshakes.under_way) == FULL

    asyncio.run(story())


def test_one_host_cannot_fill_the_log(party: Party) -> None:
    async def story() -> None:
        async with besieged(party) as (a, _):
            for _ in range(40):
                with socket.create_connection(a.address, 10) as sock:
                    sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
                    await hears(sock)
            await a.until(lambda: a.hub.refused == 40)
            assert len(a.warnings()) == ALIKE
        last = a.warnings()[-1]
        assert last["event"] == "no_link"
        assert last["more"].startswith(f"{40 - ALIKE} more like this in ")

    asyncio.run(story())
