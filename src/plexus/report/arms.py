"""Arms of a comparison: runs of one setting, one for each seed, under the name a reader gives it.

Runs are found by the paths that a person gives: run directories, or folders that contain some.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from plexus import quantities
from plexus.errors import PlexusError
from plexus.report import naming
from plexus.runs.run import RESULT, VERSIONS, Run, load_run, spec_digest_of
from plexus.runs.tables import Columns, checked, read

NOT_THE_SETTING = ("seed", "name")
"""Runs whose specs differ in these alone belong together."""
_EARLIER = re.compile(r"(.+)\.[1-9][0-9]*")
"""What `plexus run` calls a run that it made room for: see `runs.directory.claim`."""


@dataclass(frozen=True)
class Arm:
    """One setting. Of its runs all came to their end, or it is a single one that did not."""

    label: str
    runs: tuple[Run, ...]

    @property
    def spec(self) -> dict[str, Any]:
        return setting(self.runs[0])

    @property
    def protocol(self) -> str:
        return str(self.runs[0].spec["protocol"]["name"])

    @property
    def is_ours(self) -> bool:
        return self.protocol == "plexus"

    @property
    def is_complete(self) -> bool:
        return all(map(is_complete, self.runs))

    @property
    def has_churn(self) -> bool:
        return bool(self.runs[0].spec.get("traces", {}).get("availability") != "none")

    @property
    def has_own_models(self) -> bool:
        return any("nodes" in run.tables["evaluations"] for run in self.runs)

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(int(run.spec["seed"]) for run in self.runs)


def group(runs: Iterable[Run], beside_live: bool = False) -> list[Arm]:
    """The arms that these runs make, ours first.

    A run that did not come to its end is an arm of its own: it is shown, and mixed with nothing. Where some
    are of live peers, or stand on a page beside such, the label says of each whether it is.
    """
    settings: dict[str, dict[tuple[int, str], Run]] = {}
    groups: list[tuple[Run, ...]] = []
    for run in runs:
        if not is_complete(run):
            groups.append((run,))
            continue
        seeds = settings.setdefault(json.dumps([run.is_live, setting(run)], sort_keys=True), {})
        # No two sessions of live peers are alike, whatever their seed.
        known = seeds.setdefault((int(run.spec["seed"]), str(run.path) if run.is_live else ""), run)
        if known.result is None or run.result is None or known.result.digest != run.result.digest:
            other = f"same spec and seed as {known.path}, but another result"
            raise PlexusError(f"{run.path}: {other}; leave one of them out")
    alike: dict[str, list[dict[tuple[int, str], Run]]] = {}
    for seeds in settings.values():
        key = json.dumps(_measured_anyhow(next(iter(seeds.values()))), sort_keys=True)
        alike.setdefault(key, []).append(seeds)
    for apart in alike.values():
        united = {seed: run for seeds in apart for seed, run in seeds.items()}
        if len(united) == sum(map(len, apart)):  # else how often is what is compared
            apart = [united]
        groups += [tuple(seeds[seed] for seed in sorted(seeds)) for seeds in apart]
    beside_live = beside_live or any(runs[0].is_live for runs in groups)
    labels = naming.labels([setting(runs[0]) for runs in groups])
    arms: list[Arm] = []
    for label, runs in zip(labels, groups, strict=True):
        if beside_live:
            label += ", live" if runs[0].is_live else ", simulated"
        if not is_complete(runs[0]):
            label += f", seed {runs[0].spec['seed']}, unfinished ({reached_h(runs[0]):.1f} h)"
        # Of one setting and seed there may be several that did not end.
        is_taken = any(arm.label == label for arm in arms)
        arms.append(Arm(f"{label}, in {runs[0].path}" if is_taken else label, runs))
    return sorted(arms, key=_place)


def _measured_anyhow(run: Run) -> list[Any]:
    """What seeds of one arm have in common. How often models were measured does not matter, for all that are
    simulated are compared at the same hours, unless the session ends by that."""
    spec = setting(run)
    if not run.is_live and not {"until", "patience"} & spec.get("session", {}).keys():
        often = ("every_rounds", "every_hours")
        spec["evaluation"] = {k: v for k, v in spec.get("evaluation", {}).items() if k not in often}
    return [run.is_live, spec]


def _place(arm: Arm) -> tuple[Any, ...]:
    """Ours first, then the baselines; s = 5 before s = 10; what did not end comes last."""
    parts = re.split(r"(\d+(?:\.\d+)?)", re.sub(r"(?<=\d),(?=\d)", "", arm.label))
    natural = [(float(part), "") if at % 2 else (0.0, part) for at, part in enumerate(parts)]
    return not arm.is_complete, naming.rank(arm.protocol), natural


def is_complete(run: Run) -> bool:
    """Whether the run came to its last simulated hour."""
    return run.result is not None and not run.result.interrupted


def reached_h(run: Run) -> float:
    """How far the run came, in simulated hours; of one that was killed, as far as its tables go."""
    ends = [float(table["simulated_s"].max()) for table in run.tables.values() if table]
    if run.result is not None:
        ends.append(run.result.simulated_s)
    return max(ends, default=0.0) / 3600


def setting(run: Run) -> dict[str, Any]:
    """The spec of a run, but for what may differ between runs of one arm."""
    return {key: value for key, value in run.spec.items() if key not in NOT_THE_SETTING}


def metric_of(run: Run) -> tuple[str, bool]:
    """The name of the task's metric, and whether higher is better; of a killed run, a good guess."""
    if run.result is not None:
        return run.result.metric.name, run.result.metric.higher_is_better
    name = first_metric(run.tables["evaluations"])
    return (name, quantities.is_percentage(name)) if name else ("loss", False)


