"""Faults of disks: full, unwritable, damaged, and power that fails between any two steps.

What a call has promised to be on disk is there afterwards, and what cannot be done is one clear line.
A full disk is simulated by the limit of the operating system on the size of files: writing really fails,
in the midst of it. Power is cut by stopping at each of the steps that reach the disk, one after the other.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from plexus.errors import PlexusError
from plexus.experiment.checkpoint import Checkpoints, read_checkpoint
from plexus.files import write_text
from plexus.learn.engines import create_engine
from plexus.learn.expressions import Expression
from plexus.learn.graph import LazyModels
from plexus.learn.tasks import build_task
from plexus.live.models import LiveModel, seal
from plexus.live.state import STATE_FILE, Store, newest_model
from plexus.protocol.api import Durable
from plexus.protocol.roster import Roster
from plexus.protocol.view import View
from plexus.runs.directory import RunDirectory
from plexus.runs.recorder import Recorder
from plexus.runs.run import load_run
from plexus.sim.kernel import Kernel
from plexus.spec.experiment import parse_spec

SPEC = 'name = "disk"\nnodes = 4\nhours = 1\n[task]\nname = "digits"\n'


class PowerCut(BaseException):
    """Nothing that comes after it is done."""


@contextmanager
def power_cut_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The power fails before the step-th time that a file is opened, synced, renamed or deleted."""
    left = step

    def counted(done: Callable[..., Any]) -> Callable[..., Any]:
        def do(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise PowerCut
            return done(*args, **kwargs)

        return do

    with monkeypatch.context() as patched:
        for owner, name in ((Path, "open"), (Path, "replace"), (Path, "unlink"), (os, "fsync")):
            patched.setattr(owner, name, counted(getattr(owner, name)))
        yield


@contextmanager
def full_disk(room_bytes: int) -> Iterator[None]:
    """No file can grow beyond this."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


NOBODY = View.of(1).snapshot()


def model(content: bytes) -> LiveModel:
    return LiveModel(memoryview(content), seal(content))


def held(round: int, content: bytes) -> Durable:
    return Durable(0, round, model(content), NOBODY, ordinal=round - 5)


def open_store(home: Path, errors: list[BaseException] | None = None) -> Store:
    return Store(home, Roster.simulated(b"session", 500), (errors if errors is not None else []).append)


# Files that are replaced


@pytest.mark.parametrize("step", range(6))
def test_a_file_is_old_or_new_whenever_the_power_fails(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_text(path, "old")
    acknowledged = "old"
    try:
        with power_cut_at(step, monkeypatch):
            write_text(path, "new, and longer")
            acknowledged = "new, and longer"
    except PowerCut:
        pass
    found = path.read_text()
    assert found in ("old", "new, and longer")
    assert acknowledged == "old" or found == acknowledged


def test_a_full_disk_leaves_the_old_file_and_no_rest(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_text(path, "old")
    with full_disk(1000), pytest.raises(PlexusError, match=f"{path}: File too large"):
        write_text(path, "x" * 5000)
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("file", "old")]


# The state of a node


@pytest.mark.parametrize("step", range(14))
def test_a_node_finds_all_it_was_promised_whenever_the_power_fails(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    store.save_counter(3, NOBODY, 0).result()
    store.save_model(held(9, b"nine"))
    store.close()
    counter = 3
    cut = open_store(tmp_path)
    try:
        with power_cut_at(step, monkeypatch):
            cut.save_counter(4, NOBODY, 0).result()
            counter = 4
            cut.save_model(held(10, b"ten"))
            cut.save_counter(5, NOBODY, 0).result()
            counter = 5
    except PowerCut:
        pass
    cut.close()
    again = open_store(tmp_path)
    found = again.model()
    assert again.state.counter >= counter, "a counter that others have heard of"
    assert found is not None
    state = again.state
    assert (state.round, state.ordinal, bytes(found.data)) in ((9, 4, b"nine"), (10, 5, b"ten"))
    again.close()


def test_a_counter_that_does_not_fit_on_the_disk_is_told_nobody(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.save_counter(3, NOBODY, 0).result()
    with full_disk(100), pytest.raises(PlexusError, match=STATE_FILE):
        store.save_counter(4, View.of(500, [(n, 1) for n in range(500)]).snapshot(), 0).result()
    assert (store.state.counter, store.failed) == (3, 1)
    store.close()
    assert open_store(tmp_path).state.counter == 3


def test_a_model_that_does_not_fit_is_reported_and_the_last_one_kept(tmp_path: Path) -> None:
    errors: list[BaseException] = []
    store = open_store(tmp_path, errors)
    store.save_model(held(6, b"one"))
    store.close()
    store = open_store(tmp_path, errors)
    with full_disk(1000):
        store.save_model(held(7, b"2" * 5000))
        store.close()
    assert len(errors) == store.failed == 1 and "model-7" in str(errors[0])
    assert newest_model(tmp_path)[:3] == (6, 1, b"one")


# Run directories and checkpoints


@pytest.fixture
def models() -> Iterator[LazyModels]:
    spec = parse_spec(SPEC, "disk.toml")
    task = build_task(spec.task.parameters, 4, 1, Path())
    made = LazyModels(task, create_engine("inline", task)[0])
    yield made
    made.close()


def computed(models: LazyModels) -> Expression:
    """A model that a checkpoint holds, for as long as somebody has it."""
    trained = models.train(models.initial(), 0, 1)
    models.evaluate(trained)
    return trained


def test_a_full_disk_stops_a_run_with_a_clear_line_and_keeps_the_rows_before(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.record("online", simulated_s=1.0, online=5)
    recorder.flush()
    for second in range(200):
        recorder.record("online", simulated_s=float(second), online=5)
    with full_disk(500), pytest.raises(PlexusError, match=r"online\.csv: cannot be written: File"):
        recorder.flush()
    whole = (tmp_path / "online.csv").read_text().split("\n")
    assert whole[:2] == ["simulated_s,online", "1.0,5"]


def test_a_run_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PlexusError, match=f"{tmp_path}/file.*: Not a directory"):
        RunDirectory(tmp_path / "file" / "run", SPEC, "1")


def test_a_run_directory_that_vanishes_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    recorder = Recorder(folder)
    folder.rmdir()
    with pytest.raises(PlexusError, match=r"online\.csv: cannot be written"):
        recorder.record("online", simulated_s=1.0, online=5)


@pytest.mark.parametrize("step", range(12))
def test_there_is_always_a_whole_checkpoint_whenever_the_power_fails(
    step: int, tmp_path: Path, models: LazyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel(lambda target, event: None)
    held = computed(models)
    Checkpoints(tmp_path, 0).offer(kernel, models, is_last=True)
    kernel.run(5.0)
    acknowledged = 0.0
    try:
        with power_cut_at(step, monkeypatch):
            Checkpoints(tmp_path, 0).offer(kernel, models, is_last=True)
            acknowledged = 5.0
    except PowerCut:
        pass
    assert read_checkpoint(tmp_path).simulated_s >= acknowledged
    assert held.value is not None


def test_a_checkpoint_that_does_not_fit_is_named_and_the_last_one_kept(
    tmp_path: Path, models: LazyModels
) -> None:
    kernel = Kernel(lambda target, event: None)
    held = computed(models)
    Checkpoints(tmp_path, 0).offer(kernel, models, is_last=True)
    kernel.run(5.0)
    with full_disk(100), pytest.raises(PlexusError, match="checkpoint-2: File too large"):
        Checkpoints(tmp_path, 0).offer(kernel, models, is_last=True)
    assert read_checkpoint(tmp_path).simulated_s == 0.0
    assert held.value is not None


@pytest.mark.parametrize("damage", ["cut", "changed", "gone", "other"])
def test_a_damaged_checkpoint_is_refused_before_anything_is_deleted(
    damage: str, tmp_path: Path, models: LazyModels
) -> None:
    """Whoever resumes writes the tables anew: not before it is sure that it can."""
    held = computed(models)
    Checkpoints(tmp_path, 0).offer(Kernel(lambda target, event: None), models, is_last=True)
    (tensors,) = tmp_path.glob("checkpoint-1/*.safetensors")
    content = tensors.read_bytes()
    if damage == "cut":
        tensors.write_bytes(content[:-1])
    elif damage == "changed":
        tensors.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage == "gone":
        tensors.unlink()
    else:
        path = tmp_path / "checkpoint.json"
        path.write_text(path.read_text().replace("models-0", "models-1"))
    with pytest.raises(PlexusError, match="checkpoint"):
        read_checkpoint(tmp_path)
    assert held.value is not None


def test_a_table_cut_in_the_midst_of_a_row_is_read_up_to_it(tmp_path: Path) -> None:
    with RunDirectory(tmp_path, parse_spec(SPEC, "").to_toml(), "1") as directory:
        directory.recorder.record("online", simulated_s=1.0, online=5)
        directory.recorder.record("online", simulated_s=2.0, online=6)
    table = tmp_path / "online.csv"
    table.write_bytes(table.read_bytes()[:-4])
    assert load_run(tmp_path).tables["online"]["online"].tolist() == [5]
