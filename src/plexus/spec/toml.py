"""TOML files as tables: found, read, laid over each other, changed by `key=value`, and written."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from os.path import isfile
from pathlib import Path
from typing import Any

import tomli_w

from plexus.checked import suggest
from plexus.errors import PlexusError

FULL_SIZE = "paper"
"""What a spec file describes where it says nothing about sizes: the paper's, or its own."""

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
"""The specs and studies that come with Plexus: in the repository a link to its folder of that name."""

Changes = Sequence[str] | Mapping[str, Any]
"""Options of the form `section.key=value`, or values by dotted key."""


def dumps(document: Mapping[str, Any]) -> str:
    """`document` as TOML, which has no word for None: such keys are left out."""
    return tomli_w.dumps(_present(document))


def _present(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _present(item) for key, item in value.items() if item is not None}
    return [_present(item) for item in value] if isinstance(value, list | tuple) else value


def assignments(changes: Changes) -> Iterator[tuple[tuple[str, ...], Any, str]]:
    """Of each change the path, the value, and what it is called in an error."""
    if isinstance(changes, Mapping):
        for key, value in changes.items():
            yield tuple(key.split(".")), value, f"changes {key}={value!r}"
    else:
        for text in changes:
            yield *parse_assignment(text), f"--set {text}"


def parse_assignment(text: str) -> tuple[tuple[str, ...], Any]:
    """`section.key=value` as a path and a value. The value is TOML; a bare word is a string."""
    key, equals, value = (part.strip() for part in text.partition("="))
    path = tuple(part.strip() for part in key.split("."))
    if not equals or not all(path):
        raise PlexusError(f"--set {text}: expected section.key=value, e.g. protocol.sample_size=13")
    if not value:
        raise PlexusError(f"--set {text}: no value after '='; an empty string is written ''")
    try:
        parsed = tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError as error:
        # What begins like a string, list or table was meant as one; anything else is a bare word.
        if value[0] in "\"'[{":
            raise PlexusError(f"--set {text}: {value} is not a TOML value: {error}") from None
        return path, value
    return path, parsed["value"] if len(parsed) == 1 else value


def located(path: Path) -> Path:
    """Where the spec is that somebody calls `path`. A file that is there wins; a mere name is looked up."""
    is_name = str(path) == path.stem and not path.is_file()
    packaged = EXPERIMENTS / f"{path}.toml"
    return packaged if is_name and packaged.is_file() else path


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise PlexusError(f"{path}: no such file{_near(path)}") from None
    except OSError as error:
        raise PlexusError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise PlexusError(f"{path}: not UTF-8 text (byte {error.start})") from None


def _near(path: Path) -> str:
    """A hint at a file that is called nearly so, or just so in another folder."""
    if str(path) == path.stem:
        return suggest(path.name, (each.stem for each in EXPERIMENTS.glob("*.toml")), likeness=0.8)
    beside = (each.name for each in path.parent.glob("*.toml"))
    folder = "" if path.parent == Path() else f"{path.parent}/"
    if hint := suggest(path.name, beside, folder, likeness=0.8):
        return hint
    around = path.parent if path.parent == Path() else path.parent.parent
    found = sorted(f"{each}/{path.name}" for each in around.glob("*/") if isfile(each / path.name))
    return suggest(str(path), found, likeness=0)


def read_toml(text: str, file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PlexusError(f"{file}: not valid TOML: {error}") from None


def sized(tables: dict[str, Any], size: str, file: str) -> dict[str, Any]:
    """The tables of a spec file in one of its sizes: `[sizes.tiny]`, say, says what is different there.

    The file as it stands is the full size.
    """
    tables = dict(tables)
    sizes = tables.pop("sizes", {})
    if not isinstance(sizes, dict) or not all(isinstance(each, dict) for each in sizes.values()):
        raise PlexusError(f"{file}: sizes: expected a table for each size, e.g. [sizes.tiny]")
    if size == FULL_SIZE and size not in sizes:
        return tables
    if size not in sizes:
        known = ", ".join(map(repr, dict.fromkeys([*sizes, FULL_SIZE])))
        raise PlexusError(f"{file}: has no size {size!r}, only {known}{suggest(size, sizes)}")
    return overlay(tables, sizes[size])


def overlay(tables: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`tables` with `changes` written over them, section by section.

    A section that is given a `name` begins anew, because other keys belong to another name.
    """
    both = dict(tables)
    for key, value in changes.items():
        before = both.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping) and "name" not in value:
            both[key] = overlay(before, value)
        else:
            both[key] = value
    return both


def assign(tables: dict[str, Any], path: tuple[str, ...], value: Any, said: str) -> None:
    """Change one key of `tables`; errors say what was `said`."""
    for depth, step in enumerate(path[:-1], start=1):
        tables = tables.setdefault(step, {})
        if not isinstance(tables, dict):
            raise PlexusError(f"{said}: {'.'.join(path[:depth])} is not a section")
    tables[path[-1]] = value
