"""Take over files that a user already has: check them, read them, copy them into the data directory.

Of a tar or zip archive the members that a data set names are taken out, and nothing else.
"""

from __future__ import annotations

import errno
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from plexus.data.registry import Dataset, File
from plexus.data.store import WrongContentError, all_or_nothing, copy_into, path_of, room_for, verify
from plexus.errors import PlexusError
from plexus.traces.describe.text import facts_of, lines, open_file
from plexus.traces.readers.latency import LatencyKind, read_places

DAMAGED = (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, NotImplementedError, RuntimeError)
"""What the modules raise; the last two for flags that say how a member of a zip is packed or locked."""
MOST_TIMES_LARGER = 2
"""Than the registry says. Line ends may make a difference; what is much larger is another file, or a bomb."""


def extract(archive: Path, dataset: Dataset) -> None:
    """Put each member that the data set names where it belongs, checked; all of them or none."""
    with all_or_nothing() as temporaries:
        for file in dataset.files:
            assert file.member is not None, "files of an archive are named in it"
            source, most = f"{archive}: {file.member}", MOST_TIMES_LARGER * file.size
            with _member(archive, file.member) as content:
                temporary = copy_into(content, path_of(file), temporaries, most)
                if content.read(1):
                    raise WrongContentError(f"{source} has more than {most:,} bytes, not {file.size:,}")
            verify(file, temporary, source)


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
    folder = path_of(dataset.files[0]).parent
    is_archive = source.is_file() and (tarfile.is_tarfile(source) or zipfile.is_zipfile(source))
    if dataset.archive is not None and is_archive:
        room_for(dataset.size, folder, dataset.name)
        extract(source, dataset)
        return
    found = [(file, _find(file, dataset, source)) for file in dataset.files]
    for file, path in found:
        if not unchecked:
            verify(file, path, str(path))
        _read(file, path)
    room_for(sum(path.stat().st_size for _, path in found), folder, dataset.name)
    with all_or_nothing() as temporaries:
        for file, path in found:
            with path.open("rb") as content:
                copy_into(content, path_of(file), temporaries)


def _find(file: File, dataset: Dataset, source: Path) -> Path:
    if not source.exists():
        raise PlexusError(f"{source}: there is no such file or folder")
    if source.is_file() and len(dataset.files) == 1:
        return source
    if source.is_file():
        number, names = len(dataset.files), ", ".join(Path(each.path).name for each in dataset.files)
        raise PlexusError(f"{source}: {dataset.name} is {number} files; name the folder with {names}")
    name = Path(file.path).name
    for place in (source / name, source / file.path, source / Path(file.path).parent.name / name):
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
    """What the traces of a data set that is here say."""
    for file in dataset.files:
        if file.kind not in ("task", "places") and path_of(file).is_file():
            kind: LatencyKind = "round-trip" if file.round_trip else "one-way"
            yield from lines(facts_of(open_file(path_of(file), kind)))
