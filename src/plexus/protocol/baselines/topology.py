"""Who exchanges models with whom: the communication topologies of D-PSGD.

A topology is common knowledge, fixed before training starts (the paper does not count what that
costs). It may change from round to round, but by a rule that everybody knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from random import Random
from typing import Protocol, TypeAlias

from plexus.protocol.messages import NodeId

SWAPS_PER_EDGE = 10
"""How long a random graph is shuffled. Twice as much makes no difference that a test could see."""
_DRAWS_KEPT = 16

Rows: TypeAlias = list[tuple[NodeId, ...]]


class Topology(Protocol):
    """For every round, the nodes that a node sends to and those that it receives from."""

    cycle: int
    """This many rounds in a row show all that it does."""

    def receivers(self, node: NodeId, round: int) -> tuple[NodeId, ...]: ...
    def senders(self, node: NodeId, round: int) -> tuple[NodeId, ...]: ...


class OnePeerExponential:
    """Each round every node sends to one node, 2^j places further, and receives from one.

    j goes round-robin through 0 … ⌈log2 n⌉ - 1, so news reaches everybody within ⌈log2 n⌉ rounds.
    """

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self.cycle = max(1, (nodes - 1).bit_length())

    def receivers(self, node: NodeId, round: int) -> tuple[NodeId, ...]:
        return self._at(node, self._hop(round))

    def senders(self, node: NodeId, round: int) -> tuple[NodeId, ...]:
        return self._at(node, -self._hop(round))

    def _hop(self, round: int) -> int:
        return 1 << (round - 1) % self.cycle

    def _at(self, node: NodeId, distance: int) -> tuple[NodeId, ...]:
        other = (node + distance) % self._nodes
        return () if other == node else (other,)


class Graph:
    """The same symmetric graph in every round."""

    cycle = 1

    def __init__(self, neighbours: Sequence[Iterable[NodeId]]) -> None:
        """`neighbours[i]` are those of node i; what it says must be mutual and without loops."""
        self.neighbours = tuple(tuple(sorted(row)) for row in neighbours)
        for node, row in enumerate(self.neighbours):
            assert node not in row, "no node is its own neighbour"
            assert all(node in self.neighbours[other] for other in row), "edges go both ways"

    def receivers(self, node: NodeId, round: int) -> tuple[NodeId, ...]:
        return self.neighbours[node]

    senders = receivers


class FullyConnected:
    """Everybody exchanges models with everybody: global aggregation."""

    cycle = 1

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes

    def receivers(self, node: NodeId, round: int) -> tuple[NodeId, ...]:
        return (*range(node), *range(node + 1, self._nodes))

    senders = receivers


class RandomDigraph:
    """Each round every node sends to `degree` random others, drawn by a rule that everybody can repeat.

    How many a node receives from is left to chance.
    """

    cycle = 5
    """It never repeats itself; so many rounds say enough about all of them."""

    def __init__(self, nodes: int, degree: int, session: bytes) -> None:
        self._nodes = nodes
        self._degree = min(degree, nodes - 1)
        self._session = session
        self._drawn = lru_cache(_DRAWS_KEPT)(self._draw)
        """Kept for the rounds that nodes may be in at once."""

    def receivers(self, node: NodeId, round: int) -> tuple[NodeId, ...]:
        return self._drawn(round)[0][node]

    def senders(self, node: NodeId, round: int) -> tuple[NodeId, ...]:
        return self._drawn(round)[1][node]

    def _draw(self, round: int) -> tuple[Rows, Rows]:
        """Receivers and senders of every node."""
        rng = Random(b"%s round %d" % (self._session, round))
        receivers = [self._others(node, rng) for node in range(self._nodes)]
        return receivers, _reversed(receivers)

    def _others(self, node: NodeId, rng: Random) -> tuple[NodeId, ...]:
        drawn = rng.sample(range(self._nodes - 1), self._degree)
        return tuple(other + (other >= node) for other in drawn)


def _reversed(receivers: Rows) -> Rows:
    senders: list[list[NodeId]] = [[] for _ in receivers]
    for node, row in enumerate(receivers):
        for other in row:
            senders[other].append(node)
    return [tuple(row) for row in senders]


def ring(nodes: int) -> Graph:
    """Every node has the one before and the one after it as neighbours."""
    return Graph([{(n - 1) % nodes, (n + 1) % nodes} - {n} for n in range(nodes)])


def random_regular(nodes: int, degree: int, rng: Random) -> Graph:
    """A random connected graph in which every node has `degree` neighbours.

    Starts from a regular lattice and swaps the ends of random pairs of edges, which changes no degree;
    goes on until the graph is connected.
    """
    complaint = regular_complaint(nodes, degree)
    if complaint:
        raise ValueError(complaint)
    neighbours = _lattice(nodes, degree)
    edges = [(a, b) for a in range(nodes) for b in sorted(neighbours[a]) if a < b]
    if degree == nodes - 1:
        return Graph(neighbours)
    while True:
        for _ in range(SWAPS_PER_EDGE * len(edges)):
            _swap_ends(edges, neighbours, rng)
        if unreachable(neighbours) is None:
            return Graph(neighbours)


def regular_complaint(nodes: int, degree: int) -> str | None:
    """Why no connected graph of `nodes` nodes has `degree` neighbours each; None if there is one."""
    if not 1 <= degree < nodes:
        return f"{nodes} nodes cannot have {degree} neighbours each: from 1 to {nodes - 1} can be"
    if nodes * degree % 2:
        return f"{nodes} nodes cannot have {degree} neighbours each: one of the two must be even"
    if degree == 1 and nodes > 2:
        return f"{nodes} nodes with 1 neighbour each are pairs that never hear of each other"
    return None


def unreachable(neighbours: Sequence[Iterable[NodeId]]) -> NodeId | None:
    """A node that no path leads to from node 0, if there is one."""
    found = {0}
    queue = [0]
    for node in queue:  # grows while it is read
        fresh = [other for other in neighbours[node] if other not in found]
        found.update(fresh)
        queue += fresh
    return next((node for node in range(len(neighbours)) if node not in found), None)


def _lattice(nodes: int, degree: int) -> list[set[NodeId]]:
    """Neighbours are the nearest on a circle; an odd degree adds the one opposite."""
    near = range(1, degree // 2 + 1)
    opposite = [nodes // 2] if degree % 2 else []
    return [
        {(n + d) % nodes for d in near} | {(n - d) % nodes for d in (*near, *opposite)} for n in range(nodes)
    ]


def _swap_ends(edges: list[tuple[NodeId, NodeId]], neighbours: list[set[NodeId]], rng: Random) -> None:
    """Turn two random edges a-b and c-d into a-d and c-b, unless that makes a loop or a double edge."""
    i, j = int(rng.random() * len(edges)), int(rng.random() * len(edges))
    (a, b), (c, d) = edges[i], edges[j]
    if rng.random() < 0.5:
        c, d = d, c
    if a in (c, d) or b in (c, d) or d in neighbours[a] or b in neighbours[c]:
        return
    edges[i], edges[j] = (a, d), (c, b)
    for one, old, new in ((a, b, d), (b, a, c), (c, d, b), (d, c, a)):
        neighbours[one].remove(old)
        neighbours[one].add(new)
