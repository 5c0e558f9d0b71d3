"""Room for models that are arriving: a fixed number of buffers, given out first come, first served."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np


class Ticket:
    """A place in the queue, then a buffer."""

    __slots__ = ("asked_at", "buffer", "granted")

    def __init__(self, granted: Callable[[], None], asked_at: float = 0.0) -> None:
        self.granted = granted
        """Called when the buffer is there."""
        self.asked_at = asked_at
        self.buffer: memoryview | None = None


class Buffers:
    """Every model of a session has the same size, so a buffer fits any of them."""

    def __init__(self, size_bytes: int, memory_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.count = max(2, memory_bytes // max(1, size_bytes))
        self._free = self.count
        self._spare: list[memoryview] = []
        self._waiting: deque[Ticket] = deque()

    @property
    def in_use(self) -> int:
        return self.count - self._free

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def waiting_since(self) -> float | None:
        """When the first of those who wait asked."""
        return self._waiting[0].asked_at if self._waiting else None

    def request(self, ticket: Ticket) -> None:
        """Ask for a buffer, now or when it is this ticket's turn."""
        self._waiting.append(ticket)
        self._serve()

    def withdraw(self, ticket: Ticket) -> None:
        """The ticket is no longer needed. A buffer it got is not used again: the rest of a chunk may still be
        on its way into it."""
        if ticket.buffer is not None:
            self.let_go(ticket)
        elif ticket in self._waiting:
            self._waiting.remove(ticket)

    def give_back(self, ticket: Ticket) -> None:
        """The model has been used up; the buffer can take another."""
        assert ticket.buffer is not None, "given back twice"
        if not self._spare:
            self._spare.append(ticket.buffer)
        self._release(ticket)

    def let_go(self, ticket: Ticket) -> None:
        """The model is kept by somebody, buffer and all; make room for another."""
        assert ticket.buffer is not None, "let go twice"
        self._release(ticket)

    def _release(self, ticket: Ticket) -> None:
        ticket.buffer = None
        self._free += 1
        self._serve()

    def _serve(self) -> None:
        while self._free and self._waiting:
            ticket = self._waiting.popleft()
            self._free -= 1
            ticket.buffer = self._spare.pop() if self._spare else self._new()
            ticket.granted()

    def _new(self) -> memoryview:
        # Not a bytearray: that would be filled with zeros first.
        return np.empty(self.size_bytes, np.uint8).data
