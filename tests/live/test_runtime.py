"""The live runtime: what the node keeps is what is summed, and nothing that happens ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest

from plexus.bench.transport import made_up_model
from plexus.learn.rules import MeanRule
from plexus.live.bounds import TOO_FAR
from plexus.live.models import LiveModel, ModelLayout, fits, seal
from plexus.live.operator.log import Log
from plexus.live.runtime import MAX_QUEUED, NOT_ONLINE, OBSOLETE, STOPPED, Callbacks, LiveRuntime
from plexus.live.state import STATE_FILE, Store, read_state
from plexus.live.transport.hub import UNREACHABLE
from plexus.live.transport.limits import LiveRoster
from plexus.live.transport.link import DECLINED
from plexus.live.transport.receiving import Buffers, Ticket
from plexus.protocol import wire
from plexus.protocol.api import (
    Aggregate,
    Aggregated,
    BandwidthMeasured,
    CancelTimer,
    Change,
    Collect,
    Merge,
    PeerLost,
    Send,
    SetTimer,
    StopSending,
    TimerFired,
    Undelivered,
)
from plexus.protocol.facts import AggregationCompleted, Refused
from plexus.protocol.messages import (
    Ack,
    AggregateRequest,
    GossipModel,
    Joined,
    LateModel,
    Left,
    Message,
    Ping,
    Pong,
    TrainRequest,
)
from plexus.protocol.parameters import PlexusParameters
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.view import LEFT, View, event_number
from plexus.protocol.wire import WireError
from tests.live.disks import SlowDisk, fill, small_disk

SIZE = 4000
PEERS = [bytes([n]) * 16 for n in range(1, 5)]


class FakeHub:
    """Takes everything and sends nothing."""

    def __init__(self) -> None:
        self.links: dict[bytes, Any] = {}
        self.sent: list[tuple[bytes, bytes]] = []
        self.models: list[tuple[bytes, LiveModel, Any]] = []

    def send(
        self, key: bytes, frame: Callable[[int], bytes], tag: Any = None, model: LiveModel | None = None
    ) -> None:
        if model is None:
            self.sent.append((key, frame(wire.WIRE_VERSION)))
        else:
            self.models.append((key, model, tag))


class Bench:
    """A runtime with a real node and a pretended network."""

    def __init__(self, home: Path) -> None:
        self.initial = made_up_model(SIZE)
        layout = ModelLayout(self.initial.data)
        self.layout = layout
        self.roster = LiveRoster(b"session", b"\0" * 16, 100)
        self.buffers = Buffers(layout.size_bytes, 10 * layout.size_bytes)
        self.facts: list[Any] = []
        self.log = Log((home / "log").open("w"))
        self.store = Store(home, self.roster, on_error=lambda _: None)
        self.hub = FakeHub()
        self.unsaved: list[str] = []
        self.early: list[Message] = []
        self.runtime = LiveRuntime(
            self.roster,
            layout,
            self.buffers,
            MeanRule(),
            self.store,
            None,
            self.log,
            lambda inbox: self.hub,  # type: ignore[arg-type,return-value]
            Callbacks(self.facts.append, self.early.append, self.unsaved.append, lambda src, der: None),
        )
        view = View.of(5, [(n, 1) for n in range(5)])
        for key in PEERS:
            self.roster.number(key)
        self.node = PlexusNode(
            me=0,
            parameters=PlexusParameters(sample_size=3, success_fraction=1.0),
            roster=self.roster,
            view=view,
            bandwidth_bytes_per_s=1,
            initial_model=self.initial,
            rng=Random(1),
        )
        self.runtime.start(self.node)

    def frame(self, body: Message) -> bytes:
        model_bytes = self.layout.size_bytes if hasattr(body, "model") else 0
        return wire.encode(body, self.roster, model_bytes)[wire.LENGTH_BYTES :]

    def contribute(self, peer: int, value: float, round: int = 5) -> None:
        """A model full of `value` arrives from a peer for the aggregator of `round`."""
        payload = self.frame(AggregateRequest(round, round - 1, 4, 3, 1, View.of(1).snapshot(), None))
        body = self.runtime.offered(PEERS[peer], payload)
        ticket = Ticket(lambda: None)
        self.buffers.request(ticket)
        assert ticket.buffer is not None
        ticket.buffer[:] = self.initial.data
        self.layout.numbers(ticket.buffer)[0][:] = value
        model = LiveModel(ticket.buffer, seal(ticket.buffer))
        self.runtime.model(PEERS[peer], body, model, ticket)

    def said(self, frame: bytes) -> Any:
        return wire.decode(frame[wire.LENGTH_BYTES :], self.roster)[0]

    async def settle(self) -> None:
        while self.runtime.writing is not None:
            await asyncio.wait([self.runtime.writing])
        for _ in range(10):
            await asyncio.sleep(0)

    def close(self) -> None:
        self.runtime.stop()
        self.runtime.close()
        self.store.close()
        self.log._stream.close()


def with_bench(tmp_path: Path, story: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        bench = Bench(tmp_path)
        try:
            await bench.settle()
            await story(bench)
        finally:
            bench.close()

    asyncio.run(main())


def test_models_are_averaged_and_their_buffers_come_back(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        for peer, value in enumerate((1.0, 2.0, 6.0)):
            bench.contribute(peer, value)
            await bench.settle()
        (completed,) = [fact for fact in bench.facts if isinstance(fact, AggregationCompleted)]
        assert completed.models == 3
        assert np.all(bench.layout.numbers(completed.model.data)[0] == 3.0)
        assert bench.buffers.free == bench.buffers.count
        assert bench.log.errors == 0

    with_bench(tmp_path, story)


def test_a_model_sent_twice_counts_once(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        for peer, value in ((0, 1.0), (0, 100.0), (1, 2.0), (0, 100.0), (2, 6.0)):
            bench.contribute(peer, value)
            await bench.settle()
        (completed,) = [fact for fact in bench.facts if isinstance(fact, AggregationCompleted)]
        assert np.all(bench.layout.numbers(completed.model.data)[0] == 3.0)
        assert bench.buffers.free == bench.buffers.count

    with_bench(tmp_path, story)


def test_a_round_left_behind_leaves_nothing_in_the_next_sum(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        bench.contribute(0, 100.0, round=5)
        for peer, value in enumerate((1.0, 2.0, 6.0)):
            bench.contribute(peer, value, round=6)
            await bench.settle()
        (completed,) = [fact for fact in bench.facts if isinstance(fact, AggregationCompleted)]
        assert np.all(bench.layout.numbers(completed.model.data)[0] == 3.0)

    with_bench(tmp_path, story)


LATE = LateModel(round=5, trained_in=3, ordinal=3, samples=1, model=None)


def late(model: Any) -> LateModel:
    return msgspec.structs.replace(LATE, model=model)


def full_of(bench: Bench, value: float) -> LiveModel:
    data = memoryview(bytearray(bench.initial.data))
    bench.layout.numbers(data)[0][:] = value
    return LiveModel(data, seal(data))


def late_models(bench: Bench) -> list[tuple[int, Any]]:
    """What comes of them from now on, and from whom: this node keeps them, and does nothing else."""
    came: list[tuple[int, Any]] = []
    bench.node._on_late_model = lambda src, body: came.append((src, body))  # type: ignore[method-assign]
    return came


def test_of_a_change_the_difference_is_sent_to_others_and_to_itself(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        came = late_models(bench)
        body = late(Change(full_of(bench, 7.0), full_of(bench, 4.0)))
        bench.runtime.perform([Send((0, 2), body)])
        await bench.settle()
        ((key, model, told),) = bench.hub.models
        assert (key, told, came) == (PEERS[1], late(model), [(0, late(model))])
        assert np.all(bench.layout.numbers(model.data)[0] == 3.0)
        assert fits(model.seal, model.data)

    with_bench(tmp_path, story)


def test_of_a_node_that_sends_no_more_no_change_leaves(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        change = late(Change(full_of(bench, 7.0), full_of(bench, 4.0)))
        bench.runtime.perform([Send((2,), change), StopSending()])
        await bench.settle()
        assert bench.hub.models == []
        bench.runtime.perform([Send((2,), change)])
        bench.runtime.stop()
        await bench.settle()
        assert bench.hub.models == []

    with_bench(tmp_path, story)


def test_changes_have_a_sum_of_their_own(tmp_path: Path) -> None:
    """Also those that came for a round that has not begun, and were kept until it did."""

    async def story(bench: Bench) -> None:
        seen, round = events_seen(bench), 8
        models = [full_of(bench, value) for value in (1.0, 2.0)]
        changes = [full_of(bench, value) for value in (6.0, -3.0, 9.0)]
        early = Collect(round, changes[0], 1, is_change=True)
        bench.runtime.perform([early, *(Collect(round - 1, model, 1) for model in models)])
        bench.runtime.perform([Aggregate(round - 1, tuple(models), (1, 1))])
        bench.runtime.perform([Collect(round, model, 1) for model in models])
        bench.runtime.perform([Collect(round, change, 1, is_change=True) for change in changes[1:]])
        bench.runtime.perform([Aggregate(round, tuple(models), (1, 1), tuple(changes), (1, 1, 1))])
        await bench.settle()
        made = [event.model for event in seen if isinstance(event, Aggregated)]
        values = [bench.layout.numbers(model.data)[0] for model in made]
        assert [np.unique(each).tolist() for each in values] == [[1.5], pytest.approx([1.5 + 12 / 5])]
        assert bench.log.errors == 0

    with_bench(tmp_path, story)


def test_a_change_that_is_not_finite_or_too_short_is_refused(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        came = late_models(bench)
        ticket = Ticket(lambda: None)
        bench.buffers.request(ticket)
        assert ticket.buffer is not None
        ticket.buffer[:] = full_of(bench, np.inf).data
        bench.runtime.model(PEERS[0], LATE, LiveModel(ticket.buffer, seal(ticket.buffer)), ticket)
        await bench.settle()
        assert came == []
        assert bench.buffers.free == bench.buffers.count
        assert Refused(1, "a model", "it has numbers that are not finite") in bench.facts
        odd = wire.encode(LATE, bench.roster, 7)[wire.LENGTH_BYTES :]
        with pytest.raises(WireError, match="a model of 7 bytes"):
            bench.runtime.offered(PEERS[0], odd)

    with_bench(tmp_path, story)


def test_a_model_far_from_the_held_one_is_refused_and_its_sender_named(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.settle()
        bench.contribute(2, 3e38)
        await bench.settle()
        assert Refused(3, "a model", TOO_FAR) in bench.facts
        assert bench.buffers.free == bench.buffers.count
        assert not bench.node.aggregation.collecting
        bench.contribute(2, 1.0)
        await bench.settle()
        assert bench.node.aggregation.collecting

    with_bench(tmp_path, story)


def test_a_model_that_the_node_keeps_can_be_collected_later(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        came = late_models(bench)
        for value in (2.0, 4.0):
            ticket = Ticket(lambda: None)
            bench.buffers.request(ticket)
            assert ticket.buffer is not None
            ticket.buffer[:] = full_of(bench, value).data
            bench.runtime.model(PEERS[0], LATE, LiveModel(ticket.buffer, seal(ticket.buffer)), ticket)
            await bench.settle()
        assert bench.buffers.free == bench.buffers.count, "they are the node's own"
        kept, seen, own = [body.model for _, body in came], events_seen(bench), full_of(bench, 1.0)
        bench.runtime.perform([Collect(8, own, 1), *(Collect(8, each, 1, is_change=True) for each in kept)])
        bench.runtime.perform([Aggregate(8, (own,), (1,), tuple(kept), (1, 1))])
        await bench.settle()
        (made,) = [event.model for event in seen if isinstance(event, Aggregated)]
        assert np.all(bench.layout.numbers(made.data)[0] == 3.0)
        assert bench.log.errors == 0

    with_bench(tmp_path, story)


def events_seen(bench: Bench) -> list[Any]:
    """What the node is told from now on."""
    seen: list[Any] = []
    handle = bench.node.handle
    bench.node.handle = lambda now, event: [*handle(now, event), *(seen.append(event) or [])]  # type: ignore[method-assign,func-returns-value]
    return seen


def test_the_node_is_told_what_did_not_arrive_and_which_links_broke(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        seen = events_seen(bench)
        request = AggregateRequest(5, 4, 4, 3, 1, View.of(1).snapshot(), bench.initial)
        bench.runtime.outcome(PEERS[1], request, DECLINED)
        bench.runtime.outcome(PEERS[2], Ping(1, 2), UNREACHABLE)
        bench.runtime.link_down(PEERS[3], "connection lost")
        assert seen == [], "not in the midst of something else"
        await bench.settle()
        assert seen == [Undelivered(2, request, declined=True), Undelivered(3, Ping(1, 2)), PeerLost(4)]

    with_bench(tmp_path, story)


class FakeLink:
    """Two halves of a link on which something is under way."""

    def __init__(self, *bodies: Message) -> None:
        self.sending = self.receiving = self
        self.under_way = list(bodies)
        self.told: list[str] = []

    def cancel(self, is_pointless: Callable[[Message], bool], reason: str) -> None:
        self.told += [f"stops {type(b).__name__}: {reason}" for b in self.under_way if is_pointless(b)]

    def decline(self, is_pointless: Callable[[Message], bool]) -> None:
        self.told += [f"declines {type(b).__name__}" for b in self.under_way if is_pointless(b)]


def test_what_has_become_obsolete_on_its_way_is_ended(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        view = View.of(1).snapshot()
        link = FakeLink(AggregateRequest(8, 7, 4, 3, 1, view, None), TrainRequest(8, 1, 4, 3, view, None))
        bench.hub.links[PEERS[1]] = link
        bench.runtime.message(PEERS[0], bench.frame(Ping(1, 8)))
        assert link.told == []
        bench.runtime.message(PEERS[0], bench.frame(Ping(1, 9)))  # so round 8 is complete
        assert link.told == [f"stops AggregateRequest: {OBSOLETE}", "declines AggregateRequest"]

    with_bench(tmp_path, story)


def test_every_effect_of_a_protocol_is_performed(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        seen = events_seen(bench)
        link = FakeLink(TrainRequest(8, 1, 4, 3, View.of(1).snapshot(), None))
        bench.hub.links[PEERS[1]] = link
        models = [LiveModel(memoryview(bytearray(bench.initial.data)), b"") for _ in range(2)]
        for model, value in zip(models, (1.0, 4.0), strict=True):
            bench.layout.numbers(model.data)[0][:] = value
        bench.runtime.perform([StopSending(), Merge(7, tuple(models), (2.0, 1.0))])
        bench.runtime.perform([Aggregate(8, tuple(models), (1, 1))])
        await bench.settle()
        assert link.told == [f"stops TrainRequest: {STOPPED}"]
        results = [(event.round, bench.layout.numbers(event.model.data)[0][0]) for event in seen]
        assert results == [(7, 2.0), (8, 2.5)]
        assert bench.layout.numbers(models[0].data)[0][0] == 1.0, "models that the node keeps are untouched"

    with_bench(tmp_path, story)


def test_what_is_no_longer_wanted_is_declined_before_it_is_sent(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        view = View.of(1).snapshot()
        bench.runtime.message(PEERS[0], bench.frame(Ping(1, 9)))  # so round 8 is complete
        assert (
            bench.runtime.offered(PEERS[0], bench.frame(AggregateRequest(8, 7, 4, 3, 1, view, None))) is None
        )
        assert bench.runtime.offered(PEERS[0], bench.frame(TrainRequest(8, 1, 4, 3, view, None))) is not None

    with_bench(tmp_path, story)


def test_messages_that_do_not_belong_here_end_the_link(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        view = View.of(1).snapshot()
        with pytest.raises(WireError, match="without its model"):
            bench.runtime.message(PEERS[0], bench.frame(TrainRequest(1, 1, 1, 3, view, None)))
        with pytest.raises(WireError, match="a model with a Ack"):
            bench.runtime.offered(PEERS[0], bench.frame(Ack(1)))
        with pytest.raises(WireError, match="a GossipModel, which this session's protocol does not have"):
            bench.runtime.offered(PEERS[0], bench.frame(GossipModel(1, view, None)))

    with_bench(tmp_path, story)


def test_who_has_a_model_of_other_tensors_is_named(tmp_path: Path) -> None:
    """Its task is another one, or of another version: nobody would notice but by standing still."""

    async def story(bench: Bench) -> None:
        request = TrainRequest(1, 1, 1, 3, View.of(1).snapshot(), None)
        wrong = wire.encode(request, bench.roster, 17)[wire.LENGTH_BYTES :]
        with pytest.raises(WireError, match="a model of 17 bytes"):
            bench.runtime.offered(PEERS[0], wrong)
        (refused,) = [fact for fact in bench.facts if isinstance(fact, Refused)]
        assert (refused.src, refused.what) == (1, "a model")
        assert refused.why.startswith("it has 17 bytes, this node's has ") and "same task" in refused.why

    with_bench(tmp_path, story)


@pytest.mark.parametrize("flaw", ["other tensors", "other seal"])
def test_a_model_with_a_flaw_is_dropped_before_the_node_sees_it(tmp_path: Path, flaw: str) -> None:
    async def story(bench: Bench) -> None:
        handled = bench.runtime.handled
        body = TrainRequest(3, 1, 2, 3, View.of(1).snapshot(), None)
        ticket = Ticket(lambda: None)
        bench.buffers.request(ticket)
        assert ticket.buffer is not None
        ticket.buffer[:] = bench.initial.data
        if flaw == "other tensors":
            ticket.buffer[:100] = bytes(100)
        fitting = seal(ticket.buffer)
        if flaw == "other seal":
            ticket.buffer[-1] ^= 1
        bench.runtime.model(PEERS[0], body, LiveModel(ticket.buffer, fitting), ticket)
        await bench.settle()
        assert bench.runtime.handled == handled + 1, "that its sender misbehaved"
        assert bench.node.trust._misbehaved == {}, "which counts where members may lie"
        assert bench.node.held_round == 0
        assert bench.buffers.free == bench.buffers.count

    with_bench(tmp_path, story)


def test_a_node_that_fails_is_logged_and_goes_on(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        bench.runtime.step(TimerFired(("no such timer", 1)))
        assert bench.log.errors == 1
        bench.runtime.message(PEERS[0], bench.frame(Ping(4, 2)))
        key, frame = bench.hub.sent[-1]
        assert (key, type(bench.said(frame))) == (PEERS[0], Pong)

    with_bench(tmp_path, story)


# What waits for the disk


def test_nobody_hears_of_a_counter_that_is_not_on_the_disk(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        before = len(bench.hub.sent)
        fill(disk)
        bench.runtime.step(BandwidthMeasured(7))
        await bench.settle()
        assert bench.unsaved == [f"{disk / STATE_FILE}: No space left on device"]
        assert bench.store.failed == 1
        bench.runtime.message(PEERS[0], bench.frame(Ping(4, 2)))
        assert len(bench.hub.sent) == before, "the node is offline, without a word"
        assert bench.runtime.timers == {}

    with small_disk(tmp_path / "disk", kilobytes=64) as disk:
        with_bench(disk, story)


def test_a_save_that_fails_for_whatever_reason_is_no_save(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        bench.store.save_counter = lambda *_: 1 // 0  # type: ignore[method-assign,assignment,return-value]
        before = len(bench.hub.sent)
        bench.runtime.step(BandwidthMeasured(7))
        assert bench.unsaved == ["integer division or modulo by zero"]
        assert len(bench.hub.sent) == before

    with_bench(tmp_path, story)


def test_what_follows_a_save_waits_for_the_disk_and_nothing_else_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(bench: Bench) -> None:
        before, handled = len(bench.hub.sent), bench.runtime.handled
        disk = SlowDisk(monkeypatch)
        bench.runtime.step(BandwidthMeasured(7))
        bench.runtime.message(PEERS[0], bench.frame(Ping(4, 2)))
        await asyncio.sleep(0.05)
        assert len(bench.hub.sent) == before, "neither the new counter nor the answer after it"
        assert bench.runtime.handled == handled + 2, "but the node has seen both events"
        disk.go_on()
        await bench.settle()
        said = [bench.said(frame) for _, frame in bench.hub.sent[before:]]
        assert [type(body) for body in said] == [Joined] * 4 + [Pong]
        assert said[0].counter == read_state(tmp_path / STATE_FILE).counter

    with_bench(tmp_path, story)


def test_a_timer_taken_back_does_not_fire_though_its_end_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(bench: Bench) -> None:
        disk = SlowDisk(monkeypatch)
        bench.runtime.perform([SetTimer(("ping", 7), 0.01)])
        bench.runtime.step(BandwidthMeasured(7))
        handled = bench.runtime.handled
        bench.runtime.perform([CancelTimer(("ping", 7)), SetTimer(("ping", 8), 0.01)])
        await asyncio.sleep(0.05)
        assert bench.runtime.handled == handled, "and one that waits to be set does not run yet"
        disk.go_on()
        await bench.settle()
        assert ("ping", 8) in bench.runtime.timers

    with_bench(tmp_path, story)


def test_while_too_much_waits_for_the_disk_messages_are_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(bench: Bench) -> None:
        disk = SlowDisk(monkeypatch)
        bench.runtime.step(BandwidthMeasured(7))
        for number in range(10 * MAX_QUEUED):
            bench.runtime.message(PEERS[0], bench.frame(Ping(number, 2)))
        bench.contribute(0, 1.0)
        # What somebody claims with an offer has a say in what the node saves and sends, too.
        claim = View.of(1)
        for number in range(10 * MAX_QUEUED):
            claim.learn(0, event_number(number + 9, LEFT))
            request = AggregateRequest(5, 4, 4, 3, 1, claim.snapshot(), None)
            bench.runtime.offered(PEERS[0], bench.frame(request))
        await asyncio.sleep(0.05)
        assert bench.runtime.lost > 18 * MAX_QUEUED
        assert bench.buffers.free == bench.buffers.count, "the model was lost, not its buffer"
        disk.go_on()
        await bench.settle()
        sent = len(bench.hub.sent)
        bench.runtime.message(PEERS[0], bench.frame(Ping(4, 2)))
        assert len(bench.hub.sent) == sent + 1

    with_bench(tmp_path, story)


def test_a_goodbye_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(bench: Bench) -> None:
        before = len(bench.hub.sent)
        disk = SlowDisk(monkeypatch)
        leaving = asyncio.ensure_future(bench.runtime.leave())
        await asyncio.sleep(0.05)
        handled = bench.runtime.handled
        bench.runtime.message(PEERS[0], bench.frame(Ping(4, 2)))
        assert bench.runtime.handled == handled, "the node has handled its last event"
        assert len(bench.hub.sent) == before
        disk.go_on()
        await leaving
        said = [bench.said(frame) for _, frame in bench.hub.sent[before:]]
        assert [type(body) for body in said] == [Left] * 4
        assert said[0].counter == read_state(tmp_path / STATE_FILE).counter
        assert bench.runtime.timers == {}

    with_bench(tmp_path, story)


def test_a_goodbye_that_does_not_fit_on_the_disk_is_not_said(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        before = len(bench.hub.sent)
        fill(disk)
        await bench.runtime.leave()
        assert bench.unsaved == [f"{disk / STATE_FILE}: No space left on device"]
        assert len(bench.hub.sent) == before

    with small_disk(tmp_path / "disk", kilobytes=64) as disk:
        with_bench(disk, story)


def test_of_a_node_that_is_stopped_nothing_more_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(bench: Bench) -> None:
        before = len(bench.hub.sent)
        disk = SlowDisk(monkeypatch)
        bench.runtime.step(BandwidthMeasured(7))
        bench.runtime.stop()
        disk.go_on()
        await bench.settle()
        assert len(bench.hub.sent) == before

    with_bench(tmp_path, story)


def test_nothing_reaches_a_node_that_is_offline(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        bench.runtime.stop()
        assert bench.runtime.timers == {}
        handled = bench.runtime.handled
        bench.runtime.message(PEERS[0], bench.frame(Joined(3, 1)))
        assert [type(body) for body in bench.early] == [Joined], "who waits to go online may want to know"
        payload = bench.frame(AggregateRequest(5, 4, 4, 3, 1, View.of(1).snapshot(), None))
        # Not that there is no use for it: its sender would take that for an acknowledgement.
        assert bench.runtime.offered(PEERS[0], payload) == NOT_ONLINE
        await bench.settle()
        assert bench.runtime.handled == handled

    with_bench(tmp_path, story)
