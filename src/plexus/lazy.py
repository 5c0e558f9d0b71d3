"""Importing what is needed only when it is needed: the command line starts without numpy or torch."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def load(reference: str) -> Any:
    """The object that `package.module:name` refers to."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)
