"""D-PSGD's node: rounds that wait for the neighbours, and rounds that wait for nobody."""

from __future__ import annotations

import pytest

from plexus.protocol.api import (
    Aggregated,
    Durable,
    Merge,
    Received,
    Save,
    StopSending,
    TimerFired,
    Train,
    Trained,
    WentOffline,
    WentOnline,
)
from plexus.protocol.baselines.dpsgd import DpsgdNode, DpsgdParameters
from plexus.protocol.baselines.topology import Graph, OnePeerExponential, Topology, ring
from plexus.protocol.facts import ModelUpdated
from plexus.protocol.messages import NeighbourModel
from plexus.testing import reported
from tests.baselines.kit import Handle, effects_of, only, sent, timers


def node(topology: Topology, me: int = 1, duration_s: float | None = None, mixing: str = "uniform") -> Handle:
    return effects_of(DpsgdNode(me, topology, "m0", duration_s, mixing))


def model(k: int, src: int) -> Received:
    return Received(src, NeighbourModel(k, f"m{k} of {src}"))


# Synchronous rounds


def test_a_node_trains_as_soon_as_it_is_online_and_sends_the_result_to_its_neighbours() -> None:
    handle = node(ring(4))
    assert handle(WentOnline()) == [Train(1, "m0")]
    effects = handle(Trained(1, "t1"))
    assert sent(effects, NeighbourModel) == [((0, 2), NeighbourModel(1, "t1"))]
    assert only(effects, Train) == []


@pytest.mark.parametrize("order", ["TAB", "ATB", "ABT"])
def test_the_round_ends_when_it_has_trained_and_all_neighbours_models_are_there(order: str) -> None:
    handle = node(ring(4))
    handle(WentOnline())
    events = {"T": Trained(1, "t1"), "A": model(1, 0), "B": model(1, 2)}
    for name in order[:2]:
        assert only(handle(events[name]), Merge) == []
    effects = handle(events[order[2]])
    assert only(effects, Merge) == [Merge(1, ("m1 of 0", "t1", "m1 of 2"), (1, 1, 1))]
    effects = handle(Aggregated(1, "a1"))
    assert reported(effects, ModelUpdated) == [ModelUpdated(1, "a1", merged=3)]
    assert only(effects, Train) == [Train(2, "a1")]


def test_models_of_rounds_to_come_are_kept() -> None:
    handle = node(ring(4))
    handle(WentOnline())
    for event in (model(2, 0), model(1, 0), model(3, 0), Trained(1, "t1"), model(1, 2)):
        handle(event)
    handle(Aggregated(1, "a1"))
    handle(Trained(2, "t2"))
    assert only(handle(model(2, 2)), Merge) == [Merge(2, ("m2 of 0", "t2", "m2 of 2"), (1, 1, 1))]


def test_a_duplicate_counts_once_and_a_model_of_a_past_round_not_at_all() -> None:
    handle = node(ring(4))
    handle(WentOnline())
    for event in (Trained(1, "t1"), model(1, 0), model(1, 0)):
        assert only(handle(event), Merge) == []
    handle(model(1, 2))
    assert handle(model(1, 2)) == [], "the merge is under way"
    handle(Aggregated(1, "a1"))
    handle(Trained(2, "t2"))
    assert handle(model(1, 0)) == []


def test_one_peer_exponential_merges_one_model_a_round() -> None:
    handle = node(OnePeerExponential(8), me=5)
    handle(WentOnline())
    assert sent(handle(Trained(1, "t1")), NeighbourModel)[0][0] == (6,)
    assert only(handle(model(1, 4)), Merge) == [Merge(1, ("m1 of 4", "t1"), (1, 1))]
    handle(Aggregated(1, "a1"))
    assert sent(handle(Trained(2, "t2")), NeighbourModel)[0][0] == (7,)
    assert only(handle(model(2, 3)), Merge) == [Merge(2, ("m2 of 3", "t2"), (1, 1))]


def test_a_node_alone_goes_on_by_itself() -> None:
    handle = node(ring(1), me=0)
    handle(WentOnline())
    effects = handle(Trained(1, "t1"))
    assert reported(effects, ModelUpdated) == [ModelUpdated(1, "t1", merged=1)]
    assert only(effects, Train) == [Train(2, "t1")]


def test_metropolis_weights_keep_the_mean_over_all_nodes() -> None:
    star = Graph([{1, 2, 3}, {0}, {0}, {0}])
    handle = node(star, me=1, mixing="metropolis")
    handle(WentOnline())
    handle(Trained(1, "t1"))
    assert only(handle(model(1, 0)), Merge) == [Merge(1, ("m1 of 0", "t1"), (0.25, 0.75))]
    middle = node(star, me=0, mixing="metropolis")
    middle(WentOnline())
    for event in (Trained(1, "t1"), model(1, 1), model(1, 2)):
        middle(event)
    (merge,) = only(middle(model(1, 3)), Merge)
    assert merge.weights == (0.25, 0.25, 0.25, 0.25)


