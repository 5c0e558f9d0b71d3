"""A run that is killed and resumed ends like one that was left alone."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plexus.errors import PlexusError
from plexus.experiment.checkpoint import Checkpoints, read_checkpoint
from plexus.experiment.progress import Tick, stoppable
from plexus.experiment.simulation import Machinery, simulate
from plexus.runs.result import Metrics, Result
from plexus.runs.run import load_run
from plexus.runs.tables import TABLES
from plexus.sim.kernel import Kernel
from plexus.spec.experiment import parse_spec

SPEC = """
name = "resumed"
nodes = 30
hours = 0.5
[protocol]
name = "plexus"
sample_size = 5
[task]
name = "digits"
[evaluation]
every_rounds = 3
"""
TINY = parse_spec(SPEC, "tiny.toml", ("nodes=12", "hours=0.3"))
INLINE = Machinery(engine="inline")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from plexus.cli import main; main()", "run", *arguments]


def finished(*arguments: str) -> dict[str, Any]:
    done = subprocess.run(command(*arguments, "--json", "-q"), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def start_and_kill(at_simulated_s: float, out: Path, *arguments: str) -> None:
    """kill -9, as soon as there is a checkpoint of that moment or a later one."""
    process = subprocess.Popen(command(*arguments, "-q"))
    deadline_s = time.monotonic() + 120
    checkpoint = out / "checkpoint.json"
    while not checkpoint.exists() or (json.loads(checkpoint.read_bytes())["simulated_s"] < at_simulated_s):
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline_s
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def without_time(value: Any) -> Any:
    """A part of a result, less what depends on the machine."""
    return {k: v for k, v in value.items() if k != "wall_s"} if isinstance(value, dict) else value


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("spec") / "resumed.toml"
    path.write_text(SPEC)
    return path


@pytest.mark.slow
def test_killed_at_five_random_moments_a_run_ends_with_the_same_digest_and_weights(
    spec: Path, tmp_path: Path
) -> None:
    whole = finished(str(spec), "--out", str(tmp_path / "whole"))
    moments_s = sorted(random.Random(5).uniform(60, 1080) for _ in range(5))
    out = tmp_path / "killed"
    begin, go_on = (str(spec), "--out", str(out)), ("--resume", str(out))
    start_and_kill(moments_s[0], out, *begin, "--checkpoint-every", "0")
    for moment_s in moments_s[1:]:
        start_and_kill(moment_s, out, *go_on, "--checkpoint-every", "0")
    resumed = finished("--resume", str(out))
    keys = (
        "digest",
        "weights_hash",
        "rounds",
        "metric",
        "messages",
        "training_s",
        "trainings",
        "used",
        "lineage",
    )
    for key in keys:
        assert without_time(resumed[key]) == without_time(whole[key]), key
    killed, expected = (load_run(tmp_path / name) for name in ("killed", "whole"))
    for table in TABLES:
        found, columns = killed.detail(table), expected.detail(table)
        assert list(found) == list(columns), table
        for name, column in columns.items():
            np.testing.assert_array_equal(found[name], column, f"{table} {name}")


@pytest.mark.slow
def test_a_damaged_checkpoint_is_one_clear_line(spec: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    start_and_kill(0.0, out, str(spec), "--out", str(out), "--checkpoint-every", "0", "--set", "hours=20")
    checkpoint = out / "checkpoint.json"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-9])
    done = subprocess.run(command("--resume", str(out)), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith(f"plexus: {checkpoint} cannot be read")


def interrupted(out: Path, at_s: float, *, times: int = 1, resume: bool = False) -> Result | None:
    """Stop a run as the command line does, by signals within a step; None if it came to no result."""
    left = [signal.SIGINT] * times

    def listen(table: str, row: Mapping[str, Any]) -> None:
        while left and table == "rounds" and row["simulated_s"] >= at_s:
            signal.raise_signal(left.pop())

    with stoppable(lambda at: None) as progress:
        try:
            return simulate(TINY, Path(), out, progress, INLINE, resume=resume, listen=listen)
        except KeyboardInterrupt:
            return None


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Result:
    out = tmp_path_factory.mktemp("whole") / "run"
    return simulate(TINY, Path(), out, machinery=INLINE)


def goes_on(out: Path, whole: Result) -> None:
    """A run that is resumed ends as if it had been left alone, and leaves nothing to resume."""
    resumed = simulate(TINY, Path(), out, machinery=INLINE, resume=True)
    for key in ("digest", "weights_hash", "rounds", "metric", "messages", "used", "lineage"):
        assert getattr(resumed, key) == getattr(whole, key), key
    assert (out / "used.csv").read_bytes() == (Path(whole.out) / "used.csv").read_bytes()
    assert resumed.trainings.computed == whole.trainings.computed
    assert not resumed.interrupted
    assert list(out.glob("checkpoint*")) == []


def test_a_run_stopped_before_its_first_checkpoint_goes_on(tmp_path: Path, whole: Result) -> None:
    out = tmp_path / "run"
    cut = interrupted(out, 600.0)
    assert cut is not None and cut.interrupted
    assert cut.used is not None and cut.lineage is not None and whole.lineage is not None
    assert 0 < cut.lineage.trainings < whole.lineage.trainings
    assert sum(load_run(out).detail("used")["trainings_used"]) == cut.lineage.trainings
    assert 600 < cut.simulated_s < 900 and cut.simulated_s % 60 == 0
    checkpoint = read_checkpoint(out)
    assert checkpoint is not None and checkpoint.simulated_s == cut.simulated_s
    goes_on(out, whole)


def test_stopped_while_it_catches_up_with_its_checkpoint_a_run_keeps_it(
    tmp_path: Path, whole: Result
) -> None:
    out = tmp_path / "run"
    interrupted(out, 600.0)
    before = read_checkpoint(out)
    assert interrupted(out, 200.0, resume=True) is None
    assert read_checkpoint(out) == before
    goes_on(out, whole)


def tables(out: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in out.glob("*.csv")}


KILLED = """
import os, signal, sys
from pathlib import Path
from plexus.experiment.simulation import simulate
from tests.experiment.test_checkpoint import INLINE, TINY

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def listen(table, row):
    if row["simulated_s"] >= at_s:
        die()

