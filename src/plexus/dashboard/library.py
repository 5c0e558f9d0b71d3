"""Finds what there is to look at. What is asked for is looked up here, never joined to a path."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

from plexus.dashboard.run import AskedNodes, ShownRun
from plexus.errors import PlexusError
from plexus.runs.run import VERSIONS

DEPTH = 3
"""Runs are looked for in folders of folders, but no deeper."""
NODES = "nodes"
"""The id of nodes that are given by their addresses."""


class Library:
    """The runs below a directory, or the nodes at some addresses."""

    def __init__(self, root: Path | None, addresses: tuple[str, ...] = ()) -> None:
        if root is not None and not root.is_dir():
            raise PlexusError(f"{root}: no such directory; `plexus run` makes runs in runs/")
        self.root = root.resolve() if root is not None else None
        self._known: dict[str, ShownRun] = {}
        self._lock = threading.Lock()
        if addresses:
            self._known[NODES] = AskedNodes(NODES, addresses)

    def sources(self) -> dict[str, ShownRun]:
        """Everything there is now, by id."""
        with self._lock:
            if self.root is not None:
                self._known = dict(self._found(self.root))
            return self._known

    def get(self, id: str) -> ShownRun | None:
        known = self._known.get(id)
        return known if known is not None else self.sources().get(id)

    def _found(self, root: Path) -> Iterator[tuple[str, ShownRun]]:
        """Nothing is looked for inside a run, be it of a fleet; what is not ours to read is passed over."""
        for folder, inside, files in os.walk(root):
            path = Path(folder)
            below = path.relative_to(root)
            is_run = VERSIONS in files
            is_end = is_run or len(below.parts) == DEPTH
            inside[:] = [] if is_end else sorted(name for name in inside if not name.startswith("."))
            if is_run:
                id = below.as_posix() if below.parts else root.name
                yield id, self._known.get(id) or ShownRun(id, path)
