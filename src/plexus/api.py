"""What `import plexus` offers to run and read experiments. docs/python.md describes it for readers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from plexus.errors import PlexusError
from plexus.experiment.progress import Progress
from plexus.runs.directory import claim
from plexus.runs.model_files import BEST_MODEL, FINAL_MODEL
from plexus.runs.run import Run, load_run
from plexus.spec.experiment import ExperimentSpec, load_spec, parse_spec

Row = Mapping[str, Any]
SpecLike = ExperimentSpec | Mapping[str, Any] | str | Path


def simulate(
    spec: SpecLike,
    *,
    out: Path | str | None = None,
    changes: Mapping[str, Any] | None = None,
    seed: int | None = None,
    size: str | None = None,
    force: bool = False,
    base_dir: Path | str | None = None,
    on_progress: Progress | None = None,
    on_evaluation: Callable[[Row], None] | None = None,
    on_round: Callable[[Row], None] | None = None,
    **machinery: Any,
) -> LoadedRun:
    """Run an experiment in virtual time, and give back its run directory, read.

    `spec` is a path, a name such as "quickstart" of one that comes with Plexus, TOML text (anything with
    a line feed), a dictionary or an `ExperimentSpec`; `size` is one that it has, and `changes` maps dotted
    keys to values that replace the spec's. `out` is the run directory, with the default and the rules of
    `plexus run`. Modules and paths in the spec are searched in `base_dir`: the spec file's folder, else the
    current one.

    Callbacks get one row of `evaluations.csv` or `rounds.csv`, or the state at every simulated minute.
    Raising `plexus.StopRun` in one ends the run there; so with callbacks events wait for learning, unless
    `ahead=True` is given. What else is given goes to `plexus.experiment.simulation.Machinery`: `engine`,
    `device`, `workers`, and so on.
    """
    folder = Path(base_dir) if base_dir is not None else _folder_of(spec)
    chosen = as_spec(spec, changes or {}, seed, size)
    directory = Path(out) if out is not None else Path("runs") / f"{chosen.name}-{chosen.digest()}"
    from plexus.experiment import simulation  # torch comes with it

    known = simulation.Machinery.__struct_fields__
    if unknown := machinery.keys() - set(known):
        raise TypeError(f"simulate() takes no {', '.join(sorted(unknown))}; machinery is {', '.join(known)}")
    claim(directory, chosen.digest(), force=force)

    def listen(table: str, row: Row) -> None:
        if callback := {"evaluations": on_evaluation, "rounds": on_round}.get(table):
            callback(row)

    if on_progress or on_evaluation or on_round:
        machinery.setdefault("ahead", False)  # it may stop the run by what it is told
    options = simulation.Machinery(**machinery)
    simulation.simulate(chosen, folder, directory, on_progress, options, listen=listen, force=force)
    return load(directory)


def simulate_many(
    spec: SpecLike,
    changes: Iterable[Mapping[str, Any]] = ({},),
    *,
    seeds: Iterable[int | None] = (None,),
    out: Path | str = "runs",
    size: str | None = None,
    base_dir: Path | str | None = None,
    jobs: int | None = None,
    device: str | None = None,
    address: str | None = None,
    quiet: bool = False,
) -> list[LoadedRun]:
    """Run variants of an experiment side by side, and give back all of them.

    They run on all cores, or on the Ray cluster at `address`.

    There is a run for each of `changes` with each of `seeds`, in this order; it goes to `out`/NAME-DIGEST.
    One that has its result there is not run again, one that was interrupted goes on.
    """
    from plexus.cli.progress import display_for, study_progress
    from plexus.studies.plan import Planned
    from plexus.studies.pool import finish

    folder, seeds = Path(base_dir) if base_dir is not None else _folder_of(spec), tuple(seeds)
    specs = [as_spec(spec, each, seed, size) for each in changes for seed in seeds]
    places = [Path(out) / f"{each.name}-{each.digest()}" for each in specs]
    runs = {at: Planned(each, folder, at) for each, at in zip(specs, places, strict=True)}
    with display_for(sys.stderr, quiet=quiet) as display:
        progress = study_progress(display, "simulate")
        finish(list(runs.values()), jobs=jobs, device=device, address=address, progress=progress)
    return [load(at) for at in places]


class LoadedRun(Run):
    """A run directory, and the torch modules that it left."""

    def model(self) -> Any:
        """The model that the run ended with, ready to predict."""
        return self._module(FINAL_MODEL)

    def best_model(self) -> Any:
        """The best model that was measured."""
        return self._module(BEST_MODEL)

    def _module(self, name: str) -> Any:
        from plexus.learn.saved import built, fill, read_model
        from plexus.learn.tasks import build_task, parse_task

        path, folder = self.path / name, Path(self.versions.get("spec_dir", "."))
        if not path.exists():
            raise PlexusError(f"{path}: the run left no model: it goes on, was killed, or learned nothing")
        tensors, metadata = read_model(path)
        if "model" in metadata:
            module = built(path, metadata, folder)
        else:
            task, nodes = parse_task(self.spec["task"]), self.spec["nodes"]
            module = build_task(task, nodes, self.spec["seed"], folder, range(nodes)).initial_model()
        fill(module, tensors, str(path))
        return module.eval()


def load(directory: Path | str) -> LoadedRun:
    """A run directory: finished, stopped, or still growing."""
    return LoadedRun(**vars(load_run(directory)))


def reproduce(
    *studies: str,
    size: str = "small",
    out: Path | str | None = None,
    tasks: Sequence[str] = (),
    device: str | None = None,
    jobs: int | None = None,
    address: str | None = None,
    experiments: Path | str | None = None,
    quiet: bool = False,
) -> Path:
    """Carry out the runs that `studies` ("fig3", …, "all") need, and return the path of the page about them.

    What `plexus reproduce` does: runs go to `out`/runs, and are not done again if they are there already.
    """
    from plexus.cli.progress import display_for, study_progress
    from plexus.studies.reproduce import reproduce

    with display_for(sys.stderr, quiet=quiet) as display:
        pool = {"device": device, "jobs": jobs, "address": address, "progress": study_progress(display)}
        return reproduce(studies, size, out, tasks, experiments, display.note, pool)


def as_spec(
    spec: SpecLike, changes: Mapping[str, Any] = {}, seed: int | None = None, size: str | None = None
) -> ExperimentSpec:
    """Whatever describes an experiment, as an `ExperimentSpec`."""
    changes, seed = _plain(changes, ""), _plain(seed, "seed")
    match spec:
        case ExperimentSpec():
            return parse_spec(spec.plain(), f"spec {spec.name}", changes, seed, size)
        case Mapping():
            return parse_spec(_plain(spec, ""), "spec", changes, seed, size)
        case str() if "\n" in spec:
            return parse_spec(spec, "spec", changes, seed, size)
        case str() | Path():
            return load_spec(spec, changes, seed, size)
    raise TypeError(f"a spec is a path, text, a dictionary or an ExperimentSpec, not {spec!r}")


def _folder_of(spec: SpecLike) -> Path:
    is_file = isinstance(spec, Path) or (isinstance(spec, str) and "\n" not in spec)
    return Path(str(spec)).parent if is_file else Path()


def _plain(value: Any, key: str) -> Any:
    """As TOML would have it. A function or class stands for its name, a path for its text."""
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        return value.item()  # numpy's; some of these are numbers of Python, too, but not for msgspec
    match value:
        case Mapping():
            return {str(name): _plain(item, f"{key}.{name}".lstrip(".")) for name, item in value.items()}
        case list() | tuple():
            return [_plain(item, key) for item in value]
        case Path():
            return str(value)
        case bool() | int() | float() | str() | None:
            return value
    if callable(value) and "<" not in getattr(value, "__qualname__", "<"):
        return f"{value.__module__}:{value.__qualname__}"
    raise PlexusError(f"spec: {key} is {value!r}: expected a number, text, list, table or function")
