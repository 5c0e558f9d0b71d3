"""Section III-E, Handling Joining and Leaving Nodes."""

from __future__ import annotations

from unittest.mock import ANY

import pytest

from plexus.protocol.api import Durable, Effect, Received, Save, Send, SetTimer, Trained, WentOffline
from plexus.protocol.facts import AggregationCompleted, SampleDerived
from plexus.protocol.messages import AggregateRequest, Joined, Left, Message, NodeId, Pong, TrainRequest
from plexus.protocol.plexus import AGGREGATOR
from plexus.protocol.view import JOINED, LEFT, View, counter_of, event_number
from plexus.testing.exchange import INITIAL, sent
from tests.protocol.kit import (
    Exchange,
    aggregate_request,
    answer,
    bandwidth_of,
    come_online,
    hash_order,
    make_node,
    online_node,
    snapshot_of,
    train_request,
)

N = 6


def joined(counter: int) -> int:
    return event_number(counter, JOINED)


def left(counter: int) -> int:
    return event_number(counter, LEFT)


def told(effects: list[Effect]) -> list[NodeId]:
    return [to for to, body in sent(effects) if isinstance(body, Joined | Left)]


@pytest.mark.parametrize("graceful", [True, False])
@pytest.mark.parametrize("role", ["training", "aggregating"])
def test_e01_nodes_may_go_even_while_they_train_or_aggregate(graceful: bool, role: str) -> None:
    """III-E: membership is dynamic; participants go on- and offline, also in the middle of their work."""
    exchange = Exchange(N, sample_size=3, success_fraction=1.0)
    exchange.go_online(*range(N))
    exchange.run_until(exchange.has_aggregated(3))
    if role == "training":
        exchange.run_until(lambda: bool(exchange.training))
        victim = min(exchange.training)
    else:
        exchange.run_until(lambda: any(n.aggregation.collecting for n in exchange.nodes))
        [victim] = [n.me for n in exchange.nodes if n.aggregation.collecting]
    (exchange.leave if graceful else exchange.crash)(victim)
    exchange.run_until(exchange.has_aggregated(8), limit_s=exchange.now + 2000)
    exchange.go_online(victim)
    exchange.run_until(lambda: victim in exchange.training, limit_s=exchange.now + 1000)


def test_e02_the_status_of_nodes_is_tracked_in_the_view() -> None:
    """III-E: to avoid sampling offline nodes, the view tracks who is online or offline."""
    node = online_node(0, N)
    node.handle(1.0, Received(3, Left(2)))
    for k in range(1, 20):
        assert 3 not in node.roster.candidates(node.membership.view, k)
    node.handle(2.0, Received(3, Joined(3, 100)))
    for k in range(1, 20):
        assert 3 in node.roster.candidates(node.membership.view, k)


def test_e03_the_view_has_the_most_recent_event_of_each_node() -> None:
    """III-E: E_i maps each identifier to its most recent joined or left event."""
    view = View.of(N)
    for event in (joined(1), left(4), left(2), joined(3)):
        view.learn(2, event)
    assert view.event_of(2) == left(4)


def test_e04_each_event_has_a_number_from_a_persistent_counter() -> None:
    """III-E: events of node i are numbered by a local counter c_i, which is persistent."""
    first = online_node(0, N)
    [save] = [e for e in first.handle(9.0, WentOffline()) if isinstance(e, Save)]
    again = make_node(0, N, known=[], durable=save.state)
    [(_, message), *_] = sent(come_online(again), Joined)
    assert message.counter == save.state.counter + 1


def test_e05_only_its_owner_increments_a_counter() -> None:
    """III-E: c_i is incremented on each joined or left event, and by node i alone."""
    exchange = Exchange(N, known=[])
    exchange.go_online(*range(N))
    counts = dict.fromkeys(range(N), 1)
    for at, node in enumerate([2, 4, 2, 5, 2]):
        exchange.run(20.0 * (at + 1))
        if node in exchange.online:
            exchange.leave(node)
        else:
            exchange.go_online(node)
        counts[node] += 1
    exchange.run(300.0)
    for node in exchange.nodes:
        for other in range(N):
            assert counter_of(node.membership.view.event_of(other)) <= counts[other]
        assert node.membership.counter == counts[node.me]


