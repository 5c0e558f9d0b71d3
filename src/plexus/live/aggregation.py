"""The arithmetic of aggregation, off the event loop: models are checked and summed as they arrive.

Large models are handled on one thread of their own, in order, so the mean is taken after all additions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from plexus.live.models import LiveModel, ModelLayout, RunningSum, fits, seal
from plexus.live.transport.receiving import Buffers

INLINE_BYTES = 2**20
Result = TypeVar("Result")

WEIGHTS: dict[str, Callable[[int], int]] = {
    "mean": lambda samples: 1,
    "sample-weighted-mean": lambda samples: samples,
}
"""By aggregation rule, what a model counts that so many examples are behind."""


class Aggregator:
    """The running sum of the round that a node collects models for."""

    def __init__(
        self,
        layout: ModelLayout,
        buffers: Buffers,
        rule: str,
        done: Callable[[int, LiveModel | None, str | None], None],
    ) -> None:
        self._layout = layout
        self._buffers = buffers
        self._weight_of = WEIGHTS[rule]
        self._done = done
        self._collected: tuple[int, RunningSum, int] | None = None
        """Round, sum, and how many models are in it or about to be."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sums")

    def check(self, model: LiveModel, then: Callable[[str | None], None]) -> None:
        """Find out what is wrong with a model from outside."""

        def flaw() -> str | None:
            if not fits(model.seal, model.data):
                return "it does not fit its seal"
            return self._layout.flaw(model.data)

        self._do(flaw, then)

    def collect(self, round: int, model: LiveModel, samples: int) -> None:
        """Add a model to the sum of `round`; that of another round is forgotten, nobody asks for it again."""
        if self._collected is None or self._collected[0] != round:
            self._collected = round, RunningSum(self._layout), 0
        _, total, count = self._collected
        self._collected = round, total, count + 1
        data, ticket, weight = model.data, model.ticket, self._weight_of(samples)
        if ticket is not None:
            model.spend()

        def added(taken_over: bool) -> None:
            if ticket is not None:
                (self._buffers.let_go if taken_over else self._buffers.give_back)(ticket)

        self._do(lambda: total.add(data, weight, ticket is not None), added)

    def aggregate(self, round: int, models: Sequence[LiveModel], samples: Sequence[int]) -> None:
        """Take the mean: of what was collected, or of models that the node kept by itself."""
        collected, self._collected = self._collected, None
        if collected is None or collected[0] != round:
            self.merge(round, models, [self._weight_of(each) for each in samples])
            return
        assert collected[2] == len(models), "what was collected is what the node aggregates"
        self._finish(round, collected[1].mean)

    def merge(self, round: int, models: Sequence[LiveModel], weights: Sequence[float]) -> None:
        """Take the mean in which `models[i]` counts `weights[i]`."""
        data = [model.data for model in models]

        def merged() -> memoryview:
            total = RunningSum(self._layout)
            for each, weight in zip(data, weights, strict=True):
                total.add(each, weight, owned=False)
            return total.mean()

        self._finish(round, merged)

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _finish(self, round: int, mean: Callable[[], memoryview]) -> None:
        def result() -> tuple[LiveModel | None, str | None]:
            data = mean()
            flaw = self._layout.flaw(data)
            return (None, flaw) if flaw else (LiveModel(data, seal(data)), None)

        self._do(result, lambda found: self._done(round, *found))

    def _do(self, work: Callable[[], Result], then: Callable[[Result], None]) -> None:
        loop = asyncio.get_running_loop()
        if self._layout.size_bytes <= INLINE_BYTES:
            result = work()
            loop.call_soon(then, result)
            return
        future = loop.run_in_executor(self._thread, work)
        future.add_done_callback(lambda done: None if done.cancelled() else then(done.result()))
