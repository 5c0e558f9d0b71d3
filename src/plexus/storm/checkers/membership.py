"""Views only move forward."""

from __future__ import annotations

from plexus.protocol.baselines.dpsgd import DpsgdNode
from plexus.protocol.messages import NodeId
from plexus.protocol.view import Snapshot
from plexus.storm.checkers.api import Checker, Scene


class ViewsMoveForward(Checker):
    """What a process knows of any node is never replaced by something older, and what belongs to an
    event stays with it."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._last: dict[NodeId, Snapshot] = {}

    def settled(self, node: NodeId) -> None:
        machine = self.scene.node(node)
        if isinstance(machine, DpsgdNode):
            return
        view, last = machine.membership.view.snapshot(), self._last.get(node)
        if view is last:
            return
        self._last[node] = view
        if last is None:
            return
        size = len(last.events)
        older = view.events[:size] < last.events
        if older.any():
            other = int(older.argmax())
            self.fail(
                node,
                f"knew event {last.events[other]} of node {other}, now {view.events[other]}",
            )
        other_bandwidth = view.bandwidths[:size] != last.bandwidths
        changed = other_bandwidth & (view.events[:size] == last.events)
        if changed.any():
            self.fail(node, f"another bandwidth of node {int(changed.argmax())} by the same event")

    def restarted(self, node: NodeId, disk_is_lost: bool) -> None:
        self._last.pop(node, None)
