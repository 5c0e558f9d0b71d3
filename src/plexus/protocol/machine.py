"""A state machine with an outbox: inside, effects read like calls; outside, they are data."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from plexus.protocol.api import (
    BandwidthMeasured,
    CancelTimer,
    Effect,
    Event,
    Expelled,
    Measured,
    Misbehaved,
    Offered,
    PeerLost,
    Received,
    Report,
    Send,
    SetTimer,
    TimerFired,
    TimerKey,
    Undelivered,
)
from plexus.protocol.facts import Fact
from plexus.protocol.messages import Message, NodeId


class Machine:
    """Base of the protocol nodes: dispatches events by type and collects effects."""

    __slots__ = ("_on_event", "_on_message", "_on_timeout", "me", "now", "outbox")

    def __init__(self, me: NodeId) -> None:
        self.me = me
        self.now = 0.0
        self.outbox: list[Effect] = []
        # Who has nothing to decide about these may ignore them.
        self._on_event: dict[type[Event], Callable[[Any], None]] = dict.fromkeys(
            (Offered, Undelivered, PeerLost, Misbehaved, Expelled, BandwidthMeasured, Measured),
            lambda _: None,
        )
        self._on_message: dict[type[Message], Callable[[NodeId, Any], None]] = {}
        self._on_timeout: dict[str, Callable[[int], None]] = {}

    def handle(self, now: float, event: Event) -> list[Effect]:
        self.now = now
        effects = self.outbox = []
        kind = type(event)
        if kind is Received:
            self._on_message[type(event.body)](event.src, event.body)  # type: ignore[attr-defined]
        elif kind is TimerFired:
            name, number = event.key  # type: ignore[attr-defined]
            self._on_timeout[name](number)
        else:
            self._on_event[kind](event)
        self.outbox = []  # a node that is offline for long is not to keep its last messages
        return effects

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
        self.outbox.append(CancelTimer(key))

    def report(self, fact: Fact) -> None:
        self.outbox.append(Report(fact))
