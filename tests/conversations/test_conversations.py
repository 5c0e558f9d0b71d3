"""Each script prints what it says it prints. `pytest --rewrite` brings them up to date: review the diff."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conversations.driver import ASKS, rewritten

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_conversation(script: Path, request: pytest.FixtureRequest) -> None:
    expected = script.read_text()
    actual = rewritten(expected)
    if request.config.getoption("--rewrite"):
        script.write_text(actual)
    else:
        assert actual.splitlines() == expected.splitlines()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_it_is_the_same_where_views_are_told_as_what_others_lack(script: Path) -> None:
    """But for who asks for a view that it was referred to, and the answer."""
    expected = script.read_text()
    actual = rewritten(expected, views="lacking")
    about = re.compile(rf"{re.escape(ASKS)}|knows \d+ nodes$")
    said = [[line for line in text.splitlines() if not about.search(line)] for text in (actual, expected)]
    assert said[0] == said[1]


def test_there_are_conversations() -> None:
    assert len(SCRIPTS) >= 8
