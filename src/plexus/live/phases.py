"""What a peer does before its node is online, and when its session has ended.

First it finds the others: from bootstrap addresses, or from what the node knew before it stopped. A node that
was given addresses to join does not go online before it has reached somebody. Alone it would train rounds by
itself, and their numbers would outrun those of the session it looks for.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from plexus.errors import PlexusError
from plexus.live.identity.admission import ITSELF
from plexus.live.operator.log import Log
from plexus.live.runtime import LiveRuntime
from plexus.live.state import Store
from plexus.live.transport import addresses
from plexus.live.transport.addresses import Address
from plexus.live.worker.client import TrainingWorker
from plexus.protocol import wire
from plexus.protocol.messages import Message, ViewReply, ViewRequest
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.view import View
from plexus.runs.model_files import FINAL_MODEL

Result = TypeVar("Result")
RETRY_S, MAX_RETRY_S, LONGEST_PAUSE_S = 0.25, 5.0, 60.0
LOOKUP_S, REPLY_S = 3.0, 2.0
"""How long to wait for the address of a name, and for views and the measurement of bandwidth."""
ALONE_AFTER_S = 10.0
"""A node without addresses to join looks for those it knew for this long, then goes online alone."""
KNOWN_TRIED = 16
ASKED = 8
LOOK_S = 0.2
LONGEST = 10
"""In `ack_timeout_s`: for so long others may ask for the final model."""


class Joining:
    def __init__(self, runtime: LiveRuntime, view: View, join: list[Address], rng: Random) -> None:
        self._hub = runtime.hub
        self._runtime = runtime
        self._view = view
        self._join = join
        self._rng = rng
        self._replies = 0
        self._awaited = ""
        self._since_s = 0.0
        self._reason = ""
        """Why those who are missing have not been reached."""
        self._places: dict[Address, list[Address]] = {}
        """By what is to be joined, whose host may be a name, where that was last."""
        self._met: set[Address] = set()
        """Where somebody of the session was."""
        self._looking: asyncio.Task[None] | None = None
        self._look_at_s, self._pause_s = 0.0, MAX_RETRY_S

    def waits(self) -> list[dict[str, Any]]:
        """What the peer waits for before it goes online, and since when."""
        since_s = round(asyncio.get_running_loop().time() - self._since_s, 2)
        return [{"what": self._awaited, "since_s": since_s, "reason": self._reason}]

    def _wait_for(self, what: str) -> None:
        self._awaited, self._reason = what, ""
        self._since_s = asyncio.get_running_loop().time()

    async def reach(self, at_least: int) -> None:
        """Return when links to `at_least` others are up, or when there is nobody to wait for."""
        loop = asyncio.get_running_loop()
        needed = max(at_least, 1 if self._join else 0)
        give_up = math.inf if needed else loop.time() + ALONE_AFTER_S
        pause_s = RETRY_S
        targets = list(dict.fromkeys([*self._join, *self._known()]))
        self._wait_for("a member of the session" if needed < 2 else f"links to {needed} members")
        while targets and len(self._hub.links) < max(needed, 1) and loop.time() < give_up:
            await self._try(targets, self._linked())
            if len(self._hub.links) < max(needed, 1):
                self._runtime.log.debug("joining", linked=len(self._hub.links), reason=self._reason)
                await asyncio.sleep(min(pause_s, give_up - loop.time()))
                pause_s = min(2 * pause_s, MAX_RETRY_S)

    async def ask_for_views(self) -> None:
        """Ask those who are linked whom they know, and wait for their answers for a while."""
        self._wait_for("the views of those linked")
        asked = self.ask()
        await self._until(lambda: self._replies >= asked)

    def ask(self) -> int:
        """Ask some of those who are linked whom they know; says how many were asked."""
        frame = wire.encode(ViewRequest(), self._runtime.roster)
        keys = self._rng.sample(sorted(self._hub.links), min(len(self._hub.links), ASKED))
        for key in keys:
            self._hub.send(key, frame)
        return len(keys)

    async def measure(self) -> None:
        """Measure this node's bandwidth with one of those who are linked."""
        meter = self._runtime.meter
        links = list(self._hub.links.values())
        if links and not meter.is_measured:
            self._wait_for("a measurement of its bandwidth")
            self._rng.choice(links).measure()
            await self._until(lambda: meter.is_measured)

    def early(self, body: Message) -> None:
        if isinstance(body, ViewReply):
            self._replies += 1
            self._view.merge(body.view)

    async def _try(self, targets: list[Address], but: set[Address]) -> None:
        self._met |= self._linked()
        found = await asyncio.gather(*(self._meet(target, but) for target in targets))
        self._reason = next((reason for reasons in found for reason in reasons if reason), "")

    async def _meet(self, target: Address, but: set[Address]) -> list[str | None]:
        """Reach all at `target` but some; names are looked up each time, as they may be known only later."""
        try:
            async with asyncio.timeout(LOOKUP_S):
                self._places[target] = await addresses.look_up(target)
        except (OSError, UnicodeError) as error:
            why = f"host {target[0]} cannot be found: {getattr(error, 'strerror', '') or 'no answer'}"
            self._runtime.log.info("no_link", remote=addresses.show(target), dialled=True, reason=why)
            return [f"{addresses.show(target)}: {why}"]
        fresh = [place for place in self._places[target] if place not in but]
        found = await asyncio.gather(*map(self._hub.dialler.introduce, fresh))
        tried = zip(fresh, found, strict=True)
        self._met |= {place for place, reason in tried if not reason or reason.endswith(ITSELF)}
        return found

    def look_for_the_rest(self) -> None:
        """Members that were to be joined and not there yet may know nobody else: they are tried again."""
        now = asyncio.get_running_loop().time()
        missing = [each for each in self._join if not self._met.issuperset(self._places.get(each, [each]))]
        if missing and now >= self._look_at_s and (self._looking is None or self._looking.done()):
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            self._look_at_s = now + self._pause_s
            self._looking = asyncio.create_task(self._look_for(missing))

    async def _look_for(self, missing: list[Address]) -> None:
        before = len(self._met)
        await self._try(missing, self._met)
        if len(self._met) > before:
            self.ask()

    def _linked(self) -> set[Address]:
        packed = (link.hello.address for link in self._hub.links.values())
        return {address for each in packed if (address := addresses.unpack(each)) is not None}

    def _known(self) -> list[Address]:
        roster = self._runtime.roster
        packed = (roster.address_of(n) for n in range(1, len(roster)))
        known = [address for each in packed if (address := addresses.unpack(each)) is not None]
        return self._rng.sample(known, min(len(known), KNOWN_TRIED))

    async def _until(self, is_done: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + REPLY_S
        while not is_done() and loop.time() < until:
            await asyncio.sleep(0.02)


@dataclass(eq=False)
class Finishing:
    """The final model is kept and served; the peer ends when nobody needs it any more."""

    _store: Store
    _trainer: TrainingWorker
    _log: Log
    _stay: bool
    """Serve the final model for ever."""
    _done: Callable[[], None]
    """Called when the session is over for this peer."""
    _relays: Callable[[], bool]
    """Whether others have links by way of it."""
    _going: asyncio.Task[None] | None = None

    def has_model(self, node: PlexusNode, is_measured: bool) -> None:
        """The session has ended, and its model is here."""
        if self._going is not None:
            self._going.cancel()
        self._going = asyncio.create_task(self._go_home(node, is_measured))

    async def _go_home(self, node: PlexusNode, is_measured: bool) -> None:
        while node.ending.is_doubtful:
            await asyncio.sleep(LOOK_S)
        if not node.ending.has_model:  # nobody agreed: the session goes on
            return
        ordinal, model = node.held_ordinal, node.held_model
        try:
            await asyncio.wrap_future(self._store.keep_final(ordinal, model))
        except PlexusError as error:
            self._log.warning("state_not_written", reason=str(error))
        if not is_measured:
            self._trainer.evaluate(ordinal, model)
        self._log.info("session_ended", round=ordinal, model=FINAL_MODEL)
        wait_s, asks, began = node.parameters.ack_timeout_s, 0, time.monotonic()
        until = began + wait_s
        while self._stay or self._is_needed(node, until - time.monotonic()):
            await asyncio.sleep(LOOK_S)
            if node.ending.asks > asks:
                asks, until = node.ending.asks, min(time.monotonic(), began + LONGEST * wait_s) + wait_s
        self._done()

    def _is_needed(self, node: PlexusNode, left_s: float) -> bool:
        """Not all who are there have the final model, or it is not measured. Who relays goes after those whom
        it does it for."""
        if self._relays():
            return left_s > -node.parameters.ack_timeout_s
        return left_s > 0 and (not node.ending.is_known_to_all or self._trainer.is_evaluating)


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, Result]) -> Result | None:
    """What comes of `work`; if `stop` is set first, the work is cancelled and nothing comes of it."""
    working = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not stop.is_set():
        return working.result()
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    return None