def test_what_is_saved_is_enough_to_go_on() -> None:
    handle = node(ring(4))
    handle(WentOnline())
    for event in (Trained(1, "t1"), model(1, 0), model(1, 2), Aggregated(1, "a1")):
        handle(event)
    assert only(handle(WentOffline()), Save) == [Save(Durable(0, 1, "a1"))]
    again = effects_of(DpsgdNode(1, ring(4), "m0", durable=Durable(0, 1, "a1")))
    assert again(WentOnline()) == [Train(2, "a1")]


# Rounds of a fixed duration


def test_a_fixed_round_ends_with_the_clock_and_with_it_the_transfers_under_way() -> None:
    handle = node(ring(4), duration_s=100)
    effects = handle(WentOnline(), at=0.0)
    assert (only(effects, Train), timers(effects)) == ([Train(1, "m0")], {("round", 2): 100.0})
    handle(Trained(1, "t1"), at=40.0)
    assert only(handle(model(1, 0), at=50.0), Merge) == [], "it does not go on before the clock"
    assert only(handle(model(1, 2), at=60.0), Merge) == []
    effects = handle(TimerFired(("round", 2)), at=100.0)
    assert effects[0] == StopSending()
    assert only(effects, Merge) == [Merge(1, ("m1 of 0", "t1", "m1 of 2"), (1, 1, 1))]
    assert timers(effects) == {("round", 3): 100.0}
    assert only(handle(Aggregated(1, "a1"), at=100.0), Train) == [Train(2, "a1")]


def test_a_fixed_round_averages_what_has_arrived() -> None:
    handle = node(ring(4), duration_s=100)
    handle(WentOnline(), at=0.0)
    handle(Trained(1, "t1"), at=40.0)
    handle(model(1, 2), at=50.0)
    effects = handle(TimerFired(("round", 2)), at=100.0)
    assert only(effects, Merge) == [Merge(1, ("t1", "m1 of 2"), (1, 1))]
    handle(Aggregated(1, "a1"), at=100.0)
    assert handle(model(1, 0), at=101.0) == [], "too late"
    handle(Trained(2, "t2"), at=140.0)
    effects = handle(TimerFired(("round", 3)), at=200.0)
    assert only(effects, Merge) == [], "nothing to average with: it keeps its own"
    assert reported(effects, ModelUpdated) == [ModelUpdated(2, "t2", merged=1)]
    assert only(effects, Train) == [Train(3, "t2")]


def test_training_that_outlasts_the_round_is_given_up_but_models_are_averaged() -> None:
    handle = node(ring(4), duration_s=100)
    handle(WentOnline(), at=0.0)
    handle(model(1, 2), at=50.0)
    effects = handle(TimerFired(("round", 2)), at=100.0)
    assert only(effects, Merge) == [Merge(1, ("m0", "m1 of 2"), (1, 1))]
    effects = handle(Aggregated(1, "a1"), at=100.0)
    assert only(effects, Train) == [Train(2, "a1")], "which interrupts the old one"
    assert handle(Trained(1, "t1"), at=100.0) == []
    effects = handle(TimerFired(("round", 3)), at=200.0)
    assert reported(effects, ModelUpdated) == [], "neither trained nor merged"


def test_who_comes_during_a_round_takes_part_in_the_rest_of_it() -> None:
    handle = node(ring(4), duration_s=100)
    effects = handle(WentOnline(), at=330.0)
    assert (only(effects, Train), timers(effects)) == ([Train(4, "m0")], {("round", 5): 70.0})
    handle(Trained(4, "t4"), at=350.0)
    handle(WentOffline(), at=360.0)
    effects = handle(WentOnline(), at=910.0)
    assert (only(effects, Train), timers(effects)) == ([Train(10, "t4")], {("round", 11): 90.0})


def test_metropolis_weights_of_missing_models_count_for_the_own_one() -> None:
    handle = node(ring(4), duration_s=100, mixing="metropolis")
    handle(WentOnline(), at=0.0)
    handle(Trained(1, "t1"), at=40.0)
    handle(model(1, 2), at=50.0)
    (merge,) = only(handle(TimerFired(("round", 2)), at=100.0), Merge)
    assert merge.weights == pytest.approx((2 / 3, 1 / 3))


def test_a_merge_that_takes_longer_than_a_round_loses_that_round() -> None:
    handle = node(ring(4), duration_s=100)
    handle(WentOnline(), at=0.0)
    handle(Trained(1, "t1"), at=40.0)
    handle(model(1, 2), at=50.0)
    handle(TimerFired(("round", 2)), at=100.0)
    effects = handle(TimerFired(("round", 3)), at=200.0)
    assert (only(effects, Merge), only(effects, Train)) == ([], [])
    assert only(handle(Aggregated(1, "a1"), at=210.0), Train) == [Train(3, "a1")]


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ({"round_duration_s": 0.0}, "round_duration_s is 0.0, but must be a number of seconds"),
        ({"topology": "file"}, "topology_file is None, but must be the name of a file"),
        ({"topology_file": "x"}, "topology_file is 'x', but must be left out, or topology set to \"file\""),
    ],
)
def test_parameters_that_make_no_sense_are_refused(parameters: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError) as error:
        DpsgdParameters(**parameters)  # type: ignore[arg-type]
    assert str(error.value).startswith(complaint)
