"""What sets runs of one name apart: their directories are called by digests, which tell nobody anything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from plexus.dashboard.source import Json

TOLD_ANYWAY = {"name", "nodes", "seed", "protocol.name", "task.name"}
"""Keys that every line of the list shows."""
MOST = 4
"""More than this nobody reads on a line."""


def differences(specs: Mapping[str, Json]) -> dict[str, list[str]]:
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
