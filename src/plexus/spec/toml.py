"""Writing TOML (the standard library only reads it), and the `key=value` form of the command line."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from plexus.errors import PlexusError

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def dumps(document: Mapping[str, Any]) -> str:
    """`document` as TOML: plain keys first, then one `[section]` per table. None is left out."""
    return "\n".join(_table(document, ())) + "\n"


def _table(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    present = {key: value for key, value in table.items() if value is not None}
    plain = {key: value for key, value in present.items() if not isinstance(value, Mapping)}
    if path and (plain or len(plain) == len(present)):
        yield ""
        yield f"[{'.'.join(map(_key, path))}]"
    for key, value in plain.items():
        yield f"{_key(key)} = {value_text(value)}"
    for key, value in present.items():
        if isinstance(value, Mapping):
            yield from _table(value, (*path, key))


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _string(key)


def value_text(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            # repr is the shortest text that reads back as the same number, and valid TOML.
            return repr(value) if math.isfinite(value) else _not_finite(value)
        case str():
            return _string(value)
        case list() | tuple():
            return f"[{', '.join(map(value_text, value))}]"
        case Mapping():
            items = (f"{_key(k)} = {value_text(v)}" for k, v in value.items() if v is not None)
            return f"{{{', '.join(items)}}}"
    raise TypeError(f"TOML has no way to write {value!r}")


def _not_finite(value: float) -> str:
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def _string(text: str) -> str:
    def escape(character: str) -> str:
        if character in _ESCAPES:
            return _ESCAPES[character]
        return f"\\u{ord(character):04x}" if ord(character) < 32 or character == "\x7f" else character

    return f'"{"".join(map(escape, text))}"'


def parse_assignment(text: str) -> tuple[tuple[str, ...], Any]:
    """`section.key=value` as a path and a value. The value is TOML; a bare word is a string."""
    key, equals, value = (part.strip() for part in text.partition("="))
    path = tuple(part.strip() for part in key.split("."))
    if not equals or not all(path):
        raise PlexusError(f"--set {text}: expected section.key=value, e.g. protocol.sample_size=13")
    if not value:
        raise PlexusError(f"--set {text}: no value after '='; an empty string is written ''")
    return path, _parse_value(text, value)


def _parse_value(text: str, value: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError as error:
        # What begins like a string, list or table was meant as one; anything else is a bare word.
        if value[0] in "\"'[{":
            raise PlexusError(f"--set {text}: {value} is not a TOML value: {error}") from None
        return value
    return parsed["value"] if len(parsed) == 1 else value
