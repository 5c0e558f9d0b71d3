"""Plexus: train one model across many unreliable devices, with no server.

The Python API is what `__init__.pyi` imports: to run and read experiments (docs/python.md), to write tasks
(docs/own-task.md), protocols (docs/write-a-protocol.md) and reports (docs/report.md). Where the names live
inside is nobody's business but ours. Importing this package imports nothing else: each name is looked up
when it is first used (PEP 562).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

__version__ = "0.2.0.dev0"

_STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_HOMES = {name: home for home, name in re.findall(r"(?m)^from ([\w.]+) import (\w+) as", _STUB)}
__all__ = ["__version__", *sorted(_HOMES)]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module 'plexus' has no attribute {name!r}")
    home = import_module(_HOMES[name])
    # Of a package a module may be meant, which is an attribute once it is imported.
    found = getattr(home, name) if hasattr(home, name) else import_module(f"{_HOMES[name]}.{name}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
