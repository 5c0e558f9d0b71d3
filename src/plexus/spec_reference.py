"""The reference page of all keys of a spec, made from the docstrings under the fields themselves."""

from __future__ import annotations

import ast
import inspect as source_of
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Struct, inspect

from plexus import toml
from plexus.spec import (
    PROTOCOLS,
    TASKS,
    TRACES,
    EvaluationSpec,
    ExperimentSpec,
    NetworkSpec,
    struct_of,
)

_HEAD = """\
# The experiment file

<!-- Written by `python -m plexus.spec` from the docstrings of the fields. Do not edit by hand. -->

An experiment is one TOML file: `plexus run FILE.toml`. Any key can be changed for one run with
`--set section.key=value` (the value in TOML syntax; a bare word is a string), and the seed with
`--seed N`. An unknown key, a wrong type or an impossible value ends the command with one line that
names the file or option and the key. Relative paths in a spec are relative to the spec file.
The run directory keeps the spec as it was used, every default written out ([format](run-directory.md)).
"""


def page() -> str:
    """The whole page."""
    top = [field for field in _fields(ExperimentSpec) if field.name not in _SECTIONS]
    parts = [_HEAD, "## Top level\n", _table("", ExperimentSpec, top)]
    for section, structs in _SECTIONS.items():
        parts += [f"## [{section}]\n"]
        if section in ("protocol", "task"):
            parts += [f"{field_docs(ExperimentSpec)[section]}\n"]
        for name, struct in structs():
            if name:
                parts += [f'### name = "{name}"\n']
            parts += [f"{_summary(struct)}\n", _table(section, struct, _fields(struct))]
            parts += list(_nested(section, struct))
    return "\n".join(parts)


_SECTIONS: dict[str, Any] = {
    "protocol": lambda: [(name, struct_of(PROTOCOLS, name)) for name in PROTOCOLS],
    "task": lambda: [(name, struct_of(TASKS, name)) for name in TASKS],
    "traces": lambda: [("", struct_of(TRACES, "traces"))],
    "network": lambda: [("", NetworkSpec)],
    "evaluation": lambda: [("", EvaluationSpec)],
}


def field_docs(struct: type[Struct]) -> dict[str, str]:
    """The string under each field's declaration, on one line, by field name."""
    docs: dict[str, str] = {}
    for cls in reversed(struct.__mro__):
        if not issubclass(cls, Struct) or cls is Struct:
            continue
        tree = ast.parse(textwrap.dedent(source_of.getsource(cls)))
        assert isinstance(tree.body[0], ast.ClassDef)
        body = tree.body[0].body
        for field, doc in pairwise(body):
            match field, doc:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(
                    value=ast.Constant(value=str(text))
                ):
                    docs[name] = " ".join(text.split())
    return docs


def _fields(struct: type[Struct]) -> list[inspect.Field]:
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    return list(info.fields)


def _summary(struct: type[Struct]) -> str:
    return " ".join((struct.__doc__ or "").split())


def _table(section: str, struct: type[Struct], fields: list[inspect.Field]) -> str:
    docs = field_docs(struct)
    if not fields:
        return "No further keys.\n"
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for field in fields:
        if field.name not in docs:
            raise LookupError(f"{struct.__name__}.{field.name} has no docstring under it")
        key = f"{section}.{field.encode_name}" if section else field.encode_name
        meaning = docs[field.name].replace("|", "\\|")
        lines.append(f"| `{key}` | {_type(field.type)} | {_default(field)} | {meaning} |")
    return "\n".join(lines) + "\n"


def _nested(section: str, struct: type[Struct]) -> Iterator[str]:
    """The tables inside a section's struct."""
    for field in _fields(struct):
        options = field.type.types if isinstance(field.type, inspect.UnionType) else (field.type,)
        for option in options:
            if isinstance(option, inspect.StructType):
                key = f"{section}.{field.encode_name}"
                tag = f' with {option.tag_field} = "{option.tag}"' if option.tag_field else ""
                yield f"### [{key}]{tag}\n"
                yield f"{_summary(option.cls)}\n"
                yield _table(key, option.cls, _fields(option.cls))
                yield from _nested(key, option.cls)


def _type(kind: inspect.Type) -> str:
    match kind:
        case inspect.UnionType(types=types):
            words = (_type(each) for each in types if not isinstance(each, inspect.NoneType))
            return " or ".join(dict.fromkeys(words))
        case inspect.LiteralType(values=values):
            return "one of " + ", ".join(f"`{each}`" for each in values)
        case inspect.EnumType(cls=cls):
            return "one of " + ", ".join(f"`{each.value}`" for each in cls)
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            return f"list of {_type(item)}"
        case inspect.StructType():
            return "table"
        case inspect.IntType():
            return "integer" + _bounds(kind)
        case inspect.FloatType():
            return "number" + _bounds(kind)
        case inspect.StrType():
            return "string"
        case inspect.BoolType():
            return "boolean"
    raise TypeError(f"no words for the type {kind}")


def _bounds(kind: inspect.IntType | inspect.FloatType) -> str:
    words = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}
    given = ((word, getattr(kind, name)) for name, word in words.items())
    return "".join(f", {word} {bound}" for word, bound in given if bound is not None)


def _default(field: inspect.Field) -> str:
    if field.required:
        return "required"
    if field.default is None:
        return "none"
    if field.default is msgspec.NODEFAULT:
        return "see below" if isinstance(field.type, inspect.StructType) else "empty"
    if isinstance(field.default, Struct):
        return "see below"
    return f"`{toml.value_text(field.default)}`"
