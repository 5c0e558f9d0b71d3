"""Names of settings as readers know them: the protocol, and what sets one setting apart from another."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from plexus import quantities

Setting = Mapping[str, Any]

PROTOCOLS = {
    "plexus": "Plexus",
    "gossip": "Gossip Learning",
    "dpsgd": "D-PSGD",
    "epidemic": "Epidemic Learning",
    "fedavg": "FedAvg",
}
TASKS = {
    "digits": "digits",
    "digits-by-writer": "digits by writer",
    "cifar10": "CIFAR-10",
    "celeba": "CelebA",
    "femnist": "FEMNIST",
    "movielens": "MovieLens",
}
_TOPOLOGIES = {"one-peer-exponential": "one-peer exponential", "full": "fully connected", "ring": "ring"}
_SHORT = {
    "protocol.sample_size": "s = {}",
    "protocol.success_fraction": "sf = {}",
    "nodes": "n = {}",
    "hours": "{} h",
}
_FOLLOWS_TOPOLOGY = {"topology", "degree", "topology_file", "topology_format"}


def protocol(name: str) -> str:
    """A protocol as the paper writes it."""
    return PROTOCOLS.get(name, name)


def rank(name: str) -> int:
    """The place of a protocol among others: ours first, then in the order of the paper."""
    return [*PROTOCOLS, name].index(name)


def task(name: str) -> str:
    """A task as its authors write it; one's own, `loans.task:build`, by its package."""
    module, _, factory = name.partition(":")
    short = module.removesuffix(".task")
    own = short if factory in ("", "build") else f"{short}:{factory}"
    return TASKS.get(name, own)


def availability(value: str) -> str:
    """Who is online when."""
    if value == "none":
        return "no churn"
    return "churn" if value == "fedscale" else f"churn ({PurePath(value).name})"


def labels(settings: Sequence[Setting]) -> list[str]:
    """A name for each setting that tells it from the others, as short as that allows.

    How often models are measured is not said, unless nothing else sets two settings apart.
    """
    flat = [flatten(each) for each in settings]
    shown = [{k: v for k, v in each.items() if not k.startswith("evaluation.")} for each in flat]
    # Runs of one setting may be listed apart (those that did not end), and then share a name.
    differ = len({repr(each) for each in flat}) > len({repr(each) for each in shown})
    return _labels(flat if differ else shown)


def _labels(flat: Sequence[Mapping[str, Any]]) -> list[str]:
    everywhere = _varying(flat, inside_protocol=False)
    one_protocol = len({each["protocol.name"] for each in flat}) == 1
    named = []
    for each in flat:
        alike = [other for other in flat if other["protocol.name"] == each["protocol.name"]]
        keys = [*_varying(alike, inside_protocol=True), *everywhere]
        parts = [*_topology(each), *(_words(key, each.get(key)) for key in keys)]
        if not (one_protocol and parts):
            parts.insert(0, protocol(each["protocol.name"]))
        named.append(", ".join(parts))
    return named


def flatten(setting: Setting, prefix: str = "") -> dict[str, Any]:
    """A spec with keys such as `task.name`."""
    flat: dict[str, Any] = {}
    for key, value in setting.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def _varying(flat: Sequence[Mapping[str, Any]], *, inside_protocol: bool) -> list[str]:
    """The keys in which these settings differ, in the order of a spec."""
    keys = dict.fromkeys(key for each in flat for key in each)
    return [
        key
        for key in keys
        if key.startswith("protocol.") == inside_protocol
        and key.removeprefix("protocol.") not in _FOLLOWS_TOPOLOGY
        and key != "protocol.name"
        and len({repr(each.get(key)) for each in flat}) > 1
    ]


def apart(one: Mapping[str, Any], all: Sequence[Mapping[str, Any]]) -> list[str]:
    """What sets one flat setting apart from the others, as the keys of a spec say it: `hidden = 64`."""
    return [
        f"{key.removesuffix('.name').rpartition('.')[2]} = {value_words(one.get(key))}"
        for key in _varying(all, inside_protocol=False)
    ]


def _topology(flat: Mapping[str, Any]) -> list[str]:
    """Always said: D-PSGD on another graph is, to a reader, another baseline."""
    kind = flat.get("protocol.topology")
    if kind is None:
        return []
    if kind == "regular":
        return [f"{flat['protocol.degree']}-regular"]
    if kind == "file":
        return [PurePath(flat["protocol.topology_file"]).name]
    return [_TOPOLOGIES.get(kind, kind)]


def _words(key: str, value: Any) -> str:
    if key == "traces.availability":
        return availability(str(value))
    if key == "task.name":
        return task(str(value))
    if key in _SHORT:
        return _SHORT[key].format(value_words(value))
    name, text = key.rpartition(".")[2], value_words(value)
    if name.endswith("_s"):
        name, text = name.removesuffix("_s"), text if value is None else f"{text} s"
    return f"{name.replace('_', ' ')} {text}"


def value_words(value: Any) -> str:
    """A value of a spec as people read it."""
    if value is None:
        return "default"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int):
        return quantities.whole(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


# What sets runs of one name apart: their directories are called by digests, which tell nobody anything.

TOLD_ANYWAY = {"name", "nodes", "seed", "protocol.name", "task.name"}
"""Keys that every line of the list shows."""
MOST = 4
"""More than this nobody reads on a line."""


def differences(specs: Mapping[str, dict[str, Any]]) -> dict[str, list[str]]:
    """By id, the settings in which a run differs from others of its name, such as `hidden = 64`."""
    groups: dict[str, dict[str, dict[str, str]]] = {}
    for id, spec in specs.items():
        groups.setdefault(str(spec.get("name")), {})[id] = _flat(spec)
    return {id: told for group in groups.values() for id, told in _told(group).items()}


def _told(group: Mapping[str, Mapping[str, str]]) -> dict[str, list[str]]:
    keys = dict.fromkeys(key for flat in group.values() for key in flat)
    varying = [key for key in keys if len({flat.get(key) for flat in group.values()}) > 1]
    found = {}
    for id, flat in group.items():
        words = [f"{key.rpartition('.')[2]} = {flat.get(key, 'default')}" for key in varying]
        found[id] = words[:MOST] + ["…"] * (len(words) > MOST)
    return found


def _flat(spec: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in spec.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.") if key != "session" else {}
        elif prefix + key not in TOLD_ANYWAY:
            text = value if isinstance(value, str) else json.dumps(value, default=str)
            flat[prefix + key] = text
    return flat
