"""Quorum and order: nobody goes on without half of those who should be there; the larger side prevails."""

from __future__ import annotations

from typing import Any

import pytest

from plexus.protocol.api import Aggregate, Aggregated, Durable, Effect, Received, SetTimer, TimerFired, Train
from plexus.protocol.facts import AggregationCompleted, QuorumMissing, RoundRestarted, SampleDerived
from plexus.protocol.messages import Left, NodeId, Ping, TrainRequest
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.quorum import FIRST_SAMPLE, PARTICIPANTS, PURPOSES, RESTART, quorum, step
from plexus.protocol.sampling import PROBE
from plexus.testing.exchange import is_model, reported, sent
from tests.protocol.kit import (
    Exchange,
    aggregate_request,
    answer,
    asked,
    come_online,
    exchange_of,
    hash_order,
    online_node,
    pong,
    silence,
    train_request,
)

N, K = 6, 5
ORDER = hash_order(N, K)
PAUSE_S = 450.0 / 15
WATCHDOG_S = 900.0
AGAIN = TimerFired(("quorum", PURPOSES.index(PARTICIPANTS)))


@pytest.mark.parametrize(
    ("s", "online", "missing", "needed"),
    [(13, 100, 0, 7), (13, 3, 0, 2), (13, 3, 9, 6), (13, 3, 50, 7), (4, 4, 0, 2), (1, 1, 9, 1), (2, 1, 0, 1)],
)
def test_half_of_a_sample_must_answer_or_half_of_all_there_are(
    s: int, online: int, missing: int, needed: int
) -> None:
    assert quorum(s, online, missing) == needed


@pytest.mark.parametrize(
    ("online", "counted"),
    {0: 1, 1: 1, 2: 2, 7: 7, 8: 8, 9: 8, 10: 10, 15: 14, 16: 16, 19: 16, 20: 20, 111: 96, 112: 112}.items(),
)
def test_the_step_is_the_square_of_the_leading_digits_of_who_is_believed_online(
    online: int, counted: int
) -> None:
    assert step(online) == counted**2


def test_of_two_sides_the_larger_is_ahead_even_if_it_is_twice_as_slow() -> None:
    """It would have to be four times as slow."""
    assert all(step(2 * n) == 4 * step(n) for n in range(4, 300))


def searching(s: int = 4, n: int = N, **options: Any) -> PlexusNode:
    """An aggregator, last in the order, that looks for the participants of round K since time 1."""
    node = online_node(hash_order(n, K)[-1], n, sample_size=s, **options)
    node.handle(1.0, Received(node.me, aggregate_request(K, participants=1)))
    node.handle(1.0, Aggregated(K, "m5"))
    return node


def nobody_answers(node: PlexusNode, purpose: str, now: float) -> list[Effect]:
    """All pings for `purpose`, and the probes, are in vain until the search is over; the last effects."""
    effects: list[Effect] = []
    while node.sampler.exchanges:
        for exchange, search in sorted(node.sampler.exchanges.items()):
            if exchange in node.sampler.exchanges:
                effects = silence(node, exchange, now)
                if search.purpose == purpose and not node.sampler.is_searching(purpose):
                    return effects
        now += 2.0
    return effects


def pushes(effects: list[Effect]) -> list[NodeId]:
    return [to for to, _ in sent(effects, TrainRequest)]


def test_half_of_a_sample_is_enough_though_others_are_missing() -> None:
    node = searching()
    answer(node, PARTICIPANTS, ORDER[0], now=1.1)
    silence(node, exchange_of(node, PARTICIPANTS), 3.0)
    effects = nobody_answers(node, PARTICIPANTS, 5.0)
    assert pushes(effects) == [ORDER[0], node.me], "two of four"
    assert reported(effects, QuorumMissing) == []


def cut_off(s: int = 4) -> tuple[PlexusNode, list[Effect]]:
    """An aggregator whom nobody answers, when it has asked everybody; with what it did then."""
    node = searching(s)
    effects = nobody_answers(node, PARTICIPANTS, 3.0)
    while node.sampler.is_searching(PROBE):
        effects += silence(node, exchange_of(node, PROBE), node.now + 2.0)
    if node.sampler.is_searching(PARTICIPANTS):
        effects = nobody_answers(node, PARTICIPANTS, node.now + 2.0)
    return node, effects


