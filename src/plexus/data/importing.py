"""Take over files that a user already has: check them, read them, copy them into the data directory.

Of a tar or zip archive the members that a data set names are taken out, and nothing else.
"""

from __future__ import annotations

import errno
import math
import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from plexus.data.registry import Dataset, File, WrongContentError
from plexus.errors import PlexusError
from plexus.traces.describe.text import facts_of, lines, open_file
from plexus.traces.readers.latency import LatencyKind, read_places

DAMAGED = (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, NotImplementedError, RuntimeError)
"""What the modules raise; the last two for flags that say how a member of a zip is packed or locked."""
CHUNK = 1 << 20
MOST_TIMES_LARGER = 2
"""Than the registry says. Line ends may make a difference; what is much larger is another file, or a bomb."""


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


def extract(archive: Path, dataset: Dataset) -> None:
    """Put each member that the data set names where it belongs, checked; all of them or none."""
    with all_or_nothing() as temporaries:
        for file in dataset.files:
            assert file.member is not None, "files of an archive are named in it"
            source, most = f"{archive}: {file.member}", MOST_TIMES_LARGER * file.size
            with _member(archive, file.member) as content:
                temporary = copy_into(content, file.place, temporaries, most)
                if content.read(1):
                    raise WrongContentError(f"{source} has more than {most:,} bytes, not {file.size:,}")
            file.verify(temporary, source)


@contextmanager
def _member(archive: Path, name: str) -> Iterator[IO[bytes]]:
    """A member by name: nothing an archive says decides where anything is written."""
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped, zipped.open(name) as member:
                yield member
        else:
            with tarfile.open(archive) as tar:
                content = tar.extractfile(name)
                if content is None:
                    raise KeyError(name)
                yield content
    except KeyError:
        raise WrongContentError(f"{archive}: there is no {name} in it") from None
    except OSError as error:
        # A place outside of the archive; anything else is about the disk, and not the archive's fault.
        if error.errno != errno.EINVAL:
            raise
        raise WrongContentError(f"{archive}: is damaged ({error.strerror})") from None
    except DAMAGED as error:
        problem = " ".join(str(error).split())
        raise WrongContentError(f"{archive}: is damaged ({problem})") from None


def import_dataset(dataset: Dataset, source: Path, *, unchecked: bool = False) -> None:
    """Copy a data set from a file, a folder or its archive; all of it or nothing.

    `unchecked` takes files whose checksum is another, as long as they can be read.
    """
    folder = dataset.files[0].place.parent
    is_archive = source.is_file() and (tarfile.is_tarfile(source) or zipfile.is_zipfile(source))
    if dataset.archive is not None and is_archive:
        room_for(dataset.size, folder, dataset.name)
        extract(source, dataset)
        return
    found = [(file, _find(file, dataset, source)) for file in dataset.files]
    for file, path in found:
        if not unchecked:
            file.verify(path, str(path))
        _read(file, path)
    room_for(sum(path.stat().st_size for _, path in found), folder, dataset.name)
    with all_or_nothing() as temporaries:
        for file, path in found:
            with path.open("rb") as content:
                copy_into(content, file.place, temporaries)


def _find(file: File, dataset: Dataset, source: Path) -> Path:
    if not source.exists():
        raise PlexusError(f"{source}: there is no such file or folder")
    if source.is_file() and len(dataset.files) == 1:
        return source
    if source.is_file():
        number, names = len(dataset.files), ", ".join(each.place.name for each in dataset.files)
        raise PlexusError(f"{source}: {dataset.name} is {number} files; name the folder with {names}")
    name = file.place.name
    for place in (source / name, source / file.path, source / file.place.parent.name / name):
        if place.is_file():
            return place
    raise PlexusError(f"{source}: there is no {name} in this folder")


def _read(file: File, path: Path) -> None:
    """A trace must be readable as what it is said to be."""
    if file.kind == "places":
        read_places(path)
    elif file.kind != "task":
        opened = open_file(path)
        read = {"devices": opened.devices, "availability": opened.availability, "latency": opened.matrix_s}
        if read[file.kind] is None:
            raise PlexusError(f"{path}: is a trace, but not of {file.kind}")


def summary(dataset: Dataset) -> Iterator[str]:
    for file in dataset.files:
        if file.kind not in ("task", "places") and file.place.is_file():
            kind: LatencyKind = "round-trip" if file.round_trip else "one-way"
            yield from lines(facts_of(open_file(file.place, kind)))
