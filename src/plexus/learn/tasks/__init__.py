"""The tasks that come with Plexus, by name. Importing this package does not import torch."""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from plexus.errors import PlexusError
from plexus.learn.tasks import specs
from plexus.learn.tasks.specs import OwnTaskSpec, TaskSpec, UntrainedSpec

if TYPE_CHECKING:
    from plexus.learn.task import Task

__all__ = ["TASKS", "OwnTaskSpec", "TaskSpec", "build_task", "create_task", "parse_task"]


# From the name of a task and its parameters to the task.

TASKS: dict[str, tuple[type[TaskSpec], str]] = {
    "digits": (specs.DigitsSpec, "plexus.learn.tasks.digits"),
    "digits-by-writer": (specs.WritersSpec, "plexus.learn.tasks.writers"),
    "cifar10": (specs.Cifar10Spec, "plexus.learn.tasks.cifar10"),
    "celeba": (specs.CelebaSpec, "plexus.learn.tasks.leaf"),
    "femnist": (specs.FemnistSpec, "plexus.learn.tasks.leaf"),
    "movielens": (specs.MovielensSpec, "plexus.learn.tasks.movielens"),
    "movielens-biased": (specs.BiasedMovielensSpec, "plexus.learn.tasks.movielens"),
}
"""Name -> its parameters, and the module whose `build(spec, nodes, seed)` makes the task."""


def create_task(name: str, nodes: int, seed: int, **parameters: Any) -> Task:
    """The task called `name` for this many nodes."""
    return build_task(parse_task({"name": name, **parameters}), nodes, seed)


def parse_task(table: Mapping[str, Any] | str) -> TaskSpec | OwnTaskSpec:
    """Check a `[task]` table, or a task's mere name; what is wrong is named by its key."""
    if isinstance(table, str):
        table = {"name": table}
    if not isinstance(table.get("name"), str):
        raise PlexusError(f"task.name is missing: one of {', '.join(TASKS)}, or package.module:factory")
    name = table["name"]
    if ":" in name:
        return OwnTaskSpec(name, {key: value for key, value in table.items() if key != "name"})
    if name not in TASKS:
        raise PlexusError(f"task.name: unknown task {name!r}{_hint(name, TASKS)}")
    spec_type, _ = TASKS[name]
    known = [field.encode_name for field in msgspec.structs.fields(spec_type)]
    for key in table:
        if key not in known and key != "name":
            raise PlexusError(f"task.{key}: task {name} has no such parameter{_hint(key, known)}")
    try:
        return msgspec.convert(dict(table), spec_type)
    except msgspec.ValidationError as error:
        raise PlexusError(_one_line(str(error))) from None


def build_task(
    spec: TaskSpec | OwnTaskSpec | UntrainedSpec, nodes: int, seed: int, base_dir: Path | None = None
) -> Task:
    """The task that `spec` describes, divided among `nodes` nodes.

    `base_dir` is the session file's folder: paths and the user's modules are found from there.
    """
    if nodes < 1:
        raise PlexusError(f"nodes is {nodes}: a task needs at least 1")
    if isinstance(spec, UntrainedSpec):
        raise PlexusError("task.name: untrained has nothing to learn; only `plexus run` can use it")
    if isinstance(spec, OwnTaskSpec):
        from plexus.learn.tasks.own import build_own

        return build_own(spec, nodes, seed, base_dir or Path())
    data = getattr(spec, "data", None)
    if data is not None and base_dir is not None:
        spec = msgspec.structs.replace(spec, data=str(base_dir / Path(data).expanduser()))
    module = importlib.import_module(TASKS[spec.name][1])
    task: Task = module.build(spec, nodes, seed)
    return task


def _hint(name: str, known: Iterable[str]) -> str:
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; known are {', '.join(known)}"


def _one_line(message: str) -> str:
    """msgspec's "Expected `int` >= 1 - at `$.batch`" as "task.batch: expected int >= 1"."""
    match = re.fullmatch(r"(.*) - at `\$\.?(.*)`", message)
    what, path = (match[1], match[2]) if match else (message, "")
    what = what.replace("`", "")
    return f"task{'.' + path if path else ''}: {what[:1].lower()}{what[1:]}"
