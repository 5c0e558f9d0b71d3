"""Suspicion: who is silent is taken as gone, is told so, and may refute it."""

from __future__ import annotations

import pytest

from plexus.protocol.api import Aggregated, Effect, Expelled, Received, Send, SetTimer, TimerFired, Trained
from plexus.protocol.facts import Suspected
from plexus.protocol.membership import CALM, HEARD_ME
from plexus.protocol.messages import AggregateRequest, Joined, Left, NodeId, Ping, Pong, ViewReply
from plexus.protocol.plexus import AGGREGATOR, PlexusNode
from plexus.protocol.quorum import PARTICIPANTS
from plexus.protocol.sampling import PROBE
from plexus.protocol.view import JOINED, LAST, MAX_COUNTER, SUSPECTED, Snapshot, event_number
from plexus.testing.exchange import reported, sent
from tests.protocol.kit import (
    Exchange,
    aggregate_request,
    answer,
    asked,
    exchange_of,
    hash_order,
    online_node,
    pong,
    silence,
    train_request,
    view_of,
)

N, K = 6, 5
ORDER = hash_order(N, K)
READVERTISE_S = 600.0


def searching(s: int = 2) -> PlexusNode:
    """A node, last in the order, that looks for the participants of round K since time 1."""
    node = online_node(ORDER[-1], N, sample_size=s)
    node.handle(1.0, Received(ORDER[-1], aggregate_request(K, participants=1)))
    node.handle(1.0, Aggregated(K, "m5"))
    return node


def suspecting(suspect: NodeId, me: NodeId = 0) -> PlexusNode:
    """A node that heard of the suspicion from another."""
    node = online_node(me, N)
    node.handle(1.0, Received(5 if suspect != 5 else 4, ViewReply(view_suspecting(suspect))))
    assert node.membership.view.is_suspected(suspect)
    return node


def view_suspecting(suspect: NodeId, counter: int = 1) -> Snapshot:
    view = view_of(N, [])
    view.learn(suspect, event_number(counter, SUSPECTED), 100)
    return view.snapshot()


def suspicion(node: PlexusNode) -> int:
    """Its own newest event, suspected."""
    return event_number(node.membership.counter, SUSPECTED)


# Silence


def test_who_has_not_answered_after_half_of_the_time_is_pinged_again_under_the_same_number() -> None:
    node = searching()
    search = exchange_of(node, PARTICIPANTS)
    pong(node, ORDER[0], search, 1.1)
    assert node.handle(2.0, TimerFired(("ping", search))) == [
        Send((ORDER[1],), Ping(search, K)),
        SetTimer(("ping", search), 1.0),
    ]
    effects = pong(node, ORDER[1], search, 2.9)
    assert not node.sampler.is_searching(PARTICIPANTS), "an answer to the second ping is in time"
    assert reported(effects, Suspected) == []


def test_who_stays_silent_in_a_search_is_probed_and_only_then_suspected() -> None:
    node = searching()
    effects = silence(node, exchange_of(node, PARTICIPANTS), 3.0)
    assert asked(node, effects, PARTICIPANTS) == ORDER[2:4], "the search goes on without them"
    assert asked(node, effects, PROBE) == ORDER[:2]
    assert reported(effects, Suspected) == []
    probe = exchange_of(node, PROBE)
    pong(node, ORDER[0], probe, 3.1)
    effects = silence(node, probe, 5.0)
    assert reported(effects, Suspected) == [Suspected(ORDER[1])]
    assert node.membership.view.is_suspected(ORDER[1])
    assert node.membership.view.is_online(ORDER[0]), "it was only slow"


def test_a_suspect_is_told_at_once_and_unasked() -> None:
    node = searching()
    silence(node, exchange_of(node, PARTICIPANTS), 3.0)
    effects = silence(node, exchange_of(node, PROBE), 5.0)
    assert {(to, body.exchange, body.event) for to, body in sent(effects, Pong)} == {
        (suspect, HEARD_ME, event_number(1, SUSPECTED)) for suspect in ORDER[:2]
    }


def test_whoever_is_being_probed_is_not_probed_twice() -> None:
    node = searching()
    silence(node, exchange_of(node, PARTICIPANTS), 3.0)
    node.sampler.probe([ORDER[0], ORDER[1]], K)
    assert len([s for s in node.sampler.exchanges.values() if s.purpose == PROBE]) == 1


def test_a_suspect_is_no_candidate() -> None:
    node = suspecting(ORDER[0], me=ORDER[-1])
    node.handle(2.0, Received(node.me, aggregate_request(K, participants=1)))
    effects = node.handle(2.0, Aggregated(K, "m5"))
    assert asked(node, effects, PARTICIPANTS) == ORDER[1:3]


