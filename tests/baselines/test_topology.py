"""Topologies: who sends to whom, whatever the size, and what a file may say about it."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plexus.protocol.baselines.topology import (
    FullyConnected,
    Graph,
    OnePeerExponential,
    RandomDigraph,
    Topology,
    random_regular,
    regular_complaint,
    ring,
    unreachable,
)
from plexus.sim.topologies import parse_graph

sizes = st.integers(1, 70)
rounds = st.integers(1, 40)


def check_directions(topology: Topology, nodes: int, k: int) -> None:
    """Who is sent to is who receives; nobody sends to itself or twice to one node."""
    sends = {(a, b) for a in range(nodes) for b in topology.receivers(a, k)}
    receives = {(a, b) for b in range(nodes) for a in topology.senders(b, k)}
    assert sends == receives
    assert len(sends) == sum(len(topology.receivers(n, k)) for n in range(nodes))
    assert all(a != b and 0 <= b < nodes for a, b in sends)


@given(sizes.filter(lambda n: n > 1), rounds)
def test_one_peer_exponential_each_node_sends_one_and_receives_one(nodes: int, k: int) -> None:
    topology = OnePeerExponential(nodes)
    check_directions(topology, nodes, k)
    for node in range(nodes):
        assert len(topology.receivers(node, k)) == len(topology.senders(node, k)) == 1


@given(sizes, rounds)
def test_one_peer_exponential_news_reaches_everybody_in_one_cycle(nodes: int, first: int) -> None:
    topology = OnePeerExponential(nodes)
    assert topology.cycle == max(1, (nodes - 1).bit_length())
    reached = {0}
    for k in range(first, first + topology.cycle):
        reached |= {other for node in reached for other in topology.receivers(node, k)}
    assert reached == set(range(nodes))


def test_one_peer_exponential_cycles_through_powers_of_two() -> None:
    topology = OnePeerExponential(10)
    assert [topology.receivers(3, k) for k in range(1, 6)] == [(4,), (5,), (7,), (1,), (4,)]
    assert [topology.senders(3, k) for k in range(1, 6)] == [(2,), (1,), (9,), (5,), (2,)]
    assert OnePeerExponential(1).receivers(0, 1) == ()


regular_sizes = st.tuples(st.integers(2, 60), st.integers(1, 12)).filter(
    lambda pair: regular_complaint(*pair) is None
)


@given(regular_sizes, st.integers(0, 5))
def test_a_regular_graph_has_its_degree_is_symmetric_and_connected(size: tuple[int, int], seed: int) -> None:
    nodes, degree = size
    graph = random_regular(nodes, degree, Random(seed))
    check_directions(graph, nodes, 1)
    for node in range(nodes):
        assert len(graph.receivers(node, 1)) == degree
        assert graph.receivers(node, 1) == graph.senders(node, 7)
    assert unreachable(graph.neighbours) is None


def test_a_regular_graph_depends_on_the_seed_alone_and_is_no_lattice() -> None:
    graphs = [random_regular(100, 4, Random(seed)).neighbours for seed in (1, 1, 2)]
    assert graphs[0] == graphs[1] != graphs[2]
    near = sum(abs(a - b) <= 2 for a, row in enumerate(graphs[0]) for b in row)
    assert near < 40, "of 400; in the lattice it starts from, nearly all are"


@pytest.mark.parametrize(
    ("nodes", "degree", "words"),
    [
        (10, 10, "from 1 to 9"),
        (10, 0, "from 1 to 9"),
        (1, 1, "from 1 to 0"),
        (7, 3, "must be even"),
        (6, 1, "never hear of each other"),
    ],
)
def test_a_regular_graph_that_cannot_be_is_refused(nodes: int, degree: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        random_regular(nodes, degree, Random(1))


@given(sizes)
def test_ring_and_full(nodes: int) -> None:
    for topology, degree in ((ring(nodes), min(2, nodes - 1)), (FullyConnected(nodes), nodes - 1)):
        check_directions(topology, nodes, 1)
        assert {len(topology.receivers(node, 3)) for node in range(nodes)} == {degree}
    assert unreachable(ring(nodes).neighbours) is None


@given(sizes, st.integers(1, 12), rounds)
def test_random_draws_can_be_repeated_by_everybody(nodes: int, degree: int, k: int) -> None:
    one, other = (RandomDigraph(nodes, degree, b"session") for _ in range(2))
    for earlier in range(1, 25):  # more than are remembered: another past, the same draws
        other.receivers(0, earlier)
    check_directions(one, nodes, k)
    for node in range(nodes):
        assert len(one.receivers(node, k)) == min(degree, nodes - 1)
        assert one.receivers(node, k) == other.receivers(node, k)


def test_random_draws_differ_between_rounds_nodes_and_sessions() -> None:
    one, other = RandomDigraph(1000, 5, b"one"), RandomDigraph(1000, 5, b"other")
    drawn = [one.receivers(3, 1), one.receivers(3, 2), one.receivers(4, 1), other.receivers(3, 1)]
    assert len(set(drawn)) == 4


SQUARE = ((1, 3), (0, 2), (1, 3), (0, 2))


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("edgelist", "0 1\n1 2\n2 3\n3 0\n"),
        ("edgelist", "# made by hand\n0 1 {}\n1 2 {'weight': 3}\n\n2 3 0.5 # heavy\n0 3\n3 0\n"),
        ("adjlist", "#script.py\n# GMT Mon\n#\n0 1 3\n1 2\n2 3\n3\n"),
        ("adjlist", "0 1 3\n1 0 2\n2 1 3\n3 2 0"),
    ],
)
def test_a_graph_is_read_from_text(form: str, text: str) -> None:
    assert parse_graph(text, form, 4).neighbours == SQUARE


@pytest.mark.parametrize(
    ("form", "text", "complaint"),
    [
        ("edgelist", "0 1\n1\n", "line 2: an edge has two ends, here is only '1'"),
        ("edgelist", "0 1\n\n1 4", "line 3: '4' is no node: they are 0 to 3"),
        ("edgelist", "a b", "line 1: 'a' is no node: they are 0 to 3"),
        ("edgelist", "-1 2", "line 1: '-1' is no node: they are 0 to 3"),
        ("edgelist", "2 2", "line 1: node 2 is its own neighbour"),
        ("adjlist", "0 1\nx", "line 2: 'x' is no node: they are 0 to 3"),
        ("edgelist", "0 1\n1 2", "no path leads from node 0 to node 3: they would never agree"),
        ("adjlist", "", "no path leads from node 0 to node 1: they would never agree"),
    ],
)
def test_a_graph_that_is_wrong_is_told_by_its_line(form: str, text: str, complaint: str) -> None:
    with pytest.raises(ValueError) as error:
        parse_graph(text, form, 4)
    assert str(error.value) == complaint


def test_a_graph_must_be_mutual() -> None:
    with pytest.raises(AssertionError, match="both ways"):
        Graph([{1}, set()])
    with pytest.raises(AssertionError, match="its own neighbour"):
        Graph([{0}])
