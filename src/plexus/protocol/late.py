"""Late models: what a training changed still counts when its round is over (not in the paper).

With `late_rounds` above 0 nobody is interrupted: a node finishes what it trains, and says meanwhile that it
is busy. Whoever comes too late for its round, or hears that its model was not used, sends what its training
*changed* to the aggregator of a coming round, which adds it and never waits for it. So a small success
fraction makes rounds short and still uses everybody's data.

A change counts once: it is offered only if at most one aggregator has had the model and said that it did not
use it; it goes to another only after the last has said the same; without an answer it is dropped. It is meant
for the round after the next, because a large model loses the race for the next one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from plexus.protocol.api import Change
from plexus.protocol.facts import LateModelSent
from plexus.protocol.machine import Machine
from plexus.protocol.messages import Ack, LateModel, NodeId
from plexus.protocol.parameters import PlexusParameters
from plexus.protocol.trust import Trust
from plexus.protocol.view import NONE

LATE_ACK = ("late ack", 0)
AHEAD = 2
"""For how many rounds after the newest one known a late model is meant."""
MOST_TRIES = 8
DECLINED = 3
"""So often in a row an aggregator may make nothing of late models, before others are asked first."""
MOST_WAITING = 4
"""Late models that wait until one before them is settled; with more, the oldest is dropped."""


class Late(NamedTuple):
    """A training that came too late."""

    trained_in: int
    """The number of its round."""
    ordinal: int
    samples: int
    change: Change


class LateTask:
    """What the node does for its own late models, one after the other."""

    def __init__(
        self,
        node: Machine,
        parameters: PlexusParameters,
        trust: Trust,
        rounds: Callable[[], tuple[int, int]],
        search: Callable[[int], None],
    ) -> None:
        """`rounds()`: the newest round known and the step to the next; `search(k)` finds the sample of k."""
        self._node = node
        self._parameters = parameters
        self._trust = trust
        self._rounds = rounds
        self._search = search
        self._waiting: list[Late] = []
        self.current: Late | None = None
        self.awaited: NodeId | None = None
        """Whose answer is awaited."""
        self._asked: frozenset[tuple[NodeId, int]] = NONE
        """Who has been sent the current one, for which round: an answer is to one of these."""
        self._meant_for = 0
        self._seen = 0
        """The newest round known when the search began."""
        self._tries = 0
        self._declined: Counter[NodeId] = Counter()
        """Aggregators that made nothing of a late model, since they last used one."""
        self._in_doubt: dict[int, tuple[NodeId, Late]] = {}
        """By the round it was sent for: who has got a model and has not said yet whether it used it."""

    def reset(self) -> None:
        """The node was offline: nobody waits for what it had."""
        self._waiting.clear()
        self._in_doubt.clear()
        self._declined.clear()
        self.current = self.awaited = None

    def offer_unless_used(self, k: int, aggregator: NodeId, late: Late) -> None:
        """`aggregator` was sent the model for round k and has not answered, but the node has other work."""
        if len(self._in_doubt) >= MOST_WAITING:
            del self._in_doubt[next(iter(self._in_doubt))]
        self._in_doubt[k] = aggregator, late

    def offer(self, late: Late) -> None:
        self._waiting = [*self._waiting, late][-MOST_WAITING:]
        if self.current is None:
            self._next()

    def on_sample(self, k: int, sample: tuple[NodeId, ...]) -> None:
        """The sample of round k, for which the change is meant."""
        late = self.current
        if late is None:
            return
        if not sample or (self._rounds()[0] > self._seen and self._tries < MOST_TRIES):
            self._aim()  # the session went on meanwhile
            return
        fresh = [node for node in sample if (node, k) not in self._asked]
        if not fresh:
            self._next()
            return
        willing = [node for node in fresh if self._declined[node] < DECLINED]
        aggregator = self._trust.best(willing or fresh)
        self.awaited, self._meant_for = aggregator, k
        self._asked |= {(aggregator, k)}
        self._node.send((aggregator,), LateModel(k, late.trained_in, late.ordinal, late.samples, late.change))
        self._node.set_timer(LATE_ACK, self._parameters.ack_timeout_s)
        self._node.report(LateModelSent(late.trained_in, late.ordinal, aggregator))

    def on_ack(self, src: NodeId, ack: Ack) -> bool:
        """Says whether the answer is about a late model."""
        if ack.late:
            if self._is_awaited(src, ack.round, ack.late):
                self._stop_waiting()
                if ack.used:
                    self._declined.pop(src, None)
                    self._next()
                else:
                    self._decline(src)
                    self._aim()
            return True
        aggregator, doubtful = self._in_doubt.get(ack.round, (None, None))
        if doubtful is None or src != aggregator:
            return False
        del self._in_doubt[ack.round]
        if not ack.used:
            self.offer(doubtful)
        return True

    def is_in_doubt(self, aggregator: NodeId, k: int) -> bool:
        """Whether it was sent a model for round k and has not said what became of it."""
        return self._in_doubt.get(k, (None, None))[0] == aggregator

    def on_undelivered(self, to: NodeId, sent: LateModel) -> None:
        """It has not got there."""
        if self._is_awaited(to, sent.trained_in, sent.round):
            self._stop_waiting()
            self._aim()

    def _is_awaited(self, src: NodeId, trained_in: int, k: int) -> bool:
        """Not what came of an earlier try: that may have been told twice, or late."""
        if self.current is None:
            return False
        return (src, trained_in, k) == (self.awaited, self.current.trained_in, self._meant_for)

    def on_timeout(self, _: int) -> None:
        """No answer: it may have been used, so it is not offered again."""
        if self.current is not None:
            if self.awaited is not None:
                self._decline(self.awaited)
            self._stop_waiting()
            self._next()

    def _decline(self, aggregator: NodeId) -> None:
        """One that never makes anything of what it is sent may lie about its bandwidth."""
        if self._trust.is_wary:
            self._declined[aggregator] += 1

    def _next(self) -> None:
        self.current = self._waiting.pop(0) if self._waiting else None
        self._tries = 0
        self._asked = NONE
        if self.current is not None:
            self._aim()

    def _aim(self) -> None:
        assert self.current is not None
        k, step = self._rounds()
        age = (k - self.current.trained_in) // step
        self._tries += 1
        if age > self._parameters.late_rounds or self._tries > MOST_TRIES:
            self._next()
        else:
            self._seen = k
            self._search(k + AHEAD * step)

    def _stop_waiting(self) -> None:
        self.awaited = None
        self._node.cancel_timer(LATE_ACK)
