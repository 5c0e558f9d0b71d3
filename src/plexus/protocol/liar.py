"""A member that lies: the node of Plexus with one habit more, for experiments, storms and rehearsals.

What it sends is well-formed and comes from a member, so nothing but the protocol itself can stop it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from plexus.protocol.api import BandwidthMeasured, Effect, Event, Send, Train
from plexus.protocol.membership import HEARD_ME
from plexus.protocol.messages import Ack, AggregateRequest, NodeId, Ping, TrainRequest, ViewReply
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.trust import ROOM
from plexus.protocol.view import LEFT, MAX_BANDWIDTH_BYTES_PER_S, Excerpt, Snapshot, View
from plexus.protocol.wire import UNLISTED

FAR = 2**40
"""Rounds ahead, of which a liar speaks."""
AGAIN_S = 30.0
"""How often a liar speaks of the next round."""
TRIED = 8
"""Numbers of rounds among which a liar looks for one that the hash allows."""


class Liar(PlexusNode):
    """Takes part, and lies whenever it trains."""

    def __init__(self, behaviour: str, **given: Any) -> None:
        if behaviour in ("lie-bandwidth", "silent-aggregator"):
            given["bandwidth_bytes_per_s"] = MAX_BANDWIDTH_BYTES_PER_S
        super().__init__(**given)
        self._behaviour = behaviour
        self.speaks_at, self.voided = 0.0, 0
        """When it speaks of the next round again, and the newest round whose aggregator it has misled."""

    def _on_bandwidth_measured(self, measured: BandwidthMeasured) -> None:
        if self.membership.bandwidth_bytes_per_s < MAX_BANDWIDTH_BYTES_PER_S:
            super()._on_bandwidth_measured(measured)

    def _on_aggregate_request(self, src: NodeId, request: AggregateRequest) -> None:
        if self._behaviour != "silent-aggregator":
            super()._on_aggregate_request(src, request)

    def handle(self, now: float, event: Event) -> list[Effect]:
        effects = super().handle(now, event)
        lie = LIES.get(self._behaviour)
        return effects if lie is None else lie(self, event, effects)

    @property
    def others(self) -> tuple[NodeId, ...]:
        return tuple(node for node in self.view.actives() if node != self.me)


def member(behaviour: str | None, honest: type[PlexusNode] = PlexusNode, **given: Any) -> PlexusNode:
    """A node of Plexus, or of a variation of it: an honest one, unless it lies in some way."""
    return honest(**given) if behaviour is None else Liar(behaviour, **given)


def far_round(liar: Liar, event: Event, effects: list[Effect]) -> list[Effect]:
    """The session is far ahead, and here is its model; or will be after this round."""
    effects = [
        replace(effect, body=replace(effect.body, step=FAR))
        if isinstance(effect, Send) and isinstance(effect.body, TrainRequest)
        else effect
        for effect in effects
    ]
    if not any(isinstance(effect, Train) for effect in effects) or not liar.others:
        return effects
    far, view = liar.watchdog.k_seen + FAR, liar.view.snapshot()
    request = TrainRequest(far, 1, liar.training.ordinal + 1, 1, view, liar.held_model)
    return [*effects, Send(liar.others, Ping(HEARD_ME, far)), Send(liar.others, request)]


def forged_views(liar: Liar, event: Event, effects: list[Effect]) -> list[Effect]:
    """Everybody else has left."""
    if not any(isinstance(effect, Train) for effect in effects) or not liar.others:
        return effects
    snapshot = liar.view.snapshot()
    events = snapshot.events.copy()
    for node in liar.others:
        events[node] = (events[node] | LEFT) + 4
    forged = Snapshot(events, snapshot.bandwidths, snapshot.is_signed)
    return [*effects, Send(liar.others, ViewReply(forged))]


def lone_aggregate(liar: Liar, event: Event, effects: list[Effect]) -> list[Effect]:
    """There was one participant: no need to wait for more models, nor for the others to send theirs.
    And somebody else may aggregate it too."""
    told: list[Effect] = []
    for effect in effects:
        if isinstance(effect, Send) and isinstance(effect.body, AggregateRequest):
            effect = replace(effect, body=replace(effect.body, participants=1))
            if liar.others:
                told.append(Send(liar.others, Ack(effect.body.round)))
                told.append(Send(liar.others[:1], replace(effect.body, trained_in=0)))
        told.append(effect)
    return told


def false_views(liar: Liar, event: Event, effects: list[Effect]) -> list[Effect]:
    """All is as in a view that nobody has, and nobody gets when it asks."""
    false = Excerpt(View.of(len(liar.view), is_signed=liar.view.is_signed).snapshot(), UNLISTED[1:] + b"?")
    return [
        replace(effect, body=replace(effect.body, view=false))
        if isinstance(effect, Send) and isinstance(effect.body, AggregateRequest | ViewReply)
        else effect
        for effect in effects
    ]


def next_round(liar: Liar, event: Event, effects: list[Effect]) -> list[Effect]:
    """Somebody is at the round after the newest already, it says again and again."""
    if liar.now < liar.speaks_at or not liar.others:
        return effects
    liar.speaks_at = liar.now + AGAIN_S
    return [*effects, Send(liar.others, Ping(HEARD_ME, liar.watchdog.k_seen + liar.watchdog.stride))]


def newer_model(liar: Liar, event: Event, effects: list[Effect]) -> list[Effect]:
    """Whoever is to aggregate a round gets a model of one after it, of the sender's choice."""
    seen, stride, size = liar.watchdog.k_seen, liar.watchdog.stride, liar.parameters.sample_size

    def may(node: NodeId, k: int) -> bool:
        return node in liar.roster.in_order(liar.view, k)[: ROOM * size]

    if seen <= liar.voided or not liar.others:
        return effects
    liar.voided = seen
    aggregator = liar.trust.best(liar.roster.in_order(liar.view, seen + stride)[:size])
    first = seen + 2 * stride
    rounds = [(k, before) for k in range(first, first + TRIED) for before in range(max(1, k - TRIED), k)]
    for k, before in rounds if aggregator != liar.me else ():
        if may(aggregator, k) and may(liar.me, before):
            view = liar.membership.lacking.excerpt(liar.view.snapshot())
            lie = AggregateRequest(k, before, liar.held_ordinal + 2, size, 1, view, liar.held_model)
            return [*effects, Send((aggregator,), lie)]
    return effects


LIES: dict[str, Callable[[Liar, Event, list[Effect]], list[Effect]]] = {
    "far-round": far_round,
    "forged-views": forged_views,
    "lone-aggregate": lone_aggregate,
    "next-round": next_round,
    "newer-model": newer_model,
    "false-views": false_views,
}
BEHAVIOURS = ("lie-bandwidth", "silent-aggregator", *LIES)
"""Lies about the protocol; those about models are the tasks' business."""
