"""Whatever arrives, in whatever order, no node of a baseline fails, and what it waits for can come."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plexus.protocol.api import (
    Aggregate,
    Aggregated,
    CancelTimer,
    Event,
    Merge,
    Received,
    SetTimer,
    TimerFired,
    TimerKey,
    Train,
    Trained,
    WentOffline,
    WentOnline,
)
from plexus.protocol.baselines.dpsgd import DpsgdNode
from plexus.protocol.baselines.epidemic import EpidemicNode, EpidemicParameters
from plexus.protocol.baselines.fedavg import FedavgClient, FedavgParameters, FedavgServer
from plexus.protocol.baselines.fedbuff import FedbuffParameters, FedbuffServer
from plexus.protocol.baselines.gossip import GossipNode, GossipParameters
from plexus.protocol.baselines.teleportation import TeleportationNode, TeleportationParameters
from plexus.protocol.baselines.topology import RandomDigraph, ring
from plexus.protocol.machine import Machine
from plexus.protocol.messages import (
    ClientModel,
    EpidemicModel,
    GlobalModel,
    GossipModel,
    Joined,
    Left,
    Message,
    NeighbourModel,
    Ping,
    Pong,
    TokenModel,
)
from plexus.protocol.roster import Roster
from plexus.protocol.view import View
from tests.baselines.kit import everybody_online, only

N = 5
few = st.integers(0, 5)
snapshots = st.lists(st.tuples(st.integers(0, N - 1), few)).map(lambda j: View.of(N, j).snapshot())
membership: list[st.SearchStrategy[Message]] = [
    st.builds(Ping, few, few),
    st.builds(Pong, few, few, few, few),
    st.builds(Joined, few, few),
    st.builds(Left, few),
]
DRAWS = RandomDigraph(N, 2, b"session")
BUFFERING = FedbuffParameters(concurrency=2, buffer_size=2)


def world() -> dict[str, Any]:
    return {"me": 0, "view": everybody_online(N), "bandwidth_bytes_per_s": 9, "rng": Random(1)}


def epidemic(duration_s: float | None) -> Machine:
    parameters = EpidemicParameters(fanout=2)
    return EpidemicNode(parameters, DRAWS, "m", duration_s, **world())


def teleportation(duration_s: float | None) -> Machine:
    parameters = TeleportationParameters(active=3)
    roster = Roster.simulated(b"session", N)
    return TeleportationNode(parameters, "m", roster, duration_s, **world())


TOKENS = [*membership, st.builds(TokenModel, few, few, st.integers(0, 1), snapshots, st.just("t"))]
NODES: dict[str, tuple[Callable[[], Machine], list[st.SearchStrategy[Message]]]] = {
    "gossip": (
        lambda: GossipNode(GossipParameters(), "m", **world()),
        [*membership, st.builds(GossipModel, few, snapshots, st.just("g"))],
    ),
    "dpsgd": (lambda: DpsgdNode(0, ring(N), "m"), [st.builds(NeighbourModel, few, st.just("n"))]),
    "dpsgd under churn": (
        lambda: DpsgdNode(0, ring(N), "m", 10.0),
        [st.builds(NeighbourModel, few, st.just("n"))],
    ),
    "epidemic": (
        lambda: epidemic(None),
        [*membership, st.builds(EpidemicModel, few, snapshots, st.just("e"))],
    ),
    "epidemic under churn": (
        lambda: epidemic(10.0),
        [*membership, st.builds(EpidemicModel, few, snapshots, st.just("e"))],
    ),
    "teleportation": (lambda: teleportation(None), TOKENS),
    "teleportation under churn": (lambda: teleportation(10.0), TOKENS),
    "server": (
        lambda: FedavgServer(N, FedavgParameters(sample_size=3), everybody_online(N), "m", Random(1)),
        [*membership[2:], st.builds(ClientModel, few, few, st.just("c"))],
    ),
    "buffering server": (
        lambda: FedbuffServer(N, BUFFERING, everybody_online(N), "m", Random(1)),
        [*membership[2:], st.builds(ClientModel, few, few, st.just("c"))],
    ),
    "client": (lambda: FedavgClient(0, N, 9), [st.builds(GlobalModel, few, st.just("s"))]),
}


class Contract:
    """A runtime that keeps its promises and no more: timers that are set fire, work that is asked for ends;
    what is not asked for may come, too, as may the end of work that was given up."""

    def __init__(self, node: Machine) -> None:
        self.node = node
        self.now = 0.0
        self.timers: dict[TimerKey, float] = {}
        self.online = False
        self.toggle()

    def toggle(self) -> None:
        self.give(WentOffline() if self.online else WentOnline())
        self.online = not self.online
        if not self.online:
            self.timers.clear()

    def fire_next(self) -> None:
        if self.timers:
            key = min(self.timers, key=lambda key: self.timers[key])
            self.now = max(self.now, self.timers.pop(key))
            self.give(TimerFired(key))

    def give(self, event: Event) -> None:
        effects = self.node.handle(self.now, event)
        for effect in effects:
            if isinstance(effect, SetTimer):
                assert effect.delay_s >= 0
                self.timers[effect.key] = self.now + effect.delay_s
            elif isinstance(effect, CancelTimer):
                self.timers.pop(effect.key, None)
        assert len(only(effects, Train)) <= 1
        for work in (*only(effects, Merge), *only(effects, Aggregate)):
            counts = work.weights if isinstance(work, Merge) else work.samples
            assert len(counts) == len(work.models) > 0
        assert all(sum(merge.weights) > 0 for merge in only(effects, Merge))


@pytest.mark.parametrize("name", NODES)
@given(data=st.data())
def test_no_node_fails(name: str, data: st.DataObject) -> None:
    make, messages = NODES[name]
    contract = Contract(make())
    anything = st.one_of(
        st.sampled_from(["toggle", "fire", "fire"]),
        st.builds(Received, st.integers(1, N - 1), st.one_of(messages)),
        st.builds(Trained, few, st.just("t")) if "server" not in name else st.nothing(),
        st.builds(Aggregated, few, st.just("a")) if name != "client" else st.nothing(),
    )
    for step in data.draw(st.lists(anything, max_size=40)):
        contract.now += 0.5
        if step == "toggle":
            if "server" not in name:  # it never leaves
                contract.toggle()
        elif step == "fire":
            contract.fire_next()
        elif contract.online:
            contract.give(step)  # type: ignore[arg-type]
