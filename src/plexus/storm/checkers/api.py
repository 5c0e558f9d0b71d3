"""What a checker sees, and how it says that something is wrong."""

from __future__ import annotations

from typing import NamedTuple

from plexus.protocol.messages import NodeId
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.view import Snapshot
from plexus.storm.nodes import AnyNode
from plexus.storm.plan import Plan
from plexus.storm.runtime import NodeObserver, StormRuntime


class Violation(Exception):  # noqa: N818  (what was found, not what failed)
    """An invariant does not hold: its name, the node where that is so (or None), and what is wrong."""


class Scene(NamedTuple):
    """Where the checkers look."""

    plan: Plan
    runtime: StormRuntime
    initial_view: Snapshot

    @property
    def now(self) -> float:
        return self.runtime.kernel.now

    def node(self, node: NodeId) -> AnyNode:
        return self.runtime.nodes[node].node

    def plexus(self, node: NodeId) -> PlexusNode:
        machine = self.runtime.nodes[node].node
        assert isinstance(machine, PlexusNode)
        return machine

    def online(self) -> list[NodeId]:
        return [node for node, online in enumerate(self.runtime.online) if online]


class Checker(NodeObserver):
    """One invariant."""

    reads_labels = False
    """Whether it needs models that tell where they come from."""
    plexus_only = False
    """Whether it looks at nodes of Plexus alone."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    def fail(self, node: NodeId | None, text: str) -> None:
        raise Violation(type(self).__name__, node, text)
