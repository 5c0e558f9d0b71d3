"""What peers can do, found out in their environments: by trying, or else by the names that they have.

A probe prints a JSON object, feature by feature: `answer` is yes, partly or no, `says` what was seen.
Where there is none, names are looked for, and nobody claims more than that there are some.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from benchmarks.league.environments import HERE, Contender

FEATURES: dict[str, dict[str, Any]] = tomllib.loads((HERE / "features.toml").read_text())


def probe(peer: Contender) -> dict[str, dict[str, str]]:
    """The answers of one peer."""
    words = {name: feature["words"] for name, feature in FEATURES.items() if "words" in feature}
    said = peer.run("probes.names", peer.package, json.dumps(words))
    answers: dict[str, dict[str, str]] = json.loads(said.splitlines()[-1])
    if Path(__file__).with_name(f"{peer.adapter}.py").exists():
        tried = peer.run(f"probes.{peer.adapter}")
        answers |= json.loads(tried.splitlines()[-1])
    return answers
