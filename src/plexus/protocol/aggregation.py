"""The aggregation task: collect the models of a round, combine them, push the result (section III-C)."""

from __future__ import annotations

from plexus.protocol.api import Aggregate, Aggregated, Collect
from plexus.protocol.facts import AggregationCompleted
from plexus.protocol.machine import Machine
from plexus.protocol.messages import Ack, AggregateRequest, Model, NodeId
from plexus.protocol.parameters import PlexusParameters

AGGREGATION = ("aggregation", 0)


class AggregationTask:
    """What the node does as the aggregator a^k. At most one round at a time."""

    def __init__(self, node: Machine, parameters: PlexusParameters, k_agg: int) -> None:
        self._node = node
        self._parameters = parameters
        self.k_agg = k_agg
        self.collecting = False
        self._combining = False
        self._models: dict[NodeId, tuple[Model, int]] = {}
        self._participants = 0
        self._first_at = 0.0
        self._timed_out = False

    def reset(self, k_held: int) -> None:
        """The node was offline: the models collected are gone. `k_held` is the newest round it has.

        A round begun and not finished is forgotten with its models: to call its messages stale would
        acknowledge models that nobody aggregates.
        """
        self.k_agg = k_held
        self.collecting = self._combining = False
        self._models.clear()

    def on_request(self, src: NodeId, request: AggregateRequest) -> bool:
        """Sort the message into fresh, ongoing or stale. Says whether it began a new round."""
        k = request.round
        fresh = k > self.k_agg
        if fresh:
            self._begin(k)
        if k == self.k_agg and self.collecting:
            self._collect(src, request)
        else:
            # Acknowledge even a stale model: otherwise its sender keeps looking for an aggregator.
            self._node.send((src,), Ack(k))
        return fresh

    def on_timeout(self, _: int) -> None:
        if self.collecting:
            self._timed_out = True
            self._complete()

    def on_aggregated(self, event: Aggregated) -> bool:
        """Says whether the result is of the round the task is in, rather than of one it left behind."""
        if not self._combining or event.round != self.k_agg:
            return False
        self._combining = False
        self._node.report(
            AggregationCompleted(
                round=event.round,
                model=event.model,
                models=len(self._models),
                participants=self._participants,
                timed_out=self._timed_out,
                waited_s=self._node.now - self._first_at,
            )
        )
        self._models.clear()
        return True

    def skip_to(self, k: int) -> None:
        """The node starts round k by itself (watchdog): messages up to it are stale from now on."""
        self._abandon()
        self.k_agg = max(self.k_agg, k)

    def _begin(self, k: int) -> None:
        self._abandon()
        self.k_agg = k
        self.collecting = True
        self._participants = 0
        self._timed_out = False
        self._first_at = self._node.now
        self._node.set_timer(AGGREGATION, self._parameters.aggregation_timeout_s)

    def _collect(self, src: NodeId, request: AggregateRequest) -> None:
        # By sender, so that a duplicated message or a second try does not count twice.
        if src not in self._models:
            self._models[src] = (request.model, request.samples)
            self._node.outbox.append(Collect(self.k_agg, request.model, request.samples))
        self._participants = max(self._participants, request.participants)
        if len(self._models) >= models_needed(self._parameters.success_fraction, self._participants):
            self._node.cancel_timer(AGGREGATION)
            self._complete()

    def _complete(self) -> None:
        self.collecting, self._combining = False, True
        self._acknowledge()
        models, samples = zip(*self._models.values(), strict=True)
        self._node.outbox.append(Aggregate(self.k_agg, models, samples))

    def _abandon(self) -> None:
        """The network has gone ahead: release those who wait for this round."""
        self._combining = False
        if self.collecting:
            self.collecting = False
            self._node.cancel_timer(AGGREGATION)
            self._acknowledge()
        self._models.clear()

    def _acknowledge(self) -> None:
        self._node.send(tuple(self._models), Ack(self.k_agg))


def models_needed(success_fraction: float, participants: int) -> int:
    """How many of a sample's models complete an aggregation: ⌊sf · |S|⌋, but never fewer than one. The small
    term undoes rounding: 0.29 · 100 is 28.999…"""
    return max(1, int(success_fraction * participants + 1e-9))
