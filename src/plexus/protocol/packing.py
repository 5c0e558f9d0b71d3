"""Whole numbers in as few bytes as they need, many at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def pack(numbers: NDArray[Any]) -> bytes:
    """Each in as many bytes as it needs: seven bits in each, the lowest first, and one that says whether
    there are more."""
    parts = numbers.astype(np.int64)[:, None] >> np.arange(0, 35, 7)
    is_more = parts >= 128
    is_there = np.concatenate([np.ones((len(numbers), 1), bool), is_more[:, :-1]], axis=1)
    return bytes(np.asarray((parts & 127) + 128 * is_more, np.uint8)[is_there])


def unpack(column: bytes) -> NDArray[np.int64]:
    data = np.frombuffer(column, np.uint8).astype(np.int64)
    ends = np.flatnonzero(data < 128)
    if len(data) and (not len(ends) or ends[-1] != len(data) - 1):
        raise ValueError("has no end")
    starts = np.append(0, ends[:-1] + 1)[: len(ends)]
    lengths = ends - starts + 1
    if (lengths > 5).any() or (data[ends[lengths > 1]] == 0).any():
        raise ValueError("is too long")
    places = np.arange(len(data)) - np.repeat(starts, lengths)
    numbers: NDArray[np.int64] = np.add.reduceat((data & 127) << (7 * places), starts)
    if (numbers >= 2**32).any():
        raise ValueError("is too large")
    return numbers
