"""The tables of peers, joined: one clock, one numbering, and what only all of them know."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import pytest

from plexus.live.fleet import fleet_tables
from plexus.live.fleet.fleet_tables import HOLD_S, FleetTables
from plexus.runs.directory import go_on
from plexus.runs.recorder import Recorder
from plexus.runs.tables import TABLES, read

BEGAN_S = 1000.0
NAMES = ("aaaaaaaaaaaa", "bbbbbbbbbbbb", "cccccccccccc")


TRANSFER = {"began_s": 20.0, "source": 0, "round": 3, "kind": "train", "cut": False}


class Peer:
    """A peer's home as far as its tables go; its clock began `later_s` after the fleet's."""

    def __init__(self, home: Path, later_s: float, known: tuple[str, ...]) -> None:
        home.mkdir()
        about = {"kind": "live", "started_s": BEGAN_S + later_s}
        self._recorder = go_on(home / "run", "", "abc", 10**6, about)
        self._later_s = later_s
        for number, name in enumerate(known):
            self.meet(number, name)

    def meet(self, number: int, name: str) -> None:
        empty = dict.fromkeys(TABLES["nodes"].columns)
        self._recorder.record("nodes", **{**empty, "node": number, "name": name})
        self._recorder.flush()

    def write(self, table: str, at_s: float, **values: Any) -> None:
        """A row at a moment of the fleet's clock."""
        times = {name: round(values[name] - self._later_s, 3) for name in ("began_s",) if name in values}
        self._recorder.record(table, simulated_s=round(at_s - self._later_s, 3), **{**values, **times})
        self._recorder.flush()

    def look(self, at_s: float, sent_bytes: int) -> None:
        row = {"node": 0, "online": True, "view": 3, "round": 1, "received_bytes": 0, "training_s": 0.5}
        self.write("states", at_s, sent_bytes=sent_bytes, **row)
        self.write("traffic", at_s, training_s=0.5, ping_count=sent_bytes // 10, ping_bytes=sent_bytes)


@pytest.fixture
def peers(tmp_path: Path) -> list[Peer]:
    """Two of them, who have met others in an order of their own; the second knows a stranger."""
    first = Peer(tmp_path / "node-00", 5.0, (NAMES[0], NAMES[1]))
    return [first, Peer(tmp_path / "node-01", 7.0, (NAMES[1], NAMES[2], NAMES[0]))]


@pytest.fixture
def fleet(tmp_path: Path, peers: list[Peer], monkeypatch: pytest.MonkeyPatch) -> FleetTables:
    monkeypatch.setattr(time, "time", lambda: BEGAN_S + 200.0)
    homes = {NAMES[number]: tmp_path / f"node-{number:02}" for number in range(2)}
    return FleetTables(Recorder(tmp_path), homes, BEGAN_S)


def rows(path: Path, table: str) -> list[tuple[Any, ...]]:
    columns = read(path / f"{table}.csv")
    return list(zip(*(column.tolist() for column in columns.values()), strict=True))


def both(fleet: FleetTables, running: tuple[bool, bool] = (True, True), is_last: bool = False) -> None:
    fleet.look(running, is_last)


def test_rows_come_onto_one_clock_with_the_fleets_numbers(
    tmp_path: Path, peers: list[Peer], fleet: FleetTables
) -> None:
    first, second = peers
    second.write(
        "transfers", 21.0, began_s=20.0, source=0, destination=2, round=3, kind="aggregate", cut=False
    )
    second.write(
        "transfers", 22.0, began_s=21.0, source=0, destination=1, round=3, kind="aggregate", cut=False
    )
    first.write("transfers", 20.5, began_s=20.0, source=0, destination=1, round=2, kind="train", cut=True)
    both(fleet)
    # In the order of their times; a stranger, who is none of the fleet, is left out.
    assert rows(tmp_path, "transfers") == [
        (20.5, 20.0, 0, 1, 2, "train", True),
        (21.0, 20.0, 1, 0, 3, "aggregate", False),
    ]
    assert [row[-1] for row in rows(tmp_path, "nodes")] == list(NAMES[:2])


def test_a_peer_may_meet_another_while_its_tables_are_read(
    tmp_path: Path, peers: list[Peer], fleet: FleetTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_slowly(path: Path) -> Any:
        found = read(path)
        if path.parent.parent.name == "node-00":
            peers[0].meet(2, NAMES[2])
            peers[0].write("transfers", 21.0, destination=2, **TRANSFER)
            peers[0].write("transfers", 21.0, destination=1, **TRANSFER)
        return found

    monkeypatch.setattr(fleet_tables, "read", read_slowly)
    both(fleet)
    assert rows(tmp_path, "transfers") == []
    monkeypatch.undo()
    both(fleet)
    assert read(tmp_path / "transfers.csv")["destination"].tolist() == [1]


def test_rows_wait_for_earlier_ones_of_other_peers(
    tmp_path: Path, peers: list[Peer], fleet: FleetTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    round = {"aggregator": 0, "models": 2, "participants": 2, "timed_out": False, "waited_s": 0.1}
    monkeypatch.setattr(time, "time", lambda: BEGAN_S + 30.0)
    peers[0].write("rounds", 29.0, round=3, **round)
    both(fleet)
    assert rows(tmp_path, "rounds") == []
    peers[1].write("rounds", 28.0, round=2, **round)  # a little late
    monkeypatch.setattr(time, "time", lambda: BEGAN_S + 29.0 + HOLD_S)
    both(fleet)
    assert [row[:3] for row in rows(tmp_path, "rounds")] == [(28.0, 2, 1), (29.0, 3, 0)]
    peers[1].write("rounds", 27.0, round=1, **round)  # much too late: put in order at the end
    both(fleet, is_last=True)
    fleet.put_in_order(tmp_path)
    assert [row[1] for row in rows(tmp_path, "rounds")] == [1, 2, 3]


def test_what_all_have_sent_is_known_whenever_a_model_is_measured(
    tmp_path: Path, peers: list[Peer], fleet: FleetTables
) -> None:
    for peer in peers:
        peer.look(10.0, 1000)
        peer.look(20.0, 2000)
    unknown = {"sent_bytes": None, "training_s": None}
    peers[0].write("evaluations", 15.0, round=10, mse=0.5, loss=0.4, **unknown)
    peers[1].write("evaluations", 16.0, round=10, mse=0.6, loss=0.4, **unknown)  # again
    peers[1].write("evaluations", 17.0, round=4, mse=0.9, loss=0.4, **unknown)  # of an old model
    both(fleet, is_last=True)
    assert rows(tmp_path, "evaluations") == [(15.0, 10, 0.5, 0.4, 3000, 1.0)]
    assert fleet.metrics == [(10, 0.5)]
    assert fleet.all_of("traffic", math.inf) == {"training_s": 1.0, "ping_count": 400, "ping_bytes": 4000}
    traffic = {row[0]: row[-1] for row in rows(tmp_path, "traffic")}
    assert (traffic[14.0], traffic[200.0]) == (2800, 4000)
    assert fleet.state_of(1)["sent_bytes"] == 2000


def test_a_peer_that_was_killed_is_offline(tmp_path: Path, peers: list[Peer], fleet: FleetTables) -> None:
    for number, peer in enumerate(peers):
        peer.write("presence", 10.0 + number, node=0, online=True)
        peer.look(12.0, 10)
        peer.look(16.0, 10)
    both(fleet)
    both(fleet, (True, False))
    both(fleet, (False, False), is_last=True)
    assert rows(tmp_path, "presence") == [
        (10.0, 0, True),
        (11.0, 1, True),
        (200.0, 1, False),
        (200.0, 0, False),
    ]
    assert (8.0, 0) in rows(tmp_path, "online") and (14.0, 2) in rows(tmp_path, "online")
    assert (14.0, 2, 3.0, 3, 3) in rows(tmp_path, "views")
    peers[1].write("presence", 15.0, node=0, online=False)  # what it says itself when it is back
    both(fleet, is_last=True)
    assert len(rows(tmp_path, "presence")) == 4


def test_the_phases_of_a_round_are_those_of_the_last_model(
    tmp_path: Path, peers: list[Peer], fleet: FleetTables
) -> None:
    first, second = peers
    round = {"models": 2, "participants": 2, "timed_out": False, "waited_s": 0.1}
    first.write("rounds", 20.0, round=4, aggregator=0, **round)
    first.write("transfers", 20.55, began_s=20.2, source=0, destination=1, round=4, kind="train", cut=False)
    second.write("trainings", 21.5, began_s=20.5, node=0, round=4, completed=True)
    # The sender hears of the arrival after the aggregator is done.
    second.write(
        "transfers", 22.1, began_s=21.6, source=0, destination=2, round=5, kind="aggregate", cut=False
    )
    first.write("trainings", 21.0, began_s=20.1, node=0, round=4, completed=True)
    first.write("rounds", 22.0, round=5, aggregator=0, **round)
    both(fleet, is_last=True)
    (phases,) = rows(tmp_path, "phases")
    assert phases[:5] == (22.0, 5, 0, 1, 20.0)
    assert phases[5:] == pytest.approx((0.2 + 0.1, 0.3 + 0.4, 1.0, 0.0))
    assert math.fsum(phases[5:]) == pytest.approx(2.0)


def test_a_table_that_lost_its_older_half_is_not_taken_twice(
    tmp_path: Path, peers: list[Peer], fleet: FleetTables
) -> None:
    path = tmp_path / "node-00" / "run" / "presence.csv"
    for at_s in range(10, 20):
        peers[0].write("presence", float(at_s), node=0, online=at_s % 2 == 0)
    both(fleet)
    header, *body = path.read_text().splitlines(keepends=True)
    path.unlink()
    path.write_text("".join([header, *body[5:], "15.0,0,true\n"]))
    both(fleet, is_last=True)
    assert [row[0] for row in rows(tmp_path, "presence")] == [*map(float, range(10, 21))]
