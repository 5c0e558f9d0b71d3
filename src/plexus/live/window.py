"""How much of a model may be on its way: enough to fill the link, little enough that others get through.

Every chunk is acknowledged by the receiver's program, so the sender sees at which rate chunks arrive and
how long one takes on an idle link, sockets, routers and busy processors included. The window is what
arrives in that time and a little more. Control frames wait behind what is on its way, so that little is
also what a transfer may add to their way.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

QUEUE_S = 0.02
"""How long chunks may queue somewhere, beyond twice the time that one takes on an idle link."""
MIN_CHUNK_BYTES, MAX_CHUNK_BYTES = 4 * 1024, 128 * 1024
CHUNKS_PER_WINDOW = 4
MIN_BYTES, INITIAL_BYTES, MAX_BYTES = 16 * 1024, 128 * 1024, 64 * 2**20
RATE_MEMORY_S, IDLE_MEMORY_S = 1.0, 30.0


class Chunk(NamedTuple):
    """A chunk on its way."""

    size_bytes: int
    sent_at: float
    arrived_before: int
    """Bytes that had been acknowledged when it was sent."""


class Extreme:
    """The largest value of the last one to two spans of `memory_s`."""

    def __init__(self, memory_s: float) -> None:
        self._memory_s = memory_s
        self._older = self._newer = float("-inf")
        self._since = float("-inf")

    def note(self, value: float, now: float) -> float:
        if now - self._since > self._memory_s:
            self._older, self._newer, self._since = self._newer, value, now
        self._newer = max(self._newer, value)
        return max(self._older, self._newer)


class Window:
    """The chunks on their way over one link."""

    def __init__(self) -> None:
        self.bytes = INITIAL_BYTES
        self._chunks: deque[Chunk] = deque()
        self._in_flight_bytes = 0
        self._arrived_bytes = 0
        self._rate = Extreme(RATE_MEMORY_S)
        self._minus_idle = Extreme(IDLE_MEMORY_S)

    @property
    def is_open(self) -> bool:
        return self._in_flight_bytes < self.bytes

    @property
    def chunk_bytes(self) -> int:
        """Several chunks fit into the window, so that other frames find gaps."""
        return max(MIN_CHUNK_BYTES, min(self.bytes // CHUNKS_PER_WINDOW, MAX_CHUNK_BYTES))

    def sent(self, size_bytes: int, now: float) -> None:
        self._chunks.append(Chunk(size_bytes, now, self._arrived_bytes))
        self._in_flight_bytes += size_bytes

    def acknowledged(self, now: float) -> bool:
        """The oldest chunk on its way has arrived; False if there is none."""
        if not self._chunks:
            return False
        chunk = self._chunks.popleft()
        self._in_flight_bytes -= chunk.size_bytes
        self._arrived_bytes += chunk.size_bytes
        took_s = max(now - chunk.sent_at, 1e-6)
        rate = self._rate.note((self._arrived_bytes - chunk.arrived_before) / took_s, now)
        idle_s = -self._minus_idle.note(-took_s, now)
        self.bytes = int(min(max(rate * (2 * idle_s + QUEUE_S), MIN_BYTES), MAX_BYTES))
        return True
