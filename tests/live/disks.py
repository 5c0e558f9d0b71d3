"""Disks as they can be: full, slow, and damaged."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def small_disk(path: Path, kilobytes: int) -> Iterator[Path]:
    """A real file system of this size at `path`."""
    path.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k,mode=700", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a small file system needs root")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill(disk: Path) -> None:
    """Leave no room on the disk."""
    with suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(512))


def damaged(data: bytes) -> Iterator[bytes]:
    """`data` with each of its bits flipped, and cut at each of its bytes."""
    for at in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[at // 8] ^= 1 << at % 8
        yield bytes(flipped)
    for length in range(len(data)):
        yield data[:length]


class SlowDisk:
    """Syncing takes until it is allowed to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._may_go_on = threading.Event()
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self._wait)

    def go_on(self) -> None:
        self._may_go_on.set()

    def _wait(self, descriptor: int) -> None:
        self._may_go_on.wait()
        self._fsync(descriptor)
