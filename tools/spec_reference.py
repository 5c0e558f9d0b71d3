"""Writes docs/spec.md, the reference of all keys of a spec, from the docstrings under the fields themselves.

Run it as `python tools/spec_reference.py`.
"""

from __future__ import annotations

import ast
import inspect as source_of
import json
import textwrap
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import msgspec
from msgspec import Struct, inspect

from plexus.spec import experiment as specs
from plexus.traces.build import TracesSpec

PAGE = Path(__file__).parents[1] / "docs" / "spec.md"
_HEAD = """\
# The experiment file

<!-- Written by `python tools/spec_reference.py` from the docstrings of the fields. Do not edit by hand. -->

An experiment is one TOML file: `plexus run FILE.toml`. Any key can be changed for one run with
`--set section.key=value` (the value in TOML syntax; a bare word is a string), and the seed with
`--seed N`. An unknown key, a wrong type or an impossible value ends the command with one line that
names the file or option and the key. A file may have sizes (`[sizes.tiny]`), chosen with `--size`, and
experiments may be compared in studies ([both](reproduce.md)). Relative paths in a spec are relative to
the spec file. Those in the repository's folder `experiments` come with every installation and are found
by name, as in `plexus run quickstart`; a file of just that name, without ending, in the current folder wins.
The run directory keeps the spec as it was used, every default written out ([format](run-directory.md)).
"""


def page() -> str:
    """The whole page."""
    sections = _sections()
    root = specs.ExperimentSpec
    docs = field_docs(root)
    top = [field for field in _fields(root) if field.name not in sections]
    parts = [_HEAD, "## Top level\n", _table("", root, top, docs)]
    for section, structs in sections.items():
        is_list = section in ("faults", "attackers")
        parts.append(f"## [[{section}]]\n" if is_list else f"## [{section}]\n")
        if section in specs.CHOICES:
            parts.append(f"{docs[section]}\n")
        # A key that several tasks have means the same in all of them and is explained in one.
        shared = {key: doc for struct in structs.values() for key, doc in field_docs(struct).items()}
        for name, struct in structs.items():
            if name:
                parts.append(f'### name = "{name}"\n')
            parts += _described(section, struct, shared)
    return "\n".join(parts)


def _sections() -> dict[str, Mapping[str, type[Struct]]]:
    """The structs of each section, by its `name` where it has one."""
    return {
        **specs.CHOICES,
        "traces": {"": TracesSpec},
        "network": {"": specs.NetworkSpec},
        "evaluation": {"": specs.EvaluationSpec},
        "session": {"": specs.Course},
        "faults": {"": specs.FaultSpec},
        "attackers": {"": specs.AttackerSpec},
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
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    docs[name] = " ".join(text.split())
    return docs


def _fields(struct: type[Struct]) -> list[inspect.Field]:
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    return list(info.fields)


def _summary(struct: type[Struct]) -> str:
    return " ".join((struct.__doc__ or "").split())


def _described(key: str, struct: type[Struct], shared: Mapping[str, str]) -> Iterator[str]:
    """What a table is for, its keys, and the tables inside it."""
    yield f"{_summary(struct)}\n"
    yield _table(key, struct, _fields(struct), {**shared, **field_docs(struct)})
    yield from _nested(key, struct)


def _table(section: str, struct: type[Struct], fields: list[inspect.Field], docs: Mapping[str, str]) -> str:
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
                yield from _described(key, option.cls, {})


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
    return f"`{json.dumps(field.default)}`"  # of these values, JSON is TOML


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
