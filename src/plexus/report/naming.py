"""Names of settings as readers know them: the protocol, and what sets one setting apart from others.

`varying` finds that out, for labels of arms, titles of sections and the dashboard's list of runs alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import PurePath
from typing import Any

import msgspec

Flat = Mapping[str, Any]
"""A spec with keys such as `task.name`."""

NAMES = msgspec.toml.decode(
    files("plexus.report").joinpath("names.toml").read_bytes(), type=dict[str, dict[str, str]]
)
_FOLLOWS_TOPOLOGY = {f"protocol.{key}" for key in ("topology", "degree", "topology_file", "topology_format")}

TOLD_ANYWAY = {"name", "nodes", "seed", "protocol.name", "task.name"}
"""Keys that every line of the dashboard's list shows."""
MOST_TOLD = 4
"""More differences than this nobody reads on a line."""


def protocol(name: str) -> str:
    return NAMES["protocols"].get(name, name)


def rank(name: str) -> int:
    """The place of a protocol among others: ours first, then in the order of the paper."""
    return [*NAMES["protocols"], name].index(name)


def task(name: str) -> str:
    """A task as its authors write it; one's own, `loans.task:build`, by its package."""
    module, _, factory = name.partition(":")
    short = module.removesuffix(".task")
    own = short if factory in ("", "build") else f"{short}:{factory}"
    return NAMES["tasks"].get(name, own)


def availability(value: str) -> str:
    if value == "none":
        return "no churn"
    return "churn" if value == "fedscale" else f"churn ({PurePath(value).name})"


def fault(table: Mapping[str, Any]) -> str:
    """A fault of a spec: what it is, and of whom."""
    nodes, kind = table["nodes"], str(table["kind"])
    if isinstance(nodes, list):
        listed = f"{'node' if len(nodes) == 1 else 'nodes'} {', '.join(map(str, nodes))}"
        whom = listed if len(nodes) < 5 else f"{len(nodes)} nodes"
    else:
        whom = f"{100 * nodes:g} % of the nodes" if isinstance(nodes, float) else str(nodes)
    return f"{kind} (× {table['factor']:g}) of {whom}" if table.get("factor") else f"{kind} of {whom}"


