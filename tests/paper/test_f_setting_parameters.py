"""Section III-F, Setting Plexus parameters."""

from __future__ import annotations

import pytest

from plexus.protocol.facts import AggregationCompleted, AnsweredLate, Suspected
from plexus.protocol.messages import AggregateRequest, Message, NodeId
from plexus.protocol.parameters import PlexusParameters
from tests.protocol.kit import Exchange

N = 20


def session(**options: object) -> Exchange:
    exchange = Exchange(N, **{"sample_size": 4, "success_fraction": 1.0} | options)
    exchange.go_online(*range(N))
    return exchange


def test_f01_a_larger_sample_trains_and_sends_more_and_loads_the_aggregator_more() -> None:
    """III-F: s sets communication and use of resources; increasing it loads the aggregator more."""
    models_per_round, load = [], []
    for s in (2, 5, 10):
        exchange = session(sample_size=s)
        exchange.run_until(exchange.has_aggregated(21))
        models = [b for _, _, _, b in exchange.messages if isinstance(b, AggregateRequest)]
        models_per_round.append(round(len(models) / 20))
        load.append(max(fact.models for _, _, fact in exchange.of(AggregationCompleted)))
    assert models_per_round == load == [2, 5, 10]


def test_f02_a_higher_success_fraction_makes_rounds_longer() -> None:
    """III-F: with a higher sf an aggregator waits for more models, so rounds tend to take longer."""
    ends_s = []
    for success_fraction in (0.25, 0.5, 1.0):
        exchange = session(success_fraction=success_fraction, training_s=lambda node: 5.0 + node)
        exchange.run_until(exchange.has_aggregated(30))
        ends_s.append(exchange.now)
    assert ends_s == sorted(ends_s)
    assert ends_s[0] < ends_s[-1]


@pytest.mark.parametrize(("ping_timeout_s", "flagged"), [(0.25, False), (0.15, True)])
def test_f03_a_ping_timeout_below_the_round_trip_time_flags_online_nodes_as_offline(
    ping_timeout_s: float, flagged: bool
) -> None:
    """III-F: Δt_p should be an upper bound of the round-trip time, or nodes are taken for offline."""
    exchange = session(latency_s=0.1, ping_timeout_s=ping_timeout_s)
    exchange.run(60.0)
    assert (exchange.of(Suspected) != []) == flagged
    late = [fact.after_s for _, _, fact in exchange.of(AnsweredLate)]
    assert late == pytest.approx([0.2] * len(late)) and (late != []) == flagged, "and that is noticed"


@pytest.mark.parametrize(("aggregation_timeout_s", "contribute"), [(60.0, 4), (10.0, 1)])
def test_f04_the_aggregation_timeout_must_leave_all_participants_time_to_train_and_send(
    aggregation_timeout_s: float, contribute: int
) -> None:
    """III-F: Δt_agg should let every participant finish training and sending, so all contribute."""
    exchange = session(
        aggregation_timeout_s=aggregation_timeout_s, training_s=lambda node: 10.0 + 11 * (node % 4)
    )
    exchange.run_until(exchange.has_aggregated(10))
    models = [fact.models for _, _, fact in exchange.of(AggregationCompleted)]
    assert min(models) == contribute


def test_f05_the_ack_timeout_must_be_greater_than_the_aggregation_timeout() -> None:
    """III-F: Δt_ack should be greater than Δt_agg: here, no other session can be made."""
    for ack_timeout_s in (299.9, 300.0):
        with pytest.raises(ValueError, match="greater than aggregation_timeout_s"):
            PlexusParameters(aggregation_timeout_s=300.0, ack_timeout_s=ack_timeout_s)
    PlexusParameters(aggregation_timeout_s=300.0, ack_timeout_s=300.1)


def test_f06_so_nobody_sends_to_a_second_aggregator_while_the_first_still_waits() -> None:
    """III-F: the reason: no participant turns to another aggregator while the first collects models."""

    def delays(src: NodeId, dst: NodeId, body: Message) -> list[float]:
        lost = isinstance(body, AggregateRequest) and src == 3  # this one never gets through
        return [] if lost else [0.05]

    exchange = session(delays=delays, aggregation_timeout_s=100.0, ack_timeout_s=101.0)
    exchange.run(3000.0)
    sent_to: dict[tuple[NodeId, int], set[NodeId]] = {}
    for _, src, dst, body in exchange.messages:
        if isinstance(body, AggregateRequest):
            sent_to.setdefault((src, body.round), set()).add(dst)
    assert any(fact.timed_out for _, _, fact in exchange.of(AggregationCompleted))
    assert all(len(aggregators) == 1 for aggregators in sent_to.values())
