"""State on disk: it survives, it is written in order, and every damage is noticed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from plexus.errors import PlexusError
from plexus.live.models import LiveModel, seal
from plexus.live.room import Room
from plexus.live.state import STATE_FILE, Store, check_home, newest_model
from plexus.protocol.api import Durable
from plexus.protocol.roster import Roster
from plexus.protocol.view import Snapshot, View
from plexus.runs.directory import go_on, live
from plexus.runs.model_files import BEST_MODEL, FINAL_MODEL
from tests.live.disks import damaged, fill, small_disk

MODEL_FILE = "model-9.safetensors"


ROSTER = Roster.simulated(b"session", 2)
NOBODY, SOMEBODY = View.of(2).snapshot(), View.of(2, [(1, 70)]).snapshot()


def model(content: bytes) -> LiveModel:
    return LiveModel(memoryview(content), seal(content))


def durable(round: int, content: bytes, view: Snapshot = NOBODY) -> Durable:
    return Durable(0, round, model(content), view, ordinal=round // 3)


def fail(error: BaseException) -> None:
    raise error


def written(home: Path) -> Store:
    store = Store(home, ROSTER, fail)
    store.save_counter(3, NOBODY, 1000)
    store.save_model(durable(9, b"nine", SOMEBODY))
    store.close()
    return store


def test_state_survives(tmp_path: Path) -> None:
    written(tmp_path)
    again = Store(tmp_path, ROSTER, fail)
    held = again.model()
    assert held is not None
    state = again.state
    assert (bytes(held.data), state.round, state.ordinal, state.counter) == (b"nine", 9, 3, 3)
    assert (again.view(), state.bandwidth_bytes_per_s) == (SOMEBODY, 1000)
    assert newest_model(tmp_path) == (9, 3, b"nine", tmp_path)


@pytest.mark.parametrize("name", [BEST_MODEL, FINAL_MODEL])
def test_a_model_to_take_home_that_is_damaged_is_refused(tmp_path: Path, name: str) -> None:
    path, whole = tmp_path / name, save({"weights": np.arange(9.0)})
    path.write_bytes(whole)
    check_home(tmp_path, ROSTER.session)
    for content in (b"", b"rubbish", whole[:20], whole[:-1]):
        path.write_bytes(content)
        with pytest.raises(PlexusError, match=f"{path}: damaged, or not a safetensors file: "):
            check_home(tmp_path, ROSTER.session)


def test_only_the_newest_model_is_kept(tmp_path: Path) -> None:
    store = Store(tmp_path, ROSTER, fail)
    for number in range(1, 50):
        store.save_model(durable(number, b"%d" % number))
    store.close()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["model-49.safetensors", STATE_FILE]


def test_a_crash_while_writing_leaves_the_state_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path, ROSTER, fail)
    store.save_counter(3, NOBODY, 0).result()

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", crash)
    with pytest.raises(KeyboardInterrupt):
        store.save_counter(4, NOBODY, 0).result()
    monkeypatch.undo()
    assert Store(tmp_path, ROSTER, fail).state.counter == 3


def test_models_that_a_crash_left_go_with_the_next_that_is_kept(tmp_path: Path) -> None:
    """Before the state named it, and while it was written; what has a name of its owner's stays."""
    written(tmp_path)
    for name in ("model-10.safetensors", ".model-11.safetensors.new", "model-9-mine.safetensors"):
        (tmp_path / name).write_bytes(b"left")
    store = Store(tmp_path, ROSTER, fail)
    store.save_model(durable(12, b"twelve"))
    store.close()
    left = sorted(each.name for each in tmp_path.iterdir())
    assert left == ["model-12.safetensors", "model-9-mine.safetensors", STATE_FILE]


def test_a_disk_without_room_for_the_state_is_not_filled_with_models(tmp_path: Path) -> None:
    """They came before it was full, so each has its room already; it is given back."""
    with small_disk(tmp_path / "disk", kilobytes=1000) as disk:
        complaints: list[BaseException] = []
        store, room = Store(disk, ROSTER, complaints.append), Room(disk, 0)
        arrived = [room.space(100_000) for _ in range(5)]
        store.save_model(durable(1, b"one"))
        store.save_counter(3, NOBODY, 0).result()
        fill(disk)
        for number, data in enumerate(arrived, 2):
            store.save_model(Durable(0, number, LiveModel(data, b""), NOBODY, ordinal=number))
            store._thread.submit(lambda: None).result()
        assert [str(each) for each in complaints] == [f"{disk / STATE_FILE}: No space left on device"] * 5
        assert {each.name for each in disk.iterdir()} == {"model-1.safetensors", STATE_FILE, "filler"}
        (disk / "filler").unlink()
        store.save_model(durable(9, b"nine"))
        store.close()
        assert {each.name for each in disk.iterdir()} == {MODEL_FILE, STATE_FILE}