def test_a_participant_pings_somebody_when_its_training_begins_and_suspects_it_after_two_probes() -> None:
    """In a large session nobody in a sample would else notice for long that it is gone."""
    probing = [online_node(0, N, seed=seed) for seed in range(8)]
    found = [(node, node.handle(1.0, Received(1, train_request(K)))) for node in probing]
    somebody = [(node, asked(node, effects, PROBE)) for node, effects in found]
    assert all(len(nodes) <= 1 for _, nodes in somebody), "of so few, one"
    node, [probed] = next((node, nodes) for node, nodes in somebody if nodes)
    assert reported(silence(node, exchange_of(node, PROBE), 3.0), Suspected) == []
    assert reported(silence(node, exchange_of(node, PROBE), 5.0), Suspected) == [Suspected(probed)]


def test_in_a_large_session_it_pings_one_of_a_hundred_of_those_believed_online() -> None:
    counts = set()
    for seed in range(5):
        node = online_node(0, 301, known=range(250), seed=seed)
        probed = asked(node, node.handle(1.0, Received(1, train_request(K))), PROBE)
        assert set(probed) <= set(range(1, 250))
        counts.add(len(probed))
    assert counts <= {2, 3}, "itself may be drawn"
    assert 3 in counts


def waiting() -> tuple[PlexusNode, NodeId]:
    """A participant that has sent its model at time 2, and the aggregator it waits for."""
    order = hash_order(N, K + 1)
    node = online_node(order[-1], N)
    node.handle(1.0, Received(1, train_request(K)))
    for exchange, probe in list(node.sampler.exchanges.items()):
        for probed in probe.sample.waiting:
            pong(node, probed, exchange, 1.1)
    node.handle(2.0, Trained(K, "t"))
    [(aggregator, _)] = sent(answer(node, AGGREGATOR, *order[:2], now=2.0), AggregateRequest)
    return node, aggregator


LOOK = TimerFired(("look", 0))


def test_a_participant_looks_after_its_aggregator_and_if_it_is_silent_turns_to_another() -> None:
    node, aggregator = waiting()
    effects = node.handle(32.0, LOOK)
    assert asked(node, effects, PROBE) == [aggregator]
    assert SetTimer(("look", 0), 30.0) in effects, "and again"
    silence(node, exchange_of(node, PROBE), 34.0)
    effects = silence(node, exchange_of(node, PROBE), 36.0)
    assert reported(effects, Suspected) == [Suspected(aggregator)]
    assert aggregator not in asked(node, effects, AGGREGATOR) != []


def test_an_aggregator_that_answers_is_waited_for() -> None:
    node, aggregator = waiting()
    node.handle(32.0, LOOK)
    pong(node, aggregator, exchange_of(node, PROBE), 32.1)
    assert node.training.awaited == aggregator
    assert asked(node, node.handle(62.0, LOOK), PROBE) == [aggregator]


def test_who_awaits_nobody_looks_after_nobody() -> None:
    assert online_node(0, N).handle(30.0, LOOK) == []


def test_a_push_probes_one_of_the_suspects_which_may_be_behind_a_cut_that_has_healed() -> None:
    node = suspecting(ORDER[0], me=ORDER[-1])
    node.handle(2.0, Received(node.me, aggregate_request(K, participants=1)))
    node.handle(2.0, Aggregated(K, "m5"))
    effects = answer(node, PARTICIPANTS, *ORDER[1:3], now=2.1)
    assert asked(node, effects, PROBE) == [ORDER[0]]
    effects = silence(node, exchange_of(node, PROBE), 4.1)
    assert effects == [], "that is no news"


# A message from a suspect is answered


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(train_request(K), id="train"),
        pytest.param(aggregate_request(K), id="aggregate"),
        pytest.param(ViewReply(view_of(N, []).snapshot()), id="view"),
        pytest.param(Pong(77, 0, 0, event_number(2, JOINED)), id="pong"),
        pytest.param(Ping(77, 0), id="ping"),
    ],
)
def test_a_suspect_that_shows_up_hears_what_is_believed_of_it(body: object) -> None:
    node = suspecting(3)
    told = [pong.event for to, pong in sent(node.handle(2.0, Received(3, body)), Pong) if to == 3]
    assert told == [event_number(1, SUSPECTED)]


def test_two_that_suspect_each_other_do_not_tell_each_other_for_ever() -> None:
    node = suspecting(3)
    effects = node.handle(2.0, Received(3, Pong(HEARD_ME, 0, 0, suspicion(node))))
    assert sent(effects, Pong) == [], "to be told is no reason to tell"


# Refutation


def refutations(effects: list[Effect]) -> set[tuple[NodeId, int]]:
    return {(to, joined.counter) for to, joined in sent(effects, Joined)}


