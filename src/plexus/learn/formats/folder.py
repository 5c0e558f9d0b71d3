"""Where a data set lies on this machine."""

from __future__ import annotations

import os
from pathlib import Path

from plexus.errors import PlexusError


def data_folder(given: str | None, *usual: str, what: str) -> Path:
    """The folder of a data set: `given`, or the first of the `usual` places below PLEXUS_DATA."""
    if given is not None:
        folder = Path(given).expanduser()
        if not folder.is_dir():
            raise PlexusError(f"task.data: there is no folder {folder} with {what}")
        return folder
    root = os.environ.get("PLEXUS_DATA")
    if not root:
        raise PlexusError(
            f"task.data is not set: name the folder with {what}, or set the environment variable"
            f" PLEXUS_DATA to the folder that has {usual[0]}"
        )
    for name in usual:
        if (Path(root) / name).is_dir():
            return Path(root) / name
    raise PlexusError(f"PLEXUS_DATA is {root}, which has no folder {usual[0]} with {what}")


def needed_file(folder: Path, *names: str, what: str) -> Path:
    """The first of these files that is in `folder`."""
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise PlexusError(f"{folder / names[0]} is missing: {what}")
