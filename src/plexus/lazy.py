"""Importing what is needed only when it is needed: the command line starts without numpy or torch."""

from __future__ import annotations

import sys
from importlib import import_module, invalidate_caches
from pathlib import Path
from typing import Any

from plexus.errors import PlexusError


def load(reference: str) -> Any:
    """The object that `package.module:name` refers to."""
    module, _, name = reference.partition(":")
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        raise PlexusError(
            f"this needs the Python module {error.name}, which is not installed"
        ) from error


def load_own(reference: str, base_dir: Path, key: str) -> Any:
    """An object of the user's own, from a module that is searched in `base_dir` first.

    `key` is the key of the spec that names it. None where the module has no such name.
    """
    module_name, _, name = reference.partition(":")
    folder = str(base_dir.resolve())
    if folder not in sys.path:
        # For good, not just for this import: the module may import neighbours later, and worker
        # processes take over this list.
        sys.path.insert(0, folder)
    invalidate_caches()
    try:
        module = import_module(module_name)
    except Exception as error:
        raise PlexusError(
            f"{key}: module {module_name!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    return getattr(module, name, None)
