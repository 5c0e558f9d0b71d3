"""The picture of a round moves, wherever it is shown as an image, and is what its tool draws."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tools.draw_round import PHASES, TURN, TURN_S, picture

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "round.svg"
SEEN = """
for (const each of document.getAnimations()) { each.pause(); each.currentTime = 1000 * arguments[0]; }
const seen = name => Number(getComputedStyle(document.querySelector('.' + name)).opacity);
const names = ['asks', 'pushed', 'finds', 'sent', 'again', 'phase1', 'phase2'];
return Object.fromEntries(names.map(name => [name, seen(name)]));
"""


def test_it_is_what_the_tool_draws_small_and_whole_by_itself() -> None:
    text = PICTURE.read_text(encoding="utf-8")
    assert text == picture(), "run: python tools/draw_round.py"
    assert len(text.encode()) < 60_000
    assert (
        "<script" not in text and "url(#head)" in text and "http" not in text.replace("http://www.w3.org", "")
    )


def moment_s(phase: str) -> float:
    """In the middle of a phase of the second turn; after all of them the next round begins."""
    at = 0
    for name, width, _, _ in PHASES:
        if name == phase:
            break
        at += width
    else:
        width = TURN - at
    return TURN_S * (1 + (at + width / 2) / TURN)


@pytest.mark.slow
def test_the_parts_of_a_round_follow_each_other(browser: Any) -> None:
    browser.open(PICTURE)
    at = {
        phase: browser.run(SEEN, moment_s(phase))
        for phase in ("sample", "push", "train", "find", "send", "next")
    }
    shown = {phase: {name for name, opacity in found.items() if opacity > 0.9} for phase, found in at.items()}
    assert shown == {
        "sample": {"asks"},
        "push": {"pushed", "phase1"},
        "train": {"phase2"},
        "find": {"finds"},
        "send": {"sent"},
        "next": {"again"},
    }


@pytest.mark.slow
def test_it_moves_as_an_image(browser: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(f'<img src="{PICTURE.as_uri()}" width="900">')
    browser.open(page)
    first, until = browser.driver.get_screenshot_as_png(), time.monotonic() + 20
    while browser.driver.get_screenshot_as_png() == first:
        assert time.monotonic() < until, "nothing moves"
