"""`plexus runs`: real run directories are listed, shown, deleted and packed; a damaged one is a line."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from plexus import cli
from plexus.runs.directory import RunDirectory
from plexus.runs.run import load_run
from tests.dashboard.kit import write_run


def plexus(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as stop:
        cli.main(list(map(str, arguments)))
    assert isinstance(stop.value.code, int)
    return stop.value.code


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A finished run that is tagged, one under way, one that is damaged."""
    write_run(tmp_path / "runs" / "first", until_s=60, about={"tags": ["good", "base"], "note": "to be kept"})
    write_run(tmp_path / "runs" / "folder" / "second", seed=2, sample_size=8, until_s=60, finish=False)
    write_run(tmp_path / "runs" / "damaged", until_s=60, finish=False)
    (tmp_path / "runs" / "damaged" / "result.json").write_text("{")
    return tmp_path / "runs"


def listed(capsys: pytest.CaptureFixture[str], *options: str | Path) -> list[str]:
    assert plexus("runs", "list", *options, "--json") == 0
    return [run["id"] for run in json.loads(capsys.readouterr().out)]


def test_runs_are_listed_with_what_is_noted_and_damage_is_a_line(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plexus("runs", "list", runs, "--sort", "name") == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == f"3 runs in {runs}"
    assert lines[0].split() == ["damaged", "damaged"] and "result.json: Input data was truncated" in lines[1]
    assert lines[2].split() == ["finished", "90.0", "%", "0.0", "h", "first"]
    assert lines[3].strip() == "plexus on digits, 30 nodes, seed 1  #good  #base  to be kept"
    assert lines[4].split()[0] == "running" and lines[4].endswith("folder/second")


def test_the_list_is_filtered_searched_and_sorted(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert listed(capsys, runs, "--tag", "good") == ["first"]
    assert listed(capsys, runs, "--tag", "good", "--tag", "bad") == []
    assert listed(capsys, runs, "--search", "SEED 2") == ["folder/second"]
    assert listed(capsys, runs, "--sort", "name") == ["damaged", "first", "folder/second"]
    assert listed(capsys, runs, "--sort", "best")[0] == "first"


def test_a_run_is_shown(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plexus("runs", "show", runs / "first") == 0
    out = capsys.readouterr().out
    assert "plexus on digits, 30 nodes, seed 1  #good  #base  to be kept" in out and "trainings" in out
    assert plexus("runs", "show", runs / "folder" / "second") == 0
    assert capsys.readouterr().out.startswith("running")
    assert plexus("runs", "show", runs) == 2
    assert "is not a run directory" in capsys.readouterr().err


def test_what_a_run_wrote_is_deleted_and_nothing_else(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "first" / "mine.txt").write_text("keep me")
    assert plexus("runs", "rm", runs / "first", runs / "nothing", "--yes") == 2
    assert (runs / "first" / "spec.toml").exists(), "all are looked at before one is deleted"
    assert plexus("runs", "rm", runs / "first", runs / "folder" / "second", "--yes") == 0
    assert [path.name for path in (runs / "first").iterdir()] == ["mine.txt"]
    assert not (runs / "folder" / "second").exists()
    assert "first: deleted, but for what no run wrote" in capsys.readouterr().out


def test_a_run_is_packed_whole_and_comes_back(runs: Path, tmp_path: Path) -> None:
    before = load_run(runs / "first")
    assert plexus("runs", "archive", runs / "first", "--to", tmp_path / "kept") == 0
    assert not (runs / "first").exists()
    with tarfile.open(tmp_path / "kept" / "first.tar.gz") as file:
        file.extractall(tmp_path / "back", filter="data")
    after = load_run(tmp_path / "back" / "first")
    assert (after.spec, after.versions, after.result) == (before.spec, before.versions, before.result)
    (runs / "first").mkdir()
    assert plexus("runs", "archive", runs / "first", "--to", tmp_path / "kept") == 2


@pytest.mark.parametrize("inside", [".", "kept", "kept/deep"])
def test_a_run_is_not_packed_into_itself(runs: Path, inside: str, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "link").symlink_to(runs / "first")
    for name, folder in (("first", "first"), ("link", "first"), ("first", "link")):
        assert plexus("runs", "archive", runs / name, "--to", runs / folder / inside) == 2
        assert "first.tar.gz: is in the run itself; choose another folder" in capsys.readouterr().err
    assert load_run(runs / "first").result is not None
    assert not list(runs.rglob("*.tar.gz")) and not (runs / "first" / "kept").exists()


def test_of_a_link_to_a_run_the_run_is_packed(runs: Path, tmp_path: Path) -> None:
    before = load_run(runs / "first")
    (runs / "link").symlink_to(runs / "first")
    assert plexus("runs", "archive", runs / "link") == 0
    assert not (runs / "first").exists()
    with tarfile.open(runs / "first.tar.gz") as file:
        file.extractall(tmp_path / "back", filter="data")
    assert load_run(tmp_path / "back" / "first").result == before.result


def test_a_run_that_is_being_written_stays(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with RunDirectory(runs / "now", "name = 'x'\n", "d1"):
        assert plexus("runs", "rm", runs / "now", "--yes") == 2
        assert plexus("runs", "archive", runs / "now") == 2
        assert capsys.readouterr().err.count("another run is writing to this directory") == 2
        assert (runs / "now" / "spec.toml").exists() and not (runs / "now.tar.gz").exists()
