"""The simulated world around the nodes: devices, departures, and accounts that balance."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from plexus.protocol.api import Aggregate, Aggregated, Change, Effect, Event, Received, Send, Train, Trained
from plexus.protocol.facts import AggregationCompleted, RoundRestarted, TrainingStarted
from plexus.protocol.messages import LateModel
from plexus.protocol.wire import frame_bytes
from plexus.sim.session import Nodes, Setting, assemble
from plexus.traces.world import Device, Latency, World, always_online
from tests.sim.kit import MODEL_BYTES, TRAINING_S, UPLINK, Labels, Session, in_flight_bytes, sessions


def test_a_quiet_session_completes_round_after_round_with_the_success_fraction_of_models() -> None:
    session = Session(20, sample_size=5).run(600)
    completed = session.of(AggregationCompleted)
    assert session.rounds == list(range(2, 2 + len(completed)))
    assert len(completed) > 20
    assert {(fact.models, fact.participants) for _, _, fact in completed} == {(4, 5)}


@pytest.mark.parametrize("nodes", [1, 2, 3, 10])
def test_fewer_nodes_than_the_sample_size_do_not_stall(nodes: int) -> None:
    session = Session(nodes, sample_size=13).run(600)
    assert len(session.rounds) > 20
    assert not any(fact.timed_out for _, _, fact in session.of(AggregationCompleted))


def test_one_node_alone_sends_nothing() -> None:
    session = Session(1).run(600)
    assert sum(entry["count"] for entry in session.runtime.accounts.table().values()) == 0


def test_the_first_round_is_begun_by_the_first_sample_alone() -> None:
    session = Session(50, sample_size=5).run(TRAINING_S)
    assert len(session.of(TrainingStarted)) == 5


@pytest.mark.parametrize("moment_s", [7.0, 12.0, 100.0, 333.0])
def test_a_session_recovers_when_everybody_working_on_a_round_crashes_at_once(moment_s: float) -> None:
    session = Session(40, sample_size=5).run(moment_s)
    before = max(session.rounds, default=1)
    newest = max(fact.ordinal for _, _, fact in session.of(TrainingStarted))
    working = {n for _, n, fact in session.of(TrainingStarted) if fact.ordinal >= newest - 1}
    working |= {n for _, n, fact in session.of(AggregationCompleted) if fact.ordinal >= newest - 1}
    for node in sorted(working):
        session.runtime.crash(node)
    session.run(moment_s + 1500)
    assert 1 <= len(session.of(RoundRestarted)) <= 3, "restarted, but without a storm"
    assert max(session.rounds) > before + 5


def test_recovery_starts_from_the_newest_model_that_survived() -> None:
    session = Session(40, sample_size=5).run(300)
    newest = max(fact.ordinal for _, _, fact in session.of(TrainingStarted))
    for node in {n for _, n, fact in session.of(TrainingStarted) if fact.ordinal == newest}:
        session.runtime.crash(node)
    aggregator = max(session.of(AggregationCompleted), key=lambda entry: entry[0])[1]
    session.runtime.crash(aggregator)
    session.run(2000)
    restarts = session.of(RoundRestarted)
    assert restarts
    assert all(fact.ordinal - 1 >= newest - 2 for _, _, fact in restarts)


def test_a_graceful_leave_sends_its_last_messages_and_a_crash_does_not() -> None:
    for leave, expected in ((True, 1), (False, 0)):
        session = Session(5, sample_size=2).run(50)
        sent = session.runtime.accounts.messages["membership"][0]
        (session.runtime.leave if leave else session.runtime.crash)(3)
        told = session.runtime.accounts.messages["membership"][0] - sent
        assert (told > 0) == bool(expected)


def test_going_offline_cuts_timers_training_and_transfers_at_that_instant() -> None:
    session = Session(6, sample_size=6).run(5.0 + TRAINING_S + 0.4)
    runtime = session.runtime
    assert in_flight_bytes(runtime) > 0, "models are on their way to the aggregator"
    training_before = sum(runtime.accounts.training_s)
    for node in range(6):
        runtime.crash(node)
    assert in_flight_bytes(runtime) == 0
    assert 0 < runtime.accounts.cut_bytes < 6 * MODEL_BYTES
    delivered = runtime.kernel.delivered
    facts = len(session.facts)
    session.run(5000)
    assert len(session.facts) == facts, "nothing of a gone node happens"
    assert sum(runtime.accounts.training_s) == training_before
    assert runtime.kernel.delivered >= delivered


def test_interrupted_training_counts_the_time_it_took() -> None:
    session = Session(1).run(5.0 + TRAINING_S / 2)
    session.runtime.crash(0)
    assert sum(session.runtime.accounts.training_s) == pytest.approx(TRAINING_S / 2)


@pytest.mark.parametrize("sharing", ["shared", "fair", "fifo"])
@pytest.mark.parametrize("graceful_share", [1.0, 0.5])
def test_byte_accounts_balance(sharing: str, graceful_share: float) -> None:
    rows = [[(0.0 + n % 3 * 40, 100 + 60.0 * n), (150 + 61.0 * n, 3000.0)] for n in range(12)]
    session = Session(12, sessions(*rows), sample_size=4, sharing=sharing, graceful_share=graceful_share).run(
        1000
    )
    accounts = session.runtime.accounts
    now_s = 1000.0
    while in_flight_bytes(session.runtime) == 0:
        now_s += 0.05
        session.run(now_s)
    for node in range(12):
        session.runtime.crash(node)
    session.run(now_s + 10)  # what was under way at the crash arrives nowhere
    sent = sum(accounts.sent_bytes)
    assert sent == sum(entry["bytes"] for entry in accounts.table().values())
    assert sent == sum(accounts.received_bytes) + accounts.lost_bytes + accounts.cut_bytes
    assert accounts.cut_bytes > 0


def test_views_of_online_nodes_follow_joins_and_leaves() -> None:
    rows = [[(0.0, 9000.0)]] * 10 + [[(100.0, 2000.0)], [(0.0, 150.0)]]
    session = Session(12, sessions(*rows), sample_size=4).run(1500)
    for node in range(10):
        view = session.runtime.nodes[node].membership.view  # type: ignore[attr-defined]
        assert (view.is_online(10), view.is_online(11)) == (True, False)


def test_same_seed_same_digest_and_another_seed_another() -> None:
    digests = {seed: Session(30, seed=seed).run(900).runtime.kernel.digest() for seed in (1, 2)}
    assert Session(30, seed=1).run(900).runtime.kernel.digest() == digests[1]
    assert digests[1] != digests[2]


@pytest.mark.slow
def test_the_digest_does_not_depend_on_hash_randomisation() -> None:
    program = (
        "from tests.sim.kit import Session; s = Session(30, graceful_share=0.5).run(900);"
        "print(s.runtime.kernel.digest())"
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


class Latecomer:
    """Trains once, sends node 0 what it changed, and aggregates what it is sent with a model of its own."""

    def __init__(self, me: int) -> None:
        self.me = me
        self.seen: list[Event] = []

    def handle(self, now: float, event: Event) -> list[Effect]:
        self.seen.append(event)
        match event:
            case Trained(round, model, samples):
                return [Send((0,), LateModel(round + 2, round, round, samples, Change(model, "base")))]
            case Received(_, LateModel(round, _, _, samples, change)):
                return [Aggregate(round, ("own",), (100,), (change,), (samples,))]
        return [Train(7, "base")] if self.me == 1 and len(self.seen) == 1 else []


def test_a_change_travels_like_a_model_and_is_aggregated_as_what_it_is() -> None:
    devices = [Device(20.0, UPLINK, UPLINK)] * 2
    world = World(devices, always_online(2), Latency(np.full((1, 1), 0.05), np.zeros(2, np.intp)))
    nodes: list[Any] = [Latecomer(0), Latecomer(1)]
    setting = Setting(world, Labels(), "base", lambda _: TRAINING_S, 1)
    runtime = assemble(setting, Nodes(nodes, world), lambda *_: None)
    runtime.run(100)
    change = Change(("trained", 1, 7), "base")
    sent = LateModel(9, 7, 7, 100, change)
    size_bytes = frame_bytes(sent, MODEL_BYTES) + MODEL_BYTES
    assert nodes[0].seen[1:] == [Received(1, sent, size_bytes), Aggregated(9, ("mean", "own", change))]
    assert runtime.accounts.messages["model"] == [1, size_bytes]
    assert runtime.accounts.sent_bytes[1] == runtime.accounts.received_bytes[0] == size_bytes
