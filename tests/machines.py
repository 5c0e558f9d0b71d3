"""A Ray cluster of two machines with one processor each, which are processes of this one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

MACHINE = {"num_cpus": 1, "object_store_memory": 200 << 20}


@contextmanager
def two_machines() -> Iterator[Any]:
    """The cluster: `address`, `worker_nodes`, `add_node`, `remove_node`."""
    ray = pytest.importorskip("ray", reason="the package ray (extra cluster) is not installed")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={**MACHINE, "include_dashboard": False})
    try:
        cluster.add_node(**MACHINE)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def lose_a_machine(cluster: Any) -> None:
    """The one that is not the head is gone, with all that ran on it, as if somebody had pulled the plug."""
    (other,) = cluster.worker_nodes
    cluster.remove_node(other, allow_graceful=False)
