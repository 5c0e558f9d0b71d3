"""The simulator's runtime with what a storm needs besides: disks, drifting clocks, power cuts, witnesses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plexus.protocol.api import Durable, Effect, Event, Save, SetTimer
from plexus.protocol.messages import NodeId
from plexus.protocol.view import Snapshot
from plexus.sim.network import INTERNAL
from plexus.sim.runtime import Runtime
from plexus.storm.network import FaultyNetwork
from plexus.storm.nodes import AnyNode


class Disk:
    """What a node finds again after a crash: its newest counter and view, and the newest or, since
    models are written in the background, the last but one of its models."""

    def __init__(self) -> None:
        self.newest: Durable | None = None
        self.before: Durable | None = None
        self.view: Snapshot | None = None

    def write(self, state: Durable, view: Snapshot | None) -> None:
        if self.newest is None or state.round != self.newest.round:
            self.before = self.newest
        self.newest, self.view = state, view

    def read(self, lagging: bool) -> Durable | None:
        if self.newest is None:
            return None
        model = self.before if lagging and self.before is not None else self.newest
        return Durable(self.newest.counter, model.round, model.model)


class Watched:
    """A node as the runtime sees it: with its own clock, and somebody who looks on."""

    def __init__(self, node: AnyNode, me: NodeId, witness: Witness) -> None:
        self.node = node
        self.me = me
        self.offset_s = 0.0
        self.drift = 0.0
        self._witness = witness

    def clock_s(self, now: float) -> float:
        return self.offset_s + now * (1 + self.drift)

    def handle(self, now: float, event: Event) -> list[Effect]:
        self._witness.before(self.me, event)
        effects = self.node.handle(self.clock_s(now), event)
        self._witness.after(self.me, event, effects)
        return effects


class Witness:
    """Who looks on. Nothing it does has an influence."""

    def before(self, node: NodeId, event: Event) -> None:
        """The node is about to handle `event`."""

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        """The node has handled `event`; `effects` are still to be performed."""

    def settled(self, node: NodeId) -> None:
        """The effects have been performed."""

    def gone(self, node: NodeId) -> None:
        """The node went offline, by a leave or a crash."""


class StormRuntime(Runtime):
    """Performs the effects of watched nodes. All that is new is what deployments have and simulations
    do without: disks, clocks, and power that fails at any moment."""

    network_type = FaultyNetwork
    network: FaultyNetwork
    nodes: list[Watched]

    def __init__(self, *, witness: Witness, **options: Any) -> None:
        super().__init__(**options)
        self.disks = [Disk() for _ in self.nodes]
        self.doomed: dict[NodeId, int] = {}
        """After how many more effects the power of these nodes fails."""
        self.on_doom: Callable[[NodeId], None]
        self._witness = witness

    def bring_online(self, node: NodeId) -> None:
        if not self.online[node]:
            super().bring_online(node)
            self._settled(node)

    def crash(self, node: NodeId) -> None:
        if self.online[node]:
            super().crash(node)
            self.doomed.pop(node, None)
            self._witness.gone(node)

    def _deliver(self, target: int, event: Any) -> None:
        super()._deliver(target, event)
        if target != INTERNAL:
            self._settled(target)

    def _settled(self, node: NodeId) -> None:
        if self.online[node]:
            self._witness.settled(node)

    def _perform(self, node: NodeId, effects: list[Effect]) -> None:
        left = self.doomed.get(node)
        if left is None or left >= len(effects):
            super()._perform(node, effects)
            return
        super()._perform(node, effects[:left])
        self.on_doom(node)
        self.crash(node)

    def _set_timer(self, node: NodeId, effect: SetTimer) -> None:
        drift = self.nodes[node].drift
        if drift:
            effect = SetTimer(effect.key, effect.delay_s / (1 + drift))
        super()._set_timer(node, effect)

    def _save(self, node: NodeId, effect: Save) -> None:
        membership = getattr(self.nodes[node].node, "membership", None)
        view = membership.view.snapshot() if membership is not None else None
        self.disks[node].write(effect.state, view)