def first_metric(evaluations: Iterable[str]) -> str | None:
    """Of the columns of evaluations the first that is a metric, which is the task's."""
    others = ("simulated_s", "round", "loss", "sent_bytes", "training_s", "nodes")
    return next((name for name in evaluations if name not in others), None)


def common_metric(arms: Sequence[Arm]) -> tuple[str, bool]:
    runs = [run for arm in arms for run in arm.runs]
    # A run that was killed before anything was measured does not say what it is judged by.
    telling = [run for run in runs if run.result is not None or run.metrics]
    known = {run.result.metric.name for run in runs if run.result is not None}
    # Which way is better is only guessed of one that was killed later.
    telling = [run for run in telling if run.result is not None or metric_of(run)[0] not in known]
    found = {metric_of(run): run for run in telling or runs}
    if len(found) != 1:
        (first, _), (second, _), *_ = found
        one, other = list(found.values())[:2]
        judged = f"{other.path}: is judged by {second}, but {one.path} by {first}"
        raise PlexusError(f"{judged}; compare them separately")
    return next(iter(found))


def work_of(run: Run) -> Columns:
    """By device how long a training takes, how many it finished, and how many of them are used; nothing where
    that is not known."""
    path = run.path / "used.csv"
    if not (used := checked(read(path), path)):
        return {}
    try:
        training_s = run.detail("nodes")["training_s"][used["node"]]
        columns = {"training_s": training_s, **{name: used[name] for name in ("trainings", "trainings_used")}}
        return {name: column.astype(float) for name, column in columns.items()}
    except (KeyError, IndexError, ValueError):
        raise PlexusError(f"{path}: does not go with nodes.csv") from None


class FoundRuns(NamedTuple):
    runs: list[Path]
    earlier: list[Path]
    """Runs that were done again since: in a folder only the newest counts."""


def load_runs(paths: Iterable[Path]) -> list[Run]:
    """The runs at these paths, each once, in the order given; in a folder, the newest ones by name."""
    return [load(path) for path in find_runs(paths).runs]


def load(path: Path) -> Run:
    """A run whose tables, as far as it has them, say what a comparison asks."""
    run = load_run(path)
    for name in (metric_of(run)[0], "sent_bytes", "training_s") if run.metrics else ():
        if name not in run.metrics:
            raise PlexusError(f"{path / 'evaluations.csv'}: no column {name}")
    if run.result is not None and is_complete(run) and not run.is_live:
        final = run.result.metric.final
        if final is not None and run.metrics.get(run.result.metric.name, [None])[-1] != final:
            raise PlexusError(
                f"{path / 'evaluations.csv'}: rows are missing: it does not end as {RESULT} says"
            )
    work_of(run)
    return run


def find_runs(paths: Iterable[Path]) -> FoundRuns:
    """Where the runs at these paths are. What is named itself counts, whatever is beside it."""
    runs: dict[Path, Path] = {}
    earlier: dict[Path, Path] = {}
    for path in paths:
        inside = _runs_in(path)
        again = [] if inside == [path] else _done_again(inside)
        earlier |= {each.resolve(): each for each in again}
        for each in inside:
            if each not in again:
                runs.setdefault(each.resolve(), each)
    return FoundRuns(list(runs.values()), [path for key, path in earlier.items() if key not in runs])


def _runs_in(path: Path) -> list[Path]:
    if not path.is_dir():
        raise PlexusError(f"{path}: {'not a directory' if path.exists() else 'no such directory'}")
    if (path / VERSIONS).exists():
        return [path]
    found = {mark.parent for mark in path.rglob(VERSIONS)}
    inside = sorted(each for each in found if found.isdisjoint(each.parents))  # a fleet's peers are in it
    if not inside:
        raise PlexusError(f"{path}: neither a run directory nor a folder with some")
    return inside


def _done_again(runs: Sequence[Path]) -> list[Path]:
    """Those `X.1`, `X.2`, … beside which there is `X`, a run of the same spec."""
    there, found = set(runs), []
    for run in runs:
        name = _EARLIER.fullmatch(run.name)
        newest = run.with_name(name[1]) if name else None
        with suppress(PlexusError):  # who reads the one that is damaged is told what is wrong
            if newest in there and spec_digest_of(newest) == spec_digest_of(run):
                found.append(run)
    return found
