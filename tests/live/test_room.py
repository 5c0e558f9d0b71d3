"""Where models lie: in memory or in files, with the same results, and what happens when the disk is full."""

from __future__ import annotations

import asyncio
import errno
import io
import mmap
import os
import socket
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np
import pytest
import torch
from safetensors.torch import save

from plexus.errors import PlexusError
from plexus.learn.rules import ClipRule, MeanRule, MedianRule, Rule
from plexus.live import room as room_module
from plexus.live.aggregator import Aggregator, Spool, sum_of
from plexus.live.models import LiveModel, ModelLayout, seal
from plexus.live.operator.log import Log
from plexus.live.room import BOUNDLESS, Room, keep, put, touched_bytes
from plexus.live.transport.receiving import NO_ROOM, Buffers
from plexus.live.worker.client import Finished, Ready, SetUp, TrainingWorker, receive, send
from plexus.protocol.api import Aggregate, Collect
from plexus.runs.encoding import HALVES, QUANTISED, SCALES, WHOLE, quantised
from tests.live.disks import small_disk
from tests.live.ends import End
from tests.live.party import Party

SIZE = 100_003
"""More numbers than are handled at a time, and not a multiple of that."""


def models(kind: str, count: int = 4) -> list[bytes]:
    return [model(kind, seed) for seed in range(count)]


def model(kind: str, seed: int) -> bytes:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(SIZE).astype(np.float32)
    tensors = {"weight": torch.from_numpy(values), "steps": torch.from_numpy(rng.integers(0, 99, 3))}
    whole = torch.from_numpy(rng.integers(0, 99, 2).astype(np.float32))
    if kind == "float16":
        tensors = {HALVES: torch.from_numpy(values).half(), WHOLE: whole}
    elif kind == "int8":
        found, scales = quantised(values, rng)
        tensors = {QUANTISED: torch.from_numpy(found), SCALES: torch.from_numpy(scales), WHOLE: whole}
    return bytes(save(tensors))


