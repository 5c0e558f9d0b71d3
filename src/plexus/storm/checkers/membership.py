"""Membership: views only move forward, and say as much where only what others lack is told; a counter belongs
to its owner; who is not there does nothing."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from plexus.protocol import api, messages
from plexus.protocol.api import BandwidthMeasured, Effect, Event, Received, WentOffline, WentOnline
from plexus.protocol.baselines.dpsgd import DpsgdNode, DpsgdParameters
from plexus.protocol.facts import Refused
from plexus.protocol.messages import AggregateRequest, Joined, Left, Message, NodeId, Ping, Pong
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.view import JOINED, LEFT, SUSPECTED, Excerpt, Snapshot, event_number
from plexus.storm.checkers.api import Checker, PlexusChecker, facts_in, sends_in

RAISES = (WentOnline, WentOffline, BandwidthMeasured)
"""By these a node raises its counter."""


class ViewChecker(Checker):
    """Looks at the views of nodes whenever they change."""

    while_running: ClassVar[tuple[str, ...]] = ("_last",)
    _last: dict[NodeId, Snapshot] = {}
    _forgetful: set[NodeId] = set()
    """Those whose disks were lost."""

    def settled(self, node: NodeId) -> None:
        machine = self.scene.node(node)
        if not isinstance(machine, DpsgdNode):
            view, last = machine.membership.view.snapshot(), self._last.get(node)
            if view is not last:
                self._last[node] = view
                self.changed(node, view, last)

    def restarted(self, node: NodeId, disk_is_lost: bool) -> None:
        super().restarted(node, disk_is_lost)
        if disk_is_lost:
            self._forgetful.add(node)

    def changed(self, node: NodeId, view: Snapshot, last: Snapshot | None) -> None:
        """The node has this view now; None: a process that has just begun."""


class ViewsMoveForward(ViewChecker):
    """What a process knows of any node is never replaced by something older, and what belongs to an
    event stays with it."""

    def changed(self, node: NodeId, view: Snapshot, last: Snapshot | None) -> None:
        if last is None:
            return
        size = len(last.events)
        older = view.events[:size] < last.events
        if older.any():
            other = int(older.argmax())
            self.fail(node, f"knew event {last.events[other]} of node {other}, now {view.events[other]}")
        changed = (view.bandwidths[:size] != last.bandwidths) & (view.events[:size] == last.events)
        if changed.any():
            self.fail(node, f"another bandwidth of node {int(changed.argmax())} by the same event")


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
        if not isinstance(event, Received) or not isinstance(
            event.body, AggregateRequest | messages.ViewReply
        ):
            return
        if not isinstance(event.body.view, Excerpt):
            return
        machine, src = self.scene.plexus(node), event.src
        if isinstance(event.body, messages.ViewReply):
            if self._lacked:
                self._is_named(machine, src, event.body.view.base, effects)
        elif self._lacked:
            if (src,) not in [to for to, _ in sends_in(effects, messages.ViewRequest)]:
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
        elif isinstance(body, messages.ViewRequest):
            size = messages.NAME_BYTES
            names = [body.asks[at : at + size] for at in range(0, len(body.asks), size)]
            self._said.setdefault(src, set()).update(names[2:])

    def restarted(self, node: NodeId, disk_is_lost: bool) -> None:
        self._restarted.add(node)


class BandwidthsAgree(ViewChecker):
    """Wherever two views hold the same event of a node, they hold the same bandwidth: the one that it told
    with this event. A node whose disk was lost may repeat an event with another one."""

    _bandwidth_of: dict[tuple[NodeId, int], int] = {}
    """(node, its event) → bytes per second."""

    def changed(self, node: NodeId, view: Snapshot, last: Snapshot | None) -> None:
        for of in np.flatnonzero(view.events != (last or self.scene.initial_view).events).tolist():
            self._compare(node, of, int(view.events[of]), int(view.bandwidths[of]))

    def sent(self, src: NodeId, to: tuple[NodeId, ...], body: Message) -> None:
        if isinstance(body, Joined):
            self._compare(src, src, event_number(body.counter, JOINED), body.bandwidth_bytes_per_s)

    def _compare(self, node: NodeId, of: NodeId, event: int, bandwidth_bytes_per_s: int) -> None:
        known = self._bandwidth_of.setdefault((of, event), bandwidth_bytes_per_s)
        if known != bandwidth_bytes_per_s and of not in self._forgetful:
            self.fail(node, f"event {event} of node {of}: {bandwidth_bytes_per_s} B/s, others know {known}")


class ComingAndGoingIsTold(Checker):
    """Whoever comes, or leaves with a goodbye, tells as many others as the session says: those believed
    online first, and others if these are too few. It does so before it is gone. In Plexus, whoever comes
    pings some before it tells anybody."""

    _unsaid: dict[NodeId, int] = {}
    """Node → how many are still to be told of its newest event."""
    _coming: set[NodeId] = set()
    """Those that have come and look around before they tell."""
    _said: dict[NodeId, list[tuple[NodeId, ...]]] = {}

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        machine, parameters = self.scene.node(node), self.scene.plan.parameters
        if isinstance(event, WentOnline):
            self._coming.add(node)
            asks = sends_in(effects, Ping)
            if isinstance(machine, PlexusNode) and len(machine.membership.view) > 1 and not asks:
                self.fail(node, "comes, and asks nobody")
        is_due = isinstance(event, RAISES)
        if node in self._coming and isinstance(machine, PlexusNode):
            is_due = not machine.joining.is_under_way or isinstance(event, WentOffline)
        if not is_due:
            return
        self._coming.discard(node)
        doomed_after = self.scene.runtime.doomed.get(node, len(effects))
        if isinstance(machine, DpsgdNode) or isinstance(parameters, DpsgdParameters):
            return
        if doomed_after < len(effects):  # its power fails before it has said all
            self._unsaid.pop(node, None)
            return
        self._unsaid[node] = min(parameters.advertise_to, len(machine.membership.view) - 1)

    def sent(self, src: NodeId, to: tuple[NodeId, ...], body: Message) -> None:
        if src not in self._unsaid or not isinstance(body, Joined | Left):
            return
        machine = self.scene.node(src)
        assert not isinstance(machine, DpsgdNode)
        believed = {other for other in machine.membership.view.actives() if other != src}
        if src in to:
            self.fail(src, f"sends its {type(body).__name__} to itself")
        if believed <= set(to) or set(to) <= believed:
            self._said.setdefault(src, []).append(to)

    def settled(self, node: NodeId) -> None:
        self._all_told(node)

    def gone(self, node: NodeId) -> None:
        self._all_told(node)
        self._coming.discard(node)

    def _all_told(self, node: NodeId) -> None:
        due, said = self._unsaid.pop(node, 0), self._said.pop(node, [])
        if due and not any(len(set(to)) == due for to in said):
            self.fail(node, f"came or went, and told {said} of {due} that are to be told")


class CountersBelongToTheirOwner(ViewChecker):
    """A counter is raised by its owner alone, on disk before anybody hears, and never used again, across
    crashes too. A node whose disk was lost may repeat counters until somebody tells it the last one that it
    used."""

    while_running = ("_last", "_counters")
    _counters: dict[NodeId, int] = {}
    _told: NDArray[np.int64] = np.empty(0, np.int64)
    """The newest event that each node has told anybody of itself."""
    _meaning: dict[tuple[NodeId, int], Message] = {}

    def __post_init__(self) -> None:
        self._told = self.scene.initial_view.events.astype(np.int64)

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        machine = self.scene.node(node)
        if isinstance(machine, DpsgdNode):
            return
        counter, last = machine.membership.counter, self._counters.get(node)
        if last is not None and counter != last and node not in self._forgetful:
            if counter < last:
                self.fail(node, f"its counter fell from {last} to {counter}")
            if not isinstance(event, RAISES) and not self._is_refuted(node, event, last):
                self.fail(node, f"its counter rose to {counter} by a {type(event).__name__}")
        if counter != last:
            self._counters[node] = counter
            own = machine.membership.view.event_of(node)
            if own <= self._told[node] and node not in self._forgetful:
                self.fail(node, f"uses counter {counter} again")

    def changed(self, node: NodeId, view: Snapshot, last: Snapshot | None) -> None:
        # That somebody is suspected is what others say of its joined event.
        claimed = np.where(view.events & 3 == SUSPECTED, view.events - SUSPECTED + JOINED, view.events)
        invented = claimed > self._told[: len(view.events)]
        invented[node] = False
        if invented.any():
            other = int(invented.argmax())
            told = f"which told nobody more than {self._told[other]}"
            self.fail(node, f"believes event {view.events[other]} of node {other}, {told}")

    def sent(self, src: NodeId, to: tuple[NodeId, ...], body: Message) -> None:
        if isinstance(body, Joined | Left):
            self._announced(src, body)
        elif hasattr(body, "view"):
            self._told[src] = max(self._told[src], body.view.event_of(src))

    def _is_refuted(self, node: NodeId, event: Event, counter: int) -> bool:
        """Whether the event told the node that others hold it to be gone, or know a later event of it."""
        body = getattr(event, "body", None)
        known = 0
        if isinstance(body, Pong):
            known = body.event
        elif body is not None and hasattr(body, "view"):
            known = body.view.event_of(node)
        if self.scene.plan.is_wary and known - (known & 3 == SUSPECTED) > self._told[node]:
            return False  # it never said so
        return bool(known > event_number(counter, JOINED))

    def _announced(self, src: NodeId, body: Joined | Left) -> None:
        on_disk = self.scene.runtime.disks[src].newest
        if on_disk is None or on_disk.counter < body.counter:
            self.fail(src, f"tells others of counter {body.counter} before it is on its disk")
        before = self._meaning.setdefault((src, body.counter), body)
        if before != body and src not in self._forgetful:
            self.fail(src, f"{body} after {before}")
        event = event_number(body.counter, JOINED if isinstance(body, Joined) else LEFT)
        self._told[src] = max(self._told[src], event)


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
        if flows := runtime.network.sharing.flows_of(node):
            self.fail(node, f"its transfer {flows[0]} goes on")
        for target, event in runtime.kernel.pending():
            if target == node and isinstance(event, api.TimerFired | api.Trained):
                self.fail(node, f"{event} would still reach it")