def test_with_less_than_half_those_suspected_are_asked_too_before_it_pauses() -> None:
    node = searching()
    silence(node, exchange_of(node, PARTICIPANTS), 3.0)
    silence(node, exchange_of(node, PROBE), 5.0)
    assert [node.membership.view.is_suspected(each) for each in ORDER] == [True] * 4 + [False] * 2
    effects = silence(node, exchange_of(node, PARTICIPANTS), 5.0)
    assert node.quorum.is_waiting(PARTICIPANTS)
    assert asked(node, effects, PARTICIPANTS) == [ORDER[4], *ORDER[:2]], "after who is not suspected yet"
    assert reported(effects, QuorumMissing) == []


def test_then_it_pauses_says_so_and_asks_again() -> None:
    node, effects = cut_off()
    assert pushes(effects) == []
    [missing] = reported(effects, QuorumMissing)
    assert (missing.round, missing.ordinal, missing.found, missing.needed) == (K, K, 1, 2)
    assert SetTimer(AGAIN.key, PAUSE_S) in effects
    effects = node.handle(node.now + PAUSE_S, AGAIN)
    assert asked(node, effects, PARTICIPANTS) == ORDER[:3], "it is itself the fourth"


def test_when_they_are_back_it_goes_on_with_the_model_it_had() -> None:
    node, _ = cut_off()
    node.handle(node.now + PAUSE_S, AGAIN)
    effects = answer(node, PARTICIPANTS, *ORDER[:3], now=node.now + 0.1)
    assert pushes(effects) == [node.me, *ORDER[:3]]
    assert {push.model for _, push in sent(effects, TrainRequest)} == {"m5"}
    assert not node.quorum.is_waiting(PARTICIPANTS)


def test_after_the_watchdogs_time_it_goes_on_with_those_it_has() -> None:
    """By then the others may be gone for good."""
    node, _ = cut_off()
    since_s = node.now
    node.handle(since_s + WATCHDOG_S, AGAIN)
    effects = nobody_answers(node, PARTICIPANTS, since_s + WATCHDOG_S + 2.0)
    assert pushes(effects) == [node.me]
    assert reported(effects, SampleDerived)[0].sample == (node.me,)


def test_whoever_said_goodbye_is_not_missed() -> None:
    node = searching()
    for left in ORDER[:-1]:
        node.handle(1.5, Received(left, Left(2)))
    effects = nobody_answers(node, PARTICIPANTS, 3.0)
    assert pushes(effects) == [node.me]
    assert reported(effects, QuorumMissing) == []


def test_who_has_been_suspected_for_long_is_not_missed() -> None:
    node, _ = cut_off()
    needed = []
    for later_s in (1.0, WATCHDOG_S - 60.0, WATCHDOG_S + 60.0):
        node.now += later_s
        needed.append(node.quorum._needed())
    assert needed == [2, 2, 1]


def test_a_node_alone_with_suspects_goes_on_but_at_the_pace_of_the_watchdog() -> None:
    """Half of a sample of one or two is itself: it may be cut off all the same."""
    node, effects = cut_off(s=2)
    [missing] = reported(effects, QuorumMissing)
    assert (missing.found, missing.needed) == (1, 1)
    assert pushes(effects) == []
    assert SetTimer(AGAIN.key, PAUSE_S) in effects
    later_s = node.now + WATCHDOG_S
    node.handle(later_s, AGAIN)
    assert pushes(nobody_answers(node, PARTICIPANTS, later_s + 2.0)) == [node.me]
    node.handle(later_s + 9.0, Received(node.me, aggregate_request(K + 1, participants=1)))
    node.handle(later_s + 9.0, Aggregated(K + 1, "m6"))
    assert pushes(nobody_answers(node, PARTICIPANTS, later_s + 11.0)) == [], "and so the round after"


def test_a_node_alone_without_suspects_is_not_held_up() -> None:
    node = online_node(0, 1, sample_size=2)
    node.handle(1.0, Received(0, aggregate_request(K, participants=1)))
    assert pushes(node.handle(1.0, Aggregated(K, "m5"))) == [0]


def test_the_time_of_a_later_round_counts_from_its_own_search() -> None:
    node, _ = cut_off()
    later_s = node.now + WATCHDOG_S
    node.handle(later_s, Received(ORDER[0], aggregate_request(K + 1, participants=1)))
    node.handle(later_s, Aggregated(K + 1, "m6"))
    effects = nobody_answers(node, PARTICIPANTS, later_s + 2.0)
    assert pushes(effects) == []
    assert [missing.round for missing in reported(effects, QuorumMissing)] == [K + 1]