def mean(room: Room, rule: Rule | None, sent: Sequence[bytes], folder: Path) -> bytes:
    """Of all models but the last, and of what that one changed on the way from the first."""
    layout = ModelLayout(sent[0], room)
    begin = partial(sum_of, layout) if rule is None else partial(Spool, layout, rule, folder)
    total, changes = begin(3), begin(3, is_change=True)
    for number, each in enumerate(sent[:-1]):
        buffer = layout.copy(memoryview(each))
        total.add(buffer, 1 + number if rule is None else 1, owned=number < 2)
    changes.add(layout.difference(memoryview(sent[-1]), memoryview(sent[0])), 2, owned=True)
    return bytes(total.mean(changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["float32", "float16", "int8"])
@pytest.mark.parametrize("rule", [None, MedianRule(), ClipRule()], ids=["mean", "median", "clip"])
def test_what_lies_in_files_has_the_same_bits(kind: str, rule: Rule | None, tmp_path: Path) -> None:
    sent = models(kind)
    assert mean(Room(tmp_path, 0), rule, sent, tmp_path) == mean(BOUNDLESS, rule, sent, tmp_path)
    assert not list(tmp_path.iterdir()), "files have no name, so nothing is left of them after a crash"


def test_models_lie_in_memory_as_far_as_it_goes_and_what_is_free_again_is_used_again(tmp_path: Path) -> None:
    room = Room(tmp_path, 2500)
    first, second = room.space(1000), room.space(1000)
    third = room.space(1000)
    lies = [type(each.obj) for each in (first, second, third)]
    assert lies == [np.ndarray, np.ndarray, mmap.mmap]
    first.release()
    del first
    assert isinstance(room.space(1000).obj, np.ndarray)


@pytest.mark.parametrize("memory_bytes", [0, 2**28], ids=["no memory", "memory that a model has"])
def test_what_was_touched_is_given_back_and_nothing_of_it_is_lost(tmp_path: Path, memory_bytes: int) -> None:
    room = Room(tmp_path, memory_bytes)
    held = room.space(memory_bytes)
    data = room.space(2**26)
    assert (type(held.obj), type(data.obj)) == (np.ndarray, mmap.mmap)
    written = np.frombuffer(data, np.uint8)
    before = touched_bytes()
    written[:] = 7
    for _ in range(200):  # the thread has its turn several times
        if touched_bytes() < before + 2**25:
            break
        time.sleep(0.05)
    assert touched_bytes() < before + 2**25, "half of it is not in memory any more"
    assert int(written.sum(dtype=np.int64)) == 7 * 2**26


def test_a_model_that_is_to_stay_is_not_copied_and_its_file_is_used_for_no_other(tmp_path: Path) -> None:
    room, names = Room(tmp_path, 0), [tmp_path / name for name in ("first", "second", "third")]
    data = room.space(5000)
    data[:] = bytes(range(250)) * 20
    kept = bytes(data)
    (tmp_path / ".first.new").write_bytes(b"left by a crash")
    keep(names[0], data)
    assert (names[0].read_bytes(), os.listdir(tmp_path)) == (kept, ["first"])
    data[0] = 9
    assert names[0].read_bytes()[0] == 9, "it is the same file"
    data[0] = 0
    keep(names[1], data)
    names[0].unlink()
    keep(names[2], data)  # what has lost its name cannot get another one
    del data
    room.space(5000)[:] = bytes(5000)
    assert [each.read_bytes() for each in names[1:]] == [kept, kept]
    keep(names[1], memoryview(b"from memory"))
    assert names[1].read_bytes() == b"from memory"


def test_a_full_disk_is_said_in_one_line_and_has_room_again_when_a_model_is_gone(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", kilobytes=300) as disk:
        room = Room(disk, 0)
        held = room.space(200_000)
        with pytest.raises(PlexusError) as caught:
            room.space(200_000)
        assert str(caught.value) == f"{disk}: no room for another model: No space left on device"
        held[:4] = b"here"
        assert bytes(held[:4]) == b"here"
        del held
        time.sleep(0.2)  # until the thread has let go of it
        room.space(200_000)


def test_a_model_that_there_is_no_room_for_is_declined_and_the_link_stays(tmp_path: Path) -> None:
    async def story(disk: Path) -> None:
        a, b = (End(admission, 200_000) for admission in Party(tmp_path).admissions("ab"))
        b.buffers = Buffers(200_000, 0, Room(disk, 0))
        b.holding = []
        for end in (a, b):
            await end.open()
        a.knows(b)
        for tag in ("first", "second"):
            a.send_model(b, bytes(200_000), tag)
        await a.until(lambda: len(a.fates) == 2)
        assert sorted(a.fates) == [("first", "sent"), ("second", NO_ROOM)]
        (line,) = b.warnings()
        told = f"{disk}: no room for another model: No space left on device"
        assert (line["event"], line["reason"]) == ("no_room", told)
        assert b.buffers.free == b.buffers.count - 1
        a.send(b, b"still there")
        await b.until(lambda: b.messages)
        for end in (a, b):
            await end.hub.close("the test is over")

    with small_disk(tmp_path / "disk", kilobytes=300) as disk:
        asyncio.run(story(disk))


def test_a_model_whose_file_cannot_be_written_is_declined_and_the_next_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, failing = os.pwrite, [True]

    def pwrite(file: int, data: memoryview, at: int) -> int:
        if at and failing:
            failing.clear()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return write(file, data[:1000], at)  # a system may write less than it is given

    async def story() -> None:
        a, b = (End(admission, 600_000) for admission in Party(tmp_path).admissions("ab"))
        b.buffers = Buffers(600_000, 0, Room(tmp_path, 0))
        for end in (a, b):
            await end.open()
        a.knows(b)
        data = os.urandom(600_000)
        for number, fate in enumerate((NO_ROOM, "sent")):
            a.send_model(b, data, number)
            await a.until(lambda: len(a.fates) > number)  # noqa: B023
            assert a.fates[number] == (number, fate)
        assert [found for _, _, found in b.models] == [data]
        (line,) = b.warnings()
        assert line["reason"] == "a model cannot be written: Input/output error"
        assert b.buffers.free == b.buffers.count
        for end in (a, b):
            await end.hub.close("the test is over")

    monkeypatch.setattr(os, "pwrite", pwrite)
    asyncio.run(story())


def test_a_part_of_a_model_is_where_it_belongs_whatever_it_lies_in(tmp_path: Path) -> None:
    parts = [os.urandom(5000) for _ in range(3)]
    for room in (Room(tmp_path, 0), BOUNDLESS):
        data = room.space(15_000)
        for at in (1, 2, 0):
            put(data, 5000 * at, memoryview(parts[at]))
        assert data == b"".join(parts)


def test_a_file_that_comes_back_while_the_last_ones_are_closed_is_closed_too(tmp_path: Path) -> None:
    """The thread that closes them may end at any moment, also just before one is added to them."""
    room = Room(tmp_path, 0)

    class Late(deque[IO[bytes]]):
        def append(self, file: IO[bytes]) -> None:
            room._is_trimming = False
            super().append(file)

    room._spare, data = Late(), room.space(5000)
    [file] = [file for mapped, file in room_module._files.items() if mapped is data.obj]
    assert room._is_trimming
    del data
    assert file.closed


def test_a_sum_that_there_is_no_room_for_is_said_when_the_round_is_over(tmp_path: Path) -> None:
    data, found = model("int8", 1), []

    async def story(disk: Path) -> None:
        room = Room(disk, 0)
        told = lambda round, model, flaw: found.append((model, flaw))  # noqa: E731
        layout = ModelLayout(data, room)
        aggregator = Aggregator(layout, Buffers(len(data), 0, room), MeanRule(), disk, told)
        held = LiveModel(memoryview(data), b"")
        aggregator.collect(Collect(5, held, 1))
        aggregator.aggregate(Aggregate(5, (held,), (1,)))
        await asyncio.sleep(0.01)
        aggregator.close()

    with small_disk(tmp_path / "disk", kilobytes=100) as disk:
        asyncio.run(story(disk))
        told = f"{disk}: no room for another model: No space left on device"
    assert found == [(None, told)]


def test_a_training_whose_model_there_is_no_room_for_is_given_up_and_the_next_one_is_not(
    tmp_path: Path,
) -> None:
    """A real socket to a worker that is not torch's; the disk is full while the first model comes."""
    data, log, trained = bytes(200_000), io.StringIO(), []

    def worker(listener: socket.socket) -> None:
        sock, _ = listener.accept()
        sock.settimeout(30)  # a story that fails is told, nobody waits for ever
        with sock:
            receive(sock)
            send(sock, Ready("accuracy", True, 1), data)
            for _ in range(2):
                job, _ = receive(sock)
                send(sock, Finished(job.job, seal(data), 0.0), data)  # type: ignore[union-attr]
            receive(sock)

    async def story(disk: Path, listener: socket.socket) -> None:
        path = tmp_path / "worker.sock"
        listener.bind(str(path))
        listener.listen()
        serving = asyncio.get_running_loop().run_in_executor(None, worker, listener)
        room = Room(disk, 0)
        ours = TrainingWorker(
            SetUp("", "0"),
            Log(log),
            lambda k, model, change: trained.append((k, bytes(model.data))),
            print,
            path,
            room,
        )
        initial = LiveModel(await ours.start(), b"")
        ours.train(1, initial)
        async with asyncio.timeout(20):
            while not ours.failed:
                await asyncio.sleep(0.01)
            small = LiveModel(memoryview(b""), b"")
            del initial
            await asyncio.sleep(0.2)
            ours.train(2, small)
            while not trained:
                await asyncio.sleep(0.01)
        await ours.close()
        with pytest.raises(EOFError):
            await serving

    with small_disk(tmp_path / "disk", kilobytes=300) as disk, socket.socket(socket.AF_UNIX) as listener:
        asyncio.run(story(disk, listener))
    assert trained == [(2, data)]
    assert '"training_failed","round":1' in log.getvalue()
    assert "no room for another model: No space left on device" in log.getvalue()
