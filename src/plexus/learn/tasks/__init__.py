"""The tasks that come with Plexus, by name. Importing this package does not import torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from plexus.checked import Source, choose
from plexus.errors import MissingDataError, PlexusError
from plexus.files import data_directory
from plexus.learn.tasks import specs
from plexus.learn.tasks.specs import TASKS, PartitionedSpec, TaskSpec, UntrainedSpec
from plexus.loading import OwnSpec

if TYPE_CHECKING:
    from plexus.learn.task import Task

AnyTaskSpec: TypeAlias = TaskSpec | OwnSpec | UntrainedSpec


def create_task(name: str, nodes: int, seed: int, **parameters: Any) -> Task:
    """The task called `name` for this many nodes."""
    return build_task(parse_task({"name": name, **parameters}), nodes, seed)


def parse_task(table: Mapping[str, Any] | str) -> AnyTaskSpec:
    """Check a `[task]` table, or a task's mere name; what is wrong is named by its key."""
    table = {"name": table} if isinstance(table, str) else table
    return OwnSpec.of(table) or choose(table, TASKS, "task", Source())  # type: ignore[return-value]


def build_task(
    spec: AnyTaskSpec,
    nodes: int,
    seed: int,
    base_dir: Path | None = None,
    ms_per_sample: Sequence[float] | None = None,
    data: Path | None = None,
) -> Task:
    """The task that `spec` describes, divided among `nodes` nodes.

    `base_dir` is the session file's folder: paths and the user's modules are found from there.
    `ms_per_sample` is how slow each node's device is, where that is known: for the partition `by-speed`.
    `data` is what a live node brings itself, for tasks that take it: then they are about this node alone.
    """
    if nodes < 1:
        raise PlexusError(f"nodes is {nodes}: a task needs at least 1")
    if isinstance(spec, UntrainedSpec):
        raise PlexusError("task.name: untrained has nothing to learn; only `plexus run` can use it")
    if isinstance(spec, OwnSpec):
        from plexus.learn.tasks.own import build_own

        task = build_own(spec, nodes, seed, base_dir or Path(), data)
    elif data is not None:
        raise PlexusError(f"--data {data}: task {spec.name} takes a part of its own data, or an .npz")
    else:
        its_data = getattr(spec, "data", None)
        if its_data is not None and base_dir is not None:
            spec = msgspec.structs.replace(spec, data=str(base_dir / Path(its_data).expanduser()))
        task = _packaged(spec, nodes, seed, ms_per_sample)
    if spec.initial is None:
        return task
    return replace(task, initial=(base_dir or Path()) / Path(spec.initial).expanduser())


def _packaged(spec: TaskSpec, nodes: int, seed: int, ms_per_sample: Sequence[float] | None) -> Task:
    from plexus.learn.tasks import cifar10, digits, leaf, movielens, writers

    builders: dict[type[TaskSpec], Callable[..., Task]] = {
        specs.DigitsSpec: digits.build,
        specs.WritersSpec: writers.build,
        specs.Cifar10Spec: cifar10.build,
        specs.CelebaSpec: leaf.build,
        specs.FemnistSpec: leaf.build,
        specs.MovielensSpec: movielens.build,
        specs.BiasedMovielensSpec: movielens.build,
    }
    speeds = (ms_per_sample,) if isinstance(spec, PartitionedSpec) else ()
    return builders[type(spec)](spec, nodes, seed, *speeds)


def data_folder(given: str | None, *usual: str, what: str) -> Path:
    """The folder of a data set: `given`, or the first of the `usual` places in the data directory."""
    if given is not None:
        folder = Path(given).expanduser()
        if not folder.is_dir():
            raise MissingDataError(f"task.data: there is no folder {folder} with {what}")
        return folder
    root = data_directory()
    if found := next((root / name for name in usual if (root / name).is_dir()), None):
        return found
    where = f"task.data is not set, and {root} has no folder {usual[0]} with {what}"
    raise MissingDataError(f"{where}: name the folder, or see `plexus data list`")


def needed_file(folder: Path, *names: str, what: str) -> Path:
    """The first of these files that is in `folder`."""
    if found := next((folder / name for name in names if (folder / name).is_file()), None):
        return found
    raise MissingDataError(f"{folder / names[0]} is missing: {what}")
