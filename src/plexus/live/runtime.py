"""Performs the effects of one node in real time: the live half of the contract in `protocol.api`.

It knows of messages only which carry a model; what any of them means is the node's business. Effects wait in
one queue, in order. A state that must be on the disk first holds up those behind it, but neither the event
loop nor the node: links live on, events are handled, and what follows from them queues up.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import InitVar, dataclass
from functools import cache
from typing import Any, NamedTuple

import msgspec

from plexus.learn.rules import Rule
from plexus.live.aggregator import Aggregator
from plexus.live.bounds import Bounds
from plexus.live.models import LiveModel, ModelLayout
from plexus.live.operator.log import Log
from plexus.live.state import Store, is_newer
from plexus.live.transport.hub import Hub
from plexus.live.transport.limits import LiveRoster, Meter
from plexus.live.transport.link import DECLINED, Inbox
from plexus.live.transport.receiving import OVERDUE, Buffers, Ticket
from plexus.live.worker.client import TrainingWorker
from plexus.protocol import api, wire
from plexus.protocol.facts import Refused
from plexus.protocol.machine import Machine
from plexus.protocol.messages import Message, NodeId
from plexus.protocol.wire import WireError

OBSOLETE, STOPPED = "it has become obsolete", "the node sends no more of it"
NOT_ONLINE = "the node is not online"
A_MODEL = "a model"
HAND_OVER_S = 10.0
MAX_QUEUED = 64
"""Effects that wait for the disk; with more, messages are lost, as on any network. Few, because each may
hold a model, and an answer that is late by as much is of no use."""


class Callbacks(NamedTuple):
    fact: Callable[[Any], None]
    early: Callable[[Message], None]
    """A message came before the node is online."""
    unsaved: Callable[[str], None]
    """The node had to go offline, because its counter could not be saved."""
    list_offered: Callable[[bytes, bytes], None]
    trusts_list: Callable[[], bool] = lambda: True
    """Whether a node that is not on the list is none of the session's: no newer list has just come."""


