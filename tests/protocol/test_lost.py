"""What the node decides when the runtime knows that something did not arrive, or that a connection broke."""

from __future__ import annotations

import pytest

from plexus.protocol.api import (
    Aggregated,
    Effect,
    Offered,
    PeerLost,
    Received,
    SetTimer,
    TimerFired,
    Train,
    Trained,
    Undelivered,
)
from plexus.protocol.membership import HEARD_ME
from plexus.protocol.messages import Ack, AggregateRequest, Joined, Left, Message, Ping
from plexus.protocol.plexus import AGGREGATOR, PlexusNode
from plexus.protocol.training import ACK
from plexus.protocol.watchdog import WATCHDOG
from plexus.testing.exchange import sent
from tests.protocol.kit import (
    aggregate_request,
    asked,
    hash_order,
    online_node,
    pong,
    silence,
    snapshot_of,
    train_request,
)

K, N = 5, 6


def waiting_node() -> tuple[PlexusNode, AggregateRequest]:
    """A participant of round K that has sent its model and waits for the acknowledgement."""
    node = online_node(hash_order(N, K + 1)[-1], N, sample_size=2)
    node.handle(1.0, Received(1, train_request(K, "m5")))
    effects = node.handle(2.0, Trained(K, "t"))
    for other, ping in sent(effects, Ping):
        effects += pong(node, other, ping.exchange, 2.1, k=K, held=K)
    [(aggregator, request)] = sent(effects, AggregateRequest)
    assert node.training.awaited == aggregator
    return node, request


def asks_again(effects: list[Effect]) -> bool:
    return {body.round for _, body in sent(effects, Ping)} == {K + 1}


def test_a_model_that_did_not_arrive_goes_to_another_aggregator_at_once() -> None:
    node, request = waiting_node()
    lost = node.training.awaited
    assert lost is not None
    effects = node.handle(3.0, Undelivered(lost, request))
    assert asks_again(effects)
    for other, ping in sent(effects, Ping):
        effects += pong(node, other, ping.exchange, 3.1, k=K, held=K)
    [(second, _)] = sent(effects, AggregateRequest)
    assert second != lost


@pytest.mark.parametrize("declined", [True, False])
def test_a_model_of_a_complete_round_counts_as_acknowledged(declined: bool) -> None:
    """The aggregator had no use for it, or word of the next round came while it was on its way."""
    node, request = waiting_node()
    lost = node.training.awaited
    assert lost is not None
    if not declined:
        node.handle(2.5, Received(3, Ping(9, K + 2)))
        assert node.is_obsolete(request)
    effects = node.handle(3.0, Undelivered(lost, request, declined))
    assert not asks_again(effects)
    assert not node.training.busy


@pytest.mark.parametrize("body", [aggregate_request(K, "old"), train_request(K), Left(3), Ack(K + 1)])
def test_what_else_did_not_arrive_changes_nothing(body: Message) -> None:
    node, request = waiting_node()
    awaited = node.training.awaited
    assert awaited is not None
    assert node.handle(3.0, Undelivered(awaited, body)) == []
    assert node.handle(3.0, Undelivered((awaited + 1) % N, request)) == [], "to one that is not awaited"
    assert node.training.awaited == awaited


def test_when_the_connection_to_the_awaited_aggregator_breaks_it_is_asked_and_if_gone_replaced() -> None:
    node, _ = waiting_node()
    awaited = node.training.awaited
    assert awaited is not None
    assert node.handle(3.0, PeerLost((awaited + 1) % N)) == []
    [(asked, ping)] = sent(node.handle(3.0, PeerLost(awaited)))
    assert (asked, ping) == (awaited, Ping(HEARD_ME, K))
    assert asks_again(node.handle(3.1, Undelivered(awaited, ping)))


@pytest.mark.parametrize("speaks", [False, True])
@pytest.mark.parametrize("goes_on", [False, True])
def test_when_who_has_the_models_vanishes_a_restart_is_not_far_unless_somebody_goes_on(
    goes_on: bool, speaks: bool
) -> None:
    """Whoever has them may speak of the next round before anybody else has what it made."""
    node, request = waiting_node()
    aggregator = node.training.awaited
    assert aggregator is not None
    node.handle(3.0, Received(aggregator, Ack(request.round, used=1)))
    if speaks:
        node.handle(3.2, Received(aggregator, Ping(8, request.round + 1)))
    if goes_on:
        other = (aggregator + 1) % N
        node.handle(3.5, Received(other, Ping(9, request.round + 1)))
    effects = node.handle(4.0, PeerLost(aggregator))
    soon_s = node.parameters.ack_timeout_s / 2
    timers = [effect for effect in effects if isinstance(effect, SetTimer) and effect.key == WATCHDOG]
    assert [timer.delay_s < soon_s for timer in timers] == ([] if goes_on else [True])
    effects = node.handle(4.0 + soon_s, TimerFired(WATCHDOG))
    assert bool(sent(effects, Ping)) != goes_on


