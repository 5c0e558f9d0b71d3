"""What an experiment is: one typed, documented, checked object, read from a TOML file.

`python tools/spec_reference.py` rewrites the reference of all keys (docs/spec.md) from the docstrings of
the fields below and of the structs that it names.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from plexus.checked import Source, choose, convert, suggest
from plexus.learn.rules import RULES
from plexus.learn.tasks.specs import LATER, TASKS
from plexus.loading import OwnSpec
from plexus.protocol.parameters import ENDLESS, Course
from plexus.protocol.registry import PARAMETERS
from plexus.spec import toml
from plexus.spec.attackers import AttackerSpec
from plexus.spec.toml import FULL_SIZE, Changes, assign, located, read_text, read_toml, sized
from plexus.traces.build import TracesSpec

CHOICES: dict[str, Mapping[str, type[Struct]]] = {"protocol": PARAMETERS, "task": TASKS, "aggregation": RULES}
"""The sections whose `name` decides which other keys they have: the struct of each name."""

AGREEMENT = ("authority", "digest", "model", "frozen", "founded")
"""Keys of [session] in the file of a session to deploy."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Choice(Struct, frozen=True):
    """A section whose `name` decides which other keys it has."""

    name: str
    parameters: Any
    """The struct that `CHOICES` has for this name, or an `OwnSpec`."""


class NetworkSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """How model transfers share the links of the devices."""

    sharing: Literal["shared", "fair", "fifo"] = "shared"
    """How a link's capacity is divided. `shared`: equally among its transfers, each running at the lesser
    of its two shares. `fair`: exact max-min fairness over the whole network, slower to simulate. `fifo`:
    first come, first served, as the paper's authors did."""


class EvaluationSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """When the model is measured on the test set."""

    every_rounds: Annotated[int, Meta(ge=0)] = 10
    """A global model (Plexus, FedAvg, FedBuff) is evaluated each time so many rounds are aggregated. With 0
    it is evaluated every `every_hours` instead: then all protocols are at the same simulated times."""
    every_hours: Annotated[float, Meta(gt=0)] = 2.0
    """Where every node has a model of its own (Gossip Learning, D-PSGD, Epidemic Learning), the models of
    the nodes online (of Teleportation, those active last) are evaluated this often, in simulated hours."""
    node_share: Annotated[float, Meta(gt=0, le=1)] = 1.0
    """The share of the nodes online whose own models are evaluated, drawn by seed; at least one node."""
    on: Literal["test", "own", "both"] = "test"
    """What models are measured on: the test set; what each node holds back of its own data, with the part of
    the model that is its own; or both. What nodes found is reported as its mean and its 10th and 90th
    percentiles; `best` is by the test set, unless only nodes measure."""
    own_share: Annotated[float, Meta(gt=0, lt=1)] = 0.2
    """The share of its examples that a node holds back, if it measures."""


class FaultSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Something that goes wrong for a while in a simulated experiment; each is a table of its own,
    `[[faults]]`. Live peers refuse a spec that has any."""

    kind: Literal["partition", "crash", "slow-link", "silence"]
    """`partition`: these nodes and the others do not reach each other; transfers between them break off,
    and within each side all goes on. `crash`: these nodes are gone without a goodbye, and come back in the
    end if their trace says so. `slow-link`: their links have `factor` of their bandwidth. `silence`: what
    they send is lost, but they receive."""
    from_h: Annotated[float, Meta(ge=0)]
    """When it begins, in simulated hours."""
    to_h: float
    """When it ends; not after the session."""
    nodes: tuple[int, ...] | int | float | Literal["aggregators"]
    """Whom it hits: a list of node numbers, counted from 0; a share above 0 and at most 1, drawn by seed;
    or `aggregators`, whoever aggregates a round or is chosen to while the fault lasts, each from then on."""
    factor: Annotated[float, Meta(gt=0)] | None = None
    """Of a `slow-link`, which needs it: what is left of the bandwidth, both ways."""

    def __post_init__(self) -> None:
        if not self.from_h < self.to_h < math.inf:
            raise ValueError(f"to_h is {self.to_h!r}, but must be after from_h, {self.from_h!r}, and finite")
        match self.nodes:
            case int() as number:
                wanted = f"a list, as [{number}], or a share with a point, as 0.3"
                raise ValueError(f"nodes is {number}, but must be {wanted}")
            case float() as share if not 0 < share <= 1:
                raise ValueError(f"nodes is {share!r}, but a share must be above 0 and at most 1")
            case () | [] as none:
                raise ValueError(f"nodes is {list(none)}, but must name a node")
        if (self.factor is None) == (self.kind == "slow-link"):
            need = "needed by" if self.factor is None else "only for"
            raise ValueError(f"factor is {need} kind 'slow-link'")


class ExperimentSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One experiment. With the same spec, the same version of Plexus gives the same results."""

    name: str
    """What the experiment is called; begins the name of the run directory, so it consists of letters,
    digits, `.`, `_` and `-`."""
    seed: Annotated[int, Meta(ge=0)] = 1
    """The root of all randomness: data partition, devices, availability, the protocol's choices."""
    nodes: Annotated[int, Meta(ge=1)]
    """How many devices take part; at any time only some of them are online."""
    hours: Annotated[float, Meta(gt=0)]
    """How long the session lasts, in simulated hours."""
    protocol: Choice
    """The protocol that the nodes run: its `name` (`plexus` if not given), and its parameters."""
    task: Choice
    """What is learned: the task's `name`, and its parameters."""
    traces: TracesSpec = TracesSpec()
    """Where devices, availability and latency come from."""
    aggregation: Choice
    """How models of a round become one: the rule's `name` (`mean` if not given), alone or in a table with its
    parameters, as `aggregation = { name = "clip", factor = 2 }`; or `module:name` of your own."""
    network: NetworkSpec = NetworkSpec()
    """The simulated network."""
    evaluation: EvaluationSpec = EvaluationSpec()
    """Measuring the model."""
    faults: tuple[FaultSpec, ...] = ()
    """What goes wrong on purpose: cuts, crashes, slow links, silence."""
    attackers: tuple[AttackerSpec, ...] = ()
    """Who attacks, and how."""
    session: Course = ENDLESS
    """When the session begins and ends."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            wanted = "letters, digits, '.', '_' and '-', and begin with a letter or digit"
            raise ValueError(f"name is {self.name!r}, but must consist of {wanted}")
        if not math.isfinite(self.hours):
            raise ValueError(f"hours is {self.hours!r}, but must be finite")
        if (self.session.start_with or 0) > self.nodes:
            allowed = f"at most nodes ({self.nodes}): otherwise nobody ever trains"
            raise ValueError(f"session.start_with is {self.session.start_with}, but must be {allowed}")
        if self.session.is_measured and not self.evaluation.every_rounds:
            needed = "the end of the session depends on what it finds"
            raise ValueError(f"evaluation.every_rounds is 0, but {needed}")
        for at, fault in enumerate(self.faults):
            if fault.to_h > self.hours:
                end = f"the session ends after {self.hours!r} hours"
                raise ValueError(f"faults[{at}].to_h is {fault.to_h!r}, but {end}")
        named = [(f"faults[{at}]", fault.nodes) for at, fault in enumerate(self.faults)]
        named += [(f"attackers[{at}]", attacker.nodes) for at, attacker in enumerate(self.attackers)]
        for where, nodes in named:
            for node in nodes if isinstance(nodes, tuple) else ():
                if not 0 <= node < self.nodes:
                    wrong = f"there is no node {node}, only 0 to {self.nodes - 1}"
                    raise ValueError(f"{where}.nodes is wrong: {wrong}")

    def plain(self) -> dict[str, Any]:
        """The spec as the tables of a TOML file, every default written out."""
        tables: dict[str, Any] = msgspec.to_builtins(self)
        # Specs from before there was any of these keep their digests.
        tables["session"] = {key: value for key, value in tables["session"].items() if value is not None}
        for key in ("faults", "attackers", "session"):
            if not tables[key]:
                del tables[key]
        tables["evaluation"] = _written(self.evaluation)
        for section in CHOICES:
            chosen: Choice = getattr(self, section)
            if isinstance(chosen.parameters, OwnSpec):
                tables[section] = chosen.parameters.table()
            else:
                tables[section] = {"name": chosen.name, **_written(chosen.parameters)}
        if tables["task"].get("hidden", "") is None:
            del tables["task"]["hidden"]
        if len(tables["aggregation"]) == 1:
            tables["aggregation"] = self.aggregation.name
        return tables

    def to_toml(self) -> str:
        """The resolved spec as TOML; reading it back gives an equal spec."""
        return toml.dumps(self.plain())

    def digest(self) -> str:
        """16 hex digits that are equal for equal specs, however they were written."""
        canonical = json.dumps(self.plain(), sort_keys=True).encode()
        return hashlib.blake2b(canonical, digest_size=8, person=b"plexus spec").hexdigest()


def _written(section: Struct) -> dict[str, Any]:
    """The keys of a section; those that came later only where they say something."""
    defaults = {each.name: each.default for each in msgspec.structs.fields(section) if each.name in LATER}
    keys = msgspec.to_builtins(section).items()
    return {key: value for key, value in keys if key not in defaults or value != defaults[key]}


def load_spec(
    path: Path | str, changes: Changes = (), seed: int | None = None, size: str | None = None
) -> ExperimentSpec:
    """The spec in the file at `path`, in one of its sizes, with `changes`, then with `seed`.

    The name of one that comes with Plexus will do, as `quickstart`.
    """
    path = located(Path(path))
    return parse_spec(read_text(path), str(path), changes, seed, size)


def parse_spec(
    spec: str | dict[str, Any],
    file: str,
    changes: Changes = (),
    seed: int | None = None,
    size: str | None = None,
) -> ExperimentSpec:
    """As `load_spec`, from text, or from tables, which are taken over; errors name `file`."""
    tables = sized(read_toml(spec, file) if isinstance(spec, str) else spec, size or FULL_SIZE, file)
    # What makes it a session to deploy does not change the experiment.
    if isinstance(session := tables.get("session"), dict):
        tables["session"] = {key: session[key] for key in session if key not in AGREEMENT}
    source = Source(file)
    for path, value, said in toml.assignments(changes):
        assign(tables, path, value, said)
        source.options[path] = said
    if seed is not None:
        tables["seed"] = seed
        source.options["seed",] = f"--seed {seed}"
    return typed_spec(tables, source)


def typed_spec(tables: dict[str, Any], source: Source) -> ExperimentSpec:
    """Check what is declared above, then the sections that are looked up."""
    known = ExperimentSpec.__struct_fields__
    tables = {"aggregation": "mean", **tables}
    for section in CHOICES:
        if isinstance(tables.get(section), str):  # a name alone: all else as it usually is
            tables = {**tables, section: {"name": tables[section]}}
        if not isinstance(tables.get(section, {}), dict):
            raise source.error((section,), f"expected a table, got {tables[section]!r}")
    tables = {**tables, "protocol": {"name": "plexus", **tables.get("protocol", {})}}
    for key in tables:
        if key not in known:
            hint = _elsewhere(key, tables) or suggest(key, known)
            raise source.error((key,), f"unknown key{hint}")
    unchecked = {section: {"name": "", "parameters": None} for section in CHOICES}
    plain = convert({**tables, **unchecked}, ExperimentSpec, (), source)
    chosen = {section: _chosen(section, tables.get(section, {}), source) for section in CHOICES}
    if plain.session != ENDLESS and chosen["protocol"].name != "plexus":
        name = chosen["protocol"].name
        raise source.error(("session",), f"only the protocol plexus has a beginning and an end, not {name}")
    return msgspec.structs.replace(plain, **chosen)


def _chosen(section: str, values: dict[str, Any], source: Source) -> Choice:
    parameters = OwnSpec.of(values) or choose(values, CHOICES[section], section, source)
    return Choice(values["name"], parameters)


def _elsewhere(key: str, tables: dict[str, Any]) -> str:
    """A hint for a key that belongs into a section."""
    sections: dict[str, type[Struct]] = {"network": NetworkSpec, "evaluation": EvaluationSpec}
    sections |= {"traces": TracesSpec, "session": Course}
    for section, registry in CHOICES.items():
        name = tables.get(section, {}).get("name")
        if isinstance(name, str) and name in registry:
            sections[section] = registry[name]
    homes = [section for section, struct in sections.items() if key in struct.__struct_fields__]
    return f" (did you mean '{homes[0]}.{key}'?)" if homes else ""
