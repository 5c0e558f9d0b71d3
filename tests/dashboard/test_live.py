"""Live peers on the page: from their tables like any run, and what only they themselves can say."""

from __future__ import annotations

import asyncio
import io
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from plexus.dashboard.library import Library
from plexus.dashboard.statuses import Statuses, at_address, at_home
from plexus.errors import PlexusError
from plexus.live.operator.control import serve_control, serve_metrics
from plexus.live.operator.log import Log
from plexus.live.operator.peer_tables import PeerTables
from plexus.live.operator.status import PeerStatus, Status
from plexus.live.transport.limits import ByteCounts
from plexus.protocol.facts import AggregationCompleted
from plexus.runs.directory import RunDirectory, live
from plexus.runs.tables import TABLES
from plexus.spec.experiment import parse_spec

NAMES = ("aaaaaaaaaaaa", "bbbbbbbbbbbb")
SPEC = parse_spec('name = "digits"\nnodes = 2\nhours = 1\ntask = { name = "digits" }\n', "spec")


def status(node: str = NAMES[0], peer: str = NAMES[1]) -> PeerStatus:
    """Of a peer in the middle of a round."""
    said = {
        "session": "digits",
        "node": node,
        "phase": "online",
        "phase_since_s": 4.0,
        "address": "127.0.0.1:7000",
        "certificate_days_left": 6.5,
        "round": 12,
        "sample": None,
        "aggregator": None,
        "training": {"round": 12, "since_s": 1.5},
        "timers": [],
        "waiting_for": [{"what": "answers to pings", "since_s": 0.1, "at_most_s": 1.9}],
        "peers": {"known": 2, "linked": 2},
        "transfers": [
            {"peer": peer, "way": "out", "kind": "TrainRequest", "round": 12, "bytes": 30, "of_bytes": 120},
            {"peer": peer, "way": "in", "kind": "TrainRequest", "round": 12, "bytes": 30, "of_bytes": 120},
        ],
        "bandwidth_bytes_per_s": 1000,
        "metric": {"name": "accuracy", "round": 10, "value": 0.8, "loss": 0.4},
        "counts": {"errors": 0, "link_sent_bytes": 70, "link_received_bytes": 60},
    }  # fmt: skip
    return msgspec.convert(said, PeerStatus)


