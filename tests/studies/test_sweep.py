"""Sweeps: what the options mean, the file that keeps them, and real runs that are killed and go on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

from plexus import cli
from plexus.errors import PlexusError
from plexus.runs.run import result_of
from plexus.studies.plan import Planned, make_plan
from plexus.studies.reproduce import parse_axis, sweep_toml
from plexus.studies.study import changed, sized_parts
from tests.studies.kit import BASE, folder_with

GRID = ["--grid", "protocol.sample_size=2,3", "--grid", "protocol.name=plexus,fedavg"]


def plexus(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert isinstance(stop.value.code, int)
    return stop.value.code


def planned(text: str, folder: Path) -> list[Planned]:
    return make_plan(sized_parts(text, folder / "sweep.toml", "paper"), folder / "out").all_runs


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("protocol.sample_size=2, 5,10", [2, 5, 10]),
        ("protocol.name=plexus,fedavg", ["plexus", "fedavg"]),
        ("task.learning_rate=0.1,0.05", [0.1, 0.05]),
        ("seed=1..4", [1, 2, 3, 4]),
        ('protocol={name="gossip"},{name="plexus"}', [{"name": "gossip"}, {"name": "plexus"}]),
        ("aggregation=mean", ["mean"]),
    ],
)
def test_an_axis_is_a_key_and_values(text: str, values: list[Any]) -> None:
    assert parse_axis(text) == (text.partition("=")[0], values)


@pytest.mark.parametrize("text", ["protocol.sample_size", "=2,3", "protocol.sample_size="])
def test_an_axis_without_key_or_values_is_refused(text: str) -> None:
    with pytest.raises(PlexusError, match=r"--grid .*: expected section\.key=value,value"):
        parse_axis(text)


def test_seeds_that_count_down_are_refused() -> None:
    with pytest.raises(PlexusError, match=r"--seeds 5\.\.1: give the lesser number first"):
        parse_axis("seeds=5..1", "--seeds")


def test_another_name_keeps_what_belongs_to_it_too() -> None:
    tables = {
        "protocol": {"name": "plexus", "sample_size": 13, "success_fraction": 0.8},
        "aggregation": "mean",
    }
    found = changed(tables, {"protocol.name": "fedavg", "aggregation.name": "clip", "aggregation.factor": 2})
    assert found["protocol"] == {"name": "fedavg", "sample_size": 13, "success_fraction": 0.8}
    assert found["aggregation"] == {"name": "clip", "factor": 2}
    assert changed(tables, {"protocol.name": "gossip"})["protocol"] == {"name": "gossip"}
    assert changed(tables, {"protocol.name": "plexus"})["protocol"] == tables["protocol"]
    assert changed(tables, {"protocol": {"name": "plexus"}})["protocol"] == {"name": "plexus"}, (
        "as in studies"
    )


def test_a_sweep_is_a_file_with_all_that_was_said(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "specs", base=BASE)
    grid = ["protocol.sample_size=2,3", "protocol.name=plexus,fedavg"]
    text = sweep_toml(folder / "base.toml", grid, ["nodes=9"], "1..3", "tiny", tmp_path)
    assert tomllib.loads(text) == {
        "title": "small: sample size × protocol",
        "tasks": ["specs/base.toml"],
        "seeds": [1, 2, 3],
        "spec": {"hours": 0.25, "nodes": 9},
        "grid": {"protocol.sample_size": [2, 3], "protocol.name": ["plexus", "fedavg"]},
    }
    runs = planned(text, tmp_path)
    assert len(runs) == 12
    assert {(run.spec.nodes, run.spec.hours, run.spec.evaluation.every_rounds) for run in runs} == {
        (9, 0.25, 5)
    }
    made = {(run.spec.protocol.name, run.spec.protocol.parameters.sample_size) for run in runs}
    assert made == {("plexus", 2), ("plexus", 3), ("fedavg", 2), ("fedavg", 3)}


def test_a_spec_that_comes_with_plexus_is_swept_by_its_name(tmp_path: Path) -> None:
    text = sweep_toml(Path("quickstart"), [], [], "1,7", None, tmp_path)
    assert tomllib.loads(text) == {"title": "quickstart: seeds", "tasks": ["quickstart"], "seeds": [1, 7]}
    assert [run.spec.seed for run in planned(text, tmp_path)] == [1, 7]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--grid", "protocol.sample_sise=2,3"], "protocol.sample_sise: unknown key"),
        (["--grid", "hours=1,2", "--grid", "hours=3"], "--grid hours: is there twice; give all its values"),
        (
            ["--grid", "protocol.name=plexus,gosip"],
            "sweep: arms.protocol.name=gosip of base.toml: protocol.name: 'gosip' is",
        ),
        (["--seeds", "one"], "seeds[0]: expected an integer, got 'one'"),
        (["--size", "huge"], "has no size 'huge'"),
    ],
)
def test_what_is_wrong_is_one_line(
    options: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_with(tmp_path, base=BASE)
    assert plexus("sweep", str(folder / "base.toml"), *options, "--plan", "--out", str(tmp_path / "out")) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert complaint in line


def test_a_kept_sweep_says_itself_what_is_swept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s.toml").write_text(sweep_toml(Path("quickstart"), [], [], "1", None, tmp_path))
    assert plexus("sweep", str(tmp_path / "s.toml"), "--seeds", "2") == 2
    assert "says what is swept" in capsys.readouterr().err


def test_what_is_wrong_is_not_kept_and_what_was_kept_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder_with(tmp_path, base=BASE))
    sweep = ["sweep", "base.toml", "--plan", "--save=kept.toml"]
    assert plexus(*sweep, "--grid", "protocol.sample_sise=2") == 2
    assert not Path("kept.toml").exists()
    Path("kept.toml").write_text("mine")
    assert plexus(*sweep) == 2
    assert (
        "kept.toml: is another sweep" in capsys.readouterr().err and Path("kept.toml").read_text() == "mine"
    )


def test_arms_and_a_grid_exclude_each_other(tmp_path: Path) -> None:
    text = 'title = "T"\ntasks = ["quickstart"]\nseeds = [1]\n[grid]\nnodes = [1]\n[arms.a]\nnodes = 2\n'
    with pytest.raises(PlexusError, match="a study has arms or a grid, not both"):
        planned(text, tmp_path)


@pytest.mark.slow
def test_a_plan_says_how_long_it_takes_and_a_sweep_ends_with_a_table_and_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder_with(tmp_path, base=BASE))
    sweep = ["sweep", "base.toml", "--size=tiny", *GRID, "--seeds=1,2"]
    assert plexus(*sweep, "--plan", "--save", "kept.toml") == 0
    *lines, total, how_long = capsys.readouterr().out.splitlines()
    assert len(lines) == 8 and all(line.startswith("to do") for line in lines)
    assert total == "8 runs in runs/sweep-small/runs" and how_long.startswith("about 0:")
    assert not (tmp_path / "runs").exists()

    assert plexus("sweep", "kept.toml", "--jobs=2", "--json", "--out=out") == 0
    (setting,) = json.loads(capsys.readouterr().out)
    assert setting["setting"].startswith("Digits, 12 nodes, churn")
    labels = [arm["label"] for arm in setting["comparison"]["arms"]]
    assert labels == ["Plexus, s = 2", "Plexus, s = 3", "FedAvg, s = 2", "FedAvg, s = 3"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<h1>small: sample size × protocol</h1>" in page
    assert "FedAvg, s = 3" in page and "plexus sweep kept.toml" in page

    runs = planned((tmp_path / "kept.toml").read_text(), tmp_path)
    before = {run.out: (run.out / "result.json").stat().st_mtime_ns for run in runs}
    assert plexus("sweep", "kept.toml", "--out=out") == 0
    assert "Plexus, s = 2" in capsys.readouterr().out
    assert before == {run.out: (run.out / "result.json").stat().st_mtime_ns for run in runs}
    assert plexus("sweep", "kept.toml", "--out=out", "--plan") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "nothing to do"


@pytest.mark.slow
def test_a_sweep_that_is_killed_goes_on_and_does_nothing_twice(tmp_path: Path) -> None:
    folder_with(tmp_path, base=BASE)
    sweep = [
        sys.executable,
        "-m",
        "plexus",
        "sweep",
        "base.toml",
        *GRID,
        "--seeds=1,2",
        "--jobs=1",
        "--out=out",
    ]
    process = subprocess.Popen(sweep, cwd=tmp_path, stderr=subprocess.DEVNULL, start_new_session=True)
    deadline_s = time.monotonic() + 120
    while not (done := list(tmp_path.glob("out/runs/*/result.json"))):
        assert process.poll() is None and time.monotonic() < deadline_s
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = {path: path.stat().st_mtime_ns for path in done}
    subprocess.run(sweep, cwd=tmp_path, check=True, capture_output=True)
    assert before == {path: path.stat().st_mtime_ns for path in done}
    runs = [path.parent for path in tmp_path.glob("out/runs/*/result.json")]
    results = [result_of(run) for run in runs]
    assert len(runs) == 8 and not any(result is None or result.interrupted for result in results)