def test_a_pause_ends_when_the_node_hears_of_a_newer_round() -> None:
    node, _ = cut_off()
    node.handle(node.now, Received(ORDER[0], Ping(9, K + 1)))
    assert sent(node.handle(node.now + PAUSE_S, AGAIN)) == []
    assert not node.quorum.is_waiting(PARTICIPANTS)


def test_a_search_for_participants_ends_when_somebody_asked_is_ahead() -> None:
    node = searching()
    search = exchange_of(node, PARTICIPANTS)
    pong(node, ORDER[0], search, 1.1, k=K)
    assert node.sampler.is_searching(PARTICIPANTS), "as far as itself"
    effects = pong(node, ORDER[1], search, 1.1, k=K + 1)
    assert not node.sampler.is_searching(PARTICIPANTS)
    assert pushes(effects) == []


def test_new_work_ends_the_pause_before_a_push() -> None:
    node, _ = cut_off()
    node.handle(node.now, Received(ORDER[0], aggregate_request(K + 1)))
    assert not node.quorum.is_waiting(PARTICIPANTS)


def test_nothing_waits_for_a_quorum_after_a_crash() -> None:
    node, _ = cut_off()
    come_online(node, node.now)
    assert not any(node.quorum.is_waiting(purpose) for purpose in PURPOSES)
    assert node.handle(node.now + PAUSE_S, AGAIN) == []


def test_a_restart_needs_a_quorum_too() -> None:
    order = hash_order(N, 8)
    node = online_node(order[-1], N, sample_size=4, durable=Durable(3, 7, "m7", ordinal=7))
    node.handle(1000.0, TimerFired(("watchdog", 0)))
    effects = nobody_answers(node, RESTART, 1002.0)
    assert reported(effects, RoundRestarted) == []
    assert node.quorum.is_waiting(RESTART)
    asking = node.handle(1990.0, TimerFired(("watchdog", 0)))
    assert asked(node, asking, RESTART) == [], "the one that waits is enough"
    node.handle(1990.0, Received(order[0], train_request(8)))
    assert not node.quorum.is_waiting(RESTART), "work came from elsewhere"


def test_the_first_round_needs_a_quorum_too() -> None:
    order = hash_order(N, 1)
    node = online_node(order[0], N, sample_size=4)
    node.handle(5.0, TimerFired(("start", 0)))
    effects = nobody_answers(node, FIRST_SAMPLE, 7.0)
    assert not any(isinstance(effect, Train) for effect in effects)
    assert node.quorum.is_waiting(FIRST_SAMPLE)


# Numbers and ordinals


def test_the_aggregator_tells_how_far_the_next_round_is_by_how_many_it_believes_online() -> None:
    node = searching(n=N)
    effects = answer(node, PARTICIPANTS, *ORDER[:4], now=1.1)
    assert {(push.step, push.ordinal) for _, push in sent(effects, TrainRequest)} == {(step(N), K)}
    fewer = searching(n=N)
    fewer.handle(1.05, Received(ORDER[4], Left(2)))
    effects = answer(fewer, PARTICIPANTS, *ORDER[:4], now=1.1)
    assert {push.step for _, push in sent(effects, TrainRequest)} == {step(N - 1)}


def test_a_participant_makes_of_its_round_the_one_that_its_request_says() -> None:
    node = online_node(0, 1)
    effects = node.handle(1.0, Received(0, train_request(100, step=36, ordinal=9)))
    assert Train(9, "m") in effects, "what is drawn at random depends on the ordinal"
    assert (node.training.next_round, node.held_round, node.held_ordinal) == (136, 100, 9)


@pytest.mark.parametrize(("claimed", "believed"), [(0, 1), (1, 1), (2**40, 2**40), (2**62, 2**40)])
def test_a_step_that_nobody_can_have_is_not_taken(claimed: int, believed: int) -> None:
    node = online_node(0, N)
    node.handle(1.0, Received(1, train_request(100, step=claimed)))
    assert (node.training.next_round, node.watchdog.step) == (100 + believed, believed)


def test_rounds_are_compared_by_number_and_not_by_ordinal() -> None:
    """After a fork the longer chain of few nodes does not prevail over the shorter one of many."""
    node = online_node(0, N)
    node.handle(1.0, Received(1, train_request(1000, "of many", ordinal=5)))
    assert not any(
        isinstance(e, Train) for e in node.handle(2.0, Received(2, train_request(300, "of few", ordinal=90)))
    )
    assert Train(6, "newer") in node.handle(3.0, Received(3, train_request(1036, "newer", ordinal=6)))


