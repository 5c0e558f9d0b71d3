"""The simulator's runtime with what a storm needs besides: disks, drifting clocks, power cuts, observers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any

from plexus.protocol.api import Durable, Effect, Event, Offered, PeerLost, Save, SetTimer
from plexus.protocol.messages import Message, NodeId
from plexus.sim.network import INTERNAL
from plexus.sim.runtime import Runtime
from plexus.sim.session import Nodes, Setting
from plexus.storm.network import FaultyNetwork
from plexus.storm.nodes import AnyNode

NOTICED, NOTICED_AFTER_S = 0.7, 12.0
"""The share of losses that connections notice, and within which time."""


class Disk:
    """What a node finds again after a crash: its newest counter and view, and the newest or, since
    models are written in the background, the last but one of its models."""

    def __init__(self) -> None:
        self.newest: Durable | None = None
        self.before: Durable | None = None

    def write(self, state: Durable) -> None:
        if self.newest is None or state.round != self.newest.round:
            self.before = self.newest
        self.newest = state

    def read(self, lagging: bool) -> Durable | None:
        if self.newest is None:
            return None
        model = self.before if lagging and self.before is not None else self.newest
        held = model.round, model.model, self.newest.view, model.ordinal
        return Durable(self.newest.counter, *held, self.newest.ended)


class ObservedNode:
    """A node as the runtime sees it: with its own clock, and somebody who looks on."""

    def __init__(self, node: AnyNode, me: NodeId, observers: NodeObservers) -> None:
        self.node = node
        self.me = me
        self.offset_s = 0.0
        self.drift = 0.0
        self._tell = observers.tell

    def clock_s(self, now: float) -> float:
        return self.offset_s + now * (1 + self.drift)

    def handle(self, now: float, event: Event) -> list[Effect]:
        self._tell("before", self.me, event)
        effects = self.node.handle(self.clock_s(now), event)
        self._tell("after", self.me, event, effects)
        return effects


class NodeObserver:
    """Who looks on. It overrides what it needs to see; nothing it does has an influence."""

    def before(self, node: NodeId, event: Event) -> None:
        """The node is about to handle `event`."""

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        """The node has handled `event`; `effects` are still to be performed."""

    def settled(self, node: NodeId) -> None:
        """The effects have been performed."""

    def gone(self, node: NodeId) -> None:
        """The node went offline, by a leave or a crash."""

    def sent(self, src: NodeId, to: tuple[NodeId, ...], body: Message) -> None:
        """`src` hands a message to the network."""

    def lost(self, src: NodeId, dst: NodeId, body: Message, why: str) -> None:
        """The network has lost a message."""

    def restarted(self, node: NodeId, disk_is_lost: bool) -> None:
        """Another process took the place of `node`."""

    def noted(self, node: NodeId, text: str) -> None:
        """Something happens to the node, in words."""

    def reported(self, node: NodeId, fact: Any) -> None:
        """The node reported a fact."""

    def tick(self) -> None:
        """Some time has passed."""

    def ended(self) -> None:
        """The storm is long over, and all is well again."""


HOOKS = [name for name in vars(NodeObserver) if not name.startswith("_")]


class NodeObservers:
    """All who look on, each asked only for what it looks at."""

    def __init__(self) -> None:
        self._looks: dict[str, list[Callable[..., None]]] = {hook: [] for hook in HOOKS}

    def add(self, *observers: NodeObserver) -> None:
        for observer in observers:
            for hook, looks in self._looks.items():
                if getattr(type(observer), hook) is not getattr(NodeObserver, hook):
                    looks.append(getattr(observer, hook))

    def tell(self, hook: str, *what: Any) -> None:
        for look in self._looks[hook]:
            look(*what)


class StormRuntime(Runtime):
    """Performs the effects of watched nodes. All that is new is what deployments have and simulations
    do without: disks, clocks, and power that fails at any moment."""

    network_type = FaultyNetwork
    network: FaultyNetwork
    nodes: list[ObservedNode]

    def __init__(
        self, observers: NodeObservers, notices: Random | None, setting: Setting, taking_part: Nodes
    ) -> None:
        """`notices` draws what connections notice, and when; None where there are no connections."""
        super().__init__(setting, taking_part, lambda _, node, fact: observers.tell("reported", node, fact))
        self.disks = [Disk() for _ in self.nodes]
        self.doomed: dict[NodeId, int] = {}
        """After how many more effects the power of these nodes fails."""
        self.show = self.network.show = observers.tell
        self._notices = notices
        self._presences = [0] * len(self.nodes)
        """How often each node came online: what it had under way before concerns it no more."""
        self.network.on_offered = self._offer
        self.network.on_undelivered = self._notice_later

    def bring_online(self, node: NodeId) -> None:
        if not self.online[node]:
            self._presences[node] += 1
            super().bring_online(node)
            self._settled(node)

    def crash(self, node: NodeId) -> None:
        if self.online[node]:
            super().crash(node)
            self.doomed.pop(node, None)
            self.show("gone", node)
            for other in range(len(self.nodes)) if self._notices else ():
                self._notice_later(other, PeerLost(node))

    def _deliver(self, target: int, event: Any) -> None:
        super()._deliver(target, event)
        if target != INTERNAL:
            self._settled(target)
            if self._notices is not None and self.online[target]:
                self.network.withdraw(target, self.nodes[target].node.is_obsolete)

    def _offer(self, src: NodeId, to: Sequence[NodeId], body: Message) -> None:
        """On a connection, the message comes ahead of its model."""
        if self._notices is not None:
            self.kernel.spread(to, self.network.delays_s(src, to), Offered(src, body))

    def _notice_later(self, node: NodeId, event: Event) -> None:
        if self._notices is None or not self.online[node] or self._notices.random() > NOTICED:
            return
        at_s = self.kernel.now + NOTICED_AFTER_S * self._notices.random()
        self.call_at(at_s, partial(self._notice, node, self._presences[node], event))

    def _notice(self, node: NodeId, presence: int, event: Event) -> None:
        if self.online[node] and self._presences[node] == presence:
            self._deliver(node, event)

    def _settled(self, node: NodeId) -> None:
        if self.online[node]:
            self.show("settled", node)

    def _perform(self, node: NodeId, effects: list[Effect]) -> None:
        left = self.doomed.get(node)
        if left is None or left >= len(effects):
            super()._perform(node, effects)
            return
        super()._perform(node, effects[:left])
        self.show("noted", node, "loses power")
        self.crash(node)

    def _set_timer(self, node: NodeId, effect: SetTimer) -> None:
        drift = self.nodes[node].drift
        if drift:
            effect = SetTimer(effect.key, effect.delay_s / (1 + drift))
        super()._set_timer(node, effect)

    def _save(self, node: NodeId, effect: Save) -> None:
        self.disks[node].write(effect.state)
