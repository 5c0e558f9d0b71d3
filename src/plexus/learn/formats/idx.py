"""IDX, the format of MNIST and its kin: a type and the dimensions, then the numbers, big-endian."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plexus.errors import PlexusError

TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: Path) -> NDArray[Any]:
    """The array in an IDX file, plain or gzipped."""
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise PlexusError(f"{path} cannot be read: {error}") from None
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in TYPES:
        raise PlexusError(f"{path} is not an IDX file: it does not begin with IDX's four bytes")
    dtype, axes = np.dtype(TYPES[content[2]]), content[3]
    header = 4 + 4 * axes
    shape = [int.from_bytes(content[at : at + 4], "big") for at in range(4, header, 4)]
    expected = header + math.prod(shape) * dtype.itemsize
    if len(content) != expected:
        raise PlexusError(f"{path} is damaged: {len(content)} bytes where {expected} were expected")
    return (
        np.frombuffer(content, dtype, offset=header).reshape(shape).astype(dtype.newbyteorder("="))
    )
