"""What a node did: its effects, by kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from plexus.protocol.api import Effect, Event, Send, SetTimer
from plexus.protocol.machine import Machine
from plexus.protocol.messages import Message, NodeId
from plexus.protocol.view import View

E = TypeVar("E", bound=Effect)

Handle = Callable[..., list[Effect]]


def effects_of(node: Machine) -> Handle:
    """Feed events at moments one second apart, unless told the moment."""
    clock = {"now": 0.0}

    def handle(event: Event, at: float | None = None) -> list[Effect]:
        clock["now"] = clock["now"] + 1 if at is None else at
        return node.handle(clock["now"], event)

    return handle


def only(effects: list[Effect], kind: type[E]) -> list[E]:
    return [effect for effect in effects if type(effect) is kind]


def sent(effects: list[Effect], kind: type[Message]) -> list[tuple[tuple[NodeId, ...], Any]]:
    """The messages of one kind, with those they went to."""
    return [(send.to, send.body) for send in only(effects, Send) if type(send.body) is kind]


def timers(effects: list[Effect]) -> dict[Any, float]:
    return {timer.key: timer.delay_s for timer in only(effects, SetTimer)}


def everybody_online(nodes: int) -> View:
    return View.of(nodes, [(node, 100) for node in range(nodes)])
