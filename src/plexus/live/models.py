"""Models as a live peer holds them: bytes of safetensors files, never a pickle.

All models of a session have the same tensors, hence the same header. A model from a peer is accepted only
if its header is, byte for byte, the one of this node's own initial model: nothing of it is interpreted.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.poly1305 import Poly1305
from numpy.typing import NDArray

from plexus.errors import PlexusError
from plexus.live.room import BOUNDLESS, Room, pieces
from plexus.rng import array_stream
from plexus.runs.encoding import HALVES, KEPT, QUANTISED, SCALES, WHOLE, Restored, quantised, steps

if TYPE_CHECKING:
    from plexus.live.transport.receiving import Ticket

_LENGTH_BYTES = 8
NOT_FINITE = "it has numbers that are not finite"
_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BOOL": "u1"}
_TYPES |= {"I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U16": "<u2", "U8": "u1"}


@dataclass(slots=True, eq=False)
class LiveModel:
    data: memoryview
    seal: bytes
    ticket: Ticket | None = None
    """Of the buffer that it arrived in, until it is used up or kept for good."""
    is_whole: bool | None = None
    """Whether it fits its seal, where that was found out as it came."""

    def spend(self) -> None:
        """Its numbers are in a sum: its memory is used for something else."""
        self.data, self.ticket = memoryview(b""), None


class ModelLayout:
    """Where the numbers are in an encoded model, as runs of one type."""

    def __init__(self, model: bytes | memoryview, room: Room = BOUNDLESS) -> None:
        self.room = room
        length = int.from_bytes(model[:_LENGTH_BYTES], "little")
        self.size_bytes = len(model)
        self.header = bytes(model[: _LENGTH_BYTES + length])
        tensors = json.loads(self.header[_LENGTH_BYTES:])
        tensors.pop("__metadata__", None)
        spans = sorted((*t["data_offsets"], name, t["dtype"]) for name, t in tensors.items())
        self.runs: list[tuple[np.dtype[Any], int, int]] = []
        self._spans: dict[str, tuple[np.dtype[Any], int, int]] = {}
        for start, stop, name, kind in spans:
            if kind not in _TYPES:
                raise PlexusError(f"the model's tensor {name} is {kind}, which cannot be averaged")
            dtype, begin, end = np.dtype(_TYPES[kind]), len(self.header) + start, len(self.header) + stop
            self._spans[name] = dtype, begin, end
            if self.runs and self.runs[-1][0] == dtype and self.runs[-1][2] == begin:
                _, begin, _ = self.runs.pop()
            self.runs.append((dtype, begin, end))
        self.kept = [name for name in KEPT if name in self._spans]
        """The parts that are not rounded, of a model that travels in fewer bytes."""

    @property
    def is_quantised(self) -> bool:
        """Whether models travel as bytes with scales."""
        return {QUANTISED, SCALES} <= self._spans.keys()

    @property
    def is_packed(self) -> bool:
        """Whether models travel in fewer bytes than their numbers have."""
        return self.is_quantised or {HALVES} <= self._spans.keys() <= {HALVES, *KEPT}

    def named(self, data: memoryview) -> dict[str, NDArray[Any]]:
        """The tensors of `data` by name, flat, over its memory."""
        return {
            name: np.frombuffer(data[start:stop], dtype) for name, (dtype, start, stop) in self._spans.items()
        }

    def packed(self, values: Sequence[NDArray[np.float32]], *drawn_by: int | str) -> memoryview:
        """A model of these numbers, in the order of `rows`."""
        data = self.blank()
        into = self.named(data)
        if self.is_quantised:
            quantised(values[0], array_stream(0, "wire", *drawn_by), (into[QUANTISED], into[SCALES]))
        else:
            with np.errstate(over="ignore"):  # whoever receives what is not finite refuses it
                into[HALVES][:] = values[0]
        for name, own in zip(self.kept, values[1:], strict=True):
            into[name][:] = np.rint(own) if name == WHOLE else own
        return data

    def rows(self, data: memoryview) -> list[Any]:
        """The numbers of a model that travels in fewer bytes, over its memory; then those that are `kept`."""
        parts = self.named(data)
        numbers = Restored(parts[QUANTISED], parts[SCALES]) if self.is_quantised else parts[HALVES]
        return [numbers, *(parts[name] for name in self.kept)]

    def numbers(self, data: memoryview) -> list[NDArray[Any]]:
        """The runs of `data`, as arrays over its memory."""
        return [np.frombuffer(data[start:stop], dtype) for dtype, start, stop in self.runs]

    def changes(self, data: memoryview) -> list[NDArray[Any]]:
        """The runs of a change: what is never negative in a model may be so here."""
        return [run.view(np.int8) if run.dtype.kind == "u" else run for run in self.numbers(data)]

    def values_of(self, is_change: bool = False) -> Callable[[memoryview], list[Any]]:
        """What reads the numbers that a model stands for, or a change."""
        return self.rows if self.is_packed else self.changes if is_change else self.numbers

    def blank(self) -> memoryview:
        """Memory for a model, its header in place."""
        data = self.room.space(self.size_bytes)
        data[: len(self.header)] = self.header
        return data

    def copy(self, data: memoryview) -> memoryview:
        own = self.room.space(len(data))
        into, source = np.frombuffer(own, np.uint8), np.frombuffer(data, np.uint8)
        for part in pieces(len(data)):
            into[part] = source[part]  # by numpy, which lets others have the interpreter meanwhile
        return own

    def floats(self, count: int, dtype: Any = np.float32) -> NDArray[Any]:
        return np.frombuffer(self.room.space(count * np.dtype(dtype).itemsize), dtype)

    def difference(self, trained: memoryview, base: memoryview) -> memoryview:
        """What a training changed, in memory of its own and no more than that."""
        if self.is_quantised:
            found = []
            for after, before in zip(self.rows(trained), self.rows(base), strict=True):
                found.append(self.floats(after.size))
                for part in pieces(after.size):
                    np.subtract(after[part], before[part], out=found[-1][part])
            return self.packed(found, "change", zlib.crc32(trained))
        data = self.blank()
        runs = zip(self.numbers(trained), self.numbers(base), self.numbers(data), strict=True)
        for after, before, change in runs:
            with np.errstate(all="ignore"):  # whoever receives what is not finite refuses it
                np.subtract(after, before, out=change)
        return data

    def misfit(self, data: memoryview) -> str | None:
        """Why it is no model of this session, if it is none."""
        if len(data) != self.size_bytes or data[: len(self.header)] != self.header:
            return "it has other tensors than this session's model"
        return None

    def flaw(self, data: memoryview) -> str | None:
        if misfit := self.misfit(data):
            return misfit
        for numbers in self.numbers(data):
            with np.errstate(all="ignore"):
                # A sum is not finite if any number is not.
                if numbers.dtype.kind == "f" and not np.isfinite(numbers.sum(dtype=np.float64)):
                    return NOT_FINITE
        if self.is_quantised:
            with np.errstate(all="ignore"):  # scales may be finite, and what they stand for not
                if not np.isfinite(128 * steps(self.named(data)[SCALES])).all():
                    return NOT_FINITE
        return None


KEY_BYTES, TAG_BYTES = 32, 16
SEAL_BYTES = KEY_BYTES + TAG_BYTES
PIECE_BYTES = 256 * 1024
"""Sealed at a time, which holds the interpreter's lock for 30 µs."""


def seal(data: bytes | memoryview) -> bytes:
    """How a receiver knows that a model arrived as it was sent: a Poly1305 tag, behind its key.

    TLS already protects bytes on their way. A seal covers the rest of the path, from the sender's memory to
    the receiver's: chunks mixed up, memory overwritten, a disk that lies. The key is drawn for this one model
    and travels with it: five times as fast as SHA-256.
    """
    key = os.urandom(KEY_BYTES)
    return key + _gone_through(key, data).finalize()


def fits(seal: bytes, data: bytes | memoryview) -> bool:
    assert len(seal) == SEAL_BYTES
    return verified(_gone_through(seal[:KEY_BYTES], data), seal)


def verified(seen: Poly1305, seal: bytes) -> bool:
    """Whether what was `seen`, one piece after the other, is what was sealed."""
    try:
        seen.verify(seal[KEY_BYTES:])
    except InvalidSignature:
        return False
    return True


def _gone_through(key: bytes, data: bytes | memoryview) -> Poly1305:
    found, view = Poly1305(key), memoryview(data)
    for at in range(0, len(view), PIECE_BYTES):
        found.update(view[at : at + PIECE_BYTES])
        time.sleep(0)  # let the event loop have its turn
    return found
