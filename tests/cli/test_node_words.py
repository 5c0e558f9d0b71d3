"""What `plexus node status` says of a peer."""

from __future__ import annotations

from plexus.cli.node import describe


def test_a_peer_that_starts_says_what_it_waits_for() -> None:
    wait = {"what": "its training worker", "since_s": 1.5}
    picture = {"session": "s", "node": "0a1b", "phase": "starting", "phase_since_s": 2}
    assert describe({**picture, "waiting_for": [wait]}).splitlines()[1:] == [
        "waits for its training worker since 1.5 s"
    ]


def test_a_status_leaves_out_what_is_old() -> None:
    picture = {
        "session": "s", "node": "0a1b", "phase": "online", "phase_since_s": 2, "address": "[::1]:7000",
        "round": 127, "peers": {"known": 3, "linked": 2, "relayed": 0}, "bandwidth_bytes_per_s": 1000,
        "sample": {"round": 122, "nodes": ["0a1b"]}, "aggregator": {"round": 126, "node": "77"},
        "training": None, "waiting_for": [], "timers": [{"what": "progress", "since_s": 1}],
        "transfers": [], "metric": None, "certificate_days_left": 7,
    }  # fmt: skip
    assert describe(picture).splitlines()[2:-1] == ["aggregator of round 126: 77", "waits to be sampled"]
    picture["sample"]["round"] = 128
    assert "sample of round 128: 0a1b" in describe(picture)
    wait = {"what": "answers to pings", "since_s": 0.5, "at_most_s": 1.5}
    told = describe({**picture, "waiting_for": [wait]})
    assert "waits for answers to pings since 0.5 s, at most 1.5 s more" in told
    assert "to be sampled" not in told
