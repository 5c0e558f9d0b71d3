"""The course of a session: when it begins, and how it ends (not in the paper, whose sessions have no end).

Nobody begins the first round before `start_with` nodes are there. The last aggregator, or who measured a
model that is good enough, ends the session: it tells everybody of the final round. Who hears of it lays down
its work and gets the model from the node above it in a tree that the hash of the round spans: so nobody sends
more than a few, and who is silent is passed over. Of two ends the one with the larger round prevails, and no
two are equal. A node that has ended answers everybody with the end, and tells those who have not got its
model again: whoever was cut off hears of it as soon as it can, and before it ends the session by itself.
Where members may lie, an end that only measuring shows is believed when several say so; until then the first
few measure the model themselves, and who convinces nobody takes the end back.
"""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from plexus.protocol.api import Measured, StopSending
from plexus.protocol.facts import EndClaimed, EndRevoked, FinalHeld, SessionEnded
from plexus.protocol.machine import Handler, to
from plexus.protocol.messages import Ended, FinalModel, FinalRequest, Message, Model, NodeId, Score
from plexus.protocol.parameters import Course, condition
from plexus.protocol.quorum import step
from plexus.protocol.scores import Scores, rounded
from plexus.protocol.trust import REACH
from plexus.protocol.view import NONE

if TYPE_CHECKING:
    from plexus.protocol.plexus import PlexusNode

FINAL = ("final", 0)
AGAIN = 1 / 10
"""As a share of `ack_timeout_s`: how often those are told of the end who have not got the model, and how long
one of them waits for somebody who has not got it either."""
ABOUT_THE_END: dict[type[Message], Handler] = {
    Ended: to("ending.on_ended"),
    FinalRequest: to("ending.on_request"),
    FinalModel: to("ending.on_model"),
    Score: to("ending.on_score"),
}


