"""Models as a live peer holds them, and their mean: the bytes of a safetensors file, never a pickle.

All models of a session have the same tensors, hence the same header. A model from a peer is accepted only
if its header is, byte for byte, the one of this node's own initial model: nothing of it is interpreted.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.poly1305 import Poly1305
from numpy.typing import NDArray

from plexus.errors import PlexusError
from plexus.protocol.api import Change
from plexus.rng import array_stream
from plexus.runs.encoding import QUANTISED, SCALES, WHOLE, quantised, restored

if TYPE_CHECKING:
    from plexus.live.transport.receiving import Buffers, Ticket

_LENGTH_BYTES = 8
_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BOOL": "u1"}
_TYPES |= {"I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1"}


@dataclass(slots=True, eq=False)
class LiveModel:
    """An encoded model and its seal."""

    data: memoryview
    seal: bytes
    ticket: Ticket | None = None
    """Of the buffer that it arrived in, until it is used up or kept for good."""

    def spend(self) -> None:
        """Its numbers are in a sum: its memory is used for something else."""
        self.data, self.ticket = memoryview(b""), None


class ModelLayout:
    """Where the numbers are in an encoded model, as runs of one type."""

    def __init__(self, model: bytes | memoryview) -> None:
        length = int.from_bytes(model[:_LENGTH_BYTES], "little")
        self.size_bytes = len(model)
        self.header = bytes(model[: _LENGTH_BYTES + length])
        tensors = json.loads(self.header[_LENGTH_BYTES:])
        tensors.pop("__metadata__", None)
        spans = sorted((*t["data_offsets"], name, t["dtype"]) for name, t in tensors.items())
        self.runs: list[tuple[np.dtype[Any], int, int]] = []
        self._spans: dict[str, tuple[np.dtype[Any], int, int]] = {}
        for start, stop, name, kind in spans:
            if kind not in _TYPES:
                raise PlexusError(f"the model's tensor {name} is {kind}, which cannot be averaged")
            dtype, begin, end = np.dtype(_TYPES[kind]), len(self.header) + start, len(self.header) + stop
            self._spans[name] = dtype, begin, end
            if self.runs and self.runs[-1][0] == dtype and self.runs[-1][2] == begin:
                _, begin, _ = self.runs.pop()
            self.runs.append((dtype, begin, end))

    @property
    def is_quantised(self) -> bool:
        """Whether models travel as bytes with scales."""
        return {QUANTISED, SCALES} <= self._spans.keys()

    def named(self, data: memoryview) -> dict[str, NDArray[Any]]:
        """The tensors of `data` by name, flat, over its memory."""
        return {
            name: np.frombuffer(data[start:stop], dtype) for name, (dtype, start, stop) in self._spans.items()
        }

    def sum(self, round: int, is_change: bool = False) -> RunningSum:
        """A sum to add the models of `round` to, or what trainings changed."""
        return QuantisedSum(self, round) if self.is_quantised else RunningSum(self, is_change)

    def restored(self, data: memoryview) -> list[NDArray[np.float32]]:
        """The numbers of a model that travels as bytes with scales; then those that are not rounded."""
        parts = self.named(data)
        return [restored(parts[QUANTISED], parts[SCALES]), *([parts[WHOLE]] if WHOLE in parts else [])]

    def quantised(self, values: Sequence[NDArray[np.float32]], *drawn_by: int | str) -> memoryview:
        """A model of these numbers, as `restored` gives them."""
        data = self._blank()
        into = self.named(data)
        into[QUANTISED][:], into[SCALES][:] = quantised(values[0], array_stream(0, "wire", *drawn_by))
        if WHOLE in into:
            into[WHOLE][:] = np.rint(values[1])
        return data

    def numbers(self, data: memoryview) -> list[NDArray[Any]]:
        """The runs of `data`, as arrays over its memory."""
        return [np.frombuffer(data[start:stop], dtype) for dtype, start, stop in self.runs]

    def changes(self, data: memoryview) -> list[NDArray[Any]]:
        """The runs of a change: what is never negative in a model may be so here."""
        return [run.view(np.int8) if run.dtype.kind == "u" else run for run in self.numbers(data)]

    def difference(self, trained: memoryview, base: memoryview) -> memoryview:
        """What a training changed, in memory of its own and no more than that."""
        if self.is_quantised:
            parts = zip(self.restored(trained), self.restored(base), strict=True)
            return self.quantised([after - before for after, before in parts], "change", zlib.crc32(trained))
        data = self._blank()
        runs = zip(self.numbers(trained), self.numbers(base), self.numbers(data), strict=True)
        for after, before, change in runs:
            with np.errstate(all="ignore"):  # whoever receives what is not finite refuses it
                np.subtract(after, before, out=change)
        return data

    def _blank(self) -> memoryview:
        # Not a bytearray: that would be filled with zeros first.
        data = np.empty(self.size_bytes, np.uint8).data
        data[: len(self.header)] = self.header
        return data

    def flaw(self, data: memoryview) -> str | None:
        """What is wrong with a model from outside, if anything."""
        if len(data) != self.size_bytes or data[: len(self.header)] != self.header:
            return "it has other tensors than this session's model"
        for numbers in self.numbers(data):
            with np.errstate(all="ignore"):
                # A sum is not finite if any number is not.
                if numbers.dtype.kind == "f" and not np.isfinite(numbers.sum(dtype=np.float64)):
                    return "it has numbers that are not finite"
        return None


class RunningSum:
    """The mean of models that arrive one by one, in the memory of one: the first is added to in place.

    The same rules and arithmetic as `learn.aggregation`: one addition after the other, then one division.
    """

    def __init__(self, layout: ModelLayout, is_change: bool = False) -> None:
        self._numbers = layout.changes if is_change else layout.numbers
        self._data: memoryview | None = None
        self._sums: list[NDArray[Any]] = []
        self._weight = 0.0

    def add(self, data: memoryview, weight: float, owned: bool) -> bool:
        """Add a model. Says whether its memory was taken over, which happens only if it is `owned`."""
        self._weight += weight
        if self._data is None:
            self._data = data = data if owned else memoryview(bytearray(data))
            # Whole numbers are summed apart, as floating point, and rounded at the end.
            self._sums = [_summable(numbers) for numbers in self._numbers(data)]
            if weight != 1:
                for total in self._sums:
                    total *= total.dtype.type(weight)
            return owned
        for total, numbers in zip(self._sums, self._numbers(data), strict=True):
            if weight == 1:
                total += numbers
            else:
                total += numbers * total.dtype.type(weight)
        return False

    def mean(self, changes: RunningSum | None = None) -> memoryview:
        """The mean, in the memory of the first model, moved by `changes` (see `protocol.api.Aggregate`).
        Neither sum can be used afterwards."""
        assert self._data is not None, "a mean of nothing"
        self._divide(changes)
        for total, numbers in zip(self._sums, self._numbers(self._data), strict=True):
            if total is not numbers and total.dtype != numbers.dtype:
                numbers[:] = np.rint(total) if numbers.dtype.kind in "iu" else total
        data, self._data, self._sums = self._data, None, []
        return data

    def _divide(self, changes: RunningSum | None) -> None:
        for at, total in enumerate(self._sums):
            total /= total.dtype.type(self._weight)
            if changes is not None:
                change = changes._sums[at]
                change /= change.dtype.type(self._weight + changes._weight)
                total += change


class QuantisedSum(RunningSum):
    """Of models that travel as bytes with scales: summed as numbers, and rounded again."""

    def __init__(self, layout: ModelLayout, round: int) -> None:
        super().__init__(layout)
        self._layout = layout
        self._round = round
        """What the rounding is drawn by."""

    def add(self, data: memoryview, weight: float, owned: bool) -> bool:
        values = [each * np.float32(weight) for each in self._layout.restored(data)]
        self._weight += weight
        if self._sums:
            for total, each in zip(self._sums, values, strict=True):
                total += each
        else:
            self._sums = values
        return False

    def mean(self, changes: RunningSum | None = None) -> memoryview:
        self._divide(changes)
        return self._layout.quantised(self._sums, self._round)


def _summable(numbers: NDArray[Any]) -> NDArray[Any]:
    if numbers.dtype.kind == "f" and numbers.dtype.itemsize >= 4:
        return numbers
    return numbers.astype(np.float64 if numbers.dtype.itemsize > 2 else np.float32)


INLINE_BYTES = 2**20
Result = TypeVar("Result")

WEIGHTS: dict[str, Callable[[int], int]] = {
    "mean": lambda samples: 1,
    "sample-weighted-mean": lambda samples: samples,
}
"""By aggregation rule, what a model counts that so many examples are behind."""


@dataclass(slots=True, eq=False)
class RoundSum:
    """The sum of what is collected for a round, and how many models are in it or about to be."""

    round: int
    sum: RunningSum
    count: int = 0


class Aggregator:
    """The running sums of the round that a node collects models and changes for, off the event loop.

    Large models are handled on one thread of their own, in order, so the mean is taken after all additions.
    """

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
        self._collected: dict[bool, RoundSum] = {}
        """By whether they are changes."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sums")

    def check(self, model: LiveModel, then: Callable[[str | None], None]) -> None:
        """Find out what is wrong with a model from outside."""

        def flaw() -> str | None:
            is_whole = fits(model.seal, model.data)
            return self._layout.flaw(model.data) if is_whole else "it does not fit its seal"

        self._do(flaw, then)

    def difference(self, change: Change, then: Callable[[LiveModel], None]) -> None:
        """Make of a change what can be sent."""
        trained, base = change.trained.data, change.base.data

        def made() -> LiveModel:
            data = self._layout.difference(trained, base)
            return LiveModel(data, seal(data))

        self._do(made, then)

    def collect(self, round: int, model: LiveModel, samples: int, is_change: bool = False) -> None:
        """Add a model to the sum of `round`; that of another round is forgotten, nobody asks for it again."""
        collected = self._collected.get(is_change)
        if collected is None or collected.round != round:
            collected = RoundSum(round, self._layout.sum(round, is_change))
            self._collected[is_change] = collected
        collected.count += 1
        total = collected.sum
        data, ticket, weight = model.data, model.ticket, self._weight_of(samples)
        if ticket is not None:
            model.spend()

        def added(taken_over: bool) -> None:
            if ticket is not None:
                (self._buffers.let_go if taken_over else self._buffers.give_back)(ticket)

        self._do(lambda: total.add(data, weight, ticket is not None), added)

    def aggregate(
        self,
        round: int,
        models: Sequence[LiveModel],
        samples: Sequence[int],
        changes: Sequence[LiveModel] = (),
        change_samples: Sequence[int] = (),
    ) -> None:
        """Take the mean: of what was collected, or of models that the node kept by itself."""
        total = self._total(round, models, samples)
        changed = self._total(round, changes, change_samples, is_change=True)
        self._finish(round, lambda: total().mean(changed() if changes else None))

    def merge(self, round: int, models: Sequence[LiveModel], weights: Sequence[float]) -> None:
        """Take the mean in which `models[i]` counts `weights[i]`."""
        total = self._summed(round, models, weights)
        self._finish(round, lambda: total().mean())

    def _total(
        self, round: int, models: Sequence[LiveModel], samples: Sequence[int], is_change: bool = False
    ) -> Callable[[], RunningSum]:
        collected = self._collected.get(is_change)
        if collected is None or collected.round != round:
            return self._summed(round, models, [self._weight_of(each) for each in samples], is_change)
        del self._collected[is_change]
        assert collected.count == len(models), "what was collected is what the node aggregates"
        return lambda: collected.sum

    def _summed(
        self, round: int, models: Sequence[LiveModel], weights: Sequence[float], is_change: bool = False
    ) -> Callable[[], RunningSum]:
        data = [model.data for model in models]

        def summed() -> RunningSum:
            total = self._layout.sum(round, is_change)
            for each, weight in zip(data, weights, strict=True):
                total.add(each, weight, owned=False)
            return total

        return summed

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


KEY_BYTES, TAG_BYTES = 32, 16
SEAL_BYTES = KEY_BYTES + TAG_BYTES
PIECE_BYTES = 256 * 1024


def seal(data: bytes | memoryview) -> bytes:
    """How a receiver knows that a model arrived as it was sent: a Poly1305 tag, behind its key.

    TLS already protects bytes on their way. A seal covers the rest of the path, from the sender's memory to
    the receiver's: chunks mixed up, memory overwritten, a disk that lies. The key is drawn for this one model
    and travels with it: five times as fast as SHA-256.
    """
    key = os.urandom(KEY_BYTES)
    return key + Poly1305.generate_tag(key, data)


def fits(seal: bytes, data: bytes | memoryview) -> bool:
    """Whether `data` is what was sealed."""
    assert len(seal) == SEAL_BYTES
    check = Poly1305(seal[:KEY_BYTES])
    for at in range(0, len(data), PIECE_BYTES):
        check.update(data[at : at + PIECE_BYTES])
        time.sleep(0)  # Poly1305 holds the interpreter's lock: let the event loop have its turn
    try:
        check.verify(seal[KEY_BYTES:])
    except InvalidSignature:
        return False
    return True
