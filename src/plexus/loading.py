"""Importing what a spec names: a task or a protocol of the user's own, `package.module:name`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module, invalidate_caches
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from msgspec import Struct

from plexus.errors import MissingModuleError, PlexusError, described, remedy


class OwnSpec(Struct, frozen=True):
    """A section of a spec about something of the user's own: `name` is "package.module:name"."""

    name: str
    parameters: dict[str, Any] = {}
    """The other keys, not checked yet: reading a spec runs nobody's code."""

    @property
    def initial(self) -> str | None:
        """Of a task: the file of a model to start from, as other tasks have one; not for the user's code."""
        return self.parameters.get("initial")

    @staticmethod
    def of(table: Mapping[str, Any]) -> OwnSpec | None:
        """What a table says, if it is about something of the user's own."""
        name = table.get("name")
        if not isinstance(name, str) or ":" not in name:
            return None
        return OwnSpec(name, {key: value for key, value in table.items() if key != "name"})

    def table(self) -> dict[str, Any]:
        return {"name": self.name, **self.parameters}


def load_own(reference: str, base_dir: Path, key: str) -> Any:
    """An object of the user's own, from a module that is searched in `base_dir` first.

    `key` is the key of the spec that names it. None where the module has no such name.
    """
    module_name, _, name = reference.partition(":")
    folder = str(base_dir.resolve())
    if sys.path[:1] != [folder]:
        # For good, not just for this import: the module may import neighbours later, and worker
        # processes take over this list.
        sys.path.insert(0, folder)
    invalidate_caches()
    _forget_namesakes(module_name, folder)
    try:
        module = import_module(module_name)
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        is_itself = missing is not None and f"{module_name}.".startswith(f"{missing}.")
        raise (MissingModuleError if is_itself else PlexusError)(
            f"{key}: module {module_name!r} cannot be imported: {described(error)}{remedy(missing or '')}"
        ) from error
    return getattr(module, name, None)


def _forget_namesakes(module_name: str, folder: str) -> None:
    """If what has this name was imported from elsewhere, but `folder` has it: import that instead.

    Two projects in one process, say in a notebook, may both call their module `task`.
    """
    steps = module_name.split(".")
    for depth in range(len(steps)) if steps[0] != "__main__" else ():
        name = ".".join(steps[: depth + 1])
        there = PathFinder.find_spec(name, [str(Path(folder, *steps[:depth]))])
        loaded = sys.modules.get(name)
        if there and loaded and getattr(loaded, "__file__", None) != there.origin:
            for each in [each for each in sys.modules if each.partition(".")[0] == steps[0]]:
                del sys.modules[each]
