"""How much of a model may be on its way: enough to fill the link, little enough that others get through.

Every chunk is acknowledged by the receiver's program, so the sender sees at which rate chunks arrive and
how long the way takes, sockets, routers and busy processors included. The window is what arrives in twice
the round trip of an idle link and a little more. Control frames wait behind what is on its way, so that
little is also what a transfer may add to their way. Now and then a small chunk travels alone, to
see the idle link again.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

QUEUE_S = 0.02
"""How long chunks may queue somewhere, beyond twice the round trip of an idle link."""
MIN_CHUNK_BYTES, MAX_CHUNK_BYTES = 4 * 1024, 256 * 1024
CHUNKS_PER_WINDOW = 4
MIN_BYTES, INITIAL_BYTES, MAX_BYTES = 16 * 1024, 128 * 1024, 64 * 2**20
CROWDED = 2
"""How many times as long as wanted a chunk takes that finds its way crowded."""
RATE_MEMORY_S = 1.0
LOOK_AGAIN_S = 30.0


class Chunk(NamedTuple):
    """A chunk on its way."""

    size_bytes: int
    sent_at: float
    arrived_before: int
    """Bytes that had been acknowledged when it was sent."""
    is_alone: bool


class Peak:
    """The largest value of the last one to two spans of `RATE_MEMORY_S`."""

    def __init__(self) -> None:
        self._older = self._newer = 0.0
        self._since = float("-inf")

    def note(self, value: float, now: float) -> float:
        if now - self._since > RATE_MEMORY_S:
            self._older, self._newer, self._since = self._newer, 0.0, now
        self._newer = max(self._newer, value)
        return max(self._older, self._newer)


class Window:
    """The chunks on their way over one link."""

    def __init__(self) -> None:
        self.bytes = INITIAL_BYTES
        self._chunks: deque[Chunk] = deque()
        self._in_flight_bytes = 0
        self._arrived_bytes = 0
        self._rate = Peak()
        self._idle_s = 0.0
        self._looked_at = 0.0
        self._is_looking = True
        """The next chunk goes alone, once all others have arrived."""

    @property
    def is_open(self) -> bool:
        return self._in_flight_bytes < (1 if self._is_looking else self.bytes)

    @property
    def chunk_bytes(self) -> int:
        """Several chunks fit into the window, so that other frames find gaps."""
        if self._is_looking:
            return MIN_CHUNK_BYTES
        return max(MIN_CHUNK_BYTES, min(self.bytes // CHUNKS_PER_WINDOW, MAX_CHUNK_BYTES))

    def sent(self, size_bytes: int, now: float) -> None:
        self._chunks.append(Chunk(size_bytes, now, self._arrived_bytes, self._is_looking))
        self._in_flight_bytes += size_bytes

    def acknowledged(self, now: float) -> bool:
        """The oldest chunk on its way has arrived; False if there is none."""
        if not self._chunks:
            return False
        chunk = self._chunks.popleft()
        self._in_flight_bytes -= chunk.size_bytes
        self._arrived_bytes += chunk.size_bytes
        took_s = max(now - chunk.sent_at, 1e-6)
        if chunk.is_alone:
            self._idle_s, self._looked_at, self._is_looking = took_s, now, False
            return True
        self._idle_s = min(self._idle_s, took_s)
        self._is_looking |= now - self._looked_at > LOOK_AGAIN_S
        rate = (self._arrived_bytes - chunk.arrived_before) / took_s
        peak = self._rate.note(rate, now)
        target_s = 2 * self._idle_s + QUEUE_S
        # Where the way is that crowded, by other links as well, the peak was of a moment without them.
        wanted = (rate if took_s > CROWDED * target_s else peak) * target_s
        self.bytes = int(min(max(wanted, MIN_BYTES), MAX_BYTES))
        return True
