"""Every example has exactly one owner, nobody is empty, and the seed decides."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plexus.errors import PlexusError
from plexus.learn import partition
from plexus.learn.tasks.specs import DigitsSpec
from plexus.rng import array_stream

LABELS = np.repeat(np.arange(10), 30)


def make(kind: str, seed: int = 1, nodes: int = 20) -> tuple[partition.Rows, ...]:
    rng = array_stream(seed, "learn", "partition")
    if kind == "iid":
        return partition.iid(len(LABELS), nodes, rng)
    if kind == "dirichlet":
        return partition.dirichlet(LABELS, nodes, 0.1, rng)
    return partition.shards(LABELS, nodes, 2, rng)


@pytest.mark.parametrize("kind", ["iid", "dirichlet", "shards"])
def test_every_example_has_one_owner_and_nobody_is_empty(kind: str) -> None:
    parts = make(kind)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(LABELS)))
    assert min(len(part) for part in parts) >= 1


@pytest.mark.parametrize("kind", ["iid", "dirichlet", "shards"])
def test_the_seed_decides(kind: str) -> None:
    first, again, other = make(kind), make(kind), make(kind, seed=2)
    assert [p.tolist() for p in first] == [p.tolist() for p in again]
    assert [p.tolist() for p in first] != [p.tolist() for p in other]


def test_by_speed_the_slower_half_owns_the_upper_classes() -> None:
    ms_per_sample = [float(10 * (node * 8 % 21)) for node in range(21)]
    parts = partition.by_speed(LABELS, ms_per_sample, array_stream(1, "p"))
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(LABELS)))
    middle = sorted(ms_per_sample)[10]
    for ms, part in zip(ms_per_sample, parts, strict=True):
        assert set(LABELS[part]) <= (set(range(5, 10)) if ms > middle else set(range(5)))
    sizes = sorted(map(len, parts))
    assert (sizes[0], sizes[-1]) == (13, 15), "each half is dealt out evenly"


def test_by_speed_needs_devices_and_their_difference() -> None:
    spec = DigitsSpec(partition="by-speed")
    with pytest.raises(PlexusError, match=r"^task\.partition: by-speed needs the devices of a simulated"):
        partition.by_label(spec, LABELS, 5, 1)
    with pytest.raises(PlexusError, match=r"^task\.partition: by-speed needs devices of different speeds"):
        partition.by_label(spec, LABELS, 5, 1, [3.0] * 5)
    assert len(partition.by_label(spec, LABELS, 2, 1, [3.0, 2.0])) == 2


def test_iid_sizes_differ_by_at_most_one() -> None:
    sizes = [len(part) for part in partition.iid(307, 20, array_stream(1, "p"))]
    assert (min(sizes), max(sizes)) == (15, 16)


def test_a_shard_is_of_one_class() -> None:
    assert all(len(np.unique(LABELS[part])) <= 2 for part in make("shards", nodes=15))


def test_smaller_alpha_gives_fewer_classes_a_node() -> None:
    def classes(alpha: float) -> float:
        parts = partition.dirichlet(LABELS, 20, alpha, array_stream(1, "p"))
        return float(np.mean([len(np.unique(LABELS[part])) for part in parts]))

    assert classes(0.05) < classes(0.5) < classes(50.0)


def test_an_infinite_alpha_gives_all_the_same() -> None:
    parts = partition.dirichlet(LABELS, 20, np.inf, array_stream(1, "p"))
    assert {len(part) for part in parts} <= set(range(10, 21))


@settings(deadline=None, max_examples=40)
@given(nodes=st.integers(1, 60), alpha=st.sampled_from([1e-9, 0.01, 0.3, 10.0]), seed=st.integers(0, 99))
def test_dirichlet_leaves_nobody_empty(nodes: int, alpha: float, seed: int) -> None:
    labels = np.arange(60) % 3
    parts = partition.dirichlet(labels, nodes, alpha, array_stream(seed, "p"))
    assert len(parts) == nodes
    assert min(len(part) for part in parts) >= 1
    assert sorted(np.concatenate(parts).tolist()) == list(range(60))


def test_by_user_gives_each_node_all_of_one_user() -> None:
    users = np.array([7, 3, 7, 9, 3, 7])
    parts = partition.by_user(users, 3, array_stream(1, "p"))
    assert [part.tolist() for part in parts] == [[1, 4], [0, 2, 5], [3]]


def test_by_user_chooses_users_by_seed() -> None:
    users = np.arange(100)
    chosen = {
        tuple(int(p[0]) for p in partition.by_user(users, 5, array_stream(seed, "p"))) for seed in range(4)
    }
    assert len(chosen) == 4


def test_split_is_complete_and_disjoint() -> None:
    train, test = partition.split(100, 0.3, array_stream(1, "s"))
    assert sorted([*train.tolist(), *test.tolist()]) == list(range(100))
    assert len(test) == 30


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda r: partition.iid(3, 4, r), "3 training examples cannot be shared among 4 nodes"),
        (lambda r: partition.iid(3, 0, r), "0 nodes: at least 1 is needed"),
        (lambda r: partition.dirichlet(LABELS, 4, 0.0, r), "alpha is 0.0"),
        (lambda r: partition.dirichlet(LABELS[:3], 4, 1.0, r), "3 training examples cannot be"),
        (lambda r: partition.shards(LABELS, 200, 2, r), "400 shards"),
        (lambda r: partition.shards(LABELS, 200, 0, r), "shards_per_node is 0"),
        (lambda r: partition.by_user(np.array([1, 1]), 2, r), "only 1 users"),
        (lambda r: partition.by_user(np.array([1, 1]), 0, r), "0 nodes"),
        (lambda r: partition.split(3, 0.01, r), "leaves one set empty"),
    ],
)
def test_the_impossible_is_one_clear_error(call, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(PlexusError, match=message):
        call(array_stream(1, "p"))


@pytest.mark.parametrize("kind", ["iid", "dirichlet", "shards"])
def test_with_reuse_several_nodes_have_the_same_examples(kind: str) -> None:
    spec = DigitsSpec(partition=kind, reuse=True)  # type: ignore[arg-type]
    parts = partition.by_label(spec, LABELS, 1000, 1)
    assert len(parts) == 1000
    sets = len(LABELS) // spec.batch
    assert len({id(part) for part in parts}) == sets, "a batch each"
    assert sorted(np.concatenate(parts[:sets]).tolist()) == list(range(len(LABELS)))
    assert parts[sets] is parts[0]
    few = partition.by_label(spec, LABELS, 5, 1)
    alone = partition.by_label(DigitsSpec(partition=kind), LABELS, 5, 1)  # type: ignore[arg-type]
    assert [p.tolist() for p in few] == [p.tolist() for p in alone], "where there is enough, all is as it was"


def test_with_reuse_several_nodes_are_one_user() -> None:
    users = np.repeat(np.arange(4), 3)
    own = partition.by_user(users, 10, array_stream(1, "p"), reuse=True)
    assert len(own) == 4
    assert [users[part[0]] for part in partition.dealt(own, 10)] == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]


def test_by_speed_has_no_reuse() -> None:
    with pytest.raises(PlexusError, match=r"^task\.reuse: not with the partition by-speed"):
        partition.by_label(DigitsSpec(partition="by-speed", reuse=True), LABELS, 2, 1, [3.0, 2.0])
