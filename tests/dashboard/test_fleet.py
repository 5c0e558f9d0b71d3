"""Live nodes on the page: from what they answer, and from their logs."""

from __future__ import annotations

import asyncio
import io
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from plexus.dashboard.fleet import AddressMember, HomeMember, LiveFleet, ask_all, members_of
from plexus.dashboard.library import Library
from plexus.errors import PlexusError
from plexus.live.fleet.logs import History, LogTail
from plexus.live.operator.control import serve_control, serve_metrics
from plexus.live.operator.log import Log


def picture(node: str = "aaaaaaaaaaaa", peer: str = "bbbbbbbbbbbb") -> dict[str, Any]:
    """As `live.status.Status.picture` gives it."""
    return {
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


def test_a_node_is_asked_at_its_metrics_address() -> None:
    with answering(lambda: serve_metrics(("127.0.0.1", 0), picture)) as server:
        port = server.sockets[0].getsockname()[1]
        assert AddressMember(f"127.0.0.1:{port}").ask() == picture()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert b"plexus_round 12" in answer.read()
        library = Library(None, (f"127.0.0.1:{port}",))
        (fleet,) = library.sources().values()
        overview = fleet.overview()
        assert overview["status"] == "running" and overview["rounds"] == 12
        assert overview["evaluations"]["accuracy"] == [0.8]
        assert overview["sent_bytes"] == 70
        assert overview["statuses"][0]["waiting_for"][0]["what"] == "answers to pings"
    assert AddressMember(f"127.0.0.1:{port}").ask() is None


def test_a_bad_address_is_one_clear_line() -> None:
    with pytest.raises(PlexusError, match="not an address"):
        Library(None, ("nowhere",))


def test_the_nodes_of_a_fleet_are_found_by_their_homes(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet"
    for name in ("session", "node-00", "node-01"):
        (fleet / name).mkdir(parents=True)
    (fleet / "session" / "session.toml").write_text('name = "digits"\nnodes = 2\n')
    with answering(lambda: serve_control(fleet / "node-01", picture, lambda: None)):
        assert ask_all(members_of(fleet)) == [None, picture()]
        (source,) = Library(tmp_path).sources().values()
        assert isinstance(source, LiveFleet)
        summary = source.summary()
        assert (summary["name"], summary["nodes"]) == ("digits", 2)
        found = source.node(1)
        assert found is not None and found["status"]["phase"] == "online"
        assert source.node(2) is None
    assert HomeMember(fleet / "node-01").ask() is None


def test_models_on_their_way_are_those_that_their_senders_see() -> None:
    class Fixed:
        log = None

        def __init__(self, node: str, peer: str) -> None:
            self.label, self._picture = node, picture(node, peer)

        def ask(self) -> dict[str, Any] | None:
            return self._picture

    members = [Fixed("aaaaaaaaaaaa", "bbbbbbbbbbbb"), Fixed("bbbbbbbbbbbb", "aaaaaaaaaaaa")]
    fleet = LiveFleet("nodes", "nodes", members)
    now_s = fleet.summary()["reached_s"]
    found = fleet.window(0, now_s + 1)
    transfers = found["transfers"]
    assert sorted(zip(transfers["source"], transfers["destination"], strict=True)) == [(0, 1), (1, 0)]
    assert transfers["progress"] == [0.25, 0.25] and transfers["kind"] == ["train", "train"]
    assert sorted(found["trainings"]["node"]) == [0, 1]
    assert found["online"] == [0, 1]


def test_a_node_that_has_just_been_started_says_little(tmp_path: Path) -> None:
    first = {"session": "digits", "node": "aaaaaaaaaaaa", "phase": "starting", "phase_since_s": 1.0}
    (tmp_path / "session").mkdir()
    (tmp_path / "session" / "session.toml").write_text('name = "digits"\n')
    (tmp_path / "node-00").mkdir()
    with answering(lambda: serve_control(tmp_path / "node-00", lambda: first, lambda: None)):
        (source,) = Library(tmp_path).sources().values()
        overview, window = source.overview(), source.window(0, 60)
    assert (overview["status"], overview["rounds"]) == ("running", 0)
    assert overview["statuses"][0]["phase"] == "starting"
    assert window["transfers"]["source"] == []


def test_logs_tell_the_past(tmp_path: Path) -> None:
    history = History()
    history.number_of = {"aaaaaaaaaaaa": 0, "bbbbbbbbbbbb": 1}
    lower = {"higher_is_better": False}
    begun = {"models": 2, "participants": 2, "timed_out": False, "waited_s": 0.1}
    for at_s, node, event, fields in [
        (100.0, 0, "listening", {}),
        (100.5, 1, "listening", {}),
        (102.0, 0, "AggregationCompleted", {"round": 4, **begun}),
        (102.2, 0, "SampleDerived", {"round": 4, "purpose": "participants"}),
        (102.5, 1, "TrainingStarted", {"round": 4}),
        (103.5, 1, "SampleDerived", {"round": 5, "purpose": "aggregator"}),
        (103.6, 1, "AggregatorChosen", {"round": 5, "aggregator": "aaaaaaaaaaaa"}),
        (104.0, 0, "AggregationCompleted", {"round": 5, **begun}),
        (104.2, 0, "Evaluated", {"metric": "mse", "round": 5, "value": 2.0, "loss": 2.0, **lower}),
        (105.0, 1, "stopped", {"link_sent_bytes": 900}),
    ]:  # fmt: skip
        history.take(node, {"time": at_s, "event": event, **fields})
    assert history.table("rounds")["round"].tolist() == [4, 5]
    assert history.sent_bytes == 900
    assert history.table("trainings")["simulated_s"].tolist() == [3.5]
    assert history.table("presence")["online"].tolist() == [True, True, False]
    (phases,) = zip(*history.table("phases").values(), strict=True)
    assert phases[:5] == (4.0, 5, 0, 1, 2.0)
    assert phases[5:] == pytest.approx((0.2, 0.3, 1.1, 0.4))
    assert (history.metric, history.higher_is_better) == ("mse", False)


def test_a_log_is_read_as_it_grows_and_strange_lines_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    tail = LogTail(path)
    assert tail.fresh() == []
    stream = io.StringIO()
    Log(stream).info("listening", node="x")
    path.write_text(stream.getvalue() + "Killed\n[1]\n" + stream.getvalue()[:20])
    assert [line["event"] for line in tail.fresh()] == ["listening"]
    with path.open("a") as file:
        file.write(stream.getvalue()[20:])
    assert [line["event"] for line in tail.fresh()] == ["listening"]
