"""Nodes that are not there do nothing, and nothing of theirs is left."""

from __future__ import annotations

from plexus.protocol.api import Event, TimerFired, Trained
from plexus.protocol.messages import Message, NodeId
from plexus.storm.checkers.api import Checker


class OfflineIsSilent(Checker):
    """Nothing is sent, trained or aggregated by an offline node, and nothing reaches it."""

    def before(self, node: NodeId, event: Event) -> None:
        if not self.scene.runtime.online[node]:
            self.fail(node, f"{type(event).__name__} reached it while it was offline")

    def sent(self, src: NodeId, to: tuple[NodeId, ...], body: Message) -> None:
        if not self.scene.runtime.online[src]:
            self.fail(src, f"sent a {type(body).__name__} while it was offline")


class GoneIsGone(Checker):
    """Every timer, training and transfer of a node that went offline is gone with it."""

    def gone(self, node: NodeId) -> None:
        runtime = self.scene.runtime
        if runtime.timers_of(node):
            self.fail(node, f"its timers {list(runtime.timers_of(node))} are still set")
        if runtime.is_training(node):
            self.fail(node, "still trains")
        flows = runtime.network.sharing.flows_of(node)
        if flows:
            self.fail(node, f"its transfer {flows[0]} goes on")
        for target, event in runtime.kernel.pending():
            if target == node and isinstance(event, TimerFired | Trained):
                self.fail(node, f"{event} would still reach it")
