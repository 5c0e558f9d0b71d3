"""TensorBoard's event files, written without TensorBoard: a few fields of two messages, and a checksum.

A record is its length, the length's checksum, the event and the event's checksum. The time of an event is
simulated time, so that TensorBoard's "relative" axis shows simulated hours; its step is the round.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from plexus.files import named

FOLDER, FILE = "tensorboard", "events.out.tfevents.0000000000.plexus"
STEPS = {"evaluations": "evaluation", "rounds": "round", "online": "online"}
"""The tables that are shown, and how their scalars' names begin."""
_NOT_SCALARS = {"simulated_s", "round", "aggregator"}


class EventFile:
    """Scalars of one run in `directory/tensorboard`. Replaces those of an earlier run."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FOLDER / FILE
        self._file: IO[bytes] | None = None
        """Opened by the first row: a run that cannot begin leaves nothing behind."""

    def row(self, table: str, row: Mapping[str, Any]) -> None:
        """One event with every number in a row of a table."""
        if (group := STEPS.get(table)) is None:
            return
        simulated_s = float(row["simulated_s"])
        step = int(row.get("round", simulated_s // 60))
        summary = b"".join(
            _bytes(1, _scalar(f"{group}/{name}", value))
            for name, value in row.items()
            if name not in _NOT_SCALARS and isinstance(value, int | float)
        )
        self._write(_double(1, simulated_s) + bytes([2 << 3]) + _number(step) + _bytes(5, summary))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _write(self, event: bytes) -> None:
        if self._file is None:
            with named(self._path):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("wb")
            self._file.write(_record(_double(1, 0.0) + _bytes(3, b"brain.Event:2")))
        self._file.write(_record(event))
        self._file.flush()  # TensorBoard may be watching


def delete_events(directory: Path) -> None:
    (directory / FOLDER / FILE).unlink(missing_ok=True)
    with suppress(OSError):  # not there, or somebody else's file is in it
        (directory / FOLDER).rmdir()


def _record(event: bytes) -> bytes:
    length = struct.pack("<Q", len(event))
    return length + _checksum(length) + event + _checksum(event)


def _scalar(name: str, value: float) -> bytes:
    return _bytes(1, name.encode()) + bytes([2 << 3 | 5]) + struct.pack("<f", value)


# The wire format of protocol buffers: a field's number and kind, then its value.


def _double(field: int, value: float) -> bytes:
    return bytes([field << 3 | 1]) + struct.pack("<d", value)


def _bytes(field: int, value: bytes) -> bytes:
    return bytes([field << 3 | 2]) + _number(len(value)) + value


def _number(value: int) -> bytes:
    pieces = []
    while value > 127:
        pieces.append(value & 127 | 128)
        value >>= 7
    return bytes([*pieces, value])


def crc32c(data: bytes) -> int:
    """Castagnoli's checksum, which `zlib` does not have."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def _checksum(data: bytes) -> bytes:
    """Masked, as the format asks: checksums of data that holds checksums are weak."""
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
