"""Small worlds for tests of Plexus: a node in one line, and an in-memory network of them.

By default node i has the bandwidth 100 * (i + 1), so of any sample the highest number aggregates, and
everybody believes everybody online.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

from plexus.protocol.api import Aggregate, Durable, Effect, Event, Report, WentOffline, WentOnline
from plexus.protocol.facts import AggregationCompleted, RoundRestarted
from plexus.protocol.messages import NodeId
from plexus.protocol.parameters import PlexusParameters
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.roster import Roster
from plexus.protocol.view import JOINED, LEFT, Snapshot, View, event_number
from plexus.testing import exchange
from plexus.testing.exchange import INITIAL
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
    )


def online_node(me: NodeId = 0, n: int = 4, **options: Any) -> PlexusNode:
    """The same, after it went online at time 0."""
    node = make_node(me, n, **options)
    node.handle(0.0, WentOnline())
    return node


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
            check_models(effects)
            check_acknowledgements(self.nodes[node], effects, self._finished)

    @property
    def rounds(self) -> list[int]:
        """The rounds aggregated so far, in order."""
        return [fact.round for _, _, fact in self.of(AggregationCompleted)]

    def has_aggregated(self, k: int) -> Callable[[], bool]:
        return lambda: any(done >= k for done in self.rounds)


class Exchange(Checked):
    """n nodes of Plexus."""

    def __init__(self, n: int, *, checked: bool = True, **options: Any) -> None:
        self.is_checked = checked
        network = {name: options.pop(name) for name in OF_THE_EXCHANGE if name in options}
        super().__init__(n, lambda me, durable: make_node(me, n, durable=durable, **options), **network)
