"""The beginning of a session, its end, and how it goes on after everybody was gone."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from plexus.protocol.api import (
    Aggregated,
    Durable,
    Measured,
    PeerLost,
    Received,
    Report,
    SetTimer,
    TimerFired,
    Train,
    Trained,
)
from plexus.protocol.facts import (
    AggregationCompleted,
    EndClaimed,
    EndRevoked,
    FinalHeld,
    Refused,
    RoundRestarted,
    SessionEnded,
    TrainingStarted,
)
from plexus.protocol.messages import Ended, FinalModel, FinalRequest, Message, Ping, Score, TrainRequest
from plexus.protocol.parameters import Course, condition, unknown_metric
from plexus.protocol.quorum import RESTART
from plexus.protocol.view import LEFT, event_number
from plexus.testing.exchange import reported, sent
from tests.protocol.kit import (
    Exchange,
    aggregate_request,
    come_online,
    hash_order,
    make_node,
    online_node,
    pong,
    train_request,
)

N = 6
SHORT: dict[str, Any] = {"sample_size": 3, "aggregation_timeout_s": 20.0, "ack_timeout_s": 60.0}
THE_END, TO_AGGREGATE = "the end of the session", "to aggregate"


def session(n: int = N, **course: Any) -> Exchange:
    return Exchange(n, course=Course(**course), **SHORT)


# The beginning


def test_nobody_trains_before_enough_are_there() -> None:
    exchange = Exchange(N, known=[], course=Course(start_with=3), **SHORT)
    exchange.go_online(0, 1)
    for node in (0, 1):  # they know of each other, as if they had joined the same member
        exchange.nodes[node].view.merge(exchange.nodes[1 - node].view.snapshot())
    exchange.run(5000)
    assert exchange.of(TrainingStarted) == []
    for node in (2, 0):
        exchange.nodes[node].view.merge(exchange.nodes[1].view.snapshot())
    exchange.go_online(2)
    exchange.run_until(exchange.has_aggregated(3))
    trained = {node for _, node, fact in exchange.of(TrainingStarted) if fact.ordinal == 1}
    assert trained == {0, 1, 2}


def test_silent_members_do_not_count() -> None:
    """The view may be old: those who are in it and do not answer are not there."""
    exchange = session(start_with=3)
    exchange.go_online(0, 1)
    exchange.run(850)
    assert exchange.of(TrainingStarted) == []
    exchange.go_online(2, 3)
    exchange.run_until(exchange.has_aggregated(2))


def test_without_the_key_one_is_enough() -> None:
    exchange = Exchange(N, known=[0], **SHORT)
    exchange.go_online(0)
    exchange.run_until(exchange.has_aggregated(2))


@pytest.mark.parametrize(
    ("nodes", "size", "least"), [(1, 5, 1), (2, 5, 2), (3, 5, 2), (8, 13, 4), (60, 13, 13), (9, 1, 1)]
)
def test_live_half_of_the_nodes_begin(nodes: int, size: int, least: int) -> None:
    assert Course().live(nodes, size).start_with == least
    assert Course(start_with=2, rounds=9).live(nodes, size) == Course(start_with=2, rounds=9)


# The end


def test_the_session_ends_with_its_last_round_and_everybody_gets_its_model() -> None:
    exchange = session(rounds=5)
    exchange.go_online(*range(N))
    exchange.run_until(lambda: len(exchange.of(FinalHeld)) == N)
    [final] = {(fact.round, fact.ordinal, fact.model) for _, _, fact in exchange.of(FinalHeld)}
    assert final[1] == 5
    before = len(exchange.of(TrainingStarted))
    exchange.run(exchange.now + 10_000)
    assert len(exchange.of(TrainingStarted)) == before, "nobody goes on"
    assert max(exchange.rounds) == 5
    assert all(node.ending.is_known_to_all for node in exchange.nodes)
    assert {(state.ended, state.round, state.model) for state in exchange.saved.values()} == {
        (final[0], final[0], final[2])
    }


@pytest.mark.parametrize("models", [1, 2])
def test_what_one_alone_has_trained_does_not_end_the_session(models: int) -> None:
    """It was cut off, and is found again when it has waited for the others' models in vain."""
    node = online_node(0, 3, course=Course(rounds=5), **SHORT)
    for src in range(models):
        node.handle(1.0, Received(src, aggregate_request(5, f"t{src}", participants=3)))
    effects = node.handle(21.0, TimerFired(("aggregation", 0))) + node.handle(21.0, Aggregated(5, "m5"))
    for other, ping in sent(effects, Ping):
        effects += pong(node, other, ping.exchange, 21.1, k=5)
    assert bool(reported(effects, SessionEnded)) == (models > 1)
    assert bool(sent(effects, TrainRequest)) == (models == 1)


def test_no_round_is_started_again_because_who_ended_the_session_dies() -> None:
    exchange = session(rounds=5)
    exchange.go_online(*range(N))
    exchange.run_until(lambda: len(exchange.of(FinalHeld)) == N)
    [(_, root, _)] = exchange.of(SessionEnded)[:1]
    exchange.crash(root)
    others = [node for node in range(N) if node != root]
    assert [exchange.nodes[node].handle(exchange.now, PeerLost(root)) for node in others] == [[]] * (N - 1)


def test_nobody_sends_the_final_model_to_more_than_a_sample() -> None:
    exchange = session(40, rounds=3)
    exchange.go_online(*range(40))
    exchange.run_until(lambda: len(exchange.of(FinalHeld)) == 40)
    senders = [src for _, src, _, body in exchange.messages if isinstance(body, FinalModel)]
    assert len(senders) == 39
    # The root has those who ask it because it told them, and its own place in the tree.
    assert max(senders.count(node) for node in range(40)) <= 2 * SHORT["sample_size"]


