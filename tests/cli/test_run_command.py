"""`plexus run`: what it prints where, what it leaves, and how it ends."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from plexus.errors import PlexusError
from plexus.runs.run import load_run
from plexus.spec.experiment import load_spec
from tests.cli.standin import Plexus, Session

SMALL = "experiments/small.toml"


def test_a_run_prints_a_summary_and_leaves_a_directory_named_by_its_spec(
    plexus: Plexus, session: Session
) -> None:
    outcome = plexus("run", SMALL)
    assert outcome.status == 0
    out = Path("runs") / f"small-{load_spec(SMALL).digest()}"
    for fact in ("small: plexus on digits, 10 nodes, seed 1", "97.0 % at best", "digest-of-1", str(out)):
        assert fact in outcome.out
    assert load_run(out).result is not None
    assert (out / "learning-curve.png").read_bytes().startswith(b"\x89PNG")
    assert session.base_dir == Path("experiments")


def test_json_is_one_object_and_all_that_stdout_gets(plexus: Plexus) -> None:
    outcome = plexus("run", SMALL, "--json", "--out", "here")
    printed = json.loads(outcome.out)
    assert printed == json.loads(Path("here/result.json").read_text())
    assert {"digest", "weights_hash", "rounds", "simulated_s", "cpu_s", "training_s"} < printed.keys()
    assert printed["metric"] == {
        "name": "accuracy",
        "best": 0.97,
        "final": 0.964,
        "higher_is_better": True,
        "of_nodes": False,
    }
    assert printed["messages"]["ping"] == {"count": 300, "bytes": 5000}
    assert "97.0 % at best" in outcome.err


def test_quiet_says_nothing(plexus: Plexus) -> None:
    assert (plexus("run", SMALL, "--quiet")) == (plexus("run", SMALL, "-q"))
    outcome = plexus("run", SMALL, "-q", "--json")
    assert (outcome.err, json.loads(outcome.out)["digest"]) == ("", "digest-of-1")


def test_options_change_the_spec_and_the_directory_keeps_the_change(plexus: Plexus) -> None:
    outcome = plexus(
        "run", SMALL, "--set", "nodes=20", "--set", "network.sharing=fifo", "--seed", "7",
        "--out", "here", "-q", "--json",
    )  # fmt: skip
    assert json.loads(outcome.out)["digest"] == "digest-of-7"
    spec = load_run("here").spec
    assert (spec["nodes"], spec["seed"], spec["network"]) == (20, 7, {"sharing": "fifo"})


def test_running_again_moves_the_earlier_run_aside(plexus: Plexus) -> None:
    plexus("run", SMALL, "--out", "here")
    outcome = plexus("run", SMALL, "--out", "here")
    assert outcome.status == 0
    assert outcome.err.startswith("plexus: the earlier run in here is now here.1\n")
    assert load_run("here").result == load_run("here.1").result


def test_a_run_of_another_spec_is_replaced_only_by_force(plexus: Plexus) -> None:
    plexus("run", SMALL, "--out", "here")
    refused = plexus("run", SMALL, "--seed", "2", "--out", "here")
    assert refused.status == 2
    assert refused.err.startswith("plexus: here: holds a run of another spec;")
    assert plexus("run", SMALL, "--seed", "2", "--out", "here", "--force").status == 0
    assert load_run("here").spec["seed"] == 2


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["nope.toml"], "nope.toml: no such file"),
        (["exp/small.toml"], "exp/small.toml: no such file (did you mean 'experiments/small.toml'?)"),
        (["small.toml"], "small.toml: no such file (did you mean 'experiments/small.toml'?)"),
        (["--resume", "runs/nosuch"], "runs/nosuch: is not a run directory"),
        ([SMALL, "--set", "nodez=3"], "--set nodez=3: unknown key (did you mean 'nodes'?)"),
        ([SMALL, "--set", "hours=-1"], "--set hours=-1: expected a number > 0.0, got -1"),
        ([SMALL, "--seed", "-1"], "--seed -1: expected an integer >= 0, got -1"),
        (
            [SMALL, "--out", "experiments"],
            "experiments: exists and is not a run directory; choose another with --out",
        ),
    ],
)
def test_bad_input_is_one_line_and_status_2(plexus: Plexus, arguments: list[str], line: str) -> None:
    outcome = plexus("run", *arguments)
    assert (outcome.status, outcome.out, outcome.err) == (2, "", f"plexus: {line}\n")


def test_an_error_from_within_the_session_is_one_line_too(plexus: Plexus, session: Session) -> None:
    session.fails = PlexusError("traces.file: data/x.csv: no such file\n  (second line)")
    outcome = plexus("run", SMALL)
    assert outcome.status == 2
    assert outcome.err == "plexus: traces.file: data/x.csv: no such file (second line)\n"


def test_ctrl_c_keeps_what_there_is_and_says_how_far_it_came(plexus: Plexus, session: Session) -> None:
    session.stop_at = 5
    outcome = plexus("run", SMALL, "--out", "here", "--json")
    assert outcome.status == 130
    assert outcome.err.splitlines()[-1] == (
        "plexus: interrupted at 0.8 of 2 simulated hours, round 4; what there is, is in here;"
        " go on with: plexus run --resume here"
    )
    assert json.loads(outcome.out)["interrupted"] is True
    run = load_run("here")
    assert len(run.tables["evaluations"]["accuracy"]) == 5
    assert (run.path / "learning-curve.png").exists()


def test_ctrl_c_before_the_simulation_is_no_traceback_either(
    plexus: Plexus, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "simulate", interrupted)
    outcome = plexus("run", SMALL)
    assert (outcome.status, outcome.out) == (130, "")
    assert outcome.err == "plexus: interrupted before the simulation began\n"


def test_without_matplotlib_a_run_succeeds_and_says_what_is_missing(
    plexus: Plexus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    outcome = plexus("run", SMALL, "--out", "here")
    assert outcome.status == 0
    assert (
        "plexus: no figure drawn: a figure needs the Python module matplotlib, which is not installed:"
        " pip install 'plexus-learning[report]'\n"
    ) in outcome.err
    assert not Path("here/learning-curve.png").exists()


def test_without_evaluations_there_is_no_figure(plexus: Plexus, session: Session) -> None:
    session.evaluates = False
    outcome = plexus("run", SMALL)
    assert outcome.status == 0
    assert "plexus: no figure drawn: nothing was evaluated\n" in outcome.err


def test_without_a_terminal_progress_is_lines(plexus: Plexus) -> None:
    first = plexus("run", SMALL).err.splitlines()[0]
    assert first == "small: 0.0 of 2 h, round 0, 3 online, accuracy 0.0 %"
