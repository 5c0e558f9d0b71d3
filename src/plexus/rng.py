"""Named random streams: every consumer of randomness gets its own, derived from the one root seed.

A stream depends on nothing but its path, so adding a consumer never shifts the numbers of another,
and the same run gives the same numbers on any machine, worker or resume.
"""

from __future__ import annotations

import hashlib
from random import Random
from typing import Any

import numpy as np

BLOCK = 624
"""So many words of 32 bits a `Random` makes at a time, and keeps."""


def stream_seed(seed: int, *path: str | int) -> int:
    """The 64-bit seed of the stream at `path`, e.g. `stream_seed(7, "node", 12, "advertise")`."""
    name = "\x1f".join(f"{type(part).__name__}:{part}" for part in (seed, *path))
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")


def stream(seed: int, *path: str | int) -> Random:
    """A stream for choices made one at a time (protocol, simulator)."""
    return Random(stream_seed(seed, *path))


def array_stream(seed: int, *path: str | int) -> np.random.Generator:
    """A stream for drawing whole arrays (data, traces)."""
    return np.random.Generator(np.random.PCG64(stream_seed(seed, *path)))


class RestingRandom:
    """A `Random` of which little is kept while nobody draws; it is made again, as far on as it was."""

    __slots__ = ("_at", "_random", "_seed")

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._random: Random | None = None
        self._at: tuple[int, int] | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if self._random is None:
            self._random = self._made_again()
        return getattr(self._random, name)

    def rest(self) -> None:
        """Forget all but how far it has come, until somebody draws."""
        if self._random is not None:
            self._at, self._random = _position(self._random), None

    def _made_again(self) -> Random:
        made = Random(self._seed)
        if self._at is not None and self._at != _position(made):
            block, used = self._at
            made.getrandbits(32)
            while _position(made)[0] != block:
                made.getrandbits(32 * BLOCK)
            made.getrandbits(32 * (used - 1))
        return made


def _position(made: Random) -> tuple[int, int]:
    """What tells the present block of words from others, and how many of it are used."""
    words = made.getstate()[1]
    return words[1] << 32 | words[2], words[-1]
