"""Teleportation's node: turns, tokens that are handed over, and what comes of lost ones."""

from __future__ import annotations

import csv
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any
from unittest.mock import ANY
from weakref import WeakSet

import pytest

from plexus.experiment.simulation import simulate
from plexus.protocol.api import (
    Aggregated,
    Durable,
    Effect,
    Event,
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
from plexus.protocol.baselines.teleportation import TeleportationNode, TeleportationParameters, by_token
from plexus.protocol.facts import ModelUpdated
from plexus.protocol.messages import Ping, Pong, TokenModel
from plexus.protocol.roster import Roster
from plexus.protocol.view import View
from plexus.spec.experiment import parse_spec
from plexus.testing import reported
from tests.baselines.kit import Handle, effects_of, everybody_online, only, sent, timers

NODES, ACTIVE = 12, 4
ROSTER = Roster.simulated(b"session", NODES)
NOBODY = View.of(0).snapshot()


def active(k: int) -> list[int]:
    """By token, if all answer."""
    return by_token(ROSTER, k, ROSTER.order(k)[:ACTIVE].tolist())


ONE = active(1)[2]
"""It holds token 2 in the first round."""
ASIDE = next(node for node in range(NODES) if not any(node in active(k) for k in (1, 2, 3)))
"""It has no turn so soon."""


def node(me: int, duration_s: float | None = None, durable: Durable | None = None, **more: Any) -> Handle:
    parameters = TeleportationParameters(active=ACTIVE, **more)
    view = everybody_online(NODES)
    world: dict[str, Any] = {"me": me, "view": view, "bandwidth_bytes_per_s": 100, "rng": Random(1)}
    return effects_of(TeleportationNode(parameters, "m0", ROSTER, duration_s, durable, **world))


class Weights:
    """A model that one can see the end of."""


def token(k: int, number: int, model: Any, src: int = 0, trained: bool = False) -> Received:
    return Received(src, TokenModel(k, number, int(trained), NOBODY, model))


def handed(effects: list[Effect]) -> list[tuple[int, int, int, int, Any]]:
    """(to, round, token, whether it is trained, model) of what was sent."""
    bodies = [(to, body) for (to,), body in sent(effects, TokenModel)]
    return [(to, body.round, body.token, body.is_trained, body.model) for to, body in bodies]


def test_one_node_more_moves_few_tokens() -> None:
    many = Roster.simulated(b"session", 100)
    moved = 0
    for k in range(1, 51):
        order = many.order(k).tolist()
        without = by_token(many, k, order[1:17])
        moved += sum(one != other for one, other in zip(by_token(many, k, order[:16]), without, strict=True))
        assert sorted(without) == sorted(order[1:17])
    assert moved / 50 < 5, "by the order alone it would be all 16"


# Synchronous rounds


def test_the_active_nodes_of_the_first_round_train_and_nobody_else() -> None:
    begun = [me for me in range(NODES) if only(node(me)(WentOnline()), Train)]
    assert begun == sorted(active(1))


def test_it_trains_averages_with_its_neighbours_and_hands_its_token_over() -> None:
    handle = node(ONE, topology="ring")
    assert only(handle(WentOnline()), Train) == [Train(1, "m0")]
    before, after = active(1)[1], active(1)[3]
    assert sorted(handed(handle(Trained(1, "t1")))) == sorted(
        [(before, 1, 1, 1, "t1"), (after, 1, 3, 1, "t1")]
    )
    assert only(handle(token(1, 2, "t1 of 1", before, trained=True)), Merge) == []
    (merge,) = only(handle(token(1, 2, "t1 of 3", after, trained=True)), Merge)
    assert (sorted(merge.models), merge.weights) == (["t1", "t1 of 1", "t1 of 3"], (1, 1, 1))
    effects = handle(Aggregated(1, "a1"))
    assert reported(effects, ModelUpdated) == [ModelUpdated(1, "a1", merged=3)]
    assert handed(effects) == [(active(2)[2], 2, 2, 0, "a1")], "the same token in the next round"
    assert only(effects, Train) == []


def test_with_one_peer_the_neighbour_is_another_in_each_round() -> None:
    k = next(k for k in range(2, 99) if ASIDE in active(k))
    handle = node(ASIDE)
    handle(WentOnline())
    at = active(k).index(ASIDE)
    assert only(handle(token(k, at, "handed")), Train) == [Train(k, "handed")]
    ((to, *_),) = handed(handle(Trained(k, "t")))
    assert to == active(k)[(at + 2 ** ((k - 1) % 2)) % ACTIVE]


def test_turns_are_taken_in_order_though_tokens_come_as_they_may() -> None:
    first, second = [k for k in range(2, 199) if ASIDE in active(k)][:2]
    tokens = {k: active(k).index(ASIDE) for k in (first, second)}
    handle = node(ASIDE, topology="ring")
    handle(WentOnline())
    assert only(handle(token(second, tokens[second], "later")), Train) == [], "somebody waits for the first"
    assert only(handle(token(first, tokens[first], "sooner")), Train) == [Train(first, "sooner")]
    handle(Trained(first, "t"))
    for away in (-1, 1):
        src = active(first)[(tokens[first] + away) % ACTIVE]
        handle(token(first, tokens[first], "n", src, trained=True))
    assert only(handle(Aggregated(first, "a")), Train) == [Train(second, "later")]


# Rounds of a fixed duration


def answered(
    handle: Handle, effects: list[Effect], at: float, silent: tuple[int, ...] = (), **pong: int
) -> Any:
    """Everybody answers who is asked, but for the silent; all that comes of it."""
    everything, pings = list(effects), sent(effects, Ping)
    while pings:
        asked, ping = pings.pop(0)
        said = Pong(ping.exchange, pong.get("round", 0), pong.get("held", 0), 0)
        events: list[Event] = [Received(peer, said) for peer in asked if peer not in silent]
        if set(asked) & set(silent):
            events += [TimerFired(("ping", ping.exchange))] * 2
        for event in events:
            effects = handle(event, at=at)
            everything += effects
            pings += [(to, body) for to, body in sent(effects, Ping) if not set(to) <= set(silent)]
    return everything


def test_a_fixed_round_is_handed_over_to_those_that_answer() -> None:
    handle = node(ONE, duration_s=100, topology="ring")
    effects = handle(WentOnline(), at=0.0)
    assert timers(effects)["round", 2] == 100.0
    assert only(answered(handle, effects, at=1.0), Train) == [Train(1, "m0")]
    first, *others = ROSTER.order(2).tolist()
    heirs = by_token(ROSTER, 2, others[:ACTIVE])
    effects = answered(handle, handle(Trained(1, "t1"), at=40.0), at=41.0, silent=(first,))
    assert {to for to, *_ in handed(effects)} == {active(1)[1], active(1)[3]}
    handle(token(1, 2, "t1 of 3", active(1)[3], trained=True), at=50.0)
    effects = handle(TimerFired(("round", 2)), at=100.0)
    assert effects[0] == StopSending()
    assert only(effects, Merge), "with what has arrived"
    effects = handle(Aggregated(1, "a1"), at=100.0)
    assert handed(effects) == [(heirs[2], 2, 2, 0, "a1")], "who was silent is nobody's successor"


def test_a_token_whose_holder_vanished_is_refilled_by_a_neighbour() -> None:
    handle = node(ASIDE, duration_s=100)
    handle(WentOnline(), at=150.0)
    assert handle(token(2, 3, "of a neighbour", 5, trained=True), at=160.0)[0:0] == []
    effects = handle(TimerFired(("round", 3)), at=200.0)
    assert only(effects, Merge) == [Merge(2, ("of a neighbour",), (1,))], "it has none of its own to add"
    effects = handle(Aggregated(2, "refilled"), at=200.0)
    assert reported(effects, ModelUpdated) == [ModelUpdated(2, "refilled", merged=1)]
    ((_, k, number, *_),) = handed(answered(handle, effects, at=201.0))
    assert (k, number) == (3, 3)


def test_what_is_handed_over_too_late_is_not_trained() -> None:
    handle = node(ASIDE, duration_s=100)
    handle(WentOnline(), at=250.0)
    assert only(handle(token(2, 1, "old"), at=260.0), Train) == []
    assert only(handle(token(3, 1, "new"), at=261.0), Train) == [Train(3, "new")]
    handle(token(4, 2, "ahead of this clock"), at=299.0)
    effects = handle(TimerFired(("round", 4)), at=300.0)
    assert only(effects, Train) == [Train(4, "ahead of this clock")]


@pytest.mark.parametrize(
    ("heard", "begins"),
    [({}, True), ({"held": 7}, True), ({"held": 8}, False), ({"round": 19, "held": 3}, False)],
)
def test_when_nobody_knows_of_a_token_those_with_the_newest_model_begin(
    heard: dict[str, int], begins: bool
) -> None:
    handle = node(active(20)[1], 100, Durable(3, 7, "m7"))
    effects = answered(handle, handle(WentOnline(), at=1950.0), at=1951.0, **heard)
    assert only(effects, Train) == ([Train(20, "m7")] if begins else [])


def test_who_is_not_next_asks_nobody_and_who_knows_of_a_token_neither() -> None:
    others = [me for me in range(NODES) if me not in active(20)]
    assert sent(node(others[0], 100)(WentOnline(), at=1950.0), Ping) == []
    handle = node(active(20)[1], 100)
    handle(WentOnline(), at=1850.0)
    handle(Received(3, Ping(9, 17)), at=1890.0)
    assert sent(handle(TimerFired(("round", 20)), at=1900.0), Ping) == []


def test_who_claims_what_no_clock_says_is_not_believed() -> None:
    """Neither does it stop the others from beginning anew, nor do they keep its models."""
    handle = node(active(20)[1], 100, Durable(3, 7, "m7"))
    handle(WentOnline(), at=1850.0)
    models = [Weights(), Weights()]
    kept = WeakSet(models)
    handle(token(10**6, 1, models.pop()), at=1880.0)
    handle(token(10**6, 1, models.pop(), trained=True), at=1885.0)
    assert not kept
    handle(Received(3, Ping(9, 10**6)), at=1890.0)
    effects = answered(handle, handle(TimerFired(("round", 20)), at=1900.0), at=1901.0, held=10**6)
    assert only(effects, Train) == [Train(20, "m7")]


def test_what_is_saved_is_enough_to_go_on() -> None:
    handle = node(ASIDE, durable=Durable(4, 7, "m7"))
    assert only(handle(WentOnline()), Save) == [Save(Durable(5, 7, "m7", ANY, 7))]
    assert only(handle(WentOffline()), Save) == [Save(Durable(6, 7, "m7", ANY, 7))]


# Its paper's claims

SPEC = """\
name = "scale"
hours = 0.35
task = { name = "digits", partition = "dirichlet" }
traces = { availability = "none" }
evaluation = { every_hours = 0.02 }
"""
DPSGD = ("protocol.name=dpsgd", "protocol.topology=ring")
TELEPORTATION = ("protocol.name=teleportation", "protocol.topology=ring", "protocol.active=8")


def accuracy(out: Path, nodes: int, *protocol: str) -> float:
    """In rounds 20 to 30, over two seeds."""
    found = []
    for seed in (1, 2):
        spec = parse_spec(SPEC, "scale.toml", [f"nodes={nodes}", *protocol], seed)
        simulate(spec, Path(), out / f"{seed}")
        with (out / f"{seed}" / "evaluations.csv").open() as file:
            rows = csv.DictReader(file)
            found += [float(row["accuracy"]) for row in rows if 20 <= int(row["round"]) <= 30]
    return fmean(found)


AS_MUCH_DATA = ("task.reuse=true", "task.batch=57", "hours=1.1", "evaluation.every_hours=0.05")
"""For each of 100 nodes as for each of 25."""


@pytest.mark.slow
def test_many_nodes_do_not_hurt_it_and_it_is_better_than_d_psgd_on_a_ring(tmp_path: Path) -> None:
    """Seeds 1 to 3: 0.866, 0.869 and 0.881 with 25 nodes, 0.860, 0.865 and 0.891 with 100; D-PSGD has 0.76
    to 0.79."""
    found = {
        (name, nodes): accuracy(tmp_path / f"{name}-{nodes}", nodes, *protocol, *AS_MUCH_DATA)
        for name, protocol, nodes in (
            ("dpsgd", DPSGD, 100),
            ("teleportation", TELEPORTATION, 100),
            ("teleportation", TELEPORTATION, 25),
        )
    }
    assert found["teleportation", 100] > found["dpsgd", 100] + 0.06
    assert found["teleportation", 100] > found["teleportation", 25] - 0.02


@pytest.mark.slow
def test_what_little_data_costs_with_many_nodes_costs_d_psgd_more(tmp_path: Path) -> None:
    """The same data on 25 or on 100 nodes: over seeds 1 to 4 D-PSGD loses 0.09, Teleportation 0.02 (seed 4:
    0.05)."""
    found = {
        (name, nodes): accuracy(tmp_path / f"{name}-{nodes}", nodes, *protocol)
        for name, protocol in (("dpsgd", DPSGD), ("teleportation", TELEPORTATION))
        for nodes in (25, 100)
    }
    lost = {name: found[name, 25] - found[name, 100] for name in ("dpsgd", "teleportation")}
    assert lost["teleportation"] < lost["dpsgd"] / 2
