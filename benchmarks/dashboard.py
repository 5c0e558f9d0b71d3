"""How fast the dashboard is with a large run: 1000 nodes and thousands of rounds.

The run is a real simulated session, recorded as `plexus run` records it, with models that nobody trains
and a made-up metric: what is measured is the page.

    python benchmarks/dashboard.py make /tmp/large --nodes 1000 --hours 50
    python benchmarks/dashboard.py measure /tmp/large
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import json
import math
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from plexus.experiment.recording import Recording
from plexus.experiment.simulation import ONLINE_EVERY_S
from plexus.protocol.facts import AggregationCompleted, Fact
from plexus.runs.directory import RunDirectory
from plexus.runs.result import Metric, Result, Traffic, Trainings
from plexus.sim.protocols import PROTOCOLS
from plexus.sim.session import Setting, SymbolicModels, assemble
from plexus.spec.experiment import parse_spec
from plexus.traces.build import build_world
from plexus.traces.world import training_time_s

SPEC = 'name = "large"\nnodes = {nodes}\nhours = {hours}\n[task]\nname = "cifar10"\n'
STEPS, BATCH, MODEL_BYTES = 5, 20, 346_000
FIRST_PICTURE = """
const done = arguments[0];
const sum = (entries) => entries.reduce((all, each) => all + each.transferSize, 0);
(function look() {
  const [drawn] = performance.getEntriesByName("plexus-map");
  if (!drawn) return void setTimeout(look, 50);
  done({ ms: Math.round(drawn.startTime), bytes: sum(performance.getEntriesByType("resource"))
    + sum(performance.getEntriesByType("navigation")) });
})();
"""


def make(out: Path, nodes: int, hours: float) -> None:
    spec = parse_spec(SPEC.format(nodes=nodes, hours=hours), "large")
    world = build_world(spec.traces, nodes, spec.seed, Path())
    durations_s = [training_time_s(device, STEPS, BATCH) for device in world.devices]
    setting = Setting(world, SymbolicModels(MODEL_BYTES), None, durations_s.__getitem__, spec.seed)
    with RunDirectory(out, spec.to_toml(), spec.digest()) as directory:
        recorder, rounds = directory.recorder, 0
        recording = Recording(recorder, 3600 * hours)

        def observe(now_s: float, node: int, fact: Fact) -> None:
            nonlocal rounds
            if isinstance(fact, AggregationCompleted):
                if fact.round > rounds and fact.round % 10 == 0:
                    accuracy = 0.75 * (1 - math.exp(-fact.round / 600))
                    sent = sum(runtime.accounts.sent_bytes)
                    recorder.record(
                        "evaluations",
                        simulated_s=now_s,
                        round=fact.round,
                        accuracy=accuracy,
                        loss=1 - accuracy,
                        sent_bytes=sent,
                        training_s=sum(runtime.accounts.training_s),
                    )
                rounds = max(rounds, fact.round)
            recording.on_fact(now_s, node, fact)

        members = PROTOCOLS[spec.protocol.name].build(setting, spec.protocol.parameters)
        runtime = assemble(setting, members, observe, recording)
        recording.begin(members, setting.training_s)
        for step in range(int(3600 * hours / ONLINE_EVERY_S)):
            runtime.run(step * ONLINE_EVERY_S)
            recording.look(step * ONLINE_EVERY_S, runtime)
        directory.finish(
            Result(
                digest=runtime.kernel.digest(),
                weights_hash="",
                rounds=rounds,
                simulated_s=runtime.kernel.now,
                cpu_s=time.process_time(),
                wall_s=0.0,
                metric=Metric("accuracy", 0.75, 0.75, True),
                messages={n: Traffic(**each) for n, each in runtime.accounts.table().items()},
                training_s=sum(runtime.accounts.training_s),
                trainings=Trainings(0, 0),
                interrupted=False,
                out=str(out),
            )
        )
    tables = {path.name: path.stat().st_size for path in sorted(out.glob("*.csv"))}
    print(json.dumps({"rounds": rounds, "total_bytes": sum(tables.values()), **tables}))


def measure(run: Path) -> None:
    command = [sys.executable, "-m", "plexus", "dashboard", str(run), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            line = server.stderr.readline()
            url = next(word for word in line.split() if word.startswith("http://"))
            print(json.dumps({"answers": _answers(url, run.name), **_picture(url, run)}))
        finally:
            server.terminate()


def _answers(url: str, id: str) -> dict[str, Any]:
    """Each question twice: when nothing has been read yet, and again."""
    found = {}
    half_s = 25 * 3600.0
    for name, query in {
        "runs": {},
        "run": {"id": id},
        "window": {"id": id, "from": half_s, "to": half_s + 300},
        "node": {"id": id, "node": 7},
    }.items():
        first, second = (_get(url, f"/api/{name}?{urlencode(query)}") for _ in range(2))
        found[name] = {"first_s": first[0], "again_s": second[0], "bytes": first[1], "plain": first[2]}
    return found


def _get(url: str, path: str) -> tuple[float, int, int]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port)
    began_s = time.perf_counter()
    connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
    answer = connection.getresponse()
    body = answer.read()
    took_s = round(time.perf_counter() - began_s, 3)
    assert answer.status == 200, body
    is_packed = answer.getheader("Content-Encoding") == "gzip"
    return took_s, len(body), len(gzip.decompress(body)) if is_packed else len(body)


def _picture(url: str, run: Path) -> dict[str, Any]:
    """From the first request to a drawn map, in a browser, and what travelled for it."""
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        return {"pictures": "no chromium here"}
    from selenium import webdriver

    pictures = []
    for _ in range(3):
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for flag in ("--headless", "--no-sandbox", "--disable-gpu", "--window-size=1360,900"):
            options.add_argument(flag)
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(chromedriver))
        try:
            driver.get(f"{url}#/run/{run.name}")
            pictures.append(driver.execute_async_script(FIRST_PICTURE))
        finally:
            driver.quit()
    return {"pictures": pictures}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["make", "measure"])
    parser.add_argument("run", type=Path)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--hours", type=float, default=50)
    given = parser.parse_args()
    if given.what == "make":
        make(given.run, given.nodes, given.hours)
    else:
        measure(given.run)
