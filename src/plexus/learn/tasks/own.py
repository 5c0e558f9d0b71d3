"""Tasks of the user's own: any torch module, any torch data set, named "package.module:factory"."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sized
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch.utils.data import Dataset

from plexus.checked import suggest
from plexus.errors import PlexusError, blaming
from plexus.learn.task import Examples, Task
from plexus.loading import OwnSpec, load_own

GIVEN = ("nodes", "seed")
"""What every factory is called with, whatever the table says."""
OWN_DATA = "data"
"""The argument of a factory that takes the data which a live node brings itself."""


def examples_from(dataset: Dataset[Any], first_id: int = 0) -> Examples:
    """All items of a data set of (input, target) pairs as two tensors.

    Give the test set a `first_id` past the training set's: ids tell their examples apart.
    """
    count = len(cast(Sized, dataset))
    if count == 0:
        raise PlexusError("a data set is empty: it needs at least one (input, target) pair")
    pairs = [dataset[row] for row in range(count)]
    try:
        inputs, targets = zip(*((torch.as_tensor(x), torch.as_tensor(y)) for x, y in pairs), strict=True)
        return Examples(torch.stack(inputs), torch.stack(targets), np.arange(first_id, first_id + count))
    except (TypeError, ValueError, RuntimeError) as error:
        needed = "a data set must give (input, target) pairs of numbers or tensors, all of the same shape"
        raise PlexusError(f"{needed}: {str(error).splitlines()[0]}") from error


def build_own(spec: OwnSpec, nodes: int, seed: int, base_dir: Path, own_data: Path | None = None) -> Task:
    """Import the factory, from `base_dir` first, and call it with nodes, seed and parameters.

    With `own_data` the task is about one node, which brings it.
    """
    factory = load_own(spec.name, base_dir, "task.name")
    if not callable(factory):
        module, _, attribute = spec.name.partition(":")
        raise PlexusError(f"task.name: module {module} has no function {attribute!r}")
    # What it starts from is for Plexus, not for the factory.
    parameters = {key: value for key, value in spec.parameters.items() if key != "initial"}
    _check_keys(factory, spec.name, parameters)
    if own_data is not None:
        if OWN_DATA not in inspect.signature(factory).parameters:
            raise PlexusError(f"--data {own_data}: {spec.name} has no argument {OWN_DATA!r} to take it")
        parameters[OWN_DATA], nodes = own_data, 1
    with blaming(f"task {spec.name} failed"):
        task = factory(nodes=nodes, seed=seed, **parameters)
    if not isinstance(task, Task):
        raise PlexusError(f"task {spec.name} must return a Task, not a {type(task).__name__}")
    if task.nodes != nodes:
        raise PlexusError(f"task {spec.name} has data for {task.nodes} nodes, not for {nodes}")
    return task


def _check_keys(factory: Callable[..., Any], name_of: str, given: Mapping[str, Any]) -> None:
    """See that the factory takes the keys of the `[task]` table, and has all that it needs."""
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return  # it does not say what it takes
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    own = {name: each for name, each in parameters.items() if each.kind in kinds and name not in GIVEN}
    takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    for key in given:
        if key not in own and not takes_any:
            takes = ", ".join(own) or "no keys"
            raise PlexusError(f"task.{key}: {name_of} takes {takes}{suggest(key, own)}")
    for name, each in own.items():
        if each.default is inspect.Parameter.empty and name not in given:
            raise PlexusError(f"task.{name}: missing; {name_of} has no default for it")
