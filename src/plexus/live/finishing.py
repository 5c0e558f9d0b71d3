"""What a peer does when its session ends: it measures, keeps and serves the final model, and goes home."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from plexus.errors import PlexusError
from plexus.live.operator.log import Log
from plexus.live.state import Store
from plexus.live.worker.client import TrainingWorker
from plexus.protocol.plexus import PlexusNode
from plexus.runs.model_files import FINAL_MODEL

LOOK_S = 0.2
LONGEST = 10
"""In `ack_timeout_s`: for so long others may ask for the final model."""


@dataclass(eq=False)
class Finishing:
    """Lets the peer end when nobody needs it any more."""

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
