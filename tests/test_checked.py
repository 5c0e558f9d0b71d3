"""Checked conversion: what msgspec says, in words that name the key, what was found and what is allowed."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta, Struct

from plexus.checked import Source, choose, convert, not_one_of, suggest
from plexus.errors import PlexusError


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Inner(Struct, tag_field="kind", tag="inner", forbid_unknown_fields=True, frozen=True):
    depth: Annotated[int, Meta(ge=1)] = 1


class Other(Struct, tag_field="kind", tag="other", forbid_unknown_fields=True, frozen=True):
    pass


class Outer(Struct, forbid_unknown_fields=True, frozen=True):
    count: int
    share: Annotated[float, Meta(gt=0, le=1)] = 0.5
    word: Literal["near", "far"] = "near"
    colour: Colour = Colour.RED
    inner: Inner | Other = Other()
    items: tuple[int, ...] = ()
    flag: bool | None = None
    free: dict[str, int] = {}


SAYS = [
    ({}, "Object missing required field `count`", "count: missing; this key has no default"),
    ({"count": "x"}, "Expected `int`, got `str` - at `$.count`", "count: expected an integer, got 'x'"),
    ({"share": 0}, "Expected `float` > 0.0 - at `$.share`", "share: expected a number > 0.0, got 0"),
    (
        {"word": "neer"},
        "Invalid enum value 'neer' - at `$.word`",
        "'neer' is not one of 'far', 'near' (did you",
    ),
    (
        {"colour": "rot"},
        "Invalid enum value 'rot' - at `$.colour`",
        "colour: 'rot' is not one of 'red', 'blue'",
    ),
    (
        {"inner": {"kind": "iner"}},
        "Invalid value 'iner' - at `$.inner.kind`",
        "inner.kind: 'iner' is not one of",
    ),
    ({"inner": 3}, "Expected `object`, got `int` - at `$.inner`", "inner: expected a table, got 3"),
    (
        {"items": [1, "x"]},
        "Expected `int`, got `str` - at `$.items[1]`",
        "items[1]: expected an integer, got",
    ),
    ({"flag": 3}, "Expected `bool | null`, got `int` - at `$.flag`", "flag: expected true or false, got 3"),
    (
        {"free": {"a": "b"}},
        "Expected `int`, got `str` - at `$.free[...]`",
        "free: expected an integer for every key in it",
    ),
    ({"zzz": 1}, "Object contains unknown field `zzz`", "zzz: unknown key; known are count, share, word,"),
    ({"cuont": 1}, "Object contains unknown field `cuont`", "cuont: unknown key (did you mean 'count'?)"),
]


@pytest.mark.parametrize(("values", "theirs", "ours"), SAYS)
def test_messages_of_msgspec_are_put_into_our_words(values: dict[str, Any], theirs: str, ours: str) -> None:
    """Both halves: a version of msgspec that says it differently is found here, and not by a user."""
    values = values if not values else {"count": 1, **values}
    with pytest.raises(msgspec.ValidationError) as error:
        msgspec.convert(values, Outer)
    assert str(error.value) == theirs
    with pytest.raises(PlexusError) as refused:
        convert(values, Outer, (), Source("x.toml"))
    assert str(refused.value).startswith("x.toml: ") and ours in str(refused.value)


def test_a_struct_is_chosen_by_name() -> None:
    registry = {"outer": Outer, "inner": Inner}
    assert choose({"name": "outer", "count": 3}, registry, "it", Source()) == Outer(3)
    for values, complaint in (
        ({}, "it.name: missing; one of 'outer', 'inner'"),
        ({"name": "uoter"}, "it.name: 'uoter' is not one of 'outer', 'inner' (did you mean 'outer'?)"),
        ({"name": "outer", "cuont": 3}, "it.cuont: unknown key (did you mean 'it.count'?)"),
    ):
        with pytest.raises(PlexusError) as error:
            choose(values, registry, "it", Source())
        assert str(error.value) == complaint


def test_a_near_word_is_suggested_and_a_far_one_is_not() -> None:
    assert suggest("gosip", ["gossip", "plexus"]) == " (did you mean 'gossip'?)"
    assert suggest("xyz", ["gossip", "plexus"]) == ""
    assert not_one_of(3, ["a"]) == "3 is not one of 'a'"
