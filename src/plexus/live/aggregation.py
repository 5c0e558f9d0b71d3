"""The arithmetic of aggregation, off the event loop: models are checked and summed as they arrive.

Large models are handled on one thread of their own, in order, so the mean is taken after all additions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from weakref import WeakValueDictionary

from plexus.live.models import LiveModel, ModelLayout, RunningSum, fits, seal
from plexus.live.transport.receiving import Buffers, Ticket

INLINE_BYTES = 2**20
Result = TypeVar("Result")


class Contribution:
    """A participant's model, as the node holds it; its numbers are in `total` once it was added."""

    __slots__ = ("__weakref__", "model", "ticket", "total")

    def __init__(self, model: LiveModel, ticket: Ticket | None) -> None:
        self.model: LiveModel | None = model
        self.ticket = ticket
        """Of the buffer the model is in; None if it is this node's own model."""
        self.total: RunningSum | None = None


class Aggregator:
    """One running sum per round, kept alive by the contributions to it and by nothing else."""

    def __init__(
        self,
        layout: ModelLayout,
        buffers: Buffers,
        done: Callable[[int, LiveModel | None, str | None], None],
        rule: str,
    ) -> None:
        self._layout = layout
        self._rule = rule
        self._buffers = buffers
        self._done = done
        self._totals: WeakValueDictionary[int, RunningSum] = WeakValueDictionary()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sums")

    def check(self, model: LiveModel, then: Callable[[str | None], None]) -> None:
        """Find out what is wrong with a model from outside."""

        def flaw() -> str | None:
            if not fits(model.seal, model.data):
                return "it does not fit its seal"
            return self._layout.flaw(model.data)

        self._do(flaw, then)

    def add(self, round: int, contribution: Contribution, samples: int) -> None:
        """Add a model that the node accepted for `round`."""
        total = self._totals.get(round)
        if total is None:
            total = self._totals[round] = RunningSum(self._layout, self._rule)
        contribution.total = total
        model, ticket = contribution.model, contribution.ticket
        assert model is not None, "a model is added once"
        contribution.model = None
        owned = ticket is not None

        def added(taken_over: bool) -> None:
            if ticket is not None:
                (self._buffers.let_go if taken_over else self._buffers.give_back)(ticket)

        self._do(lambda: total.add(model.data, samples, owned), added)

    def finish(self, round: int, contributions: tuple[Contribution, ...]) -> None:
        """Take the mean of what was added."""
        total = contributions[0].total
        assert total is not None
        assert all(each.total is total for each in contributions), "added to one sum"
        self._totals.pop(round, None)

        def mean() -> tuple[LiveModel | None, str | None]:
            assert total.count == len(contributions), "what was added is what the node kept"
            data = total.mean()
            flaw = self._layout.flaw(data)
            return (None, flaw) if flaw else (LiveModel(data, seal(data)), None)

        self._do(mean, lambda result: self._done(round, *result))

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _do(self, work: Callable[[], Result], then: Callable[[Result], None]) -> None:
        loop = asyncio.get_running_loop()
        if self._layout.size_bytes <= INLINE_BYTES:
            result = work()
            loop.call_soon(then, result)
            return
        future = loop.run_in_executor(self._thread, work)
        future.add_done_callback(lambda done: None if done.cancelled() else then(done.result()))