def test_e06_the_counter_has_nothing_to_do_with_rounds() -> None:
    """III-E: the counter is independent of the rounds of learning."""
    exchange = Exchange(N, known=[])
    exchange.go_online(*range(N))
    exchange.run_until(exchange.has_aggregated(30))
    assert {node.membership.counter for node in exchange.nodes} == {1}


def test_e07_an_entry_is_an_event_with_its_number() -> None:
    """III-E: the entry <2, (join, 3)> is the join number 3 of node 2."""
    node = online_node(0, N)
    node.handle(1.0, Received(2, Joined(3, 100)))
    assert node.membership.view.event_of(2) == joined(3)
    assert counter_of(node.membership.view.event_of(2)) == 3
    assert node.membership.view.is_online(2)


def test_e08_the_view_has_the_bandwidth_of_other_nodes() -> None:
    """III-E: B_i stores the bandwidth of other nodes."""
    node = online_node(0, N)
    node.handle(1.0, Received(2, Joined(3, 4321)))
    assert node.membership.view.bandwidth_of(2) == 4321


def test_e09_this_bandwidth_decides_who_aggregates() -> None:
    """III-E: the bandwidths are used to select the aggregator within a sample."""
    first = hash_order(N, 5)[:2]
    for fast in first:
        node = online_node(hash_order(N, 5)[2], N)
        node.handle(0.5, Received(fast, Joined(3, 10**6)))
        node.handle(1.0, Received(fast, train_request(4)))
        node.handle(2.0, Trained(4, "t"))
        effects = answer(node, AGGREGATOR, *first, now=2.1)
        assert [to for to, _ in sent(effects, AggregateRequest)] == [fast]


def test_e10_events_and_bandwidths_together_are_the_view() -> None:
    """III-E: the two dictionaries (E_i, B_i) form the complete view V_i."""
    view = View.of(3, [(0, 10), (2, 30)])
    snapshot = view.snapshot()
    assert snapshot.events.tolist() == [joined(1), 0, joined(1)]
    assert snapshot.bandwidths.tolist() == [10, 0, 30]


@pytest.mark.parametrize("times", [1, 2, 3])
def test_e11_who_joins_raises_its_counter_and_records_the_event_first(times: int) -> None:
    """III-E: joining, for the first time or again, increments c_i, then updates the own view."""
    node = make_node(0, N, known=[])
    for _ in range(times - 1):
        come_online(node, 0.0)
        node.handle(1.0, WentOffline())
    effects = come_online(node, 2.0)
    assert node.membership.view.event_of(0) == joined(2 * times - 1)
    first = next(effect for effect in effects if not isinstance(effect, SetTimer))
    assert first == Save(Durable(2 * times - 1, 0, INITIAL, ANY)), "before anybody is told"


def test_e12_it_advertises_itself_to_a_random_set_with_its_counter() -> None:
    """III-E: then it tells a random set P with a joined message that has its latest c_i. Here: after it asked
    a few whom they know, and told those."""
    sets = set()
    for seed in range(20):
        node = make_node(0, 50, known=range(50), advertise_size=7, seed=seed)
        effects = come_online(node)
        assert {message for _, message in sent(effects, Joined)} == {Joined(2, bandwidth_of(0))}
        *_, p = [e.to for e in effects if isinstance(e, Send) and isinstance(e.body, Joined)]
        assert len(set(p)) == 7
        sets.add(frozenset(p))
    assert len(sets) == 20


def test_e13_a_joined_message_counts_only_if_its_counter_is_larger() -> None:
    """III-E: the receiver updates its entry if the counter is larger than the one stored."""
    node = online_node(0, N, known=[])
    view = node.membership.view
    for counter, known in ((4, 4), (3, 4), (4, 4), (6, 6), (1, 6)):
        node.handle(1.0, Received(2, Joined(counter, 100)))
        assert view.event_of(2) == joined(known)


