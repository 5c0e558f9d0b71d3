"""Files in the data directory: whether they are what they should be, and how they get there whole."""

from __future__ import annotations

import errno
import hashlib
import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal

from plexus.data.registry import File
from plexus.errors import PlexusError
from plexus.files import data_directory

State = Literal["here", "missing", "other"]
CHUNK = 1 << 20


class WrongContentError(PlexusError):
    """A file is whole, but not the one it should be."""


def path_of(file: File) -> Path:
    return data_directory() / file.path


def state_of(file: File) -> State:
    """`here`, `missing`, or `other`: something else has its name."""
    path = path_of(file)
    if not path.is_file():
        return "missing"
    return "here" if matches(file, path) else "other"


def matches(file: File, path: Path) -> bool:
    """Whether the content at `path` has one of the file's checksums."""
    return any(_checksum(path, known) == known for known in file.checksums)


def _checksum(path: Path, like: str) -> str:
    """Of a file's content, of the kind that `like` is."""
    kind = like.partition(":")[0]
    with path.open("rb") as content:
        return f"{kind}:{hashlib.file_digest(content, kind).hexdigest()}"


def verify(file: File, path: Path, source: str) -> None:
    if not matches(file, path):
        found, wanted = _checksum(path, file.checksums[0]), " or ".join(file.checksums)
        raise WrongContentError(f"{source}: wrong checksum {found}, {file.path} has {wanted}")


def room_for(size: int, folder: Path, what: str) -> None:
    """Refuse before the work what cannot fit."""
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    if free < size:
        raise PlexusError(f"{what} needs {size:,} bytes, but {existing} has only {free:,} left")


@contextmanager
def writing_to(path: Path) -> Iterator[None]:
    """Errors of the operating system, as one line that names the path."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise PlexusError(f"{path}: the disk is full; free some space and run it again") from None
        raise PlexusError(f"{error.filename or path}: {error.strerror or error}") from None


@contextmanager
def all_or_nothing() -> Iterator[dict[Path, Path]]:
    """Temporary files by the path they are for; they get their names if all goes well, else vanish."""
    temporaries: dict[Path, Path] = {}
    try:
        yield temporaries
        for path, temporary in temporaries.items():
            with writing_to(path):
                temporary.replace(path)
    finally:
        for temporary in temporaries.values():
            temporary.unlink(missing_ok=True)


def copy_into(source: IO[bytes], path: Path, temporaries: dict[Path, Path], most: float = math.inf) -> Path:
    """Write a stream, at most so many bytes and down to the disk, to a temporary file for `path`."""
    with writing_to(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporaries[path] = path.with_name(f".{path.name}.new")
        with temporaries[path].open("wb") as target:
            while (left := most - target.tell()) > 0 and (chunk := source.read(int(min(CHUNK, left)))):
                target.write(chunk)
            target.flush()
            os.fsync(target.fileno())
    return temporaries[path]
