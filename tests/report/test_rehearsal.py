"""A live session beside its rehearsal, of runs that never happened."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from plexus.report.arms import group
from plexus.report.document import Quantity
from plexus.report.standard import agreements
from plexus.runs.result import Metric
from plexus.runs.run import Run
from tests.report.runs import result, run
from tests.report.test_plots import live

REHEARSED = (0.1, 0.60, 0.90, 0.85)


def pair(found: tuple[float, ...], metric: str = "accuracy", rounds: int = 1234) -> list[Run]:
    """A live session with these measurements, and its rehearsal."""
    of = Metric(metric, best=0.9, final=0.85, higher_is_better=metric == "accuracy")
    session = live(run(result(rounds=rounds, metric=of), metric, found))
    session.tables["rounds"] = {"round": np.arange(2, 6), "simulated_s": np.array([1.0, 2.0, 3.0, 5.0])}
    return [session, run(result(metric=of), metric, REHEARSED)]


def test_every_round_that_was_measured_in_both_is_compared() -> None:
    [table] = agreements(group(pair((0.1, 0.65, 0.89, 0.85))))
    assert table.columns == ("Round", "Live accuracy", "Simulated accuracy", "Difference")
    assert [row[0] for row in table.rows] == ["0", "1", "2", "3"]
    found = [row[3].value for row in table.rows if isinstance(row[3], Quantity)]
    assert found == pytest.approx([0.0, 0.05, 0.01, 0.0])
    assert table.note == (
        "Both came to round 1234; one round in two took less than 1.00 s live and ? s simulated."
        " Of 4 rounds measured in both, accuracy differs by 5.0 points at most (round 1) and by 0.0 points in"
        " the last; in 3 of 4 it is the same to within 2 points. Where it differs, other trainings counted:"
        " by sample_size, success_fraction or a timeout."
    )
    [alike] = agreements(group(pair((0.1, 0.61, 0.89, 0.85))))
    assert alike.note.endswith("in 4 of 4 it is the same to within 2 points.")


def test_a_session_that_came_less_far_says_so() -> None:
    [table] = agreements(group(pair((0.1,), rounds=7)))
    assert table.note.startswith("Live it came to round 7, simulated to round 1234;")
    assert len(table.rows) == 1


def test_what_is_no_share_has_no_points() -> None:
    [table] = agreements(group(pair((0.2, 0.6, 0.9, 0.85), metric="mse")))
    assert "MSE differs by 0.1 at most (round 0) and by 0 in the last. Where it differs," in table.note


def test_nothing_in_common_is_said_and_others_are_not_compared() -> None:
    session, rehearsal = pair(())
    [table] = agreements(group([session, rehearsal]))
    assert table.rows == () and table.note.endswith("No round was measured in both.")
    another = replace(rehearsal, spec={**rehearsal.spec, "nodes": 7})
    assert list(agreements(group([session, another]))) == []
    assert list(agreements(group([rehearsal]))) == []
