"""What was recorded does the same with other tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import vmap
from torch.nn import functional

from plexus.learn.engines.tape import Tape

State = dict[str, Tensor]
Batch = tuple[Tensor, Tensor]


def descend(weights: State, batch: Batch) -> None:
    """With a constant, several results of one operation, lists, one without a place, one in vain."""
    with torch.enable_grad():
        leaves = {name: each.detach().requires_grad_() for name, each in weights.items()}
        outputs = vmap(lambda w, b, x: functional.layer_norm(x @ w, (3,)) + b)(
            leaves["w"], leaves["b"], batch[0]
        )
        loss = functional.cross_entropy(outputs.flatten(0, 1), batch[1].flatten())
        found = torch.autograd.grad(loss * torch.tensor(2.0), list(leaves.values()))
    moves = torch._foreach_mul([each + torch.ones_like(each) for each in found], -0.5)
    torch._foreach_add_(list(weights.values()), moves)
    outputs.sin()


def given(seed: int, steps: int = 3) -> tuple[State, Batch]:
    torch.manual_seed(seed)
    weights = {"w": torch.randn(4, 5, 3), "b": torch.randn(4, 3)}
    return weights, (torch.randn(steps, 4, 6, 5), torch.randint(3, (steps, 4, 6)))


def first(batches: Batch) -> Batch:
    return batches[0][0], batches[1][0]


@pytest.mark.parametrize("steps", [[1, 2, 3], [3, 1, 2]])
def test_it_does_the_same_with_other_tensors_and_any_number_of_them(steps: list[int]) -> None:
    weights, batches = given(0)
    tape = Tape(descend, weights, first(batches))
    assert torch.equal(weights["w"], given(0)[0]["w"]), "recording changes nothing"
    for seed, count in enumerate(steps):
        weights, (inputs, targets) = given(seed, count)
        found = tape.replay(weights, (inputs, targets))
        assert torch.equal(weights["w"], given(seed)[0]["w"]), "what is given stays as it is"
        for batch in zip(inputs, targets, strict=True):
            descend(weights, batch)
        assert all(torch.equal(found[name], weights[name]) for name in weights)


def test_neither_views_nor_constants_nor_what_nobody_needs_is_done_again() -> None:
    done: list[str] = []

    class Seen(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            done.append(func.overloadpacket.__name__)
            return func(*args, **(kwargs or {}))

    weights, batches = given(1)
    tape = Tape(descend, weights, first(batches))
    tape.replay(weights, batches)
    with Seen():
        tape.replay(weights, batches)
    assert done.count("native_layer_norm") == 3
    assert not {"sin", "view", "transpose", "expand", "detach", "ones_like"} & set(done)


def test_what_is_filled_and_then_changed_is_filled_again() -> None:
    def counted(state: Tensor, batch: Tensor) -> None:
        state += torch.zeros_like(state).index_put_((batch,), torch.ones(()), accumulate=True)

    batches = torch.tensor([[0, 1], [1, 1]])
    tape = Tape(counted, torch.zeros(3), batches[0])
    for _ in range(2):
        assert tape.replay(torch.zeros(3), batches).tolist() == [1, 3, 0]


def test_a_tape_is_as_small_as_its_results() -> None:
    def doubled(state: Tensor, batch: Tensor) -> None:
        state += batch.t() * 2

    tape = Tape(doubled, torch.ones(8, 4), torch.ones(4, 8))
    assert tape.is_small(8 * 4 * 4)
    assert not tape.is_small(8 * 4 * 4 - 1)


def test_what_changes_the_shape_of_a_result_is_not_small() -> None:
    def widened(state: Tensor, batch: Tensor) -> None:
        state += (batch + 1).unsqueeze_(0)

    assert not Tape(widened, torch.ones(1, 4), torch.ones(4)).is_small(1 << 30)
