"""What a node collects models in, to make one of them: running sums, or files for rules that need all."""

from __future__ import annotations

import asyncio
import mmap
import tempfile
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from plexus.errors import PlexusError, blaming
from plexus.learn import rules
from plexus.learn.rules import MeanRule, Rule, WeightedMeanRule
from plexus.live.models import LiveModel, ModelLayout, fits, seal
from plexus.live.room import pieces, use_again
from plexus.protocol.api import Aggregate, Change, Collect, Merge
from plexus.runs.encoding import WHOLE

if TYPE_CHECKING:
    from plexus.live.transport.receiving import Buffers

INLINE_BYTES = 2**20
Result = TypeVar("Result")


class RunningSum:
    """The mean of models that arrive one by one, in the room of one: the first is added to in place. One that
    somebody else needs is not: it is added to the second, which comes to the same bits.

    The same rules and arithmetic as `learn.aggregation`: one addition after the other, then one division.
    """

    flaw: str | None = None
    """Why no mean comes of it."""

    def __init__(self, layout: ModelLayout, is_change: bool = False) -> None:
        self._layout = layout
        self._numbers = layout.changes if is_change else layout.numbers
        self._data: memoryview | None = None
        self._sums: list[NDArray[Any]] = []
        self._weight = 0.0
        self._first: tuple[memoryview, float] | None = None
        """A model, with its weight, that is not to be changed and in no sum yet."""

    def add(self, data: memoryview, weight: float, owned: bool) -> bool:
        """Add a model. Says whether its memory was taken over, which happens only if it is `owned`."""
        self._weight += weight
        added: tuple[memoryview, float] | None = data, weight
        if self._data is None and owned:
            self._begin(data, weight)
            added, self._first = self._first, None
        elif self._data is None and self._first is None:
            self._first, added = added, None
        if added is not None:
            self._settle()
            self._add(self._numbers(added[0]), added[1])
        return self._data is data

    def _settle(self) -> None:
        """For who came first there is no memory but its own: a copy is made."""
        if self._first is not None:
            (first, weight), self._first = self._first, None
            self._begin(self._layout.copy(first), weight)

    def _begin(self, data: memoryview, weight: float) -> None:
        """The sum is in this memory from now on."""
        self._data = data
        # Whole numbers are summed apart, as floating point, and rounded at the end.
        self._sums = [self._summable(numbers) for numbers in self._numbers(data)]
        if weight != 1:
            for total in self._sums:
                total *= total.dtype.type(weight)

    def _summable(self, numbers: NDArray[Any]) -> NDArray[Any]:
        if numbers.dtype.kind == "f" and numbers.dtype.itemsize >= 4:
            return numbers
        sums = self._layout.floats(numbers.size, np.float64 if numbers.dtype.itemsize > 2 else np.float32)
        sums[:] = numbers
        return sums

    def _add(self, rows: Sequence[Any], weight: float) -> None:
        """Rows of numbers, or what stands for them."""
        for total, numbers in zip(self._sums, rows, strict=True):
            for part in pieces(total.size):
                piece = numbers[part]
                total[part] += piece if weight == 1 else piece * total.dtype.type(weight)

    def mean(self, changes: RunningSum | None = None) -> memoryview:
        """The mean, in the memory of a model, moved by `changes` (see `protocol.api.Aggregate`).
        Neither sum can be used afterwards."""
        self._settle()
        assert self._data is not None, "a mean of nothing"
        self._divide(changes)
        for total, numbers in zip(self._sums, self._numbers(self._data), strict=True):
            if total is not numbers and total.dtype != numbers.dtype:
                for part in pieces(total.size):
                    numbers[part] = np.rint(total[part]) if numbers.dtype.kind in "iu" else total[part]
        data, self._data, self._sums = self._data, None, []
        return data

    def _divide(self, changes: RunningSum | None) -> None:
        for at, total in enumerate(self._sums):
            total /= total.dtype.type(self._weight)
            if changes is not None:
                changes._settle()
                change = changes._sums[at]
                change /= change.dtype.type(self._weight + changes._weight)
                total += change


