"""Teleportation: a few models that wander from node to node (Takezawa and Stich, 2025).

In each round a few nodes are active, drawn by a rule that everybody can repeat (the hash order of the round,
as in Plexus). Each holds one of as many tokens: it is handed the model of whoever held that token in the
round before, trains it, and averages it with those of its neighbours in a small topology over the tokens.

Without churn rounds are synchronous, and everybody knows the active nodes of every round. Under churn rounds
have a fixed duration (see `rounds`), and a node finds the active ones as Plexus does: the first in hash order
that answer. Who should hold a token whose last holder vanished takes what its neighbours send it in the
exchange. If all holders have vanished, those of the next ones whose model is the newest begin anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import shake_128
from typing import Annotated, Any, Literal

from msgspec import Meta

from plexus.protocol.api import Durable
from plexus.protocol.baselines.peers import PeerNode, TimedParameters
from plexus.protocol.baselines.rounds import ROUND_EVENTS, ROUND_TIMEOUTS, Rounds
from plexus.protocol.baselines.topology import OnePeerExponential, Topology, ring
from plexus.protocol.machine import to
from plexus.protocol.messages import Model, NodeId, Ping, Pong, TokenModel
from plexus.protocol.roster import Roster
from plexus.protocol.sampling import SampleSearch, Search

QUIET_ROUNDS = 2
"""If nobody knows of a token for more rounds than that, there is none left."""


class TeleportationParameters(TimedParameters, frozen=True):
    """Teleportation: in every round a few nodes take over the models of those who were active before them,
    train them, and average them with those of a few others."""

    active: Annotated[int, Meta(ge=1)] = 16
    """k: how many nodes are active in a round; with fewer online, all of them."""

    topology: Literal["one-peer-exponential", "ring"] = "one-peer-exponential"
    """Who among the active nodes averages with whom. `one-peer-exponential`: with one each round, 1, 2, 4, …
    places further. `ring`: with the two next to it."""


def by_token(roster: Roster, k: int, nodes: Iterable[NodeId]) -> list[NodeId]:
    """Which of the active nodes of round k holds which token: each in turn takes the node that draws the
    lowest number for it. Who knows of one node more than others gives most tokens to the same as they."""
    left = list(nodes)
    drawn = {node: shake_128(b"%d %s" % (k, roster.keys[node])).digest(4 * len(left)) for node in left}
    holders: list[NodeId] = []
    for at in range(0, 4 * len(left), 4):
        holders.append(min(left, key=lambda node: drawn[node][at : at + 4]))
        left.remove(holders[-1])
    return holders


class TeleportationNode(PeerNode):
    _on_event = PeerNode._on_event | ROUND_EVENTS
    _on_message = PeerNode._on_message | {TokenModel: to("_on_token")}
    _on_timeout = PeerNode._on_timeout | ROUND_TIMEOUTS

    def __init__(
        self,
        parameters: TeleportationParameters,
        initial_model: Model,
        roster: Roster,
        round_duration_s: float | None = None,
        durable: Durable | None = None,
        **world: Any,
    ) -> None:
        """`world` is for `PeerNode`."""
        durable = durable or Durable(counter=0, round=0, model=initial_model)
        super().__init__(parameters=parameters, counter=durable.counter, roster=roster, **world)
        self._parameters = parameters
        self._roster = roster
        self.rounds = Rounds(
            self,
            durable,
            round_duration_s,
            expected=self._expected,
            share=self._share,
            then=self._on_round_end,
        )
        self._token = 0
        self._handed: dict[int, tuple[int, Model]] = {}
        """By round, the token that this node is to hold in it, and its model."""
        self._found: dict[int, list[NodeId]] = {}
        """By round, its active nodes: those that answered."""
        self._to_hand_over: tuple[int, int, Model] = (0, 0, None)
        """For which round, which token, and its model."""
        self._held = durable.round
        """The round that the node's model is of."""
        self._newest = durable.round or -QUIET_ROUNDS - 1
        """The newest round that there is a model of, as far as the node knows."""
        self._held_by: dict[NodeId, int] = {}

    def on_start(self) -> None:
        self._handed.clear()
        self._found.clear()
        self._to_hand_over = (0, 0, None)
        self.rounds.start()
        if not self.rounds.is_timed and self._is_active(1):
            self._hold(1, self._active(1).index(self.me), self.rounds.model)

    # Who is active

    def _is_active(self, k: int) -> bool:
        """Whether this node is active in round k, if all that are believed online are there."""
        return self.me in self._roster.candidates(self.membership.view, k)[: self._parameters.active]

    def _active(self, k: int) -> list[NodeId]:
        """The active nodes of round k, by token, likewise."""
        candidates = self._roster.candidates(self.membership.view, k)
        return by_token(self._roster, k, candidates[: self._parameters.active])

    def _find(self, purpose: str, k: int) -> None:
        """Look for the active nodes of round k: the first that answer."""
        order = self._roster.candidates(self.membership.view, k)
        search = SampleSearch(self.me, order, self._parameters.active)
        self.sampler.begin(Search(purpose, k, search, announced=self._held))

    def on_found(self, search: Search) -> None:
        k, found = search.round, by_token(self._roster, search.round, search.sample.found)
        self._found[k] = found
        if search.purpose == "quiet":
            self._begin_anew(k, found)
        elif k == self.rounds.k and self.rounds.has_trained:
            self._send_to_neighbours(k, found)
        self._hand_over_if_known()

    def on_gone(self, node: NodeId) -> None:
        """As in Plexus: it is taken as gone until it shows that it is not, and views tell others."""
        self.membership.suspect(node)

    # A token

    def _hold(self, k: int, token: int, model: Model) -> None:
        """Take part in round k. Under churn it takes a while to find the others, so that begins now."""
        self._token = token
        self.rounds.begin(k, model)
        if self.rounds.is_timed:
            self._found = {now: found for now, found in self._found.items() if now >= k}
            for purpose, of in (("now", k), ("next", k + 1)):
                self._find(purpose, of)

    def _on_token(self, src: NodeId, body: TokenModel) -> None:
        self.learn(src, body.view)
        if self.rounds.is_far_ahead(body.round):
            return
        self._know_of(body.round - 1)
        if body.is_trained:
            if not self.rounds.has_turn:
                self._token = body.token  # in case that nobody hands it over
            self.rounds.on_model(src, body.round, body.model)
        else:
            self._handed.setdefault(body.round, (body.token, body.model))
            self._take_turn()

    def _take_turn(self) -> None:
        """Begin with what was handed to this node, if it is idle; what came too late is forgotten. Without
        a clock turns are taken in order: somebody waits for each of them."""
        self._handed = {k: handed for k, handed in self._handed.items() if k >= self.rounds.k}
        k = self.rounds.k
        if not self.rounds.is_timed:
            turns = range(k, min(self._handed, default=0) + 1)
            k = next(filter(self._is_active, turns), 0)
        if k in self._handed and self.rounds.is_idle:
            self._held = k - 1
            self._hold(k, *self._handed.pop(k))

    def _expected(self, k: int) -> list[NodeId]:
        active = self._active(k)
        return [active[token] for token in self._topology(len(active)).senders(self._token, k)]

    def _share(self, k: int, _: Model) -> None:
        if not self.rounds.is_timed:
            self._send_to_neighbours(k, self._active(k))
            return
        if k in self._found:
            self._send_to_neighbours(k, self._found[k])
        if k + 1 in self._found:
            self._find("next", k + 1)  # some may have gone meanwhile

    def _send_to_neighbours(self, k: int, active: list[NodeId]) -> None:
        if self.me in active:
            for token in self._topology(len(active)).receivers(active.index(self.me), k):
                self._send(active[token], k, token, 1, self.rounds.model)

    def _on_round_end(self, has_model: bool) -> None:
        """By the clock, or because all is done. Hand over what there is, and wait for another turn."""
        if has_model:
            self._held = self.rounds.k
            self._know_of(self._held)
            k = self.rounds.next
            self._to_hand_over = k, self._token, self.rounds.model
            if not self.rounds.is_timed:
                self._found = {k: self._active(k)}
            elif k not in self._found and not self.sampler.is_searching("next"):
                self._find("next", k)
            self._hand_over_if_known()
        self.rounds.rest()
        self._take_turn()
        if self._is_quiet() and self._is_active(self.rounds.k):
            self._held_by.clear()
            self._find("quiet", self.rounds.k)

    def _begin_anew(self, k: int, found: list[NodeId]) -> None:
        newest = max((self._held_by.get(node, 0) for node in found), default=0)
        if self._is_quiet() and k == self.rounds.k and self._held >= newest and self.me in found:
            self._hold(k, found.index(self.me), self.rounds.model)

    def _hand_over_if_known(self) -> None:
        k, token, model = self._to_hand_over
        active = self._found.get(k)
        if active is not None:
            self._to_hand_over = (0, 0, None)
            if token < len(active):
                self._send(active[token], k, token, 0, model)

    def _send(self, to: NodeId, k: int, token: int, is_trained: int, model: Model) -> None:
        self.send((to,), TokenModel(k, token, is_trained, self.membership.view.snapshot(), model))

    def _topology(self, size: int) -> Topology:
        return ring(size) if self._parameters.topology == "ring" else OnePeerExponential(size)

    # When all tokens are lost

    def _is_quiet(self) -> bool:
        rounds = self.rounds
        return rounds.is_timed and rounds.is_idle and self._newest < rounds.k - 1 - QUIET_ROUNDS

    def _on_ping(self, src: NodeId, ping: Ping) -> None:
        self.membership.contacted = True
        event = self.membership.view.event_of(src)
        self.send((src,), Pong(ping.exchange, max(self._newest, 0), self._held, event))
        self._know_of(ping.round)

    def _on_pong(self, src: NodeId, pong: Pong) -> None:
        self._held_by[src] = 0 if self.rounds.is_far_ahead(pong.held) else pong.held
        self._know_of(pong.round)
        super()._on_pong(src, pong)

    def _know_of(self, k: int) -> None:
        """Somebody has a model of round k, if that is not the initial one."""
        if k and not self.rounds.is_far_ahead(k):
            self._newest = max(self._newest, k)

    def save(self) -> None:
        self.keep(self._held, self.rounds.model)
