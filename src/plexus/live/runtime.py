"""Performs the effects of one node in real time: the live half of the contract in `protocol.api`.

Effects wait in one queue, in order. A state that must be on the disk first holds up those behind it, but
neither the event loop nor the node: links live on, events are handled, and what follows from them queues up.
"""

from __future__ import annotations

import asyncio
import weakref
import zlib
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from plexus.live.aggregation import Aggregator, Contribution
from plexus.live.identity.keys import short
from plexus.live.models import LiveModel, ModelLayout
from plexus.live.obsolete import Progress
from plexus.live.operator.log import Log
from plexus.live.state import Store
from plexus.live.transport.addresses import LiveRoster
from plexus.live.transport.hub import Hub
from plexus.live.transport.limits import Meter
from plexus.live.transport.receiving import Buffers, Ticket
from plexus.live.worker.client import TrainingWorker
from plexus.protocol import wire
from plexus.protocol.api import (
    Aggregate,
    Aggregated,
    CancelTimer,
    Effect,
    Event,
    Node,
    Received,
    Report,
    Save,
    Send,
    SetTimer,
    TimerFired,
    TimerKey,
    Train,
    Trained,
    WentOffline,
)
from plexus.protocol.messages import Ack, AggregateRequest, Message, NodeId, Ping, TrainRequest, ViewReply
from plexus.protocol.plexus import FIRST_ROUND, START
from plexus.protocol.training import ACK
from plexus.protocol.view import Snapshot
from plexus.protocol.wire import WireError

OBSOLETE, DECLINED = "the round has moved on", "declined"
MODEL_MESSAGES = (TrainRequest, AggregateRequest)
Tag = tuple[type[Message], int]
"""Kind and round of a model message under way."""
MAX_QUEUED = 64
"""Effects that wait for the disk; with more, messages are lost, as on any network. Few, because each may
hold a model, and an answer that is late by as much is of no use."""


