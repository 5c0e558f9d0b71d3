"""Graphs as text: edge lists and adjacency lists, as networkx and others write them.

A line of an edge list names the two ends of an edge; what follows on the line (weights, attributes) is
not used. A line of an adjacency list names a node and then its neighbours. `#` begins a comment. Nodes
are the numbers 0 to n - 1; an edge goes both ways and may be named more than once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from plexus.protocol.baselines.topology import Graph, unreachable
from plexus.protocol.messages import NodeId


def parse_graph(text: str, form: str, nodes: int) -> Graph:
    """The graph of `nodes` nodes in `text`; a ValueError says which line is wrong, and why."""
    neighbours: list[set[NodeId]] = [set() for _ in range(nodes)]
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].split()
        try:
            for a, b in FORMS[form](words, nodes):
                neighbours[a].add(b)
                neighbours[b].add(a)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    cut_off = unreachable(neighbours)
    if cut_off is not None:
        raise ValueError(f"no path leads from node 0 to node {cut_off}: they would never agree")
    return Graph(neighbours)


def _edge(words: list[str], nodes: int) -> Iterator[tuple[NodeId, NodeId]]:
    if len(words) == 1:
        raise ValueError(f"an edge has two ends, here is only {words[0]!r}")
    if words:
        yield _ends(words[0], words[1], nodes)


def _adjacency(words: list[str], nodes: int) -> Iterator[tuple[NodeId, NodeId]]:
    if len(words) == 1:  # all its neighbours have been named before it
        _node(words[0], nodes)
    for other in words[1:]:
        yield _ends(words[0], other, nodes)


def _ends(one: str, other: str, nodes: int) -> tuple[NodeId, NodeId]:
    a, b = _node(one, nodes), _node(other, nodes)
    if a == b:
        raise ValueError(f"node {a} is its own neighbour")
    return a, b


def _node(word: str, nodes: int) -> NodeId:
    if not (word.isascii() and word.isdecimal() and int(word) < nodes):
        raise ValueError(f"{word!r} is no node: they are 0 to {nodes - 1}")
    return int(word)


FORMS: dict[str, Callable[[list[str], int], Iterator[tuple[NodeId, NodeId]]]] = {
    "edgelist": _edge,
    "adjlist": _adjacency,
}
