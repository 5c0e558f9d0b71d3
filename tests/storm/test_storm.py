"""Storms themselves: the same seed is the same storm, and every fault they speak of happens."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from plexus.protocol.facts import Refused
from plexus.protocol.liar import BEHAVIOURS
from plexus.protocol.messages import VIEW, Ping, ViewReply
from plexus.protocol.roster import Roster
from plexus.rng import stream
from plexus.storm import plan as kinds
from plexus.storm.checkers.api import Violation
from plexus.storm.checkers.traffic import AccountsBalance
from plexus.storm.network import Codec, Weather
from plexus.storm.plan import Plan, draw
from plexus.storm.runtime import NodeObserver
from plexus.storm.storm import Storm, run_storm

ALWAYS = {"until_s": 1e9}


def test_the_same_seed_is_the_same_storm_and_another_another() -> None:
    digests = [run_storm(draw(seed)).digest for seed in (5, 5, 6)]
    assert digests[0] == digests[1] != digests[2]


def test_looking_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """With or without checkers the same things happen at the same moments."""
    watched = Storm(draw(5), None)
    watched.play()
    monkeypatch.setattr("plexus.storm.storm.SAFETY", ())
    unwatched = Storm(draw(5), 0)
    unwatched.play()
    assert unwatched.runtime.kernel.digest() == watched.runtime.kernel.digest()


def test_seeds_draw_all_sizes_protocols_and_faults() -> None:
    plans = [draw(seed) for seed in range(1, 601)]
    sizes = {plan.nodes for plan in plans}
    assert 1 in sizes and max(sizes) > 150
    assert {plan.protocol for plan in plans} == {"plexus", "gossip", "dpsgd"}
    drawn = Counter(type(fault) for plan in plans for fault in plan.faults)
    assert set(drawn) == set(kinds.Fault.__subclasses__())
    parted = {f.kind for p in plans for f in p.faults if isinstance(f, kinds.Partition)}
    assert parted == {"full", "one-way", "partial"}


def test_some_storms_are_nothing_but_a_cut_and_late_models_count_in_half() -> None:
    plans = [plan for plan in map(draw, range(1, 601)) if plan.protocol == "plexus"]
    cuts = [plan for plan in plans if plan.cut is not None]
    assert len(cuts) >= 15
    assert all(1 <= len(plan.cut.side) <= 0.4 * plan.nodes for plan in cuts if plan.cut)
    late = [plan.parameters.late_rounds for plan in plans]  # type: ignore[union-attr]
    assert 0.4 < sum(map(bool, late)) / len(late) < 0.6
    assert {min(late), max(late)} == {0, 20}


def test_up_to_a_tenth_lie_in_some_storms_of_plexus() -> None:
    plans = [draw(seed) for seed in range(1, 601)]
    lying = [plan for plan in plans if plan.liars]
    assert 100 < len(lying) < 250
    assert all(plan.protocol == "plexus" and plan.is_wary and plan.cut is None for plan in lying)
    assert all(len(plan.liars) <= max(1, plan.nodes // 10) and plan.nodes >= 5 for plan in lying)
    assert {how for plan in lying for how in plan.liars.values()} == set(BEHAVIOURS)
    assert any(plan.is_wary and not plan.liars for plan in plans)


def test_what_a_liar_does_itself_is_no_finding() -> None:
    plan = replace(quiet(), liars={1: "lone-aggregate"})
    checker = AccountsBalance(Storm(plan, 0).scene)
    checker.fail(1, "lies")
    with pytest.raises(Violation):
        checker.fail(0, "does not")
    with pytest.raises(Violation):
        checker.fail(None, "somebody")


def weather(*faults: kinds.Fault) -> Weather:
    made = Weather(stream(1, "test"))
    for fault in faults:
        made.begin(fault)
    return made


@pytest.mark.parametrize(
    ("kind", "into", "out_of", "even_pair"),
    [("full", False, False, False), ("one-way", False, True, False), ("partial", False, False, True)],
)
def test_partitions(kind: str, into: bool, out_of: bool, even_pair: bool) -> None:
    parted = weather(kinds.Partition(kind=kind, side=frozenset({1, 3}), **ALWAYS))  # type: ignore[arg-type]
    assert parted.passes(0, 1) == into
    assert parted.passes(1, 0) == out_of
    assert parted.passes(5, 1) == even_pair
    assert parted.passes(0, 2) and parted.passes(1, 3)
    assert not parted.connected(0, 1)


def test_loss_duplication_and_delay() -> None:
    assert weather(kinds.Loss(share=1.0, **ALWAYS)).copies_s(0, 1) == []
    first, second = weather(kinds.Duplication(share=1.0, **ALWAYS)).copies_s(0, 1)
    assert first == 0.0 < second
    (late_s,) = weather(kinds.Delay(share=1.0, longest_s=5.0, **ALWAYS)).copies_s(0, 1)
    assert 0 < late_s <= 5.0
    slow = weather(kinds.Slow(nodes=frozenset({1}), factor=3.0, lag_s=2.0, **ALWAYS))
    assert slow.copies_s(0, 1) > [0.0] and slow.copies_s(0, 2) == [0.0]
    assert (slow.training_factor(1), slow.training_factor(0)) == (3.0, 1.0)
    assert weather(kinds.Damage(share=1.0, **ALWAYS)).is_damaged()


def test_damage_to_any_byte_is_survived_by_the_codec() -> None:
    codec = Codec(Roster.simulated(b"session", 3), 100, stream(1, "damage"))
    for number in range(300):
        codec.damage(Ping(number, 2 * number))


def quiet(*faults: kinds.Fault) -> Plan:
    """A small session of Plexus with these faults and no others."""
    plan = next(p for p in map(draw, range(1, 500)) if p.protocol == "plexus" and 6 <= p.nodes <= 15)
    return replace(plan, faults=faults, at_start=plan.nodes, gone=0)


class Refusals(NodeObserver):
    """Who was not believed."""

    def __init__(self) -> None:
        self.seen: list[Refused] = []

    def reported(self, node: int, fact: object) -> None:
        if isinstance(fact, Refused):
            self.seen.append(fact)


@pytest.mark.parametrize("through_codec", [False, True])
def test_where_events_are_signed_nobody_honest_is_refused(through_codec: bool) -> None:
    """Not even whoever lost its disk and begins to count anew, with another bandwidth. An aggregator that is
    killed with what it acknowledged, and back at once, cannot be told from one that made nothing of it: that
    happens in five of 24 such storms, and not in this one."""
    churn = kinds.Churn(
        mean_s=30.0, leave_share=0.5, restart_share=0.8, disk_lost_share=0.5, from_s=5.0, until_s=200.0
    )
    plan = quiet(churn, kinds.Remeasured(mean_s=20.0, until_s=200.0), kinds.Loss(share=0.1, until_s=200.0))
    signed = replace(plan.parameters, signed_views=True)  # type: ignore[type-var]
    plan = replace(plan, parameters=signed, seed=plan.seed + 2)  # type: ignore[arg-type]
    plan = replace(plan, through_codec=through_codec)
    storm = Storm(plan, 1)
    storm.observers.add(refusals := Refusals())
    storm.play()
    assert refusals.seen == []
    assert all(each.node.view.is_signed for each in storm.runtime.nodes)  # type: ignore[union-attr]


def test_a_collapse_slows_transfers_down_and_ends() -> None:
    nodes = frozenset(range(quiet().nodes))
    collapse = kinds.Collapse(nodes=nodes, factor=0.1, from_s=10.0, until_s=20.0)
    storm = Storm(quiet(collapse), 0)
    storm.script.begin()
    link = storm.runtime.network.sharing.links_of(0)[0]
    usual = link.capacity_bytes_per_s
    storm.runtime.run(15.0)
    assert link.capacity_bytes_per_s == pytest.approx(0.1 * usual)
    storm.runtime.run(25.0)
    assert link.capacity_bytes_per_s == usual


@pytest.mark.parametrize("faults", [(), (kinds.Duplication(share=1.0, **ALWAYS),)], ids=["quiet", "stormy"])
def test_a_view_alone_is_a_transfer_and_the_books_balance(faults: tuple[kinds.Fault, ...]) -> None:
    storm = Storm(quiet(*faults), 0)
    storm.script.begin()
    storm.runtime.run(2.0)
    network, accounts = storm.runtime.network, storm.runtime.accounts
    view = storm.scene.plexus(0).membership.view.snapshot()
    (count, sent), received = accounts.messages[VIEW], accounts.received_bytes[1]
    network.send(0, (1,), ViewReply(view))
    assert [type(flow.tag.body) for flow in network.sharing.sent_by(0)] == [ViewReply]
    assert accounts.messages[VIEW] == [count + 1, sent], "nothing of it has left yet"
    storm.runtime.run(4.0)
    assert accounts.messages[VIEW][1] > sent and accounts.received_bytes[1] > received
    AccountsBalance(storm.scene).tick()


def test_a_liar_is_believed_and_gets_no_faster() -> None:
    plan = quiet()
    liar = kinds.Liar(nodes=frozenset({0}), factor=100.0, until_s=plan.storm_s)
    honest, lying = Storm(quiet(), 0), Storm(quiet(liar), 0)
    told = [s.scene.node(0).membership.bandwidth_bytes_per_s for s in (honest, lying)]  # type: ignore[union-attr]
    assert told[1] == 100 * told[0]
    links = [s.runtime.network.sharing.links_of(0)[0].capacity_bytes_per_s for s in (honest, lying)]
    assert links[0] == links[1]


def test_clocks_differ_and_drift() -> None:
    everybody = frozenset(range(quiet().nodes))
    skew = kinds.Skew(nodes=everybody, offset_s=1000.0, drift=0.1, until_s=1.0)
    storm = Storm(quiet(skew), 0)
    storm.script.begin()
    clocks = {watched.clock_s(100.0) for watched in storm.runtime.nodes}
    assert len(clocks) == len(everybody)


def test_a_power_cut_stops_a_node_between_two_effects() -> None:
    storm = Storm(quiet(), None)
    storm.runtime.doomed[0] = 2  # the watchdog is set, the counter saved
    storm.runtime.run(0.0)
    assert not storm.runtime.online[0]
    assert storm.runtime.disks[0].newest is not None, "its counter was saved"
    told = [str(line) for line in storm.conversation.lines if line.nodes[0] == 0]
    assert not any("joined" in line or "ping" in line for line in told)
