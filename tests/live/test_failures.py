"""What live peers and fleets say when the user's own code fails: one line, with the place, and status 1."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest

from plexus.cli import main
from plexus.live.models import LiveModel
from plexus.live.operator.log import Log
from plexus.live.worker import client
from plexus.live.worker.client import SetUp, TrainingWorker
from tests.faulty import FAULTS, complaint, write_project

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def status_of(*words: str) -> object:
    with pytest.raises(SystemExit) as ended:
        main(words)
    return ended.value.code


@pytest.mark.parametrize("fault", [*FAULTS, "death"])
def test_a_fleet_tries_the_task_before_it_starts_a_peer(
    fault: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert status_of("fleet", "run", str(write_project(tmp_path, fault)), "--out", "fleet") == 1
    [line] = capfd.readouterr().err.splitlines()
    died = "plexus: the training worker died as it tried its task: no reason given"
    assert line == died if fault == "death" else line.endswith(complaint(fault))
    assert not Path("fleet").exists()


def test_a_fleet_whose_code_fails_later_says_so_in_the_end(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    spec = str(write_project(tmp_path, "later"))
    assert status_of("fleet", "run", spec, "--out", "fleet", "--seconds", "12") == 1
    said = capfd.readouterr().out.splitlines()[-1]
    assert said.startswith("node 0 and 2 more could not train or evaluate: task faulty: training node")
    assert said.endswith(complaint("later"))


def test_a_peer_tries_its_task_before_it_joins(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    spec = str(write_project(tmp_path, "loss"))
    assert status_of("session", "init", "authority", "--from", spec) == 0
    assert status_of("node", "key", "--home", "home") == 0
    key = capfd.readouterr().out.splitlines()[-1]
    assert status_of("session", "invite", "authority", key, "--out", "home/node.crt") == 0
    start = ("node", "start", "authority/session.toml", "--home", "home", "--data", "1")
    assert status_of(*start, "--listen", "127.0.0.1:0", "--task-dir", ".") == 1
    assert capfd.readouterr().err.splitlines()[-1].endswith(complaint("loss"))


def test_a_training_that_takes_workers_down_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "RESTART_S", 0.01)
    stream = io.StringIO()

    async def story() -> None:
        setup = SetUp(write_project(tmp_path, "death").read_text(), "0", str(tmp_path))
        ours = TrainingWorker(setup, Log(stream), lambda *_: None, lambda *_: None)
        try:
            initial = LiveModel(memoryview(await ours.start()), b"")
            ours.train(1, initial)
            while ours.round is not None:
                await asyncio.sleep(0.05)
            ours.evaluate(1, initial)
            while "evaluation_failed" not in stream.getvalue():
                await asyncio.sleep(0.05)
        finally:
            await ours.close()

    asyncio.run(story())
    assert stream.getvalue().count("worker_lost") == 4
    assert '"round":1,"reason":"the training worker died of it 3 times"' in stream.getvalue()
