"""The training task: train for round k, then find the aggregator of round k + 1 (section III-C)."""

from __future__ import annotations

from plexus.protocol.api import Train, Trained
from plexus.protocol.facts import AggregatorChosen, TrainingInterrupted, TrainingStarted
from plexus.protocol.machine import Machine
from plexus.protocol.membership import Membership
from plexus.protocol.messages import AggregateRequest, Model, NodeId
from plexus.protocol.parameters import PlexusParameters

ACK = ("ack", 0)


class TrainingTask:
    """What the node does as a participant of sample S^k. At most one round at a time."""

    def __init__(
        self, node: Machine, parameters: PlexusParameters, membership: Membership, k_train: int
    ) -> None:
        self._node = node
        self._parameters = parameters
        self._membership = membership
        self.k_train = k_train
        self.busy = False
        """From the request to train until the acknowledgement by an aggregator."""
        self.trained: Trained | None = None
        self.awaited: NodeId | None = None
        """The aggregator whose acknowledgement is awaited."""
        self._participants = 0
        self._tried: set[NodeId] = set()
        self._attempts = 0

    def reset(self) -> None:
        """The node was offline: nothing of the task is left but the round it was in."""
        self.busy = False
        self.trained = None
        self.awaited = None
        self._tried.clear()
        self._attempts = 0

    def begin(self, k: int, model: Model, participants: int) -> bool:
        """Train `model` for round k, unless the node already did or is beyond. Says whether it began."""
        if k <= self.k_train:
            return False
        if self.busy:
            self._node.report(TrainingInterrupted(self.k_train))
            self.stop_waiting()
        self.reset()
        self.busy = True
        self.k_train = k
        self._participants = participants
        self._node.outbox.append(Train(k, model))
        self._node.report(TrainingStarted(k))
        return True

    def on_trained(self, trained: Trained) -> bool:
        """Says whether it is the training the task is at, rather than one it left behind."""
        if not self.busy or self.trained is not None or trained.round != self.k_train:
            return False
        self.trained = trained
        return True

    def send_to_best(self, sample: tuple[NodeId, ...]) -> None:
        """Choose the aggregator of round k + 1 in its sample and send it the trained model."""
        assert self.trained is not None
        fresh = [node for node in sample if node not in self._tried]
        if not fresh:  # all have failed once: start over with everybody
            self._tried.clear()
            fresh = list(sample)
        # Most bandwidth according to B_i; the first in hash order among equals (Algorithm 2).
        aggregator = max(fresh, key=self._membership.view.bandwidth_of)
        self._tried.add(aggregator)
        self._attempts += 1
        self.awaited = aggregator
        request = AggregateRequest(
            round=self.k_train + 1,
            participants=self._participants,
            samples=self.trained.samples,
            view=self._membership.view.snapshot(),
            model=self.trained.model,
        )
        self._node.send((aggregator,), request)
        self._node.set_timer(ACK, self._parameters.ack_timeout_s)
        self._node.report(AggregatorChosen(self.k_train + 1, aggregator, self._attempts))

    def on_ack(self, k: int) -> bool:
        """Round k is aggregated. Says whether that was what the task waited for."""
        if not self.busy or k != self.k_train + 1:
            return False
        self.stop_waiting()
        self.reset()
        return True

    def stop_waiting(self) -> None:
        """For an acknowledgement: it came, will not come, or is no longer needed."""
        if self.awaited is not None:
            self.awaited = None
            self._node.cancel_timer(ACK)
