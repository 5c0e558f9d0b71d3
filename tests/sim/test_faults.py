"""Faults that an experiment asks for: they hit whom they name, while they last, in every protocol."""

from __future__ import annotations

from typing import Any

import pytest

from plexus.protocol.facts import AggregationCompleted, AggregatorChosen, ModelUpdated, TrainingStarted
from plexus.sim.faults import FaultyRuntime, PlannedFault, drawn_nodes
from tests.sim.kit import MODEL_BYTES, Session, in_flight_bytes, sessions

SHORT: dict[str, Any] = {
    "sample_size": 5,
    "ping_timeout_s": 2.0,
    "aggregation_timeout_s": 60.0,
    "ack_timeout_s": 90.0,
    "watchdog_s": 120.0,
}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "plexus": SHORT,
    "fedavg": {"sample_size": 5, "aggregation_timeout_s": 60.0},
    "fedbuff": {"client_timeout_s": 60.0},
    "gossip": {"period_s": 20.0},
    "dpsgd": {"topology": "ring", "round_duration_s": 20.0},
    "teleportation": {"active": 4, "round_duration_s": 20.0},
    "epidemic": {"round_duration_s": 20.0},
}


def fault(
    kind: str, nodes: set[int] | None, from_s: float = 300, until_s: float = 900, **more: Any
) -> PlannedFault:
    return PlannedFault(kind, from_s, until_s, None if nodes is None else frozenset(nodes), **more)


def rounds_between(session: Session, from_s: float, to_s: float) -> list[tuple[int, int]]:
    """(round, aggregator) of what was completed then."""
    return [(f.round, node) for now, node, f in session.of(AggregationCompleted) if from_s < now <= to_s]


class Mail:
    """Notes who received what of whom, by the sender's and the receiver's number."""

    def __init__(self, session: Session) -> None:
        self.seen: list[tuple[float, int, int]] = []
        runtime, deliver = session.runtime, session.runtime.kernel._deliver

        def watched(target: int, event: Any) -> None:
            if hasattr(event, "src") and event.src != target and runtime.online[target]:
                self.seen.append((runtime.kernel.now, event.src, target))
            deliver(target, event)

        runtime.kernel._deliver = watched

    def between(self, from_s: float, to_s: float) -> set[tuple[int, int]]:
        return {(src, dst) for now, src, dst in self.seen if from_s < now <= to_s}


def test_a_partition_cuts_both_ways_and_each_side_goes_on() -> None:
    side = {0, 1, 2, 3, 4}
    session = Session(12, faults=[fault("partition", side)], **SHORT)
    mail = Mail(session)
    session.run(1500)
    across = {(src, dst) for src, dst in mail.between(301, 900) if (src in side) != (dst in side)}
    assert not across
    aggregators = {node for _, node in rounds_between(session, 320, 900)}
    assert aggregators & side
    assert aggregators - side, "each side goes on by itself"
    healed = {(src, dst) for src, dst in mail.between(900, 1500) if (src in side) != (dst in side)}
    assert healed


def test_transfers_across_a_partition_break_off() -> None:
    until_s = 15.4  # the first trainings are done, and models are on their way
    whole = Session(6, sample_size=6).run(until_s)
    assert in_flight_bytes(whole.runtime) > 0
    cut = Session(6, sample_size=6, faults=[fault("partition", {0, 1, 2}, until_s - 0.01, 20)]).run(until_s)
    assert 0 < in_flight_bytes(cut.runtime) < in_flight_bytes(whole.runtime), "within a side they go on"
    assert 0 < cut.runtime.accounts.cut_bytes < 6 * MODEL_BYTES


def test_the_silent_receive_and_are_not_heard() -> None:
    session = Session(12, faults=[fault("silence", {3})], **SHORT)
    mail = Mail(session)
    session.run(1500)
    lasting = mail.between(301, 900)
    assert not any(src == 3 for src, _ in lasting)
    assert any(dst == 3 for _, dst in lasting)
    assert any(src == 3 for src, _ in mail.between(900, 1500))


def test_a_crash_is_without_goodbye_and_ends_as_the_trace_says() -> None:
    rows = [[(0.0, 5000.0)]] * 9
    # Gone when the crash ends; comes while it lasts; comes and goes while it lasts.
    rows += [[(0.0, 600.0)], [(400.0, 5000.0)], [(400.0, 500.0)]]
    hit = {8, 9, 10, 11}
    session = Session(12, sessions(*rows), faults=[fault("crash", hit)], **SHORT).run(301)
    membership = session.runtime.accounts.messages["membership"][0]
    for now_s in (450, 550, 899):
        session.run(now_s)
        assert not any(session.runtime.online[node] for node in hit)
        assert session.runtime.online_count == 8
    assert session.runtime.accounts.messages["membership"][0] == membership, "nobody said goodbye or hello"
    session.run(901)
    assert [session.runtime.online[node] for node in sorted(hit)] == [True, False, True, False]


