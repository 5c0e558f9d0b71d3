"""Hashes of models, computed while they arrive and, if they are large, on another thread."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

INLINE_BYTES = 128 * 1024
_threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="hash")


def digest_of(data: bytes | memoryview) -> bytes:
    """The hash that names a model on the wire: SHA-256, the fastest strong one on common processors."""
    return hashlib.sha256(data).digest()


class StreamHash:
    """The hash of a buffer that is being filled from its beginning."""

    def __init__(self, buffer: memoryview) -> None:
        self._buffer = buffer
        self._hash = hashlib.sha256()
        self._hashed = 0
        self._filled = 0
        self._busy = False
        self._waiting: list[Callable[[bytes], None]] = []

    def advance(self, filled: int) -> None:
        """The first `filled` bytes are there."""
        self._filled = filled
        self._go_on()

    def when_done(self, action: Callable[[bytes], None]) -> None:
        """Call `action` with the hash of what is there so far, once it is computed."""
        self._waiting.append(action)
        self._go_on()

    def _go_on(self) -> None:
        if self._busy:
            return
        start, stop = self._hashed, self._filled
        if stop - start <= INLINE_BYTES and not self._is_large:
            self._hash.update(self._buffer[start:stop])
            self._hashed = stop
            self._tell()
        elif start < stop:
            self._busy = True
            loop = asyncio.get_running_loop()
            job = loop.run_in_executor(_threads, self._hash.update, self._buffer[start:stop])
            job.add_done_callback(lambda _: self._on_job(stop))
        else:
            self._tell()

    @property
    def _is_large(self) -> bool:
        return len(self._buffer) > INLINE_BYTES

    def _on_job(self, stop: int) -> None:
        self._busy = False
        self._hashed = stop
        self._go_on()

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, []
        for action in waiting:
            action(self._hash.digest())
