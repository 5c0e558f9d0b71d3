"""Turning plain values into typed structs, with errors a person can act on; and what was probably meant.

msgspec does the checking. What it cannot know is added here: which file or option a value came from,
the key's full dotted name, what was found, what is allowed, and the known word that is nearest.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, inspect

from plexus.errors import PlexusError

T = TypeVar("T", bound=Struct)
Path = tuple[str | int, ...]
Kinds = tuple[inspect.Type, ...]
"""What a value may be: one of these."""

_AT = re.compile(r"^(?P<message>.*?)(?: - at `\$(?P<path>.*)`)?$", re.DOTALL)
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]|\[(\.\.\.)\]")
_MISSING = re.compile(r"Object missing required field `(.+)`")
_WORDS = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}


@dataclass(frozen=True)
class Source:
    """Where values came from: a file, and options that changed some of them."""

    file: str = ""
    """Empty where the key says enough."""
    options: dict[Path, str] = field(default_factory=dict)
    """The text of each option, by the path it sets."""

    def error(self, path: Path, message: str) -> PlexusError:
        """One line: the origin at fault, the key, what is wrong with it."""
        is_sentence = message.startswith(("is ", "= "))
        key = f"{dotted(path)} " if is_sentence else f"{dotted(path)}: " if path else ""
        if path in self.options and not is_sentence:
            key = ""  # The option itself says which key.
        origin = self._origin(path)
        return PlexusError(f"{origin}: {key}{message}" if origin else f"{key}{message}")

    def _origin(self, path: Path) -> str:
        for assigned, option in self.options.items():
            if path[: len(assigned)] == assigned:
                return option
        within = [text for at, text in self.options.items() if at[: len(path)] == path]
        # A rule between several keys of a section may be broken by an option on one of them.
        return " ".join([self.file, "with", *within]) if within and path else self.file


def dotted(path: Path) -> str:
    """`("traces", "files", 0)` as `traces.files[0]`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


def suggest(word: str, known: Iterable[str], prefix: str = "", likeness: float = 0.6) -> str:
    """` (did you mean 'x'?)`, or nothing where no known word is near."""
    near = get_close_matches(word, list(known), n=1, cutoff=likeness)
    return f" (did you mean '{prefix}{near[0]}'?)" if near else ""


def not_one_of(word: object, known: Iterable[str]) -> str:
    """`'x' is not one of 'a', 'b'`, and which of them was probably meant."""
    known = list(known)
    return f"{_show(word)} is not one of {', '.join(map(repr, known))}{suggest(str(word), known)}"


def choose(values: Mapping[str, Any], registry: Mapping[str, type[T]], section: str, source: Source) -> T:
    """`values` as the struct that their `name` chooses."""
    name, at = values.get("name"), (section, "name")
    if name is None:
        raise source.error(at, f"missing; one of {', '.join(map(repr, registry))}")
    if not isinstance(name, str) or name not in registry:
        raise source.error(at, not_one_of(name, registry))
    struct = registry[name]
    if struct.__struct_config__.tag_field != "name":  # else the struct itself expects its name
        values = {key: value for key, value in values.items() if key != "name"}
    return convert(values, struct, (section,), source)


def convert(values: Any, kind: type[T], at: tuple[str, ...], source: Source) -> T:
    """`values` as a `kind`; `at` is the path of the section they stand in."""
    there = {path: (value, kinds) for path, value, kinds in _walk(values, inspect.type_info(kind), ())}
    for path, (value, kinds) in there.items():
        if (struct := _struct_for(value, kinds)) is not None:
            known = _types(struct)
            for key in (each for each in value if each not in known):
                section = dotted((*at, *path))
                hint = suggest(str(key), known, f"{section}." if section else "")
                others = f"; known are {', '.join(known)}" if known else "; there are none here"
                raise source.error((*at, *path, key), f"unknown key{hint or others}")
    for path, (value, _) in there.items():
        if isinstance(value, float) and math.isnan(value):  # TOML has it, no key of ours has a use for it
            raise source.error((*at, *path), "is not a number (nan)")
    try:
        typed = msgspec.convert(values, kind)
        # Once more from its own plain form: a default written 300 for a float becomes 300.0, as it
        # does when it is read from a file, so that equal specs have equal digests.
        return msgspec.convert(msgspec.to_builtins(typed), kind)
    except msgspec.ValidationError as error:
        path, message = _explain(str(error), there)
        raise source.error((*at, *path), message) from None