def test_faults_that_overlap_last_until_the_last_of_them_ends() -> None:
    twice = [fault("crash", {3}), fault("crash", {3}), fault("crash", {3}, 600, 1200)]
    session = Session(6, faults=twice, sample_size=4)
    online = [session.run(now_s).runtime.online[3] for now_s in (299, 301, 901, 1199, 1201)]
    assert online == [True, False, False, False, True]


def test_slow_links_have_their_factor_and_then_all_again() -> None:
    slow = [fault("slow-link", {2}, factor=0.1), fault("slow-link", {2, 3}, 600, 1200, factor=0.5)]
    session = Session(6, faults=slow, sample_size=4)
    sharing = session.runtime.network.sharing
    factors = []
    for now_s in (299, 301, 601, 901, 1201):
        session.run(now_s)
        links = (link for node in (2, 3) for link in sharing.links_of(node))
        factors.append([link.capacity_bytes_per_s / link.usual_bytes_per_s for link in links])
    up_and_down = [[1, 1], [0.1, 1], [0.05, 0.5], [0.5, 0.5], [1, 1]]
    assert factors == [pytest.approx([a, a, b, b]) for a, b in up_and_down]


def test_whoever_is_chosen_to_aggregate_is_hit() -> None:
    session = Session(40, faults=[fault("crash", None, 300, 600)], **SHORT).run(599)
    assert rounds_between(session, 0, 299)
    chosen = {fact.aggregator for now, _, fact in session.of(AggregatorChosen) if 300 < now < 599}
    gone = {node for node in range(40) if not session.runtime.online[node]}
    assert len(chosen) > 1
    assert chosen <= gone
    assert not rounds_between(session, 301, 599), "nobody lives to complete a round"
    session.run(1500)
    assert session.runtime.online_count == 40
    assert rounds_between(session, 600, 1500)


def test_who_collects_when_the_fault_begins_is_hit_at_once() -> None:
    quiet = Session(12, **SHORT).run(60)
    now_s, _, fact = quiet.of(AggregatorChosen)[0]
    session = Session(12, faults=[fault("crash", None, now_s + 0.01, 600)], **SHORT).run(now_s + 0.02)
    assert not session.runtime.online[fact.aggregator]


def test_the_server_of_federated_averaging_is_its_aggregator() -> None:
    session = Session(12, protocol="fedavg", faults=[fault("crash", None)], **PROTOCOLS["fedavg"]).run(301)
    assert not session.runtime.online[12]
    session.run(1500)
    assert rounds_between(session, 0, 300)
    assert not rounds_between(session, 301, 900)
    assert rounds_between(session, 900, 1500)


@pytest.mark.parametrize("kind", ["partition", "crash", "slow-link", "silence"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol_lives_through_every_kind(protocol: str, kind: str) -> None:
    def play(*faults: PlannedFault) -> Session:
        return Session(12, protocol=protocol, faults=faults, **PROTOCOLS[protocol]).run(1500)

    factor = {"factor": 0.01} if kind == "slow-link" else {}
    session = play(fault(kind, {0, 1, 2, 3}, **factor))
    assert isinstance(session.runtime, FaultyRuntime)
    digest = session.runtime.kernel.digest()
    assert digest == play(fault(kind, {0, 1, 2, 3}, **factor)).runtime.kernel.digest()
    assert digest != play().runtime.kernel.digest()
    progress = (AggregationCompleted, ModelUpdated)
    assert any(isinstance(fact, progress) for now, _, fact in session.facts if now > 1000)
    worked = {node for now, node, fact in session.facts if isinstance(fact, TrainingStarted | ModelUpdated)}
    assert worked >= set(range(12))


def test_no_byte_is_lost_from_the_books() -> None:
    faults = [fault("partition", {0, 1, 2}), fault("silence", {5}, 100, 700), fault("crash", {7}, 50, 800)]
    session = Session(12, faults=faults, **SHORT).run(880)
    for node in range(12):
        session.runtime.crash(node)
    session.run(890)
    accounts = session.runtime.accounts
    assert accounts.lost_bytes
    assert sum(accounts.sent_bytes) == sum(accounts.received_bytes) + accounts.lost_bytes + accounts.cut_bytes


def test_a_share_is_drawn_by_seed_and_by_fault() -> None:
    assert drawn_nodes(0.3, 100, 1, 0) == drawn_nodes(0.3, 100, 1, 0)
    assert len({drawn_nodes(0.3, 100, seed, at) for seed in (1, 2) for at in (0, 1)}) == 4
    assert len(drawn_nodes(0.3, 100, 1, 0)) == 30
    assert len(drawn_nodes(0.01, 10, 1, 0)) == 1
    assert drawn_nodes(1.0, 10, 1, 0) == frozenset(range(10))
