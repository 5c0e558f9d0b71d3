"""Small worlds for tests of Plexus: a node in one line, and an in-memory network of them.

By default node i has the bandwidth 100 * (i + 1), so of any sample the highest number aggregates, and
everybody believes everybody online.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

from plexus.protocol.api import (
    Aggregate,
    Durable,
    Effect,
    Event,
    Received,
    Report,
    TimerFired,
    WentOffline,
    WentOnline,
)
from plexus.protocol.facts import AggregationCompleted, RoundRestarted, TrainingStarted
from plexus.protocol.messages import AggregateRequest, NodeId, Ping, Pong, TrainRequest
from plexus.protocol.parameters import ENDLESS, Course, PlexusParameters
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.roster import Roster
from plexus.protocol.sampling import PROBE
from plexus.protocol.view import JOINED, LEFT, Snapshot, View, event_number
from plexus.testing import exchange
from plexus.testing.exchange import INITIAL, sent
from tests.protocol.invariants import check_acknowledgements, check_invariants, check_models

SESSION = b"a session of tests"


def hash_order(n: int, k: int) -> list[NodeId]:
    """The nodes 0 … n - 1 in the order in which round k contacts them."""
    return Roster.simulated(SESSION, n).order(k).tolist()


def bandwidth_of(node: NodeId) -> int:
    return 100 * (node + 1)


def view_of(n: int, online: Iterable[NodeId] | None = None) -> View:
    """A view of n nodes in which `online` (default: all) have joined for the first time."""
    joined = range(n) if online is None else online
    return View.of(n, [(node, bandwidth_of(node)) for node in joined])


def snapshot_of(n: int, *events: tuple[NodeId, int, bool]) -> Snapshot:
    """What a sender knows: (node, counter, online) …"""
    view = View.of(n)
    for node, counter, online in events:
        view.learn(node, event_number(counter, JOINED if online else LEFT), bandwidth_of(node))
    return view.snapshot()


NOTHING = Snapshot(View.of(0).snapshot().events, View.of(0).snapshot().bandwidths)
"""The view of a sender that knows nobody."""


def make_node(
    me: NodeId = 0,
    n: int = 4,
    *,
    known: Iterable[NodeId] | None = None,
    bandwidths: Sequence[int] | None = None,
    durable: Durable | None = None,
    seed: int = 0,
    course: Course = ENDLESS,
    **parameters: Any,
) -> PlexusNode:
    """Node `me` of n, not yet online. `known` are those it believes online, by default all."""
    joined = range(n) if known is None else known
    speeds = [bandwidth_of(node) for node in range(n)] if bandwidths is None else bandwidths
    return PlexusNode(
        me=me,
        parameters=PlexusParameters(**{"sample_size": 2} | parameters),
        roster=Roster.simulated(SESSION, n),
        view=View.of(n, [(node, speeds[node]) for node in joined]),
        bandwidth_bytes_per_s=speeds[me],
        initial_model=INITIAL,
        rng=Random(f"{seed} {me}"),
        durable=durable,
        course=course,
    )


def online_node(me: NodeId = 0, n: int = 4, **options: Any) -> PlexusNode:
    """The same, after it went online at time 0 and has joined."""
    node = make_node(me, n, **options)
    come_online(node)
    return node


def come_online(node: PlexusNode, now: float = 0.0) -> list[Effect]:
    """The node goes online and asks around: all are there, know of no round, and of its last event but this
    one. So it joins at once."""
    effects = node.handle(now, WentOnline())
    before = event_number(node.membership.counter - 1, JOINED)
    for other, ping in sent(effects, Ping):
        effects += node.handle(now, Received(other, Pong(ping.exchange, 0, 0, before)))
    assert not node.joining.is_under_way
    return effects


# What is sent to the node. Unless a test says otherwise the next round is the next number, as it is where one
# node is believed online, and numbers and ordinals are the same.


def train_request(
    k: int, model: Any = "m", participants: int = 2, view: Snapshot = NOTHING, step: int = 1, ordinal: int = 0
) -> TrainRequest:
    """From the aggregator of round k to a participant."""
    return TrainRequest(k, step, ordinal or k, participants, view, model)


def aggregate_request(
    k: int,
    model: Any = "t",
    participants: int = 2,
    samples: int = 1,
    view: Snapshot = NOTHING,
    ordinal: int = 0,
) -> AggregateRequest:
    """From a participant of the round before to the aggregator of round k."""
    return AggregateRequest(k, k - 1, ordinal or k, participants, samples, view, model)


def pong(
    node: PlexusNode, src: NodeId, exchange: int, now: float, k: int = 0, held: int = 0, event: int = 0
) -> list[Effect]:
    """`src` answers, and knows the node's newest event unless told which; the effects."""
    known = event or event_number(node.membership.counter, JOINED)
    return node.handle(now, Received(src, Pong(exchange, k, held, known)))