def test_e14_leaving_is_the_same_with_a_left_event() -> None:
    """III-E: leaving works like joining: counter, own view, random set; stored is a left event."""
    node = online_node(0, 50, advertise_size=7)
    effects = node.handle(5.0, WentOffline())
    assert node.membership.view.event_of(0) == left(3)
    assert effects[0] == Save(Durable(3, 0, INITIAL, ANY))
    assert len(set(told(effects))) == 7
    receiver = online_node(1, 50)
    for counter, known in ((3, left(3)), (2, left(3)), (5, left(5))):
        receiver.handle(6.0, Received(0, Left(counter)))
        assert receiver.membership.view.event_of(0) == known


def test_e15_a_larger_set_keeps_more_views_in_step_for_more_messages() -> None:
    """III-E: increasing |P| synchronises views at the cost of communication."""
    informed, messages = [], []
    for size in (2, 10, 30):
        exchange = Exchange(40, sample_size=2, advertise_size=size)
        exchange.go_online(*range(40))
        exchange.run(3.0)
        before = len(exchange.messages)
        exchange.leave(7)
        exchange.run(4.0)
        informed.append(sum(not n.membership.view.is_online(7) for n in exchange.nodes) - 1)
        messages.append(len(exchange.messages) - before)
    assert informed == messages == [2, 10, 30]


def test_e16_views_ride_on_the_messages_that_carry_models() -> None:
    """III-E: views are exchanged with train and aggregate messages, and with no others."""
    exchange = Exchange(N, sample_size=3)
    exchange.go_online(*range(N))
    exchange.run_until(exchange.has_aggregated(4))
    with_view = {type(body) for _, _, _, body in exchange.messages if hasattr(body, "view")}
    assert with_view == {TrainRequest, AggregateRequest}
    assert {type(b) for _, _, _, b in exchange.messages if hasattr(b, "model")} == with_view


@pytest.mark.parametrize("kind", [TrainRequest, AggregateRequest])
def test_e17_a_received_view_is_merged_by_adopting_what_is_more_recent(kind: type[Message]) -> None:
    """III-E: node i merges V_j by adopting the more recent events in E_j."""
    node = online_node(0, N)
    for counter, online, src in ((5, False, 2), (5, True, 3)):
        message = Joined(counter, 100) if online else Left(counter)
        node.handle(0.5, Received(src, message))
    view = snapshot_of(N, (1, 8, False), (2, 4, True), (3, 6, False), (4, 1, True))
    message = train_request(3, view=view) if kind is TrainRequest else aggregate_request(3, view=view)
    node.handle(1.0, Received(5, message))
    known = [node.membership.view.event_of(other) for other in range(1, 5)]
    assert known == [left(8), left(5), left(6), joined(1)]


def test_e18_the_most_recent_event_alone_says_who_is_online() -> None:
    """III-E: only the latest event is kept: joined means online, left means offline."""
    view = View.of(N)
    for counter in range(1, 9):
        online = bool(counter % 2)
        view.learn(3, event_number(counter, JOINED if online else LEFT))
        assert view.is_online(3) == online
        assert view.snapshot().known == 1


def newcomer_known_to(j: NodeId) -> tuple[Exchange, NodeId]:
    """A session in which a newcomer, last in number, reached node j alone when it joined."""
    n = 9
    newcomer = n - 1

    def delays(src: NodeId, dst: NodeId, body: Message) -> list[float]:
        return [] if isinstance(body, Joined) and src == newcomer and dst != j else [0.1]

    exchange = Exchange(n, sample_size=3, success_fraction=1.0, known=range(n - 1), delays=delays)
    exchange.go_online(*range(n - 1))
    exchange.run_until(lambda: exchange.has_aggregated(3)() and j in exchange.training)
    exchange.go_online(newcomer)
    exchange.run_until(lambda: not exchange.nodes[newcomer].joining.is_under_way)
    exchange.run(exchange.now + 0.1)
    assert [n.me for n in exchange.nodes[:-1] if n.membership.view.is_online(newcomer)] == [j]
    return exchange, newcomer


