"""`plexus storm`: seeds, findings, traces, statuses."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from plexus.cli import storm as command
from plexus.errors import PlexusError
from plexus.machine import Heard
from plexus.storm import seeds
from plexus.storm.plan import draw
from plexus.storm.seeds import shrink
from plexus.storm.storm import run_storm
from tests.storm.mutations import MUTATIONS

PLANTED = MUTATIONS[0]


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A view accepts an older counter; storms run in this process, so that they meet it."""
    monkeypatch.setattr(PLANTED.target, PLANTED.name, PLANTED.instead)
    monkeypatch.setattr(seeds, "Pool", Here)


class Here:
    """A pool without processes."""

    def __init__(self, work: Any, count: int) -> None:
        self._work = work

    def run(self, jobs: Iterable[Any], hear: Any) -> None:
        for job in jobs:
            hear(Heard(job, "done", self._work(job, lambda said: None)))


def call(*arguments: str) -> tuple[Any, str]:
    outcome = CliRunner().invoke(command.storm, arguments, standalone_mode=False)
    if outcome.exception:
        raise outcome.exception
    return outcome.return_value, outcome.output


@pytest.mark.slow
def test_quiet_seeds_end_with_status_0_and_say_what_was_run() -> None:
    status, text = call("--seeds", "1..6", "--json", "--workers", "2")
    printed = json.loads(text)
    assert status == 0
    assert (printed["first"], printed["last"], printed["seeds"]) == (1, 6, 6)
    assert (printed["violations"], printed["found"]) == (0, [])
    assert printed["cpu_s"] > 0


@pytest.mark.usefixtures("planted")
def test_a_finding_is_printed_with_seed_invariant_and_trace_and_status_1() -> None:
    status, text = call("--seeds", "1..1")
    assert status == 1
    lines = text.splitlines()
    assert lines[0].startswith("seed 1: ViewsMoveForward at node ")
    assert any(line.startswith("  still so in: seed 1: ") for line in lines)
    assert "  all of it: plexus storm --seed 1 --trace" in lines
    assert lines[-1].startswith("seeds 1..1: 1 storms, 1 violations, ")


@pytest.mark.usefixtures("planted")
def test_json_counts_the_findings() -> None:
    status, text = call("--seeds", "1..2", "--json")
    printed = json.loads(text)
    assert status == 1
    assert printed["violations"] == len(printed["found"]) >= 1
    assert printed["found"][0]["finding"]["invariant"] == "ViewsMoveForward"


@pytest.mark.usefixtures("planted")
def test_a_shrunk_storm_breaks_the_same_invariant_with_no_more_faults() -> None:
    outcome = run_storm(draw(1))
    smaller = shrink(outcome)
    assert outcome.finding is not None and smaller.finding is not None
    assert smaller.finding.invariant == outcome.finding.invariant
    assert len(smaller.plan.faults) <= len(outcome.plan.faults)
    assert smaller.plan.storm_s < outcome.plan.storm_s


def test_a_trace_reads_as_a_conversation() -> None:
    status, text = call("--seed", "1", "--trace")
    assert status == 0
    assert text.startswith("seed 1: ")
    assert " → " in text
    assert "digest" in text.splitlines()[-1]


@pytest.mark.parametrize("seeds", ["7", "5..2", "a..b", "1..", "-1..3"])
def test_bad_ranges_are_refused_by_name(seeds: str) -> None:
    with pytest.raises(PlexusError, match="--seeds"):
        call("--seeds", seeds)


def test_fresh_seeds_begin_anywhere_and_end_with_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds, "Pool", Here)
    clock: Iterator[float] = iter([0.0, 1.0, 1.0] + [1e6] * 100)
    monkeypatch.setattr(seeds.time, "monotonic", lambda: next(clock))
    report = seeds.run_seeds(3, None, minutes=1, workers=1)
    assert (report.first, report.last) == (3, 12)
    assert command._range(None, None, 1.0)[0] >= command.FRESH_SEEDS_FROM
