"""Links by way of another member: what they carry, who carries them, and what can go wrong there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from plexus.live.identity.admission import Admission
from plexus.live.identity.keys import short
from plexus.live.transport.connection import Connection
from plexus.live.transport.frames import OF_STREAMS, RELAYS_SINCE, Kind, number_of, numbered
from plexus.live.transport.hub import UNREACHABLE
from plexus.live.transport.limits import Limits
from plexus.live.transport.streams import (
    DATA_BYTES,
    PIECE_BYTES,
    WINDOW_BYTES,
    RelayedTransport,
    Stream,
    Streams,
)
from tests.live.ends import End
from tests.live.party import Party, greeted

HASTY = Limits(heartbeat_s=0.2, silent_after_s=0.8, redial_s=0.05, max_redial_s=0.1, connect_timeout_s=0.5)


@pytest.fixture
def party(tmp_path: Path) -> Party:
    return Party(tmp_path)


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(story())


@asynccontextmanager
async def hidden(
    party: Party, relays: int = 1, size: int = 1000, limits: Limits | None = None, names: str = "ab"
) -> AsyncIterator[list[End]]:
    """Nodes that nobody can dial, with links to relays, which come last."""
    made = [End(each, size, limits) for each in party.admissions(names + "rst"[:relays])]
    leaves, hubs = made[: len(names)], made[len(names) :]
    for relay in hubs:
        await relay.open()
        relay.hub.advertised = b"\1" * 18
    for leaf in leaves:
        leaf.knows(*hubs)
        for relay in hubs:
            leaf.send(relay, b"hello")
            await leaf.until(lambda leaf=leaf, relay=relay: relay.is_linked(leaf))  # type: ignore[misc]
    for relay in hubs:
        await relay.until(lambda relay=relay: len(relay.messages) == len(leaves))  # type: ignore[misc]
        relay.messages.clear()
    try:
        yield made
        assert [failure for each in made for failure in each.failures] == []
    finally:
        for each in made:
            await each.hub.close("the test is over")


def test_two_that_nobody_can_dial_talk_by_way_of_a_third(party: Party) -> None:
    async def story() -> None:
        data = os.urandom(3_000_000)
        async with hidden(party, size=len(data)) as (a, b, r):
            a.send(b, b"one")
            await b.until(lambda: b.messages == [(a.key, b"one")])
            b.send(a, b"two")
            await a.until(lambda: a.messages == [(b.key, b"two")])
            assert a.hub.links[b.key].connection.relay == b.hub.links[a.key].connection.relay == r.key
            a.send_model(b, data, "there")
            b.send_model(a, data, "back")
            await a.until(lambda: a.fates and b.fates)
            assert (a.fates, b.fates) == ([("there", "sent")], [("back", "sent")])
            assert a.models == [(b.key, b"a model", data)]
            assert b.models == [(a.key, b"a model", data)]
            assert r.messages == r.models == []
            assert r.hub.relay.relayed_bytes > 2 * len(data)
            assert r.hub.relay.waiting_bytes == 0
            assert (len(a.hub.links), len(r.hub.links)) == (2, 2)

    run(story)


def carrier(a: End, b: End, relays: list[End]) -> End:
    """Who carries, or would, what goes from a to b."""
    link = a.hub.links.get(b.key)
    key = link.connection.relay if link is not None else a.hub.dialler._relays(b.key)[0].key
    return next(relay for relay in relays if relay.key == key)


def test_nobody_is_reached_by_way_of_who_has_no_link_with_it(party: Party) -> None:
    async def story() -> None:
        async with hidden(party, names="a") as (a, r):
            b = End(party.admission("b"))
            for tag in ("first", "second"):
                a.hub.send(b.key, b"\0\0\0\5hello", tag)
                await a.until(lambda tag=tag: (tag, UNREACHABLE) in a.fates)  # type: ignore[misc]
            assert a.is_linked(r)
            assert not r.hub.relay.carried
            await b.hub.close("the test is over")

    run(story)


def test_another_relay_takes_over(party: Party) -> None:
    async def story() -> None:
        async with hidden(party, relays=2, limits=HASTY) as (a, b, *relays):
            a.send(b, b"before")
            await b.until(lambda: b.messages)
            first = carrier(a, b, relays)
            assert first is carrier(b, a, relays)
            await first.hub.close("gone")
            await a.until(lambda: not a.is_linked(b) and not b.is_linked(a))
            a.send(b, b"after")
            await b.until(lambda: len(b.messages) == 2)
            assert carrier(a, b, relays) is not first

    run(story)


def test_who_has_lost_all_relays_dials_those_that_it_knows(party: Party) -> None:
    async def story() -> None:
        async with hidden(party, limits=HASTY) as (a, b, r):
            a.hub.dial_only = False
            assert (a.hub.links_wanted, b.hub.links_wanted) == (0, HASTY.max_links)
            await r.hub.close("gone")
            await a.until(lambda: not a.hub.links and not b.hub.links)
            assert a.hub.links_wanted > 0
            again = End(r.hub.admission, limits=HASTY)
            await again.open(r.address)
            again.hub.advertised = r.hub.advertised
            for each in (a, b):
                each.hub.keep_linked(each.key)  # the node itself may be among those it knows
                each.hub.keep_linked(r.key)
            await a.until(lambda: a.is_linked(r) and b.is_linked(r) and len(again.hub.links) == 2)
            a.send(b, b"back")
            await b.until(lambda: b.messages)
            assert a.hub.links_wanted == 0
            await again.hub.close("the test is over")

    run(story)


def test_a_direct_link_takes_the_place_of_a_relayed_one(party: Party) -> None:
    async def story() -> None:
        async with hidden(party, limits=HASTY) as (a, b, r):
            b.learn(a.key, ("127.0.0.1", 1))  # where nobody is
            b.send(a, b"before")
            await a.until(lambda: a.messages)
            assert a.hub.links[b.key].connection.relay == r.key
            await b.open()
            a.knows(b)
            await a.until(lambda: a.is_linked(b) and a.hub.links[b.key].connection.relay is None)
            await b.until(lambda: b.is_linked(a) and b.hub.links[a.key].connection.relay is None)
            await r.until(lambda: not r.hub.relay.carried)
            b.send(a, b"after")
            await a.until(lambda: len(a.messages) == 2)

    run(story)


def lie(relay: End, how: str) -> None:
    """From now on, what this relay carries fares badly."""
    take, kept = Stream.on_data, []

    def spoil(stream: Stream, data: memoryview) -> None:
        if how == "delays" or (how == "reorders" and not kept):
            kept.append(data)
        elif how == "tampers":
            take(stream, memoryview(bytes(data[:-1]) + bytes([data[-1] ^ 1])))
        elif how == "repeats":
            take(stream, data)
            take(stream, data)
        elif how == "reorders":
            take(stream, data)
            take(stream, kept.pop())

    for link in relay.hub.links.values():
        streams = link.streams

        def on_data(payload: bytearray, streams: Streams = streams) -> None:
            stream = streams.under_way.get(number_of(payload))
            if stream is not None:
                spoil(stream, memoryview(payload)[4:])

        link._on_kind[Kind.DATA] = on_data
        if how == "says it has a link":
            link._on_kind[Kind.OPEN] = lambda _: None


LIES = ["delays", "tampers", "repeats", "reorders"]


@pytest.mark.parametrize("how", ["says it has a link", *LIES])
def test_a_relay_that_makes_no_link_is_done_without(party: Party, how: str) -> None:
    async def story() -> None:
        async with hidden(party, relays=2, limits=HASTY) as (a, b, *relays):
            liar = carrier(a, b, relays)
            lie(liar, how)
            a.send(b, b"hello")
            await b.until(lambda: b.messages == [(a.key, b"hello")])
            assert carrier(a, b, relays) is not liar

    run(story)


@pytest.mark.parametrize("how", LIES)
def test_what_a_relay_changes_does_not_arrive(party: Party, how: str) -> None:
    async def story() -> None:
        data = os.urandom(500_000)
        async with hidden(party, relays=2, limits=HASTY, size=len(data)) as (a, b, *relays):
            a.send(b, b"hello")
            await b.until(lambda: b.messages)
            liar = carrier(a, b, relays)
            lie(liar, how)
            a.send_model(b, data, "spoilt")
            await a.until(lambda: not a.is_linked(b) and not b.is_linked(a))
            assert [tag for tag, fate in a.fates if fate != "sent"] == ["spoilt"]
            assert b.models == []
            a.send_model(b, data, "another way")
            await a.until(lambda: ("another way", "sent") in a.fates)
            assert b.models == [(a.key, b"a model", data)]
            assert carrier(a, b, relays) is not liar

    run(story)


def test_a_model_that_a_relay_holds_up_is_not_held_against_its_sender(party: Party) -> None:
    async def story() -> None:
        data, limits = bytes(3_000_000), Limits(transfer_grace_s=0.3, relay_bytes_per_s=1_000_000)
        async with hidden(party, relays=2, limits=limits, size=len(data)) as (a, b, *relays):
            b.known_bandwidth, blamed = 10**9, []
            b.overdue = blamed.append  # type: ignore[method-assign]
            a.send_model(b, data, "tag")
            await b.until(lambda: b.buffers.free < b.buffers.count)
            liar = carrier(a, b, relays)
            lie(liar, "delays")
            await b.until(lambda: not b.is_linked(a))
            assert [line["relay"] for line in b.warnings() if line["event"] == "model_overdue"] == [
                short(liar.key)
            ]
            b.send(a, b"by another way")
            await a.until(lambda: a.messages)
            assert carrier(b, a, relays) is not liar
            assert blamed == []

    run(story)


def test_a_relay_that_connects_somebody_else_is_found_out(party: Party) -> None:
    async def story() -> None:
        async with hidden(party, names="abc", limits=HASTY) as (a, b, c, r):
            carry = r.hub.relay.carry
            r.hub.relay.carry = lambda near, number, key: carry(near, number, c.key)  # type: ignore[method-assign]
            a.hub.send(b.key, b"\0\0\0\5hello", "tag")
            await a.until(lambda: a.fates)
            assert a.fates == [("tag", UNREACHABLE)]
            assert b.messages == c.messages == []

    run(story)


def test_a_relayed_link_is_not_relayed_again(party: Party) -> None:
    async def story() -> None:
        async with hidden(party, names="abc") as (a, b, c, r):
            a.send(b, b"hello")
            b.send(c, b"hello")
            await c.until(lambda: b.messages and c.messages)
            attempt = Connection(a.hub, dialled=True, expected=c.key, relay=b.key)
            link = a.hub.links[b.key]
            RelayedTransport(link, link.streams.begin(Kind.OPEN, c.key), attempt)
            await attempt.settled.wait()
            assert "a relayed link is not relayed again" in str(attempt.reason)
            (warning,) = [line for line in b.warnings() if line["event"] == "Refused"]
            assert warning["peer"] == short(a.key)
            assert [each.key for each in a.hub.dialler._relays(c.key)] == [r.key]

    run(story)


def test_a_peer_of_an_older_version_neither_relays_nor_is_relayed_to(party: Party) -> None:
    async def story() -> None:
        async with hidden(party) as (a, b, r):
            link = r.hub.links[b.key]
            link.hello = replace(link.hello, wire=RELAYS_SINCE - 1)
            a.hub.send(b.key, b"\0\0\0\5hello", "to an older one")
            await a.until(lambda: a.fates)
            link = a.hub.links[r.key]
            link.hello = replace(link.hello, wire=RELAYS_SINCE - 1)
            assert not a.hub.dialler.has_relay
            a.hub.send(b.key, b"\0\0\0\5hello", "through an older one")
            await a.until(lambda: len(a.fates) == 2)
            assert {fate for _, fate in a.fates} == {UNREACHABLE}
            assert r.is_linked(a)

    run(story)


@pytest.mark.parametrize(
    ("limits", "gets"), [(Limits(), 4), (Limits(max_relayed_per_link=3), 3), (Limits(max_relayed=2), 2)]
)
def test_a_member_that_opens_thousands_of_streams_gets_few(party: Party, limits: Limits, gets: int) -> None:
    async def story() -> None:
        async with hidden(party, limits=limits) as (a, b, r):
            home = party.home("c")
            member = await asyncio.to_thread(greeted, party, home, r.address, RELAYS_SINCE)
            key = Admission(home, party.session).key
            await r.until(lambda: key in r.hub.links)
            opens = (numbered(Kind.OPEN, 2 * number + 1, b.key) for number in range(5000))
            await asyncio.to_thread(member.sendall, b"".join(opens))
            await r.until(lambda: sum(line["event"] == "Refused" for line in r.warnings()) == 5)
            assert len(r.hub.links[key].streams.under_way) == gets
            assert {line["peer"] for line in r.warnings() if line["event"] == "Refused"} == {short(key)}
            if limits == Limits():
                a.send(b, b"others get through")
                await b.until(lambda: b.messages)
            member.close()
            await r.until(lambda: len(r.hub.relay.carried) == 2 * len(b.messages))
            await b.until(lambda: len(b.hub.links[r.key].streams.under_way) == len(b.messages))

    run(story)


@pytest.mark.parametrize("piece_bytes", [DATA_BYTES, 1])
@pytest.mark.parametrize(("memory", "is_polite"), [(2**26, False), (2**26, True), (500_000, True)])
def test_a_relay_holds_no_more_than_a_window(
    party: Party, memory: int, is_polite: bool, piece_bytes: int
) -> None:
    """Both ends are made of sockets: one sends all that it may, or more, and the other takes nothing."""

    async def story() -> None:
        r = End(party.admission("r"), limits=Limits(relay_memory_bytes=memory))
        await r.open()
        homes = [party.home(name) for name in "ab"]
        a, b = [await asyncio.to_thread(greeted, party, home, r.address, RELAYS_SINCE) for home in homes]
        keys = [Admission(home, party.session).key for home in homes]
        await r.until(lambda: len(r.hub.links) == 2)
        await asyncio.to_thread(a.sendall, numbered(Kind.OPEN, 1, keys[1]))
        await r.until(lambda: r.hub.relay.carried)
        stuck = r.hub.links[keys[1]].connection
        stuck.pause_writing()
        most = WINDOW_BYTES // (piece_bytes + PIECE_BYTES)
        flood = numbered(Kind.DATA, 1, bytes(piece_bytes)) * (most if is_polite else most + 1)
        await asyncio.to_thread(a.sendall, flood)
        if is_polite and memory > WINDOW_BYTES:
            await r.until(lambda: r.hub.relay.relayed_bytes == most * piece_bytes)
            assert r.hub.relay.waiting_bytes <= WINDOW_BYTES
            stuck.resume_writing()
            await r.until(lambda: r.hub.relay.waiting_bytes == 0)
        else:
            await r.until(lambda: any(line["event"] == "Refused" for line in r.warnings()))
            await r.until(lambda: r.hub.relay.waiting_bytes == 0 and not r.hub.relay.carried)
            assert {line["peer"] for line in r.warnings() if line["event"] == "Refused"} == {short(keys[0])}
            assert (keys[0] in r.hub.links) is is_polite
        assert r.failures == []
        a.close()
        b.close()
        await r.hub.close("the test is over")

    run(story)


def test_a_relay_carries_as_much_as_it_was_told(party: Party) -> None:
    async def story() -> None:
        async with hidden(party, limits=Limits(relay_bytes_per_s=1000)) as (*_, r):
            relay, (one, other) = r.hub.relay, r.hub.links.values()
            began = relay._loop.time()
            assert relay.in_time(one, lambda: (b"", memoryview(bytes(100_000)))) is not None
            for link in (other, one):
                assert relay.in_time(link, lambda: (b"", memoryview(bytes(1)))) is None
            assert list(relay._held_up) == [other, one]
            assert relay._timer is not None
            assert relay._timer.when() - began > 99

    run(story)


@pytest.mark.parametrize("bytes_per_s", [0, 2_000_000])
def test_a_bound_on_relaying_slows_down_or_refuses(party: Party, bytes_per_s: int) -> None:
    async def story() -> None:
        data = os.urandom(300_000)
        limits = Limits(relay_bytes_per_s=bytes_per_s)
        async with hidden(party, names="abcd", limits=limits, size=len(data)) as (a, b, c, d, r):
            a.send_model(b, data, "tag")
            c.send_model(d, data, "tag")
            await a.until(lambda: a.fates and c.fates)
            assert a.fates == c.fates == [("tag", "sent" if bytes_per_s else UNREACHABLE)]
            assert b.models == ([(a.key, b"a model", data)] if bytes_per_s else [])
            assert r.hub.relay.waiting_bytes == 0

    run(story)


@pytest.mark.parametrize("seed", range(3))
def test_whatever_a_member_says_of_streams_ends_its_link_at_most(party: Party, seed: int) -> None:
    """Frames of streams in any order, most of them well-formed: no handler fails, and nothing is left."""
    rng = Random(seed)

    def one(keys: list[bytes]) -> bytes:
        kind = rng.choice(OF_STREAMS)
        rest = {
            Kind.OPEN: rng.choice([*keys, bytes(3)] if rng.random() < 0.05 else keys),
            Kind.CALL: rng.choice(keys),
            Kind.DATA: bytes(rng.choice([1, 100, 60_000])) if rng.random() < 0.99 else b"",
            Kind.CREDIT: rng.choice([1, 2**20, 2**32 - 1]).to_bytes(4, "big"),
            Kind.CLOSE: rng.choice([b"", b"\xff", bytes(1000)]),
        }[kind]
        return numbered(kind, rng.choice([1, 3, 5, 7] if rng.random() < 0.98 else [2, 2**32 - 1]), rest)

    async def story() -> None:
        async with hidden(party) as (a, b, r):
            home = party.home("c")
            keys = [a.key, b.key, r.key, Admission(home, party.session).key, bytes(16)]
            for number in range(10):
                member = await asyncio.to_thread(greeted, party, home, r.address, RELAYS_SINCE)
                await r.until(lambda: keys[3] in r.hub.links)
                with suppress(OSError):  # it may be thrown out before it has said all
                    await asyncio.to_thread(member.sendall, b"".join(one(keys) for _ in range(100)))
                member.close()
                await r.until(lambda: keys[3] not in r.hub.links)
                a.send(b, b"message %d" % number)
                await b.until(lambda number=number: len(b.messages) > number)  # type: ignore[misc]
            await r.until(lambda: len(r.hub.relay.carried) == 2)
            assert r.hub.relay.waiting_bytes == 0

    run(story)