def test_who_was_away_hears_of_the_end_when_it_comes_back() -> None:
    exchange = session(rounds=4)
    exchange.go_online(*range(N))
    exchange.run_until(exchange.has_aggregated(2))
    exchange.crash(0)
    exchange.run_until(lambda: len(exchange.of(FinalHeld)) == N - 1)
    exchange.run(exchange.now + 500)
    assert any(node.view.is_suspected(0) for node in exchange.nodes[1:])
    assert not any(node.ending.is_known_to_all for node in exchange.nodes), "they stay for who was killed"
    exchange.restart(0)
    exchange.run_until(lambda: len(exchange.of(FinalHeld)) == N)
    assert len({state.model for state in exchange.saved.values()}) == 1
    exchange.run(exchange.now + 10)
    assert all(node.ending.is_known_to_all for node in exchange.nodes)


@pytest.mark.parametrize("away", [0, N - 1])
@pytest.mark.parametrize("wary", [False, True])
@pytest.mark.parametrize("later_s", range(0, 24, 3))
def test_who_is_cut_off_near_the_end_gets_the_same_model(away: int, wary: bool, later_s: int) -> None:
    """It neither ends the session by itself, with what it alone trained, nor waits until nobody is left."""
    is_cut = False

    def delays(src: int, dst: int, body: Message) -> tuple[float, ...]:
        return () if is_cut and away in (src, dst) else exchange.usual_delays(src, dst, body)

    every = {**SHORT, "sample_size": N, "watchdog_s": 90.0}
    exchange = Exchange(N, course=Course(rounds=6), delays=delays, signed_views=wary, **every)
    exchange.go_online(*range(N))
    exchange.run_until(exchange.has_aggregated(4))
    exchange.run(exchange.now + later_s)
    is_cut = True
    exchange.run(exchange.now + 20.0)
    is_cut = False
    ended = exchange.run_until(lambda: bool(exchange.of(SessionEnded))).now
    exchange.run(max(ended, exchange.now) + SHORT["ack_timeout_s"] / 2)
    assert {node.ending.round for node in exchange.nodes} == {node.held_round for node in exchange.nodes}
    assert len({node.ending.round for node in exchange.nodes}) == 1
    receivers = {dst for _, _, dst, body in exchange.messages if isinstance(body, FinalModel)}
    assert len(receivers) == N - 1, "all but one have got it from others"
    assert all(node.ending.is_known_to_all for node in exchange.nodes)


def test_of_two_who_end_the_session_with_one_round_one_prevails() -> None:
    exchange = session(until="accuracy >= 0.9")
    exchange.go_online(*range(N))
    exchange.run_until(exchange.has_aggregated(4))
    k = max(exchange.numbers.values())
    for node in (2, 4):
        exchange.deliver(node, Measured(k, 4, f"m{k}@{node}", 0.95, {"accuracy": 0.95}))
    exchange.run(exchange.now + SHORT["ack_timeout_s"])
    assert len({node.held_model for node in exchange.nodes}) == 1


def test_the_end_survives_a_restart_of_all_and_the_model_is_still_passed_on() -> None:
    exchange = session(rounds=4)
    exchange.go_online(*range(1, N))
    exchange.run_until(lambda: len(exchange.of(FinalHeld)) == N - 1)
    for node in range(1, N):
        exchange.crash(node)
    for node in range(N):
        exchange.restart(node)
    exchange.run_until(lambda: 0 in {node for _, node, _ in exchange.of(FinalHeld)})
    exchange.run(exchange.now + 5000)
    assert max(exchange.rounds) == 4


def test_who_knew_of_the_end_and_had_not_got_the_model_asks_for_it_again() -> None:
    node = make_node(0, 4, durable=Durable(3, 10, "old", None, 10, 20), course=Course(rounds=20))
    effects = come_online(node)
    assert SetTimer(("final", 0), 2.0) in effects
    effects = node.handle(1.0, Received(2, Ended(20, 20, 1)))
    effects = node.handle(2.0, TimerFired(("final", 0)))
    [(other, request)] = sent(effects, FinalRequest)
    assert request.round == 20
    effects = node.handle(3.0, Received(other, FinalModel(20, 20, "final")))
    assert reported(effects, FinalHeld) == [FinalHeld(20, 20, "final")]
    assert node.held_model == "final"


def test_if_the_last_aggregator_vanishes_another_ends_the_session() -> None:
    exchange = session(rounds=4)
    exchange.go_online(*range(N))
    exchange.run_until(exchange.has_aggregated(3))
    exchange.run_until(lambda: bool(exchange.of(SessionEnded)))
    [(_, first, _)] = exchange.of(SessionEnded)[:1]
    exchange.crash(first)  # all hear of the end, and nobody has the model
    exchange.run_until(lambda: len({node for _, node, _ in exchange.of(FinalHeld)} - {first}) == N - 1, 1e4)
    assert len(exchange.of(EndRevoked)) == N - 1
    exchange.restart(first)
    exchange.run(exchange.now + 2000)
    models = {exchange.nodes[node].held_model for node in range(N)}
    assert len(models) == 1, "of two ends the one with the larger round prevails"


def test_a_measured_model_that_is_good_enough_ends_the_session_though_others_are_further() -> None:
    exchange = session(until="accuracy >= 0.9")
    exchange.go_online(*range(N))
    exchange.run_until(exchange.has_aggregated(6))
    at = [(node, fact) for _, node, fact in exchange.facts if getattr(fact, "ordinal", 0) == 4]
    node, fact = next((node, fact) for node, fact in at if hasattr(fact, "model"))
    exchange.deliver(node, Measured(fact.round, 4, fact.model, 0.8, {"accuracy": 0.8, "loss": 1.0}))
    assert exchange.of(SessionEnded) == []
    exchange.deliver(node, Measured(fact.round, 4, fact.model, 0.95, {"accuracy": 0.95, "loss": 0.3}))
    exchange.run_until(lambda: len(exchange.of(FinalHeld)) == N)
    assert {state.model for state in exchange.saved.values()} == {fact.model}


def test_patience_counts_rounds_since_the_best_that_anybody_measured() -> None:
    exchange = session(3, patience=10)
    exchange.go_online(0, 1, 2)
    exchange.run(0.1)

    def measured(node: int, ordinal: int, score: float) -> None:
        exchange.deliver(node, Measured(ordinal, ordinal, f"m{ordinal}", score, {}))
        exchange.run(exchange.now + 0.2)

    measured(0, 10, 0.5)
    measured(1, 20, 0.6)  # better
    measured(2, 25, 0.6)  # not better, and not for long
    assert exchange.of(SessionEnded) == []
    measured(0, 30, 0.59)
    assert exchange.of(SessionEnded)[0][2].ordinal == 30


