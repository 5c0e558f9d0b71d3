"""IDX, the format of MNIST and its kin: a type and the dimensions, then the numbers, big-endian."""

from __future__ import annotations

import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plexus.errors import PlexusError

TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}

GZIP = 16 + zlib.MAX_WBITS
HEAD_BYTES = 4 + 4 * 255
MOST_BYTES = 2**30


def read_idx(path: Path) -> NDArray[Any]:
    """The array in an IDX file, plain or gzipped."""
    gunzip = zlib.decompressobj(GZIP)
    is_packed = path.suffix == ".gz"
    try:
        content = path.read_bytes()
        head = gunzip.decompress(content, HEAD_BYTES) if is_packed else content[:HEAD_BYTES]
        dtype, shape, expected = _parse(path, head)
        if is_packed:
            # No more than is expected: a few bytes can hold gigabytes.
            content = head + gunzip.decompress(gunzip.unconsumed_tail, expected)
    except (OSError, zlib.error) as error:
        raise PlexusError(f"{path} cannot be read: {error}") from None
    if len(content) != expected:
        raise PlexusError(f"{path} is damaged: {len(content)} bytes where {expected} were expected")
    header = 4 + 4 * len(shape)
    return (
        np.frombuffer(content, dtype, offset=header).reshape(shape).astype(dtype.newbyteorder("="))
    )


def _parse(path: Path, head: bytes) -> tuple[np.dtype[Any], list[int], int]:
    """Type, dimensions, and how many bytes there should be."""
    if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in TYPES:
        raise PlexusError(f"{path} is not an IDX file: it does not begin with IDX's four bytes")
    dtype, header = np.dtype(TYPES[head[2]]), 4 + 4 * head[3]
    shape = [int.from_bytes(head[at : at + 4], "big") for at in range(4, header, 4)]
    expected = header + math.prod(shape) * dtype.itemsize
    if expected > MOST_BYTES:
        raise PlexusError(f"{path} claims to be of {expected} bytes; at most {MOST_BYTES} are read")
    return dtype, shape, expected
