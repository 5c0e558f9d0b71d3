"""Rounds in which nodes train and exchange models: D-PSGD, Epidemic Learning and Teleportation have them.

Without churn rounds are synchronous: a node goes on to the next when it has trained and the models it
expects of this round have arrived. Nodes may be rounds apart, so models of later rounds are kept.

Under churn that would wait for ever. Rounds then have a fixed duration and begin at its multiples on a
clock that all nodes share. With the round end all that is not complete: transfers are cut, training
is given up, models that arrive later are ignored. A node that comes online during a round takes part
in the rest of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from plexus.protocol.api import Aggregated, Durable, Event, Merge, StopSending, Train, Trained
from plexus.protocol.facts import ModelUpdated
from plexus.protocol.machine import Handler, Machine, to
from plexus.protocol.messages import Model, NodeId

ROUND = "round"
ROUND_EVENTS: dict[type[Event], Handler] = {
    Trained: to("rounds.on_trained"),
    Aggregated: to("rounds.on_aggregated"),
}
ROUND_TIMEOUTS = {ROUND: to("rounds.on_boundary")}
"""What a node leaves to its `rounds`."""

Weights = Callable[[int, Collection[NodeId]], Mapping[NodeId, float]]
"""(round, senders of the models that arrived) -> how much the own model and each of theirs counts."""


class Rounds:
    """The node's round, its own model, and the models of others that arrived for each round."""

    def __init__(
        self,
        node: Machine,
        durable: Durable,
        duration_s: float | None,
        expected: Callable[[int], Collection[NodeId]],
        share: Callable[[int, Model], None],
        weights: Weights | None = None,
        then: Callable[[bool], None] | None = None,
    ) -> None:
        """`expected(k)` send this node a model in round k, `share(k, model)` sends others its own.
        Without `weights` all models count the same. `then(has_model)` decides what comes after a round, or
        when the node comes online; without it, the next round."""
        self._node = node
        self._duration_s = duration_s
        self._expected = expected
        self._share = share
        self._weights = weights or (lambda _, senders: dict.fromkeys((node.me, *senders), 1))
        self._then = then or (lambda _: self.begin(self.next, self.model))
        self.k = self.next = durable.round + 1
        """The round the node is in, and the one to go on with when the merge under way is done."""
        self.model = durable.model
        self.has_turn = False
        """Whether the node takes part in round k with a model of its own."""
        self.has_trained = False
        self._merging = False
        self._missing: set[NodeId] = set()
        self._received: dict[int, dict[NodeId, Model]] = {}

    @property
    def is_timed(self) -> bool:
        """Whether rounds have a fixed duration."""
        return self._duration_s is not None

    @property
    def is_idle(self) -> bool:
        return not (self.has_turn or self._merging)

    def is_far_ahead(self, k: int) -> bool:
        """By the clock that all share nobody can be in round k yet: who says so lies, or its clock does."""
        return self.is_timed and k > self.next + 1

    def start(self) -> None:
        """The node came online. What it trained or was sent in a fixed round before is gone."""
        self._merging = False
        if self._duration_s is not None:
            self._received.clear()
            self.next = int(self._node.now // self._duration_s) + 1
            self._set_clock(self._duration_s)
        self._then(False)

    def on_trained(self, trained: Trained) -> None:
        if trained.round != self.k or self.has_trained or not self.has_turn or self._merging:
            return
        self.has_trained = True
        self.model = trained.model
        self._share(self.k, self.model)
        self._merge_if_complete()

    def on_model(self, src: NodeId, k: int, model: Model) -> None:
        """A model of round k arrived; one of a round that is over came too late."""
        if k < self.next or self.is_far_ahead(k):
            return
        self._received.setdefault(k, {})[src] = model
        if k == self.k:
            self._missing.discard(src)
            self._merge_if_complete()

    def on_boundary(self, k: int) -> None:
        """By the clock, round k begins."""
        assert self._duration_s is not None
        self._node.outbox.append(StopSending())
        self.next = k
        self._set_clock(self._duration_s)
        if not self._merging:  # else the merge took a whole round, which is lost
            self._merge()

    def on_aggregated(self, event: Aggregated) -> None:
        if self._merging and event.round == self.k:
            self._merging = False
            self.model = event.model
            self._finish(merged=len(self._received[self.k]) + self.has_turn)

    def _set_clock(self, duration_s: float) -> None:
        self._node.set_timer((ROUND, self.next + 1), self.next * duration_s - self._node.now)

    def begin(self, k: int, model: Model) -> None:
        """Take part in round k, with this model."""
        self.k = self.next = k
        self.model = model
        self.has_turn, self.has_trained = True, False
        self._received = {k: models for k, models in self._received.items() if k >= self.k}
        self._missing = set() if self.is_timed else set(self._expected(self.k))
        self._missing -= self._received.get(self.k, {}).keys()
        self._node.outbox.append(Train(self.k, self.model))

    def rest(self) -> None:
        """Wait for another turn, while rounds go on."""
        self.k = self.next
        self.has_turn = self.has_trained = False

    def _merge_if_complete(self) -> None:
        if self.has_trained and not (self._missing or self._merging or self.is_timed):
            self.next = self.k + 1
            self._merge()

    def _merge(self) -> None:
        """Combine the node's own model with those that arrived; in the order of node numbers, so that
        nodes with the same models make the same of them."""
        received = self._received.get(self.k)
        if not received:
            self._finish(merged=int(self.has_turn))
            return
        self._merging = True
        parts = {**received, self._node.me: self.model} if self.has_turn else received
        weights = self._weights(self.k, received.keys())
        order = sorted(parts)
        self._node.outbox.append(
            Merge(self.k, tuple(parts[n] for n in order), tuple(weights[n] for n in order))
        )

    def _finish(self, merged: int) -> None:
        """The node's model of round k is made."""
        if self._received.get(self.k) or self.has_trained:
            self._node.report(ModelUpdated(self.k, self.model, merged))
        self._then(merged > 0)