def test_a_loss_is_better_the_smaller_it_is() -> None:
    assert condition("loss <= 0.25").holds({"loss": 0.25})
    assert not condition("loss<=0.25").holds({"loss": 0.3})
    assert not condition("accuracy >= 0.9").holds({"loss": 0.3})
    node = online_node(0, 3, course=Course(patience=5))
    told = sent(node.handle(1.0, Measured(1, 1, "m", -3.5, {})), Score)
    other = online_node(1, 3, course=Course(patience=5))
    other.handle(1.0, Received(0, told[0][1]))
    assert reported(other.handle(2.0, Measured(5, 5, "m", -3.6, {})), SessionEnded) == []
    assert reported(other.handle(2.0, Measured(6, 6, "m", -3.6, {})), SessionEnded)


@pytest.mark.parametrize("text", ["accuracy", "accuracy > 0.9", "accuracy >= high", ""])
def test_a_condition_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"until is .*, but must be a metric, >= or <=, and a number"):
        Course(until=text)


@pytest.mark.parametrize("text", ["accuracy >= 95", "accuracy<=-0.1", "accuracy >= nan"])
def test_a_condition_that_no_model_can_meet_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"until is '{text}', but accuracy is a share, from 0 to 1, as '"):
        Course(until=text)
    assert condition("mse <= 95").bound == 95
    assert condition("accuracy >= 1").bound == 1


def test_a_metric_that_nobody_measures_is_named() -> None:
    assert unknown_metric(Course(until="f1 >= 0.5"), "accuracy") == (
        "session.until is 'f1 >= 0.5', but models are measured by accuracy and loss"
    )
    assert unknown_metric(Course(until="loss <= 0.5"), "accuracy") is None


def test_where_members_may_lie_an_end_that_has_not_come_is_not_believed() -> None:
    node = online_node(0, 4, course=Course(rounds=100), signed_views=True)
    effects = node.handle(9.0, Received(1, Ended(3, 3, 1)))
    assert [fact.what for fact in reported(effects, Refused)] == ["the end of the session"]
    assert not node.ending.is_over
    endless = online_node(0, 4, signed_views=True)
    assert reported(endless.handle(9.0, Received(1, Ended(3, 3, 1))), Refused)


@pytest.mark.parametrize("course", [Course(rounds=100), Course(until="accuracy >= 0.9")])
def test_where_members_may_lie_one_alone_ends_no_session(course: Course) -> None:
    """Neither one of rounds, far before its last, nor one whose end somebody has to measure."""
    node = online_node(0, 4, course=course, signed_views=True)
    node.handle(9.0, Received(1, Ended(3, 100, 1)))
    node.handle(9.1, Received(1, Ended(4, 100, 1)))
    assert not node.ending.is_over
    node.handle(9.2, Received(2, Ended(4, 100, 1)))
    assert node.ending.is_over


def test_where_members_may_lie_the_last_who_is_there_is_believed() -> None:
    """The others have said goodbye, as one does at the end."""
    node = online_node(0, 3, course=Course(until="accuracy >= 0.9"), signed_views=True)
    node.view.learn(2, event_number(1, LEFT))
    node.handle(9.0, Received(1, Ended(3000, 100, 1)))
    assert node.ending.is_over


def test_where_rounds_come_to_their_end_the_last_aggregator_is_believed() -> None:
    held = Durable(3, 90, "m", ordinal=99)
    node = online_node(0, 4, course=Course(rounds=100), signed_views=True, durable=held)
    node.handle(9.0, Received(1, Ended(91, 100, 1)))
    assert node.ending.is_over


def test_a_final_model_that_nobody_asked_for_is_not_taken() -> None:
    node = online_node(0, 4, course=Course(rounds=5))
    effects = node.handle(9.0, Received(1, Ended(50, 5, 1)))
    [(asked, _)] = sent(effects, FinalRequest)
    other = next(each for each in (1, 2, 3) if each != asked)
    node.handle(10.0, Received(other, FinalModel(50, 5, "poison")))
    assert not node.ending.has_model
    node.handle(11.0, Received(asked, FinalModel(50, 5, "final")))
    assert node.ending.has_model and node.held_model == "final"


@pytest.mark.parametrize("has_it", [False, True])
def test_who_was_asked_and_has_not_got_the_model_either_is_not_waited_for_long(has_it: bool) -> None:
    node = online_node(0, 4, course=Course(rounds=5), **SHORT)
    [(asked, _)] = sent(node.handle(9.0, Received(1, Ended(50, 5, 1))), FinalRequest)
    told = asked if has_it else next(each for each in (1, 2, 3) if each != asked)
    node.handle(9.5, Received(told, Ended(50, 5, 1)))
    again = sent(node.handle(15.0, TimerFired(("final", 0))), FinalRequest)
    assert (again == []) == (asked in node.ending._having)
    assert all(other != asked for other, _ in again)
    assert sent(node.handle(15.0 + SHORT["aggregation_timeout_s"], TimerFired(("final", 0))), FinalRequest)


def test_a_node_that_has_ended_neither_trains_nor_aggregates_and_says_why() -> None:
    node = online_node(0, 4, course=Course(rounds=5))
    node.handle(9.0, Received(1, Ended(50, 5, 1)))
    effects = node.handle(10.0, Received(2, train_request(60)))
    assert not any(isinstance(effect, Train) for effect in effects)
    assert sent(effects) == [(2, Ended(50, 5, 0))]
    assert node.is_obsolete(train_request(60))
    assert isinstance(train_request(60), TrainRequest)


# After everybody was gone


