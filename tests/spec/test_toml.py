"""TOML is written so that the standard library reads the same values back."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plexus.errors import PlexusError
from plexus.spec import toml

_scalars = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text()
_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), _values, max_size=5))
def test_what_is_written_reads_back_as_the_same(document: dict[str, Any]) -> None:
    assert tomllib.loads(toml.dumps(document)) == document


def test_sections_follow_the_plain_keys_and_none_is_left_out() -> None:
    document = {"a": {"x": 1, "none": None, "b": {"y": [0.5, 1e-5]}}, "name": 'the "quick" one'}
    assert toml.dumps(document) == (
        'name = "the \\"quick\\" one"\n\n[a]\nx = 1\n\n[a.b]\ny = [\n    0.5,\n    1e-05,\n]\n'
    )


def test_what_toml_cannot_hold_is_an_error() -> None:
    with pytest.raises(TypeError, match="not TOML serializable"):
        toml.dumps({"x": object()})


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("nodes=12", ("nodes",), 12),
        ("hours = 1.5", ("hours",), 1.5),
        ("network.sharing=fair", ("network", "sharing"), "fair"),
        ("a.b.c='x y'", ("a", "b", "c"), "x y"),
        ("task.sizes=[1, 2]", ("task", "sizes"), [1, 2]),
        ("a={b=true}", ("a",), {"b": True}),
        ("file=../data/x=1.csv", ("file",), "../data/x=1.csv"),
        ("word=1\nseed=2", ("word",), "1\nseed=2"),
    ],
)
def test_an_assignment_is_a_path_and_a_toml_value_or_bare_word(
    text: str, path: tuple[str, ...], value: Any
) -> None:
    assert toml.parse_assignment(text) == (path, value)


@pytest.mark.parametrize("text", ["nodes", "=3", "a..b=3", "a.=1", "nodes=", "x=[1", "x='a"])
def test_what_is_no_assignment_is_refused_and_named(text: str) -> None:
    with pytest.raises(PlexusError) as error:
        toml.parse_assignment(text)
    assert str(error.value).startswith(f"--set {text}: ")
