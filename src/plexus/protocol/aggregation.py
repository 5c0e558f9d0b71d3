"""The aggregation task: collect the models of a round, combine them, push the result (section III-C)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from plexus.protocol.api import Aggregate, Aggregated, Collect
from plexus.protocol.facts import AggregationCompleted, Refused
from plexus.protocol.machine import Machine
from plexus.protocol.messages import Ack, AggregateRequest, LateModel, Model, NodeId
from plexus.protocol.parameters import PlexusParameters
from plexus.protocol.quorum import PAUSE

AGGREGATION = ("aggregation", 0)
LONE = ("lone", 0)
SMALL = 3
"""Of so few nodes nobody is left behind, where late models count."""
MOST_LATE = 32
"""Changes that wait here for a round: each is as large as a model."""
LEAST = 2
"""Models in an aggregate of a larger sample, where one sender may lie; nor does one begin a round."""
MOST_LONE = 8
"""Models that wait for a second one of their round."""
REMEMBERED = 16
"""Rounds of which an aggregator knows whose models it used."""


class AggregationTask:
    """What the node does as the aggregator a^k. At most one round at a time."""

    def __init__(
        self, node: Machine, parameters: PlexusParameters, k_agg: int, online_count: Callable[[], int]
    ) -> None:
        self._node = node
        self._online_count = online_count
        self._parameters = parameters
        self._is_wary = parameters.signed_views
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
        self._lone: dict[NodeId, tuple[float, AggregateRequest]] = {}
        """By sender, since when its model waits for a second one of its round."""
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
        self._lone.clear()
        self._late.clear()

    def on_request(self, src: NodeId, request: AggregateRequest) -> bool:
        """Sort the message into fresh, ongoing or stale. Says whether it began a new round: where members may
        lie one of several begins none, since that might end a round that others are at."""
        k = request.round
        fresh = k > self.k_agg
        if fresh and self._is_wary:
            self._put_aside(src, request)
            if self._most > LEAST > sum(each.round == k for _, each in self._lone.values()):
                return False
            self._take_up(k, request.ordinal)
            return True
        if fresh:
            self._begin(k, request.ordinal, self._node.now)
        if k == self.k_agg and self.collecting:
            self._collect(src, request)
        else:
            # Acknowledge even a stale model: otherwise its sender keeps looking for an aggregator.
            self._node.send((src,), Ack(k, int(src in self._used.get(k, ()))))
        return fresh

    def on_lone(self, k_held: int) -> bool:
        """No second model has come for so long as models are waited for. Says whether a round begins all the
        same: with one that is no older than `k_held`, the newest round that others have made."""
        for src, (since, request) in list(self._lone.items()):
            if request.trained_in < k_held:
                self._send_back(src)
            elif self._due_at(since) <= self._node.now:
                self._take_up(request.round, request.ordinal)
                return True
        self._look_again()
        return False

    def wait(self) -> None:
        """There is a round to be finished first."""
        self._node.set_timer(LONE, PAUSE * self._parameters.ack_timeout_s)

    def _put_aside(self, src: NodeId, request: AggregateRequest) -> None:
        known = self._lone.get(src)
        if known is not None and known[1].round != request.round:
            self._send_back(src)
        elif known is None and len(self._lone) >= MOST_LONE:
            self._send_back(next(iter(self._lone)))
        if src not in self._lone:
            self._lone[src] = self._node.now, request
            self._look_again()

    def _look_again(self) -> None:
        if self._lone:
            first = min(since for since, _ in self._lone.values())
            self._node.set_timer(LONE, max(0.0, self._due_at(first) - self._node.now))

    def _due_at(self, since: float) -> float:
        """When what has been waiting `since` then is made something of, with or without others."""
        return since + self._parameters.aggregation_timeout_s

    def _take_up(self, k: int, ordinal: int) -> None:
        """Begin round k with the models of it that were put aside."""
        waiting = {src: each for src, each in self._lone.items() if each[1].round == k}
        self._begin(k, ordinal, min(since for since, _ in waiting.values()))
        for src, (_, request) in waiting.items():
            del self._lone[src]
            self._collect(src, request)
        for src in [src for src, (_, each) in self._lone.items() if each.round < k]:
            self._send_back(src)
        if self._lone:
            self._look_again()
        else:
            self._node.cancel_timer(LONE)

    def _send_back(self, src: NodeId) -> None:
        _, request = self._lone.pop(src)
        self._node.send((src,), Ack(request.round, used=0))

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
            self._lone.clear()
        for src in list(self._lone):
            self._send_back(src)
        self._abandon()
        self.k_agg = max(self.k_agg, k)

    def _begin(self, k: int, ordinal: int, since: float) -> None:
        """The first model of it has been here `since` then."""
        self._abandon()
        self.k_agg = k
        self.ordinal = ordinal
        self.collecting = True
        self._small = self._parameters.late_rounds > 0 and self._most <= SMALL
        for src, late in list(self._late.items()):
            if self._is_too_old(late):
                self._decline(src, self._late.pop(src))
            else:
                self._node.outbox.append(Collect(k, late.model, late.samples, is_change=True))
        self._claims.clear()
        self._ordinals.clear()
        self._timed_out = False
        self._first_at = since
        self._node.set_timer(AGGREGATION, max(0.0, self._due_at(since) - self._node.now))

    @property
    def _most(self) -> int:
        """Participants that a round can have, as the node itself knows."""
        return min(self._parameters.sample_size, self._online_count())

    def _collect(self, src: NodeId, request: AggregateRequest) -> None:
        # By sender, so that a duplicated message or a second try does not count twice.
        if src not in self._models:
            self._models[src] = (request.model, request.samples)
            self._node.outbox.append(Collect(self.k_agg, request.model, request.samples))
        # Two rounds may come to the same number by different ways. Where members may lie, most must say so.
        self._ordinals[src] = request.ordinal
        said = sorted(self._ordinals.values())
        self.ordinal = said[(len(said) - 1) // 2] if self._is_wary else said[-1]
        self._claims[src] = request.participants
        if self._is_wary and request.participants > self._parameters.sample_size:
            self._refuse(src, "more participants than a sample has")
        self._participants, least = self._derived()
        share = 1.0 if self._small else self._parameters.success_fraction
        if len(self._models) >= max(least, models_needed(share, self._participants)):
            self._node.cancel_timer(AGGREGATION)
            self._complete()

    def _derived(self) -> tuple[int, int]:
        """How many participants there are, and of how many at least a model is needed.

        Where members may lie, what most of the senders say counts, and one sender is not enough. Nor is it
        of two, there and where late models count: the faster would go on alone, and learn from nobody else.
        """
        claims = sorted(self._claims.values())
        participants = claims[-1]
        if self._is_wary:
            participants = max(1, min(claims[len(claims) // 2], self._most))
        of_two = participants > 1 and (self._parameters.late_rounds > 0 or self._is_wary)
        needs_two = of_two or (self._is_wary and self._most > LEAST)
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
        if self._is_wary:
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
