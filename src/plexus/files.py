"""Writing files so that a crash leaves them whole and errors name them; where data is kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from filelock import lock_descriptor
from platformdirs import user_data_path

from plexus.errors import PlexusError

DATA_VARIABLE = "PLEXUS_DATA"
MAX_SOCKET_BYTES = 100


def data_directory() -> Path:
    """Where data sets and traces are kept: what `PLEXUS_DATA` names, else the platform's usual place."""
    given = os.environ.get(DATA_VARIABLE)
    return Path(given).expanduser() if given else user_data_path("plexus", appauthor=False)


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Errors of the operating system, as one line that names the path."""
    try:
        yield
    except BrokenPipeError:
        raise  # of no file: who read the output has seen enough
    except OSError as error:
        raise PlexusError(f"{error.filename or path}: {error.strerror or error}") from None


def read_bytes(path: Path) -> bytes:
    with named(path):
        return path.read_bytes()


def write_bytes(path: Path, *data: bytes | memoryview) -> None:
    """Write a file of these parts so that it is there whole or not at all, even if the machine stops.

    When this returns, the file is there to stay. When it fails, what was there before still is.
    """
    with replacing(path) as temporary:
        write_synced(temporary, *data)


def write_synced(path: Path, *data: bytes | memoryview) -> None:
    """On the disk when this returns."""
    with path.open("wb") as file:
        file.writelines(data)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Where to write a file that then takes the place of the one at `path`, or leaves it as it is."""
    temporary = path.with_name(f".{path.name}.new")
    with named(path):
        try:
            yield temporary
            temporary.replace(path)
        except BaseException as error:
            temporary.unlink(missing_ok=True)  # a full disk needs the room
            if isinstance(error, OSError):
                error.filename = path
            raise
        sync(path.parent)


def sync(path: Path) -> None:
    """Make a file, or the names in a directory, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    write_text(path, msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def socket_in(folder: Path, name: str, advice: str) -> Path:
    """The path of a socket file, if the system can take one so long."""
    path = folder / name
    if len(str(path).encode()) > MAX_SOCKET_BYTES:
        room = MAX_SOCKET_BYTES - len(name) - 1
        raise PlexusError(
            f"{folder}: this path is too long for a socket file; {advice} (at most {room} bytes)"
        )
    return path


def lock_directory(path: Path, held_by: str = "another run is writing to this directory") -> int:
    """A descriptor that locks the directory until it is closed or the process ends.

    The lock is on the directory itself: no lock file is left behind, and it moves along when the
    directory is renamed.
    """
    with named(path):
        descriptor = os.open(path, os.O_RDONLY)
    if not lock_descriptor(descriptor, blocking=False):
        os.close(descriptor)
        raise PlexusError(f"{path}: {held_by}")
    return descriptor
