"""Numbers of models in fewer bytes: float16, or int8 in blocks, each with a scale of its own.

Rounding to int8 is stochastic: up or down by chance, so that it is right on average and many roundings do not
add up. What is drawn comes from a stream that the caller names: the same stream, the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from plexus.rng import array_stream

Wire = Literal["float32", "float16", "int8"]
BLOCK: Final = 256
"""Numbers that have one scale: 1.6 % more bytes."""
CHUNK = 256 * BLOCK
"""Numbers that are handled at once: they stay in a processor's cache."""
_MIDDLE, _MOST = 128, 127
_NOISE = 2**20

QUANTISED, SCALES, HALVES, WHOLE = "quantised", "scales", "halves", "whole"
"""The tensors of a model that travels in fewer bytes: of int8, a byte for each number and scales of blocks;
of float16, the numbers; of both, numbers that are not rounded, as they count something."""
NAMES = "tensors"
"""The key of metadata that names what is in them."""

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]


def quantised(values: Floats, rng: np.random.Generator) -> tuple[Bytes, Floats]:
    """A byte for each number, and a scale for each block of them."""
    whole = -(-len(values) // BLOCK)
    found, scales = np.empty(len(values), np.uint8), np.empty(whole, np.float32)
    offsets = rng.integers(0, _NOISE - CHUNK, -(-len(values) // CHUNK))
    space = np.empty((CHUNK // BLOCK, BLOCK), np.float32)
    for number, offset in enumerate(offsets.tolist()):
        start = number * CHUNK
        some = values[start : start + CHUNK]
        blocks = -(-len(some) // BLOCK)
        work = space[:blocks]
        flat = work.reshape(-1)
        if len(some) == blocks * BLOCK:
            given = some.reshape(blocks, BLOCK)
        else:
            given = np.zeros((blocks, BLOCK), np.float32)
            given.reshape(-1)[: len(some)] = some
        largest = np.maximum(given.max(axis=1), -given.min(axis=1))
        scales[number * CHUNK // BLOCK :][:blocks] = largest / _MOST
        with np.errstate(divide="ignore"):
            inverse = np.where(largest > 0, _MOST / largest, np.float32(0)).astype(np.float32)
        np.multiply(given, inverse[:, None], out=work)
        flat += _noise()[offset : offset + len(flat)]
        # Above zero, cutting off is rounding down.
        np.copyto(found[start : start + len(some)], flat[: len(some)], casting="unsafe")
    return found, scales


def restored(found: Bytes, scales: Floats) -> Floats:
    """The numbers that bytes and scales stand for."""
    values = np.empty(len(found), np.float32)
    for start in range(0, len(found), CHUNK):
        some = found[start : start + CHUNK]
        into = values[start : start + CHUNK]
        np.subtract(some, np.float32(_MIDDLE), out=into)
        whole = len(some) // BLOCK * BLOCK
        own = scales[start // BLOCK :]
        into[:whole].reshape(-1, BLOCK)[...] *= own[: whole // BLOCK, None]
        if whole < len(some):
            into[whole:] *= own[whole // BLOCK]
    return values


class Restored:
    """The numbers that bytes and scales stand for, restored where they are looked at."""

    def __init__(self, found: Bytes, scales: Floats) -> None:
        self._found = found
        self._scales = scales
        self.size = len(found)

    def __getitem__(self, part: slice) -> Floats:
        assert part.start % BLOCK == 0, "a piece begins with a block"
        return restored(self._found[part], self._scales[part.start // BLOCK :])


def unpacked(parts: Mapping[str, NDArray[Any]]) -> Floats:
    """The numbers of a model that travelled as these tensors; what is not rounded is zero in it."""
    if HALVES in parts:
        return parts[HALVES].astype(np.float32)
    return restored(parts[QUANTISED], parts[SCALES])


def rounded(values: Floats, wire: Wire, rng: np.random.Generator) -> Floats:
    """The numbers as they are after being sent."""
    if wire == "float16":
        with np.errstate(over="ignore"):
            return values.astype(np.float16).astype(np.float32)
    return restored(*quantised(values, rng)) if wire == "int8" else values


def encoded_bytes(numbers: int) -> int:
    """What so many numbers take as int8, with their scales."""
    return numbers + 4 * -(-numbers // BLOCK)


@cache
def _noise() -> Floats:
    """Uniform from 128 to just below 129: drawn once, as drawing takes longer than all else; where a chunk
    begins to read is drawn anew each time. Below 129 by more than rounding adds: 256 is no byte."""
    noise = array_stream(1, "rounding").random(_NOISE, np.float32)
    noise += np.float32(_MIDDLE)
    return np.asarray(np.minimum(noise, np.float32(_MIDDLE + 1 - 1e-4)))
