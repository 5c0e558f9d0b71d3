"""The event loop of virtual time: a heap of (time, sequence number), first in first out among equals."""

from __future__ import annotations

import gc
import hashlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Any, TypeAlias

Token: TypeAlias = int
"""What an entry is cancelled by."""
Deliver: TypeAlias = Callable[[int, Any], None]

_DIGEST_BATCH = 1 << 16


class Kernel:
    """Delivers events in order of time; knows nothing of what they mean.

    The digest covers time, order of scheduling and target of every delivered event: two runs with the
    same digest did the same things at the same moments in the same order.
    """

    def __init__(self, deliver: Deliver) -> None:
        self.now = 0.0
        self._deliver = deliver
        self._heap: list[tuple[float, Token, int, Any]] = []
        self._next_token = 0
        self._cancelled: set[Token] = set()
        self._times = array("d")
        self._tokens = array("q")
        self._targets = array("q")
        self._hash = hashlib.blake2b(digest_size=16)
        self._folded = 0

    def at(self, time_s: float, target: int, event: Any) -> Token:
        """Deliver `event` to `target` at `time_s`, after everything already due then."""
        token = self._next_token
        self._next_token = token + 1
        heappush(self._heap, (time_s, token, target, event))
        return token

    def spread(self, targets: Sequence[int], delays_s: Sequence[float], event: Any) -> None:
        """Deliver one event to many targets, each after its own delay."""
        now, heap, token = self.now, self._heap, self._next_token
        for target, delay_s in zip(targets, delays_s, strict=True):
            heappush(heap, (now + delay_s, token, target, event))
            token += 1
        self._next_token = token

    def cancel(self, token: Token) -> None:
        """Do not deliver the event behind `token`. It must not have been delivered yet."""
        self._cancelled.add(token)

    def run(self, until_s: float) -> None:
        """Deliver everything due up to and including `until_s`, then let the clock stand there."""
        collects = gc.isenabled()
        gc.disable()  # events are many, and in no cycles that Python would have to look for
        try:
            self._run(until_s)
        finally:
            if collects:
                gc.enable()

    def _run(self, until_s: float) -> None:
        heap, cancelled, deliver = self._heap, self._cancelled, self._deliver
        times = self._times
        # Bound once: these run for every event.
        note_time, note_token = times.append, self._tokens.append
        note_target = self._targets.append
        while heap and heap[0][0] <= until_s:
            time_s, token, target, event = heappop(heap)
            if token in cancelled:
                cancelled.remove(token)
                continue
            self.now = time_s
            note_time(time_s)
            note_token(token)
            note_target(target)
            deliver(target, event)
            if len(times) >= _DIGEST_BATCH:
                self._fold()
        self.now = max(self.now, until_s)

    def pending(self) -> Iterator[tuple[int, Any]]:
        """What is still to be delivered, as (target, event) in no particular order."""
        for _, token, target, event in self._heap:
            if token not in self._cancelled:
                yield target, event

    @property
    def delivered(self) -> int:
        """How many events were delivered so far."""
        return self._folded + len(self._times)

    def digest(self) -> str:
        """A fingerprint of everything delivered so far. Asking for it changes nothing."""
        so_far = self._hash.copy()
        for column in (self._times, self._tokens, self._targets):
            so_far.update(column.tobytes())
        return so_far.hexdigest()

    def _fold(self) -> None:
        self._folded += len(self._times)
        for column in (self._times, self._tokens, self._targets):
            self._hash.update(column.tobytes())
            del column[:]
