"""The tables that a live peer keeps: what it can know, over restarts, bounded, and never in its way."""

from __future__ import annotations

import os
import threading
import time
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from plexus.live.operator import peer_tables
from plexus.live.operator.log import Log
from plexus.live.operator.peer_tables import PeerTables
from plexus.live.transport.limits import ByteCounts, Transfer
from plexus.live.worker.client import Evaluated, Ready
from plexus.protocol.facts import AggregationCompleted, TrainingInterrupted, TrainingStarted
from plexus.protocol.messages import AggregateRequest, TrainRequest
from plexus.runs.run import load_run
from plexus.runs.tables import read
from plexus.spec.experiment import parse_spec
from tests.live.disks import fill, small_disk

TEXT = 'name = "digits"\nnodes = 3\nhours = 1\ntask = { name = "digits" }\n'
SPEC = parse_spec(TEXT, "session").to_toml()
ME, OTHER, THIRD = (
    bytes.fromhex(name) + bytes(10) for name in ("000000000012", "1e1234567890", "1234567890ab")
)
"""Names that look like numbers are names all the same."""
MEASURE = Ready("accuracy", True, 30)


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def time(self) -> float:
        return 1.7e9 + self.now_s

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for name in ("time", "monotonic"):
        monkeypatch.setattr(time, name, getattr(clock, name))
    return clock


def completed(number: int) -> AggregationCompleted:
    return AggregationCompleted(
        9 * number, number, None, models=2, participants=3, timed_out=False, waited_s=0.5
    )


def opened(home: Path, log: Log | None = None) -> PeerTables:
    return PeerTables(home, bytes(16), SPEC, ME, log or Log(StringIO()))


def live_a_little(tables: PeerTables, clock: Clock, traffic: ByteCounts) -> None:
    """Online, two trainings of which one is interrupted, two models sent, one round, one evaluation."""
    tables.online(True)
    clock.now_s += 1
    tables.fact(TrainingStarted(36, 4))
    clock.now_s += 2
    tables.training_ended(completed=True)
    tables.fact(TrainingStarted(45, 5))
    clock.now_s += 1
    tables.fact(TrainingInterrupted(5, 5))
    traffic.message(b"\0\0\0\2\x93\x01")  # a ping
    sent = Transfer(THIRD, AggregateRequest, 5, clock.now_s - 0.5, clock.now_s, cut=False)
    traffic.ended(sent, 200, 1000)
    traffic.ended(sent._replace(to=OTHER, message=TrainRequest, cut=True), 200, 100)
    tables.fact(completed(5))
    tables.evaluated(MEASURE, 5, Evaluated(1, 0.75, 0.5))
    tables.look(traffic).result()


def rows(home: Path, table: str) -> list[dict[str, Any]]:
    columns = read(home / "run" / f"{table}.csv")
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def test_a_peers_home_holds_a_run_that_reads_like_a_simulated_one(tmp_path: Path, clock: Clock) -> None:
    tables, traffic = opened(tmp_path), ByteCounts()
    live_a_little(tables, clock, traffic)
    tables.close(traffic)
    run = load_run(tmp_path / "run")
    assert run.is_live and run.spec["name"] == "digits" and run.result is None
    assert run.rounds.row(0) == {
        "simulated_s": 4.0, "round": 5, "aggregator": 0, "models": 2, "participants": 3,
        "timed_out": False, "waited_s": 0.5,
    }  # fmt: skip
    evaluation = run.metrics.row(0)
    assert (evaluation["round"], evaluation["accuracy"], evaluation["loss"]) == (5, 0.75, 0.5)
    # What all nodes together have sent a peer cannot know.
    assert np.isnan(evaluation["sent_bytes"]) and np.isnan(evaluation["training_s"])
    assert [tuple(row.values()) for row in rows(tmp_path, "trainings")] == [
        (3.0, 1.0, 0, 4, True),
        (4.0, 3.0, 0, 5, False),
    ]
    assert [tuple(row.values()) for row in rows(tmp_path, "transfers")] == [
        (4.0, 3.5, 0, 1, 5, "aggregate", False),
        (4.0, 3.5, 0, 2, 5, "train", True),
    ]
    assert [row["name"] for row in rows(tmp_path, "nodes")] == [key.hex()[:12] for key in (ME, THIRD, OTHER)]
    assert [row["online"] for row in rows(tmp_path, "presence")] == [True, False]
    traffic_row = rows(tmp_path, "traffic")[-1]
    assert (traffic_row["ping_count"], traffic_row["ping_bytes"]) == (1, 6)
    assert (traffic_row["model_bytes"], traffic_row["view_bytes"], traffic_row["training_s"]) == (
        1100,
        400,
        3.0,
    )
    state = rows(tmp_path, "states")[-1]
    assert (state["round"], state["sent_bytes"], state["online"]) == (5, 1506, False)


