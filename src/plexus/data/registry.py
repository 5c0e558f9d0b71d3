"""The data sets and traces Plexus knows, as `registry.toml` lists them."""

from __future__ import annotations

from importlib.resources import files
from typing import Literal

import msgspec
from msgspec import Struct

from plexus.checked import not_one_of
from plexus.errors import PlexusError

Kind = Literal["devices", "availability", "latency", "places", "task"]


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


class Archive(Struct, frozen=True, forbid_unknown_fields=True):
    """A download that holds the files of a data set as members."""

    url: str
    size: int


class Dataset(Struct, frozen=True, forbid_unknown_fields=True):
    """What a user asks for by name."""

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
        """Whether there is an address to fetch it from."""
        return self.archive is not None or all(file.url is not None for file in self.files)


DATASETS: tuple[Dataset, ...] = msgspec.toml.decode(
    files("plexus.data").joinpath("registry.toml").read_bytes(), type=dict[str, tuple[Dataset, ...]]
)["datasets"]
REGISTRY = {dataset.name: dataset for dataset in DATASETS}


def dataset(name: str) -> Dataset:
    if name not in REGISTRY:
        raise PlexusError(f"data set {not_one_of(name, REGISTRY)}")
    return REGISTRY[name]
