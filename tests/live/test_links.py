"""Links between nodes over loopback: one per pair, models and messages, and what ends them."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from plexus.bench.transport import made_up_model
from plexus.learn.rules import MeanRule
from plexus.live.fleet.shaping import Pipe, Proxy, Route, Way
from plexus.live.models import SEAL_BYTES, LiveModel, ModelLayout, seal
from plexus.live.operator.log import Log
from plexus.live.operator.status import transfers_of
from plexus.live.runtime import Callbacks, LiveRuntime
from plexus.live.state import Store
from plexus.live.transport import addresses, connection
from plexus.live.transport.frames import HEAD_BYTES
from plexus.live.transport.hub import UNREACHABLE, Hub
from plexus.live.transport.limits import PROBES_BYTES, Limits
from plexus.live.transport.receiving import Ticket
from plexus.live.transport.tls import Tls
from plexus.protocol import wire
from plexus.protocol.api import Change, Send
from plexus.protocol.messages import OLDEST_WIRE, WIRE_VERSION, LateModel, TrainRequest
from tests.live.ends import End
from tests.live.party import Party

RECORD_BYTES = 2**14 + 256
"""The largest of TLS."""
HASTY = Limits(heartbeat_s=0.2, silent_after_s=0.8, redial_s=0.05, max_redial_s=0.1)


@pytest.fixture
def party(tmp_path: Path) -> Party:
    return Party(tmp_path)


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(story())


@asynccontextmanager
async def ends(
    party: Party, names: str = "ab", size: int = 1000, limits: Limits | None = None
) -> AsyncIterator[list[End]]:
    """Nodes that listen and know each other's addresses."""
    made = [End(admission, size, limits) for admission in party.admissions(names)]
    for each in made:
        await each.open()
    for each in made:
        each.knows(*(other for other in made if other is not each))
    try:
        yield made
        assert [failure for each in made for failure in each.failures] == []
    finally:
        for each in made:
            await each.hub.close("the test is over")


def test_where_a_node_is_is_what_most_members_see(party: Party) -> None:
    """Whoever comes first may be wrong, or lie; what the operator says is not asked about."""

    async def story() -> None:
        async with ends(party, "abcde") as (a, told, liar, *honest):
            lie, port = ("203.0.113.9", 1), a.address[1]
            liar.hub.hello = lambda _: Hub.hello(liar.hub, lie)  # type: ignore[method-assign]
            a.hub.dial_only = told.hub.dial_only = False
            found = []
            for each in (liar, *honest, liar):
                if each.is_linked(a):
                    a.hub.links[each.key].connection.close("again")
                    await each.until(lambda each=each: not each.is_linked(a))  # type: ignore[misc]
                count = len(a.messages)
                each.send(a, b"hello")
                await a.until(lambda count=count: len(a.messages) > count)  # type: ignore[misc]
                found.append(addresses.unpack(a.roster.address_of(0)))
            wrong, right = (lie[0], port), ("127.0.0.1", port)
            assert found == [wrong, wrong, right, right]
            assert addresses.pack(right) == a.hub.advertised
            told.hub.advertise(("192.0.2.7", 7000))
            for each in (liar, *honest):
                told.send(each, b"hello")
                await each.until(lambda each=each: each.messages)  # type: ignore[misc]
            assert told.hub.advertised == addresses.pack(("192.0.2.7", 7000))

    run(story)


def test_what_tls_has_of_a_link_is_gone_with_it(party: Party) -> None:
    async def story() -> None:
        async with ends(party) as (a, b):
            a.send(b, b"one")
            await b.until(lambda: b.messages)
            tls = [
                weakref.ref(end.hub.links[other.key].connection._tls._object)
                for end, other in ((a, b), (b, a))
            ]
            gc.disable()  # a process that has little to do does not collect for hours
            try:
                a.hub.links[b.key].connection.close("enough")
                await b.until(lambda: not b.hub.links)
                await asyncio.sleep(0)
                assert [each() for each in tls] == [None, None]
            finally:
                gc.enable()

    run(story)


