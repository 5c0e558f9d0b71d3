"""The aggregation task: collect the models of a round, combine them, push the result (section III-C)."""

from __future__ import annotations

from collections import Counter

from plexus.protocol.api import Aggregate, Aggregated, Collect
from plexus.protocol.facts import AggregationCompleted, Refused
from plexus.protocol.machine import Machine
from plexus.protocol.messages import Ack, AggregateRequest, LateModel, Model, NodeId
from plexus.protocol.parameters import PlexusParameters

AGGREGATION = ("aggregation", 0)
MOST_LATE = 32
"""Changes that wait here for a round: each is as large as a model."""
LEAST = 2
"""Models in an aggregate of a larger sample, where one sender may lie."""
REMEMBERED = 16
"""Rounds of which an aggregator knows whose models it used."""


class AggregationTask:
    """What the node does as the aggregator a^k. At most one round at a time."""

    def __init__(self, node: Machine, parameters: PlexusParameters, k_agg: int) -> None:
        self._node = node
        self._parameters = parameters
        self.k_agg = k_agg
        self.collecting = False
        self.is_combining = False
        self._models: dict[NodeId, tuple[Model, int]] = {}
        self.ordinal = 0
        self._participants = 0
        self._claims: dict[NodeId, int] = {}
        """By sender: of how many participants it knows."""
        self._ordinals: dict[NodeId, int] = {}
        """By sender: how many rounds led here."""
        self._added = 0
        """Changes in the aggregate that is being made."""
        self._first_at = 0.0
        self._timed_out = False
        self._small = False
        self.is_lone = False
        """The last aggregate is one participant's model, though there were more of them."""
        self._late: dict[NodeId, LateModel] = {}
        """By sender, changes that wait for the next round that is aggregated here."""
        self._used: dict[int, frozenset[NodeId]] = {}
        """Whose models are in the newest aggregates, by round: a sender may ask twice."""
        self._answered: dict[tuple[NodeId, int, int], int] = {}
        """By sender, round it was trained in and round it was meant for: what was said of a change. One that
        comes twice must not be used after a no."""

    def reset(self, k_held: int) -> None:
        """The node was offline: the models collected are gone. `k_held` is the newest round it has.

        A round begun and not finished is forgotten with its models: to call its messages stale would
        acknowledge models that nobody aggregates.
        """
        self.k_agg = k_held
        self.collecting = self.is_combining = False
        self._models.clear()
        self._late.clear()

    def on_request(
        self, src: NodeId, request: AggregateRequest, is_small: bool = False, most: int | None = None
    ) -> bool:
        """Sort the message into fresh, ongoing or stale. Says whether it began a new round. In a sample that
        `is_small` everybody is waited for. Where members may lie there are at `most` so many participants."""
        k = request.round
        fresh = k > self.k_agg
        if fresh:
            self._begin(k, request.ordinal, is_small)
        if k == self.k_agg and self.collecting:
            self._collect(src, request, most)
        else:
            # Acknowledge even a stale model: otherwise its sender keeps looking for an aggregator.
            self._node.send((src,), Ack(k, int(src in self._used.get(k, ()))))
        return fresh

    def on_late(self, src: NodeId, late: LateModel, k_seen: int) -> None:
        """Keep the change for the next round that is aggregated here, unless that is not to be expected."""
        said = self._answered.get((src, late.trained_in, late.round))
        if said is not None:
            self._answer(src, late, said)
        elif src in self._late:
            if late.trained_in != self._late[src].trained_in:
                self._decline(src, late)
        elif len(self._late) >= MOST_LATE or self._is_too_old(late):
            self._decline(src, late)
        else:
            self._late[src] = late
            if self.collecting:
                self._node.outbox.append(Collect(self.k_agg, late.model, late.samples, is_change=True))
            self.release(k_seen)

    def release(self, k_seen: int) -> None:
        """Decline the changes for rounds that others have aggregated."""
        if not self.collecting:
            for src, late in [item for item in self._late.items() if item[1].round < k_seen]:
                del self._late[src]
                self._decline(src, late)

    def on_timeout(self, _: int) -> None:
        if self.collecting:
            self._timed_out = True
            self._complete()

    def on_aggregated(self, event: Aggregated) -> bool:
        """Says whether the result is of the round the task is in, rather than of one it left behind."""
        if not self.is_combining or event.round != self.k_agg:
            return False
        self.is_combining = False
        self._node.report(
            AggregationCompleted(
                round=event.round,
                ordinal=self.ordinal,
                model=event.model,
                models=len(self._models),
                late=self._added,
                participants=self._participants,
                timed_out=self._timed_out,
                waited_s=self._node.now - self._first_at,
            )
        )
        self.is_lone = len(self._models) + self._added == 1 < self._participants
        self._models.clear()
        return True

    def skip_to(self, k: int, is_said: bool = True) -> None:
        """The node starts round k by itself (watchdog): messages up to it are stale from now on. Unless that
        `is_said` to those who sent models, they look for another aggregator."""
        if not is_said:
            self._models.clear()
        self._abandon()
        self.k_agg = max(self.k_agg, k)

    def _begin(self, k: int, ordinal: int, is_small: bool) -> None:
        self._abandon()
        self.k_agg = k
        self.ordinal = ordinal
        self.collecting = True
        self._small = is_small
        for src, late in list(self._late.items()):
            if self._is_too_old(late):
                self._decline(src, self._late.pop(src))
            else:
                self._node.outbox.append(Collect(k, late.model, late.samples, is_change=True))
        self._claims.clear()
        self._ordinals.clear()
        self._timed_out = False
        self._first_at = self._node.now
        self._node.set_timer(AGGREGATION, self._parameters.aggregation_timeout_s)

    def _collect(self, src: NodeId, request: AggregateRequest, most: int | None) -> None:
        # By sender, so that a duplicated message or a second try does not count twice.
        if src not in self._models:
            self._models[src] = (request.model, request.samples)
            self._node.outbox.append(Collect(self.k_agg, request.model, request.samples))
        # Two rounds may come to the same number by different ways. Where members may lie, most must say so.
        self._ordinals[src] = request.ordinal
        said = sorted(self._ordinals.values())
        self.ordinal = said[-1] if most is None else said[(len(said) - 1) // 2]
        self._claims[src] = request.participants
        if most is not None and request.participants > self._parameters.sample_size:
            self._refuse(src, "more participants than a sample has")
        self._participants, least = self._derived(most)
        share = 1.0 if self._small else self._parameters.success_fraction
        if len(self._models) >= max(least, models_needed(share, self._participants)):
            self._node.cancel_timer(AGGREGATION)
            self._complete()

    def _derived(self, most: int | None) -> tuple[int, int]:
        """How many participants there are, and of how many at least a model is needed.

        Where members may lie, what most of the senders say counts, and one sender is not enough. Nor is it
        of two, there and where late models count: the faster would go on alone, and learn from nobody else.
        """
        claims = sorted(self._claims.values())
        participants = claims[-1] if most is None else max(1, min(claims[len(claims) // 2], most))
        of_two = participants > 1 and (self._parameters.late_rounds > 0 or most is not None)
        needs_two = (most is not None and most > LEAST) or of_two
        return participants, LEAST if needs_two else 1

    def _doubt_claims(self) -> None:
        """All participants of a round were told the same number of them."""
        said, times = Counter(self._claims.values()).most_common(1)[0]
        for src, claim in self._claims.items():
            if times > 1 and claim != said:
                self._refuse(src, "others of its sample say otherwise")

    def _refuse(self, src: NodeId, why: str) -> None:
        self._node.report(Refused(src, f"{self._claims[src]} participants", why))

    def _complete(self) -> None:
        self.collecting, self.is_combining = False, True
        if self._parameters.signed_views:
            self._doubt_claims()
        self._acknowledge(used=1)
        models, samples = zip(*self._models.values(), strict=True)
        changes = tuple(late.model for late in self._late.values())
        change_samples = tuple(late.samples for late in self._late.values())
        self._added = len(changes)
        self._late.clear()
        self._node.outbox.append(Aggregate(self.k_agg, models, samples, changes, change_samples))

    def _abandon(self) -> None:
        """The network has gone ahead: release those who wait for this round."""
        self.is_combining = False
        if self.collecting:
            self.collecting = False
            self._node.cancel_timer(AGGREGATION)
            self._acknowledge(used=0)
            self._late.clear()
        self._models.clear()

    def _acknowledge(self, used: int) -> None:
        self._node.send(tuple(self._models), Ack(self.k_agg, used))
        if used:
            if len(self._used) >= REMEMBERED:
                del self._used[next(iter(self._used))]
            self._used[self.k_agg] = frozenset(self._models)
        for src, late in self._late.items():
            self._answer(src, late, used)

    def _is_too_old(self, late: LateModel) -> bool:
        """For the round that is collected, or the last one."""
        most = self._parameters.late_rounds
        return not most or self.ordinal - 1 - late.ordinal > most

    def _decline(self, src: NodeId, late: LateModel) -> None:
        self._answer(src, late, used=0)

    def _answer(self, src: NodeId, late: LateModel, used: int) -> None:
        if len(self._answered) >= REMEMBERED * MOST_LATE:
            del self._answered[next(iter(self._answered))]
        self._answered[src, late.trained_in, late.round] = used
        self._node.send((src,), Ack(late.trained_in, used, late.round))


def models_needed(success_fraction: float, participants: int) -> int:
    """How many of a sample's models complete an aggregation: ⌊sf · |S|⌋, but never fewer than one. The small
    term undoes rounding: 0.29 · 100 is 28.999…"""
    return max(1, int(success_fraction * participants + 1e-9))
