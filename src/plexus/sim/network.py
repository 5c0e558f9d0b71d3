"""The simulated network: the transfers under way, and the accounts of what is carried.

Control messages take the latency, models and views a share of both ends' bandwidth.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from math import inf
from typing import Protocol

from plexus.protocol.api import Received
from plexus.protocol.messages import NAMES, VIEW, Message, NodeId, Pong
from plexus.protocol.wire import frame_bytes, view_bytes
from plexus.sim.kernel import Kernel, Token
from plexus.sim.many import MAIL, Mail
from plexus.sim.sharing import Flow, Sharing
from plexus.traces.world import Latency

INTERNAL = -1
"""The kernel target of the simulator's own events, which are callables."""


@cache
def _carries(kind: type[Message]) -> tuple[bool, bool]:
    """Whether messages of this kind have a model, and a view."""
    return "model" in kind.__struct_fields__, "view" in kind.__struct_fields__


def is_transfer(body: Message) -> bool:
    """Whether it takes a share of the bandwidth, and not the latency alone: models do, and views."""
    return any(_carries(type(body)))


class Observer(Protocol):
    """Told of things as they happen. It must change nothing; without one nothing is spent on it."""

    def presence(self, now: float, node: NodeId, online: bool) -> None:
        """A node came online or went offline."""

    def training_began(self, now: float, node: NodeId, round: int) -> None: ...

    def training_ended(self, now: float, node: NodeId, completed: bool) -> None:
        """The device is done, or a newer round or the end of its presence interrupted it."""

    def transfer_began(self, now: float, flow: Flow) -> None:
        """A model leaves `flow.src` for `flow.dst`; `flow.tag` is what will be received."""

    def transfer_ended(self, now: float, flow: Flow, arrival_s: float | None) -> None:
        """The last byte was sent now and arrives then; None: the transfer was cut now."""

    def struck(self, now: float, node: NodeId, kind: str, until_s: float) -> None:
        """A fault that the experiment asked for concerns this node from now on (see `sim.faults`)."""


class Accounts:
    """Who sent how much of what: counts what leaves each node, and what arrives there or is lost."""

    def __init__(self, nodes: int) -> None:
        self.messages: dict[str, list[int]] = {
            name: [0, 0] for name in (*dict.fromkeys(NAMES.values()), VIEW)
        }
        """By type: [count, bytes sent]."""
        self._entries = {kind: self.messages[name] for kind, name in NAMES.items()}
        self.sent_bytes = [0] * nodes
        self.received_bytes = [0] * nodes
        self.lost_bytes = 0
        """Sent in full, but the receiver was offline when it was sent or arrived."""
        self.cut_bytes = 0
        """Sent of transfers that were cut: one end went offline, or the sender stopped."""
        self.lost_messages = 0
        self.training_s = array("d", bytes(8 * nodes))
        self.trainings = array("q", bytes(8 * nodes))
        """Those that came to their end."""

    def send_control(self, src: int, kind: type[Message], count: int, size_bytes: int) -> None:
        entry, sent = self._entries.get(kind) or self._entry(kind), count * size_bytes
        entry[0] += count
        entry[1] += sent
        self.sent_bytes[src] += sent

    def begin_transfers(self, kind: type[Message], count: int, has_view: bool) -> None:
        self._entry(kind)[0] += count
        self.messages[VIEW][0] += count * has_view

    def send_transfer(self, src: int, kind: type[Message], sent: int, view_bytes: int) -> None:
        """The frame with the view goes first: of a cut transfer, the model is what is missing."""
        of_view = min(sent, view_bytes)
        self.messages[VIEW][1] += of_view
        self._entry(kind)[1] += sent - of_view
        self.sent_bytes[src] += sent

    def _entry(self, kind: type[Message]) -> list[int]:
        entry = self._entries.get(kind)
        if entry is None:  # of a protocol of the user's own
            name = "model" if "model" in kind.__struct_fields__ else kind.__name__
            entry = self._entries[kind] = self.messages.setdefault(name, [0, 0])
        return entry

    def lose(self, count: int, size_bytes: int) -> None:
        self.lost_messages += count
        self.lost_bytes += count * size_bytes

    def table(self) -> dict[str, dict[str, int]]:
        return {name: {"count": c, "bytes": b} for name, (c, b) in self.messages.items()}


