"""What a sweep costs beside its runs one by one, in processor seconds; and whether a killed one repeats any.

    python benchmarks/sweep.py              # 40 runs of digits, twice, and half of them once more: minutes

Prints the CPU of `plexus sweep` (with its page), of the same runs as commands of their own, and of the second
half of a sweep that was killed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path

PLEXUS = (sys.executable, "-m", "plexus")
SIZES, PROTOCOLS, SEEDS = (2, 5, 10, 20), ("plexus", "fedavg"), (1, 2, 3, 4, 5)


def cpu_s() -> float:
    """Of all processes that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def spent_s(*commands: list[str], jobs: int = 1) -> float:
    before = cpu_s()
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(partial(subprocess.run, check=True, stdout=subprocess.DEVNULL), commands))
    return cpu_s() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--hours", type=float, default=2, help="of each run, simulated")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="plexus-sweep-"))
    setting = ["digits", "--size=tiny", f"--set=hours={options.hours:g}"]
    grid = [f"--grid=protocol.sample_size={','.join(map(str, SIZES))}"]
    grid += [f"--grid=protocol.name={','.join(PROTOCOLS)}", f"--seeds={SEEDS[0]}..{SEEDS[-1]}", "-q"]
    sweep = [*PLEXUS, "sweep", *setting, *grid, f"--jobs={options.jobs}"]
    single = [
        [*PLEXUS, "run", *setting, f"--set=protocol.sample_size={size}", f"--set=protocol.name={name}",
         f"--seed={seed}", "-q", "--workers=1", f"--out={folder / 'single' / f'{name}-{size}-{seed}'}"]
        for size, name, seed in product(SIZES, PROTOCOLS, SEEDS)
    ]  # fmt: skip
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")  # as in a sweep
    swept_s = spent_s([*sweep, f"--out={folder / 'swept'}"])
    found = {"runs": len(single), "sweep_cpu_s": round(swept_s, 1)}
    single_s = spent_s(*single, jobs=options.jobs)
    found |= {"one_by_one_cpu_s": round(single_s, 1), "ratio": round(swept_s / single_s, 3)}
    found |= killed([*sweep, f"--out={folder / 'killed'}"], folder / "killed", len(single))
    print(json.dumps(found, indent=2))
    shutil.rmtree(folder)


def killed(sweep: list[str], out: Path, runs: int) -> dict[str, float]:
    """Kill it when half of the runs are done, and start it again."""
    process = subprocess.Popen(sweep, start_new_session=True)
    while len(done := list(out.glob("runs/*/result.json"))) < runs // 2:
        assert process.poll() is None, "it ended too soon to be killed"
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    stamps = {path: path.stat().st_mtime_ns for path in done}
    again_s = spent_s(sweep)
    repeated = sum(path.stat().st_mtime_ns != stamp for path, stamp in stamps.items())
    finished = len(list(out.glob("runs/*/result.json")))
    return {
        "done_when_killed": len(done), "done_in_the_end": finished, "repeated": repeated,
        "again_cpu_s": round(again_s, 1),
    }  # fmt: skip


if __name__ == "__main__":
    main()
