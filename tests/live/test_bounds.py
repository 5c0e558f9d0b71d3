"""How far from the held model another may be."""

from __future__ import annotations

import numpy as np
import pytest

from plexus.bench.transport import made_up_model
from plexus.live.bounds import FACTOR, LEAST_AHEAD, TOO_FAR, Bounds
from plexus.live.models import LiveModel, ModelLayout, seal
from plexus.protocol.messages import AggregateRequest, LateModel, TrainRequest
from plexus.protocol.view import View

VIEW = View.of(1).snapshot()


class Node:
    """What a node knows whose trainings change its model by a norm of 2."""

    def __init__(self, numbers: int = 100_000, has_trained: bool = True) -> None:
        self.zeros = made_up_model(4 * numbers)
        self.layout = ModelLayout(self.zeros.data)
        self.count = len(self.layout.numbers(self.zeros.data)[0])
        self.zeros = self.of_norm(0.0)
        self.bounds = Bounds(self.layout)
        self.bounds.hold(self.zeros, 10, 0.0)
        if has_trained:
            self.train(2.0)

    def of_norm(self, norm: float) -> LiveModel:
        return self.full_of(norm / self.count**0.5)

    def full_of(self, value: float) -> LiveModel:
        data = self.layout.blank()
        for run in self.layout.numbers(data):
            run[:] = value
        return LiveModel(data, seal(data))

    def train(self, norm: float) -> None:
        self.bounds.trained(norm)

    def refuses(self, model: LiveModel, ordinal: int = 10, now_s: float = 0.0) -> bool:
        request = TrainRequest(ordinal, 1, ordinal, 3, VIEW, None)
        flaw = self.bounds.flaw(request, model, now_s)()
        assert flaw in (None, TOO_FAR)
        return flaw is not None


def test_a_model_is_bounded_by_what_trainings_change_and_how_far_it_is_ahead() -> None:
    node = Node()
    for ordinal, rounds in ((9, 1), (10, 1), (11, 2), (13, 4)):
        assert not node.refuses(node.of_norm(0.99 * FACTOR * 2.0 * rounds), ordinal)
        assert node.refuses(node.of_norm(1.01 * FACTOR * 2.0 * rounds), ordinal)


@pytest.mark.parametrize("has_trained", [True, False])
@pytest.mark.parametrize("value", [3e38, -3e38, 1e30])
def test_what_is_finite_and_huge_is_refused(value: float, has_trained: bool) -> None:
    node = Node(has_trained=has_trained)
    assert node.refuses(node.full_of(value))
    assert node.refuses(node.full_of(value), ordinal=2**40 - 1)


def test_before_the_first_training_the_held_model_is_the_measure() -> None:
    node = Node(has_trained=False)
    assert not node.refuses(node.of_norm(0.99 * FACTOR))
    assert node.refuses(node.of_norm(1.01 * FACTOR))
    node.bounds.hold(node.of_norm(3.0), 10, 0.0)
    assert not node.refuses(node.of_norm(0.9 * FACTOR * 4.0))


def test_a_change_is_bounded_by_itself_as_one_round() -> None:
    node = Node()
    node.bounds.hold(node.of_norm(100.0), 10, 0.0)
    late = LateModel(14, 10, 10, 1, None)
    assert node.bounds.flaw(late, node.of_norm(-19.0), 0.0)() is None
    assert node.bounds.flaw(late, node.of_norm(-21.0), 0.0)() == TOO_FAR


def test_a_trained_model_is_a_round_ahead_of_its_base() -> None:
    node = Node()
    request = AggregateRequest(11, 10, 11, 3, 1, VIEW, None)
    assert node.bounds.flaw(request, node.of_norm(19.0), 0.0)() is None
    assert node.bounds.flaw(request, node.of_norm(21.0), 0.0)() == TOO_FAR


def test_nobody_is_further_ahead_than_time_allows_and_who_refuses_finds_the_others_in_the_end() -> None:
    node = Node()
    for ordinal in range(11, 20):
        node.bounds.hold(node.zeros, ordinal, ordinal - 10.0)
    far = node.of_norm(FACTOR * 2.0 * 50)
    assert node.refuses(far, ordinal=2**40 - 1, now_s=9.0)
    assert not node.refuses(node.of_norm(FACTOR * 2.0 * LEAST_AHEAD), ordinal=2**40 - 1, now_s=9.0)
    assert not node.refuses(far, ordinal=2**40 - 1, now_s=9.0 + 25)


def test_how_long_the_machine_has_been_running_is_not_how_long_rounds_take() -> None:
    """Time is that of the event loop, which counts from the start of the machine."""
    node, began_s = Node(), 1e6
    for ordinal in range(11, 14):
        node.bounds.hold(node.zeros, ordinal, began_s + ordinal)
    far = node.of_norm(FACTOR * 2.0 * 10)
    assert node.refuses(far, ordinal=40, now_s=began_s + 13)
    assert not node.refuses(far, ordinal=40, now_s=began_s + 23)


def test_all_trainings_count() -> None:
    node = Node()
    for norm in (3.0, 1.0, 2.0):
        node.train(norm)
    assert not node.refuses(node.of_norm(0.97 * FACTOR * 3.0))
    assert node.refuses(node.of_norm(1.01 * FACTOR * 3.0))


def test_the_largest_change_counts_for_long_and_not_for_ever() -> None:
    node = Node()
    node.train(0.1)
    assert not node.refuses(node.of_norm(9.0))
    for _ in range(100):
        node.train(0.1)
    assert node.refuses(node.of_norm(9.0))
    node.train(float("inf"))
    assert node.refuses(node.of_norm(9.0)), "a training that failed says nothing"


def test_who_was_alone_for_long_still_heeds_others() -> None:
    """What it changes by itself has become next to nothing; what others do is as large as ever."""
    node = Node()
    for _ in range(1000):
        node.train(1e-6)
    assert not node.refuses(node.of_norm(1.99), ordinal=11)
    assert node.refuses(node.of_norm(1.01 * FACTOR * 2.0 * 2 / 10), ordinal=11)


def test_double_precision_does_not_overflow() -> None:
    data = np.full(10, 1e300).tobytes()
    header = b'{"w":{"dtype":"F64","shape":[10],"data_offsets":[0,80]}}'
    whole = memoryview(len(header).to_bytes(8, "little") + header + data)
    bounds = Bounds(ModelLayout(whole))
    bounds.hold(LiveModel(memoryview(bytes(whole).replace(data, bytes(80))), b""), 1, 0.0)
    request = TrainRequest(1, 1, 1, 3, VIEW, None)
    assert bounds.flaw(request, LiveModel(whole, b""), 0.0)() == TOO_FAR