@contextmanager
def answering(serve: Any) -> Iterator[asyncio.Server]:
    """A server of live nodes in a loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(serve(), loop).result(10)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def write_fleet(path: Path) -> None:
    """A fleet of two that has just completed a round, as `plexus fleet run` writes it."""
    with RunDirectory(path, SPEC.to_toml(), SPEC.digest(), about=live(["node-00", "node-01"])) as run:
        unknown = dict.fromkeys(TABLES["nodes"].columns)
        for number, name in enumerate(NAMES):
            (path / f"node-{number:02}").mkdir()
            run.recorder.record("nodes", **{**unknown, "node": number, "name": name})
            run.recorder.record("presence", simulated_s=1.0 + number, node=number, online=True)
        run.recorder.record("online", simulated_s=2.0, online=2)
        row = {"aggregator": 1, "models": 2, "participants": 2, "timed_out": False, "waited_s": 0.1}
        run.recorder.record("rounds", simulated_s=8.0, round=3, **row)
        done = {"node": 0, "round": 2, "completed": True}
        run.recorder.record("trainings", simulated_s=7.0, began_s=6.0, **done)


def test_a_fleet_is_a_run_whose_peers_can_be_asked(tmp_path: Path) -> None:
    write_fleet(tmp_path / "fleet")
    (source,) = Library(tmp_path).sources().values()
    with answering(lambda: serve_control(tmp_path / "fleet" / "node-00", status, lambda: None)):
        overview = source.overview()
        assert (overview["kind"], overview["name"], overview["status"]) == ("live", "digits", "running")
        assert (overview["rounds"], overview["reached_s"], overview["until_s"]) == (12, 8.0, None)
        assert overview["nodes_known"] == {"names": list(NAMES)}
        assert [status and status["phase"] for status in overview["statuses"]] == ["online", None]
        stamp = source.stamp()
        window = source.window(5, 9)
        node = source.node(0)
    # What is on its way now, as its sender sees it, beside what the tables tell.
    assert window["transfers"]["progress"] == [0.25]
    assert (window["transfers"]["source"], window["transfers"]["destination"]) == ([0], [1])
    assert window["trainings"]["node"] == [0, 0] and window["trainings"]["round"] == [2, 12]
    assert window["online"] == [0, 1]
    assert node is not None and node["status"]["phase"] == "online"
    assert (node["name"], node["trainings"]["round"]) == (NAMES[0], [2])
    assert source.node(2) is None
    source._asked.looked_s = 0.0  # type: ignore[union-attr]
    assert source.statuses() == [None, None] and source.stamp() != stamp
    assert source.window(0, 9)["trainings"]["node"] == [0]


def test_a_peers_home_is_shown_by_its_own_tables(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    tables = PeerTables(tmp_path / "home", bytes(16), SPEC.to_toml(), bytes(16), Log(io.StringIO()))
    tables.online(True)
    tables.fact(AggregationCompleted(41, 7, None, models=2, participants=2, timed_out=False, waited_s=0.1))
    tables.look(ByteCounts()).result()
    (source,) = Library(tmp_path / "home").sources().values()
    overview = source.overview()
    assert (source.id, overview["kind"], overview["rounds"], overview["status"]) == (
        "run",
        "live",
        7,
        "running",
    )
    node = source.node(0)
    assert node is not None and node["aggregated"]["round"] == [7]


def test_a_node_is_asked_at_its_metrics_address() -> None:
    with answering(lambda: serve_metrics(("127.0.0.1", 0), status)) as server:
        port = server.sockets[0].getsockname()[1]
        assert Statuses([at_address(f"127.0.0.1:{port}")]).newest() == [msgspec.to_builtins(status())]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert b"plexus_round 12" in answer.read()
        library = Library(None, (f"127.0.0.1:{port}", "[::1]:1"))
        (nodes,) = library.sources().values()
        overview = nodes.overview()
        assert (overview["status"], overview["rounds"], overview["nodes"]) == ("running", 12, 2)
        assert overview["evaluations"]["accuracy"] == [0.8]
        assert overview["sent_bytes"] == 70
        assert overview["statuses"][0]["waiting_for"][0]["what"] == "answers to pings"
        assert overview["nodes_known"]["names"] == [NAMES[0], "[::1]:1"]
        window = nodes.window(0, 60)
        assert (window["online"], window["trainings"]["node"]) == ([], [0])
        assert window["presence"]["online"] == [1]
    assert Statuses([at_address(f"127.0.0.1:{port}")]).newest() == [None]


def test_nodes_that_measure_different_things_can_be_looked_at_together() -> None:
    (nodes,) = Library(None, ("[::1]:1", "[::1]:2")).sources().values()
    other = {"name": "mse", "round": 20, "value": 0.3, "loss": 0.3}
    both: Any = [msgspec.to_builtins(status()), {**msgspec.to_builtins(status()), "metric": other}]
    nodes._asked = SimpleNamespace(newest=lambda: both, looked_s=0.0)  # type: ignore[assignment]
    evaluations = msgspec.json.decode(msgspec.json.encode(nodes.overview()["evaluations"]))
    assert (evaluations["accuracy"], evaluations["mse"]) == ([0.8, None], [None, 0.3])


@pytest.mark.parametrize("text", ["nowhere", "host:port", "host:", ":9100", "host:99999"])
def test_a_bad_address_is_one_clear_line(text: str) -> None:
    with pytest.raises(PlexusError, match="not an address"):
        Library(None, (text,))


def test_a_node_that_has_just_been_started_says_little(tmp_path: Path) -> None:
    write_fleet(tmp_path / "fleet")
    admission: Any = SimpleNamespace(key=bytes(16), expires_s=0.0)
    first = Status("digits", admission, patience_s=1.0)
    home = tmp_path / "fleet" / "node-00"
    with answering(lambda: serve_control(home, first.now, lambda: None)):
        assert b"starting" in at_home(home)
        (source,) = Library(tmp_path).sources().values()
        overview, window = source.overview(), source.window(0, 60)
    assert (overview["status"], overview["rounds"]) == ("running", 3)
    assert overview["statuses"][0]["phase"] == "starting"
    assert "source" not in window["transfers"]
