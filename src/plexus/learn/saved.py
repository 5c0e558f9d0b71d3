"""Models to take home: safetensors files that say what they are, and the torch modules that they are of.

The metadata names task, round, metric, classes, the schema of a table, versions, and how the module is built:
the function that does it and what it is called with, where both can be written down.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from functools import partial
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import msgspec
import torch
from msgspec import Struct
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from plexus import __version__
from plexus.errors import MissingModuleError, PlexusError, blaming
from plexus.files import write_bytes
from plexus.learn.layout import encode, named_tensors, weights_hash
from plexus.learn.task import Task
from plexus.loading import load_own
from plexus.runs.model_files import joined

Metadata = Mapping[str, str]
OURS = ("plexus.learn.networks", "plexus.learn.tasks.")
"""Where the networks are that tasks of Plexus have."""


class Recipe(Struct):
    """How a module is built: what is called, and with what."""

    call: str
    args: list[Any] = []
    kwargs: dict[str, Any] = {}


def about(task: Task) -> dict[str, str]:
    """What the file of any model of this task says."""
    facts: dict[str, Any] = {"task": task.name, "format": "pt", "plexus": __version__}
    facts |= {"torch": str(torch.__version__), "metric": task.measure.name}
    facts |= {"higher_is_better": json.dumps(task.measure.higher_is_better)}
    if task.classes:
        facts["classes"] = json.dumps(task.classes, ensure_ascii=False)
    if task.schema is not None:
        facts["schema"] = msgspec.json.encode(task.schema).decode()
        if task.prepare is not None:
            facts["prepare"] = getattr(task.prepare, "__qualname__", type(task.prepare).__name__)
    plan = _plan(task.build_model)
    return facts if plan is None else {**facts, "model": json.dumps(plan)}


def save_model(path: Path, tensors: Mapping[str, Tensor], metadata: Metadata) -> None:
    """Write a model, whole or not at all."""
    write_bytes(path, joined({**metadata, "weights": weights_hash(tensors)}, encode(tensors)))


def read_model(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (no dictionary)
            return tensors, dict(file.metadata() or {})
    except FileNotFoundError:
        raise PlexusError(f"{path}: no such file") from None
    except (OSError, SafetensorError) as error:
        raise PlexusError(f"{path}: not a safetensors file: {error}") from None


def load_model(path: Path, folder: Path) -> nn.Module:
    """The torch module of a file, ready to predict; its code is searched in `folder` first."""
    tensors, metadata = read_model(path)
    module = built(path, metadata, folder)
    fill(module, tensors, str(path))
    return module.eval()


def built(path: Path, metadata: Metadata, folder: Path) -> nn.Module:
    """The module that the metadata describe, with whatever weights it is built with."""
    if "model" not in metadata:
        remedy = "build it yourself and load_state_dict(safetensors.torch.load_file(…))"
        raise PlexusError(f"{path}: does not say how its model is built, as that is no plain call: {remedy}")
    try:
        plan = msgspec.json.decode(metadata["model"], type=Recipe)
    except msgspec.DecodeError as error:
        raise PlexusError(f"{path}: how its model is built cannot be read: {error}") from None
    if not _is_trusted(plan.call, folder):
        where = f"which is not in {folder.resolve()}, nor a network of Plexus or torch"
        raise MissingModuleError(f"{path}: its model is built by {plan.call}, {where}")
    build = load_own(plan.call, folder, str(path))
    if not callable(build):
        raise PlexusError(f"{path}: its model is built by {plan.call}, which is not there")
    with blaming(f"{path}: building the model"):
        module = build(*plan.args, **plan.kwargs)
    if not isinstance(module, nn.Module):
        raise PlexusError(f"{path}: {plan.call} builds a {type(module).__name__}, not a torch module")
    return module


def _is_trusted(call: str, folder: Path) -> bool:
    """A file may come from anybody, and must not have whatever it likes called: its model is built by code of
    the folder that the user says, by the networks of Plexus, or is a layer of torch."""
    module_name, _, name = call.partition(":")
    if module_name.startswith(OURS):
        return True
    if module_name.startswith("torch.nn.modules."):
        return isinstance(found := getattr(nn, name, None), type) and issubclass(found, nn.Module)
    return PathFinder.find_spec(module_name.partition(".")[0], [str(folder.resolve())]) is not None


@torch.no_grad()
def fill(module: nn.Module, tensors: Mapping[str, Tensor], source: str) -> None:
    """Give `module` these weights, all that it has and no others."""
    own = named_tensors(module)
    for name in sorted(own.keys() ^ tensors.keys()):
        whose = "has no" if name in own else "has a"
        other = "the model has" if name in own else "the model has not"
        raise PlexusError(f"{source}: {whose} tensor {name}, which {other}")
    for name, tensor in own.items():
        if tensor.shape != tensors[name].shape:
            shapes = f"{tuple(tensors[name].shape)}, the model's {tuple(tensor.shape)}"
            raise PlexusError(f"{source}: the tensor {name} has shape {shapes}")
        tensor.copy_(tensors[name])


def predict(module: nn.Module, inputs: Any) -> Any:
    """The outputs of `module` for a numpy array of inputs, as another."""
    with torch.no_grad():
        return module(torch.from_numpy(inputs)).numpy()


def _plan(build: Callable[[], nn.Module]) -> dict[str, Any] | None:
    """How a module is built, if that can be written down: a function of a module, with plain arguments."""
    arguments: tuple[Any, ...] = ()
    named: dict[str, Any] = {}
    while isinstance(build, partial):
        arguments, named = (*build.args, *arguments), {**build.keywords, **named}
        build = build.func
    name = getattr(build, "__qualname__", "<")
    if "<" in name or "." in name or inspect.getmodule(build) is None:
        return None
    plan = {"call": f"{build.__module__}:{name}", "args": list(arguments), "kwargs": named}
    try:
        return plan if json.loads(json.dumps(plan)) == plan else None
    except (TypeError, ValueError):
        return None