def exchange_of(node: PlexusNode, purpose: str) -> int:
    """The number of the exchange that is under way for `purpose`."""
    [exchange] = [number for number, s in node.sampler.exchanges.items() if s.purpose == purpose]
    return exchange


def answer(node: PlexusNode, purpose: str, *nodes: NodeId, now: float) -> list[Effect]:
    """`nodes` answer the pings that are under way for `purpose`; all effects."""
    exchange = exchange_of(node, purpose)
    return [effect for src in nodes for effect in pong(node, src, exchange, now)]


def silence(node: PlexusNode, exchange: int, now: float) -> list[Effect]:
    """Nobody else answers in this exchange, not even when pinged again; what follows at its end, `now`."""
    half_s = node.parameters.ping_timeout_s / 2
    node.handle(now - half_s, TimerFired(("ping", exchange)))
    return node.handle(now, TimerFired(("ping", exchange)))


def asked(node: PlexusNode, effects: list[Effect], purpose: str) -> list[NodeId]:
    """Who is pinged now for `purpose`, in this order; for other purposes others may be."""
    exchanges = node.sampler.exchanges
    return [
        to
        for to, ping in sent(effects, Ping)
        if ping.exchange in exchanges and exchanges[ping.exchange].purpose == purpose
    ]


def without_probes(node: PlexusNode, effects: list[Effect]) -> list[Effect]:
    """The effects, less the pings of probes under way and their timers."""
    probes = {number for number, s in node.sampler.exchanges.items() if s.purpose == PROBE}
    keys = {("ping", number) for number in probes}
    return [
        effect
        for effect in effects
        if getattr(effect, "key", None) not in keys
        and not (isinstance(getattr(effect, "body", None), Ping) and effect.body.exchange in probes)  # type: ignore[attr-defined]
    ]


def without(effects: list[Effect], *kinds: type[Effect]) -> list[Effect]:
    """The effects that a test is about."""
    return [effect for effect in effects if not isinstance(effect, kinds)]


OF_THE_EXCHANGE = ("latency_s", "model_s", "training_s", "delays")


class Checked(exchange.Exchange):
    """After every event the invariants are checked: above all, that a node with work to do waits for
    something that will come."""

    is_checked = True

    def __init__(self, n: int, make: exchange.Make, **options: Any) -> None:
        self._finished: set[tuple[NodeId, int]] = set()
        super().__init__(n, make, **options)

    def deliver(self, target: NodeId, event: Event) -> None:
        super().deliver(target, event)
        if self.is_checked and not isinstance(event, WentOffline):
            check_invariants(self.nodes[target], self.armed[target], training=target in self.training)

    def on_event(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Aggregate(k) | Report(RoundRestarted(k)):
                    self._finished.add((node, k))
        if self.is_checked:
            check_models(self.nodes[node], effects)
            check_acknowledgements(self.nodes[node], effects, self._finished)

    @property
    def rounds(self) -> list[int]:
        """The rounds aggregated so far, in order, as people count them."""
        return [fact.ordinal for _, _, fact in self.of(AggregationCompleted)]

    def has_aggregated(self, ordinal: int) -> Callable[[], bool]:
        return lambda: any(done >= ordinal for done in self.rounds)

    @property
    def numbers(self) -> dict[int, int]:
        """Of each round trained or aggregated so far, by ordinal, the number: of forks the newest."""
        counted = [*self.of(TrainingStarted), *self.of(AggregationCompleted)]
        return dict(sorted((fact.ordinal, fact.round) for _, _, fact in counted))

    def has_gone_on(self, number: int, rounds: int) -> Callable[[], bool]:
        """Whether so many rounds newer than `number` were aggregated."""
        return lambda: (
            len({f.round for _, _, f in self.of(AggregationCompleted) if f.round > number}) >= rounds
        )


class Exchange(Checked):
    """n nodes of Plexus."""

    def __init__(self, n: int, *, checked: bool = True, **options: Any) -> None:
        self.is_checked = checked
        network = {name: options.pop(name) for name in OF_THE_EXCHANGE if name in options}
        super().__init__(n, lambda me, durable: make_node(me, n, durable=durable, **options), **network)