def test_who_waits_for_nobody_is_not_concerned() -> None:
    node = online_node(0, N)
    assert node.handle(1.0, PeerLost(1)) == []
    assert node.handle(1.0, Undelivered(1, Ping(HEARD_ME, K))) == []


def test_a_candidate_that_cannot_be_asked_is_waited_for_like_one_that_is_silent() -> None:
    """A node that is cut off knows at once that nothing gets out: it must not race through rounds alone."""
    node = online_node(hash_order(N, K + 1)[-1], N, sample_size=2)
    node.handle(1.0, Received(1, train_request(K, "m5")))
    (first, ping), (second, _) = sent(node.handle(2.0, Trained(K, "t")), Ping)
    assert node.handle(2.1, Undelivered(first, ping)) == node.handle(2.1, Undelivered(second, ping)) == []
    assert node.sampler.is_searching(AGGREGATOR)
    others = asked(node, silence(node, ping.exchange, 4.0), AGGREGATOR)
    assert others == hash_order(N, K + 1)[2:4]


def test_what_a_sender_knows_is_of_use_before_its_model_is_there_and_even_if_that_is_not() -> None:
    node = online_node(0, N)
    late = aggregate_request(1, view=snapshot_of(N, (3, 9, False)))
    node.handle(1.0, Received(1, Ping(9, K)))
    assert node.is_obsolete(late)
    assert node.handle(2.0, Offered(1, late)) == []
    assert not node.membership.view.is_online(3)


def test_word_that_the_awaited_aggregator_left_comes_ahead_of_a_model() -> None:
    node, _ = waiting_node()
    awaited = node.training.awaited
    assert awaited is not None
    view = snapshot_of(N, (awaited, 9, False))
    assert asks_again(node.handle(3.0, Offered(1, train_request(K, view=view))))


def test_an_aggregator_whose_round_was_completed_elsewhere_says_that_it_is_there() -> None:
    """Whoever completed it does not know of this node, or its models had come here too."""
    node = online_node(0, N)
    request = aggregate_request(K)
    effects = node.handle(1.0, Undelivered(0, request))
    assert {type(body) for _, body in sent(effects)} == {Joined}
    node.handle(2.0, Received(1, request))
    assert node.handle(3.0, Undelivered(0, request)) == [], "it is the aggregator of that round"
    assert node.handle(3.0, Undelivered(0, train_request(K))) == []


def test_which_messages_are_obsolete() -> None:
    node = online_node(0, N)
    node.handle(1.0, Received(1, Ping(9, K)))  # somebody works on round K, so K - 1 is complete
    rounds = range(1, K + 2)
    for_aggregator = [k for k in rounds if node.is_obsolete(aggregate_request(k))]
    assert for_aggregator == list(range(1, K))
    assert not node.is_obsolete(train_request(1)), "its view is of use in any case"
    assert not node.is_obsolete(Ack(1))


def test_an_aggregator_has_no_use_for_models_of_the_round_it_completed() -> None:
    node = online_node(0, N)
    node.handle(1.0, Received(1, aggregate_request(K, participants=1)))
    late = aggregate_request(K, "late", participants=1)
    assert not node.is_obsolete(late)
    node.handle(1.0, Aggregated(K, "m"))
    assert node.is_obsolete(late)


def test_a_node_without_its_aggregator_goes_on_training_when_asked() -> None:
    node, request = waiting_node()
    awaited = node.training.awaited
    assert awaited is not None
    effects = node.handle(3.0, Received(2, train_request(K + 1, "m6")))
    assert Train(K + 1, "m6") in effects
    assert not asks_again(node.handle(3.1, Undelivered(awaited, request)))
    assert ACK not in [getattr(effect, "key", None) for effect in node.handle(3.2, PeerLost(awaited))]
