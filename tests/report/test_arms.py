"""Which runs belong together, and what they are called."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from plexus.errors import PlexusError
from plexus.report.arms import common_metric, group, load_runs, metric_of
from plexus.report.comparison import compare
from tests.report.runs import arm_run, result

ONE_PEER = {"name": "dpsgd", "topology": "one-peer-exponential", "degree": 10}
REGULAR = {"name": "dpsgd", "topology": "regular", "degree": 10}


def labels(*runs: object) -> list[str]:
    return [arm.label for arm in group(runs)]  # type: ignore[arg-type]


def test_runs_that_differ_in_seed_and_name_are_one_arm() -> None:
    (arm,) = group([arm_run(seed=2), arm_run(seed=1, name="other")])
    assert (arm.label, arm.seeds, arm.is_ours, arm.is_complete) == ("Plexus", (1, 2), True, True)


def test_how_often_models_were_measured_makes_no_arm_unless_the_session_ends_by_that() -> None:
    often, seldom = {"evaluation": {"every_rounds": 10}}, {"evaluation": {"every_rounds": 0}}
    (arm,) = group([arm_run(seed=1, **often), arm_run(seed=2, **seldom)])
    assert arm.seeds == (1, 2)
    ends = {"session": {"until": "accuracy >= 0.9"}}
    assert len(group([arm_run(seed=1, **often, **ends), arm_run(seed=2, **seldom, **ends)])) == 2


def measured(*seed_and_rounds: tuple[int, int], live: bool = False) -> list[list[tuple[int, int]]]:
    """The arms of runs that were measured every so many rounds."""
    runs = [arm_run(seed=seed, evaluation={"every_rounds": every}) for seed, every in seed_and_rounds]
    if live:
        runs = [replace(run, versions={"kind": "live"}, path=Path(f"{at}")) for at, run in enumerate(runs)]
    arms = group(runs)
    return sorted(
        [(run.spec["seed"], run.spec["evaluation"]["every_rounds"]) for run in arm.runs] for arm in arms
    )


@pytest.mark.parametrize("turned", range(4))
def test_where_a_seed_was_measured_in_two_ways_no_arm_has_runs_of_both(turned: int) -> None:
    """In whatever order they come."""
    runs = [(1, 10), (2, 10), (1, 20), (2, 5)]
    assert measured(*runs[turned:], *runs[:turned]) == [[(1, 10), (2, 10)], [(1, 20)], [(2, 5)]]


def test_live_runs_that_were_measured_differently_are_different_arms() -> None:
    """They are compared as they are, not at the same hours."""
    assert measured((1, 10), (2, 1), live=True) == [[(1, 10)], [(2, 1)]]
    assert measured((1, 10), (2, 10), live=True) == [[(1, 10), (2, 10)]]


def test_protocols_by_the_names_of_the_paper_ours_first() -> None:
    runs = [arm_run(ONE_PEER), arm_run(REGULAR), arm_run("gossip"), arm_run()]
    arms = group(runs)
    assert [arm.label for arm in arms] == [
        "Plexus",
        "Gossip Learning",
        "D-PSGD, 10-regular",
        "D-PSGD, one-peer exponential",
    ]
    assert [arm.is_ours for arm in arms] == [True, False, False, False]


def test_of_one_protocol_only_what_differs_is_said() -> None:
    def of(s: int) -> dict[str, object]:
        return {"name": "plexus", "sample_size": s, "ping_timeout_s": 2.0}

    assert labels(*(arm_run(of(s)) for s in (40, 5, 20))) == ["s = 5", "s = 20", "s = 40"]
    sf = [{"name": "plexus", "success_fraction": x} for x in (0.95, 0.85)]
    assert labels(*map(arm_run, sf)) == ["sf = 0.85", "sf = 0.95"]


def test_churn_sizes_and_keys_that_only_some_specs_have_tell_arms_apart() -> None:
    still = {"availability": "none"}
    assert labels(arm_run(), arm_run(traces=still), arm_run("gossip"), arm_run("gossip", traces=still)) == [
        "Plexus, churn",
        "Plexus, no churn",
        "Gossip Learning, churn",
        "Gossip Learning, no churn",
    ]
    assert labels(arm_run(nodes=1000), arm_run(nodes=100)) == ["n = 100", "n = 1,000"]
    fixed = {**ONE_PEER, "round_duration_s": 60.0}
    assert labels(arm_run(ONE_PEER), arm_run(fixed)) == [
        "one-peer exponential, round duration 60 s",
        "one-peer exponential, round duration default",
    ]


def test_how_often_models_are_measured_is_said_only_where_nothing_else_differs() -> None:
    often, seldom = {"every_hours": 0.5}, {"every_hours": 2.0}
    ours, theirs = arm_run(evaluation=often), arm_run("gossip", evaluation=seldom)
    assert labels(ours, theirs) == ["Plexus", "Gossip Learning"]
    same = [arm_run(evaluation=often), arm_run(evaluation=seldom)]
    assert labels(*same) == ["every hours 0.5", "every hours 2"]
    killed = arm_run(seed=2, finished=False, evaluation=often)
    assert labels(ours, killed)[0] == "Plexus"


def test_a_run_that_did_not_end_is_an_arm_of_its_own() -> None:
    killed = arm_run(seed=2, finished=False)
    stopped = arm_run(seed=3, outcome=result(interrupted=True))
    arms = group([killed, arm_run(seed=1), stopped])
    assert [(arm.label, arm.seeds, arm.is_complete) for arm in arms] == [
        ("Plexus", (1,), True),
        ("Plexus, seed 2, unfinished (4.0 h)", (2,), False),
        ("Plexus, seed 3, unfinished (4.0 h)", (3,), False),
    ]


def test_two_runs_that_did_not_end_are_two_arms_also_if_nothing_but_the_place_is_different() -> None:
    killed = [arm_run(seed=2, finished=False, values=[last, last]) for last in (0.2, 0.8)]
    one, other = replace(killed[0], path=Path("runs/a")), replace(killed[1], path=Path("runs/b"))
    arms = group([arm_run(), one, other])
    unfinished = "Plexus, seed 2, unfinished (2.0 h)"
    assert [arm.label for arm in arms] == ["Plexus", unfinished, f"{unfinished}, in runs/b"]
    assert [outcome.best for outcome in compare(arms).arms[1:]] == [(0.2,), (0.8,)]


def test_the_same_run_twice_counts_once_and_two_results_of_one_spec_are_refused() -> None:
    (arm,) = group([arm_run(), arm_run()])
    assert len(arm.runs) == 1
    with pytest.raises(PlexusError, match=r"runs/plexus-1: same spec and seed as runs/plexus-1"):
        group([arm_run(), arm_run(values=[0.2])])


def test_the_metric_of_a_killed_run_is_guessed() -> None:
    assert metric_of(arm_run(finished=False)) == ("accuracy", True)
    assert metric_of(arm_run(finished=False, metric="mse")) == ("mse", False)
    assert metric_of(arm_run(finished=False, tables={"evaluations": {}})) == ("loss", False)


def test_which_way_is_better_is_known_of_those_that_ended() -> None:
    own = {"metric": "reward", "values": [0.1, 0.7]}
    killed = arm_run("gossip", finished=False, **own)
    assert metric_of(killed) == ("reward", False), "a guess"
    assert common_metric(group([arm_run(**own), killed])) == ("reward", True)
    with pytest.raises(PlexusError, match="compare them separately"):
        common_metric(group([arm_run(), killed]))


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(PlexusError, match="nowhere: no such directory"):
        load_runs([tmp_path / "nowhere"])
    with pytest.raises(PlexusError, match="neither a run directory nor a folder with some"):
        load_runs([tmp_path])
    (tmp_path / "file").touch()
    with pytest.raises(PlexusError, match="file: not a directory"):
        load_runs([tmp_path / "file"])