def flatten(setting: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in setting.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return flat


def varying(settings: Sequence[Flat]) -> list[str]:
    """The keys in which these settings differ, in the order of a spec."""
    keys = dict.fromkeys(key for each in settings for key in each)
    return [key for key in keys if len({repr(each.get(key)) for each in settings}) > 1]


def assignments(setting: Flat, keys: Sequence[str]) -> list[str]:
    """What a setting has for these keys, as a spec says it: `hidden = 64`."""
    short = [key.removesuffix(".name").rpartition(".")[2] for key in keys]
    return [f"{name} = {value_words(setting.get(key))}" for name, key in zip(short, keys, strict=True)]


def differences(specs: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """By id, what sets a run apart from others of its name and folder: a directory that is called by a digest
    tells nobody anything. How a deployed session is agreed on is no setting."""
    of_one_name: dict[tuple[str, str], dict[str, Flat]] = {}
    for id, spec in specs.items():
        place = id.rpartition("/")[0], str(spec.get("name"))
        of_one_name.setdefault(place, {})[id] = flatten({**spec, "session": {}})
    found = {}
    for group in of_one_name.values():
        every = [key for key in varying(list(group.values())) if not key.startswith("protocol.")]
        alike: dict[str, list[Flat]] = {}
        for flat in group.values():  # a parameter sets it apart from others of its protocol alone
            alike.setdefault(str(flat.get("protocol.name")), []).append(flat)
        own = {name: [k for k in varying(each) if k.startswith("protocol.")] for name, each in alike.items()}
        for id, flat in group.items():
            both = [*own[str(flat.get("protocol.name"))], *every]
            told = [key for key in both if key not in TOLD_ANYWAY]
            keys = [key for key in told if not key.startswith("evaluation.")] or told
            found[id] = assignments(flat, keys[:MOST_TOLD]) + ["…"] * (len(keys) > MOST_TOLD)
    return found


def labels(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """A name for each setting that tells it from the others, as short as that allows.

    How often models are measured is not said, unless nothing else sets two settings apart.
    """
    flat: list[Flat] = [flatten(each) for each in settings]
    shown: list[Flat] = [{k: v for k, v in f.items() if not k.startswith("evaluation.")} for f in flat]
    # Runs of one setting may be listed apart (those that did not end), and then share a name.
    differ = len({repr(each) for each in flat}) > len({repr(each) for each in shown})
    told = flat if differ else shown
    found = [_label(each, told) for each in told]
    alike: dict[str, list[Flat]] = {}
    for label, each in zip(found, flat, strict=True):
        alike.setdefault(label, []).append(each)
    return [_apart(label, each, alike[label]) for label, each in zip(found, flat, strict=True)]


def _apart(label: str, one: Flat, alike: Sequence[Flat]) -> str:
    """With the keys and values, in full, in which it differs from others whose words are the same."""
    keys = [f"{key} = {one.get(key)!r}" for key in varying(alike)]
    return f"{label} ({', '.join(keys)})" if keys else label


def _label(one: Flat, settings: Sequence[Flat]) -> str:
    """The protocol, unless all have the same; its parameters, beside others with it; what else differs."""
    alike = [each for each in settings if each["protocol.name"] == one["protocol.name"]]
    keys = [key for key in varying(alike) if key.startswith("protocol.") and key not in _FOLLOWS_TOPOLOGY]
    keys += [key for key in varying(settings) if not key.startswith("protocol.")]
    words = [_faults(one, settings) if key == "faults" else _words(key, one.get(key)) for key in keys]
    parts = [_topology(one), *words]
    if len(alike) < len(settings) or not any(parts):
        parts.insert(0, protocol(one["protocol.name"]))
    return ", ".join(filter(None, parts))


def _topology(flat: Flat) -> str:
    """Always said where there is one: D-PSGD on another graph is, to a reader, another baseline."""
    kind = str(flat.get("protocol.topology", ""))
    if kind == "regular":
        return f"{flat['protocol.degree']}-regular"
    if kind == "file":
        return PurePath(flat["protocol.topology_file"]).name
    return NAMES["topologies"].get(kind, kind)


def _faults(one: Flat, settings: Sequence[Flat]) -> str:
    """No more than tells its faults from those of others: their kinds, whom they hit, when."""
    every = {repr(each.get("faults")): each.get("faults") or [] for each in settings}.values()
    ways: tuple[Callable[[Any], str], ...] = (
        lambda faults: " and ".join(dict.fromkeys(str(each["kind"]) for each in faults)),
        lambda faults: " and ".join(map(fault, faults)),
        value_words,
    )
    for words in ways:
        if len(set(map(words, every))) == len(every):
            break
    return words(one["faults"]) if one.get("faults") else "no faults"


def _words(key: str, value: Any) -> str:
    if key == "traces.availability":
        return availability(str(value))
    if key == "task.name":
        return task(str(value))
    if key in NAMES["keys"]:
        return NAMES["keys"][key].format(value_words(value))
    name, text = key.rpartition(".")[2], value_words(value)
    if name.endswith("_s"):
        name, text = name.removesuffix("_s"), text if value is None else f"{text} s"
    return f"{name.replace('_', ' ')} {text}"


def _attack(table: Mapping[str, Any]) -> str:
    factor = f" (× {table['factor']:g})" if table.get("factor") else ""
    return f"{table['behaviour']}{factor} by {table.get('share') or table['nodes']}"


def value_words(value: Any) -> str:
    if value is None:
        return "default"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list) and value and "behaviour" in value[0]:  # attackers
        return " and ".join(map(_attack, value))
    if isinstance(value, list) and value and isinstance(value[0], Mapping):  # faults
        return " and ".join(f"{fault(each)} from {each['from_h']:g} to {each['to_h']:g} h" for each in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