class QuantisedSum(RunningSum):
    """Of models that travel as bytes with scales: summed as numbers, and rounded again."""

    def __init__(self, layout: ModelLayout, round: int) -> None:
        super().__init__(layout)
        self._round = round
        """What the rounding is drawn by."""

    def add(self, data: memoryview, weight: float, owned: bool) -> bool:
        rows = self._layout.rows(data)
        if not self._sums:
            self._sums = [self._layout.floats(each.size) for each in rows]
            for total in self._sums:
                total[:] = -0.0  # what nothing is changed by that is added to it
        self._weight += weight
        self._add(rows, weight)
        return False

    def mean(self, changes: RunningSum | None = None) -> memoryview:
        self._divide(changes)
        return self._layout.packed(self._sums, self._round)


def sum_of(layout: ModelLayout, round: int, is_change: bool = False) -> RunningSum:
    """A sum to add the models of `round` to, or what trainings changed."""
    return QuantisedSum(layout, round) if layout.is_quantised else RunningSum(layout, is_change)


@dataclass(eq=False)
class Spool:
    """Models that arrive one by one, for a rule that needs them all: one behind the other in a file without a
    name. In memory are the result and, of each model, the chunk that is looked at."""

    _layout: ModelLayout
    _rule: Rule
    _folder: Path
    _round: int
    is_change: bool = False
    _file: IO[bytes] | None = None
    _models: int = 0
    flaw: str | None = None

    def add(self, data: memoryview, weight: float, owned: bool) -> bool:
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115
                weakref.finalize(self, self._file.close)  # the round may be abandoned
            while data:
                data = data[self._file.write(data) :]
        except OSError as error:
            self.flaw = f"the models of the round cannot be kept: {error.strerror}"
        self._models += 1
        return False

    def mean(self, changes: Spool | None = None) -> memoryview:
        """What the rule makes of them, as they were sent. Neither can be used afterwards."""
        models, late = self._kept(), changes._kept() if changes is not None else []
        data, measured = memoryview(b""), None
        if self._layout.is_packed:
            # Rounded once, when all is done. Counters are no distance.
            out = [self._layout.floats(each.size) for each in models[0]]
            measured = [True, *(name != WHOLE for name in self._layout.kept)]
        else:
            data = self._layout.blank()
            out = self._layout.numbers(data)
        with blaming("aggregation"):
            rules.aggregate(self._rule, models, out, late, measured)
        return self._layout.packed(out, self._round) if self._layout.is_packed else data

    def _kept(self) -> list[list[NDArray[Any]]]:
        size_bytes = self._layout.size_bytes
        assert self._file is not None
        with self._file:
            kept = self._layout.room.map(self._file, mmap.ACCESS_READ)
        numbers = self._layout.values_of(self.is_change)
        return [numbers(kept[at * size_bytes :][:size_bytes]) for at in range(self._models)]


@dataclass(slots=True, eq=False)
class RoundSum:
    """What is collected for a round, and how many models are in it or about to be."""

    round: int
    sum: RunningSum | Spool
    count: int = 0


