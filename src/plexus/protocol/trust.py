"""Whom a node believes, where members may lie (not in the paper, whose members are honest).

With `signed_views` off a node believes everybody. With it on, no single message decides anything:

- rounds move in steps: a number far ahead of what the node knows counts once other members say the same, and
  no round is progress of which one member alone speaks;
- the hash decides who may say what: who asks to train is in the sample of that round, who sends a model was
  in the sample it trained for, and the receiver is in the sample of the round that it is to aggregate. Views
  differ, so there is room for a second sample's worth of nodes; and after a pause anybody may start again;
- who had a model and made nothing of it is chosen last for some time; who sends what cannot be used is asked
  last to train, not at all to aggregate, and what it says of newer rounds does not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain

from plexus.protocol.facts import Refused
from plexus.protocol.machine import Machine
from plexus.protocol.messages import AggregateRequest, NodeId, TrainRequest
from plexus.protocol.parameters import PlexusParameters
from plexus.protocol.quorum import step
from plexus.protocol.roster import Roster
from plexus.protocol.view import Lazy, View
from plexus.protocol.watchdog import Watchdog

REACH = 4
"""Rounds that may have passed without a sign: as many ahead are believed of anybody."""
WITNESSES = 2
"""Members that must say the same of a round beyond that; all, where there are fewer."""
LIARS, MOST_WITNESSES = 10, 5
"""More than every tenth that is known must say it, but not more than so many."""
MOST_CLAIMS = 64
ANSWER_TIMEOUTS = 3
"""In `ping_timeout_s`: by then others have said how far they are."""
LEAST_SAMPLE = 2
"""Of samples of one, nobody but a single node could start a round again."""
ROOM = 2
"""In samples: who is so far ahead in the hash order of a round may be in its sample."""
PAUSE = 1 / 2
"""As a share of `watchdog_s`: after so long without progress somebody may start a round again."""
FORGIVEN = 50
"""In `ack_timeout_s`: for so long an aggregator that failed is chosen last, and twice as long each time."""
MOST_TIMES = 8
OVERTAKEN = 3
"""So often in a row others may have made a round of which an aggregator had a model, before it has failed."""
LOST = 2**20
"""Rounds: nobody honest is so far ahead of all others."""

TO_TRAIN, A_MODEL, TO_AGGREGATE = "a request to train", "a trained model", "to aggregate"


class Trust:
    """What others said of rounds, and what came of those who were relied on."""

    __slots__ = (
        "_ask_about", "_behind", "_certain", "_claims", "_failed", "_misbehaved", "_node", "_overtaken",
        "_parameters", "_rank", "_roster", "_told", "_view", "_watchdog", "ends", "is_wary",
    )  # fmt: skip

    def __init__(
        self,
        node: Machine,
        parameters: PlexusParameters,
        roster: Roster,
        view: View,
        watchdog: Watchdog,
        ask_about: Callable[[int], None],
        rank: Callable[[NodeId], float],
    ) -> None:
        """`ask_about(k)` asks several others how far they are; `rank` says who is to aggregate."""
        self._node = node
        self._parameters = parameters
        self._roster = roster
        self._view = view
        self._watchdog = watchdog
        self._ask_about = ask_about
        self._rank = rank
        self.is_wary = parameters.signed_views
        self._claims: dict[NodeId, tuple[int, float]] = {}
        """By member: the far round it spoke of, and when it did so first."""
        self.ends: dict[NodeId, int] = {}
        """By member that has measured the end, as it says: its number. On that round nobody works."""
        self._behind: dict[NodeId, int] = {}
        """By member that speaks of rounds long past, as it seems: which."""
        self._failed: dict[NodeId, tuple[float, int]] = {}
        """Aggregators that made nothing of a model: until when they are chosen last, and how often."""
        self._overtaken: Counter[NodeId] = Counter()
        """Aggregators that others were faster than, since they last succeeded."""
        self._misbehaved: dict[NodeId, tuple[float, int]] = {}
        """The same of those who sent what cannot be used."""
        self._certain = 0
        """The newest round of which not one member alone has spoken."""
        self._told: dict[NodeId, int] = {}
        """By member: of which round after that it has spoken."""

    def reset(self) -> None:
        """The node was offline: what was said meanwhile, it did not hear."""
        self._claims.clear()
        self._behind.clear()
        self._told.clear()

    # Rounds move in steps

    @property
    def reach(self) -> int:
        """How far ahead of the newest round known a number may be."""
        return REACH * self._watchdog.stride

    def believes(self, src: NodeId, k: int) -> bool:
        """Whether there is a round k, as `src` says."""
        if not self.is_wary or src == self._node.me:
            return True
        if k > self._watchdog.k_seen and self.has_misbehaved(src):
            return False
        reach = self.reach
        if k <= self._watchdog.k_seen + reach:
            if self._claims and k > self._watchdog.k_seen:
                self._look_through_claims(k)
            return True
        if src not in self._claims:
            if len(self._claims) >= MOST_CLAIMS:
                del self._claims[next(iter(self._claims))]
            self._ask_about(k)
        self._claims[src] = k, self._claims.get(src, (0, self._node.now))[1]
        said = sum(far >= k - reach for far, _ in self._claims.values())
        return said >= self.witnesses

    @property
    def witnesses(self) -> int:
        """How many must say the same."""
        known = self._view.snapshot().known
        several = min(1 - -known // LIARS, MOST_WITNESSES)
        return min(max(WITNESSES, several), self._others)

    @property
    def several(self) -> int:
        """Enough that one liar alone decides nothing."""
        return min(WITNESSES, self._others)

    @property
    def _others(self) -> int:
        """How many there are who could say the same. Who seems to be gone may be kept from this node, and is
        waited for; but not for ever."""
        known = self._view.online_count() if self._is_after_a_pause else self._view.snapshot().known
        return max(1, known - 1)

    def is_progress(self, src: NodeId, k: int, own: int) -> bool:
        """Whether somebody works on a round after all that are known, as `src` says of round k. Where members
        may lie, a second one must say so of a round that it has to do with itself: others repeat what they
        hear."""
        if not self.is_wary or src == self._node.me:
            self._certain = max(self._certain, k)
            return k > self._watchdog.k_seen
        if own <= self._certain:
            return False
        self._told[src] = own
        if len(self._told) < self.several:
            return False
        self._certain = min(self._told.values())
        self._told = {node: k for node, k in self._told.items() if k > self._certain}
        return True

    def _look_through_claims(self, k: int) -> None:
        """The session is at round k: who spoke of one far beyond it is refused, unless others who were asked
        have said the same."""
        asked_by = self._node.now - ANSWER_TIMEOUTS * self._parameters.ping_timeout_s
        for claimant, (far, at) in list(self._claims.items()):
            if far <= k + self.reach:
                del self._claims[claimant]
            elif at < asked_by:
                del self._claims[claimant]
                self.refuse(claimant, f"round {far}", "nobody else knows of it")

    def way_back(self, src: NodeId, k: int) -> int | None:
        """`src` knows of no round after k. If that is so of several, and this node is beyond all of them by
        more than can be, it was misled: then this is where the others are."""
        if not self.is_wary:
            return None
        if not self.is_lost(self._watchdog.k_seen, k):
            self._behind.clear()
            return None
        if len(self._behind) < MOST_CLAIMS:
            self._behind[src] = k
        at = [far for far in self._behind.values() if self.is_lost(self._watchdog.k_seen, far)]
        if len(at) < self.witnesses:
            return None
        self._behind.clear()
        self._told.clear()
        self._certain = min(self._certain, max(at))
        return max(at)

    def is_lost(self, k: int, others_are_at: int) -> bool:
        """Whether there can be no round k, if the others are there."""
        return k > others_are_at + LOST * self._watchdog.stride

    # The hash decides who may say what

    def may_ask_to_train(self, src: NodeId, request: TrainRequest) -> bool:
        if not self._may_be_in_sample(src, request.round):
            self.refuse(src, TO_TRAIN, "it is not in the sample of the round")
        elif not self._may_be_in_sample(self._node.me, request.round):
            self.refuse(src, TO_TRAIN, "this node is not in the sample of the round")
        elif self.is_wary and request.step > REACH * step(self._view.online_count()):
            self.refuse(src, TO_TRAIN, "the round after it is too far ahead")
            if request.step > LOST * step(self._view.online_count()):
                self.misbehaved(src)  # no view that differs says that
        elif self._counts_too_many(request):
            self.refuse(src, TO_TRAIN, "there were not so many rounds")
        else:
            return True
        return False

    def may_send_model(self, src: NodeId, request: AggregateRequest) -> bool:
        if self.is_wary and not 0 < request.round - request.trained_in <= self.reach:
            self.refuse(src, A_MODEL, "its rounds do not follow each other")
        elif not self._may_be_in_sample(src, request.trained_in):
            self.refuse(src, A_MODEL, "it was not in the sample that trained")
        elif not self._may_be_in_sample(self._node.me, request.round):
            self.refuse(src, A_MODEL, "this node is not in the sample of the round")
        elif self._counts_too_many(request):
            self.refuse(src, A_MODEL, "there were not so many rounds")
        else:
            return True
        return False

    def _counts_too_many(self, request: TrainRequest | AggregateRequest) -> bool:
        """Each round adds one to the ordinal, and at least one to the number."""
        return self.is_wary and request.ordinal > request.round

    def _may_be_in_sample(self, node: NodeId, k: int) -> bool:
        room = ROOM * max(self._parameters.sample_size, LEAST_SAMPLE)
        if not self.is_wary or self._view.online_count() <= room or self._is_after_a_pause:
            return True
        return node in self._roster.in_order(self._view, k)[:room]

    @property
    def _is_after_a_pause(self) -> bool:
        return self._watchdog.pause_s >= PAUSE * self._parameters.watchdog_s

    def refuse(self, src: NodeId, what: str, why: str) -> None:
        self._node.report(Refused(src, what, why))

    # Who is relied on

    def failed(self, aggregator: NodeId) -> None:
        """It was there, and made nothing of a model."""
        if not self.is_wary:
            return
        self._remember(aggregator, self._failed)
        if aggregator != self._node.me:  # to which others send nothing, whatever the reason
            self.refuse(aggregator, TO_AGGREGATE, "it made nothing of the models it was sent")

    def overtaken(self, aggregator: NodeId) -> None:
        """It had a model, and somebody else made the round. That may be due to views that differ."""
        self._overtaken[aggregator] += 1
        if self._overtaken[aggregator] >= OVERTAKEN:
            del self._overtaken[aggregator]
            self.failed(aggregator)

    def misbehaved(self, node: NodeId) -> None:
        if self.is_wary and not self.has_misbehaved(node):
            self._remember(node, self._misbehaved)

    def has_misbehaved(self, node: NodeId) -> bool:
        """Lately."""
        return node in self._still(self._misbehaved)

    def _remember(self, node: NodeId, those: dict[NodeId, tuple[float, int]]) -> None:
        _, times = those.get(node, (0.0, 0))
        last_s = FORGIVEN * 2**times * self._parameters.ack_timeout_s
        those[node] = self._node.now + last_s, min(times + 1, MOST_TIMES)

    def _still(self, those: dict[NodeId, tuple[float, int]]) -> set[NodeId]:
        return {node for node, (until_s, _) in those.items() if until_s > self._node.now}

    def order(self, candidates: Sequence[NodeId]) -> Sequence[NodeId]:
        """Those who misbehaved last."""
        last = self._still(self._misbehaved)
        return sorted(candidates, key=last.__contains__) if last else candidates

    def aggregators(
        self, candidates: Sequence[NodeId], size: int, tried: frozenset[NodeId]
    ) -> tuple[Sequence[NodeId], int]:
        """Among whom to look for an aggregator, and how many of them: those who misbehaved are left out, if
        there are others, and in their place nobody comes, whom other participants would not choose."""
        if self.is_wary and tried.issuperset(candidates[:size]):
            # Nobody of the sample made anything of the model: those after them may.
            candidates = Lazy(iter((candidates[size:], candidates[:size])))
        sample, last = candidates[:size], self._still(self._misbehaved)
        trusted = [node for node in sample if node not in last] if last else sample
        if 0 < len(trusted) < len(sample):
            return Lazy(chain([trusted], ([node] for node in candidates[size:]))), len(trusted)
        return candidates, len(sample) or size

    def succeeded(self, aggregator: NodeId) -> None:
        self._failed.pop(aggregator, None)
        self._overtaken.pop(aggregator, None)

    def best(self, nodes: Sequence[NodeId]) -> NodeId:
        """The highest rank; the first in hash order among equals (Algorithm 2)."""
        failed = self._still(self._failed)
        if failed:
            nodes = [n for n in nodes if n not in failed] or nodes
        return max(nodes, key=self._rank)