def replace(path, target, plain=Path.replace):
    global moves
    if path.suffix == ".csv":
        moves -= 1
        if moves < 0:
            die()
    return plain(path, target)

out, at_s, moves = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
Path.replace = replace
simulate(TINY, Path(), out, machinery=INLINE, resume=True, listen=listen)
"""


def resume_and_kill(out: Path, at_s: float, moves: int = 1000) -> None:
    """kill -9 at a moment of simulated time, or when so many tables have been put in place."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(out), str(at_s), str(moves)],
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == -signal.SIGKILL


@pytest.fixture
def cut(tmp_path: Path) -> Path:
    """A run that was stopped after ten minutes."""
    interrupted(tmp_path / "run", 600.0)
    return tmp_path / "run"


@pytest.mark.parametrize("at_s", [60.0, 300.0, 590.0])
def test_stopped_during_its_replay_a_run_keeps_its_tables(cut: Path, whole: Result, at_s: float) -> None:
    before = tables(cut)
    result = (cut / "result.json").read_bytes()
    assert interrupted(cut, at_s, resume=True) is None
    assert tables(cut) == before
    resume_and_kill(cut, at_s)
    assert tables(cut) == before
    assert (cut / "result.json").read_bytes() == result
    goes_on(cut, whole)
    assert tables(cut) == tables(Path(whole.out))


@pytest.mark.parametrize("moves", [0, 1, 5])
def test_killed_while_its_tables_change_places_a_run_keeps_them(cut: Path, whole: Result, moves: int) -> None:
    before = tables(cut)
    resume_and_kill(cut, 10_000.0, moves)
    for name, content in tables(cut).items():
        assert content == before[name], "what is replayed is what was recorded"
    goes_on(cut, whole)
    assert tables(cut) == tables(Path(whole.out))


def test_a_run_that_is_of_another_version_keeps_its_tables(cut: Path) -> None:
    before = tables(cut)
    checkpoint = cut / "checkpoint.json"
    content = json.loads(checkpoint.read_bytes())
    checkpoint.write_text(json.dumps({**content, "digest": "0" * 16}))
    with pytest.raises(PlexusError, match="is of another run"):
        simulate(TINY, Path(), cut, machinery=INLINE, resume=True)
    assert tables(cut) == before


def damaged(models: Path) -> None:
    content = bytearray(models.read_bytes())
    content[-1] ^= 1
    models.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [(damaged, "safetensors is damaged"), (Path.unlink, "safetensors cannot be read")],
)
def test_models_that_are_not_what_was_written_are_named(
    cut: Path, damage: Callable[[Path], None], complaint: str
) -> None:
    (models,) = cut.glob("checkpoint-*/*.safetensors")
    damage(models)
    with pytest.raises(PlexusError, match=complaint):
        simulate(TINY, Path(), cut, machinery=INLINE, resume=True)


