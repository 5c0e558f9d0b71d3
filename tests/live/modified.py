"""A peer as its owner has changed it: `plexus` with a node that lies as the file `lie` in its home says.

Everything else is the real thing: its certificate, its links, its training. Without the file it is honest.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

import plexus.live.seats
from plexus.cli import main
from plexus.live.models import LiveModel, ModelLayout, seal
from plexus.live.transport.link import Sending
from plexus.protocol.api import BandwidthMeasured, Effect, Event, Received, Send, Train
from plexus.protocol.messages import AggregateRequest, NodeId, Ping, TrainRequest
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.view import MAX_BANDWIDTH_BYTES_PER_S
from plexus.protocol.wire import LIMITS, MAX_INT

LIE_FILE = "lie"
LIE = Path(LIE_FILE)
EVERY_S = 0.3
HUGE = 3e38


class ModifiedNode(PlexusNode):
    """Says one thing more, or another, as long as it is to lie."""

    def __init__(self, behaviour: None, honest: type[PlexusNode], **given: Any) -> None:
        super().__init__(**given)
        self.lied_at = 0.0
        self.has_boasted = False

    def handle(self, now: float, event: Event) -> list[Effect]:
        lie = LIES.get(told())
        if lie is silent and isinstance(event, Received) and isinstance(event.body, AggregateRequest):
            return []
        if isinstance(event, BandwidthMeasured) and self.has_boasted:
            return []
        effects = super().handle(now, event)
        return effects if lie is None else lie(self, effects, now)

    @property
    def others(self) -> tuple[NodeId, ...]:
        return tuple(node for node in self.view.actives() if node != self.me)

    def is_time(self, now: float, every_s: float = EVERY_S) -> bool:
        if now < self.lied_at + every_s:
            return False
        self.lied_at = now
        return True

    def request(self, k: int, model: LiveModel) -> TrainRequest:
        return TrainRequest(k, 1, self.held_ordinal + 1, 3, self.view.snapshot(), model)

    @property
    def next_round(self) -> int:
        return self.watchdog.k_seen + self.watchdog.step


def told() -> str:
    try:
        return LIE.read_text()
    except FileNotFoundError:
        return ""


def full_of(value: float, like: LiveModel) -> LiveModel:
    layout = ModelLayout(like.data)
    data = layout.blank()
    for run in layout.numbers(data):
        run[:] = np.array(value).astype(run.dtype)
    return LiveModel(data, seal(data))


def far(node: ModifiedNode, effects: list[Effect], now: float) -> list[Effect]:
    """The session is at the largest round there is."""
    if node.is_time(now):
        k = LIMITS["round"]
        effects += [Send(node.others, Ping(0, k)), Send(node.others, node.request(k, node.held_model))]
    return effects


def beyond(node: ModifiedNode, effects: list[Effect], now: float) -> list[Effect]:
    """It is at a round that no message can have."""
    if node.is_time(now):
        request = node.request(MAX_INT, node.held_model)
        effects += [Send(node.others, Ping(0, MAX_INT)), Send(node.others, request)]
    return effects


def zeros(node: ModifiedNode, effects: list[Effect], now: float) -> list[Effect]:
    """It is a million rounds further, or just at the next, and this is its model."""
    if node.is_time(now):
        model = full_of(0.0, node.held_model)
        effects += [Send(node.others, node.request(k, model)) for k in (10**6, node.next_round)]
    return effects


def huge(node: ModifiedNode, effects: list[Effect], now: float) -> list[Effect]:
    """Weights that are finite, to train and trained."""
    model = full_of(HUGE, node.held_model)
    if node.is_time(now):
        effects.append(Send(node.others, node.request(node.next_round, model)))
    return sent_instead(effects, model=model)


def lone(node: ModifiedNode, effects: list[Effect], now: float) -> list[Effect]:
    """It was the only one to train, and has its model before anybody else."""
    if any(isinstance(effect, Train) for effect in effects):
        task = node.training
        mine = AggregateRequest(
            task.next_round, task.k_train, task.ordinal + 1, 1, 10**6, node.view.snapshot(), node.held_model
        )
        effects.append(Send(node.others, mine))
    return sent_instead(effects, participants=1)


def many(node: ModifiedNode, effects: list[Effect], now: float) -> list[Effect]:
    """There are many more participants to wait for."""
    return sent_instead(effects, participants=LIMITS["participants"])


def silent(node: ModifiedNode, effects: list[Effect], now: float) -> list[Effect]:
    """Nobody has a faster link; and what is sent over it is never heard of again."""
    if not node.has_boasted:
        effects += PlexusNode.handle(node, now, BandwidthMeasured(MAX_BANDWIDTH_BYTES_PER_S))
        node.has_boasted = True
    return effects


def unfilled(node: ModifiedNode, effects: list[Effect], now: float) -> list[Effect]:
    """Models are offered, and when there is room for them nothing comes."""
    if node.is_time(now, 4.0):  # a newer one would take the place of the last
        effects.append(Send(node.others, node.request(node.next_round, node.held_model)))
    return effects


def sent_instead(effects: list[Effect], **fields: Any) -> list[Effect]:
    return [
        replace(effect, body=replace(effect.body, **fields))
        if isinstance(effect, Send) and isinstance(effect.body, AggregateRequest)
        else effect
        for effect in effects
    ]


LIES: dict[str, Callable[[ModifiedNode, list[Effect], float], list[Effect]]] = {
    lie.__name__: lie for lie in (far, beyond, zeros, huge, lone, many, silent, unfilled)
}


def _change() -> None:
    plexus.live.seats.member = ModifiedNode  # type: ignore[attr-defined]
    next_chunk = Sending.next_chunk
    Sending.next_chunk = (  # type: ignore[method-assign]
        lambda self: None if told() == unfilled.__name__ else next_chunk(self)
    )


if __name__ == "__main__":
    LIE = Path(sys.argv[sys.argv.index("--home") + 1]) / LIE_FILE
    _change()
    main()
