"""Whoever has something to do waits for something that will come."""

from __future__ import annotations

from plexus.protocol.baselines.gossip import GossipNode
from plexus.protocol.baselines.rounds import ROUND
from plexus.protocol.messages import NodeId
from plexus.protocol.plexus import AGGREGATOR, PlexusNode
from plexus.storm.checkers.api import Checker


class NothingStalls(Checker):
    """Every wait of an online node has a timeout, and work that is begun is under way."""

    def settled(self, node: NodeId) -> None:
        machine = self.scene.node(node)
        if isinstance(machine, PlexusNode):
            self._plexus(node, machine)
        elif isinstance(machine, GossipNode):
            self._armed(node, ("send", 0), "will never send again")
            self._heard(node, machine)
        elif not any(name == ROUND for name, _ in self.scene.runtime.timers_of(node)):
            self.fail(node, "its round will never end")

    def _plexus(self, node: NodeId, machine: PlexusNode) -> None:
        task = machine.training
        if task.awaited is not None:
            self._armed(node, ("ack", 0), f"waits for an ack of {task.awaited} for ever")
        elif task.trained is not None:
            if not machine.sampler.is_searching(AGGREGATOR):
                self.fail(node, "has trained, and looks for no aggregator")
        elif task.busy and not self.scene.runtime.is_training(node):
            self.fail(node, "is busy, but neither trains nor sends")
        if machine.aggregation.collecting:
            self._armed(node, ("aggregation", 0), "waits for models for ever")
        self._armed(node, ("watchdog", 0), "has no watchdog")
        self._heard(node, machine)
        for exchange in machine.sampler.exchanges:
            self._armed(node, ("ping", exchange), "waits for pongs for ever")

    def _heard(self, node: NodeId, machine: PlexusNode | GossipNode) -> None:
        if not machine.membership.contacted:
            self._armed(node, ("readvertise", 0), "nobody heard of it, and it tells nobody")

    def _armed(self, node: NodeId, key: tuple[str, int], otherwise: str) -> None:
        if key not in self.scene.runtime.timers_of(node):
            self.fail(node, otherwise)
