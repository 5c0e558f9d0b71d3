"""The data sets and traces Plexus knows, as `registry.toml` lists them, and whether they are here."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from plexus.checked import not_one_of
from plexus.errors import PlexusError
from plexus.files import data_directory

State = Literal["here", "missing", "other"]
Kind = Literal["devices", "availability", "latency", "places", "task"]


class WrongContentError(PlexusError):
    """A file is whole, but not the one it should be."""


class File(Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    """Where it belongs in the data directory; a spec names a trace there as `data:PATH`."""
    size: int
    """Bytes."""
    checksums: tuple[str, ...]
    """`sha256:...` or `md5:...`; more than one where a file is known in several forms."""
    kind: Kind = "task"
    url: str | None = None
    member: str | None = None
    """Its name within the data set's archive, where there is one."""
    round_trip: bool = False
    """Of latencies: they are there and back."""

    @property
    def place(self) -> Path:
        return data_directory() / self.path

    @property
    def state(self) -> State:
        """`here`, `missing`, or `other`: something else has its name."""
        if not self.place.is_file():
            return "missing"
        return "here" if self.matches(self.place) else "other"

    def matches(self, path: Path) -> bool:
        """Whether the content at `path` has one of the checksums."""
        return any(_checksum(path, known) == known for known in self.checksums)

    def verify(self, path: Path, source: str) -> None:
        if not self.matches(path):
            found, wanted = _checksum(path, self.checksums[0]), " or ".join(self.checksums)
            raise WrongContentError(f"{source}: wrong checksum {found}, {self.path} has {wanted}")


def _checksum(path: Path, like: str) -> str:
    """Of a file's content, of the kind that `like` is."""
    kind = like.partition(":")[0]
    with path.open("rb") as content:
        return f"{kind}:{hashlib.file_digest(content, kind).hexdigest()}"


class Archive(Struct, frozen=True, forbid_unknown_fields=True):
    """A download that holds the files of a data set as members."""

    url: str
    size: int


class Dataset(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    what: str
    licence: str
    page: str
    """Where people read about it, and find it if it cannot be fetched."""
    files: tuple[File, ...]
    archive: Archive | None = None

    @property
    def size(self) -> int:
        """Bytes once it is here."""
        return sum(file.size for file in self.files)

    @property
    def fetchable(self) -> bool:
        return self.archive is not None or all(file.url is not None for file in self.files)


DATASETS: tuple[Dataset, ...] = msgspec.toml.decode(
    files("plexus.data").joinpath("registry.toml").read_bytes(), type=dict[str, tuple[Dataset, ...]]
)["datasets"]
REGISTRY = {dataset.name: dataset for dataset in DATASETS}


def dataset(name: str) -> Dataset:
    if name not in REGISTRY:
        raise PlexusError(f"data set {not_one_of(name, REGISTRY)}")
    return REGISTRY[name]
