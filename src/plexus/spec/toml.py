"""TOML as it is written, and the `key=value` form in which the command line changes a spec."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tomli_w

from plexus.errors import PlexusError

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
