"""Small worlds for protocol tests: a node in one line, and an in-memory network of them.

By default node i has the bandwidth 100 * (i + 1), so of any sample the highest number aggregates, and
everybody believes everybody online.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from random import Random
from typing import Any

from plexus.protocol.api import (
    Aggregate,
    Aggregated,
    CancelTimer,
    Durable,
    Effect,
    Event,
    Received,
    Report,
    Save,
    Send,
    SetTimer,
    TimerFired,
    TimerKey,
    Train,
    Trained,
    WentOffline,
    WentOnline,
)
from plexus.protocol.facts import AggregationCompleted, Fact, RoundRestarted
from plexus.protocol.messages import AggregateRequest, Message, NodeId, TrainRequest
from plexus.protocol.parameters import PlexusParameters
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.roster import Roster
from plexus.protocol.view import Snapshot, View
from tests.protocol.invariants import check_acknowledgements, check_invariants, check_models

SESSION = b"a session of tests"
INITIAL = "m0"


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
        view.learn(node, 2 * counter + online, bandwidth_of(node))
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


def sent(effects: list[Effect], kind: type[Message] = Message) -> list[tuple[NodeId, Any]]:
    """Who was sent which message of this kind, one entry per receiver."""
    return [
        (to, effect.body)
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.body, kind)
        for to in effect.to
    ]


def facts(effects: list[Effect]) -> list[Fact]:
    return [effect.fact for effect in effects if isinstance(effect, Report)]


def without(effects: list[Effect], *kinds: type[Effect]) -> list[Effect]:
    """The effects that a test is about."""
    return [effect for effect in effects if not isinstance(effect, kinds)]


Delays = Callable[[NodeId, NodeId, Message], Sequence[float]]
"""When the copies of a message arrive: none is loss, two are a duplicate."""


class Exchange:
    """All nodes of a session in virtual time, by the contract of `protocol.api`.

    After every event the invariants are checked: above all, that a node with work to do waits for
    something that will come.
    """

    def __init__(
        self,
        n: int,
        *,
        latency_s: float = 0.05,
        model_s: float = 1.0,
        training_s: Callable[[NodeId], float] = lambda node: 10.0,
        delays: Delays | None = None,
        checked: bool = True,
        **options: Any,
    ) -> None:
        self._make = lambda me, durable=None: make_node(me, n, durable=durable, **options)
        self.nodes = [self._make(me) for me in range(n)]
        self.now = 0.0
        self.online: set[NodeId] = set()
        self.armed: list[dict[TimerKey, int]] = [{} for _ in range(n)]
        self.training: dict[NodeId, int] = {}
        self.facts: list[tuple[float, NodeId, Any]] = []
        self.messages: list[tuple[float, NodeId, NodeId, Message]] = []
        """Everything delivered: (time, from, to, message)."""
        self.saved: dict[NodeId, Durable] = {}
        self._latency_s = latency_s
        self._model_s = model_s
        self._training_s = training_s
        self._delays = delays or self._usual_delays
        self._checked = checked
        self._finished: set[tuple[NodeId, int]] = set()
        self._lives = [0] * n
        self._queue: list[tuple[float, int, NodeId, Event, int]] = []
        self._tokens = 0

    # Coming and going

    def go_online(self, *nodes: NodeId) -> None:
        for node in nodes:
            self.online.add(node)
            self.deliver(node, WentOnline())

    def leave(self, node: NodeId) -> None:
        self.deliver(node, WentOffline())
        self.crash(node)

    def crash(self, node: NodeId) -> None:
        self.online.discard(node)
        self.armed[node].clear()
        self.training.pop(node, None)
        self._lives[node] += 1
        self._queue = [e for e in self._queue if e[2] != node or isinstance(e[3], Received)]
        heapify(self._queue)

    def restart(self, node: NodeId, disk_is_lost: bool = False) -> None:
        """Come back as another process: with what was saved, or with nothing."""
        self.nodes[node] = self._make(node, None if disk_is_lost else self.saved.get(node))
        self.go_online(node)

    # Time

    def run(self, until_s: float) -> Exchange:
        while self._queue and self._queue[0][0] <= until_s:
            self.step()
        self.now = max(self.now, until_s)
        return self

    def run_until(self, reached: Callable[[], bool], limit_s: float = 1e5) -> Exchange:
        """Until `reached()`; a session that never gets there fails."""
        while not reached():
            assert self._queue, "nothing will ever happen again"
            assert self.now < limit_s, "the session stands still"
            self.step()
        return self

    def step(self) -> None:
        time_s, token, target, event, life = heappop(self._queue)
        self.now = max(self.now, time_s)
        if isinstance(event, Received):
            if target not in self.online or not self._arrives(event, target, life):
                self.on_lost(event.src, target, event.body)
                return
            self.messages.append((self.now, event.src, target, event.body))
        elif isinstance(event, TimerFired):
            if self.armed[target].get(event.key) != token:
                return
            del self.armed[target][event.key]
        elif isinstance(event, Trained):
            if self.training.get(target) != token:
                return
            del self.training[target]
        self.deliver(target, event)

    def deliver(self, target: NodeId, event: Event) -> None:
        node = self.nodes[target]
        effects = node.handle(self.now, event)
        for effect in effects:
            self._perform(target, effect)
        self.on_event(target, event, effects)
        if self._checked:
            self._check(target, event, effects)

    def _check(self, target: NodeId, event: Event, effects: list[Effect]) -> None:
        node = self.nodes[target]
        check_models(effects)
        check_acknowledgements(node, effects, self._finished)
        if not isinstance(event, WentOffline):
            check_invariants(node, self.armed[target], training=target in self.training)

    # What happened

    def on_event(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        """For whoever wants to watch."""

    def on_lost(self, src: NodeId, dst: NodeId, body: Message) -> None:
        """For whoever wants to watch."""

    def of(self, kind: type[Fact]) -> list[tuple[float, NodeId, Any]]:
        return [(now, node, fact) for now, node, fact in self.facts if type(fact) is kind]

    @property
    def rounds(self) -> list[int]:
        """The rounds aggregated so far, in order."""
        return [fact.round for _, _, fact in self.of(AggregationCompleted)]

    def has_aggregated(self, k: int) -> Callable[[], bool]:
        return lambda: any(done >= k for done in self.rounds)

    # Effects

    def _perform(self, node: NodeId, effect: Effect) -> None:
        match effect:
            case Send(to, body):
                for dst in to:
                    for delay_s in (0.0,) if dst == node else self._delays(node, dst, body):
                        self._at(delay_s, dst, Received(node, body), self._lives[node])
            case SetTimer(key, delay_s):
                assert delay_s >= 0
                self.armed[node][key] = self._at(delay_s, node, TimerFired(key))
            case CancelTimer(key):
                self.armed[node].pop(key, None)
            case Train(k, model):
                trained = Trained(k, f"{model}>{node}", samples=10)
                self.training[node] = self._at(self._training_s(node), node, trained)
            case Aggregate(k, models, samples):
                assert len(models) == len(samples) > 0
                self._finished.add((node, k))
                self._at(0.0, node, Aggregated(k, f"m{k}"))
            case Save(state):
                self.saved[node] = state
            case Report(fact):
                self.facts.append((self.now, node, fact))
                if isinstance(fact, RoundRestarted):
                    self._finished.add((node, fact.round))

    def _at(self, delay_s: float, target: NodeId, event: Event, life: int = 0) -> int:
        self._tokens += 1
        heappush(self._queue, (self.now + delay_s, self._tokens, target, event, life))
        return self._tokens

    def _usual_delays(self, src: NodeId, dst: NodeId, body: Message) -> Sequence[float]:
        return (self._model_s if is_model(body) else self._latency_s,)

    def _arrives(self, event: Received, dst: NodeId, life: int) -> bool:
        """A sender that went offline took its unfinished transfers with it; the rest was on its way."""
        return not is_model(event.body) or self._lives[event.src] == life


def is_model(body: Message) -> bool:
    return isinstance(body, TrainRequest | AggregateRequest)
