"""From the name of a task and its parameters to the task."""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from plexus.errors import PlexusError
from plexus.learn.tasks.specs import DigitsSpec, TaskSpec

if TYPE_CHECKING:
    from plexus.learn.task import Task

TASKS: dict[str, tuple[type[TaskSpec], str]] = {
    "digits": (DigitsSpec, "plexus.learn.tasks.digits"),
}
"""Name -> its parameters, and the module whose `build(spec, nodes, seed)` makes the task."""


def create_task(name: str, nodes: int, seed: int, **parameters: Any) -> Task:
    """The task called `name` for this many nodes."""
    return build_task(parse_task({"name": name, **parameters}), nodes, seed)


def parse_task(table: Mapping[str, Any]) -> TaskSpec:
    """Check a `[task]` table; what is wrong is named by its key."""
    if "name" not in table:
        raise PlexusError(f"task.name is missing: one of {', '.join(TASKS)}")
    name = table["name"]
    if name not in TASKS:
        raise PlexusError(f"task.name: unknown task {name!r}{_hint(str(name), TASKS)}")
    spec_type, _ = TASKS[name]
    known = [field.encode_name for field in msgspec.structs.fields(spec_type)]
    for key in table:
        if key not in known and key != "name":
            raise PlexusError(f"task.{key}: task {name} has no such parameter{_hint(key, known)}")
    try:
        return msgspec.convert(dict(table), spec_type)
    except msgspec.ValidationError as error:
        raise PlexusError(_one_line(str(error))) from None


def build_task(spec: TaskSpec, nodes: int, seed: int) -> Task:
    """The task that `spec` describes, divided among `nodes` nodes."""
    if nodes < 1:
        raise PlexusError(f"nodes is {nodes}: a task needs at least 1")
    name = str(spec.__struct_config__.tag)
    module = importlib.import_module(TASKS[name][1])
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
