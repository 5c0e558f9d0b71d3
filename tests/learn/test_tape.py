"""What was recorded does the same with other tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import vmap
from torch.nn import functional

from plexus.learn.engines.tape import recorded


def descend(weights: dict[str, Tensor], rows: list[Tensor]) -> tuple[dict[str, Tensor], Tensor]:
    """Changes what it is given; with a constant, two results of one operation, lists, and one in vain."""
    with torch.enable_grad():
        leaves = {name: each.detach().requires_grad_() for name, each in weights.items()}
        outputs = vmap(lambda w, b, x: functional.layer_norm(x @ w, (3,)) + b)(
            leaves["w"], leaves["b"], rows[0]
        )
        loss = functional.cross_entropy(outputs.flatten(0, 1), rows[1].flatten())
        found = torch.autograd.grad(loss * torch.tensor(2.0), list(leaves.values()))
    torch._foreach_add_(list(weights.values()), list(found), alpha=-0.5)
    outputs.sin()
    largest, _ = outputs.detach().max(dim=1)
    return weights, largest


def given(seed: int) -> tuple[dict[str, Tensor], list[Tensor]]:
    torch.manual_seed(seed)
    weights = {"w": torch.randn(4, 5, 3), "b": torch.randn(4, 3)}
    return weights, [torch.randn(4, 6, 5), torch.randint(3, (4, 6))]


def test_it_does_the_same_with_other_tensors_and_changes_those() -> None:
    step = recorded(descend, *given(1))
    for seed in (1, 2, 3):
        wanted, found = given(seed), given(seed)
        result, largest = step(*found)
        expected, most = descend(*wanted)
        assert result["w"] is found[0]["w"]
        assert all(torch.equal(result[name], expected[name]) for name in expected)
        assert torch.equal(largest, most)


def test_what_nobody_needs_is_not_done_again() -> None:
    done: list[Any] = []

    class Seen(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            done.append(func)
            return func(*args, **(kwargs or {}))

    step = recorded(descend, *given(1))
    arguments = given(2)
    with Seen():
        step(*arguments)
    assert torch.ops.aten.native_layer_norm.default in done
    assert torch.ops.aten.sin.default not in done


def test_arguments_of_another_shape_of_nesting_are_refused() -> None:
    step = recorded(lambda x: x[0] + 1, [torch.ones(2)])
    with pytest.raises(AssertionError, match="other arguments"):
        step([torch.ones(2), torch.ones(2)])
