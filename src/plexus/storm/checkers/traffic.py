"""Bytes and rates add up."""

from __future__ import annotations

from plexus.protocol.api import Received
from plexus.protocol.messages import Message, NodeId
from plexus.storm.checkers.api import Checker, Scene

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
        in_flight = sum(
            event.size_bytes for _, event in runtime.kernel.pending() if isinstance(event, Received)
        )
        there = sent + runtime.network.duplicated_bytes
        found = sum(accounts.received_bytes) + accounts.lost_bytes + accounts.cut_bytes + in_flight
        if there != found:
            self.fail(None, f"{there} B were sent or duplicated, {found} B are accounted for")


class LinksHold(Checker):
    """No flow, nor all flows of a link together, exceed the link."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._touched: set[NodeId] = set()

    def sent(self, src: NodeId, to: tuple[NodeId, ...], body: Message) -> None:
        if hasattr(body, "model"):
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