def _walk(value: Any, kind: inspect.Type | None, path: Path) -> Iterator[tuple[Path, Any, Kinds]]:
    """Every value in `value`, where it stands, and the types that are declared for it."""
    kinds = kind.types if isinstance(kind, inspect.UnionType) else (kind,) if kind else ()
    yield path, value, kinds
    if isinstance(value, Mapping):
        struct = _struct_for(value, kinds)
        types = _types(struct) if struct else {}
        for key, item in value.items():
            yield from _walk(item, types.get(key), (*path, key))
    elif isinstance(value, list | tuple):
        lists = inspect.ListType | inspect.VarTupleType
        item_kind = next((each.item_type for each in kinds if isinstance(each, lists)), None)
        for index, item in enumerate(value):
            yield from _walk(item, item_kind, (*path, index))


def _struct_for(value: Any, kinds: Kinds) -> inspect.StructType | None:
    """The struct that a table is meant to be; of several, the one its tag names."""
    if not isinstance(value, Mapping):
        return None
    structs = [each for each in kinds if isinstance(each, inspect.StructType)]
    if len(structs) == 1:
        return structs[0]
    return next((each for each in structs if value.get(each.tag_field or "") == each.tag), None)


def _types(struct: inspect.StructType) -> dict[str, inspect.Type]:
    """By key, what a table of this struct may have there."""
    types = {each.encode_name: each.type for each in struct.fields}
    return types if struct.tag_field is None else {**types, struct.tag_field: inspect.AnyType()}


def _explain(error: str, there: Mapping[Path, tuple[Any, Kinds]]) -> tuple[Path, str]:
    """msgspec's message in our words: the path, and what is wrong there."""
    match = _AT.match(error)
    assert match is not None, "the pattern matches every text"
    message, steps = match["message"], _STEP.findall(match["path"] or "")
    path: Path = tuple(int(index) if index else name or dots for name, index, dots in steps)
    if missing := _MISSING.fullmatch(message):
        return (*path, missing[1]), "missing; this key has no default"
    if not message.startswith(("Expected", "Invalid")):
        # A struct's own rule says all that is needed; where it names its key first, so do we.
        key, _, rest = message.partition(" ")
        return ((*path, key), rest) if rest.startswith(("is ", "= ")) else (path, message)
    wanted = re.sub(r"`(.+?)`", _in_words, message.removeprefix("Expected ").split(", got ")[0])
    if "..." in path:  # inside a table of free keys: msgspec does not say which
        return path[: path.index("...")], f"expected {wanted} for every key in it"
    found, kinds = there[path]
    beside = there[path[:-1]][1] if path else ()
    tags = [each for each in beside if isinstance(each, inspect.StructType) and each.tag_field == path[-1]]
    allowed = [str(each.tag) for each in tags] + [word for each in kinds for word in _words(each)]
    return path, not_one_of(found, allowed) if allowed else f"expected {wanted}, got {_show(found)}"


def _in_words(kinds: re.Match[str]) -> str:
    names = (each for each in kinds[1].split(" | ") if each != "null")
    return " or ".join(_WORDS.get(name, name) for name in names)


def _words(kind: inspect.Type) -> list[str]:
    if isinstance(kind, inspect.LiteralType):
        return [str(each) for each in kind.values]
    if isinstance(kind, inspect.EnumType):
        return [str(each.value) for each in kind.cls]
    return []


def _show(value: Any) -> str:
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list):
        return "a list"
    return str(value).lower() if isinstance(value, bool) else repr(value)
