"""Where a data set lies on this machine."""

from __future__ import annotations

from pathlib import Path

from plexus.errors import MissingDataError
from plexus.files import data_directory


def data_folder(given: str | None, *usual: str, what: str) -> Path:
    """The folder of a data set: `given`, or the first of the `usual` places in the data directory."""
    if given is not None:
        folder = Path(given).expanduser()
        if not folder.is_dir():
            raise MissingDataError(f"task.data: there is no folder {folder} with {what}")
        return folder
    root = data_directory()
    for name in usual:
        if (root / name).is_dir():
            return root / name
    raise MissingDataError(
        f"task.data is not set, and {root} has no folder {usual[0]} with {what}: name the folder, or see"
        " `plexus data list`"
    )


def needed_file(folder: Path, *names: str, what: str) -> Path:
    """The first of these files that is in `folder`."""
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise MissingDataError(f"{folder / names[0]} is missing: {what}")
