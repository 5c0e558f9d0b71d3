"""The rates that the sharing rules give at one instant."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plexus.errors import PlexusError
from plexus.sim.sharing import RULES, Fifo, Flow, Shared, Sharing
from tests.sim import strategies as draw
from tests.sim.fluid import DUMB_RATES, Capacities, Pair, loads

every_rule = pytest.mark.parametrize("rule", RULES)
batches = st.lists(st.lists(draw.pair, min_size=1, max_size=5), min_size=1, max_size=5)
any_capacities = draw.round_capacities | draw.odd_capacities


def build(rule: str, capacities: Capacities) -> Sharing:
    return RULES[rule](capacities.up, capacities.down)


def flows_between(pairs: list[Pair], size_bytes: float = 100.0) -> list[Flow]:
    return [Flow(src, dst, size_bytes) for src, dst in pairs]


def rates_of(flows: list[Flow]) -> list[float]:
    return [flow.rate_bytes_per_s for flow in flows]


def pairs_of(flows: list[Flow]) -> list[Pair]:
    return [(flow.src, flow.dst) for flow in flows]


Step = tuple[list[Pair], list[int]]
"""Flows that start together, or (by their place in the start order) flows that stop together."""


@st.composite
def histories(draw_from: st.DrawFn) -> list[Step]:
    running: list[int] = []
    started = 0
    steps: list[Step] = []
    for _ in range(draw_from(st.integers(1, 6))):
        if running and draw_from(st.booleans()):
            gone = draw_from(st.lists(st.sampled_from(running), min_size=1, unique=True))
            running = [number for number in running if number not in gone]
            steps.append(([], gone))
        else:
            pairs = draw_from(st.lists(draw.pair, min_size=1, max_size=6))
            running += range(started, started + len(pairs))
            started += len(pairs)
            steps.append((pairs, []))
    return steps


def play(sharing: Sharing, history: list[Step]):
    """After each step: the instant, the flows in start order, those returned, those stopped."""
    flows: list[Flow] = []
    running: list[Flow] = []
    for now, (pairs, gone) in enumerate(history, start=1):
        begun = flows_between(pairs, 1e12)
        stopped = [flows[number] for number in gone]
        flows += begun
        running = [flow for flow in running + begun if flow not in stopped]
        returned = sharing.start(begun, now) if begun else sharing.stop(stopped, now)
        yield float(now), running, returned, stopped


@every_rule
@given(any_capacities, histories())
def test_no_link_is_ever_exceeded(rule, capacities, history):
    for _, running, _, _ in play(build(rule, capacities), history):
        assert all(rate >= 0 for rate in rates_of(running))
        up, down = loads(draw.NODES, pairs_of(running), rates_of(running))
        for load, capacity in zip(up + down, [*capacities.up, *capacities.down], strict=True):
            assert load <= capacity * (1 + 1e-9)


@every_rule
@given(draw.round_capacities, histories())
def test_rates_are_those_of_the_definition(rule, capacities, history):
    for _, running, _, _ in play(build(rule, capacities), history):
        expected = DUMB_RATES[rule](capacities, pairs_of(running))
        assert rates_of(running) == pytest.approx(list(map(float, expected)), rel=1e-9)


@given(draw.odd_capacities, histories())
def test_shared_rates_are_those_of_the_definition_for_odd_capacities(capacities, history):
    for _, running, _, _ in play(build("shared", capacities), history):
        expected = DUMB_RATES["shared"](capacities, pairs_of(running))
        assert rates_of(running) == pytest.approx(list(map(float, expected)), rel=1e-12)


@given(any_capacities, histories())
def test_fair_flow_can_only_rise_at_the_cost_of_one_that_has_no_more(capacities, history):
    """Max-min: every flow crosses a full link on which nobody has more than it."""
    for _, running, _, _ in play(build("fair", capacities), history):
        up, down = loads(draw.NODES, pairs_of(running), rates_of(running))
        for flow in running:
            senders = [other for other in running if other.src == flow.src]
            receivers = [other for other in running if other.dst == flow.dst]
            assert any(
                load >= capacity * (1 - 1e-9)
                and flow.rate_bytes_per_s >= max(rates_of(neighbours)) * (1 - 1e-9)
                for load, capacity, neighbours in (
                    (up[flow.src], capacities.up[flow.src], senders),
                    (down[flow.dst], capacities.down[flow.dst], receivers),
                )
            )


@every_rule
@given(any_capacities, histories())
def test_only_flows_whose_rate_changed_are_touched_and_returned(rule, capacities, history):
    known: dict[Flow, tuple[float, float]] = {}
    for now, running, returned, _ in play(build(rule, capacities), history):
        assert len(set(returned)) == len(returned)
        for flow in running:
            rate, since_s = known.get(flow, (0.0, now))
            if flow in returned:
                assert flow.rate_bytes_per_s != rate
                assert flow.since_s == now
            else:
                assert (flow.rate_bytes_per_s, flow.since_s) == (rate, since_s)
            known[flow] = flow.rate_bytes_per_s, flow.since_s


@every_rule
@given(any_capacities, histories())
def test_stopped_flow_is_settled_and_off_its_links(rule, capacities, history):
    sharing = build(rule, capacities)
    for now, running, returned, stopped in play(sharing, history):
        assert not set(stopped) & set(returned)
        assert all((flow.rate_bytes_per_s, flow.since_s) == (0.0, now) for flow in stopped)
        for node in range(draw.NODES):
            assert set(sharing.flows_of(node)) == {f for f in running if node in (f.src, f.dst)}
            assert list(sharing.sent_by(node)) == [f for f in running if f.src == node]


@every_rule
@given(any_capacities, batches)
def test_batch_gets_the_rates_of_single_starts_at_the_same_instant(rule, capacities, batches):
    together, one_by_one = build(rule, capacities), build(rule, capacities)
    in_batches, singly = [], []
    for now, pairs in enumerate(batches):
        in_batches += flows_between(pairs)
        together.start(in_batches[-len(pairs) :], float(now))
        for flow in flows_between(pairs):
            singly.append(flow)
            one_by_one.start([flow], float(now))
        assert rates_of(in_batches) == pytest.approx(rates_of(singly), rel=1e-12)


@given(any_capacities, histories())
def test_fifo_flow_loses_nothing_to_a_later_one(capacities, history):
    """Neither its start nor its end lowers the rate of anyone who was there before."""
    place = {}
    rates: dict[Flow, float] = {}
    for _, running, _, stopped in play(build("fifo", capacities), history):
        first = min((place[flow] for flow in stopped), default=len(place))
        for flow in running:
            place.setdefault(flow, len(place))
            if place[flow] < first:
                assert flow.rate_bytes_per_s >= rates.get(flow, 0.0)
            rates[flow] = flow.rate_bytes_per_s


def test_shared_leaves_flows_alone_that_another_link_limits():
    """The slow receiver limits 0 → 2 before and after, so the end of 0 → 1 leaves it be."""
    sharing = Shared(up_bytes_per_s=[100.0, 100.0, 100.0], down_bytes_per_s=[100.0, 100.0, 10.0])
    to_fast, to_slow, also_fast = flows_between([(0, 1), (0, 2), (0, 1)])
    sharing.start([to_fast, to_slow, also_fast], 0.0)
    assert rates_of([to_fast, to_slow, also_fast]) == [100 / 3, 10.0, 100 / 3]
    assert sharing.stop([to_fast], 1.0) == [also_fast]
    assert (to_slow.rate_bytes_per_s, to_slow.since_s) == (10.0, 0.0)
    assert (also_fast.rate_bytes_per_s, also_fast.since_s) == (50.0, 1.0)


def test_fifo_tops_up_a_flow_that_its_sender_limited():
    sharing = Fifo(up_bytes_per_s=[10.0, 100.0, 100.0], down_bytes_per_s=[100.0, 100.0, 8.0])
    first, second = flows_between([(0, 2), (0, 1)])
    sharing.start([first, second], 0.0)
    assert rates_of([first, second]) == [8.0, 2.0]
    assert sharing.stop([first], 1.0) == [second]
    assert second.rate_bytes_per_s == 10.0


def test_fifo_flow_waits_while_nothing_is_left_for_it():
    sharing = Fifo(up_bytes_per_s=[10.0, 10.0], down_bytes_per_s=[10.0, 10.0])
    first, second = flows_between([(0, 1), (0, 1)])
    assert sharing.start([first, second], 0.0) == [first]
    assert (second.rate_bytes_per_s, second.ends_s) == (0.0, math.inf)
    assert sharing.stop([first], 10.0) == [second]
    assert (second.remaining_bytes, second.ends_s) == (100.0, 20.0)


def test_fifo_does_not_hand_out_rounding_errors():
    """0.1 and 0.7 leave 1e-16 of 0.8: a flow at that rate would run for ever."""
    sharing = Fifo(up_bytes_per_s=[0.1, 0.7, 1.0, 1.0], down_bytes_per_s=[1.0, 1.0, 1.0, 0.8])
    flows = flows_between([(0, 3), (1, 3), (2, 3)])
    sharing.start(flows, 0.0)
    assert 0.8 - 0.1 - 0.7 > 0.0
    assert rates_of(flows) == [0.1, 0.7, 0.0]


@pytest.mark.parametrize("start_s", [0.7, 1e9])
def test_settling_counts_what_was_sent_and_ends_at_exactly_nothing(start_s):
    flow = Flow(0, 1, 1.0)
    Shared([3.0, 1.0], [1.0, 0.06]).start([flow], start_s)
    flow.settle(start_s + 5)
    assert flow.sent_bytes == pytest.approx(0.3)
    flow.settle(flow.ends_s)
    assert (flow.sent_bytes, flow.remaining_bytes, flow.since_s) == (1.0, 0.0, flow.ends_s)


@pytest.mark.parametrize("capacity", [0.0, -1.0, math.inf, math.nan])
def test_capacity_must_be_positive_and_finite(capacity):
    with pytest.raises(PlexusError) as error:
        Shared([1.0, 1.0], [1.0, capacity])
    assert str(error.value) == (
        f"the down link of node 1 needs a positive, finite number of bytes per second, not {capacity}"
    )


def test_every_node_needs_both_links():
    with pytest.raises(PlexusError, match="every node has two links, not 2 up and 1 down"):
        Shared([1.0, 1.0], [1.0])


@every_rule
@given(any_capacities, batches, draw.pair, st.sampled_from([0.01, 0.5, 2.0]))
def test_a_link_that_changes_its_capacity_is_filled_again_and_nothing_sent_is_lost(
    rule: str, capacities: Capacities, starts: list[list[Pair]], pair: Pair, factor: float
) -> None:
    sharing, flows = build(rule, capacities), []
    for pairs in starts:
        started = flows_between(pairs, 1e12)
        sharing.start(started, 0.0)
        flows += started
    before = {flow: (flow.rate_bytes_per_s, flow.remaining_bytes) for flow in flows}
    node = pair[0]
    changed = sharing.resize(node, factor, 1.0)
    up, down = sharing.links_of(node)
    assert up.capacity_bytes_per_s == pytest.approx(factor * capacities.up[node])
    assert down.capacity_bytes_per_s == pytest.approx(factor * capacities.down[node])
    for link in (up, down):
        used = sum(flow.rate_bytes_per_s for flow in link.flows)
        assert used <= link.capacity_bytes_per_s * (1 + 1e-9)
    for flow, (rate, left) in before.items():
        if flow in changed:
            assert flow.remaining_bytes == pytest.approx(left - rate)
        else:
            assert flow.rate_bytes_per_s == rate