def test_a_message_dials_its_receiver_and_the_link_is_kept(party: Party) -> None:
    async def story() -> None:
        async with ends(party) as (a, b):
            a.send(b, b"one")
            await b.until(lambda: b.messages == [(a.key, b"one")])
            link = a.hub.links[b.key]
            a.send(b, b"two")
            b.send(a, b"three")
            await b.until(lambda: len(b.messages) == 2)
            await a.until(lambda: a.messages == [(b.key, b"three")])
            assert a.hub.links[b.key] is link

    run(story)


def test_when_both_dial_at_once_one_connection_is_kept_and_nothing_is_lost(party: Party) -> None:
    async def story() -> None:
        async with ends(party, "abcd") as nodes:
            for each in nodes:
                for other in nodes:
                    if other is not each:
                        each.send(other, b"hello")
            for each in nodes:
                await each.until(lambda each=each: len(each.messages) == 3)  # type: ignore[misc]
                await each.until(lambda each=each: len(each.hub.links) == 3)  # type: ignore[misc]
            await asyncio.sleep(0.2)
            for each in nodes:
                assert len(each.messages) == len(each.hub.links) == 3
                for other in nodes:
                    if other is not each:
                        mine, theirs = each.hub.links[other.key], other.hub.links[each.key]
                        assert mine.connection.dialled != theirs.connection.dialled

    run(story)


def test_an_idle_link_has_one_heartbeat_where_it_is_looked_after_twice(party: Party) -> None:
    async def story() -> None:
        async with ends(party) as (a, b):
            a.send(b, b"one")
            await a.until(lambda: a.is_linked(b))
            link, now = a.hub.links[b.key], asyncio.get_running_loop().time()
            sent = []
            for share in (0.5, 1.0):
                link.connection.spoke_at = now - share * Limits().heartbeat_s
                before = link.connection.sent_bytes
                a.hub._keep(link, now)
                sent.append(link.connection.sent_bytes > before)
            assert sent == [False, True]

    run(story)


class LateProxy(Proxy):
    """Connections that are made later overtake those through it."""

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.3)
        await super()._connect(reader, writer)


def test_connects_that_arrive_in_another_order_still_make_one_link(party: Party) -> None:
    async def story() -> None:
        async with ends(party) as (a, b):
            late = LateProxy(b.address, lambda _: Route())
            a.learn(b.key, await late.listen(("127.0.0.1", 0)))
            a.send(b, b"by the slow way")
            await asyncio.sleep(0.05)
            b.send(a, b"by the fast way")
            await a.until(lambda: a.messages)
            await asyncio.sleep(0.5)
            a.send(b, b"afterwards")
            await b.until(lambda: (a.key, b"afterwards") in b.messages)
            assert len(a.hub.links) == len(b.hub.links) == 1
            await late.close()

    run(story)


def test_a_model_for_a_peer_that_is_gone_is_said_to_be_not_sent(party: Party) -> None:
    async def story() -> None:
        async with ends(party, size=1000) as (a, b):
            await b.hub.close("gone")
            await a.until(lambda: not a.is_linked(b))
            a.send_model(b, bytes(1000), "tag")
            await a.until(lambda: a.fates)
            a.hub.send(b.key, b"\0\0\0\5hello", "a message")
            await a.until(lambda: len(a.fates) == 2)
            assert a.fates == [("tag", UNREACHABLE), ("a message", UNREACHABLE)]

    run(story)


def test_a_message_is_made_for_the_version_that_the_other_side_speaks(party: Party) -> None:
    def encoded(version: int) -> bytes:
        return b"\0\0\0\5hell%d" % version

    async def story() -> None:
        async with ends(party, size=1000) as (a, b):
            a.hub.send(b.key, encoded)
            await b.until(lambda: b.messages)
            link = a.hub.links[b.key]
            link.hello = replace(link.hello, wire=OLDEST_WIRE)
            a.hub.send(b.key, encoded)
            await b.until(lambda: len(b.messages) == 2)
            said = [payload for _, payload in b.messages]
            assert said == [b"hell%d" % WIRE_VERSION, b"hell%d" % OLDEST_WIRE]

    run(story)


