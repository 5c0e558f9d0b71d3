"""Federated averaging: the server's rounds, and clients that come, go and stay silent."""

from __future__ import annotations

from random import Random

import pytest

from plexus.protocol.api import (
    Aggregate,
    Aggregated,
    Durable,
    Received,
    Save,
    TimerFired,
    Train,
    Trained,
    WentOffline,
    WentOnline,
)
from plexus.protocol.baselines.fedavg import FedavgClient, FedavgParameters, FedavgServer
from plexus.protocol.facts import AggregationCompleted
from plexus.protocol.messages import ClientModel, GlobalModel, Joined, Left
from plexus.protocol.view import View
from plexus.testing import reported
from tests.baselines.kit import Handle, effects_of, everybody_online, only, sent, timers

SERVER = 9
START, ROUND = TimerFired(("start", 0)), TimerFired(("round", 0))


def server(view: View | None = None, **parameters: float) -> Handle:
    chosen = FedavgParameters(**{"sample_size": 5, **parameters})  # type: ignore[arg-type]
    view = view or everybody_online(9)
    return effects_of(FedavgServer(SERVER, chosen, view, "m0", Random(1)))


def started(view: View | None = None, **parameters: float) -> tuple[Handle, tuple[int, ...]]:
    handle = server(view, **parameters)
    assert timers(handle(WentOnline())) == {("start", 0): 5.0}
    ((sample, body),) = sent(handle(START), GlobalModel)
    assert body == GlobalModel(1, "m0")
    return handle, sample


def model(k: int, src: int, samples: int = 10) -> Received:
    return Received(src, ClientModel(k, samples, f"m{k} of {src}"))


def test_a_round_is_complete_with_the_success_fraction_of_the_sample() -> None:
    handle, sample = started()
    assert len(set(sample)) == 5
    for client in sample[:3]:
        assert only(handle(model(1, client)), Aggregate) == []
    effects = handle(model(1, sample[3], samples=20))
    models = tuple(f"m1 of {client}" for client in sample[:4])
    assert only(effects, Aggregate) == [Aggregate(2, models, (10, 10, 10, 20))]
    assert only(handle(model(1, sample[4])), Aggregate) == [], "too late"
    effects = handle(Aggregated(2, "m2"))
    (fact,) = reported(effects, AggregationCompleted)
    assert (fact.round, fact.model, fact.models, fact.participants, fact.timed_out) == (2, "m2", 4, 5, False)
    assert sent(effects, GlobalModel)[0][1] == GlobalModel(2, "m2")


def test_samples_are_random() -> None:
    samples = {started()[1] for _ in range(2)}
    handle, first = started()
    for client in first[:4]:
        handle(model(1, client))
    ((second, _),) = sent(handle(Aggregated(2, "m2")), GlobalModel)
    assert len(samples) == 1, "the same for the same seed"
    assert second != first


def test_a_duplicate_counts_once() -> None:
    handle, sample = started()
    for _ in range(5):
        assert only(handle(model(1, sample[0])), Aggregate) == []


def test_the_timeout_counts_from_the_first_model_and_goes_on_with_what_there_is() -> None:
    handle, sample = started()
    assert timers(handle(model(1, sample[0]), at=50.0)) == {("round", 0): 300.0}
    assert timers(handle(model(1, sample[1]), at=60.0)) == {}
    effects = handle(ROUND, at=350.0)
    assert only(effects, Aggregate)[0].models == (f"m1 of {sample[0]}", f"m1 of {sample[1]}")
    (fact,) = reported(handle(Aggregated(2, "m2"), at=350.0), AggregationCompleted)
    assert (fact.timed_out, fact.waited_s) == (True, 300.0)


def test_clients_that_let_a_round_time_out_are_not_asked_until_they_are_heard_of() -> None:
    handle, silent = started()
    ((second, body),) = sent(handle(ROUND), GlobalModel)
    assert body == GlobalModel(1, "m0")
    assert not set(second) & set(silent)
    handle(Received(silent[0], Joined(3, 100)))
    handle(model(7, silent[1]))  # of no round, but a sign of life
    ((third, _),) = sent(handle(ROUND), GlobalModel)
    assert set(third) == {silent[0], silent[1]}


def test_a_slow_client_of_a_round_given_up_still_counts() -> None:
    handle, slow = started(sample_size=9)
    assert sent(handle(ROUND), GlobalModel) == [], "all have been silent: there is nobody to ask"
    assert only(handle(model(1, slow[0])), Aggregate) == [Aggregate(2, (f"m1 of {slow[0]}",), (10,))]
    assert sent(handle(Aggregated(2, "m2")), GlobalModel) == [((slow[0],), GlobalModel(2, "m2"))]


def test_who_left_is_not_asked_and_who_comes_to_an_idle_server_is() -> None:
    handle = server(View.of(9, [(4, 100)]))
    handle(WentOnline())
    handle(Received(4, Left(2)))
    assert handle(START) == []
    handle(Received(6, Left(2)))
    assert handle(Received(6, Joined(1, 100))) == [], "older than its leave"
    assert sent(handle(Received(4, Joined(3, 100))), GlobalModel) == [((4,), GlobalModel(1, "m0"))]


def test_an_aggregation_that_nobody_asked_for_is_ignored() -> None:
    handle, _ = started()
    assert handle(Aggregated(2, "x")) == []


def test_a_client_trains_what_it_is_sent_and_returns_the_result() -> None:
    handle = effects_of(FedavgClient(3, SERVER, 700))
    effects = handle(WentOnline())
    assert only(effects, Save) == [Save(Durable(1, 0, None))]
    assert sent(effects, Joined) == [((SERVER,), Joined(1, 700))]
    assert only(handle(Received(SERVER, GlobalModel(4, "m4"))), Train) == [Train(4, "m4")]
    assert only(handle(Received(SERVER, GlobalModel(3, "m3"))), Train) == [], "older"
    assert only(handle(Received(SERVER, GlobalModel(4, "m4"))), Train) == [Train(4, "m4")]
    effects = handle(Trained(4, "t4", samples=12))
    assert sent(effects, ClientModel) == [((SERVER,), ClientModel(4, 12, "t4"))]
    assert sent(handle(WentOffline()), Left) == [((SERVER,), Left(2))]
    again = effects_of(FedavgClient(3, SERVER, 700, Durable(2, 0, None)))
    assert sent(again(WentOnline()), Joined) == [((SERVER,), Joined(3, 700))]


@pytest.mark.parametrize("field", ["sample_size", "aggregation_timeout_s", "start_delay_s", "server_mbps"])
def test_parameters_that_make_no_sense_are_refused(field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} is 0, but must be"):
        FedavgParameters(**{field: 0})  # type: ignore[arg-type]
