"""Plexus: train one model across many unreliable devices, with no server.

The Python API is what `__all__` lists (docs/python.md). Importing this package imports nothing else:
each name is looked up where it lives when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0.dev0"

if TYPE_CHECKING:
    from plexus.api import load, simulate
    from plexus.errors import PlexusError, StopRun
    from plexus.runs.run import Frame, Run
    from plexus.spec.experiment import ExperimentSpec, load_spec
    from plexus.studies.reproduce import reproduce

_HOMES = {
    "simulate": "plexus.api",
    "load": "plexus.api",
    "Run": "plexus.runs.run",
    "Frame": "plexus.runs.run",
    "ExperimentSpec": "plexus.spec.experiment",
    "load_spec": "plexus.spec.experiment",
    "PlexusError": "plexus.errors",
    "reproduce": "plexus.studies.reproduce",
    "StopRun": "plexus.errors",
}

__all__ = [
    "ExperimentSpec",
    "Frame",
    "PlexusError",
    "Run",
    "StopRun",
    "__version__",
    "load",
    "load_spec",
    "reproduce",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'plexus' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
