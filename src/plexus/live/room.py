"""Where a peer's models lie: in memory as far as it goes, beyond that in files without a name.

Files are mapped, so a model looks the same to everybody wherever it lies. What was touched of them does not
stay in the peer's memory: where it is more than models in memory leave of the budget, a thread gives it back,
many times a second, and the system writes it out as it needs to. So a peer takes its budget, and what it goes
through in a moment.

Files are used again: the first write to a page that is new to the system may take longer than to encrypt,
send, decrypt and check what is written. So a model that is to stay is not copied: its file gets a name.
"""

from __future__ import annotations

import io
import math
import mmap
import os
import sys
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from plexus.errors import PlexusError
from plexus.files import replacing, write_synced

TRIM_S = 0.05
LEAST_BYTES = 2**26
"""Of files, so much may be in memory in any case: a few moments' worth."""
SPARE = 6
"""Files that are kept for the next models."""
PIECE = 2**16
"""Numbers handled at a time: they stay in a processor's cache, and whoever waits gets its turn soon."""


def pieces(count: int) -> Iterator[slice]:
    """All of so many numbers, some at a time."""
    return (slice(at, min(at + PIECE, count)) for at in range(0, count, PIECE))


class Room:
    """Memory for models up to `memory_bytes`, then files in `folder`."""

    def __init__(self, folder: Path, memory_bytes: int) -> None:
        self._folder = folder
        self._memory_bytes = memory_bytes
        self._lock = threading.Lock()
        self._held: list[weakref.ref[NDArray[Any]]] = []
        self._mapped: list[weakref.ref[mmap.mmap]] = []
        self._is_trimming = False
        self._spare: deque[IO[bytes]] = deque()
        """Files of `_size` bytes, written to already."""
        self._size = 0

    def space(self, size_bytes: int) -> memoryview:
        """For a model, as long as somebody holds it; a `PlexusError` if the disk is full."""
        with self._lock:
            if self._taken_bytes() + size_bytes <= self._memory_bytes:
                array = np.empty(size_bytes, np.uint8)  # a bytearray would be filled with zeros first
                self._held.append(weakref.ref(array))
                return array.data
        try:
            file = self._ready(size_bytes) or self._new(size_bytes)
        except OSError as error:
            raise PlexusError(f"{self._folder}: no room for another model: {error.strerror}") from None
        self._size = size_bytes
        data = self.map(file)
        _files[data.obj] = file
        weakref.finalize(data.obj, self._take_back, file).atexit = False
        return data

    def _taken_bytes(self) -> int:
        """By models in memory."""
        self._held = [each for each in self._held if each() is not None]
        return sum(array.nbytes for each in self._held if (array := each()) is not None)

    def _ready(self, size_bytes: int) -> IO[bytes] | None:
        with suppress(IndexError):  # there is none
            while True:
                file = self._spare.popleft()
                if os.fstat(file.fileno()).st_size == size_bytes:
                    return file
                file.close()
        return None

    def _new(self, size_bytes: int) -> IO[bytes]:
        try:  # not by `tempfile`, whose files cannot get a name
            file: IO[bytes] = io.FileIO(os.open(self._folder, os.O_TMPFILE | os.O_RDWR, 0o600), "r+")
        except (AttributeError, OSError):  # not every system has such files
            file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115
        try:
            # The room on the disk is taken now: else a full one would end the process later.
            take = getattr(os, "posix_fallocate", lambda fd, _, size: os.truncate(fd, size))
            take(file.fileno(), 0, size_bytes)
        except OSError:
            file.close()
            raise
        return file

    def _take_back(self, file: IO[bytes]) -> None:
        if file.closed:  # it has a name
            return
        if len(self._spare) < SPARE and os.fstat(file.fileno()).st_size == self._size:
            self._spare.append(file)
        else:
            file.close()
        if not self._is_trimming:  # looked at last: the thread may have closed what there was just before
            self._close_spare()

    def map(self, file: IO[bytes], access: int = mmap.ACCESS_WRITE) -> memoryview:
        """What is in a file, without holding it in memory."""
        mapped = mmap.mmap(file.fileno(), 0, access=access)
        with self._lock:
            self._mapped.append(weakref.ref(mapped))
            if not self._is_trimming:
                self._is_trimming = True
                threading.Thread(target=self._keep_trimming, name="room", daemon=True).start()
        return memoryview(mapped)

    def _keep_trimming(self) -> None:
        while self._trim():
            time.sleep(TRIM_S)
        self._close_spare()

    def _close_spare(self) -> None:
        with suppress(IndexError):  # somebody else takes the last one
            while True:
                self._spare.pop().close()

    def _trim(self) -> bool:
        """Whether there is anything left in files."""
        with self._lock:
            found = [(each, mapped) for each in self._mapped if (mapped := each()) is not None]
            self._mapped = [each for each, _ in found]
            self._is_trimming = bool(found)
            left_bytes = self._memory_bytes - self._taken_bytes()
        if touched_bytes() > max(left_bytes, LEAST_BYTES):
            for _, mapped in found:
                mapped.madvise(mmap.MADV_DONTNEED)  # of a shared file nothing is lost
        return bool(found)


BOUNDLESS = Room(Path(), sys.maxsize)
"""Memory for whatever comes."""


_files: weakref.WeakKeyDictionary[Any, IO[bytes]] = weakref.WeakKeyDictionary()
"""Those that models lie in, by what they are mapped to."""


def put(data: memoryview, at: int, piece: bytes | memoryview) -> None:
    """Write a part of a model. A file is not written by way of its map: for every page that is new there, the
    system would do more than write it."""
    file = _files.get(data.obj) if isinstance(data.obj, mmap.mmap) else None
    if file is None:
        data[at : at + len(piece)] = piece
        return
    while piece:
        count = os.pwrite(file.fileno(), piece, at)
        at, piece = at + count, piece[count:]


def keep(path: Path, data: memoryview) -> None:
    """As `write_bytes`, of a model that nobody changes any more: a file that it lies in gets the name."""
    with replacing(path) as temporary:
        if not _gets_name(data, temporary):
            write_synced(temporary, data)


def use_again(data: memoryview) -> IO[bytes] | None:
    """The file that a model lies in gets no name from now on, and is used for others."""
    return _files.pop(data.obj, None) if isinstance(data.obj, mmap.mmap) else None


def _gets_name(data: memoryview, path: Path) -> bool:
    file = use_again(data)
    if file is None or os.fstat(file.fileno()).st_size != len(data):
        return False
    path.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:  # with a folder's descriptor, what the link stands for gets the name
        os.link(f"/proc/self/fd/{file.fileno()}", path.name, dst_dir_fd=folder)
    except OSError:  # not every system can do it
        return False
    finally:
        os.close(folder)
    os.fsync(file.fileno())
    file.close()  # so it is used for no other model
    return True


def touched_bytes() -> float:
    """What this process has of files in its memory, as far as the system tells."""
    try:
        shared = Path("/proc/self/statm").read_text().split()[2]
    except OSError:
        return math.inf
    return int(shared) * mmap.PAGESIZE
