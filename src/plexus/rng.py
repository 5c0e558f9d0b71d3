"""Named random streams: every consumer of randomness gets its own, derived from the one root seed.

A stream depends on nothing but its path, so adding a consumer never shifts the numbers of another,
and the same run gives the same numbers on any machine, worker or resume.
"""

from __future__ import annotations

import hashlib
from random import Random

import numpy as np


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
