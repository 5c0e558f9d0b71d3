"""Where a spec's files are: beside the spec, or in the data directory."""

from __future__ import annotations

import os
from pathlib import Path

from plexus.errors import PlexusError
from plexus.traces.readers.datadir import data_directory

DATA_PREFIX = "data:"


def resolve(key: str, value: str, base_dir: Path) -> Path:
    """The file that `key` of a spec names: `data:` is the data directory, `$NAME` the environment."""
    return find(value, base_dir, f"{key} = {value!r}: ")


def find(value: str, base_dir: Path, prefix: str = "") -> Path:
    """As `resolve`, for a file that was named otherwise; `prefix` begins the error."""
    if value.startswith(DATA_PREFIX):
        path = data_directory() / value.removeprefix(DATA_PREFIX)
        hint = "; `plexus data list` shows what can be fetched or imported"
    else:
        expanded = os.path.expandvars(value)
        if "$" in expanded:
            raise PlexusError(f"{prefix}an environment variable in {value} is not set")
        path, hint = base_dir / Path(expanded).expanduser(), ""
    if not path.is_file():
        raise PlexusError(f"{prefix}there is no file {path}{hint}")
    return path
