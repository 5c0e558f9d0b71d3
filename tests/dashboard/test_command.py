"""`plexus dashboard` and `plexus run --watch` as commands."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

SPEC = """
name = "watched"
nodes = 12
hours = 0.2
[task]
name = "digits"
"""


def plexus(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "plexus", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **more},
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["nowhere"], "plexus: nowhere: no such directory"),
        (["--node", "nonsense"], "plexus: 'nonsense' is not an address"),
        ([".", "--node", "127.0.0.1:1"], "give a directory or --node, not both"),
        ([".", "--host", "no.such.host.invalid"], "--host no.such.host.invalid --port"),
    ],
)
def test_bad_input_is_one_clear_line(arguments: list[str], line: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "plexus", "dashboard", *arguments],
        capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert line in done.stderr.strip().splitlines()[-1]


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = plexus("dashboard", str(tmp_path), "--port", port)
    assert done.returncode == 2
    assert f"--port {port}" in done.stderr and "try --port 0" in done.stderr


def test_ctrl_c_ends_it_quietly(runs: Path) -> None:
    command = [sys.executable, "-m", "plexus", "dashboard", str(runs), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        url = urlsplit(re.findall(r"http://\S+", process.stderr.readline())[0])
        connection = http.client.HTTPConnection(str(url.hostname), url.port)
        connection.request("GET", "/api/runs")
        assert len(json.loads(connection.getresponse().read())["runs"]) >= 4
        connection.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stderr.read() == ""


@pytest.mark.slow
def test_watch_shows_the_run_from_its_beginning(tmp_path: Path) -> None:
    spec, seen = tmp_path / "spec.toml", tmp_path / "opened"
    spec.write_text(SPEC)
    # What a person's browser would be: it notes where it is sent, asks, and says what it got.
    browser = tmp_path / "browser"
    browser.write_text(
        f"""#!{sys.executable}
import pathlib, sys, urllib.request
url = sys.argv[1]
body = urllib.request.urlopen(url.partition("#")[0] + "api/runs", timeout=60).read()
pathlib.Path({str(seen)!r}).write_text(url + "\\n" + body.decode())
"""
    )
    browser.chmod(0o755)
    out = tmp_path / "runs" / "watched"
    done = plexus("run", str(spec), "--out", str(out), "--watch", BROWSER=str(browser))
    assert done.returncode == 0, done.stderr
    deadline_s = time.monotonic() + 10
    while not seen.exists() and time.monotonic() < deadline_s:
        time.sleep(0.05)
    url, _, body = seen.read_text().partition("\n")
    assert url.endswith("#/run/watched") and url in done.stderr
    assert json.loads(body)["root"] == str(out)
    assert (out / "result.json").exists()
    # The page ends with the run where nobody sits at a terminal.
    parts = urlsplit(url)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((str(parts.hostname), parts.port or 0), 5)
