"""Flower, tried: a SuperLink and two SuperNodes as processes of their own, which talk over loopback."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

APP = Path(__file__).with_name("flower_app")
CLIENTS, ROUNDS = 2, 3
"""As in the app."""
READY_S, RUN_S = 60, 180


BIN = Path(sys.executable).parent


def free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])


def surroundings(home: str) -> dict[str, str]:
    """Its programs start each other by name, and keep what they know in a folder."""
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "FLWR_HOME": home, "PATH": path}


@contextmanager
def started(home: str, program: str, *arguments: str) -> Iterator[None]:
    """A process of Flower's, and an end to it and to whatever it starts."""
    command = [BIN / program, "--insecure", *arguments]
    process = subprocess.Popen(
        command, env=surroundings(home), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        everything = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        process.terminate()
        _, left = psutil.wait_procs(everything, timeout=READY_S)
        for each in left:
            each.kill()


def wait_for(port: int) -> None:
    end_s = time.monotonic() + READY_S
    while time.monotonic() < end_s:
        with socket.socket() as trial:
            if trial.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise TimeoutError(f"nobody listens on {port}")


def live() -> dict[str, str]:
    """Three rounds between processes: is the result the one that it must be?"""
    link, *nodes = (free_port() for _ in range(1 + CLIENTS))
    address = f"127.0.0.1:{link}"
    with tempfile.TemporaryDirectory() as home:
        Path(home, "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "{address}"\ninsecure = true\n'
        )
        offline = "--disable-runtime-dependency-installation"
        first, second = (
            ("--superlink", address, "--port", str(port), "--node-config", f"partition-id={number}")
            for number, port in enumerate(nodes, 1)
        )
        with started(home, "flower-superlink", offline, "--port", str(link)):
            wait_for(link)
            with started(home, "flower-supernode", *first), started(home, "flower-supernode", *second):
                done = subprocess.run(
                    [BIN / "flwr", "run", APP, "--stream"],
                    env=surroundings(home),
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=RUN_S,
                )
    expected = ROUNDS * sum(range(1, CLIENTS + 1)) / CLIENTS
    if f"the league's result: {expected:.3f}" in done.stdout:
        return {"answer": "yes", "says": f"a SuperLink, {CLIENTS} SuperNodes, {ROUNDS} rounds over loopback"}
    sys.stderr.write(done.stdout[-2000:] + done.stderr[-2000:])
    return {"answer": "no", "says": f"{ROUNDS} rounds of a SuperLink and {CLIENTS} SuperNodes had no result"}


if __name__ == "__main__":
    sys.stdout.write(f"\n{json.dumps({'live': live()})}\n")