def test_hurry_ends_though_the_node_may_not_start_again_by_itself() -> None:
    """Who holds the newest model and is far back in the order of the next round must not wait for ever."""
    last = hash_order(12, 8)[-1]
    held = Durable(3, 7, "m7", ordinal=7)
    node = online_node(last, 12, durable=held, signed_views=True, **SHORT)
    node.watchdog.hurry(node.held_round)
    node.handle(20.0, TimerFired(("watchdog", 0)))
    assert node.watchdog.is_hurried and not node.is_searching(RESTART)
    node.handle(100.0, TimerFired(("watchdog", 0)))
    assert not node.watchdog.is_hurried
    node.handle(2000.0, TimerFired(("watchdog", 0)))
    assert node.is_searching(RESTART)


@pytest.mark.parametrize("n", [N, 40])
@pytest.mark.parametrize("seed", range(4))
def test_after_a_restart_of_all_the_session_goes_on_within_the_ack_timeout(seed: int, n: int) -> None:
    exchange = Exchange(n, **SHORT, watchdog_s=10_000.0, seed=seed)
    exchange.go_online(*range(n))
    exchange.run_until(exchange.has_aggregated(4 + seed))
    exchange.run(exchange.now + 3.0 * seed)
    for node in range(n):
        exchange.crash(node)
    for node in range(n):
        exchange.run(exchange.now + 6.0 / n)
        exchange.restart(node)
    began_s, number = exchange.now, max(exchange.numbers.values())
    exchange.run_until(lambda: bool(exchange.of(RoundRestarted)), began_s + 2 * SHORT["ack_timeout_s"])
    assert exchange.now - began_s <= SHORT["ack_timeout_s"]
    exchange.run_until(exchange.has_gone_on(number, 3))


def test_who_is_far_back_takes_a_number_for_which_it_is_not() -> None:
    last = hash_order(12, 8)[-1]
    node = online_node(last, 12, durable=Durable(3, 7, "m7", ordinal=7), signed_views=True, **SHORT)
    node.watchdog.hurry(node.held_round)
    assert node.restart_number() is None
    node.handle(45.0, TimerFired(("watchdog", 0)))
    k = node.restart_number()
    assert k is not None and k > 8 and last in hash_order(12, k)[:6]
    assert node.is_searching(RESTART)


def test_the_newest_model_is_the_one_to_go_on_with() -> None:
    """The first to come back has it, and nobody was there to tell it that all have just come."""
    newest, older = hash_order(2, 1)[0], hash_order(2, 1)[1]
    exchange = Exchange(2, **SHORT, watchdog_s=10_000.0)
    for node, round in ((newest, 40), (older, 32)):
        exchange.saved[node] = Durable(5, round, f"m{round}", exchange.nodes[node].view.snapshot(), round)
    exchange.restart(newest)
    exchange.run(30.0)
    exchange.restart(older)
    exchange.run_until(lambda: bool(exchange.of(RoundRestarted)), 200.0)
    assert [fact.held for _, _, fact in exchange.of(RoundRestarted)] == [40]


def test_who_comes_back_to_a_session_under_way_does_not_disturb_it() -> None:
    exchange = Exchange(N, **SHORT, watchdog_s=10_000.0)
    exchange.go_online(*range(N))
    exchange.run_until(exchange.has_aggregated(5))
    exchange.crash(0)
    exchange.run_until(exchange.has_aggregated(8))
    exchange.restart(0)
    exchange.run(exchange.now + 5 * SHORT["ack_timeout_s"])
    assert exchange.of(RoundRestarted) == []


class Measuring(Exchange):
    """Where members may lie: who is told of an end measures its model, in a second."""

    def __init__(
        self, n: int, accuracy: Callable[[int, str], float], measuring_s: float = 1.0, **more: Any
    ) -> None:
        super().__init__(n, signed_views=True, **{**SHORT, **more})
        self.accuracy, self.measuring_s = accuracy, measuring_s

    def on_event(self, node: int, event: Any, effects: list[Any]) -> None:
        super().on_event(node, event, effects)
        for claim in reported(effects, EndClaimed):
            self.measure(node, claim, self.measuring_s)

    def measure(self, node: int, of: Any, after_s: float = 0.0) -> None:
        found = self.accuracy(node, of.model)
        measured = Measured(of.round, of.ordinal, of.model, found, {"accuracy": found})
        self._at(after_s, node, measured, self._lives[node])

    def aggregated(self, ordinal: int) -> tuple[int, Any]:
        """By whom, and what."""
        self.run_until(self.has_aggregated(ordinal))
        found = [(node, fact) for _, node, fact in self.of(AggregationCompleted) if fact.ordinal == ordinal]
        return found[0]


class Lying(Measuring):
    """The last node ends the session with every model it makes."""

    def on_event(self, node: int, event: Any, effects: list[Any]) -> None:
        super().on_event(node, event, effects)
        for fact in reported(effects, AggregationCompleted):
            if node == N - 1:
                self.measure(node, fact)


@pytest.mark.parametrize("n", [3, 5, N, 9])
@pytest.mark.parametrize("course", [Course(until="accuracy >= 0.9"), Course(patience=2, rounds=100)])
def test_what_one_has_measured_the_others_measure_and_all_end_with_it(n: int, course: Course) -> None:
    """Nobody suspects who found out first, and nobody waits for long."""
    exchange = Measuring(n, lambda node, model: 0.95, course=course)
    exchange.go_online(*range(n))
    at, best = exchange.aggregated(3)
    exchange.measure(at, best)  # with patience this is the best, and stays so
    if course.patience:
        at, last = exchange.aggregated(5)
        exchange.measure(at, last)
    began = exchange.now
    exchange.run_until(lambda: len(exchange.of(FinalHeld)) == n)
    assert exchange.now - began < SHORT["ack_timeout_s"] / 2
    assert len({(fact.ordinal, fact.model) for _, _, fact in exchange.of(FinalHeld)}) == 1
    assert exchange.of(Refused) == exchange.of(EndRevoked) == []
    exchange.run(exchange.now + 10)
    assert not any(node.ending.is_doubtful for node in exchange.nodes)
    assert len(exchange.of(EndClaimed)) <= SHORT["sample_size"], "a few look into it, not everybody"