class Transfers:
    """All transfers under way: turns the rates of a sharing rule into instants of completion.

    Most changes of a rate do not change what happens next, so the kernel is not told of each. It holds
    one entry for each sending node, at or before the earliest completion among the node's flows. A
    change that brings a completion before the entry moves the entry; any other leaves it alone, and an
    entry that comes up too early is made again. Flows of one sender that end together stop together.
    """

    def __init__(
        self, sharing: Sharing, at: Callable[[float, Flow], Token], cancel: Callable[[Token], None]
    ) -> None:
        """`at(time_s, flow)` leads to a call of `completed(flow, time_s)` unless cancelled."""
        self.sharing = sharing
        self._at = at
        self._cancel = cancel
        self._tokens: list[Token | None] = [None] * len(sharing)
        self._entered_s = [inf] * len(sharing)
        """When each node's entry comes up; infinite where it has none."""

    def begin(self, flows: Sequence[Flow], now: float) -> None:
        """Start `flows`, all at this instant."""
        self.bring_forward(self.sharing.start(flows, now))

    def completed(self, flow: Flow, now: float) -> list[Flow]:
        """The entry made for `flow` came up: stop and return what its sender has sent completely.

        That is usually `flow`; it can be several flows, or none when rates have fallen since.
        """
        node = flow.src
        outgoing = self.sharing.sent_by(node)
        complete = [flow for flow in outgoing if flow.ends_s <= now]
        self._tokens[node] = None
        self._entered_s[node] = inf
        changed = self.sharing.stop(complete, now) if complete else []
        self.bring_forward([*outgoing, *changed])
        return complete

    def cut(self, flows: Sequence[Flow], now: float) -> None:
        """Abort these; each flow's `sent_bytes` had been sent."""
        self.bring_forward(self.sharing.stop(flows, now))
        for node in (flow.src for flow in flows if not self.sharing.sent_by(flow.src)):
            self._entered_s[node] = inf
            token, self._tokens[node] = self._tokens[node], None
            if token is not None:
                self._cancel(token)

    def bring_forward(self, changed: Iterable[Flow]) -> None:
        """Move the entries of nodes that now complete a flow before theirs comes up."""
        entered_s = self._entered_s
        earliest: dict[int, Flow] = {}
        for flow in changed:
            if flow.ends_s < entered_s[flow.src]:
                entered_s[flow.src] = flow.ends_s
                earliest[flow.src] = flow
        for node, flow in earliest.items():
            token = self._tokens[node]
            if token is not None:
                self._cancel(token)
            self._tokens[node] = self._at(flow.ends_s, flow)


