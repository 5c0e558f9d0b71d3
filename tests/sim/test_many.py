"""Very many nodes are simulated in another way, and everything they do and send is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plexus.bench.protocol import exponential_churn
from plexus.protocol.baselines.gossip import GossipParameters
from plexus.protocol.parameters import PlexusParameters
from plexus.sim import many, protocols
from plexus.sim.faults import PlannedFault
from plexus.sim.many import Unmade
from plexus.sim.runtime import Runtime
from plexus.sim.session import Setting, SymbolicModels, assemble
from plexus.traces.build import TracesSpec, build_world
from plexus.traces.world import World, training_time_s

N, HOURS = 150, 1.0
CUT = (PlannedFault("partition", 900, 1800, frozenset(range(0, N, 3))),)


def simulate(name: str, parameters: Any, graceful_share: float, faults: Any) -> tuple[Runtime, list[Any]]:
    generated = build_world(TracesSpec(availability="none"), N, 1, Path())
    world = World(generated.devices, exponential_churn(N, 3), generated.latency)
    durations = [training_time_s(device, 5, 20) for device in world.devices]
    models, facts = SymbolicModels(346_000), list[Any]()
    setting = Setting(
        world, models, models.initial(), durations.__getitem__, 1, graceful_share=graceful_share
    )
    nodes = protocols.PROTOCOLS[name].build(setting, parameters)
    runtime = assemble(setting, nodes, lambda *fact: facts.append(fact), faults=faults)
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
    ],
)
def test_many_nodes_do_and_send_the_same(
    monkeypatch: pytest.MonkeyPatch, name: str, parameters: Any, graceful_share: float, faults: Any
) -> None:
    few, facts = simulate(name, parameters, graceful_share, faults)
    monkeypatch.setattr(many, "MANY", 1)
    monkeypatch.setattr(protocols, "SPARSE", 1)
    large, same = simulate(name, parameters, graceful_share, faults)
    assert len(facts) > 100 and facts == same
    assert large.accounts.table() == few.accounts.table()
    for counted in ("sent_bytes", "received_bytes", "lost_bytes", "cut_bytes", "lost_messages", "training_s"):
        assert getattr(large.accounts, counted) == getattr(few.accounts, counted)
    nodes: Any = list(zip(few.nodes, large.nodes, strict=True))
    made = [(node, other) for node, other in nodes if not isinstance(other, Unmade)]
    assert 0 < len(made) < N, "who was never online was not made"
    for node, other in made:
        view, as_one_of_many = node.membership.view.snapshot(), other.membership.view.snapshot()
        assert np.array_equal(view.events, as_one_of_many.events)
        assert np.array_equal(view.bandwidths, as_one_of_many.bandwidths)
    assert large.kernel.delivered < few.kernel.delivered, "mail is no event of its own"
