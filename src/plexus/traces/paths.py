"""Where a spec's files are: beside the spec, or in the data directory."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from plexus.errors import PlexusError

DATA_PREFIX = "data:"
ENVIRONMENT = "PLEXUS_DATA"


def data_directory() -> Path:
    """PLEXUS_DATA, else the platform's place for a user's data."""
    named = os.environ.get(ENVIRONMENT)
    if named:
        return Path(named).expanduser()
    if sys.platform == "win32":
        root = os.environ.get("LOCALAPPDATA")
        return (Path(root) if root else Path.home() / "AppData" / "Local") / "plexus"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "plexus"
    root = os.environ.get("XDG_DATA_HOME")
    return (Path(root) if root else Path.home() / ".local" / "share") / "plexus"


def resolve(key: str, value: str, base_dir: Path) -> Path:
    """The file a spec's `key` names: `data:` is the data directory, `$NAME` the environment."""
    if value.startswith(DATA_PREFIX):
        path = data_directory() / value.removeprefix(DATA_PREFIX)
        hint = "; `plexus data list` shows what can be fetched or imported"
    else:
        expanded = os.path.expandvars(value)
        if "$" in expanded:
            raise PlexusError(f"{key} = {value!r}: an environment variable in it is not set")
        path, hint = base_dir / Path(expanded).expanduser(), ""
    if not path.is_file():
        raise PlexusError(f"{key} = {value!r}: there is no file {path}{hint}")
    return path
