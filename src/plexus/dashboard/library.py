"""Finds what there is to look at. What is asked for is looked up here, never joined to a path."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

from plexus.dashboard.fleet import AddressMember, LiveFleet, Member, members_of
from plexus.dashboard.run import SimulatedRun
from plexus.dashboard.source import Source
from plexus.errors import PlexusError
from plexus.runs.run import VERSIONS

DEPTH = 3
"""Runs are looked for in folders of folders, but no deeper."""
NODES = "nodes"
"""The id of the fleet that is given by its addresses."""


class Library:
    """The runs and fleets below a directory, or the nodes at some addresses."""

    def __init__(self, root: Path | None, addresses: tuple[str, ...] = ()) -> None:
        if root is not None and not root.is_dir():
            raise PlexusError(f"{root}: no such directory; `plexus run` makes runs in runs/")
        self.root = root.resolve() if root is not None else None
        self._known: dict[str, Source] = {}
        self._lock = threading.Lock()
        if addresses:
            members: list[Member] = [AddressMember(text) for text in addresses]
            self._known[NODES] = LiveFleet(NODES, "live nodes", members)

    def sources(self) -> dict[str, Source]:
        """Everything there is now, by id."""
        with self._lock:
            if self.root is not None:
                self._known = dict(self._found(self.root))
            return self._known

    def get(self, id: str) -> Source | None:
        known = self._known.get(id)
        return known if known is not None else self.sources().get(id)

    def _found(self, root: Path) -> Iterator[tuple[str, Source]]:
        for path in _folders(root, DEPTH):
            id = root.name if path == root else path.relative_to(root).as_posix()
            is_fleet = (path / "session" / "session.toml").exists()
            if not is_fleet and not (path / VERSIONS).exists():
                continue
            known = self._known.get(id)
            if known is not None:
                yield id, known
            elif is_fleet:
                yield id, LiveFleet(id, path.name, members_of(path), path)
            else:
                yield id, SimulatedRun(id, path)


def _folders(path: Path, depth: int) -> Iterator[Path]:
    """A folder and those below it; nothing is looked for inside a run or a fleet."""
    yield path
    if depth == 0 or (path / VERSIONS).exists() or (path / "session").exists():
        return
    try:
        inside = sorted(each for each in path.iterdir() if not each.name.startswith("."))
    except OSError:
        return  # not ours to read
    for each in inside:
        if each.is_dir() and not each.is_symlink():
            yield from _folders(each, depth - 1)
