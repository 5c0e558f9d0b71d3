"""A function of tensors as a plain list of operations: what it did once, to be done again with others.

As torch's `make_fx`, without what that imports: it would take longer than many a run. Nothing in the function
may depend on values, and whatever it changes in place must be among its arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten


class _Calls(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Every operation, below autograd and vmap."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.made: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports that compiler

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        # Also keeps the tensors, so that no two have the same id.
        self.made.append((func, args, kwargs or {}, result))
        return result


def recorded(function: Callable[..., Any], *example: Any) -> Callable[..., Any]:
    """`function` for arguments like `example`, which it is called with once."""
    inputs = _leaves(example)
    calls = _Calls()
    with calls:
        outputs, gives = tree_flatten(function(*example))
    run = _Source(inputs, outputs, calls.made).compiled()

    def replay(*arguments: Any) -> Any:
        given = _leaves(arguments)
        assert len(given) == len(inputs), "other arguments than those recorded"
        return tree_unflatten(run(*given), gives)

    return replay


def _leaves(tree: Any) -> list[Any]:
    """Of tuples, lists and dictionaries; torch's own takes several times as long, as long as an operation."""
    if not isinstance(tree, tuple | list | dict):
        return [tree]
    return [leaf for part in (tree.values() if isinstance(tree, dict) else tree) for leaf in _leaves(part)]


class _Source:
    """Python code that makes the same calls, without those of which nothing comes."""

    def __init__(self, inputs: list[Any], outputs: list[Any], calls: list[Any]) -> None:
        self._parameters = [f"v{at}" for at in range(len(inputs))]
        self._names = {id(each): name for name, each in zip(self._parameters, inputs, strict=True)}
        self._outputs = outputs
        self._constants: dict[str, Any] = {}
        self._calls = _needed(calls, outputs)

    def compiled(self) -> Callable[..., Any]:
        lines = [self._line(*call) for call in self._calls]
        results = ", ".join(map(self._expression, self._outputs))
        body = "\n    ".join([*lines, f"return [{results}]"])
        exec(f"def run({', '.join(self._parameters)}):\n    {body}", self._constants)
        run: Callable[..., Any] = self._constants["run"]
        return run

    def _line(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> str:
        given = [*map(self._expression, args), *(f"{k}={self._expression(v)}" for k, v in kwargs.items())]
        call = f"{self._constant(func)}({', '.join(given)})"
        if isinstance(result, torch.Tensor):
            return f"{self._name(result)} = {call}"
        if not any(isinstance(each, torch.Tensor) for each in tree_leaves(result)):
            return call
        parts = [self._name(each) if isinstance(each, torch.Tensor) else "_" for each in result]
        return f"{', '.join(parts)}, = {call}"

    def _name(self, tensor: Any) -> str:
        return self._names.setdefault(id(tensor), f"v{len(self._names)}")

    def _expression(self, value: Any) -> str:
        if isinstance(value, torch.Tensor) and id(value) in self._names:
            return self._names[id(value)]
        if isinstance(value, list | tuple):
            inside = ", ".join(map(self._expression, value))
            return f"[{inside}]" if isinstance(value, list) else f"({inside},)"
        return self._constant(value)

    def _constant(self, value: Any) -> str:
        name = f"c{len(self._constants)}"
        self._constants[name] = value
        return name


def _needed(calls: list[Any], outputs: list[Any]) -> list[Any]:
    """Those that change something, or of which something comes."""
    needed, kept = {id(each) for each in outputs}, []
    for call in reversed(calls):
        func, args, kwargs, result = call
        if func._schema.is_mutable or any(id(each) in needed for each in tree_leaves(result)):
            kept.append(call)
            needed.update(id(each) for each in tree_leaves((args, kwargs)))
    return kept[::-1]