def test_a_model_arrives_as_it_was_sent(party: Party) -> None:
    async def story() -> None:
        data = os.urandom(3_000_000)
        async with ends(party, size=len(data)) as (a, b):
            a.send_model(b, data, "tag")
            await a.until(lambda: a.fates)
            assert a.fates == [("tag", "sent")]
            assert b.models == [(a.key, b"a model", data)]
            assert b.buffers.free == b.buffers.count
            assert {sent for sent, _ in a.rates} == {True}
            assert {sent for sent, _ in b.rates} == {False}

    run(story)


@pytest.mark.parametrize(("feed_bytes", "size"), [(7, 30_000), (20_000, 2_000_000), (2**20, 5_000_000)])
def test_what_waits_on_one_link_is_not_overwritten_by_another_and_takes_little(
    party: Party, monkeypatch: pytest.MonkeyPatch, feed_bytes: int, size: int
) -> None:
    """Everybody receives into the same memory, and here each frame is the last of a turn."""
    monkeypatch.setattr(connection, "FEED_BYTES", feed_bytes)
    monkeypatch.setattr(connection, "TURN_S", -1.0)
    feed, held = Tls.feed, []

    def watched(tls: Tls, data: bytes | memoryview) -> None:
        feed(tls, data)
        held.append(tls._incoming.pending)

    monkeypatch.setattr(Tls, "feed", watched)

    async def story() -> None:
        datas, said = [os.urandom(size) for _ in "ac"], [b"urgent %d" % number for number in range(50)]
        async with ends(party, "abc", size) as (a, b, c):
            for sender, data in zip((a, c), datas, strict=True):
                sender.send_model(b, data, "tag")
                for text in said:
                    sender.send(b, text)
            await b.until(lambda: len(b.models) == 2 and len(b.messages) == 100)
            assert {src: data for src, _, data in b.models} == {a.key: datas[0], c.key: datas[1]}
            for src in (a.key, c.key):
                assert [text for key, text in b.messages if key == src] == said
            assert a.downs + b.downs + c.downs == []
            assert max(held) <= feed_bytes + RECORD_BYTES

    run(story)


def test_a_model_is_declined_if_it_is_not_wanted(party: Party) -> None:
    async def story() -> None:
        async with ends(party) as (a, b):
            b.unwanted.add(b"old")
            a.send_model(b, bytes(1000), "tag", name=b"old")
            await a.until(lambda: a.fates)
            assert a.fates == [("tag", "declined")]
            assert a.is_linked(b)

    run(story)


def slow_way(party: Party, a: End, b: End, bytes_per_s: float) -> tuple[Proxy, Route]:
    route = Route(there=Way(pipes=[Pipe(bytes_per_s)]), back=Way(pipes=[Pipe(bytes_per_s)]))
    return Proxy(b.address, lambda _: route), route


def test_messages_overtake_a_model(party: Party) -> None:
    async def story() -> None:
        data = os.urandom(1_000_000)
        async with ends(party, size=len(data)) as (a, b):
            proxy, _ = slow_way(party, a, b, 1_000_000)
            a.learn(b.key, await proxy.listen(("127.0.0.1", 0)))
            a.send_model(b, data, "tag")
            await b.until(lambda: b.buffers.free < b.buffers.count)
            for number in range(5):
                a.send(b, b"urgent %d" % number)
                await b.until(lambda number=number: len(b.messages) == number + 1)  # type: ignore[misc]
            assert a.fates == [], "the model is still on its way"
            assert b.models == []
            await a.until(lambda: a.fates)
            assert b.models == [(a.key, b"a model", data)]
            await proxy.close()

    run(story)


def test_a_proxy_delays_each_way(party: Party) -> None:
    async def story() -> None:
        async with ends(party) as (a, b):
            route = Route(there=Way(delay_s=0.1), back=Way(delay_s=0.2))
            proxy = Proxy(b.address, lambda _: route)
            a.learn(b.key, await proxy.listen(("127.0.0.1", 0)))
            a.send(b, b"shake hands")
            await b.until(lambda: b.messages)
            now = asyncio.get_running_loop().time
            for sender, receiver, delay_s in ((a, b, 0.1), (b, a, 0.2)):
                began, count = now(), len(receiver.messages)
                sender.send(receiver, b"from afar")
                await receiver.until(lambda: len(receiver.messages) > count)  # noqa: B023
                assert now() - began >= delay_s
            await proxy.close()

    run(story)


