"""What a checker sees, and how it says that something is wrong."""

from __future__ import annotations

from typing import ClassVar, NamedTuple, TypeVar

from msgspec import Struct

from plexus.protocol.api import Effect, Received, Report, Send
from plexus.protocol.facts import Refused
from plexus.protocol.messages import Message, NodeId
from plexus.protocol.parameters import PlexusParameters
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.trust import A_MODEL, TO_TRAIN
from plexus.protocol.view import Snapshot
from plexus.storm.nodes import AnyNode
from plexus.storm.plan import Plan
from plexus.storm.runtime import NodeObserver, StormRuntime

T = TypeVar("T")
M = TypeVar("M", bound=Message)
FAR = 2**30
"""Rounds by which nobody who was not misled is ahead of others."""
MISLED = 2**20
"""Who is so many rounds ahead was misled by a liar, and finds its way back."""


class Violation(Exception):  # noqa: N818  (what was found, not what failed)
    """An invariant does not hold: its name, the node where that is so (or None), and what is wrong."""


class Scene(NamedTuple):
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
    while_online: ClassVar[tuple[str, ...]] = ()
    while_running: ClassVar[tuple[str, ...]] = ()
    """What it knows of a node, or of a node and more, until that goes offline, or its process ends."""
    scene: Scene

    def fail(self, node: NodeId | None, text: str) -> None:
        """Nothing is promised of what a liar does itself."""
        if node not in self.scene.plan.liars:
            raise Violation(type(self).__name__, node, text)

    def gone(self, node: NodeId) -> None:
        self._forget(node, self.while_online)

    def restarted(self, node: NodeId, disk_is_lost: bool) -> None:
        self._forget(node, self.while_running)

    def _forget(self, node: NodeId, fields: tuple[str, ...]) -> None:
        for known in (getattr(self, field) for field in fields):
            for key in list(known):
                if node == (key[0] if isinstance(key, tuple) else key):
                    del known[key]


class PlexusChecker(Checker):
    """Looks at nodes of Plexus alone."""


def facts_in(effects: list[Effect], kind: type[T]) -> list[T]:
    """What is reported of this kind."""
    return [each.fact for each in effects if isinstance(each, Report) and isinstance(each.fact, kind)]


def sends_in(effects: list[Effect], kind: type[M]) -> list[tuple[tuple[NodeId, ...], M]]:
    """The messages of this kind that are sent, and to whom."""
    return [
        (each.to, each.body) for each in effects if isinstance(each, Send) and isinstance(each.body, kind)
    ]


def refusals(effects: list[Effect]) -> set[tuple[NodeId, str]]:
    """Who is not believed, and what."""
    return {(fact.src, fact.what) for fact in facts_in(effects, Refused)}


def is_refused(machine: PlexusNode, received: Received, effects: list[Effect]) -> bool:
    """Whether a request was not believed: its sender is named, or others are asked about the round."""
    if not machine.trust.is_wary:
        return False
    named = not refusals(effects).isdisjoint({(received.src, TO_TRAIN), (received.src, A_MODEL)})
    return named or machine.watchdog.k_seen < received.body.round