def test_an_end_that_nobody_else_finds_is_taken_back_and_the_session_goes_on() -> None:
    exchange = Measuring(
        N, lambda node, model: 0.95 if node == liar else 0.5, course=Course(until="accuracy >= 0.9")
    )
    liar = -1
    exchange.go_online(*range(N))
    liar, found = exchange.aggregated(3)
    exchange.measure(liar, found)
    exchange.run_until(lambda: bool(exchange.of(SessionEnded)))
    assert exchange.nodes[liar].ending.is_doubtful
    exchange.run_until(lambda: bool(exchange.of(EndRevoked)))
    assert {node for _, node, _ in exchange.of(SessionEnded)} == {liar}
    refused = exchange.of(Refused)
    assert {(fact.src, fact.what) for _, _, fact in refused} == {(liar, THE_END), (liar, TO_AGGREGATE)}
    assert not any(node.ending.is_over for node in exchange.nodes)
    done = max(exchange.rounds)
    exchange.run_until(exchange.has_aggregated(done + 6))
    trained = {node for at, node, _ in exchange.of(TrainingStarted) if at > exchange.of(EndRevoked)[0][0]}
    assert liar in trained, "it works with the others again"


def mistaken(
    n: int, size: int, moment: str, training_s: float = 10.0, **course: Any
) -> tuple[Measuring, int]:
    """Who aggregates ends the session by what it alone measures; `moment` is what it is at then."""
    wrong = -1
    course = course or {"until": "accuracy >= 0.9"}
    exchange = Measuring(
        n,
        lambda node, model: 0.95 if node == wrong else 0.5,
        course=Course(**course),
        training_s=lambda node: training_s,
        sample_size=size,
    )
    exchange.go_online(*range(n))
    wrong, found = exchange.aggregated(3)
    if moment == "the models have come":
        exchange.run_until(lambda: any(node.aggregation._lone for node in exchange.nodes))
        [(wrong, node)] = [each for each in enumerate(exchange.nodes) if each[1].aggregation._lone]
        found = AggregationCompleted(node.held_round, node.held_ordinal, node.held_model, 1, 1, False, 0.0)
    exchange.run(exchange.now + {"it is under way": 0.5, "the others train": 5.0}.get(moment, 0.0))
    exchange.measure(wrong, found)
    return exchange.run_until(lambda: bool(exchange.of(SessionEnded))), wrong  # type: ignore[return-value]


@pytest.mark.parametrize(("n", "size"), [(4, 4), (6, 3), (10, 5), (20, 5)])
@pytest.mark.parametrize(
    ("moment", "limit_s"),
    [
        ("it has made a model", SHORT["ack_timeout_s"] * 0.7),
        ("it is under way", SHORT["ack_timeout_s"] * 0.7),
        ("the others train", 15.0),
        ("the models have come", 6.0),
    ],
)
def test_whose_work_is_with_who_ends_the_session_by_mistake_does_not_wait_for_long(
    n: int, size: int, moment: str, limit_s: float
) -> None:
    """Neither for `watchdog_s` nor for `ack_timeout_s`: what it is sent then comes to nothing."""
    exchange, wrong = mistaken(n, size, moment)
    began, done = exchange.now, len(exchange.rounds)
    exchange.run_until(lambda: len(exchange.rounds) > done)
    assert exchange.now - began < limit_s
    exchange.run(began + 10 * SHORT["ack_timeout_s"])
    assert not any(node.ending.is_over for node in exchange.nodes)
    assert {node for _, node, _ in exchange.of(SessionEnded)} == {wrong}


@pytest.mark.parametrize(("n", "size"), [(6, 3), (10, 5), (20, 5), (40, 5)])
def test_a_round_that_others_have_the_model_of_is_not_started_again(n: int, size: int) -> None:
    """However long they train: that who made it ends the session by mistake is not their business."""
    exchange, _ = mistaken(n, size, "the others train", training_s=200.0)
    done = len(exchange.rounds)
    exchange.run_until(lambda: len(exchange.rounds) > done)
    assert exchange.of(RoundRestarted) == []
    assert max(exchange.rounds) == 4


@pytest.mark.parametrize(
    ("is_silent", "measuring_s", "least"), [(False, 1.0, 200), (False, 30.0, 160), (True, 1.0, 180)]
)
def test_who_ends_the_session_in_every_round_it_aggregates_costs_little(
    is_silent: bool, measuring_s: float, least: int
) -> None:
    """And those who find out that it is wrong, or wait for its model in vain, choose it last from then on."""

    def accuracy(node: int, model: str) -> float:
        return 0.95 if node == N - 1 else 0.5

    def delays(src: int, dst: int, body: Message) -> tuple[float, ...]:
        is_lost = is_silent and src == N - 1 and isinstance(body, FinalModel)
        return () if is_lost else exchange.usual_delays(src, dst, body)

    every: dict[str, Any] = {"sample_size": N, "measuring_s": measuring_s, "delays": delays, "checked": False}
    exchange = Lying(N, accuracy, course=Course(until="accuracy >= 0.9"), **every)
    exchange.go_online(*range(N))
    exchange.run(3600.0)
    assert max(exchange.rounds) > least, "of 300 that there would be"
    assert {fact.src for _, _, fact in exchange.of(Refused) if fact.what == TO_AGGREGATE} == {N - 1}
    assert {fact.src for _, _, fact in exchange.of(Refused)} == {N - 1}


@pytest.mark.parametrize(("n", "size"), [(3, 3), (6, 3), (10, 5), (20, 5)])
@pytest.mark.parametrize("measuring_s", [30.0, 55.0])
@pytest.mark.parametrize("course", [Course(until="accuracy >= 0.9"), Course(patience=2, rounds=100)])
def test_who_ends_the_session_rightly_is_not_suspected_while_that_is_measured(
    n: int, size: int, measuring_s: float, course: Course
) -> None:
    """The others start its round again meanwhile, and have heard of nobody who made something of it."""
    exchange = Measuring(
        n, lambda node, model: 0.95, course=course, sample_size=size, measuring_s=measuring_s, checked=False
    )
    exchange.go_online(*range(n))
    at, best = exchange.aggregated(3)
    exchange.measure(at, best)
    if course.patience:
        at, last = exchange.aggregated(5)
        exchange.measure(at, last)
    exchange.run_until(lambda: all(node.ending.has_model for node in exchange.nodes))
    assert exchange.of(RoundRestarted)
    assert exchange.of(Refused) == exchange.of(EndRevoked) == []


