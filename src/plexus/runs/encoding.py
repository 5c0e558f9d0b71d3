"""Numbers of models in fewer bytes: float16, or int8 in blocks, each with a scale of its own.

Rounding to int8 is dithered: a number between 0 and 1 is added before, and taken off again by whoever
restores it, who knows it too. So it is right on average, whatever the number, many roundings do not add up,
and it is off by half as much (in variance) as rounding up or down by chance. What is drawn comes from a
stream that the caller names: the same stream, the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from plexus.rng import array_stream

Wire = Literal["float32", "float16", "int8"]
BLOCK: Final = 128
"""Numbers that have one scale of two bytes: 1.6 % more bytes. The smaller a block, the finer its steps."""
CHUNK = 512 * BLOCK
"""Numbers that are handled at once: they stay in a processor's cache."""
_MIDDLE, _MOST = 128, 127
_DITHER, _PLACE = 2**20, 2

QUANTISED, SCALES, HALVES, EXACT, WHOLE = "quantised", "scales", "halves", "exact", "whole"
"""The tensors of a model that travels in fewer bytes: of int8, a byte for each number and scales of blocks;
of float16, the numbers; of both, numbers that are not rounded, as they are not trained (a variance must not
become negative because a larger number has its scale), or count something."""
KEPT = EXACT, WHOLE
"""Those that are not rounded, in this order."""
NAMES = "tensors"
"""The key of metadata that names what is in them."""

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]
Scales = NDArray[np.uint16]
"""Where the dither of a model begins, in two numbers; then the upper halves of float32 (bfloat16, for which
numpy has no name): their range is that of the numbers."""


def quantised(
    values: Floats, rng: np.random.Generator, out: tuple[Bytes, Scales] | None = None
) -> tuple[Bytes, Scales]:
    """A byte for each number, and a scale for each block of them; in `out`, if there is one."""
    whole = -(-len(values) // BLOCK)
    found, scales = out or (np.empty(len(values), np.uint8), np.empty(_PLACE + whole, np.uint16))
    place = int(rng.integers(0, _DITHER))
    scales[:_PLACE] = divmod(place, 2**16)
    space = np.empty((CHUNK // BLOCK, BLOCK), np.float32)
    for start in range(0, len(values), CHUNK):
        some = values[start : start + CHUNK]
        blocks = -(-len(some) // BLOCK)
        work = space[:blocks]
        flat = work.reshape(-1)
        if len(some) == blocks * BLOCK:
            given = some.reshape(blocks, BLOCK)
        else:
            given = np.zeros((blocks, BLOCK), np.float32)
            given.reshape(-1)[: len(some)] = some
        own = _scales(np.abs(given, out=work).max(axis=1))
        scales[_PLACE + start // BLOCK :][:blocks] = own
        with np.errstate(divide="ignore"):
            inverse = np.where(own > 0, 1 / _whole(own), np.float32(0))
        np.einsum("ij,i->ij", given, inverse, out=work)
        flat += _dither(place + start, len(flat))
        # Above zero, cutting off is rounding down.
        np.copyto(found[start : start + len(some)], flat[: len(some)], casting="unsafe")
    return found, scales


def steps(scales: Scales) -> Floats:
    """How far apart two neighbouring bytes of each block are."""
    return _whole(scales[_PLACE:])


def _whole(upper: Scales) -> Floats:
    return (upper.astype(np.uint32) << 16).view(np.float32)


def _scales(largest: Floats) -> Scales:
    """Rounded up, so that the largest number still fits; zero where a step would be no normal number."""
    wanted = largest / np.float32(_MOST)
    wanted[wanted < np.finfo(np.float32).tiny] = 0
    return ((wanted.view(np.uint32) + 0xFFFF) >> 16).astype(np.uint16)


def restored(found: Bytes, scales: Scales) -> Floats:
    """The numbers that bytes and scales stand for."""
    return Restored(found, scales)[0 : len(found)]


class Restored:
    """The numbers that bytes and scales stand for, restored where they are looked at."""

    def __init__(self, found: Bytes, scales: Scales) -> None:
        self._found = found
        self._place = int(scales[0]) << 16 | int(scales[1])
        self._scales = scales[_PLACE:]
        self.size = len(found)

    def __getitem__(self, part: slice) -> Floats:
        assert part.start % BLOCK == 0, "a piece begins with a block"
        found = self._found[part]
        values = np.empty(len(found), np.float32)
        for start in range(0, len(found), CHUNK):
            some, into = found[start : start + CHUNK], values[start : start + CHUNK]
            np.subtract(some, _dither(self._place + part.start + start, len(some)), out=into)
            into += np.float32(0.5)  # as cutting off took half a step on average
            first, whole = (part.start + start) // BLOCK, len(some) // BLOCK
            own = _whole(self._scales[first : first + whole + 1])
            blocks = into[: whole * BLOCK].reshape(-1, BLOCK)
            np.einsum("ij,i->ij", blocks, own[:whole], out=blocks)
            if whole < len(own):
                into[whole * BLOCK :] *= own[whole]
        return values


def unpacked(parts: Mapping[str, NDArray[Any]]) -> Floats:
    """The numbers of a model that travelled as these tensors; what is not rounded is zero in it."""
    return parts[HALVES].astype(np.float32) if HALVES in parts else restored(parts[QUANTISED], parts[SCALES])


def rounded(values: Floats, wire: Wire, rng: np.random.Generator) -> Floats:
    """The numbers as they are after being sent."""
    if wire == "float16":
        with np.errstate(over="ignore"):
            return values.astype(np.float16).astype(np.float32)
    return restored(*quantised(values, rng)) if wire == "int8" else values


def _dither(place: int, count: int) -> Floats:
    """As many numbers as wanted, a chunk at most, from 128 to just below 129."""
    begin = place % _DITHER
    return _table()[begin : begin + count]


@cache
def _table() -> Floats:
    """Drawn once, as drawing takes longer than all else; where a model begins to read it is drawn each time.
    Below 129 by more than rounding adds: 256 is no byte."""
    table = array_stream(1, "rounding").random(_DITHER, np.float32) + np.float32(_MIDDLE)
    table = np.minimum(table, np.float32(_MIDDLE + 1 - 1e-4))
    return np.concatenate([table, table[:CHUNK]])
