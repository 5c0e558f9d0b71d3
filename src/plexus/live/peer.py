"""One live peer: a node of the session, from start to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from plexus.errors import PlexusError
from plexus.learn.rules import Rule
from plexus.live.identity.admission import CERTIFICATE_FILE, Admission, CertificateWatch, NewerLists
from plexus.live.identity.events import SignedRoster
from plexus.live.identity.keys import exposure
from plexus.live.identity.session_file import Session
from plexus.live.models import LiveModel, ModelLayout, seal
from plexus.live.operator.control import lock_home, notifying, serve_control, serve_metrics, socket_path
from plexus.live.operator.log import Log
from plexus.live.operator.peer_tables import PeerTables
from plexus.live.operator.status import FactObserver, PeerStatus, Status, counts
from plexus.live.phases import Finishing, Joining, unless
from plexus.live.room import Room
from plexus.live.runtime import Callbacks, LiveRuntime
from plexus.live.seats import LiveProtocol, other, plexus
from plexus.live.state import Store, check_home
from plexus.live.transport import addresses
from plexus.live.transport.addresses import Address
from plexus.live.transport.hub import Hub
from plexus.live.transport.limits import Limits
from plexus.live.transport.receiving import Buffers
from plexus.live.worker.client import Evaluated, Ready, SetUp, TrainingWorker
from plexus.protocol import facts
from plexus.protocol.api import BandwidthMeasured, Durable, Expelled, Measured
from plexus.protocol.baselines.peers import PeerNode
from plexus.protocol.parameters import ENDLESS, Course, unknown_metric
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.view import EXPELLED, View
from plexus.protocol.wire import WireError

HOUSEKEEPING_S = 2.0
ANNOUNCE_EVERY_S = 60.0
LEAVE_S, START_S = 2.0, 5.0
SELDOM = 10
UNSAVED = "the node's counter cannot be saved, so it went offline"


class PeerConfig(Struct, frozen=True, kw_only=True):
    home: Path
    session: Session
    protocol: LiveProtocol
    course: Course = ENDLESS
    aggregation: Rule
    spec: str
    """The session file's text, for the training worker."""
    data: str
    folder: Path = Path()
    """Where a task of the user's own and relative paths in the session file are searched."""
    listen: Address
    advertise: Address | None = None
    """None: where others see this node come from, with the port it listens at."""
    dial_only: bool = False
    """Nobody can dial this node: it dials everybody that has an address, and others by way of these."""
    join: list[Address] = []
    at_least: int = 0
    """Go online when links to this many others are up."""
    bandwidth_bytes_per_s: int | None = None
    """None: measured."""
    evaluate_every: int = 10
    metrics: Address | None = None
    source: str | None = None
    """The local address that this node dials from."""
    fork_server: Path | None = None
    stay: bool = False
    """Go on to serve the final model when the session has ended."""
    lie: str | None = None
    """How it lies, in a rehearsal."""
    limits: Limits = Limits()


