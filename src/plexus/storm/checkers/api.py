"""What a checker sees, and how it says that something is wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from plexus.protocol.api import Effect, Event
from plexus.protocol.messages import Message, NodeId
from plexus.protocol.view import Snapshot
from plexus.storm.nodes import AnyNode
from plexus.storm.plan import Plan
from plexus.storm.runtime import NodeObserver, StormRuntime


class Violation(Exception):  # noqa: N818  (what was found, not what failed)
    """An invariant does not hold."""

    def __init__(self, invariant: str, node: NodeId | None, text: str) -> None:
        super().__init__(invariant, node, text)
        self.invariant = invariant
        self.node = node
        self.text = text

    def __str__(self) -> str:
        where = "" if self.node is None else f" at node {self.node}"
        return f"{self.invariant}{where}: {self.text}"


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

    def online(self) -> list[NodeId]:
        return [node for node, online in enumerate(self.runtime.online) if online]


class Checker(NodeObserver):
    """One invariant. It overrides what it needs to see."""

    reads_labels = False
    """Whether it needs models that tell where they come from."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    def sent(self, src: NodeId, to: tuple[NodeId, ...], body: Message) -> None:
        """`src` hands a message to the network."""

    def restarted(self, node: NodeId, disk_is_lost: bool) -> None:
        """Another process took the place of `node`."""

    def reported(self, node: NodeId, fact: Any) -> None:
        """The node reported a fact."""

    def tick(self) -> None:
        """Some time has passed."""

    def fail(self, node: NodeId | None, text: str) -> None:
        raise Violation(type(self).__name__, node, text)


class Checkers(NodeObserver):
    """Several checkers, each asked only for what it looks at."""

    def __init__(self, checkers: Sequence[Checker]) -> None:
        def those(hook: str) -> list[Callable[..., None]]:
            return [
                getattr(checker, hook)
                for checker in checkers
                if getattr(type(checker), hook) is not getattr(Checker, hook)
            ]

        self._before, self._after = those("before"), those("after")
        self._settled, self._gone = those("settled"), those("gone")
        self._sent, self._restarted = those("sent"), those("restarted")
        self._reported, self._tick = those("reported"), those("tick")

    def before(self, node: NodeId, event: Event) -> None:
        for look in self._before:
            look(node, event)

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        for look in self._after:
            look(node, event, effects)

    def settled(self, node: NodeId) -> None:
        for look in self._settled:
            look(node)

    def gone(self, node: NodeId) -> None:
        for look in self._gone:
            look(node)

    def sent(self, src: NodeId, to: tuple[NodeId, ...], body: Message) -> None:
        for look in self._sent:
            look(src, to, body)

    def restarted(self, node: NodeId, disk_is_lost: bool) -> None:
        for look in self._restarted:
            look(node, disk_is_lost)

    def reported(self, node: NodeId, fact: Any) -> None:
        for look in self._reported:
            look(node, fact)

    def tick(self) -> None:
        for look in self._tick:
            look()