class Network:
    """Carries messages between nodes and keeps the accounts."""

    def __init__(
        self,
        kernel: Kernel,
        latency: Latency,
        sharing: Sharing,
        model_bytes: int,
        online: Sequence[bool],
        accounts: Accounts,
        observer: Observer | None = None,
    ) -> None:
        self._kernel = kernel
        self._observer = observer
        self._city_of: list[int] = latency.city_of.tolist()
        self._between_s: list[list[float]] = latency.matrix_s.tolist()
        kernel.delays_s = lambda origins, targets: latency.matrix_s[
            latency.city_of[origins], latency.city_of[targets]
        ]
        self.sharing = sharing
        self._transfers = Transfers(sharing, self._at, kernel.cancel)
        self._model_bytes = model_bytes
        self._online = online
        self._accounts = accounts
        self.mail: Mail | None = None

    def send(self, src: NodeId, to: tuple[NodeId, ...], body: Message) -> None:
        """Deliver `body` to each of `to`: at once to oneself, else when the network gets it there."""
        if type(body) is not Pong or len(to) > 1 or to[0] == src:
            self._send(src, to, body)
            return
        # Most of what is sent is answers: the same in short.
        dst, kernel, city_of, size_bytes = to[0], self._kernel, self._city_of, frame_bytes(body)
        self._accounts.send_control(src, Pong, 1, size_bytes)
        if self._online[dst]:
            delay_s = self._between_s[city_of[src]][city_of[dst]]
            kernel.at(kernel.now + delay_s, dst, Received(src, body, size_bytes))
        else:
            self._accounts.lose(1, size_bytes)

    def _send(self, src: NodeId, to: tuple[NodeId, ...], body: Message) -> None:
        kernel, kind = self._kernel, type(body)
        if src in to:
            kernel.at(kernel.now, src, Received(src, body))
            to = tuple(node for node in to if node != src)
        there, asked = self._reached(src, to, body), len(to)
        if True in _carries(kind):
            self._transfer(src, there, asked, body)
            return
        size_bytes, reached = frame_bytes(body), len(there)
        self._accounts.send_control(src, kind, asked, size_bytes)
        if reached < asked:
            self._accounts.lose(asked - reached, size_bytes)
        if not reached:
            return
        received = Received(src, body, size_bytes)
        if self.mail is not None and kind in MAIL:
            self.mail.post(there, received)
        elif reached == 1:
            dst, city_of = there[0], self._city_of
            kernel.at(kernel.now + self._between_s[city_of[src]][city_of[dst]], dst, received)
        else:
            kernel.spread(there, self.delays_s(src, there), received)

    def _reached(self, src: NodeId, to: tuple[NodeId, ...], body: Message) -> Sequence[NodeId]:
        """Nobody listens at a node that is offline: what is sent there is lost at once."""
        online = self._online
        if len(to) == 1:
            return to if online[to[0]] else ()
        return [node for node in to if online[node]]

    def cut(self, node: NodeId) -> None:
        """A node goes offline: what it was sending or receiving stops here; sent bytes count."""
        self._cut(self.sharing.flows_of(node))

    def cut_sends(self, node: NodeId) -> None:
        self._cut(list(self.sharing.sent_by(node)))

    def resize(self, node: NodeId, factor: float) -> None:
        """A node's links have `factor` times their usual capacity from now on."""
        self._transfers.bring_forward(self.sharing.resize(node, factor, self._kernel.now))

    def delay_s(self, src: NodeId, dst: NodeId) -> float:
        return self._between_s[self._city_of[src]][self._city_of[dst]]

    def delays_s(self, src: NodeId, to: Sequence[NodeId]) -> list[float]:
        city_of = self._city_of
        from_here_s = self._between_s[city_of[src]]
        return [from_here_s[city_of[node]] for node in to]

    def _transfer(self, src: NodeId, to: Sequence[NodeId], asked: int, body: Message) -> None:
        has_model, has_view = _carries(type(body))
        model_bytes = self._model_bytes if has_model else 0
        total = frame_bytes(body, model_bytes) + model_bytes
        received = Received(src, body, total)
        self._accounts.begin_transfers(type(body), asked, has_view)
        self._accounts.lose(asked - len(to), 0)  # no connection, so nothing was sent
        flows = [Flow(src, dst, total, received) for dst in to]
        if self._observer is not None and has_model:
            for flow in flows:
                self._observer.transfer_began(self._kernel.now, flow)
        self._transfers.begin(flows, self._kernel.now)

    def _at(self, time_s: float, flow: Flow) -> int:
        return self._kernel.at(time_s, INTERNAL, partial(self._on_flow_due, flow))

    def _on_flow_due(self, flow: Flow) -> None:
        for complete in self._transfers.completed(flow, self._kernel.now):
            received: Received = complete.tag
            self._account(complete, received.size_bytes)
            if self._observer is not None and hasattr(received.body, "model"):
                arrival_s = self._arrival_s(complete.dst, received)
                self._observer.transfer_ended(self._kernel.now, complete, arrival_s)
            self._arrive(complete.dst, received)

    def _arrive(self, dst: NodeId, received: Received) -> None:
        self._kernel.at(self._arrival_s(dst, received), dst, received)

    def _arrival_s(self, dst: NodeId, received: Received) -> float:
        """The last byte of a transfer leaves now; it takes the latency, like a message."""
        return self._kernel.now + self.delay_s(received.src, dst)

    def _cut(self, flows: Sequence[Flow]) -> None:
        self._transfers.cut(flows, self._kernel.now)
        for flow in flows:
            sent = round(flow.sent_bytes)
            self._account(flow, sent)
            self._accounts.cut_bytes += sent
            if self._observer is not None and hasattr(flow.tag.body, "model"):
                self._observer.transfer_ended(self._kernel.now, flow, None)

    def _account(self, flow: Flow, sent: int) -> None:
        body: Message = flow.tag.body
        riding = view_bytes(body.view) if _carries(type(body))[1] else 0  # type: ignore[attr-defined]
        self._accounts.send_transfer(flow.src, type(body), sent, riding)