def test_a_peer_that_is_started_again_goes_on_with_its_tables(tmp_path: Path, clock: Clock) -> None:
    tables, traffic = opened(tmp_path), ByteCounts()
    live_a_little(tables, clock, traffic)
    # Killed: no farewell, and the last line is torn.
    with (tmp_path / "run" / "trainings.csv").open("a") as file:
        file.write("4.1,4.0,0,6,tr")
    clock.now_s += 100
    again, fresh = opened(tmp_path), ByteCounts()
    live_a_little(again, clock, fresh)
    assert [row["simulated_s"] for row in rows(tmp_path, "trainings")] == [3.0, 4.0, 107.0, 108.0]
    assert [(row["simulated_s"], row["online"]) for row in rows(tmp_path, "presence")] == [
        (0.0, True),
        (4.0, False),  # when it was last seen
        (104.0, True),
    ]
    assert [row["name"] for row in rows(tmp_path, "nodes")] == [key.hex()[:12] for key in (ME, THIRD, OTHER)]
    assert rows(tmp_path, "transfers")[2]["destination"] == 1
    newest = rows(tmp_path, "traffic")[-1]
    assert (newest["ping_count"], newest["model_bytes"], newest["training_s"]) == (2, 2200, 6.0)
    assert rows(tmp_path, "states")[-1]["sent_bytes"] == 2 * 1506


def test_tables_stay_small_however_long_a_peer_runs(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_tables, "MOST_BYTES", 20_000)
    tables, traffic = opened(tmp_path), ByteCounts()
    for number in range(3000):
        clock.now_s += 600
        tables.fact(completed(number))
        tables.look(traffic).result()
    assert all(path.stat().st_size <= 20_000 for path in (tmp_path / "run").iterdir())
    kept = [row["round"] for row in rows(tmp_path, "rounds")]
    assert kept == list(range(3000 - len(kept), 3000)) and len(kept) > 200
    # The longer it runs, the seldomer it looks around; the newest look is never far.
    looks = [row["simulated_s"] for row in rows(tmp_path, "states")]
    assert looks[-1] > 0.99 * 1_800_000 and len(looks) < 1500


def test_a_disk_that_is_full_costs_rows_but_not_the_peer(tmp_path: Path, clock: Clock) -> None:
    stream = StringIO()
    with small_disk(tmp_path / "home", 64) as home:
        tables, traffic = opened(home, Log(stream)), ByteCounts()
        tables.fact(completed(1))
        tables.look(traffic).result()
        fill(home)
        for number in range(2, 3000):
            clock.now_s += 1
            tables.fact(completed(number))
        tables.look(traffic).result()
        (home / "filler").unlink()
        clock.now_s += 10
        tables.look(traffic).result()
        tables.fact(completed(3000))
        tables.look(traffic).result()
        kept = [row["round"] for row in rows(home, "rounds")]
    assert (kept[0], kept[-1]) == (1, 3000) and kept == sorted(kept)
    lines = [msgspec.json.decode(line) for line in stream.getvalue().splitlines()]
    assert {line["event"] for line in lines} == {"not_recorded"}
    assert "No space left on device" in lines[0]["reason"]


def test_a_damaged_table_is_put_aside_and_begun_anew(tmp_path: Path, clock: Clock) -> None:
    stream, traffic = StringIO(), ByteCounts()
    live_a_little(opened(tmp_path), clock, traffic)
    (tmp_path / "run" / "states.csv").write_text("simulated_s,node\n1\n")
    live_a_little(opened(tmp_path, Log(stream)), clock, traffic)
    assert "states.csv: line 2 has 1 cells" in stream.getvalue()
    assert (tmp_path / "run" / "states.csv.damaged").exists()
    assert len(rows(tmp_path, "states")) == 1


def test_a_slow_disk_holds_up_rows_and_nobody_else(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, traffic, may_go_on = opened(tmp_path), ByteCounts(), threading.Event()
    tables.look(traffic).result()
    really = os.pwrite

    def slowly(*args: Any) -> int:
        assert may_go_on.wait(30)
        return really(*args)

    monkeypatch.setattr(os, "pwrite", slowly)
    for number in range(5):
        tables.fact(completed(number))
        written = tables.look(traffic)  # would never come back if it waited for the disk
        assert not written.done()
    may_go_on.set()
    written.result()
    tables.close(traffic)
    assert [row["round"] for row in rows(tmp_path, "rounds")] == list(range(5))