HERS = Ended(3, 100, 1)


def settled_node(**more: Any) -> Any:
    """Its model is with node 3, which says that it has made round 10 of it."""
    node = online_node(0, 4, course=Course(until="accuracy >= 0.9"), signed_views=True, **{**SHORT, **more})
    node.handle(1.0, Received(1, train_request(9)))
    node.settled = 3, 10
    node.training.finish()
    node.watchdog.notice(10)
    return node


def test_who_has_everybodys_models_and_ends_the_session_is_like_one_that_is_gone() -> None:
    node = settled_node()
    effects = node.handle(9.0, Received(3, HERS))
    assert node.watchdog.is_orphaned
    [wait] = [effect for effect in effects if isinstance(effect, SetTimer) and effect.key[0] == "watchdog"]
    assert wait.delay_s < SHORT["ack_timeout_s"] / 2
    assert {to for to, _ in sent(effects, Ping)} == {2}, (
        "is there one of its making? 1 is being asked already"
    )
    again = node.handle(10.0, Received(3, HERS))
    assert not any(isinstance(effect, SetTimer) and effect.key[0] == "watchdog" for effect in again)
    node.handle(11.0, Received(3, Ping(7, HERS.round)))
    node.handle(11.0, Received(3, Ping(7, 12)))
    assert node.settled == (3, 10), "that somebody goes on is not for itself to say"


def looked_into(at: float) -> Any:
    """It has got the model with which node 3 ended the session."""
    node = settled_node()
    look_into(node, at)
    return node


def look_into(node: Any, at: float) -> None:
    told = [node.handle(at + again, Received(3, HERS)) for again in (0.0, 1.0)]
    assert [each for effects in told for each in sent(effects, FinalRequest)] == [(3, FinalRequest(3))]
    assert reported(node.handle(at + 2.0, Received(3, FinalModel(3, 100, "m"))), EndClaimed)


def found_wrong(node: Any, at: float) -> list[str]:
    """Of what node 3 is refused then."""
    effects = node.handle(at, Measured(3, 100, "m", 0.5, {"accuracy": 0.5}))
    return [fact.what for fact in reported(effects, Refused) if fact.src == 3]


def start_again(node: Any, at: float) -> list[str]:
    """The same, when nobody has heard of the round that was to be made."""
    node.now = at
    node._restart(node.watchdog.k_seen + 1, 101, ())
    effects, node.outbox = node.outbox, []
    assert reported(effects, RoundRestarted)
    return [fact.what for fact in reported(effects, Refused)]


def test_who_is_found_to_have_ended_the_session_by_mistake_aggregates_last_and_that_once() -> None:
    node = looked_into(9.0)
    assert found_wrong(node, 12.0) == [THE_END, TO_AGGREGATE]
    assert node.settled is None and node.trust.best([3, 1]) == 1
    assert start_again(node, 30.0) == []


def test_who_has_the_models_and_ends_the_session_by_mistake_aggregates_last_too() -> None:
    """Though it has acknowledged none of them."""
    node = online_node(0, 4, course=Course(until="accuracy >= 0.9"), signed_views=True, **SHORT)
    node.handle(1.0, Received(1, train_request(9)))
    effects = node.handle(2.0, Trained(9, "t", samples=1))
    for other, ping in sent(effects, Ping):
        effects += pong(node, other, ping.exchange, 2.1)
    assert node.training.awaited == 3
    look_into(node, 3.0)
    assert node.training.awaited is None
    assert found_wrong(node, 6.0) == [THE_END, TO_AGGREGATE]
    assert node.trust.best([3, 1]) == 1


def test_a_round_is_started_again_without_suspecting_whose_end_is_being_measured() -> None:
    node = looked_into(9.0)
    assert start_again(node, 30.0) == []
    node.settled = 2, 12
    assert found_wrong(node, 40.0) == [THE_END, TO_AGGREGATE]
    assert node.settled == (2, 12), "which has nothing to do with it"
    look_into(node, 100.0)
    assert found_wrong(node, 103.0) == [THE_END], "this time it had no model of this node"


def test_whose_end_cannot_be_measured_is_not_waited_for_again() -> None:
    node = looked_into(9.0)
    assert start_again(node, 30.0) == []
    node.settled = 3, node.watchdog.k_seen
    assert start_again(node, 60.0) == [TO_AGGREGATE]
    assert start_again(looked_into(9.0), 10.0 + SHORT["ack_timeout_s"]) == [TO_AGGREGATE]


@pytest.mark.parametrize("other", [1, 2])
def test_what_others_say_of_the_end_is_nothing_to_who_waits_for_somebody_else(other: int) -> None:
    node = settled_node()
    for at in (9.0, 10.0):
        effects = node.handle(at, Received(other, HERS))
        assert not any(isinstance(effect, SetTimer) and effect.key[0] == "watchdog" for effect in effects)
    assert not node.watchdog.is_orphaned and node.settled == (3, 10)


@pytest.mark.parametrize(
    ("src", "held", "is_lost"),
    [(1, 10, False), (1, 9, True), (1, 2**40, True), (3, HERS.round, True), (3, 10, True)],
)
def test_if_another_has_what_came_of_the_models_nothing_is_lost(src: int, held: int, is_lost: bool) -> None:
    node = settled_node()
    node.handle(9.0, Received(3, HERS))
    pong(node, src, 1, 9.5, k=10, held=held)
    assert node.watchdog.is_orphaned == is_lost
    assert (node.settled is not None) == is_lost


@pytest.mark.parametrize("src", [1, 3])
def test_who_comes_back_with_a_model_that_nobody_goes_on_with_does_not_make_the_others_wait(src: int) -> None:
    """Neither itself, nor another that has the model from it: it was gone, and who makes progress says so."""
    node = settled_node()
    node.handle(9.0, PeerLost(3))
    pong(node, src, 1, 9.5, k=10, held=10)
    assert node.watchdog.is_orphaned and node.settled == (3, 10)


