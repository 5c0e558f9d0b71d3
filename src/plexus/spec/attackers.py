"""Nodes that attack, in a simulated session or in a rehearsal of live peers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, get_args

from msgspec import Meta, Struct, convert

from plexus.checked import not_one_of
from plexus.errors import PlexusError
from plexus.rng import stream

Poisoning = Literal["flip", "scale", "noise", "alie", "label-flip"]
Lying = Literal[
    "lie-bandwidth", "silent-aggregator", "far-round", "forged-views", "lone-aggregate", "next-round",
    "newer-model",
]  # fmt: skip
Behaviour = Literal[Poisoning, Lying]


class AttackerSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Nodes that attack; each kind is a table of its own, `[[attackers]]`. Live only in rehearsals:
    `plexus fleet run` takes them, `plexus node start` refuses them."""

    behaviour: Behaviour
    """What they send instead of what they have trained. `flip`: the change times `-factor`. `scale`: the
    change times `factor`. `noise`: normal noise on top, `factor` times as large as the change. `alie` (a
    little is enough): the mean of honest changes less `factor` standard deviations, by the trainings that ten
    of the attackers make of the same model. `label-flip`: an honest training of data with wrong labels, the
    last class for the first and so on. Others train honestly and lie in what they say, if the protocol is
    plexus: `lie-bandwidth` claims the most there can be; `silent-aggregator` does so and makes nothing
    of the models that it is sent; `far-round` speaks of rounds far ahead, with a model of them;
    `forged-views` says that everybody else has left; `lone-aggregate` tells aggregators that there was one
    participant; `next-round` speaks of the next round every half minute; `newer-model` sends aggregators
    a model of a later round."""
    share: Annotated[float, Meta(gt=0, lt=1)] | None = None
    """What share of the nodes, drawn by seed; at least one node."""
    nodes: tuple[int, ...] = ()
    """Or which, counted from 0."""
    factor: Annotated[float, Meta(gt=0)] | None = None
    """How hard; if not given, 4 for `flip`, 10 for `scale` and `noise`, and for `alie` what its authors
    derive from the numbers of nodes and attackers."""

    def __post_init__(self) -> None:
        if (self.share is None) == (not self.nodes):
            raise ValueError("either share or nodes is needed, and not both")


def attackers_of(attackers: Sequence[AttackerSpec], nodes: int, seed: int) -> dict[int, AttackerSpec]:
    """Who attacks how. Nobody does so in two ways: of those that name a node the first counts."""
    found: dict[int, AttackerSpec] = {}
    for at, each in enumerate(attackers):
        chosen: Sequence[int] = each.nodes
        if each.share is not None:
            chosen = _drawn(max(1, round(each.share * nodes)), nodes, found, seed, at)
        found |= {node: each for node in chosen if node not in found}
    return found


def poisoners(attackers: Sequence[AttackerSpec], nodes: int, seed: int) -> dict[int, AttackerSpec]:
    """Those whose models are not what they should be."""
    found = attackers_of(attackers, nodes, seed)
    return {node: each for node, each in found.items() if each.behaviour in get_args(Poisoning)}


def liars(attackers: Sequence[AttackerSpec], nodes: int, seed: int) -> dict[int, str]:
    """Those who say what is not so, and how."""
    found = attackers_of(attackers, nodes, seed)
    return {node: each.behaviour for node, each in found.items() if each.behaviour in get_args(Lying)}


def parsed(texts: Sequence[str], nodes: int, seed: int) -> tuple[AttackerSpec, ...]:
    """`2:flip`, say, as two of the nodes that flip, drawn by seed."""
    found: dict[int, AttackerSpec] = {}
    attackers = []
    for at, text in enumerate(texts):
        count, _, behaviour = text.partition(":")
        if not count.isdecimal() or not 0 < int(count) <= nodes - len(found):
            raise PlexusError(f"--attackers {text}: expected a number of nodes and a behaviour, as 2:flip")
        if behaviour not in get_args(Behaviour):
            raise PlexusError(f"--attackers {text}: behaviour {not_one_of(behaviour, get_args(Behaviour))}")
        chosen = _drawn(int(count), nodes, found, seed, at)
        attackers.append(convert({"behaviour": behaviour, "nodes": chosen}, AttackerSpec))
        found |= dict.fromkeys(chosen, attackers[-1])
    return tuple(attackers)


def _drawn(count: int, nodes: int, taken: dict[int, AttackerSpec], seed: int, at: int) -> list[int]:
    free = [node for node in range(nodes) if node not in taken]
    return sorted(stream(seed, "attackers", at).sample(free, min(count, len(free))))
