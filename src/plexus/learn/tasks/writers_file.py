"""Handwritten digits with the writer of each: QMNIST's IDX files, or one .npz of the same content.

QMNIST's labels have eight columns: the class first, the writer third. Its first 10,000 test images
are MNIST's.
"""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plexus.errors import PlexusError
from plexus.learn.tasks.folder import needed_file
from plexus.learn.tasks.idx import read_idx

NPZ = "mnist_by_writer.npz"
DAMAGED_ZIP = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
"""What `zipfile` raises; the last two for flags that say how a member is packed or locked."""
TEST_IMAGES = 10_000


@dataclass(frozen=True)
class Written:
    """Images of n x 28 x 28 bytes, the digit and the writer of each."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    writers: NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.images.shape[1:] != (28, 28):
            raise PlexusError(f"images of shape {self.images.shape} where n x 28 x 28 was expected")
        if not len(self.images) == len(self.labels) == len(self.writers):
            raise PlexusError(
                f"{len(self.images)} images, {len(self.labels)} labels and {len(self.writers)}"
                " writers: one of each per digit is needed"
            )


def read_written_digits(folder: Path) -> tuple[Written, Written]:
    """(training, test)."""
    if (folder / NPZ).is_file():
        return _read_npz(folder / NPZ)
    test = _read_idx(folder, "test")
    return _read_idx(folder, "train"), Written(
        test.images[:TEST_IMAGES], test.labels[:TEST_IMAGES], test.writers[:TEST_IMAGES]
    )


def _read_npz(path: Path) -> tuple[Written, Written]:
    try:
        # Opened here: of a damaged file, numpy would leave it open.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            parts = [
                Written(
                    arrays[f"x_{part}"],
                    arrays[f"y_{part}"].astype(np.int64),
                    arrays[f"writer_{part}"].astype(np.int64),
                )
                for part in ("train", "test")
            ]
    except (OSError, ValueError, TypeError, KeyError, MemoryError, *DAMAGED_ZIP) as error:
        raise PlexusError(f"{path} is not a file of digits by writer: {error}") from None
    return parts[0], parts[1]


def _read_idx(folder: Path, part: str) -> Written:
    what = f"a folder of written digits has {NPZ} or QMNIST's IDX files"
    stem = f"qmnist-{part}"
    images = needed_file(
        folder, f"{stem}-images-idx3-ubyte", f"{stem}-images-idx3-ubyte.gz", what=what
    )
    labels = needed_file(folder, f"{stem}-labels-idx2-int", f"{stem}-labels-idx2-int.gz", what=what)
    columns = read_idx(labels)
    if columns.ndim != 2 or columns.shape[1] < 3:
        raise PlexusError(f"{labels} does not have QMNIST's columns: the third is the writer")
    return Written(read_idx(images), columns[:, 0].astype(np.int64), columns[:, 2].astype(np.int64))
