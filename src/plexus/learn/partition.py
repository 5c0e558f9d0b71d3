"""Who has which examples: per node, its rows of the training set. Nobody is left empty."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plexus.errors import PlexusError
from plexus.learn.tasks.specs import PartitionedSpec
from plexus.rng import array_stream

Rows = NDArray[np.int64]
Labels = NDArray[np.int64]
MOST_ALIKE = 1e12
"""Where shares are long equal; numpy makes no numbers of a larger alpha."""


def by_label(
    spec: PartitionedSpec, labels: Labels, nodes: int, seed: int, ms_per_sample: Sequence[float] | None = None
) -> tuple[Rows, ...]:
    """The partition that a `[task]` table names."""
    rng = array_stream(seed, "learn", "partition")
    if spec.partition == "by-speed":
        if ms_per_sample is None:
            raise PlexusError("task.partition: by-speed needs the devices of a simulated experiment")
        if spec.reuse:
            raise PlexusError("task.reuse: not with the partition by-speed")
        return by_speed(labels, ms_per_sample, rng)
    sets = min(nodes, max(1, len(labels) // spec.batch)) if spec.reuse else nodes
    if spec.partition == "dirichlet":
        return dealt(dirichlet(labels, sets, spec.alpha, rng), nodes)
    if spec.partition == "shards":
        return dealt(shards(labels, sets, spec.shards_per_node, rng), nodes)
    return dealt(iid(len(labels), sets, rng), nodes)


def dealt(sets: tuple[Rows, ...], nodes: int) -> tuple[Rows, ...]:
    """One set of examples for each node: from the first again where there are fewer."""
    return tuple(islice(cycle(sets), nodes))


def iid(examples: int, nodes: int, rng: np.random.Generator) -> tuple[Rows, ...]:
    """Uniformly at random, sizes equal to within one."""
    _enough(examples, nodes)
    return tuple(np.sort(part) for part in np.array_split(rng.permutation(examples), nodes))


def by_user(
    users: NDArray[Any], nodes: int, rng: np.random.Generator, reuse: bool = False
) -> tuple[Rows, ...]:
    """One user a node; where there are more users than nodes, a random choice of users. With `reuse` no more
    than there are: to be `dealt`."""
    names, inverse, counts = np.unique(users, return_inverse=True, return_counts=True)
    nodes = min(nodes, len(names)) if reuse else nodes
    _enough(len(users), nodes)
    if nodes > len(names):
        raise PlexusError(f"{nodes} nodes, but the data has only {len(names)} users, one per node")
    rows_of = np.split(np.argsort(inverse, kind="stable"), np.cumsum(counts)[:-1])
    return tuple(rows_of[user] for user in np.sort(rng.permutation(len(names))[:nodes]))


def dirichlet(labels: Labels, nodes: int, alpha: float, rng: np.random.Generator) -> tuple[Rows, ...]:
    """Each class is divided among the nodes by proportions drawn from Dirichlet(alpha).

    The smaller `alpha`, the fewer nodes share a class. A node left with nothing gets one example
    of the node that has most.
    """
    if not alpha > 0:
        raise PlexusError(f"alpha is {alpha}: a Dirichlet partition needs alpha above 0")
    _enough(len(labels), nodes)
    pieces: list[list[Rows]] = [[] for _ in range(nodes)]
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        shares = rng.dirichlet(np.full(nodes, min(alpha, MOST_ALIKE)))
        cuts = np.floor(np.cumsum(shares) * len(rows)).astype(np.int64)[:-1]
        for node, piece in enumerate(np.split(rows, cuts)):
            pieces[node].append(piece)
    parts = [np.concatenate(own) for own in pieces]
    for node, part in enumerate(parts):
        if len(part) == 0:
            richest = max(range(nodes), key=lambda other: len(parts[other]))
            parts[node], parts[richest] = parts[richest][-1:], parts[richest][:-1]
    return tuple(np.sort(part) for part in parts)


def shards(labels: Labels, nodes: int, shards_per_node: int, rng: np.random.Generator) -> tuple[Rows, ...]:
    """Sort by class, cut into equal shards, give each node `shards_per_node` of them at random."""
    if shards_per_node < 1:
        raise PlexusError(f"shards_per_node is {shards_per_node}: at least 1 is needed")
    count = nodes * shards_per_node
    if len(labels) < count:
        parts = f"{count} shards ({nodes} nodes x {shards_per_node})"
        raise PlexusError(f"{len(labels)} training examples cannot be cut into {parts}")
    rows = rng.permutation(len(labels))
    pieces = np.array_split(rows[np.argsort(labels[rows], kind="stable")], count)
    order = rng.permutation(count).reshape(nodes, shards_per_node)
    return tuple(np.sort(np.concatenate([pieces[shard] for shard in own])) for own in order)


def by_speed(labels: Labels, ms_per_sample: Sequence[float], rng: np.random.Generator) -> tuple[Rows, ...]:
    """The slower half of the nodes owns the upper half of the classes, the faster half the lower.

    Each half is divided at random. Of an odd number the middle node is fast, the middle class an upper one.
    """
    if len(set(ms_per_sample)) < 2:
        raise PlexusError("task.partition: by-speed needs devices of different speeds, and all are the same")
    nodes, classes = len(ms_per_sample), np.unique(labels)
    slowest_first = np.argsort(-np.asarray(ms_per_sample), kind="stable")
    is_upper = np.isin(labels, classes[len(classes) // 2 :])
    parts: dict[int, Rows] = {}
    for owners, mask in ((slowest_first[: nodes // 2], is_upper), (slowest_first[nodes // 2 :], ~is_upper)):
        rows = np.flatnonzero(mask)
        parts |= zip(owners.tolist(), (rows[part] for part in iid(len(rows), len(owners), rng)), strict=True)
    return tuple(parts[node] for node in range(nodes))


def split(examples: int, test_share: float, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """The one split into (training, test) rows; both are sorted and neither is empty."""
    test = round(examples * test_share)
    if not 0 < test < examples:
        raise PlexusError(f"a test share of {test_share} of {examples} examples leaves one set empty")
    rows = rng.permutation(examples)
    return np.sort(rows[test:]), np.sort(rows[:test])


def _enough(examples: int, nodes: int) -> None:
    if nodes < 1:
        raise PlexusError(f"{nodes} nodes: at least 1 is needed")
    if examples < nodes:
        raise PlexusError(f"{examples} training examples cannot be shared among {nodes} nodes")
