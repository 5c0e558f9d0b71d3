"""Mail that waits, nodes that are made late and sparse views: whatever nodes do and send is the same."""

from __future__ import annotations

import gc
import sys
import weakref
from collections import Counter
from pathlib import Path
from statistics import median
from types import FunctionType, ModuleType
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plexus.bench.protocol import exponential_churn
from plexus.protocol.baselines.epidemic import EpidemicParameters
from plexus.protocol.baselines.gossip import GossipParameters
from plexus.protocol.parameters import PlexusParameters
from plexus.protocol.sparse import Layer, PackedLayer
from plexus.protocol.view import View
from plexus.sim import many, protocols
from plexus.sim.faults import PlannedFault
from plexus.sim.many import RestingView, Unmade
from plexus.sim.runtime import Runtime
from plexus.sim.session import Setting, SymbolicModels, assemble
from plexus.traces.build import TracesSpec, build_world
from plexus.traces.world import World, training_time_s

N, HOURS = 150, 1.0
CODE = (type, ModuleType, FunctionType)
CUT = (PlannedFault("partition", 900, 1800, frozenset(range(0, N, 3))),)
Event: TypeAlias = tuple[int, int]
events: st.SearchStrategy[Event] = st.tuples(st.integers(0, 5), st.integers(1, 20))


def simulate(
    name: str, parameters: Any, graceful_share: float, faults: Any, mail: bool = True
) -> tuple[Runtime, list[Any]]:
    generated = build_world(TracesSpec(availability="none"), N, 1, Path())
    world = World(generated.devices, exponential_churn(N, 3), generated.latency)
    durations = [training_time_s(device, 5, 20) for device in world.devices]
    models, facts = SymbolicModels(346_000), list[Any]()
    setting = Setting(
        world, models, models.initial(), durations.__getitem__, 1, graceful_share=graceful_share
    )
    nodes = protocols.PROTOCOLS[name].build(setting, parameters)
    runtime = assemble(setting, nodes, lambda *fact: facts.append(fact), faults=faults)
    if not mail:
        runtime._mail = runtime.network.mail = None
    for quarter in range(1, 5):
        runtime.run(900 * quarter * HOURS)
    return runtime, facts


@pytest.mark.parametrize(
    ("name", "parameters", "graceful_share", "faults"),
    [
        ("plexus", PlexusParameters(), 1.0, ()),
        ("plexus", PlexusParameters(late_rounds=3), 0.5, CUT),
        ("plexus", PlexusParameters(signed_views=True), 1.0, ()),
        ("gossip", GossipParameters(), 1.0, ()),
        ("epidemic", EpidemicParameters(round_duration_s=60), 0.5, CUT),
    ],
)
@pytest.mark.parametrize("is_many", [False, True])
def test_many_nodes_do_and_send_the_same(
    monkeypatch: pytest.MonkeyPatch,
    is_many: bool,
    name: str,
    parameters: Any,
    graceful_share: float,
    faults: Any,
) -> None:
    few, facts = simulate(name, parameters, graceful_share, faults, mail=False)
    if is_many:
        monkeypatch.setattr(many, "MANY", 1)
        monkeypatch.setattr(protocols, "SPARSE", 1)
        monkeypatch.setattr(many, "PACK_EVERY_S", 60.0)
    large, same = simulate(name, parameters, graceful_share, faults)
    assert large.network.mail is not None
    assert len(facts) > 100 and facts == same
    assert large.accounts.table() == few.accounts.table()
    for counted in ("sent_bytes", "received_bytes", "lost_bytes", "cut_bytes", "lost_messages", "training_s"):
        assert getattr(large.accounts, counted) == getattr(few.accounts, counted)
    nodes: Any = list(zip(few.nodes, large.nodes, strict=True))
    made = [(node, other) for node, other in nodes if not isinstance(other, Unmade)]
    is_made_late = is_many and name != "epidemic"
    assert (0 < len(made) < N) == is_made_late, "who was never online was not made"
    for node, other in made:
        view, as_one_of_many = node.membership.view.snapshot(), other.membership.view.snapshot()
        assert np.array_equal(view.events, as_one_of_many.events)
        assert np.array_equal(view.bandwidths, as_one_of_many.bandwidths)
    assert large.kernel.delivered == few.kernel.delivered
    assert large.kernel.digest() == few.kernel.digest()


@given(st.lists(events, max_size=12), st.lists(events, max_size=12), st.lists(events, max_size=12))
def test_a_view_that_has_rested_knows_what_it_knew(
    first: list[Event], later: list[Event], news: list[Event]
) -> None:
    plain, resting = View.of(N), RestingView(learnt(View.of(N), first).snapshot())
    before = learnt(resting, later).snapshot()
    resting.rest()
    assert resting.snapshot() == before == learnt(plain, first + later).snapshot()
    resting.rest()
    assert learnt(resting, news).snapshot() == learnt(plain, news).snapshot()
    assert before == learnt(View.of(N), first + later).snapshot()


def learnt(view: View, heard: list[Event]) -> View:
    for node, event in heard:
        view.learn(node, event, 17 * node + event)
    return view


def test_a_view_that_rests_gives_back_its_memory() -> None:
    view = RestingView(View.of(N, [(1, 10), (2, 20)]).snapshot())
    view.learn(3, 5, 30)
    memory = weakref.ref(view.events_of_first(N).base)
    view.rest()
    assert memory() is None
    assert view.actives() == [1, 2, 3]


def test_who_is_away_takes_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in bytes of objects that no other node has: what grows while more and more have been online."""
    monkeypatch.setattr(many, "MANY", 1)
    monkeypatch.setattr(protocols, "SPARSE", 1)
    monkeypatch.setattr(many, "PACK_EVERY_S", 60.0)
    runtime, _ = simulate("plexus", PlexusParameters(views="lacking"), 1.0, ())
    mail: Any = runtime.network.mail
    mail._pack()
    nodes: list[Any] = [node for node in runtime.nodes if not isinstance(node, Unmade)]
    away = [node for node in nodes if not runtime.online[node.me]]
    used = {layer for node in nodes if runtime.online[node.me] for layer in node.view.layers}
    assert not any(type(layer) is PackedLayer for layer in used), "who is there is not slowed down"
    layers = {layer for node in away for layer in node.view.layers} - used
    assert any(type(layer) is PackedLayer for layer in layers)
    assert not any(type(layer) is Layer and len(layer) for layer in layers)
    assert all(node.training.view is None for node in nodes if not node.training.busy)
    since_s = runtime.kernel.now - PlexusParameters().watchdog_s
    assert all(at_s > since_s for node in nodes for at_s, *_ in node.membership._told)
    owners = Counter(thing for node in nodes for thing in _reached(node))
    sizes = [sum(size for thing, size in _reached(node).items() if owners[thing] == 1) for node in away]
    assert len(away) > 10 and median(sizes) < 15_000, sizes


def _reached(node: Any) -> dict[int, int]:
    """All objects that can be reached from it, but by way of code, and how large they are."""
    found, new = {id(node): sys.getsizeof(node)}, [node]
    while new:
        others = [thing for thing in gc.get_referents(*new) if not issubclass(type(thing), CODE)]
        new = [thing for thing in {id(thing): thing for thing in others}.values() if id(thing) not in found]
        found |= {id(thing): sys.getsizeof(thing) for thing in new}
    return found
