"""The event loop of virtual time: a heap of (time, sequence number), first in first out among equals."""

from __future__ import annotations

import gc
import hashlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain, count
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Token: TypeAlias = int
"""What an entry is cancelled by."""
Entry: TypeAlias = tuple[float, Token, int, Any]
"""When, in which order, to whom, and what."""
Deliver: TypeAlias = Callable[[int, Any], None]

SPAN_S = 8.0
_DIGEST_BATCH = 1 << 16
_MANY = 1 << 12


class Kernel:
    """Delivers events in order of time; knows nothing of what they mean.

    The digest covers time, order of scheduling and target of every delivered event: two runs with the
    same digest did the same things at the same moments in the same order. Some events are only announced:
    they are in the digest as if they were delivered, and somebody else sees to them.
    """

    def __init__(self, deliver: Deliver) -> None:
        self.now = 0.0
        self.token: Token = -1
        """Of the event that is being delivered, or was last."""
        self._deliver = deliver
        self._heap: list[Entry] = []
        """What is due before the horizon."""
        self._horizon_s = 0.0
        self._later: dict[float, list[Entry]] = {}
        """The others, by their span of time: most are timers, and most timers are cancelled."""
        self._spans: list[float] = []
        """The spans there are, as a heap."""
        self._next_token = 0
        self._cancelled: set[Token] = set()
        self._announced: set[Token] = set()
        """Entries that are in the digest already."""
        self._announcements: list[tuple[float, int, Token, array[int]]] = []
        """The newest of them."""
        self.delays_s: Callable[[NDArray[Any], NDArray[Any]], NDArray[np.float64]]
        """How long what is announced takes from its origins to its targets."""
        self._delivered: list[float] = []
        """Time, token and target of each event, one after the other, until they are moved to the others."""
        self._noted = array("d")
        """The same of what was delivered or announced and is not hashed, in no order."""
        self._hash = hashlib.blake2b(digest_size=16)
        self._folded = 0

    def at(self, time_s: float, target: int, event: Any) -> Token:
        """Deliver `event` to `target` at `time_s`, after everything already due then."""
        token = self._next_token
        self._next_token = token + 1
        self._enter((time_s, token, target, event))
        return token

    def _enter(self, entry: Entry) -> None:
        if entry[0] < self._horizon_s:
            heappush(self._heap, entry)
            return
        span = entry[0] // SPAN_S
        entries = self._later.get(span)
        if entries is None:
            entries = self._later[span] = []
            heappush(self._spans, span)
        entries.append(entry)

    def spread(self, targets: Sequence[int], delays_s: Sequence[float], event: Any) -> None:
        """Deliver one event to many targets, each after its own delay."""
        for token, target, delay_s in zip(count(self._next_token), targets, delays_s, strict=False):
            self._enter((self.now + delay_s, token, target, event))
        self._next_token += len(targets)

    def announce(self, origin: int, targets: array[int]) -> Token:
        """Something gets from here to these targets, and nobody need be told when. The token of the first;
        the others follow."""
        first = self._next_token
        self._next_token = first + len(targets)
        self._announcements.append((self.now, origin, first, targets))
        if len(self._announcements) >= _MANY:
            self._note_announcements()
        return first

    def _note_announcements(self) -> None:
        if not self._announcements:
            return
        since_s, origins, firsts, targets = zip(*self._announcements, strict=True)
        self._announcements.clear()
        counts = np.array([len(some) for some in targets])
        at = np.frombuffer(b"".join(targets), np.intc)
        times_s = np.repeat(since_s, counts) + self.delays_s(np.repeat(origins, counts), at)
        before = np.cumsum(counts) - counts
        tokens = np.repeat(np.array(firsts) - before, counts) + np.arange(len(at))
        self._noted.frombytes(np.stack([times_s, tokens, at], axis=1).tobytes())

    def hand_over(self, time_s: float, token: Token, target: int, event: Any) -> None:
        """Deliver what was announced by `token` after all."""
        self._announced.add(token)
        self._enter((time_s, token, target, event))

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
        heap, cancelled, announced, deliver = self._heap, self._cancelled, self._announced, self._deliver
        delivered = self._delivered
        while (heap or self._move_horizon(until_s)) and heap[0][0] <= until_s:
            time_s, token, target, event = heappop(heap)
            if token in cancelled:
                cancelled.remove(token)
                continue
            self.now = time_s
            self.token = token
            if token in announced:
                announced.remove(token)
            else:
                delivered += (time_s, token, target)
            deliver(target, event)
        self.now = max(self.now, until_s)
        self.token = self._next_token

    def _move_horizon(self, until_s: float) -> bool:
        """Put what is due next into the empty heap; says whether there is something so soon."""
        if len(self._delivered) >= _MANY:
            self._note_delivered()
            if len(self._noted) >= 3 * _DIGEST_BATCH:
                self._fold()
        while self._spans and self._spans[0] * SPAN_S <= until_s:
            span = heappop(self._spans)
            self._horizon_s = (span + 1) * SPAN_S
            entries = self._later.pop(span)
            over = self._cancelled.intersection([entry[1] for entry in entries])
            self._cancelled -= over
            self._heap += [entry for entry in entries if entry[1] not in over]
            if self._heap:
                heapify(self._heap)
                return True
        return False

    def pending(self) -> Iterator[tuple[int, Any]]:
        """What is still to be delivered, as (target, event) in no particular order."""
        for _, token, target, event in chain(self._heap, *self._later.values()):
            if token not in self._cancelled:
                yield target, event

    @property
    def delivered(self) -> int:
        """How many events were delivered so far."""
        return self._folded + int(np.count_nonzero(self._not_hashed()[:, 0] <= self.now))

    def digest(self) -> str:
        """A fingerprint of everything delivered so far. Asking for it changes nothing."""
        so_far, columns = self._hash.copy(), self._in_order()
        _update(so_far, columns, int(np.searchsorted(columns[0], self.now, "right")))
        return so_far.hexdigest()

    def _note_delivered(self) -> None:
        self._noted.frombytes(np.fromiter(self._delivered, np.float64).tobytes())
        self._delivered.clear()

    def _fold(self) -> None:
        """Hash what happened before now in whole batches, and keep the rest."""
        columns = self._in_order()
        over = int(np.searchsorted(columns[0], self.now)) // _DIGEST_BATCH * _DIGEST_BATCH
        _update(self._hash, columns, over)
        self._folded += over
        self._noted = array("d", np.stack([column[over:] for column in columns], axis=1).tobytes())

    def _in_order(self) -> list[NDArray[Any]]:
        """Times, tokens and targets of what was delivered or announced and is not hashed."""
        rows = self._not_hashed()
        times, tokens, targets = rows[np.lexsort((rows[:, 1], rows[:, 0]))].T
        return [times, tokens.astype(np.int64), targets.astype(np.int64)]

    def _not_hashed(self) -> NDArray[np.float64]:
        self._note_announcements()
        self._note_delivered()
        return np.array(self._noted).reshape(-1, 3)


def _update(so_far: Any, columns: list[NDArray[Any]], over: int) -> None:
    for at in range(0, over, _DIGEST_BATCH):
        for column in columns:
            so_far.update(column[at : min(at + _DIGEST_BATCH, over)].tobytes())
