"""An in-memory network of nodes: events in, effects performed, time only as fast as things happen.

Models are names that tell where they come from: `m0` is what all begin with, `m0>3` what node 3 trained from
it, `m2` the aggregate of round 2, and `m2@3` what node 3 merged in round 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from random import Random
from typing import Any

from plexus.protocol import api
from plexus.protocol.api import Aggregated, Durable, Effect, Event, Node, Received, TimerFired, Trained
from plexus.protocol.facts import Fact
from plexus.protocol.messages import Message, NodeId
from plexus.protocol.view import View
from plexus.sim.protocols import Place

INITIAL = "m0"
BANDWIDTH_BYTES_PER_S = 1_000_000

Make = Callable[[NodeId, Durable | None], Any]
"""Makes a node, new or from what it had saved."""
Delays = Callable[[NodeId, NodeId, Message], Sequence[float]]
"""When the copies of a message arrive: none is loss, two are a duplicate."""


def placed(node: Callable[[Place], Node], n: int, parameters: Any = None, seed: int = 0) -> Make:
    """Makes nodes of a protocol of one's own, all of whom believe all n online."""

    def make(me: NodeId, durable: Durable | None) -> Node:
        view = View.of(n, [(other, BANDWIDTH_BYTES_PER_S) for other in range(n)])
        return node(Place(me, n, parameters, INITIAL, Random(f"{seed} {me}"), view, BANDWIDTH_BYTES_PER_S))

    return make


class Exchange:
    """All nodes of a session in virtual time, by the contract of `plexus.protocol.api`.

    Derive from it to look on (`on_event`, `on_lost`), and to check what must be true after every event.
    """

    def __init__(
        self,
        n: int,
        make: Make,
        *,
        latency_s: float = 0.05,
        model_s: float = 1.0,
        training_s: Callable[[NodeId], float] = lambda node: 10.0,
        delays: Delays | None = None,
    ) -> None:
        """Messages take `latency_s`, those with a model `model_s`, unless `delays` decides."""
        self._make = make
        self.nodes = [make(me, None) for me in range(n)]
        self.now = 0.0
        self.online: set[NodeId] = set()
        self.armed: list[dict[api.TimerKey, int]] = [{} for _ in range(n)]
        self.training: dict[NodeId, int] = {}
        self.facts: list[tuple[float, NodeId, Any]] = []
        self.messages: list[tuple[float, NodeId, NodeId, Message]] = []
        """Everything delivered: (time, from, to, message)."""
        self.saved: dict[NodeId, Durable] = {}
        self._latency_s = latency_s
        self._model_s = model_s
        self._training_s = training_s
        self._delays = delays or self.usual_delays
        self._lives = [0] * n
        self._queue: list[tuple[float, int, NodeId, Event, int]] = []
        self._tokens = 0

    # Coming and going

    def go_online(self, *nodes: NodeId) -> None:
        for node in nodes:
            self.online.add(node)
            self.deliver(node, api.WentOnline())

    def leave(self, node: NodeId) -> None:
        self.deliver(node, api.WentOffline())
        self.crash(node)

    def crash(self, node: NodeId) -> None:
        """Silence: its timers, training and unfinished transfers are gone, and nobody is told."""
        self.online.discard(node)
        self.armed[node].clear()
        self.training.pop(node, None)
        self._lives[node] += 1
        self._queue = [each for each in self._queue if each[2] != node or isinstance(each[3], Received)]
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
            # A sender that went offline took its unfinished transfers with it; the rest was on its way.
            is_cut = is_model(event.body) and self._lives[event.src] != life
            if target not in self.online or is_cut:
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
        """Now, whatever else is due."""
        effects = self.nodes[target].handle(self.now, event)
        for effect in effects:
            self._perform(target, effect)
        self.on_event(target, event, effects)

    # What happened

    def on_event(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        """The node has handled `event`, and what it asked for is done or under way."""

    def on_lost(self, src: NodeId, dst: NodeId, body: Message) -> None:
        """The receiver is away, or the sender went before the transfer was complete."""

    def of(self, kind: type[Fact]) -> list[tuple[float, NodeId, Any]]:
        """When which node reported facts of this kind."""
        return [(now, node, fact) for now, node, fact in self.facts if type(fact) is kind]

    # Effects

    def _perform(self, node: NodeId, effect: Effect) -> None:
        match effect:
            case api.Send(to, body):
                for dst in to:
                    for delay_s in (0.0,) if dst == node else self._delays(node, dst, body):
                        self._at(delay_s, dst, Received(node, body), self._lives[node])
            case api.SetTimer(key, delay_s):
                assert delay_s >= 0
                self.armed[node][key] = self._at(delay_s, node, TimerFired(key))
            case api.CancelTimer(key):
                self.armed[node].pop(key, None)
            case api.Train(k, model):
                trained = Trained(k, f"{model}>{node}", samples=10)
                self.training[node] = self._at(self._training_s(node), node, trained)
            case api.Aggregate(k, models, samples, changes, change_samples):
                assert len(models) == len(samples) > 0
                assert len(changes) == len(change_samples)
                self._at(0.0, node, Aggregated(k, f"m{k}"))
            case api.Merge(k, models, weights):
                assert len(models) == len(weights) > 0
                self._at(0.0, node, Aggregated(k, f"m{k}@{node}"))
            case api.StopSending():
                self._lives[node] += 1
            case api.Save(state):
                self.saved[node] = state
            case api.Report(fact):
                self.facts.append((self.now, node, fact))

    def _at(self, delay_s: float, target: NodeId, event: Event, life: int = 0) -> int:
        self._tokens += 1
        heappush(self._queue, (self.now + delay_s, self._tokens, target, event, life))
        return self._tokens

    def usual_delays(self, src: NodeId, dst: NodeId, body: Message) -> Sequence[float]:
        return (self._model_s if is_model(body) else self._latency_s,)


def is_model(body: Message) -> bool:
    """Whether a message is a transfer: it has a field called `model`."""
    return hasattr(body, "model")


def sent(effects: list[Effect], kind: type[Message] = Message) -> list[tuple[NodeId, Any]]:
    """Who was sent which message of this kind, one entry per receiver."""
    return [
        (to, effect.body)
        for effect in effects
        if isinstance(effect, api.Send) and isinstance(effect.body, kind)
        for to in effect.to
    ]


def reported(effects: list[Effect], kind: type[Fact] = Fact) -> list[Any]:
    """The facts of this kind."""
    return [each.fact for each in effects if isinstance(each, api.Report) and isinstance(each.fact, kind)]
