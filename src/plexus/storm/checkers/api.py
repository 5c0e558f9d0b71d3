"""What a checker sees, and how it says that something is wrong."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from plexus.protocol.api import Effect, Received, Report
from plexus.protocol.facts import Refused
from plexus.protocol.messages import NodeId
from plexus.protocol.parameters import PlexusParameters
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.trust import A_MODEL, TO_TRAIN
from plexus.protocol.view import Snapshot
from plexus.storm.nodes import AnyNode
from plexus.storm.plan import Plan
from plexus.storm.runtime import NodeObserver, StormRuntime

FAR = 2**30
"""Rounds by which nobody who was not misled is ahead of others."""
MISLED = 2**20
"""Who is so many rounds ahead was misled by a liar, and finds its way back."""


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

    @property
    def parameters(self) -> PlexusParameters:
        assert isinstance(self.plan.parameters, PlexusParameters)
        return self.plan.parameters

    def clock_s(self, node: NodeId) -> float:
        """By the node's own clock."""
        return self.runtime.nodes[node].clock_s(self.now)

    def node(self, node: NodeId) -> AnyNode:
        return self.runtime.nodes[node].node

    def plexus(self, node: NodeId) -> PlexusNode:
        machine = self.runtime.nodes[node].node
        assert isinstance(machine, PlexusNode)
        return machine

    def online(self) -> list[NodeId]:
        return [node for node, online in enumerate(self.runtime.online) if online]

    def honest(self) -> list[NodeId]:
        """Those online that do not lie."""
        return [node for node in self.online() if node not in self.plan.liars]


class Checker(NodeObserver, Struct, eq=False):
    """One invariant, and what it has seen so far."""

    reads_labels = False
    """Whether it needs models that tell where they come from."""
    plexus_only = False
    """Whether it looks at nodes of Plexus alone."""
    scene: Scene

    def fail(self, node: NodeId | None, text: str) -> None:
        """Nothing is promised of what a liar does itself."""
        if node not in self.scene.plan.liars:
            raise Violation(type(self).__name__, node, text)


class PlexusChecker(Checker):
    plexus_only = True


def is_refused(machine: PlexusNode, received: Received, effects: list[Effect]) -> bool:
    """Whether a request was not believed: its sender is named, or others are asked about the round."""
    if not machine.trust.is_wary:
        return False
    facts = [effect.fact for effect in effects if isinstance(effect, Report)]
    refused = [(fact.src, fact.what) for fact in facts if isinstance(fact, Refused)]
    named = any((received.src, what) in refused for what in (TO_TRAIN, A_MODEL))
    return named or machine.watchdog.k_seen < received.body.round