@dataclass(eq=False)
class Aggregator:
    """What a node collects models and changes in for a round, off the event loop: running sums, or files for
    a rule that needs all models (in `_folder`).

    Large models are handled on one thread of their own, in order, so the mean is taken after all additions.
    """

    _layout: ModelLayout
    _buffers: Buffers
    _rule: Rule
    _folder: Path
    _done: Callable[[int, LiveModel | None, str | None], None]

    def __post_init__(self) -> None:
        self._collected: dict[bool, RoundSum] = {}
        """By whether they are changes."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sums")

    def check(
        self, model: LiveModel, then: Callable[[str | None], None], too_far: Callable[[], str | None]
    ) -> None:
        """Find out what is wrong with a model from outside; `too_far` is asked last, and looks at its
        numbers."""

        def flaw() -> str | None:
            is_whole = fits(model.seal, model.data) if model.is_whole is None else model.is_whole
            return (self._layout.misfit(model.data) or too_far()) if is_whole else "it does not fit its seal"

        self.look(flaw, then)

    def difference(self, change: Change, then: Callable[[LiveModel | str], None]) -> None:
        """Make of a change what can be sent; else it is said why not."""
        trained, base = change.trained.data, change.base.data

        def made() -> LiveModel | str:
            try:
                data = self._layout.difference(trained, base)
            except PlexusError as error:
                return str(error)
            return LiveModel(data, seal(data))

        self.look(made, then)

    def collect(self, effect: Collect) -> None:
        """Add a model to the sum of its round; that of another one is forgotten, nobody asks for it again."""
        collected = self._collected.get(effect.is_change)
        if collected is None or collected.round != effect.round:
            collected = RoundSum(effect.round, self._begin(effect.round, effect.is_change))
            self._collected[effect.is_change] = collected
        collected.count += 1
        total, [weight], model = collected.sum, self._weights([effect.samples]), effect.model
        data, ticket = model.data, model.ticket
        if ticket is not None:
            model.spend()

        def added(taken_over: bool) -> None:
            if ticket is not None:
                (self._buffers.let_go if taken_over else self._buffers.give_back)(ticket)

        self.look(lambda: _added(total, data, weight, ticket is not None), added)

    def aggregate(self, effect: Aggregate) -> None:
        """Take the mean: of what was collected, or of models that the node kept by itself."""
        total = self._total(effect.round, effect.models, effect.samples)
        changes = None
        if effect.changes:
            changes = self._total(effect.round, effect.changes, effect.change_samples, is_change=True)
        self._finish(effect.round, total, changes)

    def merge(self, effect: Merge) -> None:
        """Take the mean in which `models[i]` counts `weights[i]`."""
        total = sum_of(self._layout, effect.round)
        self._add(total, effect.models, effect.weights)
        self._finish(effect.round, total)

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _begin(self, round: int, is_change: bool) -> RunningSum | Spool:
        if isinstance(self._rule, MeanRule | WeightedMeanRule):
            return sum_of(self._layout, round, is_change)
        return Spool(self._layout, self._rule, self._folder, round, is_change)

    def _weights(self, samples: Sequence[int]) -> Sequence[int]:
        return samples if isinstance(self._rule, WeightedMeanRule) else [1] * len(samples)

    def _total(
        self, round: int, models: Sequence[LiveModel], samples: Sequence[int], is_change: bool = False
    ) -> RunningSum | Spool:
        collected = self._collected.get(is_change)
        if collected is not None and collected.round == round:
            del self._collected[is_change]
            assert collected.count == len(models), "what was collected is what the node aggregates"
            return collected.sum
        total = self._begin(round, is_change)
        self._add(total, models, self._weights(samples))
        return total

    def _add(self, total: RunningSum | Spool, models: Sequence[LiveModel], weights: Sequence[float]) -> None:
        for model, weight in zip(models, weights, strict=True):
            self.look(partial(_added, total, model.data, weight, False), lambda _: None)

    def _finish(
        self, round: int, total: RunningSum | Spool, changes: RunningSum | Spool | None = None
    ) -> None:

        def result() -> tuple[LiveModel | None, str | None]:
            try:
                for each in (total, changes):
                    if each is not None and each.flaw is not None:
                        raise PlexusError(each.flaw)
                data = total.mean(changes)  # type: ignore[arg-type]  # both are of one kind
            except PlexusError as error:
                return None, str(error)
            flaw = self._layout.flaw(data)
            use_again(data)  # who aggregates needs room for many models: it has no file to give away
            return (None, flaw) if flaw else (LiveModel(data, seal(data)), None)

        self.look(result, lambda found: self._done(round, *found))

    def look(self, work: Callable[[], Result], then: Callable[[Result], None]) -> None:
        """Do what takes time, where it is in nobody's way."""
        loop = asyncio.get_running_loop()
        if self._layout.size_bytes <= INLINE_BYTES:
            result = work()
            loop.call_soon(then, result)
            return
        future = loop.run_in_executor(self._thread, work)
        future.add_done_callback(lambda done: None if done.cancelled() else then(done.result()))


def _added(total: RunningSum | Spool, data: memoryview, weight: float, owned: bool) -> bool:
    """Whether the memory of the model was taken over; of one that there is no room for, no sum comes."""
    try:
        return total.flaw is None and total.add(data, weight, owned)
    except PlexusError as error:
        total.flaw = str(error)
        return False