@pytest.mark.parametrize("content", [b"", b"{", b'{"simulated_s": "x"}'])
def test_a_checkpoint_that_is_none_is_named(cut: Path, content: bytes) -> None:
    (cut / "checkpoint.json").write_bytes(content)
    with pytest.raises(PlexusError, match=r"checkpoint\.json cannot be read"):
        simulate(TINY, Path(), cut, machinery=INLINE, resume=True)


def test_a_run_of_another_model_keeps_its_tables(cut: Path) -> None:
    before = tables(cut)
    checkpoint = cut / "checkpoint.json"
    content = json.loads(checkpoint.read_bytes())
    checkpoint.write_text(json.dumps({**content, "initial_hash": "0" * 32}))
    with pytest.raises(PlexusError, match="with other data, seed or model"):
        simulate(TINY, Path(), cut, machinery=INLINE, resume=True)
    assert tables(cut) == before


def test_progress_says_that_time_passes_again(cut: Path) -> None:
    checkpoint, seen = read_checkpoint(cut), []

    def note(at: Tick) -> None:
        seen.append((at.simulated_s, at.replay_s))

    simulate(TINY, Path(), cut, note, INLINE, resume=True)
    assert checkpoint is not None
    until_s = checkpoint.simulated_s
    assert {at_s < until_s for at_s, _ in seen} == {True, False}
    assert all(replay_s == (until_s if at_s < until_s else None) for at_s, replay_s in seen)


def test_asked_twice_a_run_stops_within_a_step_and_goes_on_from_its_beginning(
    tmp_path: Path, whole: Result
) -> None:
    out = tmp_path / "run"
    cut = interrupted(out, 600.0, times=2)
    assert cut is not None and cut.interrupted and cut.simulated_s % 60 != 0
    assert read_checkpoint(out) is None
    goes_on(out, whole)


@pytest.mark.slow
def test_the_processor_time_of_a_run_has_that_of_its_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "process_time", lambda: 0.0)  # in this process, not in the workers
    machinery = Machinery(engine="processes", workers=2)
    assert simulate(TINY, Path(), tmp_path / "run", machinery=machinery).cpu_s > 0


def test_a_finished_run_has_nothing_to_go_on_with(tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = simulate(TINY, Path(), out, machinery=INLINE)
    done = subprocess.run(
        command("--resume", str(out), "--json"), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, f"plexus: {out}: the run is finished\n")
    assert json.loads(done.stdout)["weights_hash"] == result.weights_hash


def test_what_is_no_run_directory_is_one_line_with_a_near_name(tmp_path: Path) -> None:
    (tmp_path / "quickstart").mkdir()
    (tmp_path / "quickstart" / "versions.json").write_text("{}")
    done = subprocess.run(
        command("--resume", str(tmp_path / "quikstart")),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == (
        f"plexus: {tmp_path}/quikstart: is not a run directory (did you mean '{tmp_path}/quickstart'?)\n"
    )


def test_a_checkpoint_keeps_figures_that_are_not_finite(tmp_path: Path) -> None:
    class Learned:
        initial_hash = "0"
        evaluated = (Metrics("accuracy", 0.1, True, math.inf, {"perplexity": math.inf, "ratio": math.nan}),)
        costs = type("Costs", (), {"computed": 0})

        def hear(self, wait: bool) -> None: ...
        def save(self, folder: Path) -> None: ...

    models: Any = Learned()
    Checkpoints(tmp_path, every_s=0).offer(Kernel(deliver=print), models, is_last=True)
    read = read_checkpoint(tmp_path)
    assert read is not None
    assert repr(read.evaluated) == repr(list(Learned.evaluated))


def test_checkpoints_take_a_tenth_of_a_run_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    written_at = []

    class Slow:
        """Models that take two seconds to save."""

        initial_hash = "0"
        evaluated: tuple[()] = ()
        costs = type("Costs", (), {"computed": 0})

        def hear(self, wait: bool) -> None: ...

        def save(self, folder: Path) -> None:
            nonlocal now_s
            written_at.append(now_s)
            now_s += 2

    monkeypatch.setattr("plexus.experiment.checkpoint.time.monotonic", lambda: now_s)
    kernel, checkpoints = Kernel(deliver=print), Checkpoints(tmp_path, every_s=0)
    while now_s < 50:
        checkpoints.offer(kernel, Slow(), is_last=False)  # type: ignore[arg-type]
        now_s += 1
    assert written_at == [0, 20, 40]
