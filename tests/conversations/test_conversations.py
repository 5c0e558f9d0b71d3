"""Each script prints what it says it prints. `pytest --rewrite` brings them up to date: review the diff."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conversations.driver import rewritten

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_conversation(script: Path, request: pytest.FixtureRequest) -> None:
    expected = script.read_text()
    actual = rewritten(expected)
    if request.config.getoption("--rewrite"):
        script.write_text(actual)
    else:
        assert actual.splitlines() == expected.splitlines()


def test_there_are_conversations() -> None:
    assert len(SCRIPTS) >= 8
