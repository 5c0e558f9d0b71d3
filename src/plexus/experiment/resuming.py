"""Whether a directory holds a run that can go on."""

from __future__ import annotations

from pathlib import Path

from plexus.checked import suggest
from plexus.errors import PlexusError
from plexus.runs.directory import VERSIONS, result_of
from plexus.runs.result import Result


def outcome_of(path: Path) -> Result | None:
    """The result of a run that came to its end, which has nothing to go on with; None of another."""
    if not (path / VERSIONS).is_file():
        raise PlexusError(f"{path}: is not a run directory{_near(path)}")
    result = result_of(path)
    return None if result is None or result.interrupted else result


def _near(path: Path) -> str:
    """A run directory beside it, or where runs usually are, that is called nearly so."""
    for folder in dict.fromkeys((path.parent, Path("runs"))):
        names = [each.parent.name for each in folder.glob(f"*/{VERSIONS}")]
        hint = suggest(path.name, names, "" if folder == Path() else f"{folder}/", likeness=0.8)
        if hint:
            return hint
    return ""