def test_models_that_keep_coming_do_not_hold_up_a_counter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is slower than the rounds: of the models only the newest waits, behind the counter."""
    may_go_on, order = threading.Semaphore(0), []
    replace = Path.replace

    def slow(path: Path, target: Path) -> Path:
        may_go_on.acquire()
        order.append(target.name)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", slow)
    store = Store(tmp_path, ROSTER, fail)
    store.save_model(durable(1, b"1"))
    counter = store.save_counter(3, NOBODY, 0)
    for number in range(2, 9):
        store.save_model(durable(number, b"%d" % number))
    for _ in range(9):
        may_go_on.release()
    counter.result()
    store.close()
    files = [name for name in order if name != STATE_FILE]
    assert files[-1] == "model-8.safetensors"
    assert len(files) <= 2
    assert Store(tmp_path, ROSTER, fail).state.counter == 3


# Damage


def test_another_sessions_state_is_not_taken(tmp_path: Path) -> None:
    written(tmp_path)
    check_home(tmp_path, ROSTER.session)
    with pytest.raises(PlexusError, match=f"{STATE_FILE}: of another session; use another --home"):
        check_home(tmp_path, b"another")


def test_nor_are_another_sessions_tables_or_models_once_the_state_is_gone(tmp_path: Path) -> None:
    """They would grow together with this one's, and its best model be taken home as this one's."""
    store = Store(tmp_path, ROSTER, fail)
    whole = save({"weights": np.arange(9.0)})
    (tmp_path / "task.safetensors").write_bytes(save({}, {"task": "t"}))
    store.offer_best(1, model(whole), 0.5)
    store.close()
    assert not (tmp_path / STATE_FILE).exists()
    check_home(tmp_path, ROSTER.session)
    with pytest.raises(PlexusError, match=f"{BEST_MODEL}: of another session; use another --home"):
        check_home(tmp_path, b"another")
    (tmp_path / BEST_MODEL).unlink()
    go_on(tmp_path / "run", "", "0" * 16, 2**20, live([".."], session=ROSTER.session.hex()))
    check_home(tmp_path, ROSTER.session)
    with pytest.raises(PlexusError, match="run: of another session; use another --home"):
        check_home(tmp_path, b"another")


@pytest.mark.parametrize("name", [STATE_FILE, MODEL_FILE])
def test_every_flipped_bit_and_every_cut_is_one_line_that_says_what_to_do(name: str, tmp_path: Path) -> None:
    written(tmp_path)
    path = tmp_path / name
    readers: list[Callable[[], object]] = [
        lambda: Store(tmp_path, ROSTER, fail).model(),
        lambda: newest_model(tmp_path),
    ]
    for content in damaged(path.read_bytes()):
        path.write_bytes(content)
        for read in readers:
            with pytest.raises(PlexusError) as refused:
                read()
            said = str(refused.value)
            assert said.startswith(f"{path}: damaged")
            assert "; move state.bin away and start again" in said
            assert "\n" not in said


@pytest.mark.parametrize("head", [b"", b"plexus state 2\n"])
def test_a_state_of_a_format_before_is_said_to_be_of_another_version(head: bytes, tmp_path: Path) -> None:
    """In format 2 there was no ordinal."""
    (tmp_path / STATE_FILE).write_bytes(head + b"\x82\xa6format\x01\xa7session\xc4\x07session")
    with pytest.raises(PlexusError, match="damaged, or of another version of Plexus; move"):
        Store(tmp_path, ROSTER, fail)


def test_a_model_that_is_gone_is_named(tmp_path: Path) -> None:
    written(tmp_path)
    os.unlink(tmp_path / MODEL_FILE)
    with pytest.raises(PlexusError, match=f"{MODEL_FILE}: No such file or directory; move"):
        Store(tmp_path, ROSTER, fail).model()