def test_two_ways_to_one_number_count_as_the_longer() -> None:
    node = online_node(0, N, success_fraction=1.0)
    for src, ordinal in ((1, 7), (2, 9), (3, 8)):
        effects = node.handle(1.0, Received(src, aggregate_request(1000, participants=3, ordinal=ordinal)))
    assert any(isinstance(effect, Aggregate) for effect in effects)
    [fact] = reported(node.handle(2.0, Aggregated(1000, "mean")), AggregationCompleted)
    assert (fact.round, fact.ordinal) == (1000, 9)
    assert (node.held_round, node.held_ordinal) == (1000, 9)


def test_a_later_round_does_not_inherit_the_ordinal_of_the_one_before() -> None:
    node = online_node(0, N)
    node.handle(1.0, Received(1, aggregate_request(1000, participants=3, ordinal=50)))
    node.handle(2.0, Received(2, aggregate_request(1036, participants=1, ordinal=6)))
    [fact] = reported(node.handle(3.0, Aggregated(1036, "mean")), AggregationCompleted)
    assert fact.ordinal == 6


def test_a_restart_is_one_round_further_than_the_model_it_begins_with_and_one_number_than_what_is_known() -> (
    None
):
    """Its number is less than that of the round that may still be under way: if that comes to an end, it
    prevails."""
    node = online_node(0, 1, durable=Durable(3, 700, "m700", ordinal=7))
    node.handle(1.0, Received(0, Ping(9, 736)))
    effects = node.handle(3000.0, TimerFired(("watchdog", 0)))
    assert reported(effects, RoundRestarted) == [RoundRestarted(737, 8, held=700)]
    [(_, push)] = sent(effects, TrainRequest)
    assert (push.round, push.ordinal, push.model) == (737, 8, "m700")


def test_what_was_held_is_found_again_with_its_ordinal() -> None:
    session = Exchange(3, sample_size=2)
    session.go_online(0, 1, 2)
    session.run_until(session.has_aggregated(5))
    saved = session.saved[0]
    assert saved.round == session.nodes[0].held_round > saved.ordinal == session.nodes[0].held_ordinal
    session.crash(0)
    session.restart(0)
    assert session.nodes[0].held_ordinal == saved.ordinal


def test_of_two_sides_that_went_on_apart_the_one_with_more_nodes_prevails() -> None:
    """However fast the few were."""
    n, few = 9, {0, 1, 2}
    apart_s, until_s = 60.0, 1500.0

    def delays(src: NodeId, dst: NodeId, body: Any) -> tuple[float, ...]:
        parted = apart_s < session.now < until_s and (src in few) != (dst in few)
        return () if parted else (1.0 if is_model(body) else 0.05,)

    short = {"aggregation_timeout_s": 30.0, "ack_timeout_s": 45.0, "readvertise_s": 60.0, "watchdog_s": 90.0}
    session = Exchange(
        n, sample_size=3, delays=delays, training_s=lambda node: 4.0 if node in few else 12.0, **short
    )
    session.go_online(*range(n))
    session.run(until_s)
    done = [(node in few, fact) for at, node, fact in session.of(AggregationCompleted) if at > apart_s]
    of_few = max(fact.round for is_few, fact in done if is_few)
    of_many = max(fact.round for is_few, fact in done if not is_few)
    assert of_few < of_many
    assert max(f.ordinal for is_few, f in done if is_few) > max(f.ordinal for is_few, f in done if not is_few)
    session.run_until(
        lambda: min(node.held_round for node in session.nodes) > of_many, limit_s=until_s + 2000
    )


def test_a_side_of_less_than_half_of_a_sample_waits_for_the_others() -> None:
    """One of five, with a sample of four: it makes no round alone before the watchdog's time is over."""
    cut_s = 30.0

    def delays(src: NodeId, dst: NodeId, body: Any) -> tuple[float, ...]:
        return () if session.now > cut_s and 0 in (src, dst) and src != dst else (0.05,)

    session = Exchange(5, sample_size=4, delays=delays)
    session.go_online(*range(5))
    session.run(cut_s + WATCHDOG_S)
    alone = [fact for at, node, fact in session.of(SampleDerived) if node == 0 and at > cut_s + 10]
    assert [fact.purpose for fact in alone if fact.purpose in PURPOSES] == []
    others = [at for at, node, _ in session.of(AggregationCompleted) if node != 0 and at > cut_s + 10]
    assert len(others) > 10