@pytest.mark.parametrize("j", [0, 2, 5])
def test_e19_who_told_a_participant_is_a_candidate_in_the_next_round(j: NodeId) -> None:
    """III-E: if one node of P is a participant of round k, the newcomer is a candidate for k + 1."""
    exchange, newcomer = newcomer_known_to(j)
    k = exchange.nodes[j].training.ordinal
    exchange.run_until(exchange.has_aggregated(k + 1))
    [aggregator] = [n for _, n, fact in exchange.of(AggregationCompleted) if fact.ordinal == k + 1]
    node = exchange.nodes[aggregator]
    assert newcomer in node.roster.candidates(node.membership.view, exchange.numbers[k + 1])


def test_e20_because_the_participants_view_reaches_the_next_sample() -> None:
    """III-E: node j's view has the newcomer's event and propagates to the sample of round k + 1."""
    exchange, newcomer = newcomer_known_to(0)
    k = exchange.nodes[0].training.ordinal
    exchange.run_until(exchange.has_aggregated(k + 1))
    exchange.run(exchange.now + 3.0)
    pushes = [b for _, _, _, b in exchange.messages if isinstance(b, TrainRequest) and b.ordinal == k + 1]
    assert pushes
    assert all(push.view.events[newcomer] & 3 == JOINED for push in pushes)


def test_e21_thereafter_everybody_is_informed() -> None:
    """III-E: as views become consistent each participant knows whether node i is available."""
    exchange, newcomer = newcomer_known_to(0)
    exchange.run(exchange.now + 200.0)
    assert all(node.membership.view.is_online(newcomer) for node in exchange.nodes)


def test_e22_a_join_that_nobody_heard_is_told_to_others() -> None:
    """III-E: if no reliable node was reached the network is oblivious, so others are told later."""
    lost_until_s = 100.0
    exchange = Exchange(N, known=range(N - 1), delays=lambda src, dst, body: delays(src))

    def delays(src: NodeId) -> list[float]:
        return [] if src == N - 1 and exchange.now < lost_until_s else [0.1]

    exchange.go_online(*range(N))
    exchange.run(lost_until_s)
    assert not any(n.membership.view.is_online(N - 1) for n in exchange.nodes[:-1])
    exchange.run(1000.0)
    assert all(n.membership.view.is_online(N - 1) for n in exchange.nodes)


def test_e23_a_departure_is_told_to_at_least_one_online_node() -> None:
    """III-E: by default a node advertises its departure to at least one online node."""
    for seed in range(20):
        node = online_node(0, 40, known=[0, 5], advertise_size=3, seed=seed)
        assert 5 in told(node.handle(5.0, WentOffline()))


def test_e24_where_that_is_not_possible_pings_find_out() -> None:
    """III-E: a device may fail without a word; views still say online, but it is in no sample. Here: and soon
    all who ask it in vain, or hear from such, suspect it to be gone."""
    exchange = Exchange(N, sample_size=2)
    exchange.go_online(*range(N))
    exchange.run_until(exchange.has_aggregated(3))
    exchange.crash(1)
    assert all(n.membership.view.is_online(1) for n in exchange.nodes)
    since_s = exchange.now
    exchange.run_until(exchange.has_aggregated(15), limit_s=3000)
    assert all(exchange.nodes[n].membership.view.is_suspected(1) for n in exchange.online)
    samples = [f.sample for at, _, f in exchange.of(SampleDerived) if at > since_s + 3]
    assert samples
    assert not any(1 in sample for sample in samples)


@pytest.mark.parametrize("late", [Pong, AggregateRequest, TrainRequest, "Ack"])
def test_e25_timeouts_handle_messages_that_come_late(late: type[Message] | str) -> None:
    """III-E: Δt_p, Δt_agg and Δt_ack guard against delayed messages, even from nodes that are online."""
    name = late if isinstance(late, str) else late.__name__

    def delays(src: NodeId, dst: NodeId, body: Message) -> list[float]:
        slow = src == 2 and type(body).__name__ == name
        return [1000.0 if slow else 0.1]

    exchange = Exchange(N, sample_size=3, delays=delays)
    exchange.go_online(*range(N))
    exchange.run(4000.0)
    assert len(exchange.rounds) > 20
    assert max(exchange.rounds) > 20
