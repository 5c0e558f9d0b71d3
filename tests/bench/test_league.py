"""The league: its page is what was measured, and what needs no peers does the same work."""

from __future__ import annotations

import copy
import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from benchmarks.league.adapters import bare_loop, plexus_rounds, plexus_simulation, vmap_by_hand
from benchmarks.league.environments import _reason, contenders
from benchmarks.league.page import LOSS_TOLERANCE, PAGE, PICTURE, RESULT, draw, exists, page, rows_of
from benchmarks.league.probes import FEATURES
from benchmarks.league.work import Clock, make_work

ROOT = Path(__file__).parents[2]


@pytest.fixture
def found() -> dict[str, Any]:
    measured: dict[str, Any] = json.loads(RESULT.read_text())
    return measured


def test_the_page_is_what_was_measured(found: dict[str, Any]) -> None:
    assert PAGE.read_text() == page(found)


def test_the_picture_has_everybody(found: dict[str, Any], tmp_path: Path) -> None:
    draw(found, tmp_path / "league.svg")
    for picture in (PICTURE, tmp_path / "league.svg"):
        text = picture.read_text()
        assert all(row.contender.label in text for row in rows_of(found))


def test_tests_that_the_page_names_are_there() -> None:
    named = [test for feature in FEATURES.values() for test in feature["tests"]]
    assert len(named) >= len(FEATURES)
    assert [test for test in named if not exists(test)] == []
    assert not exists(named[0] + "_or_not")
    assert not exists("tests/nowhere.py::test_x")


def test_plexus_is_where_it_says(found: dict[str, Any]) -> None:
    """No slower than any peer, but for FedJAX by at most three tenths, and many times as fast as Flower."""
    least = {"fedjax": 1 / 1.3, "pfl": 1, "gossipy": 1, "flower": 15}
    measured = {row.contender.name: row for row in rows_of(found) if row.contender.kind == "peer"}
    assert measured.keys() == least.keys()
    for name, row in measured.items():
        assert statistics.median(row.cpu_ratios) >= least[name], name
        assert statistics.median(row.wall_ratios) >= min(1, least[name]), name


def test_who_left_work_out_gets_no_page(found: dict[str, Any]) -> None:
    less = found["bare_loop_loss"]["96"] / found["bare_loop_loss"]["120"] - 1
    assert less > 3 * LOSS_TOLERANCE, "a fifth less would be seen"
    cheat = copy.deepcopy(found)
    cheat["contenders"]["pfl"]["runs"][0]["loss"] = found["bare_loop_loss"]["96"]
    with pytest.raises(AssertionError, match="did not learn what the bare loop does: pfl-research"):
        page(cheat)


def test_who_cannot_be_installed_is_on_the_page_with_the_reason(found: dict[str, Any]) -> None:
    missing = [each for each in contenders() if found["contenders"][each.name]["reason"]]
    for each in missing:
        assert found["contenders"][each.name]["reason"] in PAGE.read_text()
    said = (
        "ERROR: Ignored the following versions: 2.0.2 Requires-Python >=3.11; 2.0.3 Requires-Python >=3.12\n"
    )
    assert _reason(said, "blazefl==2.0.3\n").startswith("blazefl==2.0.3 needs Python >=3.12; this is 3.")
    assert _reason("x\nERROR: first\nERROR: no such thing\n", "a==1\n") == "no such thing"


@pytest.mark.slow
def test_by_hand_and_by_plexus_the_same_is_learned() -> None:
    work, losses = make_work(seed=2, rounds=24), []
    for adapter in (bare_loop, vmap_by_hand, plexus_rounds, plexus_simulation):
        clock = Clock(4, 24)
        weights = adapter.learn(work, clock)
        assert clock.costs()["cpu_ms"] > 0
        losses.append(work.loss_and_accuracy(weights)[0])
    bare, stacked, *ours = losses
    assert stacked == pytest.approx(bare, rel=1e-4), "the same order of examples"
    assert ours == pytest.approx([bare] * 2, rel=LOSS_TOLERANCE), "another order of examples"