class Peer:
    """Wires the parts and leads them through joining, being online and leaving."""

    def __init__(self, config: PeerConfig, log: Log) -> None:
        self._config = config
        self._log = log
        self._lock = lock_home(config.home)
        if exposed := exposure(config.home):
            log.warning("home_exposed", reason=exposed)
        check_home(config.home, config.session.digest)
        self._admission = Admission(config.home, config.session)
        self._roster = SignedRoster(self._admission, config.limits.max_nodes)
        self._store = Store(
            config.home, self._roster, lambda error: log.warning("state_not_written", reason=str(error))
        )
        self._rng = Random(int.from_bytes(os.urandom(8), "big"))
        self._view = self._saved_view()
        self._room = Room(config.home, config.limits.memory_bytes)
        self._held = self._store.model(self._room)
        """Until the node is online and holds it itself."""
        self._stop = asyncio.Event()
        self._fault: PlexusError | None = None
        """Why the peer ends, if nobody told it to."""
        self._certificate = CertificateWatch(self._admission, log)
        self._node: PlexusNode | PeerNode | None = None
        self._status = Status(config.session.name, self._admission, config.protocol.patience_s)
        self._announced_at = 0.0

    async def run(self) -> None:
        """From start to stop; returns when the node has left."""
        config, state = self._config, self._store.state
        if state.ended and state.ended == state.round and not config.stay:
            self._log.info("session_ended", round=state.ordinal)
            return
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._on_loop_error)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        self._observer = FactObserver(self._roster, self._log, state.ordinal)
        is_alone = config.fork_server is None  # a fleet has tried the task before it started any peer
        setup = SetUp(config.spec, config.data, str(config.folder), is_alone, str(config.home.resolve()))
        tell = self._on_trained, self._on_evaluated
        measures_first = config.course.is_measured or not config.protocol.variation
        self._trainer = TrainingWorker(
            setup, self._log, *tell, config.fork_server, self._room, measures_first
        )
        parts = self._store, self._trainer, self._log, config.stay
        self._finishing = Finishing(*parts, self._stop.set, lambda: bool(self._hub.relay.carried))
        control = await serve_control(config.home, self._now, self._stop.set)
        try:
            initial = await unless(self._stop, self._trainer.start())
            if initial is not None:
                self._look_at(self._trainer.ready)
                self._initial = LiveModel(initial, seal(initial))
                del initial  # a large one is not held for longer than it is needed
                await self._run()
        finally:
            control.close()
            socket_path(config.home).unlink(missing_ok=True)  # who backs the home up need not skip it
            await self._trainer.close()
            self._store.close()
            os.close(self._lock)
        if self._fault is not None:
            raise self._fault

    def _look_at(self, ready: Ready | None) -> None:
        """What the worker found in the data and in the model."""
        assert ready is not None
        for note in ready.notes:
            self._log.info("data", note=note)
        agreed = self._config.session.frozen
        if wrong := unknown_metric(self._config.course, ready.metric):
            raise PlexusError(wrong)
        if agreed and ready.frozen != agreed:
            raise PlexusError(
                f"the model's frozen weights are {ready.frozen or 'none'}, those of the session are {agreed}"
            )

    def _end(self, fault: PlexusError) -> None:
        """The peer cannot go on: it leaves if it can, and the process ends with an error."""
        self._fault = self._fault or fault
        self._stop.set()

    async def _run(self) -> None:
        config = self._config
        layout = ModelLayout(self._initial.data, self._room)
        # Who waits for longer than that for an answer has turned to somebody else.
        answered_s = getattr(config.protocol.parameters, "ack_timeout_s", config.limits.transfer_grace_s)
        grace_s = min(config.limits.transfer_grace_s, answered_s)
        limits = replace(config.limits, transfer_grace_s=grace_s)
        parts = self._admission, limits, self._roster, self._bandwidth_to, self._log
        connect = partial(Hub, *parts, source=config.source, dial_only=config.dial_only)
        tell = Callbacks(
            fact=self._on_fact,
            early=lambda body: self._joining.early(body),
            unsaved=lambda reason: self._end(PlexusError(f"{UNSAVED}: {reason}")),
            list_offered=lambda src, list_der: self._lists.offered(src, list_der),
            trusts_list=lambda: not self._lists.is_judging,
        )
        self._runtime = LiveRuntime(
            self._roster,
            layout,
            Buffers(layout.size_bytes, config.limits.memory_bytes, self._room),
            config.aggregation,
            self._store,
            self._trainer,
            self._log,
            connect,
            tell,
        )
        self._hub = self._runtime.hub
        about = config.session.digest, config.spec, self._admission.key
        self._tables = PeerTables(config.home, *about, self._log)
        self._lists = NewerLists(self._hub, self._expel)
        listening = await self._hub.listen(config.listen)
        self._hub.advertise(config.advertise or listening)
        self._log.info("listening", address=addresses.show(listening), node=self._admission.key.hex())
        self._joining = Joining(self._runtime, self._view, list(config.join), self._rng)
        metrics = await serve_metrics(config.metrics, self._now) if config.metrics else None
        self._status.join(self._runtime, self._trainer, self._observer)
        keeping = asyncio.create_task(self._keep_house())
        try:
            with notifying(self._log):
                await unless(self._stop, self._join())
                if not self._stop.is_set():
                    self._go_online()
                    self._status.enter("ended" if self._store.state.ended else "online")
                    await self._stop.wait()
            if self._node is not None:
                self._status.enter("leaving")
                await self._runtime.leave()
                self._tables.online(False)
                await self._hub.flush(LEAVE_S)
        finally:
            keeping.cancel()
            await self._hub.close("this node is leaving")
            if metrics is not None:
                metrics.close()
            self._runtime.close()
            self._tables.close(self._hub.traffic)
            spent = {"cpu_s": time.process_time(), "signatures_s": self._roster.spent_s}
            self._log.info("stopped", **counts(self._runtime, self._observer), **spent)

    async def _join(self) -> None:
        await self._joining.reach(self._config.at_least)
        await self._joining.ask_for_views()
        if self._config.bandwidth_bytes_per_s is None:
            await self._joining.measure()

    def _go_online(self) -> None:
        held, self._held = self._held, None
        initial = self._initial
        del self._initial
        state = self._store.state
        number, ordinal = (state.round, state.ordinal) if held else (0, 0)
        durable = Durable(state.counter, number, held or initial, ordinal=ordinal, ended=state.ended)
        self._node = self._made(initial, durable)
        self._announced_at = time.monotonic()
        network = {"bandwidth_bytes_per_s": self._bandwidth(), "known": len(self._roster) - 1}
        self._log.info("online", counter=state.counter + 1, round=durable.ordinal, **network)
        self._tables.online(True)
        self._runtime.start(self._node)
        loop = asyncio.get_running_loop()
        # Nodes that join at the same moment miss each other's advertisement: look again.
        delay_s = getattr(self._config.protocol.parameters, "start_delay_s", START_S)
        for share in (0.05, 0.5, 0.9):
            loop.call_later(share * delay_s, self._joining.ask)

    def _made(self, initial: LiveModel, durable: Durable) -> PlexusNode | PeerNode:
        protocol, session = self._config.protocol, self._config.session
        given: dict[str, Any] = {
            "me": 0,
            "roster": self._roster,
            "view": self._view,
            "bandwidth_bytes_per_s": self._bandwidth(),
            "initial_model": initial,
            "rng": self._rng,
            "durable": durable,
            "address": self._hub.advertised,
        }
        if session.founded_s:
            self._runtime.clock = lambda: time.time() - session.founded_s
        if protocol.variation:
            return plexus(protocol, self._config.lie, self._config.course, **given)
        listed = self._admission.list
        return other(protocol, listed.nodes.keys() - listed.revoked_nodes, **given)

    def _bandwidth(self) -> int:
        if self._config.dial_only and not self._hub.dialler.has_relay:
            return 0  # not everybody could send this node its model
        declared = self._config.bandwidth_bytes_per_s
        return self._runtime.meter.bytes_per_s if declared is None else declared

    def _bandwidth_to(self, key: bytes) -> int:
        """Of the slower end of a link, as far as both are known; else 0."""
        known = self._view.bandwidth_of(self._roster.number(key))
        return min(known, self._runtime.meter.bytes_per_s)

    def _on_fact(self, fact: facts.Fact) -> None:
        self._observer.fact(fact)
        self._tables.fact(fact)
        every, node = self._config.evaluate_every, self._node
        measured = self._observer.evaluated_round
        match fact:
            case facts.EndClaimed():
                self._trainer.evaluate(fact.ordinal, fact.model, fact.round)
            case facts.AggregationCompleted() if fact.ordinal % every == 0:
                self._trainer.evaluate(fact.ordinal, fact.model, fact.round)
            case facts.ModelUpdated() if fact.round % every == 0:
                self._trainer.evaluate(fact.round, fact.model, fact.round)
            case facts.SessionEnded():
                self._trainer.interrupt()
                self._status.enter("ended")
            case facts.EndRevoked():
                self._status.enter("online")
            case facts.FinalHeld() if isinstance(node, PlexusNode):
                self._finishing.has_model(node, measured == fact.ordinal)
            case facts.TrainingStarted() if isinstance(node, PlexusNode):
                # Who never aggregates wants to see now and then where the session stands.
                if fact.ordinal - measured >= SELDOM * every:
                    self._trainer.evaluate(node.held_ordinal, node.held_model, node.held_round)

    def _on_trained(self, round: int, model: LiveModel, change: float) -> None:
        self._tables.training_ended(completed=True)
        self._runtime.trained(round, model, change)

    def _on_evaluated(self, round: int, model: LiveModel, number: int, found: Evaluated) -> None:
        ready = self._trainer.ready
        assert ready is not None
        self._store.offer_best(round, model, found.value)
        self._observer.evaluated(ready, round, found.value, found.loss)
        self._tables.evaluated(ready, round, found)
        if number:  # else it is the final model, and nobody asks
            score = found.value if ready.higher_is_better else -found.value
            metrics = {ready.metric: found.value, **found.others, "loss": found.loss}
            self._runtime.step(Measured(number, round, model, score, metrics))

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(HOUSEKEEPING_S)
            try:
                await self._lists.look_on_disk()
                self._look_after()
                self._tables.look(self._hub.traffic, self._node)
            except Exception:
                self._log.exception("failure", where="housekeeping")

    def _look_after(self) -> None:
        if self._certificate.has_run_out():
            why = "the certificate has run out, so the node left the session"
            where = self._config.home / CERTIFICATE_FILE
            self._end(PlexusError(f"{where}: {why}; get a new one with `plexus session renew`"))
        if self._node is None or self._runtime.node is None:
            return
        self._announce(self._node)
        self._joining.look_for_the_rest()
        view = self._node.membership.view
        known = [*view.actives(), *view.suspected().nonzero()[0].tolist()]
        for node in self._rng.sample(known, min(self._hub.links_wanted, len(known))):
            self._hub.keep_linked(self._roster.keys[node])

    def _expel(self, key: bytes) -> None:
        try:
            number = self._roster.number(key)
        except WireError:
            return  # no room for a node unknown so far, so it is no candidate either
        if number == 0:
            self._end(self._admission.revoked())
        elif self._runtime.node is None:
            self._view.learn(number, EXPELLED)
        else:
            self._runtime.step(Expelled(number))

    def _announce(self, node: PlexusNode | PeerNode) -> None:
        """Advertise anew when the bandwidth turns out to be less than half or more than double, and when the
        node learns where others can dial it."""
        membership, found, now = node.membership, self._bandwidth(), time.monotonic()
        told = membership.bandwidth_bytes_per_s
        is_due = now - self._announced_at >= ANNOUNCE_EVERY_S
        if membership.address != self._hub.advertised:
            membership.address = self._hub.advertised
            self._runtime.step(BandwidthMeasured(found))
        elif is_due and not told // 2 <= found <= 2 * told:
            self._announced_at = now
            self._log.info("bandwidth", bytes_per_s=found)
            self._runtime.step(BandwidthMeasured(found))

    def _saved_view(self) -> View:
        view = View.of(1, is_signed=True)
        for key in self._admission.list.revoked_nodes:
            view.learn(self._roster.number(key), EXPELLED)
        saved = self._store.view()
        if saved is not None:
            view.merge(saved)
        return view

    def _now(self) -> PeerStatus:
        return self._status.now(self._joining.waits() if self._status.phase == "joining" else None)

    def _on_loop_error(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        reason = repr(context.get("exception"))
        self._log.warning("failure", where=context.get("message"), reason=reason)
        self._log.errors += 1