class Runtime:
    """One node, its timers, its models and its network."""

    def __init__(
        self,
        roster: LiveRoster,
        layout: ModelLayout,
        buffers: Buffers,
        store: Store,
        log: Log,
        observe: Callable[[Any], None],
        aggregation: str,
    ) -> None:
        self.roster = roster
        self.buffers = buffers
        self.meter = Meter(store.state.bandwidth_bytes_per_s)
        self.progress = Progress(store.state.round)
        self.node: Node | None = None
        """Set while the node is online."""
        self._asked: tuple[NodeId, int] | None = None
        """The aggregator that was sent a model last, and the round."""
        self.hub: Hub | None = None
        self.trainer: TrainingWorker | None = None
        self.on_view: Callable[[Snapshot], None] | None = None
        """Who wants to see views before the node is online."""
        self.view_frame: Callable[[], bytes] = bytes
        """The node's view, encoded, for the store."""
        self.bandwidth_of: Callable[[NodeId], int] = lambda _: 0
        """What the node's view says of another one's bandwidth."""
        self.on_unsaved: Callable[[str], None] = lambda reason: None
        """Who is told that the node had to go offline because its counter could not be saved."""
        self.revocations: Callable[[bytes, bytes], None] = lambda src, list_der: None
        """Who looks at lists of revocations that peers pass on."""
        self.timers: dict[TimerKey, tuple[asyncio.TimerHandle, float]] = {}
        self.handled = 0
        self.lost = 0
        """Messages that came while too much waited for the disk."""
        self.store = store
        self._layout = layout
        self._queue: deque[Effect] = deque()
        self.writing: asyncio.Future[None] | None = None
        """The state that effects in the queue wait for."""
        self.writing_since = 0.0
        self.log = log
        self._observe = observe
        self._aggregator = Aggregator(layout, buffers, self._on_aggregated, aggregation)
        self._loop = asyncio.get_running_loop()
        self._perform_one: dict[type[Effect], Callable[[Any], None]] = {
            Send: self._send,
            SetTimer: self._set_timer,
            CancelTimer: lambda effect: self._disarm(effect.key),
            Train: self._train,
            Aggregate: self._aggregate,
            Save: self._save,
            Report: lambda effect: self._observe(effect.fact),
        }

    # Events in, effects out

    def step(self, event: Event) -> None:
        """Let the node handle an event and perform what it wants done."""
        self.perform(self._handle(event))

    def perform(self, effects: list[Effect]) -> None:
        """In order, and behind those that wait for the disk."""
        for effect in effects:
            if isinstance(effect, SetTimer | CancelTimer):
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
                if isinstance(effect, Save):
                    self._go_offline(str(error))

    async def leave(self) -> None:
        """Let the node say goodbye, as soon as its disk allows; then it is offline."""
        self.step(WentOffline())
        self.node = None
        while self.writing is not None:
            await asyncio.wait([self.writing])
        self.stop()

    def stop(self) -> None:
        """The node is offline: nothing of what it had under way arrives."""
        self.node = None
        self._queue.clear()
        for handle, _ in self.timers.values():
            handle.cancel()
        self.timers.clear()
        if self.trainer is not None:
            self.trainer.interrupt()

    def close(self) -> None:
        self._aggregator.close()

    def _handle(self, event: Event) -> list[Effect]:
        if self.node is None:
            return []
        if len(self._queue) >= MAX_QUEUED and isinstance(event, Received):
            self.lost += 1
            return []
        self.handled += 1
        try:
            return self.node.handle(self._loop.time(), event)
        except Exception:
            self.log.exception("failure", where=f"handling {type(event).__name__}")
            return []

    def _receive(self, src: NodeId, body: Message, size_bytes: int = 0) -> None:
        if isinstance(body, Ping) and body.round == FIRST_ROUND and START in self.timers:
            # Peers do not start at the same instant, but the first one who begins tells the others; who
            # kept waiting would miss the round.
            self._fire(START)
        if self.progress.notice(body):
            self._drop_obsolete()
        self.step(Received(src, body, size_bytes))

    # Effects

    def _send(self, effect: Send) -> None:
        body = effect.body
        others = [node for node in effect.to if node != 0]
        if len(others) < len(effect.to):
            self._loop.call_soon(self._send_to_self, body)
        if isinstance(body, MODEL_MESSAGES):
            # Whoever takes part in a round knows that the one before is complete.
            if self.progress.notice(body):
                self._drop_obsolete()
            frame = wire.encode(body, self.roster, len(body.model.data))
            tag: Tag = (type(body), body.round)
            if isinstance(body, AggregateRequest) and others:
                self._asked = (others[0], body.round)
            for node in others:
                key = self.roster.keys[node]
                self._hub.send_model(key, frame[wire.LENGTH_BYTES :], body.model, tag)
        else:
            frame = wire.encode(body, self.roster)
            for node in others:
                self._hub.send(self.roster.keys[node], frame)

    def _send_to_self(self, body: Any) -> None:
        if isinstance(body, AggregateRequest):
            self._deliver_contribution(0, body, Contribution(body.model, None))
        else:
            self._receive(0, body)

    @property
    def _hub(self) -> Hub:
        assert self.hub is not None
        return self.hub

    def _set_timer(self, effect: SetTimer) -> None:
        self._disarm(effect.key)
        handle = self._loop.call_later(effect.delay_s, self._fire, effect.key)
        self.timers[effect.key] = (handle, self._loop.time())

    def _disarm(self, key: TimerKey) -> None:
        found = self.timers.pop(key, None)
        if found is not None:
            found[0].cancel()

    def _fire(self, key: TimerKey) -> None:
        handle, _ = self.timers.pop(key)
        handle.cancel()
        self.step(TimerFired(key))

    def _train(self, effect: Train) -> None:
        assert self.trainer is not None
        self.trainer.train(effect.round, effect.model)

    def trained(self, round: int, model: LiveModel) -> None:
        """The worker has finished."""
        assert self.trainer is not None
        assert self.trainer.ready is not None
        self.step(Trained(round, model, self.trainer.ready.samples))

    def _aggregate(self, effect: Aggregate) -> None:
        if self.progress.advance(effect.round):
            self._drop_obsolete()
        self._aggregator.finish(effect.round, effect.models)

    def _on_aggregated(self, round: int, model: LiveModel | None, flaw: str | None) -> None:
        if model is None:
            self.log.warning("aggregation_failed", round=round, reason=flaw)
        else:
            self.step(Aggregated(round, model))

    def _save(self, effect: Save) -> None:
        state, on_disk = effect.state, self.store.state
        if state.counter != on_disk.counter:
            written = self.store.save_counter(state.counter, self.view_frame(), self.meter.bytes_per_s)
            self.writing = asyncio.wrap_future(written)
            self.writing_since = self._loop.time()
            self.writing.add_done_callback(self._on_written)
        if state.round > on_disk.round:
            self.store.save_model(state.round, state.model, self.view_frame())
            if self.log.is_detailed:
                self.log.debug("holds", round=state.round, crc=zlib.crc32(state.model.data))

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
        self.on_unsaved(reason)

    def _drop_obsolete(self) -> None:
        is_obsolete = self.progress.is_obsolete
        for link in list(self._hub.links.values()):
            link.sending.cancel(lambda tag: is_obsolete(*tag), OBSOLETE)
            link.receiving.decline(lambda tag: is_obsolete(*tag))

    # What the links bring

    def message(self, src: bytes, payload: bytes) -> None:
        body, _ = wire.decode(payload, self.roster)
        if hasattr(body, "model"):
            raise WireError(f"a {type(body).__name__} without its model")
        if self.node is None:
            if isinstance(body, ViewReply) and self.on_view is not None:
                self.on_view(body.view)
            return
        self._receive(self.roster.number(src), body, len(payload) + wire.LENGTH_BYTES)

    def wants(self, src: bytes, payload: bytes) -> Tag | None:
        body, model_bytes = wire.decode(payload, self.roster)
        if not isinstance(body, MODEL_MESSAGES):
            raise WireError(f"a model with a {type(body).__name__}")
        if model_bytes != self._layout.size_bytes:
            raise WireError(f"a model of {model_bytes} bytes: this session's has {self._layout.size_bytes}")
        tag: Tag = (type(body), body.round)
        return None if self.progress.is_obsolete(*tag) else tag

    def model(self, src: bytes, payload: bytes, model: LiveModel, ticket: Ticket) -> None:
        def checked(flaw: str | None) -> None:
            if flaw is not None:
                self.log.warning("model_refused", peer=short(src), reason=flaw)
                self.buffers.give_back(ticket)
                return
            self._deliver_model(src, payload, model, ticket)

        self._aggregator.check(model, checked)

    def _deliver_model(self, src: bytes, payload: bytes, model: LiveModel, ticket: Ticket) -> None:
        body, _ = wire.decode(payload, self.roster)
        number = self.roster.number(src)
        if isinstance(body, AggregateRequest):
            self._deliver_contribution(number, body, Contribution(model, ticket))
        else:
            self.buffers.let_go(ticket)  # the node may keep the model for long
            size_bytes = wire.LENGTH_BYTES + len(payload) + len(model.data)
            self._receive(number, msgspec.structs.replace(body, model=model), size_bytes)

    def _deliver_contribution(self, src: NodeId, body: AggregateRequest, contribution: Contribution) -> None:
        """Give the node a model for aggregation, and add it to the sum if the node keeps it.

        The node alone decides what counts. What it keeps is still referred to after it handled the
        message; what it does not keep is gone, and its buffer comes back.
        """
        if self.progress.notice(body):
            self._drop_obsolete()
        kept, ticket = weakref.ref(contribution), contribution.ticket
        samples, round = body.samples, body.round
        body = msgspec.structs.replace(body, model=contribution)
        del contribution
        effects = self._handle(Received(src, body))
        del body
        contribution_kept = kept()
        if contribution_kept is not None:
            self._aggregator.add(round, contribution_kept, samples)
        elif ticket is not None:
            self.buffers.give_back(ticket)
        del contribution_kept
        self.perform(effects)

    def sent(self, dst: bytes, tag: Tag) -> None:
        """Nothing to do: the receiver's protocol answers by itself."""

    def not_sent(self, dst: bytes, tag: Tag, reason: str) -> None:
        kind, round = tag
        self.log.debug("not_sent", peer=short(dst), kind=kind.__name__, round=round, reason=reason)
        if kind is not AggregateRequest:
            return
        aggregator = self.roster.number(dst)
        if reason in (OBSOLETE, DECLINED):
            # The round is complete: what its aggregator would have answered to a stale model.
            self._loop.call_soon(self._receive, aggregator, Ack(round))
        else:
            self._loop.call_soon(self._aggregator_lost, aggregator, round)

    def link_down(self, key: bytes) -> None:
        """Find out whether the aggregator that an answer is awaited from is gone or just the link."""
        if self._asked is not None and ACK in self.timers:
            aggregator, round = self._asked
            if self.roster.keys[aggregator] == key:
                self._hub.reach(key, (AggregateRequest, round))

    def _aggregator_lost(self, aggregator: NodeId, round: int) -> None:
        """The model has not arrived, so nobody will acknowledge it: no need to wait for the timeout."""
        if self._asked == (aggregator, round) and ACK in self.timers:
            self._fire(ACK)

    def measured(self, size_bytes: int, seconds: float, sent: bool) -> None:
        self.meter.note(size_bytes, seconds, sent)

    def bandwidth(self, src: bytes) -> int:
        return min(self.bandwidth_of(self.roster.number(src)), self.meter.bytes_per_s)

    def failed(self, where: str) -> None:
        self.log.exception("failure", where=where)
