"""A storm as a conversation: who said what to whom, and what became of it."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from plexus.protocol.api import Effect, Event, PeerLost, Received, Report, TimerFired, Trained, Undelivered
from plexus.protocol.facts import Fact
from plexus.protocol.messages import Message, NodeId
from plexus.protocol.view import Snapshot
from plexus.storm.runtime import NodeObserver


class Line(NamedTuple):
    """One thing that happened, and to whom. Put into words only when somebody reads it."""

    time_s: float
    nodes: tuple[NodeId, ...]
    thing: Message | Fact | str
    after: str = ""

    def __str__(self) -> str:
        what = self.thing if isinstance(self.thing, str) else in_words(self.thing)
        who = " → ".join(map(str, self.nodes)) + (":" if len(self.nodes) > 1 else "")
        return f"{self.time_s:9.2f}  {who} {what}{self.after}"


class StormTrace(NodeObserver):
    """The last lines of a storm, or all of them."""

    def __init__(self, clock: Callable[[], float], most: int | None) -> None:
        self._clock = clock
        self.lines: deque[Line] = deque(maxlen=most)

    def note(self, node: NodeId, text: str) -> None:
        self._add((node,), text)

    def before(self, node: NodeId, event: Event) -> None:
        if isinstance(event, Received):
            if event.src != node:
                self._add((event.src, node), event.body)
        elif isinstance(event, TimerFired):
            self._add((node,), f"timeout: {event.key[0]}")
        elif isinstance(event, Undelivered):
            self._add((node, event.to), event.body, " — known not to have arrived")
        elif isinstance(event, PeerLost):
            self._add((node,), f"has lost its connection with {event.node}")
        elif isinstance(event, Trained):
            self._add((node,), f"has trained for round {event.round}")

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Report):
                self._add((node,), effect.fact)

    def lost(self, src: NodeId, dst: NodeId, body: Message, why: str) -> None:
        self._add((src, dst), body, f" — {why}")

    def of(self, node: NodeId | None, most: int) -> list[str]:
        """The last lines, of one node if one is named."""
        lines = [line for line in self.lines if node is None or node in line.nodes]
        return [str(line) for line in lines[-most:]] if most else []

    def _add(self, nodes: tuple[NodeId, ...], thing: Message | Fact | str, after: str = "") -> None:
        self.lines.append(Line(self._clock(), nodes, thing, after))


def in_words(thing: Message | Fact) -> str:
    """A message or a fact: its name and its fields. TrainRequest is a train request."""
    name = re.sub("(?<!^)(?=[A-Z])", " ", type(thing).__name__).lower()
    shown = [field for field in thing.__struct_fields__ if field not in ("address", "samples")]
    fields = [f"{field.removesuffix('_bytes_per_s')} {_value(getattr(thing, field))}" for field in shown]
    return f"{name} {', '.join(fields)}".strip()


def _value(value: object) -> str:
    if isinstance(value, Snapshot):
        return f"of {value.known}"
    if isinstance(value, float):
        return f"{value:.1f}"
    return " ".join(str(value).split())
