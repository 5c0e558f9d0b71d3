"""Take the files of a data set out of a tar or zip archive, and nothing else."""

from __future__ import annotations

import errno
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from plexus.data.registry import Dataset
from plexus.data.store import WrongContentError, all_or_nothing, copy_into, path_of, verify

DAMAGED = (
    tarfile.TarError,
    zipfile.BadZipFile,
    EOFError,
    zlib.error,
    NotImplementedError,
    RuntimeError,
)
"""What the modules raise; the last two for flags that say how a member of a zip is packed or locked."""


def is_archive(path: Path) -> bool:
    """Whether it can be taken apart here."""
    return path.is_file() and (tarfile.is_tarfile(path) or zipfile.is_zipfile(path))


def extract(archive: Path, dataset: Dataset) -> None:
    """Put each member that the data set names where it belongs, checked; all of them or none."""
    with all_or_nothing() as temporaries:
        for file in dataset.files:
            assert file.member is not None, "files of an archive are named in it"
            with _member(archive, file.member) as content:
                temporary = copy_into(content, path_of(file), temporaries)
            verify(file, temporary, f"{archive}: {file.member}")


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