@pytest.mark.parametrize("who", ["sender", "receiver"])
def test_a_transfer_stops_when_the_round_moves_on(party: Party, who: str) -> None:
    async def story() -> None:
        data = bytes(2_000_000)
        async with ends(party, size=len(data)) as (a, b):
            proxy, _ = slow_way(party, a, b, 500_000)
            a.learn(b.key, await proxy.listen(("127.0.0.1", 0)))
            a.send_model(b, data, "tag")
            await b.until(lambda: b.buffers.free < b.buffers.count)
            if who == "sender":
                a.hub.links[b.key].sending.cancel(lambda tag: tag == "tag", "moved on")
            else:
                b.hub.links[a.key].receiving.decline(lambda tag: tag == b"a model")
            await a.until(lambda: a.fates)
            await b.until(lambda: b.buffers.free == b.buffers.count)
            assert a.fates == [("tag", "moved on" if who == "sender" else "declined")]
            a.send(b, b"still linked")
            await b.until(lambda: b.messages)
            assert b.models == []
            await proxy.close()

    run(story)


def test_senders_wait_until_the_receiver_has_room(party: Party) -> None:
    async def story() -> None:
        async with ends(party, "abcd") as (a, b, c, d):
            a.holding = []
            for sender in (b, c, d):
                sender.send_model(a, bytes(1000), "tag")
            await a.until(lambda: len(a.models) == 2 and len(a.buffers.waiting) == 1)
            a.buffers.give_back(a.holding[0])
            await a.until(lambda: len(a.models) == 3)

    run(story)


def test_a_restarted_peer_replaces_its_former_link(party: Party) -> None:
    async def story() -> None:
        async with ends(party) as (a, b):
            a.send(b, b"before")
            await b.until(lambda: b.messages)
            again = End.__new__(End)
            again.__dict__.update(vars(a))
            again.hub = Hub(a.hub.admission, Limits(), a.roster, lambda _: 0, Log(level="warning"), again)
            again.send(b, b"after")
            await b.until(lambda: len(b.messages) == 2)
            await a.until(lambda: not a.hub.links)
            assert len(b.hub.links) == 1
            await again.hub.close("the test is over")

    run(story)


def test_a_half_open_connection_is_noticed_and_made_anew(party: Party) -> None:
    async def story() -> None:
        async with ends(party, limits=HASTY) as (a, b):
            route = Route()
            proxy = Proxy(b.address, lambda _: route)
            a.learn(b.key, await proxy.listen(("127.0.0.1", 0)))
            a.send(b, b"before")
            await b.until(lambda: b.messages)
            route.there.delay_s = route.back.delay_s = 1e9
            await a.until(lambda: not a.hub.links)
            assert a.downs[0].startswith("silent for")
            route.there.delay_s = route.back.delay_s = 0.0
            b.messages.clear()

            def again() -> bool:
                a.send(b, b"again")
                return bool(b.messages)

            await b.until(again)
            await proxy.close()

    run(story)


def test_a_cut_connection_is_made_anew(party: Party) -> None:
    async def story() -> None:
        async with ends(party, limits=HASTY) as (a, b):
            proxy = Proxy(b.address, lambda _: Route())
            a.learn(b.key, await proxy.listen(("127.0.0.1", 0)))
            a.send(b, b"before")
            await b.until(lambda: b.messages)
            proxy.cut()
            await a.until(lambda: not a.hub.links)
            a.send(b, b"after")
            await b.until(lambda: len(b.messages) == 2)
            await proxy.close()

    run(story)


def test_who_is_dialled_must_be_who_was_meant(party: Party) -> None:
    async def story() -> None:
        async with ends(party, "abc") as (a, b, c):
            a.learn(b.key, c.address)
            a.send(b, b"for b alone")
            await a.until(lambda: a.hub.refused)
            assert not a.hub.links
            assert c.messages == []

    run(story)


def test_a_node_that_joins_with_its_own_address_is_told_so(party: Party) -> None:
    async def story() -> None:
        async with ends(party, "a") as (a,):
            reason = await a.hub.dialler.introduce(a.address)
            assert reason is not None
            assert "the certificate is this node's own" in reason

    run(story)