class Ending:
    """What a node knows of the end, and does about it."""

    __slots__ = (
        "_answered", "_asked", "_askers", "_checked", "_claims", "_condition", "_course", "_excused",
        "_has_declared", "_having", "_heard_at", "_left", "_missed", "_node", "_rng", "_root", "_scores",
        "_tries", "asks", "ordinal", "round",
    )  # fmt: skip

    def __init__(self, node: PlexusNode, course: Course, ended: int, rng: Random) -> None:
        """`ended` is the round that the session ended with, if the node knew that before."""
        self._node = node
        self._course = course
        self._rng = rng
        self._condition = condition(course.until) if course.until is not None else None
        self.round, self.ordinal = ended, node.held_ordinal
        """Of the final model; the round is 0 as long as there is none."""
        self._scores = Scores(node.trust)
        self._root: NodeId = node.me
        """Who told of the end."""
        self._has_declared = False
        """Since it came: what it knew before is beyond doubt."""
        self._tries = 0
        self._heard_at = 0.0
        self._missed = 0
        """The final round whose model nobody had any more."""
        self._askers: frozenset[NodeId] = NONE
        """Who wants the model that is still on its way."""
        self._having: frozenset[NodeId] = NONE
        """Who said that it has the model."""
        self._answered: frozenset[NodeId] = NONE
        """Who said so twice, and was told that this node has it, too."""
        self._asked: dict[NodeId, float] = {}
        """Whose model it takes, and when they were asked; the last one last."""
        self.asks = 0
        """How often others have asked for the model."""
        self._claims: dict[NodeId, tuple[int, float]] = {}
        """Who says that the session has ended, with which round, and when it said so last."""
        self._checked: dict[NodeId, tuple[int, float]] = {}
        """Whose end this node looked into last: its round until that is judged, and since when."""
        self._left: tuple[NodeId, int] = node.me, 0
        """Who had this node's work and ended the session alone; the newest round known then."""
        self._excused: set[NodeId] = set()
        """Who may have made nothing of a model because it was the end."""

    @property
    def is_over(self) -> bool:
        return self.round > 0

    @property
    def has_model(self) -> bool:
        return self.is_over and self._node.held_round == self.round

    @property
    def is_known_to_all(self) -> bool:
        """All have the model who are awaited."""
        return self.has_model and self._awaited <= self._having | {self._node.me}

    @property
    def _awaited(self) -> set[NodeId]:
        """Who is there, as it seems, or went without a goodbye: killed, or cut off, and soon back."""
        view = self._node.view
        return {*view.actives(), *np.flatnonzero(view.suspected()).tolist()}

    # Coming to the end

    def is_last(self, ordinal: int) -> bool:
        return self._course.rounds is not None and ordinal >= self._course.rounds

    def on_measured(self, measured: Measured) -> None:
        """Is that good enough, or has it been so for long?"""
        if not self._course.is_measured:
            return
        score = rounded(measured.score)
        is_good = self._condition is not None and self._condition.holds(measured.metrics)
        best, since = self._scores.best
        patience = self._course.patience or math.inf
        is_end = is_good or (score <= best and measured.ordinal - since >= patience)
        claimed_by = [src for src, (k, _) in self._checked.items() if k == measured.round]
        if claimed_by:
            self._judge(claimed_by[0], measured, is_end)
        elif is_end and not self.is_over:
            self.declare(measured.round, measured.ordinal, measured.model)
        elif not self.is_over and (told := self._scores.measured(score, measured.ordinal)):
            self._node.send(self._others, told)

    def on_score(self, src: NodeId, told: Score) -> None:
        """Somebody else measured a model."""
        self._scores.on_score(src, told, self._node.held_ordinal)

    def declare(self, k: int, ordinal: int, model: Model) -> None:
        """The session ends here, with this model. The end is numbered like a round after the last, a little
        less by the node's place in its order: so the end of the side with more nodes prevails, and of two who
        aggregated the same round one."""
        view = self._node.view
        order = [*self._node.roster.candidates(view, k), self._node.me]  # last, if it is doubted itself
        number = k + step(view.online_count()) - 1 - order.index(self._node.me)
        self._node.keep_final(number, ordinal, model)
        self._adopt(number, ordinal, self._node.me)

    # Hearing of it

    def on_ended(self, src: NodeId, ended: Ended) -> None:
        before = self._claims.get(src, (0, -math.inf))
        if not self.is_over and 0 < ended.round == self._missed and self._node.trust.is_wary:
            # Its model was sought in vain once: work is not laid down for it again before the model is here.
            if ended.held:
                self._node.send((src,), FinalRequest(ended.round))
            return
        if not self._is_believable(src, ended):
            if self._course.is_measured and self._claims.get(src, before) != before and ended.held:
                is_known = before[0] == ended.round
                self._look_into(src, ended, is_known)
                self._go_on_without(src, is_known)
            return
        if ended.round > self.round:
            self._adopt(ended.round, ended.ordinal, src)
        elif ended.round < self.round:
            self.tell((src,))
        if ended.held and ended.round == self.round:
            if self.has_model and src in self._having - self._answered:
                self._answered |= {src}
                self.tell((src,))
            self._having |= {src}

    def come_back(self) -> None:
        """The node is online again, and knew of the end."""
        self._node.lay_down()
        self._having = self._answered = NONE  # who has the model turns out anew
        self._askers, self._has_declared = NONE, False
        if not self.has_model:
            self._root, self._tries, self._heard_at = self._node.me, 0, self._node.now
            self._node.set_timer(FINAL, self._node.parameters.ping_timeout_s)

    def tell(self, nodes: tuple[NodeId, ...]) -> None:
        self._node.send(nodes, Ended(self.round, self.ordinal, int(self.has_model)))

    def _is_believable(self, src: NodeId, ended: Ended) -> bool:
        trust, course = self._node.trust, self._course
        if not trust.is_wary or ended.round <= self.round:
            return True
        if not course.has_end or (not course.is_measured and not self.is_last(ended.ordinal)):
            trust.refuse(src, "the end of the session", "it has not come to its end")
            return False
        if trust.has_misbehaved(src):
            self._claims.pop(src, None)
            return False
        if self._awaited <= {src, self._node.me}:
            return True  # all others have said goodbye, as one does at the end
        if not trust.believes(src, ended.round):
            return False
        self._claims[src] = ended.round, self._node.now
        if course.is_measured:
            trust.ends[src] = ended.round
        since = self._node.now - self._node.parameters.ack_timeout_s
        recent = sum(at > since for _, at in self._claims.values())
        # That rounds come to an end everybody sees; of what was measured, or is far ahead, one is not enough.
        is_seen = self.is_last(ended.ordinal) and ended.ordinal <= self._node.held_ordinal + REACH
        return is_seen or ended.round == self._missed or recent >= trust.several

    def _look_into(self, src: NodeId, ended: Ended, is_known: bool) -> None:
        """Get the model that `src` would end with, to measure it: at once as one of the first in that round's
        order, else when `src` says so again."""
        node = self._node
        first = node.roster.candidates(node.view, ended.round)[: node.parameters.sample_size]
        _, at = self._checked.get(src, (0, -math.inf))
        if (is_known or node.me in first) and node.now - at >= node.parameters.ack_timeout_s / 2:
            self._checked[src] = ended.round, node.now
            node.send((src,), FinalRequest(ended.round))

    def _judge(self, src: NodeId, measured: Measured, is_end: bool) -> None:
        self._checked[src] = 0, self._node.now
        knows_best = self._course.patience is None or self._scores.best[1] > 0  # who just came does not
        if is_end and measured.round > self.round:
            self._adopt(measured.round, measured.ordinal, src, measured.model)
        elif not is_end and knows_best:
            why = "measured here, its model is not good enough"
            self._node.trust.refuse(src, "the end of the session", why)
            self._go_on_without(src, is_known=True, is_refuted=True)

    def _go_on_without(self, src: NodeId, is_known: bool, is_refuted: bool = False) -> None:
        """`src` has laid down its work for an end that this node does not believe: what it was sent is lost
        unless others have what it made of that. What it said but once may yet turn out to be true."""
        node = self._node
        by, k = node.settled or (node.me, 0)
        is_left = by == src and not node.training.busy
        if is_known and node.training.awaited == src:
            node.look_elsewhere()
        elif is_left and not node.watchdog.is_orphaned:
            self._left = src, node.watchdog.k_seen
            node.watchdog.orphan(node.held_round)
            node.ask_about(k, src)  # not itself: it would say again that this is the end
        if is_refuted and (is_left or src in node.training.tried | self._excused):
            node.trust.failed(src)
            self._excused.discard(src)
            node.settled = None if by == src else node.settled

    def failed(self, src: NodeId) -> None:
        """Nobody has heard of what `src` was to make. If it ended the session, that may be right: whether it
        is, measuring its model will tell. But that is waited for only once."""
        k, since = self._checked.get(src, (0, -math.inf))
        is_open = k > 0 and self._node.now - since < self._node.parameters.ack_timeout_s
        if is_open and src not in self._excused:
            self._excused.add(src)
        else:
            self._node.trust.failed(src)

    def on_held(self, src: NodeId, held: int) -> None:
        """If another goes on with something newer, what was with who ended the session is not lost. Where an
        aggregator vanished this says nothing: it comes back with what it made, and does not go on."""
        node = self._node
        by, _ = node.settled or (node.me, 0)
        is_left = node.watchdog.is_orphaned and self._left == (by, node.watchdog.k_seen)
        is_newer = src != by and held > node.held_round and node.trust.ends.get(src) != held
        if is_left and is_newer and node.trust.believes(src, held):
            node.watchdog.is_orphaned, node.settled = False, None

    @property
    def is_doubtful(self) -> bool:
        """It is this node that ended the session, by what it measured, and nobody has agreed so far."""
        is_own = self.is_over and self._has_declared and not self.is_last(self.ordinal)
        return is_own and self._node.trust.is_wary and not self._having and len(self._others) > 0

    def _adopt(self, k: int, ordinal: int, root: NodeId, model: Model = None) -> None:
        self.round, self.ordinal, self._root, self._tries = k, ordinal, root, 0
        self._has_declared, self._heard_at = root == self._node.me, self._node.now
        self._having = self._answered = NONE  # who has the model turns out anew
        if root != self._node.me and self.has_model:
            self._node.held_round -= 1  # the number is the same, the model need not be
        if model is not None:
            self._node.keep_final(k, ordinal, model)
        self._node.watchdog.notice(k, is_progress=k > self._node.watchdog.k_seen)
        self._node.lay_down()
        self._node.outbox.append(StopSending())
        self._node.report(SessionEnded(k, ordinal))
        self._node.save()
        if self.has_model:
            self._has_it()
        else:
            self._ask()

    # The final model

    def on_request(self, src: NodeId, request: FinalRequest) -> None:
        self.asks += 1
        if not self.has_model:
            self._askers |= {src}
        else:
            self._node.send((src,), FinalModel(self.round, self.ordinal, self._node.held_model))

    def on_model(self, src: NodeId, final: FinalModel) -> None:
        if not self.is_over and 0 < final.round == self._missed:
            self._adopt(final.round, final.ordinal, src)
            self._asked[src] = self._node.now
        if final.round > self.round and self._checked.get(src, (0, 0.0))[0] == final.round:
            self._node.report(EndClaimed(final.round, final.ordinal, final.model))
        elif final.round == self.round and not self.has_model and src in self._asked:
            self._node.keep_final(final.round, final.ordinal, final.model)
            self._node.cancel_timer(FINAL)
            self.ordinal = final.ordinal
            self._has_it()

    def on_timeout(self, _: int = 0) -> None:
        """Nothing came: ask somebody else, unless who was asked may be sending it. If that is of no use for
        long, who had the model is gone with it, and the session goes on until it ends again; so it does if
        nobody agrees that it is the end. Who has the model tells others again."""
        is_early = self._node.now - self._heard_at < self._node.parameters.ack_timeout_s
        if self.has_model and is_early:
            self._tell_again()
        elif self.is_over and is_early and self._is_coming:
            self._node.set_timer(FINAL, AGAIN * self._node.parameters.ack_timeout_s)
        elif self.is_over and is_early:
            self._tries += 1
            self._ask()
        elif self.is_over and (self.is_doubtful or not self.has_model):
            self._node.report(EndRevoked(self.round, self.ordinal))
            self._missed, self.round = self.round, 0
            self._node.save()
            self._node.watchdog.start(self._node.held_round)

    def on_lost(self) -> None:
        """The request or the model did not arrive. Who reaches nobody must not race on."""
        if self.is_over and not self.has_model:
            self._node.set_timer(FINAL, self._node.parameters.ping_timeout_s)

    def _ask(self) -> None:
        self._node.set_timer(FINAL, AGAIN * self._node.parameters.ack_timeout_s)
        source = self._source()
        if source != self._node.me:
            self._asked.pop(source, None)
            self._asked[source] = self._node.now
            self._node.send((source,), FinalRequest(self.round))

    @property
    def _is_coming(self) -> bool:
        """Whether who was asked last has the model, and was not asked long ago."""
        last, at = next(reversed(self._asked.items()), (self._node.me, 0.0))
        return last in self._having and self._node.now - at < self._node.parameters.aggregation_timeout_s

    def _source(self) -> NodeId:
        """The node above this one in the tree; if nothing comes from there, one that says that it has the
        model, or who told of the end."""
        node = self._node
        order = node.roster.candidates(node.view, self.round)
        at = order.index(node.me) if node.me in order else 0
        above = order[(at - 1) // node.parameters.sample_size] if at else self._root
        if not self._tries and above != node.me:
            return above
        known = sorted((self._having | {self._root}) - {node.me})
        return known[self._tries % len(known)] if known else node.me

    def _has_it(self) -> None:
        node = self._node
        node.report(FinalHeld(self.round, self.ordinal, node.held_model))
        node.send(tuple(sorted(self._askers)), FinalModel(self.round, self.ordinal, node.held_model))
        self._askers = NONE
        # Who ends a session tells everybody; who has its model, those who would wait for it before they go.
        at_most = None if self._root == node.me else node.parameters.advertise_to
        self.tell(self._others[:at_most])
        node.set_timer(FINAL, AGAIN * node.parameters.ack_timeout_s)

    def _tell_again(self) -> None:
        """Who was cut off has not heard of the end, and may have no reason to ask."""
        missing = sorted(self._awaited - self._having - {self._node.me})
        if missing:
            few = min(len(missing), self._node.parameters.readvertise_to)
            self.tell(tuple(self._rng.sample(missing, few)))
            self._node.set_timer(FINAL, AGAIN * self._node.parameters.ack_timeout_s)

    @property
    def _others(self) -> tuple[NodeId, ...]:
        return tuple(other for other in self._node.view.actives() if other != self._node.me)
