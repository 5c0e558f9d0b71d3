"""Counters: only their owner raises them, on disk before anybody hears, and none is used twice."""

from __future__ import annotations

import numpy as np

from plexus.protocol.api import (
    BandwidthMeasured,
    Effect,
    Event,
    WentOffline,
    WentOnline,
)
from plexus.protocol.baselines.dpsgd import DpsgdNode
from plexus.protocol.messages import Joined, Left, Message, NodeId
from plexus.protocol.view import Snapshot, event_number
from plexus.storm.checkers.api import Checker, Scene

RAISES = (WentOnline, WentOffline, BandwidthMeasured)


class CountersBelongToTheirOwner(Checker):
    """A counter is raised by its owner alone and never used again, across crashes too. A node whose
    disk was lost may repeat counters until somebody tells it the last one that it used."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._counters: dict[NodeId, int] = {}
        self._told = scene.initial_view.events.astype(np.int64)
        """The newest event that each node has told anybody of itself."""
        self._meaning: dict[tuple[NodeId, int], Message] = {}
        self._forgetful: set[NodeId] = set()
        self._seen: dict[NodeId, Snapshot] = {}

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        machine = self.scene.node(node)
        if isinstance(machine, DpsgdNode):
            return
        counter, last = machine.membership.counter, self._counters.get(node)
        if last is not None and counter != last and node not in self._forgetful:
            if counter < last:
                self.fail(node, f"its counter fell from {last} to {counter}")
            if not isinstance(event, RAISES):
                self.fail(node, f"its counter rose to {counter} by a {type(event).__name__}")
        if counter != last:
            self._counters[node] = counter
            own = machine.membership.view.event_of(node)
            if own <= self._told[node] and node not in self._forgetful:
                self.fail(node, f"uses counter {counter} again")

    def settled(self, node: NodeId) -> None:
        machine = self.scene.node(node)
        if isinstance(machine, DpsgdNode):
            return
        view = machine.membership.view.snapshot()
        if view is self._seen.get(node):
            return
        self._seen[node] = view
        invented = view.events > self._told[: len(view.events)]
        invented[node] = False
        if invented.any():
            other = int(invented.argmax())
            self.fail(
                node,
                f"believes event {view.events[other]} of node {other}, which told "
                f"nobody more than {self._told[other]}",
            )

    def sent(self, src: NodeId, to: tuple[NodeId, ...], body: Message) -> None:
        if isinstance(body, Joined | Left):
            self._announced(src, body)
        elif hasattr(body, "view"):
            self._told[src] = max(self._told[src], body.view.event_of(src))

    def restarted(self, node: NodeId, disk_is_lost: bool) -> None:
        self._counters.pop(node, None)
        self._seen.pop(node, None)
        if disk_is_lost:
            self._forgetful.add(node)

    def _announced(self, src: NodeId, body: Joined | Left) -> None:
        on_disk = self.scene.runtime.disks[src].newest
        if on_disk is None or on_disk.counter < body.counter:
            self.fail(src, f"tells others of counter {body.counter} before it is on its disk")
        before = self._meaning.setdefault((src, body.counter), body)
        if before != body and src not in self._forgetful:
            self.fail(src, f"{body} after {before}")
        event = event_number(body.counter, isinstance(body, Joined))
        self._told[src] = max(self._told[src], event)
