"""The topology that a spec asks for, which may be in a file.

Graphs as text are edge lists or adjacency lists, as networkx and others write them. A line of an edge list
names the two ends of an edge; what follows on the line (weights, attributes) is not used. A line of an
adjacency list names a node and then its neighbours. `#` begins a comment. Nodes are the numbers 0 to n - 1;
an edge goes both ways and may be named more than once.
"""

from __future__ import annotations

from pathlib import Path

from plexus.errors import PlexusError
from plexus.protocol.baselines import topology
from plexus.protocol.baselines.dpsgd import DpsgdParameters
from plexus.protocol.baselines.topology import Graph, Topology
from plexus.protocol.messages import NodeId
from plexus.rng import stream


def parse_graph(text: str, form: str, nodes: int) -> Graph:
    """The graph of `nodes` nodes in `text`; a ValueError says which line is wrong, and why."""
    neighbours: list[set[NodeId]] = [set() for _ in range(nodes)]
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].split()
        try:
            if form == "edgelist" and len(words) == 1:
                raise ValueError(f"an edge has two ends, here is only {words[0]!r}")
            ends = [_node(word, nodes) for word in (words[:2] if form == "edgelist" else words)]
            if ends and ends[0] in ends[1:]:
                raise ValueError(f"node {ends[0]} is its own neighbour")
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
        for other in ends[1:]:
            neighbours[ends[0]].add(other)
            neighbours[other].add(ends[0])
    cut_off = topology.unreachable(neighbours)
    if cut_off is not None:
        raise ValueError(f"no path leads from node 0 to node {cut_off}: they would never agree")
    return Graph(neighbours)


def _node(word: str, nodes: int) -> NodeId:
    if not (word.isascii() and word.isdecimal() and int(word) < nodes):
        raise ValueError(f"{word!r} is no node: they are 0 to {nodes - 1}")
    return int(word)


def build_topology(parameters: DpsgdParameters, nodes: int, seed: int, base_dir: Path) -> Topology:
    """The same for the same parameters, number of nodes and seed."""
    match parameters.topology:
        case "one-peer-exponential":
            return topology.OnePeerExponential(nodes)
        case "ring":
            return topology.ring(nodes)
        case "full":
            return topology.FullyConnected(nodes)
        case "regular":
            try:
                return topology.random_regular(nodes, parameters.degree, stream(seed, "topology"))
            except ValueError as error:
                raise PlexusError(f"protocol.degree: {error}") from None
        case "file":
            return _read(parameters, nodes, base_dir)


def _read(parameters: DpsgdParameters, nodes: int, base_dir: Path) -> Graph:
    assert parameters.topology_file is not None, "checked with the parameters"
    path = base_dir / parameters.topology_file
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise PlexusError(f"protocol.topology_file: {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise PlexusError(f"{path}: not UTF-8 text (byte {error.start})") from None
    try:
        return parse_graph(text, parameters.topology_format, nodes)
    except ValueError as error:
        raise PlexusError(f"{path}: {error}") from None