def test_revocations_spread_over_links_and_end_those_of_the_revoked(party: Party) -> None:
    async def story() -> None:
        async with ends(party, "abc", limits=HASTY) as (a, b, c):
            c.send(b, b"as long as I may")
            await b.until(lambda: b.is_linked(c))
            party.authority.revoke(c.key)
            assert a.hub.admission.adopt(a.hub.admission.read(party.revocations()))
            a.send(b, b"hello")
            await b.until(lambda: not b.is_linked(c))
            await c.until(lambda: "refused: the certificate has been revoked" in c.downs)
            assert b.hub.admission.list.number == a.hub.admission.list.number == 5
            assert b.is_linked(a)

    run(story)


def test_the_link_idle_for_longest_makes_room(party: Party) -> None:
    async def story() -> None:
        async with ends(party, "abcd", limits=Limits(max_links=2)) as (a, b, c, d):
            for other in (b, c, d):
                a.send(other, b"hello")
                await other.until(lambda other=other: other.messages)  # type: ignore[misc]
            assert set(a.hub.links) == {c.key, d.key}

    run(story)


def test_links_over_ipv6(party: Party) -> None:
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")

    async def story() -> None:
        a, b = End(party.admission("a")), End(party.admission("b"))
        await a.open(("::1", 0))
        await b.open(("::", 0))
        a.learn(b.key, ("::1", b.address[1]))
        a.send(b, b"over IPv6")
        await b.until(lambda: b.messages)
        assert b.hub.links[a.key].connection.remote[0] == "::1"
        reason = await a.hub.dialler.introduce(("127.0.0.1", b.address[1]))
        assert reason is None, "a socket on :: takes IPv4 too"
        for each in (a, b):
            await each.hub.close("the test is over")

    run(story)


def test_bandwidth_is_measured_both_ways(party: Party) -> None:
    async def story() -> None:
        async with ends(party) as (a, b):
            a.send(b, b"hello")
            await b.until(lambda: b.messages)
            a.hub.links[b.key].measure()
            await a.until(lambda: {sent for sent, _ in a.rates} == {True, False})

    run(story)


@pytest.mark.parametrize(("model_bytes", "most"), [(1400, 1), (600_000, 2), (5_000_000, 3)])
def test_a_measurement_takes_little_beside_a_model(party: Party, model_bytes: int, most: int) -> None:
    """A large probe is sent only if a model is as large, and the small one took no time."""

    async def story() -> None:
        async with ends(party, size=model_bytes) as (a, b):
            a.send(b, b"hello")
            await b.until(lambda: b.messages)
            link = a.hub.links[b.key]
            link.measure()
            await a.until(lambda: {sent for sent, _ in a.rates} == {True, False} and link.is_idle)
            for way in ("sent", "received"):
                probed = a.hub.traffic.counts[f"probe_{way}_bytes"]
                assert PROBES_BYTES[0] <= probed <= sum(PROBES_BYTES[:most]) + 200
            assert link.connection.sent_bytes < sum(PROBES_BYTES[:most]) * 1.1 + 10_000

    run(story)


def test_far_away_a_probe_is_not_taken_for_slow(party: Party) -> None:
    async def story() -> None:
        async with ends(party, size=600_000) as (a, b):
            route = Route(there=Way(delay_s=0.25), back=Way(delay_s=0.25))
            proxy = Proxy(b.address, lambda _: route)
            a.learn(b.key, await proxy.listen(("127.0.0.1", 0)))
            a.send(b, b"hello")
            await b.until(lambda: b.messages)
            a.hub.links[b.key].measure()
            await a.until(lambda: a.hub.traffic.counts["probe_sent_bytes"] > 2 * PROBES_BYTES[0])
            await proxy.close()

    run(story)


def test_a_status_counts_rounds_of_models_under_way_as_people_do(party: Party) -> None:
    async def story() -> None:
        async with ends(party, size=1_000_000) as (a, b):
            nothing: Any = None
            request = TrainRequest(776, 9, 88, participants=3, view=nothing, model=nothing)
            a.send(b, b"hello")
            await b.until(lambda: b.messages)
            a.send_model(b, os.urandom(1_000_000), request)
            peer: Any = a  # has a hub and buffers, as a runtime does
            [transfer] = transfers_of(peer)
            assert (transfer["kind"], transfer["round"]) == ("TrainRequest", 88)
            await a.until(lambda: a.fates)

    run(story)


