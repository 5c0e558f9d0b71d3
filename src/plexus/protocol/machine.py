"""A state machine with an outbox: inside, effects read like calls; outside, they are data."""

from __future__ import annotations

from collections.abc import Callable, Collection
from operator import attrgetter
from typing import Any, ClassVar, TypeAlias

from plexus.protocol import api
from plexus.protocol.api import Effect, Event, Received, Report, Send, SetTimer, TimerFired, TimerKey
from plexus.protocol.facts import Fact
from plexus.protocol.messages import Message, NodeId

Handler: TypeAlias = Callable[[Any], Callable[..., None]]
to: Callable[[str], Handler] = attrgetter
"""Whose business something is: `to("_on_ping")` of the node itself, `to("sampler.on_timeout")` of a part."""


class Machine:
    """Base of the protocol nodes: dispatches events by type and collects effects."""

    __slots__ = ("me", "now", "outbox")

    _on_event: ClassVar[dict[type[Event], Handler]] = dict.fromkeys(api.IGNORABLE, to("ignore"))
    _on_message: ClassVar[dict[type[Message], Handler]] = {}
    """What takes the sender and the message."""
    _on_timeout: ClassVar[dict[str, Handler]] = {}
    """By the name of the timer, what takes its number."""

    def __init__(self, me: NodeId) -> None:
        self.me = me
        self.now = 0.0
        self.outbox: list[Effect] = []

    def handle(self, now: float, event: Event) -> list[Effect]:
        self.now = now
        effects = self.outbox = []
        kind = type(event)
        if kind is Received:
            body = event.body  # type: ignore[attr-defined]
            self._on_message[type(body)](self)(event.src, body)  # type: ignore[attr-defined]
        elif kind is TimerFired:
            name, number = event.key  # type: ignore[attr-defined]
            self._on_timeout[name](self)(number)
        else:
            self._on_event[kind](self)(event)
        if effects:
            self.outbox = []  # a node that is offline for long is not to keep its last messages
        return effects

    def ignore(self, *_: Any) -> None:
        """Do nothing about it."""

    @property
    def messages(self) -> Collection[type[Message]]:
        """The kinds of message it understands."""
        return self._on_message.keys()

    @property
    def is_indispensable(self) -> bool:
        """It has what the others need to go on, and nobody else has it yet: better not to leave now."""
        return False

    def is_obsolete(self, body: Message) -> bool:
        """Whether a model message has become pointless on its way: a runtime need not finish carrying it,
        be it to this node or from it. Changes nothing."""
        return False

    def send(self, to: tuple[NodeId, ...], body: Message) -> None:
        if to:
            self.outbox.append(Send(to, body))

    def set_timer(self, key: TimerKey, delay_s: float) -> None:
        self.outbox.append(SetTimer(key, delay_s))

    def cancel_timer(self, key: TimerKey) -> None:
        self.outbox.append(api.CancelTimer(key))

    def report(self, fact: Fact) -> None:
        self.outbox.append(Report(fact))
