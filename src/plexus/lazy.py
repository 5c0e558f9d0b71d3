"""Importing what is needed only when it is needed: the command line starts without numpy or torch."""

from __future__ import annotations

from importlib import import_module
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
