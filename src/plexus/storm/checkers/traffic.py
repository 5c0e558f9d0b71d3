"""Bytes and rates add up, and whoever has something to do waits for something that will come."""

from __future__ import annotations

from plexus.protocol.api import Received
from plexus.protocol.baselines.gossip import GossipNode
from plexus.protocol.baselines.rounds import ROUND
from plexus.protocol.joining import COMING
from plexus.protocol.messages import Message, NodeId
from plexus.protocol.participant import AGGREGATOR, LATE
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.quorum import PURPOSES
from plexus.sim.network import is_transfer
from plexus.storm.checkers.api import Checker

ROUNDING = 1e-9


class AccountsBalance(Checker):
    """What was sent, and what the network added to it, was received, lost, cut or is in flight: to the
    byte. What each node sent is what was sent of each kind of message."""

    def tick(self) -> None:
        runtime = self.scene.runtime
        accounts = runtime.accounts
        sent = sum(accounts.sent_bytes)
        by_kind = sum(entry["bytes"] for entry in accounts.table().values())
        if sent != by_kind:
            self.fail(None, f"nodes sent {sent} B, of all kinds {by_kind} B were sent")
        pending = (event for _, event in runtime.kernel.pending())
        in_flight = sum(event.size_bytes for event in pending if isinstance(event, Received))
        there = sent + runtime.network.duplicated_bytes
        found = sum(accounts.received_bytes) + accounts.lost_bytes + accounts.cut_bytes + in_flight
        if there != found:
            self.fail(None, f"{there} B were sent or duplicated, {found} B are accounted for")


class LinksHold(Checker):
    """No flow, nor all flows of a link together, exceed the link."""

    _touched: set[NodeId] = set()

    def sent(self, src: NodeId, to: tuple[NodeId, ...], body: Message) -> None:
        if is_transfer(body):
            self._touched.update((src, *to))

    def settled(self, node: NodeId) -> None:
        for touched in self._touched:
            self._check(touched)
        self._touched.clear()

    def tick(self) -> None:
        for node in range(self.scene.plan.nodes):
            self._check(node)

    def _check(self, node: NodeId) -> None:
        for link in self.scene.runtime.network.sharing.links_of(node):
            used = sum(flow.rate_bytes_per_s for flow in link.flows)
            if used > link.capacity_bytes_per_s * (1 + ROUNDING):
                self.fail(node, f"{used:g} B/s over a link of {link.capacity_bytes_per_s:g} B/s")


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
            self._armed(node, ("look", 0), f"does not see whether {task.awaited} is still there")
        elif task.trained is not None:
            if not machine.sampler.is_searching(AGGREGATOR):
                self.fail(node, "has trained, and looks for no aggregator")
        elif task.busy and not self.scene.runtime.is_training(node):
            self.fail(node, "is busy, but neither trains nor sends")
        if machine.late.awaited is not None:
            self._armed(node, ("late ack", 0), f"waits for an answer of {machine.late.awaited} for ever")
        elif machine.late.current is not None and not machine.sampler.is_searching(LATE):
            self.fail(node, "has a late model, and looks for nobody who takes it")
        if machine.aggregation.collecting:
            self._armed(node, ("aggregation", 0), "waits for models for ever")
        self._armed(node, ("watchdog", 0), "has no watchdog")
        if machine.joining.is_under_way and not machine.sampler.is_searching(COMING):
            self._armed(node, ("view", 0), "waits for a view for ever")
        for number, purpose in enumerate(PURPOSES):
            if machine.quorum.is_waiting(purpose) and not machine.sampler.is_searching(purpose):
                self._armed(node, ("quorum", number), "waits for a quorum for ever")
        self._heard(node, machine)
        for exchange in machine.sampler.exchanges:
            self._armed(node, ("ping", exchange), "waits for pongs for ever")

    def _heard(self, node: NodeId, machine: PlexusNode | GossipNode) -> None:
        if not machine.membership.contacted:
            self._armed(node, ("readvertise", 0), "nobody heard of it, and it tells nobody")

    def _armed(self, node: NodeId, key: tuple[str, int], otherwise: str) -> None:
        if key not in self.scene.runtime.timers_of(node):
            self.fail(node, otherwise)
