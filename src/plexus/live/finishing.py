"""What a peer does when its session ends: it measures, keeps and serves the final model, and goes home."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from plexus.errors import PlexusError
from plexus.live.models import LiveModel
from plexus.live.operator.log import Log
from plexus.live.runtime import LiveRuntime
from plexus.live.state import Store
from plexus.live.worker.client import Evaluated, TrainingWorker
from plexus.protocol.api import Measured
from plexus.protocol.plexus import PlexusNode
from plexus.runs.model_files import FINAL_MODEL

LOOK_S = 0.2


class Finishing:
    """Tells the node how good models are, and lets the peer end when nobody needs it any more."""

    def __init__(
        self, store: Store, trainer: TrainingWorker, log: Log, stay: bool, done: Callable[[], None]
    ) -> None:
        """`done` is called when the session is over for this peer, which does not come if it is to `stay`."""
        self._store, self._trainer, self._log = store, trainer, log
        self._stay = stay
        self._done = done
        self._numbers: dict[int, int] = {}
        """By how many rounds led there: the number of a round whose model is being measured."""
        self._going: asyncio.Task[None] | None = None

    def measure(self, number: int, ordinal: int, model: LiveModel) -> None:
        self._numbers[ordinal] = number
        self._trainer.evaluate(ordinal, model)

    def measured(self, runtime: LiveRuntime, ordinal: int, model: LiveModel, found: Evaluated) -> None:
        number, ready = self._numbers.pop(ordinal, None), self._trainer.ready
        assert ready is not None
        if number is not None:
            score = found.value if ready.higher_is_better else -found.value
            metrics = {ready.metric: found.value, **found.others, "loss": found.loss}
            runtime.step(Measured(number, ordinal, model, score, metrics))

    def has_model(self, node: PlexusNode, is_measured: bool) -> None:
        """The session has ended, and its model is here."""
        if self._going is not None:
            self._going.cancel()
        self._going = asyncio.create_task(self._go_home(node, is_measured))

    async def _go_home(self, node: PlexusNode, is_measured: bool) -> None:
        ordinal, model = node.held_ordinal, node.held_model
        try:
            await asyncio.wrap_future(self._store.keep_final(ordinal, model))
        except PlexusError as error:
            self._log.warning("state_not_written", reason=str(error))
        if not is_measured:
            self._trainer.evaluate(ordinal, model)
        self._log.info("session_ended", round=ordinal, model=FINAL_MODEL)
        until = time.monotonic() + node.parameters.ack_timeout_s
        while self._stay or (time.monotonic() < until and not self._is_served(node)):
            await asyncio.sleep(LOOK_S)
        self._done()

    def _is_served(self, node: PlexusNode) -> bool:
        """All who are there have the final model, and it is measured."""
        return node.ending.is_known_to_all and not self._trainer.is_evaluating
