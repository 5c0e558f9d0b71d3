"""A step as a list of operations: what it did to tensors once, to be done again.

As a CUDA graph, on a processor: every result has its place in memory, and is written there again. So views,
most of what autograd and vmap ask for, are made once and for all. Nothing in the step may depend on values,
and whatever it changes must be in the state that it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

FILLED = frozenset({"ones_like", "zeros_like", "full_like", "new_ones", "new_zeros", "new_full"})
"""They look at the shape of what they are given, not at its values."""


class _Call:
    def __init__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        self.func, self.args, self.kwargs, self.result = func, args, kwargs, result
        self.changes: bool = func._schema.is_mutable
        self.given = _tensors((args, kwargs))
        self.made = [] if self.changes else _tensors(result)
        self.is_view = bool(self.made) and _memory(self.made) <= _memory(self.given)


class _Calls(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Every operation, below autograd and vmap."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.made: list[_Call] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports that compiler

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        # Also keeps the tensors, so that no two have the same id.
        self.made.append(_Call(func, args, kwargs or {}, result))
        return result


class Tape:
    """What `step(state, batch)` did to such a state; it is called once, to see that."""

    def __init__(self, step: Callable[[Any, Any], None], state: Any, batch: Any) -> None:
        self._state, example = tree_map(torch.clone, (state, batch))
        calls = _Calls()
        with calls:
            step(self._state, example)
        self._example = tree_leaves(example)
        self._calls = _needed(_varying(calls.made, _tensors((self._state, example))))
        self._batches: Any = None
        self._bound: list[list[Callable[[], Any]]] = []
        """What is to be called, step by step, on `_state` and `_batches`."""

    def is_small(self, most_bytes: int) -> bool:
        """Whether all results fit into so much memory, and keep their shapes there."""
        if any(torch.Tag.inplace_view in call.func.tags for call in self._calls):
            return False
        return most_bytes >= sum(t.nbytes for call in self._calls if not call.is_view for t in call.made)

    def replay(self, state: Any, batches: Any) -> Any:
        """The state after a step with every batch; of use until the next time."""
        given = tree_leaves(batches)
        steps = len(given[0])
        if steps > len(self._bound):
            # Whole, as they are given: where a batch begins in memory decides the last bits of products.
            self._batches = [each.clone() for each in given]
            self._bound = [self._bind([each[at] for each in self._batches]) for at in range(steps)]
        places = [*tree_leaves(self._state), *(each[:steps] for each in self._batches)]
        torch._foreach_copy_(places, [*tree_leaves(state), *given])
        for operation in chain(*self._bound[:steps]):
            operation()
        return self._state

    def _bind(self, batch: list[Tensor]) -> list[Callable[[], Any]]:
        """The operations, with this batch in place of the example."""
        known = {id(old): new for old, new in zip(self._example, batch, strict=True)}

        def looked_up(each: Any) -> Any:
            found = known.get(id(each), each)
            return found.detach() if isinstance(found, Tensor) and found.requires_grad else found

        operations = list[Callable[[], Any]]()
        for call in self._calls:
            args, kwargs = tree_map(looked_up, (call.args, call.kwargs))
            if call.is_view:
                seen = _tensors(call.func(*args, **kwargs))
                known |= {id(old): new for old, new in zip(call.made, seen, strict=True)}
            else:
                operations.append(_into(call.func, args, kwargs, tree_map(looked_up, call.result)))
        return operations


def _into(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Callable[[], Any]:
    """The same call, with the result written where it was."""
    if func._schema.is_mutable:
        return partial(func, *args, **kwargs)
    places = result if isinstance(result, tuple) else (result,)
    told, names = _told_where(func, len(places))
    if told is not None and all(place is not None for place in places):
        return partial(told, *args, **kwargs, **dict(zip(names, places, strict=True)))
    return lambda: torch._foreach_copy_(_tensors(result), _tensors(func(*args, **kwargs)))


@cache
def _told_where(func: Any, results: int) -> tuple[Any, list[str]]:
    """The same operation, told where its results go, and by which arguments; None if there is none."""
    takes = [(each.name, str(each.type)) for each in func._schema.arguments]
    for other in (getattr(func.overloadpacket, name) for name in func.overloadpacket.overloads()):
        rest = [(each.name, str(each.type)) for each in other._schema.arguments if not each.is_out]
        outs = [each.name for each in other._schema.arguments if each.is_out]
        if len(outs) == results and rest == takes:
            return other, outs
    return None, []


def _tensors(tree: Any) -> list[Tensor]:
    return [each for each in tree_leaves(tree) if isinstance(each, Tensor)]


def _memory(tensors: list[Tensor]) -> set[int]:
    return {each.untyped_storage().data_ptr() for each in tensors}


def _varying(calls: list[_Call], arguments: list[Tensor]) -> list[_Call]:
    """Those that change something, or whose results are not always the same."""
    changed = _memory(arguments).union(*(_memory(call.given) for call in calls if call.changes))
    kept: list[_Call] = []
    for call in calls:
        seen = [] if call.func.overloadpacket.__name__ in FILLED else call.given
        if call.changes or _memory(seen + call.made) & changed:
            changed |= _memory(call.made)
            kept.append(call)
    return kept


def _needed(calls: list[_Call]) -> list[_Call]:
    """Those that change something, or of which something comes."""
    needed, kept = set[int](), list[_Call]()
    for call in reversed(calls):
        if call.changes or needed & set(map(id, call.made)):
            kept.append(call)
            needed.update(map(id, call.given))
    return kept[::-1]
