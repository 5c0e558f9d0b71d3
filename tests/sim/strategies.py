"""What the simulator's property tests draw: small worlds, where coincidences are frequent."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.sim.fluid import Capacities, Cut, Script, Start

NODES = 4
node = st.integers(0, NODES - 1)
pair = st.tuples(node, node)
size_bytes = st.integers(1, 60)


def capacities(one: st.SearchStrategy[float]) -> st.SearchStrategy[Capacities]:
    some = st.lists(one, min_size=NODES, max_size=NODES)
    return st.builds(Capacities, up=some, down=some)


round_capacities = capacities(st.integers(1, 12))
"""Small whole numbers: many equal shares, many flows that end at the same instant."""
odd_capacities = capacities(st.floats(1e-3, 1e9))
"""Nothing divides anything: rounding errors, and links nine orders of magnitude apart."""

pause_s = st.integers(0, 40).map(lambda quarters: quarters / 4)
start = st.lists(st.tuples(node, node, size_bytes), min_size=1, max_size=6).map(tuple).map(Start)
script: st.SearchStrategy[Script] = st.lists(
    st.tuples(pause_s, st.one_of(start, start, start, node.map(Cut))), min_size=1, max_size=8
)