@dataclass(eq=False)
class LiveRuntime:
    roster: LiveRoster
    _layout: ModelLayout
    buffers: Buffers
    rule: InitVar[Rule]
    """Of aggregation, the session's."""
    store: Store
    _trainer: TrainingWorker | None
    log: Log
    connect: InitVar[Callable[[Inbox], Hub]]
    """Makes the hub whose inbox this is."""
    _tell: Callbacks

    def __post_init__(self, rule: Rule, connect: Callable[[Inbox], Hub]) -> None:
        self.meter = Meter(self.store.state.bandwidth_bytes_per_s)
        self.measured, self.list_offered = self.meter.note, self._tell.list_offered
        """Of the inbox, as it is."""
        self.node: Machine | None = None
        """Set while the node is online."""
        self.timers: dict[api.TimerKey, tuple[asyncio.TimerHandle, float]] = {}
        self.handled = 0
        self.lost = 0
        """Messages that came while too much waited for the disk."""
        self.writing: asyncio.Future[None] | None = None
        """The state that effects in the queue wait for."""
        self.writing_since = 0.0
        self._bounds = Bounds(self._layout)
        self._queue: deque[api.Effect] = deque()
        self._stops = 0
        """How often the node ended what it was sending: what is yet to be made of a change is not sent."""
        where = self.store.home
        self._aggregator = Aggregator(self._layout, self.buffers, rule, where, self._on_aggregated)
        self._loop = asyncio.get_running_loop()
        self.clock = self._loop.time
        """What the node takes for the time."""
        self._perform_one: dict[type[api.Effect], Callable[[Any], None]] = {
            api.Send: self._send,
            api.StopSending: self._stop_sending,
            api.SetTimer: self._set_timer,
            api.CancelTimer: lambda effect: self._disarm(effect.key),
            api.Train: self._train,
            api.Collect: self._aggregator.collect,
            api.Aggregate: self._aggregator.aggregate,
            api.Merge: self._aggregator.merge,
            api.Save: self._save,
            api.Report: lambda effect: self._tell.fact(effect.fact),
        }
        self.hub = connect(self)

    def start(self, node: Machine) -> None:
        self.node = node
        self.step(api.WentOnline())

    async def leave(self) -> None:
        """Let the node say goodbye, as soon as nobody waits for what it has made or sends, within reason, and
        its disk allows; then it is offline."""
        until = self._loop.time() + HAND_OVER_S
        while self.node is not None and self._loop.time() < until:
            is_sending = any(link.sending.under_way for link in self.hub.links.values())
            if not self.node.is_indispensable and not is_sending:
                break
            await asyncio.sleep(0.01)
        self.step(api.WentOffline())
        self.node = None
        while self.writing is not None:
            await asyncio.wait([self.writing])
        self.stop()

    def stop(self) -> None:
        """The node is offline: nothing of what it had under way arrives."""
        self.node = None
        self._stops += 1
        self._queue.clear()
        for key in list(self.timers):
            self._disarm(key)
        if self._trainer is not None:
            self._trainer.interrupt()

    def close(self) -> None:
        self._aggregator.close()

    def step(self, event: api.Event) -> None:
        """Let the node handle an event and perform what it wants done."""
        self.perform(self._handle(event))

    def perform(self, effects: list[api.Effect]) -> None:
        """In order, and behind those that wait for the disk."""
        for effect in effects:
            if isinstance(effect, api.SetTimer | api.CancelTimer):
                self._disarm(effect.key)  # at once: what the node has taken back must not fire
        self._queue.extend(effects)
        self._go_on()

    def _go_on(self) -> None:
        while self._queue and self.writing is None:
            effect = self._queue.popleft()
            try:
                self._perform_one[type(effect)](effect)
            except Exception as error:
                self.log.exception("failure", where=type(effect).__name__)
                if isinstance(effect, api.Save):
                    self._go_offline(str(error))

    def _handle(self, event: api.Event) -> list[api.Effect]:
        if self.node is None:
            return []
        caused_by_others = isinstance(event, api.Received | api.Offered | api.Undelivered)
        if caused_by_others and len(self._queue) >= MAX_QUEUED:
            self.lost += 1
            return []
        self.handled += 1
        try:
            return self.node.handle(self.clock(), event)
        except Exception:
            self.log.exception("failure", where=f"handling {type(event).__name__}")
            return []

    def _receive(self, src: NodeId, body: Message, size_bytes: int, ticket: Ticket | None = None) -> None:
        effects = self._handle(api.Received(src, body, size_bytes))
        collected = [effect.model for effect in effects if isinstance(effect, api.Collect)]
        if ticket is not None and not any(model is body.model for model in collected):  # type: ignore[attr-defined]
            self.buffers.let_go(ticket)  # the node may keep the model for long, or not at all
            body.model.ticket = None  # type: ignore[attr-defined]
        self.perform(effects)
        if self.node is not None:
            self._withdraw(self.node.is_obsolete, OBSOLETE)

    def _withdraw(self, is_pointless: Callable[[Any], bool], reason: str) -> None:
        """End what is under way and pointless: it is not sent, and who sends it is told to stop."""
        for link in list(self.hub.links.values()):
            link.sending.cancel(is_pointless, reason)
            if reason is OBSOLETE:
                link.receiving.decline(is_pointless)

    def _send(self, effect: api.Send) -> None:
        body = effect.body
        if isinstance(getattr(body, "model", None), api.Change):
            self._send_difference(effect)
            return
        others = [self.roster.keys[node] for node in effect.to if node != 0]
        if len(others) < len(effect.to):
            self._loop.call_soon(self._receive, 0, body, 0)
        model = getattr(body, "model", None)
        model_bytes, head_bytes = (0, 0) if model is None else (len(model.data), wire.LENGTH_BYTES)
        message = cache(lambda version: wire.encode(body, self.roster, model_bytes, version)[head_bytes:])
        for key in others:
            self.hub.send(key, message, body, model)

    def _send_difference(self, effect: api.Send) -> None:
        stops = self._stops

        def send(model: LiveModel | str) -> None:
            if isinstance(model, str):
                self.log.warning("no_room", reason=model)
            elif stops == self._stops:
                self.perform([api.Send(effect.to, msgspec.structs.replace(effect.body, model=model))])

        self._aggregator.difference(effect.body.model, send)

    def _stop_sending(self, _: api.StopSending) -> None:
        self._stops += 1
        self._withdraw(lambda _: True, STOPPED)

    def _set_timer(self, effect: api.SetTimer) -> None:
        self._disarm(effect.key)
        handle = self._loop.call_later(effect.delay_s, self._fire, effect.key)
        self.timers[effect.key] = (handle, self._loop.time())

    def _disarm(self, key: api.TimerKey) -> None:
        found = self.timers.pop(key, None)
        if found is not None:
            found[0].cancel()

    def _fire(self, key: api.TimerKey) -> None:
        del self.timers[key]
        self.step(api.TimerFired(key))

    def _train(self, effect: api.Train) -> None:
        assert self._trainer is not None
        self._trainer.train(effect.round, effect.model)

    def trained(self, round: int, model: LiveModel, change: float) -> None:
        assert self._trainer is not None
        assert self._trainer.ready is not None
        self._bounds.trained(change)
        self.step(api.Trained(round, model, self._trainer.ready.samples))

    def _on_aggregated(self, round: int, model: LiveModel | None, flaw: str | None) -> None:
        if model is None:
            self.log.warning("aggregation_failed", round=round, reason=flaw)
        else:
            self.step(api.Aggregated(round, model))

    def _save(self, effect: api.Save) -> None:
        state, on_disk = effect.state, self.store.state
        self._bounds.hold(state.model, state.ordinal, self._loop.time())
        if (state.counter, state.ended) != (on_disk.counter, on_disk.ended):
            written = self.store.save_counter(state.counter, state.view, self.meter.bytes_per_s, state.ended)
            self.writing = asyncio.wrap_future(written)
            self.writing_since = self._loop.time()
            self.writing.add_done_callback(self._on_written)
        if is_newer(state, on_disk):
            self.store.save_model(state)
            if self.log.is_detailed:
                held = {"round": state.ordinal, "number": state.round}
                self.log.debug("holds", **held, crc=zlib.crc32(state.model.data))

    def _on_written(self, written: asyncio.Future[None]) -> None:
        self.writing = None
        error = written.exception()
        if error is None:
            self.log.info("counter", counter=self.store.state.counter)
            self._go_on()
        else:
            self._go_offline(str(error))

    def _go_offline(self, reason: str) -> None:
        """The counter is not on the disk and would be used again after a crash: without a word."""
        self.stop()
        self._tell.unsaved(reason)

    # The inbox of the hub

    def _decode(self, src: bytes, payload: bytes) -> tuple[Message, int]:
        self.roster.strangers = 0
        try:
            body, model_bytes = wire.decode(payload, self.roster, src)
        except WireError as error:
            self._refuse(src, str(error))
            self._loop.call_soon(self.step, api.Misbehaved(self.roster.number(src)))
            raise
        if self.roster.strangers and self._tell.trusts_list():
            self._refuse(src, "nodes that the authority has not admitted")
        if self.node is not None and type(body) not in self.node.messages:
            raise WireError(f"a {type(body).__name__}, which this session's protocol does not have")
        return body, model_bytes

    def _refuse(self, src: bytes, why: str, what: str = "message") -> None:
        self._tell.fact(Refused(self.roster.number(src), what, why))

    def message(self, src: bytes, payload: bytes) -> None:
        body, _ = self._decode(src, payload)
        if hasattr(body, "model"):
            raise WireError(f"a {type(body).__name__} without its model")
        if self.node is None:
            self._tell.early(body)
        else:
            self._receive(self.roster.number(src), body, len(payload) + wire.LENGTH_BYTES)

    def offered(self, src: bytes, payload: bytes) -> Message | str | None:
        body, model_bytes = self._decode(src, payload)
        if not hasattr(body, "model"):
            raise WireError(f"a model with a {type(body).__name__}")
        if model_bytes != self._layout.size_bytes:
            own = f"this node's has {self._layout.size_bytes:,}; do both have the same task?"
            self._refuse(src, f"it has {model_bytes:,} bytes, {own}", A_MODEL)
            raise WireError(f"a model of {model_bytes:,} bytes: {own}")
        self.step(api.Offered(self.roster.number(src), body))
        if self.node is None:
            return NOT_ONLINE
        if self.node.is_obsolete(body):
            self.not_coming(src, body)
            return None
        return body

    def model(self, src: bytes, body: Any, model: LiveModel, ticket: Ticket) -> None:
        def checked(flaw: str | None) -> None:
            if flaw is not None:
                self.buffers.give_back(ticket)
                self._refuse(src, flaw, A_MODEL)
                self.step(api.Misbehaved(self.roster.number(src)))
                return
            model.ticket = ticket
            whole = msgspec.structs.replace(body, model=model)
            size_bytes = wire.frame_bytes(whole, len(model.data)) + len(model.data)
            self._receive(self.roster.number(src), whole, size_bytes, ticket)

        too_far = self._bounds.flaw(body, model, self._loop.time())
        self._aggregator.check(model, checked, too_far)

    def not_coming(self, src: bytes, body: Any) -> None:
        self._loop.call_soon(self.step, api.Undelivered(0, body))

    def overdue(self, src: bytes) -> None:
        self._refuse(src, OVERDUE, A_MODEL)
        self.step(api.Misbehaved(self.roster.number(src)))

    def outcome(self, dst: bytes, body: Any, reason: str | None) -> None:
        if reason is None:
            return  # the receiver's node answers by itself
        self.log.debug("not_sent", peer=dst, kind=type(body).__name__, reason=reason)
        lost = api.Undelivered(self.roster.number(dst), body, declined=reason == DECLINED)
        self._loop.call_soon(self.step, lost)

    def link_down(self, key: bytes, reason: str) -> None:
        self._loop.call_soon(self.step, api.PeerLost(self.roster.number(key)))
