"""The training task: train for a round, then find the aggregator of the next (section III-C)."""

from __future__ import annotations

from plexus.protocol.api import Change, Train, Trained
from plexus.protocol.facts import AggregatorChosen, TrainingInterrupted, TrainingStarted
from plexus.protocol.late import Late
from plexus.protocol.machine import Machine
from plexus.protocol.membership import Membership
from plexus.protocol.messages import AggregateRequest, Model, NodeId, TrainRequest
from plexus.protocol.parameters import PlexusParameters
from plexus.protocol.quorum import MAX_STEP
from plexus.protocol.trust import Trust
from plexus.protocol.view import NONE, Snapshot

ACK = ("ack", 0)
LOOK = ("look", 0)
LOOKS_AFTER = 1 / 15
"""As a share of `ack_timeout_s`: how often a participant pings the aggregator that it waits for."""


class TrainingTask:
    """What the node does as a participant of sample S^k. At most one round at a time."""

    __slots__ = (
        "_attempts", "_base", "_membership", "_node", "_parameters", "_trust", "asked", "awaited",
        "busy", "had_by", "k_train", "next_round", "ordinal", "participants", "queued", "trained",
        "tried", "view",
    )  # fmt: skip

    def __init__(
        self, node: Machine, parameters: PlexusParameters, membership: Membership, trust: Trust, k_train: int
    ) -> None:
        self._node = node
        self._parameters = parameters
        self._membership = membership
        self._trust = trust
        self.k_train = k_train
        self.busy = False
        """From the request to train until the acknowledgement by an aggregator."""
        self.trained: Trained | None = None
        self.awaited: NodeId | None = None
        """The aggregator whose acknowledgement is awaited."""
        self.had_by: NodeId | None = None
        """The aggregator that was sent the model last, whether or not it is still awaited."""
        self.queued: TrainRequest | None = None
        """What to train next, where a training that is begun is finished."""
        self._base: Model = None
        self.next_round = k_train + 1
        """The round that an aggregator makes of what is trained."""
        self.view: Snapshot | None = None
        """Whom the aggregator of the round knew, which all participants were told alike."""
        self.ordinal = 0
        """How many rounds led to the one that is trained."""
        self.participants = 0
        self.asked: frozenset[NodeId] = NONE
        """All who were sent the model."""
        self.tried: frozenset[NodeId] = NONE
        self._attempts = 0

    def reset(self) -> None:
        """The node was offline: nothing of the task is left but the round it was in."""
        self.busy = False
        self.trained = None
        self.awaited = None
        self.had_by = None
        self.queued = None
        self._base = self.view = None
        self.asked = self.tried = NONE
        self._attempts = 0

    @property
    def is_training(self) -> bool:
        return self.busy and self.trained is None

    def as_late(self) -> Late | None:
        """What is trained and not settled, if it may still count: not if two aggregators have had it."""
        if self.trained is None or self._attempts > 1 or not self._parameters.late_rounds:
            return None
        change = Change(self.trained.model, self._base)
        return Late(self.k_train, self.ordinal, self.trained.samples, change)

    def begin(self, request: TrainRequest) -> bool:
        """Train its model for its round, unless the node already did or is beyond. Says whether it began."""
        k = request.round
        if k <= self.k_train:
            return False
        if self.busy:
            self._node.report(TrainingInterrupted(self.k_train, self.ordinal))
            self.stop_waiting()
        self.reset()
        self.busy = True
        self.k_train = k
        self.next_round = k + min(max(1, request.step), MAX_STEP)
        self.view = request.view
        self._membership.lacking.keep(request.view)
        self.ordinal = request.ordinal
        self._base = request.model
        self.participants = request.participants
        self._node.outbox.append(Train(self.ordinal, request.model))
        self._node.report(TrainingStarted(k, self.ordinal))
        return True

    def on_trained(self, trained: Trained) -> bool:
        """Says whether it is the training the task is at, rather than one it left behind."""
        if not self.busy or self.trained is not None or trained.round != self.ordinal:
            return False
        self.trained = trained
        return True

    def send_to_best(self, sample: tuple[NodeId, ...]) -> None:
        """Choose the aggregator of the next round in its sample and send it the trained model."""
        assert self.trained is not None and self.view is not None
        fresh = [node for node in sample if node not in self.tried]
        if not fresh:  # all have failed once: start over with everybody
            self.tried = NONE
            fresh = list(sample)
        aggregator = self._trust.best(fresh)
        self.tried |= {aggregator}
        self.asked |= {aggregator}
        self._attempts += 1
        self.awaited = self.had_by = aggregator
        request = AggregateRequest(
            round=self.next_round,
            trained_in=self.k_train,
            ordinal=self.ordinal + 1,
            participants=self.participants,
            samples=self.trained.samples,
            view=self._membership.lacking.excerpt(self._membership.view.snapshot(), self.view.whole),
            model=self.trained.model,
        )
        self._node.send((aggregator,), request)
        self._node.set_timer(ACK, self._parameters.ack_timeout_s)
        self.look_after_awaited()
        chosen = AggregatorChosen(self.next_round, self.ordinal + 1, aggregator, self._attempts)
        self._node.report(chosen)

    def look_after_awaited(self) -> None:
        """In a while see whether the awaited aggregator is still there."""
        self._node.set_timer(LOOK, LOOKS_AFTER * self._parameters.ack_timeout_s)

    def on_ack(self, k: int) -> bool:
        """Round k is aggregated. Says whether that was what the task waited for."""
        if not self.busy or k != self.next_round:
            return False
        self.finish()
        return True

    def finish(self) -> None:
        """What was trained is settled, or somebody else's business."""
        self.stop_waiting()
        self.reset()

    def stop_waiting(self) -> None:
        """For an acknowledgement: it came, will not come, or is no longer needed."""
        if self.awaited is not None:
            self.awaited = None
            self._node.cancel_timer(ACK)
            self._node.cancel_timer(LOOK)
