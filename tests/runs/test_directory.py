"""A run directory is valid at every moment, has one writer, and nothing in it is lost unasked."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

from plexus import files
from plexus.errors import PlexusError
from plexus.runs.directory import FIGURE, REPLAY, RunDirectory, archive, claim, remove
from plexus.runs.result import Metric, Result, Traffic, Trainings
from plexus.runs.run import load_run

SPEC = """\
name = "small"
seed = 1
nodes = 3
hours = 2.0
protocol = { name = "plexus" }
task = { name = "digits" }
"""
RESULT = Result(
    digest="d1",
    weights_hash="w1",
    rounds=2,
    simulated_s=60.0,
    cpu_s=0.1,
    wall_s=0.2,
    metric=Metric("accuracy", best=0.9, final=None, higher_is_better=True),
    messages={"ping": Traffic(3, 60), "model": Traffic(1, 1000)},
    training_s=12.5,
    trainings=Trainings(asked=4, computed=3),
    interrupted=False,
    out="runs/small",
)


def finished(path: Path, digest: str = "abc") -> None:
    with RunDirectory(path, SPEC, digest) as run:
        run.recorder.record("online", simulated_s=0.0, online=3)
        run.finish(RESULT)


def test_a_finished_run_reads_back_whole(tmp_path: Path) -> None:
    finished(tmp_path / "deep" / "run")
    run = load_run(tmp_path / "deep" / "run")
    assert run.spec == tomllib.loads(SPEC)
    assert run.result == RESULT
    assert run.result is not None
    assert run.result.sent_bytes == 1060
    assert run.tables["online"]["online"].tolist() == [3]
    assert run.tables["evaluations"] == {}
    assert run.versions["spec_digest"] == "abc"
    assert {"plexus", "python", "platform", "started"} < run.versions.keys()
    assert {"numpy", "torch"} <= run.versions["packages"].keys()
    assert not list((tmp_path / "deep" / "run").glob(".*"))


def test_an_interrupted_run_keeps_what_was_recorded(tmp_path: Path) -> None:
    def interrupted() -> None:
        with RunDirectory(tmp_path / "run", SPEC, "abc") as run:
            for moment in range(10):
                run.recorder.record("online", simulated_s=float(moment), online=1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    run = load_run(tmp_path / "run")
    assert run.result is None
    assert len(run.tables["online"]["online"]) == 10


@pytest.mark.slow
def test_a_killed_run_leaves_a_valid_directory(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from plexus.runs.directory import RunDirectory\n"
        f"with RunDirectory(Path(sys.argv[1]), {SPEC!r}, 'abc') as run:\n"
        "    for i in range(10**9):\n"
        "        run.recorder.record('online', simulated_s=float(i), online=i)\n"
        "        if i == 50_000: print('going', flush=True)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "going\n"
        with pytest.raises(PlexusError, match="another run is writing to this directory"):
            claim(tmp_path / "run", "abc")
        process.kill()
        assert process.wait() == -signal.SIGKILL
    run = load_run(tmp_path / "run")
    online = run.tables["online"]["online"]
    assert len(online) >= 50_000
    assert online.tolist() == list(range(len(online)))
    assert claim(tmp_path / "run", "abc") == tmp_path / "run.1"


def test_a_directory_has_one_writer(tmp_path: Path) -> None:
    with (
        RunDirectory(tmp_path, SPEC, "abc"),
        pytest.raises(PlexusError, match="another run is writing to this directory"),
    ):
        RunDirectory(tmp_path, SPEC, "abc")
    with pytest.raises(PlexusError, match="already holds a run"):
        RunDirectory(tmp_path, SPEC, "abc")


def test_a_new_or_empty_directory_is_free(tmp_path: Path) -> None:
    assert claim(tmp_path / "new", "abc") is None
    assert claim(tmp_path, "abc") is None


@pytest.mark.parametrize("force", [False, True])
def test_a_run_that_was_killed_before_its_directory_was_marked_is_in_nobodys_way(
    tmp_path: Path, force: bool
) -> None:
    (tmp_path / ".versions.json.new").write_text("{")
    assert claim(tmp_path, "abc", force=force) is None
    with RunDirectory(tmp_path, SPEC, "abc", force=force):
        pass
    assert sorted(each.name for each in tmp_path.iterdir()) == ["spec.toml", "versions.json"]


def test_an_earlier_run_of_the_same_spec_is_moved_aside(tmp_path: Path) -> None:
    path = tmp_path / "run"
    for number in (1, 2):
        finished(path)
        assert claim(path, "abc") == tmp_path / f"run.{number}"
        assert not path.exists()
        assert load_run(tmp_path / f"run.{number}").result == RESULT


def test_a_run_that_recorded_nothing_makes_room(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run", SPEC, "abc"):
        pass
    assert claim(tmp_path / "run", "abc") is None
    assert [each.name for each in tmp_path.iterdir()] == ["run"]
    finished(tmp_path / "run")


def test_a_run_that_fails_before_it_recorded_anything_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    for path in (tmp_path / "run", tmp_path / "made"):
        with pytest.raises(PlexusError), RunDirectory(path, SPEC, "abc"):
            raise PlexusError("task.hiden: unknown key")
    assert [each.name for each in tmp_path.iterdir()] == ["made"]
    assert list((tmp_path / "made").iterdir()) == []


def test_a_run_of_another_spec_is_refused_unless_forced(tmp_path: Path) -> None:
    finished(tmp_path)
    (tmp_path / FIGURE).write_bytes(b"png")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(PlexusError, match=r"holds a run of another spec.*--force"):
        claim(tmp_path, "other")
    assert load_run(tmp_path).result == RESULT
    assert claim(tmp_path, "other", force=True) is None
    with RunDirectory(tmp_path, SPEC, "other", force=True) as run:
        run.recorder.record("evaluations", simulated_s=0.0, round=0, accuracy=0.5, loss=1.0)
        assert load_run(tmp_path).result == RESULT
        run.begun()
        assert load_run(tmp_path).result is None
    assert load_run(tmp_path).versions["spec_digest"] == "other"
    left = ["evaluations.csv", "notes.txt", "spec.toml", "versions.json"]
    assert sorted(each.name for each in tmp_path.iterdir()) == left


@pytest.mark.parametrize("wrong", [PlexusError("no such file"), KeyboardInterrupt()])
def test_a_run_stays_if_the_one_that_would_replace_it_cannot_begin(
    tmp_path: Path, wrong: BaseException
) -> None:
    finished(tmp_path)
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    claim(tmp_path, "other", force=True)
    with pytest.raises(type(wrong)), RunDirectory(tmp_path, SPEC, "other", force=True):
        raise wrong
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before
    (tmp_path / REPLAY).mkdir()  # as one that was killed leaves it
    with RunDirectory(tmp_path, SPEC, "other", force=True) as run:
        run.begun()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["spec.toml", "versions.json"]


@pytest.mark.parametrize("force", [False, True])
def test_what_is_no_run_directory_is_never_touched(tmp_path: Path, force: bool) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    for path in (tmp_path, tmp_path / "thesis.tex"):
        with pytest.raises(PlexusError, match="exists and is not a run directory"):
            claim(path, "abc", force=force)
    assert (tmp_path / "thesis.tex").read_text() == "mine"


def test_damage_is_named(tmp_path: Path) -> None:
    with pytest.raises(PlexusError, match="nowhere: is not a run directory"):
        load_run(tmp_path / "nowhere")
    finished(tmp_path)
    (tmp_path / "result.json").write_text("{")
    with pytest.raises(PlexusError, match=r"result\.json: "):
        load_run(tmp_path)
    (tmp_path / "spec.toml").write_text('name = "small"\nseed = 1\nnodes = "three"\n')
    with pytest.raises(PlexusError, match=r"spec\.toml: Expected `int`, got `str` - at `\$.nodes`"):
        load_run(tmp_path)
    (tmp_path / "spec.toml").unlink()
    with pytest.raises(PlexusError, match=r"spec\.toml: No such file or directory"):
        load_run(tmp_path)
    (tmp_path / "versions.json").write_text("[]")
    with pytest.raises(PlexusError, match=r"versions\.json: does not say which spec was run"):
        load_run(tmp_path)


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PlexusError, match="file/run: Not a directory"):
        RunDirectory(tmp_path / "file" / "run", SPEC, "abc")


def test_a_run_that_is_deleted_in_part_is_still_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    finished(tmp_path)
    (tmp_path / "checkpoint-1").mkdir()
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", interrupted)
        with pytest.raises(KeyboardInterrupt):
            remove(tmp_path)
    assert remove(tmp_path)


def test_a_run_that_is_killed_as_it_replaces_another_is_in_nobodys_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    finished(tmp_path)
    run = RunDirectory(tmp_path, SPEC, "other", force=True)
    run.recorder.record("online", simulated_s=0.0, online=1)
    monkeypatch.setattr(run, "_mark", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run.begun()
    os.close(run._lock)  # as when its process ends
    assert claim(tmp_path, "abc") is None
    finished(tmp_path)
    assert load_run(tmp_path).result == RESULT
    assert not (tmp_path / REPLAY).exists()


def test_packing_that_is_broken_off_leaves_the_run_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    finished(tmp_path / "run")
    monkeypatch.setattr(tarfile.TarFile, "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        archive(tmp_path / "run", tmp_path / "kept")
    assert load_run(tmp_path / "run").result == RESULT
    assert list((tmp_path / "kept").iterdir()) == []


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "result.json"
    files.write_json(path, {"a": 1})

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(PlexusError, match=r"result\.json: No space left on device"):
        files.write_json(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 1}