def test_bytes_are_counted_by_what_they_are(party: Party) -> None:
    async def story() -> None:
        data = os.urandom(100_000)
        async with ends(party, size=len(data)) as (a, b):
            a.send(b, b"hello")
            a.send_model(b, data, "tag", name=b"its message")
            await a.until(lambda: a.fates and b.messages)
            assert a.hub.traffic.counts == {
                "message_sent_bytes": HEAD_BYTES + 5,
                "message_received_bytes": 0,
                "model_sent_bytes": SEAL_BYTES + 11 + len(data),
                "model_received_bytes": 0,
                "probe_sent_bytes": 0,
                "probe_received_bytes": 0,
            }
            sent = {name: each for name, each in a.hub.traffic.sent.items() if each != [0, 0]}
            assert sent == {"other": [1, HEAD_BYTES + 5], "model": [1, len(data)], "view": [1, 11]}
            [transfer] = a.hub.traffic.transfers
            # Not the message itself: its model would be kept with it.
            assert (transfer.to, transfer.message, transfer.round, transfer.cut) == (b.key, str, 0, False)
            assert transfer.began_at < transfer.ended_at
            swapped = {"sent": "received", "received": "sent"}
            for name, count in a.hub.traffic.counts.items():
                what, way, _ = name.split("_")
                assert b.hub.traffic.counts[f"{what}_{swapped[way]}_bytes"] == count

    run(story)


def test_a_ticket_is_given_back_once(party: Party) -> None:
    async def story() -> None:
        async with ends(party, "a") as (a,):
            ticket = Ticket(lambda: None)
            a.buffers.request(ticket)
            a.buffers.give_back(ticket)
            with pytest.raises(AssertionError, match="given back twice"):
                a.buffers.give_back(ticket)

    run(story)


@pytest.mark.parametrize("dialled", ["127.0.0.1", "::1"])
def test_handshakes_that_are_over_do_not_count_any_more(party: Party, dialled: str) -> None:
    """Also for those who dial over IPv4 a socket that takes IPv6."""

    async def story() -> None:
        async with ends(party, "a") as (a,):
            b = End(party.admission("b"), limits=Limits(max_handshakes_per_host=2))
            await b.open(("::", 0))
            for _ in range(5):
                _, writer = await asyncio.open_connection(dialled, b.address[1])
                await b.until(lambda: len(b.hub.handshakes.under_way) == 1)
                writer.close()
                await b.until(lambda: len(b.hub.handshakes.under_way) == 0)
            assert await a.hub.dialler.introduce((dialled, b.address[1])) is None
            await b.hub.close("the test is over")

    run(story)


@pytest.mark.parametrize("size", [10_000, 3_000_000], ids=["at once", "in a thread"])
def test_of_a_change_the_difference_arrives(party: Party, size: int, tmp_path: Path) -> None:
    base = made_up_model(size)
    layout = ModelLayout(base.data)
    data = memoryview(bytearray(base.data))
    layout.numbers(data)[0][:] *= 3

    async def story() -> None:
        async with ends(party, size=layout.size_bytes) as (a, b):
            store = Store(tmp_path, a.roster, on_error=lambda _: None)
            silent = Callbacks(*[lambda *_: None] * 4)
            runtime = LiveRuntime(
                a.roster, layout, a.buffers, MeanRule(), store, None, Log(a.log), lambda _: a.hub, silent
            )
            body = LateModel(9, 7, 7, 40, Change(LiveModel(data, seal(data)), base))
            runtime.perform([Send((a.roster.number(b.key),), body)])
            await b.until(lambda: b.models)
            ((src, payload, arrived),) = b.models
            told, model_bytes = wire.decode(payload, b.roster)
            assert (src, told, model_bytes) == (a.key, LateModel(9, 7, 7, 40, None), layout.size_bytes)
            assert layout.flaw(memoryview(arrived)) is None
            change = layout.numbers(memoryview(arrived))[0]
            assert (change == layout.numbers(data)[0] - layout.numbers(base.data)[0]).all()
            await a.until(lambda: a.fates)
            assert a.fates[0][1] == "sent"
            runtime.close()
            store.close()

    run(story)
