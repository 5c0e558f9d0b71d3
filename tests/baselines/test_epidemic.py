"""Epidemic Learning's node: random others each round, known in advance or found by asking."""

from __future__ import annotations

from random import Random
from typing import Any
from unittest.mock import ANY

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
from plexus.protocol.baselines.epidemic import EpidemicNode, EpidemicParameters
from plexus.protocol.baselines.topology import RandomDigraph
from plexus.protocol.messages import EpidemicModel, Joined, Left, Ping, Pong
from plexus.protocol.view import View
from tests.baselines.kit import Handle, effects_of, everybody_online, only, sent, timers

NODES, FANOUT = 8, 3
DRAWS = RandomDigraph(NODES, FANOUT, b"session")
NOBODY = View.of(0).snapshot()


def node(duration_s: float | None = None, durable: Durable | None = None) -> Handle:
    parameters = EpidemicParameters(fanout=FANOUT)
    world: dict[str, Any] = {"me": 2, "view": everybody_online(NODES)}
    world |= {"bandwidth_bytes_per_s": 100, "rng": Random(1)}
    return effects_of(EpidemicNode(parameters, DRAWS, "m0", duration_s, durable, **world))


def model(k: int, src: int) -> Received:
    return Received(src, EpidemicModel(k, NOBODY, f"m{k} of {src}"))


def test_without_churn_it_sends_to_the_drawn_and_waits_for_those_who_drew_it() -> None:
    handle = node()
    effects = handle(WentOnline())
    assert only(effects, Train) == [Train(1, "m0")]
    assert len(sent(effects, Joined)) == 1
    ((to, body),) = sent(handle(Trained(1, "t1")), EpidemicModel)
    assert (to, body.round, body.model) == (DRAWS.receivers(2, 1), 1, "t1")
    *earlier, last = DRAWS.senders(2, 1)
    for src in earlier:
        assert only(handle(model(1, src)), Merge) == []
    parts = {2: "t1"} | {src: f"m1 of {src}" for src in (*earlier, last)}
    expected = Merge(1, tuple(parts[n] for n in sorted(parts)), (1,) * len(parts))
    assert only(handle(model(1, last)), Merge) == [expected]
    assert only(handle(Aggregated(1, "a1")), Train) == [Train(2, "a1")]


def test_under_churn_it_sends_to_those_that_answer() -> None:
    handle = node(duration_s=100)
    assert timers(handle(WentOnline(), at=0.0))["round", 2] == 100.0
    handle(Received(5, Left(2)), at=1.0)
    ((asked, ping),) = sent(handle(Trained(1, "t1"), at=10.0), Ping)
    assert len(asked) == FANOUT
    assert not {2, 5} & set(asked)
    for peer in asked[:2]:
        assert sent(handle(Received(peer, Pong(ping.exchange, 0, 0, 0)), at=11.0), EpidemicModel) == []
    effects = handle(TimerFired(("ping", ping.exchange)), at=12.0)
    ((another, second),) = sent(effects, Ping)
    ((to, body),) = sent(handle(Received(another[0], Pong(second.exchange, 0, 0, 0)), at=12.1), EpidemicModel)
    assert (set(to), body.model) == ({*asked[:2], *another}, "t1")


def test_peers_found_after_the_end_of_the_round_are_sent_nothing() -> None:
    handle = node(duration_s=100)
    handle(WentOnline(), at=0.0)
    ((asked, ping),) = sent(handle(Trained(1, "t1"), at=99.0), Ping)
    effects = handle(TimerFired(("round", 2)), at=100.0)
    assert StopSending() in effects
    for peer in asked:
        pong = Received(peer, Pong(ping.exchange, 0, 0, 0))
        assert sent(handle(pong, at=100.5), EpidemicModel) == []
    assert only(handle(Trained(2, "t2"), at=120.0), Merge) == []


def test_under_churn_it_averages_what_has_arrived() -> None:
    handle = node(duration_s=100)
    handle(WentOnline(), at=0.0)
    handle(Trained(1, "t1"), at=10.0)
    handle(model(1, 6), at=20.0)
    effects = handle(TimerFired(("round", 2)), at=100.0)
    assert only(effects, Merge) == [Merge(1, ("t1", "m1 of 6"), (1, 1))]


def test_what_is_saved_is_enough_to_go_on() -> None:
    handle = node(durable=Durable(4, 7, "m7"))
    effects = handle(WentOnline())
    assert only(effects, Save) == [Save(Durable(5, 7, "m7", ANY, 7))]
    assert only(effects, Train) == [Train(8, "m7")]
    assert only(handle(WentOffline()), Save) == [Save(Durable(6, 7, "m7", ANY, 7))]


@pytest.mark.parametrize(
    ("field", "value"), [("fanout", 0), ("round_duration_s", -1.0), ("ping_timeout_s", 0)]
)
def test_parameters_that_make_no_sense_are_refused(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{field} is {value}, but must be"):
        EpidemicParameters(**{field: value})  # type: ignore[arg-type]
