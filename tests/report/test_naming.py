"""Runs of one name are told apart by their settings."""

from __future__ import annotations

from typing import Any

from plexus.report.naming import differences, fault, labels, value_words


def test_runs_of_one_name_say_in_what_they_differ() -> None:
    found = differences(
        {
            "loans-1": {"name": "loans", "seed": 1, "task": {"name": "loans.task:build"}},
            "loans-2": {"name": "loans", "seed": 2, "task": {"name": "l", "hidden": 64}},
            "other": {"name": "other", "task": {"hidden": 8}},
            "nobody knows": {},
        }
    )
    assert found == {
        "loans-1": ["hidden = default"],
        "loans-2": ["hidden = 64"],
        "other": [],
        "nobody knows": [],
    }


def test_many_differences_are_cut_short_and_sessions_have_none_of_their_own() -> None:
    keys = ("hours", "a", "b", "c", "d")
    specs = {str(n): {"name": "x", **dict.fromkeys(keys, n), "session": {"k": n}} for n in (1, 2)}
    assert differences(specs)["1"] == ["hours = 1", "a = 1", "b = 1", "c = 1", "…"]


def test_a_parameter_tells_a_run_from_others_of_its_protocol_and_folder_alone() -> None:
    def spec(protocol: str, size: int | None, every: int = 10) -> dict[str, Any]:
        return {
            "name": "x",
            "protocol": {"name": protocol, **({} if size is None else {"sample_size": size})},
            "evaluation": {"every_rounds": every},
        }

    found = differences(
        {
            "a/1": spec("plexus", 5),
            "a/2": spec("plexus", 10, every=5),
            "a/3": spec("gossip", None),
            "b/1": spec("plexus", 20),
            "c/1": spec("plexus", 5, every=1),
            "c/2": spec("plexus", 5, every=2),
        }
    )
    assert found == {
        "a/1": ["sample_size = 5"],
        "a/2": ["sample_size = 10"],
        "a/3": ["every_rounds = 10"],
        "b/1": [],
        "c/1": ["every_rounds = 1"],
        "c/2": ["every_rounds = 2"],
    }, "how often it is measured is said where nothing else is"


def test_faults_are_said_in_words() -> None:
    crash = {"kind": "crash", "from_h": 1.0, "to_h": 2.5}
    assert fault({**crash, "nodes": [3]}) == "crash of node 3"
    assert fault({**crash, "nodes": [3, 4]}) == "crash of nodes 3, 4"
    assert fault({**crash, "nodes": [1, 2, 3, 4, 5]}) == "crash of 5 nodes"
    assert fault({**crash, "nodes": 0.125}) == "crash of 12.5 % of the nodes"
    assert fault({**crash, "nodes": "aggregators"}) == "crash of aggregators"
    plain = {"protocol": {"name": "plexus"}}
    one, other = ({**plain, "faults": [{**crash, "nodes": [node]}]} for node in (3, 4))
    later = {**plain, "faults": [{**crash, "nodes": [3], "to_h": 3.0}]}
    assert labels([plain, one]) == ["no faults", "crash"]
    assert labels([plain, one, other]) == ["no faults", "crash of node 3", "crash of node 4"]
    assert labels([one, later]) == ["crash of node 3 from 1 to 2.5 h", "crash of node 3 from 1 to 3 h"]


def test_attackers_are_told_apart_by_what_they_do() -> None:
    flip = [{"behaviour": "flip", "share": 0.2}]
    both = [*flip, {"behaviour": "alie", "nodes": [3, 4]}]
    assert value_words(flip) == "flip by 0.2"
    assert value_words([{**flip[0], "factor": 2.5}]) == "flip (× 2.5) by 0.2"
    assert value_words(both) == "flip by 0.2 and alie by [3, 4]"


def test_what_words_leave_out_is_said_in_full_where_nothing_else_tells_two_settings_apart() -> None:
    ring, other = ({"protocol": {"name": "dpsgd", "topology_file": f"{name}/ring.txt"}} for name in "ab")
    gossip = {"protocol": {"name": "gossip"}}
    for each in (ring, other):
        each["protocol"]["topology"] = "file"
    assert labels([ring, gossip]) == ["D-PSGD, ring.txt", "Gossip Learning"]
    assert labels([ring, other, gossip]) == [
        "D-PSGD, ring.txt (protocol.topology_file = 'a/ring.txt')",
        "D-PSGD, ring.txt (protocol.topology_file = 'b/ring.txt')",
        "Gossip Learning",
    ]
    near = [{**gossip, "task": {"learning_rate": rate}} for rate in (0.1, 0.10000001, 0.2)]
    assert labels(near) == [
        "learning rate 0.1 (task.learning_rate = 0.1)",
        "learning rate 0.1 (task.learning_rate = 0.10000001)",
        "learning rate 0.2",
    ]
    assert labels([ring, ring]) == ["ring.txt", "ring.txt"], "one setting, listed twice"
