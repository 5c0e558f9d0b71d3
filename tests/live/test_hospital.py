"""The page of examples/hospital, followed by three sites, with the command of its compose file."""

from __future__ import annotations

import csv
import json
import re
import shlex
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.error import URLError

import pytest

from plexus.learn.tabular import read_columns
from plexus.live.fleet.fleet import free_ports
from plexus.runs.model_files import FINAL_MODEL
from tests.live.test_commands import plexus
from tests.live.test_examples import parse

HOSPITAL = Path(__file__).parents[2] / "examples" / "hospital"
SITES = ("berlin", "dresden", "essen")
FEW_AND_SHORT = """
nodes=3 session.start_with=3 session.rounds=3 protocol.sample_size=3 protocol.start_delay_s=1
protocol.ping_timeout_s=2 protocol.aggregation_timeout_s=6 protocol.ack_timeout_s=8 protocol.watchdog_s=20
"""


def composed(**variables: str) -> list[str]:
    """The words after `plexus` that the container is started with."""
    text = (HOSPITAL / "compose.yml").read_text()
    command = text.partition("command: >\n")[2].partition("    ports:")[0]
    return shlex.split(re.sub(r"\$\{(\w+)[^}]*\}", lambda found: variables[found[1]], command))


def own_table(site: str, out: Path) -> None:
    """What a site has: its own rows, which do not say whose they are."""
    cells = read_columns(HOSPITAL / "triage" / "sample.csv")
    owner = cells.pop("site")
    rows = [row for row, of in zip(zip(*cells.values(), strict=True), owner, strict=True) if of == site]
    with out.open("w", newline="") as file:
        csv.writer(file).writerows([cells, *rows])


def test_the_container_is_reached_where_its_command_listens() -> None:
    text = (HOSPITAL / "compose.yml").read_text()
    given = parse(composed(ADVERTISE="203.0.113.7:7000", JOIN="berlin.example.org:7000")).params
    assert (given["listen"], given["metrics"]) == ("[::]:7000", "0.0.0.0:9464")
    published = text.partition("ports:\n")[2].partition("volumes:")[0]
    assert re.findall(r'- "(.*)"', published) == ["7000:7000", "127.0.0.1:9464:9464"]
    # What user 1000 writes in there belongs here to who started it: the same for the key and for the peer.
    page = (HOSPITAL / "README.md").read_text()
    assert "keep-id:uid=1000,gid=1000}" in text and "--userns=keep-id:uid=1000,gid=1000 " in page


def test_the_session_is_rehearsed_to_its_end(tmp_path: Path) -> None:
    words = ("run", HOSPITAL / "session.toml", "--json", "--quiet", "--out", "run")
    result = json.loads(plexus(*words, cwd=tmp_path).stdout)
    assert result["rounds"] == 20 and result["metric"]["best"] > 0.7


@pytest.mark.slow
def test_three_sites_with_tables_of_their_own_come_to_a_final_model(tmp_path: Path) -> None:
    changes = [word for change in FEW_AND_SHORT.split() for word in ("--set", change)]
    plexus("session", "init", "authority", "--from", HOSPITAL / "session.toml", *changes, cwd=tmp_path)
    *ports, metrics = free_ports(4)
    processes = []
    try:
        for at, site in enumerate(SITES):
            place = tmp_path / site
            place.mkdir()
            key = plexus("node", "key", "--home", "plexus", cwd=place).stdout.strip()
            invite = ("session", "invite", "../authority", key, "--name", site, "--days", 90)
            plexus(*invite, "--out", "plexus/node.crt", cwd=place)
            shutil.copy(tmp_path / "authority" / "session.toml", place / "plexus")
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(HOSPITAL / "triage", place / "plexus" / "triage", ignore=ignored)
            own_table(site, place / "site.csv")
            words = composed(ADVERTISE=f"127.0.0.1:{ports[at]}", JOIN=f"127.0.0.1:{ports[at - 1]}")
            here = {"/data/": "", "/plexus": "plexus", "[::]:7000": f"127.0.0.1:{ports[at]}"}
            here["0.0.0.0:9464"] = f"0.0.0.0:{metrics if at == 0 else 0}"
            for there, ours in here.items():
                words = [word.replace(there, ours) for word in words]
            with (place / "log").open("w") as log:
                command = [sys.executable, "-m", "plexus", *words]
                processes.append(subprocess.Popen(command, cwd=place, stderr=log))
        assert is_healthy(metrics, processes[0]), (tmp_path / SITES[0] / "log").read_text()
        ended = [process.wait(timeout=120) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert ended == [0, 0, 0], [(tmp_path / site / "log").read_text() for site in SITES]
    for site in SITES:
        assert (tmp_path / site / "plexus" / FINAL_MODEL).exists()
        plexus("session", "status", "plexus", cwd=tmp_path / site)  # ends with 0 if all is done
    predict = ("predict", f"plexus/{FINAL_MODEL}", "--csv", "site.csv", "--task-dir", "plexus")
    assert "predicted outcome" in plexus(*predict, cwd=tmp_path / SITES[0]).stdout


def is_healthy(port: int, process: subprocess.Popen[bytes]) -> bool:
    """Whether a peer says so, while it runs."""
    while process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10) as answer:
                return bool(answer.read() == b"ok\n")
        except URLError:
            time.sleep(0.2)
    return False
