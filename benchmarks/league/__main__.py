"""Measure the league and write its page: `python -m benchmarks.league`, a quarter of an hour on two cores.

python -m benchmarks.league                # environments, measurements, probes, page
python -m benchmarks.league --only page    # the page alone, from results/league/league.json
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.league.environments import ONE_THREAD, Contender, contenders, prepare
from benchmarks.league.page import RESULT, write_page
from benchmarks.league.probes import probe

Found = dict[str, Any]


def measure(everybody: list[Contender], repeats: int, found: Found) -> None:
    """Let everybody do the work in turn, until there are so many runs of each; who begins changes."""
    for repeat in range(len(found["contenders"]["plexus"]["runs"]), repeats):
        at = repeat % len(everybody)
        for contender in everybody[at:] + everybody[:at]:
            _say(f"{repeat + 1} of {repeats}: {contender.label}")
            row = rounds_of(contender, contender.first, contender.last)
            entry = found["contenders"][contender.name]
            entry["versions"] = row.pop("versions")
            entry["runs"].append(row)
        keep(found)


def rounds_of(contender: Contender, first: int, last: int) -> Found:
    """What one run of a contender's adapter found."""
    said = contender.run(f"adapters.{contender.adapter}", "--first", first, "--last", last)
    row: Found = json.loads(said.splitlines()[-1])
    return row


def references(everybody: Iterable[Contender]) -> Found:
    """The test loss of the bare loop after as many rounds as others have, and after a fifth less."""
    bare = next(each for each in everybody if each.name == "bare-loop")
    lengths = {each.last for each in everybody}
    lengths |= {length * 4 // 5 for length in lengths}
    return {str(length): rounds_of(bare, 1, length)["loss"] for length in sorted(lengths)}


def machine() -> Found:
    """What it was measured on, in words that name nobody."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": models[0] if models else platform.machine(),
        "cores": len(models),
        "system": platform.system(),
        "python": platform.python_version(),
        "environment": ONE_THREAD,
    }


def keep(found: Found) -> None:
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.league", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--resume", action="store_true", help="keep the turns that there are already")
    parser.add_argument("--only", choices=("measure", "probes", "page"), help="a part of it")
    options = parser.parse_args()
    if options.only == "page":
        write_page()
        return
    listed = contenders()
    reasons = {each.name: prepare(each) for each in listed}
    present = [each for each in listed if reasons[each.name] is None]
    if options.resume or options.only == "probes":
        found = json.loads(RESULT.read_text())
    else:
        found = {
            "measured": datetime.now(UTC).date().isoformat(),
            "machine": machine(),
            "contenders": {each.name: {"reason": reasons[each.name], "runs": []} for each in listed},
            "bare_loop_loss": references(present),
        }
    if options.only != "probes":
        measure(present, options.repeats, found)
    if options.only == "measure":
        return
    for peer in present:
        if peer.kind == "peer":
            _say(f"probes: {peer.label}")
            found["contenders"][peer.name]["probes"] = probe(peer)
    keep(found)
    write_page()


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    main()
