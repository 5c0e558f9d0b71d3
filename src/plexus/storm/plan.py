"""What a seed means: size, protocol, parameters and faults of one storm. A fault is data: what goes wrong,
for whom, from when until when."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from plexus.protocol.baselines.dpsgd import DpsgdParameters
from plexus.protocol.baselines.gossip import GossipParameters
from plexus.protocol.liar import BEHAVIOURS
from plexus.protocol.messages import NodeId
from plexus.protocol.parameters import PlexusParameters
from plexus.rng import stream


class Fault(Struct, frozen=True, kw_only=True):
    from_s: float = 0.0
    until_s: float


# Of the network


class Loss(Fault, frozen=True, kw_only=True):
    """This share of all messages never arrives."""

    share: float


class Duplication(Fault, frozen=True, kw_only=True):
    """This share of all messages arrives twice, at different moments."""

    share: float


class Delay(Fault, frozen=True, kw_only=True):
    """This share of all messages takes up to `longest_s` longer, so that later ones overtake them."""

    share: float
    longest_s: float


class Damage(Fault, frozen=True, kw_only=True):
    """This share of all messages is damaged or cut short on the way (see `Codec`)."""

    share: float


class Partition(Fault, frozen=True, kw_only=True):
    """Messages between `side` and the others do not pass: both ways, or only into `side`. A `partial`
    partition lets some pairs through: node numbers whose sum is even."""

    kind: Literal["full", "one-way", "partial"]
    side: frozenset[NodeId]


class Slow(Fault, frozen=True, kw_only=True):
    """These nodes train `factor` times as long, and hear and answer up to `lag_s` later."""

    nodes: frozenset[NodeId]
    factor: float
    lag_s: float


class Collapse(Fault, frozen=True, kw_only=True):
    """The links of these nodes have `factor` of their capacity."""

    nodes: frozenset[NodeId]
    factor: float


# Of the nodes


class Churn(Fault, frozen=True, kw_only=True):
    """Each node comes or goes about every `mean_s`."""

    mean_s: float
    leave_share: float
    """How many of those who go say goodbye; the others crash."""
    restart_share: float
    """How many of those who come are new processes that read their disk, not the old ones."""
    disk_lost_share: float
    """How many of these find their disk empty."""


class Flapping(Fault, frozen=True, kw_only=True):
    """These nodes are online for `up_s` and offline for `down_s`, again and again."""

    nodes: frozenset[NodeId]
    up_s: float
    down_s: float
    graceful: bool


class PowerCut(Fault, frozen=True, kw_only=True):
    """About every `mean_s` some node stops in the midst of carrying out what it decided."""

    mean_s: float


class Remeasured(Fault, frozen=True, kw_only=True):
    """About every `mean_s` some node finds its bandwidth to be another (Plexus only)."""

    mean_s: float


# Of things that do not heal


class Skew(Fault, frozen=True, kw_only=True):
    """The clocks of these nodes differ by up to `offset_s`, and run up to `drift` faster or slower."""

    nodes: frozenset[NodeId]
    offset_s: float
    drift: float


class Liar(Fault, frozen=True, kw_only=True):
    """These nodes advertise `factor` times the bandwidth they have."""

    nodes: frozenset[NodeId]
    factor: float


Parameters = PlexusParameters | GossipParameters | DpsgdParameters

SIZES = (
    # (from, to, share of all storms, longest storm in seconds)
    (1, 1, 0.03, 600.0),
    (2, 6, 0.32, 1200.0),
    (7, 15, 0.37, 900.0),
    (16, 40, 0.20, 400.0),
    (41, 100, 0.06, 150.0),
    (101, 200, 0.02, 80.0),
)
"""Small networks meet more faults for each node, so most storms are small; large ones are short."""
QUIET_SHARE = 0.05
FAULT_SHARE = 0.35
MOST_GONE = 0.3
CUT_SHARE = 0.05
"""Storms of Plexus with nothing but one cut through the network: which side goes on is promised for these."""
MOST_CUT_OFF, SHORTEST_CUT_S = 0.4, 200.0
LATE_SHARE, MOST_LATE_ROUNDS = 0.5, 20
LIARS_SHARE, FEWEST_WITH_LIARS, MOST_LIARS = 0.5, 5, 0.1
"""Storms of Plexus with members that lie, with so many nodes at least; and the share of nodes that do."""
LACKING_SHARE = 0.3
"""Storms of Plexus in which views are told as what others lack; the last behaviour is of use there alone."""
SIGNED_SHARE = 0.2
"""Storms of Plexus in which members may lie, and do not."""


class Plan(Struct, frozen=True, kw_only=True):
    seed: int
    protocol: str
    parameters: Parameters
    nodes: int
    at_start: int
    """How many nodes are online from the beginning; the others come during the storm or after it."""
    gone: int
    """How many of the last nodes do not come back when the storm is over."""
    sharing: str
    through_codec: bool
    """Whether every message is really encoded and decoded."""
    connected: bool
    """Whether nodes hold connections, as deployed ones do: these tell of much that is lost, and what has
    become obsolete on its way is not carried to its end."""
    storm_s: float
    faults: tuple[Fault, ...]
    liars: dict[NodeId, str] = {}
    """Members that lie about the protocol, and how."""

    @property
    def is_wary(self) -> bool:
        """Whether members may lie, according to the protocol."""
        return isinstance(self.parameters, PlexusParameters) and self.parameters.signed_views

    @property
    def cut(self) -> Partition | None:
        """The one fault of a storm that is nothing but a cut between few nodes and many."""
        match self.faults:
            case (Partition(kind="full") as cut,) if self.at_start == self.nodes and not self.gone:
                is_long = cut.until_s - cut.from_s >= SHORTEST_CUT_S
                return cut if is_long and len(cut.side) <= MOST_CUT_OFF * self.nodes else None
        return None


def draw(seed: int) -> Plan:
    cut = stream(seed, "storm", "cut")
    plan = _cut(seed, cut) if cut.random() < CUT_SHARE else _any(seed)
    late = stream(seed, "storm", "late")
    if isinstance(plan.parameters, PlexusParameters) and late.random() < LATE_SHARE:
        parameters = replace(plan.parameters, late_rounds=late.randint(1, MOST_LATE_ROUNDS))
        plan = replace(plan, parameters=parameters)
    plan = _with_liars(plan, stream(seed, "storm", "liars"))
    views = stream(seed, "storm", "views")
    if not isinstance(plan.parameters, PlexusParameters) or views.random() > LACKING_SHARE:
        return plan
    liars = {node: views.choice((lie, BEHAVIOURS[-1])) for node, lie in plan.liars.items()}
    return replace(plan, liars=liars, parameters=replace(plan.parameters, views="lacking"))


def _with_liars(plan: Plan, rng: Random) -> Plan:
    drawn = rng.random()
    if not isinstance(plan.parameters, PlexusParameters):
        return plan
    liars = {}
    # Which side of a cut goes on is promised if nothing else goes wrong.
    if drawn < LIARS_SHARE and plan.nodes >= FEWEST_WITH_LIARS and plan.cut is None:
        chosen = rng.sample(range(plan.nodes), rng.randint(1, max(1, int(MOST_LIARS * plan.nodes))))
        liars = {node: rng.choice(BEHAVIOURS[:-1]) for node in sorted(chosen)}
    is_signed = bool(liars) or drawn > 1 - SIGNED_SHARE
    return replace(plan, liars=liars, parameters=replace(plan.parameters, signed_views=is_signed))


def _cut(seed: int, rng: Random) -> Plan:
    """A few nodes are cut off for most of the storm, which is long enough for many rounds."""
    nodes = rng.randint(5, 40)
    storm_s = rng.uniform(300, 900)
    side = rng.sample(range(nodes), rng.randint(1, int(MOST_CUT_OFF * nodes)))
    cut = Partition(
        kind="full", side=frozenset(side), from_s=0.1 * storm_s, until_s=rng.uniform(0.8, 0.95) * storm_s
    )
    there = {"nodes": nodes, "at_start": nodes, "gone": 0}
    plan = replace(_any(seed), protocol="plexus", parameters=_plexus(rng, nodes), **there)
    return replace(plan, storm_s=storm_s, faults=(cut,))


def _any(seed: int) -> Plan:
    rng = stream(seed, "storm")
    first, last, _, longest_s = rng.choices(SIZES, weights=[size[2] for size in SIZES])[0]
    nodes = rng.randint(first, last)
    storm_s = longest_s * rng.uniform(0.4, 1.0)
    protocol = rng.choices(["plexus", "gossip", "dpsgd"], weights=[70, 15, 15])[0]
    draws: dict[str, Callable[..., Parameters]] = {"plexus": _plexus, "gossip": _gossip, "dpsgd": _dpsgd}
    parameters = draws[protocol](rng, nodes)
    faults = () if rng.random() < QUIET_SHARE else _faults(rng, protocol, nodes, storm_s)
    return Plan(
        seed=seed,
        protocol=protocol,
        parameters=parameters,
        nodes=nodes,
        at_start=nodes if rng.random() < 0.5 else rng.randint(1, nodes),
        gone=int(rng.choice([0, 0, MOST_GONE * rng.random()]) * nodes),
        sharing=rng.choice(["shared", "shared", "fair", "fifo"]),
        through_codec=rng.random() < 0.3,
        connected=stream(seed, "storm", "connected").random() < 0.5,
        storm_s=storm_s,
        faults=faults,
    )


def _plexus(rng: Random, nodes: int) -> PlexusParameters:
    # Large networks with tiny samples would need hundreds of rounds until everybody was in one.
    sample_size = rng.randint(max(1, math.ceil(nodes / 10)), max(2, min(13, nodes + 2), nodes // 8))
    aggregation_s = rng.uniform(8, 30)
    ack_s = aggregation_s * rng.uniform(1.1, 2)
    return PlexusParameters(
        sample_size=sample_size,
        success_fraction=rng.choice([0.3, 0.5, 0.8, 0.8, 1.0]),
        ping_timeout_s=rng.uniform(0.5, 3),
        aggregation_timeout_s=aggregation_s,
        ack_timeout_s=ack_s,
        advertise_size=rng.choice([None, None, 1, sample_size]),
        readvertise_s=rng.uniform(15, 90),
        watchdog_s=ack_s * rng.uniform(1.2, 3),
        start_delay_s=rng.choice([0.0, 1.0, 5.0]),
    )


def _gossip(rng: Random, nodes: int) -> GossipParameters:
    return GossipParameters(
        period_s=rng.uniform(10, 40),
        ping_timeout_s=rng.uniform(0.5, 3),
        advertise_size=rng.choice([1, 4, 40]),
        readvertise_s=rng.uniform(15, 90),
    )


def _dpsgd(rng: Random, nodes: int) -> DpsgdParameters:
    return DpsgdParameters(
        topology=rng.choice(["one-peer-exponential", "ring", "full"] if nodes <= 40 else ["ring"]),
        mixing=rng.choice(["uniform", "metropolis"]),
        round_duration_s=rng.uniform(15, 40),
    )


def _faults(rng: Random, protocol: str, nodes: int, storm_s: float) -> tuple[Fault, ...]:
    def some(share: float = 0.5) -> frozenset[NodeId]:
        return frozenset(rng.sample(range(nodes), rng.randint(1, max(1, int(share * nodes)))))

    def strength() -> float:
        """Mostly mild, sometimes heavy."""
        return rng.choice([0.02, 0.1, 0.1, 0.3, 0.6])

    def when() -> dict[str, float]:
        from_s = rng.uniform(0, 0.6) * storm_s
        return {"from_s": from_s, "until_s": rng.uniform(from_s + 0.2 * storm_s, storm_s)}

    whole = {"until_s": storm_s}
    # Rounds by the clock need clocks that agree to within a part of a round.
    offset_s = 5.0 if protocol == "dpsgd" else 1e5
    often_s = rng.choice([10.0, 40.0, 150.0])
    makers: list[Callable[[], Fault]] = [
        lambda: Loss(share=strength(), **when()),
        lambda: Duplication(share=strength(), **when()),
        lambda: Delay(share=strength(), longest_s=rng.choice([1.0, 5.0, 60.0]), **when()),
        lambda: Damage(share=strength(), **when()),
        lambda: Partition(kind=rng.choice(["full", "one-way", "partial"]), side=some(), **when()),
        lambda: Partition(kind="full", side=some(), **when()),
        lambda: Slow(nodes=some(), factor=rng.uniform(1, 20), lag_s=rng.choice([0.0, 1.0, 5.0]), **when()),
        lambda: Collapse(nodes=some(1.0), factor=rng.choice([0.5, 0.1, 0.01]), **when()),
        lambda: Churn(
            mean_s=rng.choice([30.0, 100.0, 300.0]),
            leave_share=rng.random(),
            restart_share=rng.random(),
            disk_lost_share=rng.choice([0.0, 0.2, 0.5]),
            **when(),
        ),
        lambda: Churn(mean_s=60.0, leave_share=1.0, restart_share=0.0, disk_lost_share=0.0, **when()),
        lambda: Flapping(
            nodes=some(),
            up_s=rng.uniform(2, 20),
            down_s=rng.uniform(1, 20),
            graceful=rng.random() < 0.5,
            **when(),
        ),
        lambda: PowerCut(mean_s=often_s, **when()),
        lambda: Skew(nodes=some(1.0), offset_s=offset_s * rng.random(), drift=0.1 * rng.random(), **whole),
        lambda: Liar(nodes=some(0.2), factor=rng.choice([0.01, 100.0]), **whole),
    ]
    if protocol == "plexus":
        makers.append(lambda: Remeasured(mean_s=often_s, **when()))
    return tuple(make() for make in makers if rng.random() < FAULT_SHARE)