def test_an_end_that_another_once_took_back_is_nothing_that_it_goes_on_with() -> None:
    node = settled_node()
    node.handle(9.0, Received(1, Ended(11, 100, 1)))
    node.handle(9.0 + SHORT["ack_timeout_s"], Received(3, HERS))
    pong(node, 1, 1, 70.0, k=10, held=11)
    assert node.watchdog.is_orphaned and node.settled == (3, 10)


def test_what_others_hold_says_nothing_of_a_newer_round_than_was_left() -> None:
    node = settled_node()
    node.handle(9.0, Received(3, HERS))
    node.handle(9.5, Received(3, Ping(7, 12)))
    node.handle(10.0, PeerLost(3))
    pong(node, 1, 1, 10.5, k=10, held=10)
    assert node.watchdog.is_orphaned and node.settled == (3, 10)


@pytest.mark.parametrize(("n", "size"), [(4, 4), (6, 3), (6, 6), (10, 5)])
@pytest.mark.parametrize("back_s", [2.0, 19.0])
@pytest.mark.parametrize("course", [Course(until="accuracy >= 0.9"), Course(rounds=100)])
def test_an_aggregator_that_is_killed_and_comes_back_holds_nobody_up(
    n: int, size: int, back_s: float, course: Course
) -> None:
    """However the session is to end: it has the model, and nobody else had any of it."""
    exchange = Measuring(n, lambda node, model: 0.5, course=course, sample_size=size, watchdog_s=900.0)
    exchange.go_online(*range(n))
    killed, _ = exchange.aggregated(4)
    exchange.run(exchange.now + 0.3)  # acknowledged, and not sent on
    began, done = exchange.now, max(exchange.rounds)
    exchange.crash(killed)
    for node in set(range(n)) - {killed}:
        exchange.deliver(node, PeerLost(killed))
    exchange.run(began + back_s)
    exchange.restart(killed)
    exchange.run_until(lambda: max(exchange.rounds) > done)
    assert exchange.now - began < SHORT["ack_timeout_s"] * 0.7


def test_an_end_is_no_progress_before_it_is_believed() -> None:
    node = settled_node()
    node.handle(9.0, Received(3, Ended(12, 100, 1)))
    node.handle(9.1, Received(3, Ping(7, 12)))
    assert node.watchdog.is_orphaned and node.watchdog.k_seen == 10
    node.handle(9.2, Received(2, Ping(8, 12)))
    assert not node.watchdog.is_orphaned, "another works on a round of that number"


@pytest.mark.parametrize("src", [1, 3])
def test_another_than_who_ends_the_session_is_sent_the_model_if_it_is_that_one(src: int) -> None:
    """When it says so again: said once, it may be what others find, too."""
    node = online_node(0, 4, course=Course(until="accuracy >= 0.9"), signed_views=True, **SHORT)
    node.handle(1.0, Received(1, train_request(9)))
    effects = node.handle(2.0, Trained(9, "t", samples=1))
    for other, ping in sent(effects, Ping):
        effects += pong(node, other, ping.exchange, 2.1)
    awaited = node.training.awaited
    assert awaited == 3
    node.handle(3.0, Received(src, HERS))
    assert node.training.awaited == 3
    node.handle(4.0, Received(src, HERS))
    assert (node.training.awaited is None) == (src == 3)


def test_who_does_not_know_the_best_that_was_measured_suspects_nobody() -> None:
    node = online_node(0, 4, course=Course(patience=5), signed_views=True, **SHORT)
    told = [node.handle(at, Received(1, Ended(3, 100, 1))) for at in (9.0, 10.0)]
    [(_, request)] = [asked for effects in told for asked in sent(effects, FinalRequest)]
    assert reported(node.handle(11.0, Received(1, FinalModel(request.round, 100, "m"))), EndClaimed)
    effects = node.handle(12.0, Measured(request.round, 100, "m", 0.5, {}))
    assert not reported(effects, Refused) and not node.ending.is_over


def test_who_comes_back_after_the_end_does_not_doubt_it() -> None:
    """Nobody else may be there any more, whatever it believes, and it has nothing to prove."""
    held = Durable(3, 10, "final", None, 10, 10)
    course = Course(until="accuracy >= 0.9")
    node = make_node(0, 4, durable=held, course=course, signed_views=True, **SHORT)
    come_online(node)
    assert node.ending.has_model and node.view.online_count() == 4
    assert not node.ending.is_doubtful


def test_who_says_again_and_again_that_it_is_the_end_is_seldom_asked_for_its_model() -> None:
    """Whatever rounds it speaks of: the others have better things to do than to measure its models."""
    node = online_node(0, 4, course=Course(until="accuracy >= 0.9"), signed_views=True, **SHORT)
    asked = []
    for at in range(9, 39):
        asked += sent(node.handle(float(at), Received(1, Ended(at, 100, 1))), FinalRequest)
    [(_, request)] = asked
    claim = reported(node.handle(38.1, Received(1, FinalModel(request.round, 100, "m"))), EndClaimed)
    assert claim == [EndClaimed(request.round, 100, "m")]
    effects = node.handle(38.2, Measured(request.round, 100, "m", 0.1, {"accuracy": 0.1}))
    assert [fact.src for fact in reported(effects, Refused)] == [1]
    for at in range(39, 68):
        assert sent(node.handle(float(at), Received(1, Ended(at, 100, 1))), FinalRequest) == []
    assert not node.ending.is_over


