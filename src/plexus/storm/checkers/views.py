"""Views that are told as what others lack say as much as whole ones."""

from __future__ import annotations

from plexus.protocol.api import Effect, Event, Received
from plexus.protocol.facts import Refused
from plexus.protocol.messages import NAME_BYTES, AggregateRequest, Message, NodeId, ViewReply, ViewRequest
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.view import Excerpt, Snapshot
from plexus.storm.checkers.api import PlexusChecker, facts_in, sends_in


class NothingIsLeftOut(PlexusChecker):
    """Who is told what differs from a view that it has knows all that its teller knew. Who lacks that view
    asks for it; who asked, and was told in such a way, names the teller and waits for another."""

    _known: dict[tuple[NodeId, NodeId, int], list[Snapshot]] = {}
    """(who, whom, round) → what who knew when it sent a model."""
    _lacked: bool = False
    _was_joining: bool = False
    _restarted: set[NodeId] = set()
    _said: dict[NodeId, set[bytes]] = {}
    """The names in the questions of each node."""

    def before(self, node: NodeId, event: Event) -> None:
        machine = self.scene.plexus(node)
        told = getattr(event.body, "view", None) if isinstance(event, Received) else None
        self._lacked = told is not None and machine.membership.lacking.lacks(told)
        self._was_joining = machine.joining.is_under_way

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        if not isinstance(event, Received) or not isinstance(event.body, AggregateRequest | ViewReply):
            return
        if not isinstance(event.body.view, Excerpt):
            return
        machine, src = self.scene.plexus(node), event.src
        if isinstance(event.body, ViewReply):
            if self._lacked:
                self._is_named(machine, src, event.body.view.base, effects)
        elif self._lacked:
            if (src,) not in [to for to, _ in sends_in(effects, ViewRequest)]:
                self.fail(node, f"lacks a view that node {src} refers to, and does not ask for it")
        elif not self.scene.plan.is_wary:
            mine = machine.view.snapshot().events
            if all((known.events > mine).any() for known in self._known[src, node, event.body.round]):
                self.fail(node, f"does not know what node {src} did")

    def _is_named(self, machine: PlexusNode, src: NodeId, base: bytes, effects: list[Effect]) -> None:
        if self._was_joining and not machine.joining.is_under_way:
            self.fail(machine.me, f"is content with the answer of node {src}")
        if base in self._said.get(machine.me, ()):  # and given up before the answer came
            return
        if src not in [fact.src for fact in facts_in(effects, Refused)]:
            self.fail(machine.me, f"was told nothing by node {src}, and does not say so")
        if src not in self.scene.plan.liars and machine.me not in self._restarted:
            self.fail(machine.me, f"is referred by node {src} to a view that it never had")

    def sent(self, src: NodeId, to: tuple[NodeId, ...], body: Message) -> None:
        if isinstance(body, AggregateRequest):
            for node in to:
                self._known.setdefault((src, node, body.round), []).append(body.view.whole)
        elif isinstance(body, ViewRequest):
            names = [body.asks[at : at + NAME_BYTES] for at in range(0, len(body.asks), NAME_BYTES)]
            self._said.setdefault(src, set()).update(names[2:])

    def restarted(self, node: NodeId, disk_is_lost: bool) -> None:
        self._restarted.add(node)