@pytest.mark.parametrize("by", ["pong", "view"])
def test_who_is_suspected_and_there_says_so_with_a_higher_counter(by: str) -> None:
    node = online_node(0, N)
    assert node.membership.counter == 2
    if by == "pong":
        told: object = Pong(HEARD_ME, 0, 0, suspicion(node))
    else:
        told = train_request(K, view=view_suspecting(0, counter=2))
    effects = node.handle(100.0, Received(1, told))
    assert node.membership.counter == 3
    assert refutations(effects) == {(other, 3) for other in range(1, N)}, "to P, here everybody"
    assert node.membership.view.is_online(0)
    assert SetTimer(("readvertise", 0), READVERTISE_S) in effects, "until somebody shows that it heard"


def test_suspicion_of_an_older_event_is_no_reason_to_raise_the_counter_but_to_say_the_newest() -> None:
    node = online_node(0, N)
    effects = node.handle(100.0, Received(1, Pong(HEARD_ME, 0, 0, event_number(1, SUSPECTED))))
    assert refutations(effects) == {(1, 2)}


def test_a_refutation_brings_the_suspect_back_and_its_earlier_word_does_not() -> None:
    node = suspecting(3)
    node.handle(2.0, Received(3, Joined(1, 400)))
    assert node.membership.view.is_suspected(3)
    node.handle(2.0, Received(3, Joined(2, 400)))
    assert node.membership.view.is_online(3)


def test_a_goodbye_settles_what_was_suspected() -> None:
    node = suspecting(3)
    node.handle(2.0, Received(3, Left(2)))
    assert not node.membership.view.is_suspected(3)
    assert node.membership.suspected_for_less_than(900.0) == 0


def test_who_refutes_again_soon_tells_only_a_few_and_later_all_again() -> None:
    """Somebody with a bad connection suspects many, many times: not each time has P to hear of it."""
    node = online_node(0, N, readvertise_s=READVERTISE_S)
    told = []
    for now in (100.0, 101.0, 102.0, 102.0 + CALM * READVERTISE_S):
        effects = node.handle(now, Received(1, Pong(HEARD_ME, 0, 0, suspicion(node))))
        told.append({to for to, _ in refutations(effects)})
    few = node.parameters.readvertise_to
    assert all(1 in to for to in told), "who said so is told first of all"
    assert [len(to) for to in told] in ([N - 1, few + a, few + b, N - 1] for a in (0, 1) for b in (0, 1))
    assert node.membership.counter == 6, "each is an event of its own"


def test_whoever_claims_the_last_number_cannot_be_suspected() -> None:
    """After it there is none by which it could refute that."""
    node = searching()
    node.handle(1.0, Received(ORDER[0], Joined(MAX_COUNTER, 100)))
    silence(node, exchange_of(node, PARTICIPANTS), 3.0)
    effects = silence(node, exchange_of(node, PROBE), 5.0)
    assert reported(effects, Suspected) == [Suspected(ORDER[1])]
    assert node.membership.view.event_of(ORDER[0]) == LAST


def test_whoever_is_told_of_an_event_beyond_the_last_does_not_believe_it() -> None:
    node = online_node(0, N)
    assert node.handle(1.0, Received(1, Pong(HEARD_ME, 0, 0, LAST + 1))) == []
    assert node.membership.counter == 2
    assert node.membership.view.is_online(0)


def test_whoever_is_expelled_is_not_suspected_not_told_and_not_brought_back() -> None:
    node = suspecting(3)
    node.handle(2.0, Expelled(3))
    view = node.membership.view
    assert not view.is_suspected(3)
    assert sent(node.handle(2.0, Received(3, train_request(K))), Pong) == []
    node.handle(3.0, Received(3, Joined(MAX_COUNTER, 400)))
    node.handle(3.0, Received(4, train_request(K + 1, view=view_suspecting(3, counter=9))))
    assert not view.is_online(3)
    assert not view.is_suspected(3)
    assert node.membership.suspected_for_less_than(900.0) == 0


# In a session


def test_all_hear_that_one_is_gone_and_all_hear_when_it_is_back() -> None:
    session = Exchange(N, sample_size=3)
    session.go_online(*range(N))
    session.run_until(session.has_aggregated(3))
    session.crash(2)
    others = sorted(session.online)
    session.run_until(
        lambda: all(session.nodes[n].membership.view.is_suspected(2) for n in others), session.now + 300
    )
    session.go_online(2)
    session.run_until(
        lambda: all(session.nodes[n].membership.view.is_online(2) for n in others), session.now + 300
    )


def test_who_was_cut_off_for_a_while_is_found_again_without_a_word_of_its_own_accord() -> None:
    """Each push probes one of the suspects, which hears of the suspicion and refutes it."""
    until_s = 300.0

    def delays(src: NodeId, dst: NodeId, body: object) -> tuple[float, ...]:
        return () if 50.0 < session.now < until_s and 2 in (src, dst) else (0.05,)

    session = Exchange(N, sample_size=3, delays=delays)
    session.go_online(*range(N))
    session.run(until_s)
    assert all(node.membership.view.is_suspected(2) for node in session.nodes if node.me != 2)
    session.run_until(
        lambda: all(node.membership.view.is_online(2) for node in session.nodes), session.now + 300
    )