def test_an_end_that_was_taken_back_long_ago_is_no_witness_for_another() -> None:
    node = online_node(0, 4, course=Course(until="accuracy >= 0.9"), signed_views=True, **SHORT)
    node.handle(9.0, Received(1, Ended(3, 100, 1)))
    node.handle(9.0 + SHORT["ack_timeout_s"], Received(2, Ended(4, 100, 1)))
    assert not node.ending.is_over


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_whatever_goes_wrong_near_the_end_all_come_to_have_one_final_model(seed: int) -> None:
    """Messages are lost, nodes are cut off, killed and come back, models are measured late and by several."""
    rng = Random(seed)
    n, loss = rng.choice([3, 4, 6, 10]), rng.choice([0.0, 0.02, 0.1])
    course = rng.choice([Course(until="accuracy >= 0.9"), Course(patience=rng.choice([2, 4]))])
    found: dict[str, float] = {}
    away: set[int] = set()

    def delays(src: int, dst: int, body: Message) -> tuple[float, ...]:
        is_lost = (src in away) != (dst in away) or rng.random() < loss
        return (
            () if is_lost else tuple(s * rng.uniform(0.5, 2) for s in exchange.usual_delays(src, dst, body))
        )

    class Story(Measuring):
        def on_event(self, node: int, event: Any, effects: list[Any]) -> None:
            super().on_event(node, event, effects)
            for fact in reported(effects, AggregationCompleted):
                self.measure(node, fact, rng.choice([0.5, 3.0, 15.0]))

    def accuracy(node: int, model: str) -> float:
        return found.setdefault(model, rng.random())

    exchange = Story(n, accuracy, course=course, delays=delays, watchdog_s=300.0, checked=False)
    exchange.go_online(*range(n))
    while not exchange.of(SessionEnded) or rng.random() < 0.8:
        exchange.run(exchange.now + 20)
        away = (
            set(rng.sample(range(n), n // 3)) if rng.random() < 0.1 else away if rng.random() < 0.7 else set()
        )
        node = rng.randrange(n)
        if node not in exchange.online:
            exchange.restart(node)
        elif rng.random() < 0.05:
            exchange.crash(node)
    away, loss = set(), 0.0
    for node in set(range(n)) - exchange.online:
        exchange.restart(node)
    exchange.run_until(
        lambda: (
            all(node.ending.has_model for node in exchange.nodes)
            and len({node.held_model for node in exchange.nodes}) == 1
        ),
        exchange.now + 20_000,
    )


# One member against the end


def wary_session(n: int = 10, **course: Any) -> Exchange:
    exchange = Exchange(n, course=Course(**course), signed_views=True, **SHORT)
    exchange.is_checked = False  # one of them does as it likes
    exchange.go_online(*range(n))
    return exchange


def test_a_final_model_of_no_round_ends_nothing() -> None:
    exchange = wary_session(N)
    exchange.run_until(exchange.has_aggregated(3))
    for node in range(N - 1):
        exchange.deliver(node, Received(N - 1, FinalModel(0, 0, "a lie")))
    exchange.crash(N - 1)
    exchange.run_until(exchange.has_aggregated(20), limit_s=3000)
    assert exchange.of(SessionEnded) == []


def test_what_was_asked_for_a_far_round_does_not_replace_the_final_model() -> None:
    exchange = wary_session(5, rounds=20)
    exchange.run_until(exchange.has_aggregated(19))
    for victim in (node for node in exchange.nodes if node.me != 2):
        k = victim.watchdog.k_seen + victim.trust.reach + 1
        request = TrainRequest(k, 25, 25, 5, victim.view.snapshot(), "a lie")
        exchange.deliver(victim.me, Received(2, request))
    exchange.run_until(lambda: len(exchange.of(FinalHeld)) == 5)
    exchange.deliver(0, Received(2, Ping(0, 1)))
    exchange.run(exchange.now + 100)
    assert len({state.model for state in exchange.saved.values()}) == 1
    assert {state.model for state in exchange.saved.values()} != {"a lie"}


def test_who_claims_an_end_again_and_again_and_has_no_model_keeps_nobody_from_the_end() -> None:
    exchange = wary_session(10, rounds=30)
    exchange.run_until(exchange.has_aggregated(26))
    said = Ended(max(node.watchdog.k_seen for node in exchange.nodes) + 20, 30, 1)
    exchange.on_lost = lambda *_: None  # type: ignore[method-assign]
    deliver = exchange.deliver

    def but_mute(target: int, event: Any) -> None:
        if not (target == 9 and isinstance(event, Received) and isinstance(event.body, FinalRequest)):
            deliver(target, event)

    exchange.deliver = but_mute  # type: ignore[method-assign]
    while exchange.now < 6000 and len({node for _, node, _ in exchange.of(FinalHeld)}) < 9:
        for node in range(9):
            exchange.deliver(node, Received(9, said))
        exchange.run(exchange.now + 60)
    assert {node for _, node, _ in exchange.of(FinalHeld)} >= set(range(9))


class Scored(Exchange):
    """Who aggregates measures at once; models become better up to a round."""

    best_at = 1000

    def on_event(self, node: int, event: Any, effects: list[Any]) -> None:
        for fact in (effect.fact for effect in effects if isinstance(effect, Report)):
            if isinstance(fact, AggregationCompleted | EndClaimed):
                score = min(fact.ordinal, self.best_at) / 1000
                measured = Measured(fact.round, fact.ordinal, fact.model, score, {"accuracy": 0.0})
                self.deliver(node, measured)


@pytest.mark.parametrize("best_at", [1000, 30])
@pytest.mark.parametrize("told", [None, (0, 0x7F800000), (1, 0x3F7FBE77), (2**40 - 1, 0x3F7FBE77)])
def test_one_member_decides_by_no_score_when_patience_is_over(
    best_at: int, told: tuple[int, int] | None
) -> None:
    exchange = Scored(10, checked=False, course=Course(patience=10), signed_views=True, **SHORT)
    exchange.best_at = best_at
    exchange.go_online(*range(10))
    exchange.run_until(exchange.has_aggregated(15))
    for node in range(9) if told else ():
        exchange.deliver(node, Received(9, Score(*told)))  # type: ignore[misc]
    if best_at == 1000:
        exchange.run_until(exchange.has_aggregated(60))
        assert exchange.of(SessionEnded) == []
    else:
        exchange.run_until(lambda: len(exchange.of(FinalHeld)) == 10, limit_s=5000)
        [ordinal] = {fact.ordinal for _, _, fact in exchange.of(FinalHeld)}
        assert 10 <= ordinal - best_at < 15, (
            "what the liar measures counts no more, or a second one must say it"
        )
