"""The baselines in virtual time: with and without churn, by what nodes report and accounts say."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from plexus.protocol.facts import AggregationCompleted, ModelUpdated
from plexus.protocol.registry import SERVERS
from plexus.sim.protocols import PROTOCOLS
from plexus.traces.world import Availability
from tests.sim.kit import MODEL_BYTES, TRAINING_S, Session, in_flight_bytes, sessions

BASELINES = [name for name in PROTOCOLS if name != "plexus"]


def coming_and_going(nodes: int) -> Availability:
    """Everybody is online half of the time, each from another moment on."""
    shifts = [37.0 * node % 400 for node in range(nodes)]
    return sessions(*([(s + 800 * i, s + 800 * i + 400) for i in range(10)] for s in shifts))


def progress(session: Session) -> list[tuple[float, int, Any]]:
    return session.of(ModelUpdated) + session.of(AggregationCompleted)


@pytest.mark.parametrize("protocol", BASELINES)
@pytest.mark.parametrize("nodes", [1, 2, 3, 20])
def test_models_are_made_without_churn(protocol: str, nodes: int) -> None:
    session = Session(nodes, protocol=protocol).run(1200)
    if (protocol, nodes) == ("gossip", 1):  # nobody to gossip with
        assert progress(session) == []
        return
    assert max(fact.round for _, _, fact in progress(session)) > 10


@pytest.mark.parametrize("protocol", BASELINES)
@pytest.mark.parametrize("graceful_share", [1.0, 0.0])
def test_models_are_made_under_churn(protocol: str, graceful_share: float) -> None:
    session = Session(20, coming_and_going(20), protocol=protocol, graceful_share=graceful_share).run(6000)
    late = [fact for now, _, fact in progress(session) if now > 5000]
    assert late
    counts = Counter(getattr(fact, "models", 0) or fact.merged for fact in late)
    assert max(counts) > 1, "nodes still hear from each other"


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("churn", [False, True])
def test_same_seed_same_digest_and_another_seed_another(protocol: str, churn: bool) -> None:
    def digest(seed: int) -> str:
        availability = coming_and_going(12) if churn else None
        session = Session(12, availability, seed=seed, protocol=protocol, graceful_share=0.7)
        return session.run(1500).runtime.kernel.digest()

    assert digest(1) == digest(1) != digest(2)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", BASELINES)
def test_the_digest_does_not_depend_on_hash_randomisation(protocol: str) -> None:
    program = (
        "from tests.baselines.test_sessions import *;"
        f"s = Session(12, coming_and_going(12), protocol={protocol!r}, graceful_share=0.5);"
        "print(s.run(1500).runtime.kernel.digest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(p for p in sys.path if p)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


@pytest.mark.parametrize("protocol", BASELINES)
@pytest.mark.parametrize("sharing", ["shared", "fair", "fifo"])
def test_byte_accounts_balance(protocol: str, sharing: str) -> None:
    session = Session(12, coming_and_going(12), protocol=protocol, sharing=sharing, graceful_share=0.5)
    now_s = 1000.0
    session.run(now_s)
    while in_flight_bytes(session.runtime) == 0:
        now_s += 0.05
        session.run(now_s)
    accounts = session.runtime.accounts
    for node in range(len(session.runtime.nodes)):
        session.runtime.crash(node)
    session.run(now_s + 10)
    sent = sum(accounts.sent_bytes)
    assert sent == sum(entry["bytes"] for entry in accounts.table().values())
    assert sent == sum(accounts.received_bytes) + accounts.lost_bytes + accounts.cut_bytes


# D-PSGD


def test_one_peer_exponential_costs_one_model_a_node_and_round() -> None:
    session = Session(16, protocol="dpsgd").run(600)
    rounds = Counter(fact.round for _, _, fact in session.of(ModelUpdated))
    whole = [k for k, nodes in rounds.items() if nodes == 16]
    assert whole == list(range(1, len(whole) + 1))
    assert len(whole) > 20
    assert {fact.merged for _, _, fact in session.of(ModelUpdated)} == {2}
    begun = session.runtime.accounts.table()["model"]["count"]
    assert 16 * len(whole) <= begun <= 16 * (max(rounds) + 1)


def test_neighbours_are_never_more_than_a_round_apart() -> None:
    session = Session(10, protocol="dpsgd", topology="ring", training_s=lambda node: 5.0 + node)
    session.run(500)
    done: dict[int, int] = dict.fromkeys(range(10), 0)
    for _, node, fact in session.of(ModelUpdated):
        done[node] = fact.round
        neighbours = [done[(node - 1) % 10], done[(node + 1) % 10]]
        assert all(abs(fact.round - other) <= 1 for other in neighbours)


def test_fully_connected_nodes_all_have_the_same_model() -> None:
    session = Session(5, protocol="dpsgd", topology="full").run(200)
    by_round: dict[int, set[Any]] = {}
    for _, _, fact in session.of(ModelUpdated):
        by_round.setdefault(fact.round, set()).add(fact.model)
    assert len(by_round) > 5
    assert all(len(models) == 1 for models in by_round.values())
    parts = tuple((("trained", node, 1), 1) for node in range(5))
    assert by_round[1] == {("merged", parts)}


def test_under_churn_all_nodes_keep_the_clock() -> None:
    session = Session(20, coming_and_going(20), protocol="dpsgd", round_duration_s=50.0).run(3000)
    for now, _, fact in session.of(ModelUpdated):
        assert now == pytest.approx(50.0 * fact.round)


def test_pending_transfers_end_with_the_round() -> None:
    """A round that leaves a quarter of the time a transfer takes."""
    transfer_s = MODEL_BYTES / 500_000  # the slowest device's
    session = Session(8, protocol="dpsgd", topology="full", round_duration_s=TRAINING_S + transfer_s / 4)
    now_s = TRAINING_S + transfer_s / 5
    session.run(now_s)
    assert in_flight_bytes(session.runtime) > 0
    now_s = TRAINING_S + transfer_s / 4
    session.run(now_s)
    assert in_flight_bytes(session.runtime) == 0
    accounts = session.runtime.accounts
    assert 0 < accounts.cut_bytes < 8 * 7 * MODEL_BYTES
    session.run(10 * now_s)
    assert {fact.merged for _, _, fact in session.of(ModelUpdated)} == {1}
    assert accounts.table()["model"]["count"] > 5 * 8 * 7


def test_who_is_offline_is_missed_by_its_neighbours_alone() -> None:
    gone = [[(0.0, 9000.0)]] * 7 + [[(0.0, 1.0)]]
    session = Session(8, sessions(*gone), protocol="dpsgd", topology="ring", round_duration_s=30.0).run(300)
    merged: dict[int, set[int]] = {}
    for _, node, fact in session.of(ModelUpdated):
        merged.setdefault(node, set()).add(fact.merged)
    assert merged == {node: {2 if node in (0, 6) else 3} for node in range(7)}


# Gossip Learning


def test_gossip_sends_once_a_period_and_out_of_phase() -> None:
    session = Session(20, protocol="gossip").run(600)
    models = session.runtime.accounts.table()["model"]["count"]
    assert 190 <= models <= 200
    moments = {round(now % 60, 3) for now, _, _ in session.of(ModelUpdated)}
    assert len(moments) > 100, "nobody waits for anybody"


def test_gossip_ages_only_grow_and_spread() -> None:
    session = Session(20, protocol="gossip").run(3000)
    ages: dict[int, int] = {}
    for _, node, fact in session.of(ModelUpdated):
        assert fact.round > ages.get(node, 0)
        ages[node] = fact.round
    assert len(ages) == 20
    assert max(ages.values()) - min(ages.values()) < max(ages.values()) / 2


def test_gossip_finds_peers_without_an_oracle() -> None:
    """A node that comes back to a view of the past is soon part of it again."""
    rows = [[(0.0, 1000.0)]] * 10 + [[(900.0, 9000.0)]] * 10 + [[(0.0, 100.0), (3000.0, 9000.0)]]
    session = Session(21, sessions(*rows), protocol="gossip").run(3900)
    back = [now for now, node, _ in session.of(ModelUpdated) if node == 20 and now > 3000]
    assert len(back) >= 5


# Epidemic Learning


def test_epidemic_sends_to_fanout_others_a_round() -> None:
    session = Session(20, protocol="epidemic", fanout=4).run(600)
    newest = max(fact.round for _, _, fact in session.of(ModelUpdated))
    count = session.runtime.accounts.table()["model"]["count"]
    assert 20 * 4 * (newest - 1) <= count <= 20 * 4 * (newest + 3)
    merged = [fact.merged - 1 for _, _, fact in session.of(ModelUpdated)]
    assert sum(merged) / len(merged) == pytest.approx(4, abs=0.2)
    assert len(set(merged)) > 3, "how many it receives is left to chance"


# Teleportation


def test_teleportation_trains_a_few_and_moves_two_models_for_each() -> None:
    session = Session(20, protocol="teleportation", active=4).run(1200)
    rounds = Counter(fact.round for _, _, fact in session.of(ModelUpdated))
    whole = [k for k, nodes in rounds.items() if nodes == 4]
    assert len(whole) > 50 and max(rounds.values()) == 4
    assert {fact.merged for _, _, fact in session.of(ModelUpdated)} == {2}
    assert {node for _, node, _ in session.of(ModelUpdated)} == set(range(20)), "all have their turns"
    models = session.runtime.accounts.table()["model"]["count"]
    assert 7 * len(whole) <= models <= 8 * (max(rounds) + 1), "to itself a node sends for nothing"


def test_teleportation_begins_anew_when_all_tokens_were_lost() -> None:
    rows = [[(0.0, 400.0), (900.0, 2000.0)]] * 6
    session = Session(6, sessions(*rows), protocol="teleportation", active=3, round_duration_s=30.0).run(1500)
    made = [(now, fact) for now, _, fact in session.of(ModelUpdated)]
    assert max(now for now, _ in made if now < 900) > 350
    later = [fact for now, fact in made if now > 1100]
    assert {fact.merged for fact in later} == {2}, "all tokens are there again"


def test_teleportation_goes_on_by_the_clock_with_crashes() -> None:
    given: dict[str, Any] = {"active": 4, "round_duration_s": 20.0, "graceful_share": 0.0}
    session = Session(20, coming_and_going(20), protocol="teleportation", **given).run(6000)
    rounds = Counter(fact.round for _, _, fact in session.of(ModelUpdated))
    assert len(rounds) > 0.8 * 6000 / 20, "every 800 s all are gone at once"
    assert sum(rounds.values()) / len(rounds) > 3.5, "of four tokens few are ever missing"


# Federated averaging


def test_fedavg_rounds_have_the_success_fraction_of_models() -> None:
    session = Session(20, protocol="fedavg", sample_size=5).run(600)
    completed = session.of(AggregationCompleted)
    assert session.rounds == list(range(2, 2 + len(completed)))
    assert len(completed) > 20
    assert {(node, fact.models, fact.participants) for _, node, fact in completed} == {(20, 4, 5)}


@pytest.mark.parametrize("protocol", SERVERS)
def test_a_server_is_there_besides_the_devices_and_never_trains(protocol: str) -> None:
    session = Session(5, protocol=protocol).run(300)
    assert session.cast.servers == 1
    assert session.runtime.online_count == 6
    assert session.runtime.accounts.training_s[5] == 0
    assert all(session.runtime.accounts.training_s[:5])


# FedBuff


def test_fedbuff_waits_for_nobody_and_uses_what_every_device_trains() -> None:
    """Devices from 5 to 100 s: the quick ones train more often, and the slow ones' work counts."""
    session = Session(20, protocol="fedbuff", training_s=lambda node: 5.0 * (node + 1), concurrency=20).run(
        3000
    )
    merged = [fact.model for _, _, fact in session.of(AggregationCompleted)]
    whose = Counter(
        part[1] for _, parts in merged for part, weight in parts if part[0] == "trained" and weight > 0
    )
    assert set(whose) == set(range(20))
    assert whose[0] > 10 * whose[19]
    trained = sum(session.runtime.accounts.training_s[:20])
    assert trained > 0.97 * 20 * 2995, "nobody rests"
