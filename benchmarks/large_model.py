"""Live peers with a model that is half as large as the memory they may take.

    python -m benchmarks.large_model                           # six peers, a model of 1 GB, six aggregations
    python -m benchmarks.large_model --megabytes 100 --memory 25

Every peer is a process of its own, `plexus node start`, with everything that belongs to it: TLS, seals,
checks, sums, its state on the disk. Only the workers do not train: one process answers for all of them with a
model of the same size, to all of a round at once. Everybody trains in every round, so an aggregator gets a
model from each of the others. A further member of the session sends every peer a ping twenty times a second.

Prints one JSON object, and ends with 1 if a line on standard error says FAIL:

- `aggregator_peak_mb`: the most memory that one of the peers ever held, what it had mapped of files at that
  moment included (`VmHWM`); not its training worker, another process with torch and copies of its own.
- `throughput_ratio_to_plain_tcp`: all models on their way to an aggregator, from the first byte of the first
  to the last byte of the last, beside as many processes that send the same bytes to one at the same time over
  asyncio's plain TCP streams, into memory that they have used before: three times before the session and
  three times after it. Of either the fastest of six counts; all of them are in the object too.
- `cpu_s_per_gb`: what all peers together used of processors meanwhile, checks and sums included, beside all
  processes of plain TCP. What else goes on on the machine changes this less than the throughput.
- `ping_p99_under_load_ms`: of all pings, to all peers, sent while models were on their way.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.endurance import Check, all_hold
from plexus.bench.transport import LOOPBACK, MEGABYTE, Homes, Near, _send_plain, made_up_model, plain
from plexus.live.fleet.fleet import free_ports
from plexus.live.identity.admission import Admission
from plexus.live.identity.authority import Authority
from plexus.live.identity.session_file import SESSION_FILE, found_session
from plexus.live.models import LiveModel
from plexus.live.worker import client as channel
from plexus.protocol import wire
from plexus.protocol.messages import Ping, Pong
from plexus.runs.run import started_s
from plexus.runs.tables import read
from plexus.spec.experiment import parse_spec

MOST_MB, LEAST_RATIO, MOST_PING_MS = 2000, 0.5, 150
PING_S, LOOK_S, LATE_S = 0.05, 0.5, 2.0
LAST_BYTES = 2**16
PLAIN_TIMES = 3
"""The first time memory is new to the receiver."""
TOGETHER_S = 60.0
"""How long a worker waits for those of the other peers."""


class EndsTogether(NamedTuple):
    """Sends a model to its end, but for a little, then that: all peers have theirs at the same moment, as all
    senders of `plain_tcp` do."""

    sock: socket.socket
    wait: Callable[[], None]

    def sendall(self, data: memoryview) -> None:
        self.sock.sendall(data[:-LAST_BYTES])
        if len(data) > LAST_BYTES:
            self.wait()
        self.sock.sendall(data[-LAST_BYTES:])


class Workers:
    """Answers for the training workers of all peers, at a socket as that of a fleet's fork server."""

    def __init__(self, path: Path, model: LiveModel, peers: int) -> None:
        self._model = model
        self._peers = peers
        self._lock = threading.Lock()
        self._rounds: dict[int, threading.Barrier] = {}
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            sock, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            channel.receive(sock)
            channel.send(sock, channel.Ready("accuracy", True, 1), self._model.data)
            while True:
                self._answer(sock)
        except (EOFError, OSError):
            sock.close()

    def _answer(self, sock: socket.socket) -> None:
        job = self._job(sock)
        if isinstance(job, channel.EvaluateJob):
            channel.send(sock, channel.Evaluated(job.job, 0.5, 1.0))
        elif isinstance(job, channel.TrainJob):
            self._wait_for_others(job.round)
            ends_together: Any = EndsTogether(sock, lambda: self._wait_for_others(job.round))
            channel.send(ends_together, channel.Finished(job.job, self._model.seal, 1.0), self._model.data)

    def _job(self, sock: socket.socket) -> channel.Header:
        """What is to be done; with which model makes no difference, and it takes no memory."""
        header_bytes, left = channel._HEAD.unpack(channel._exactly(sock, channel._HEAD.size))
        header = channel._decoder.decode(channel._exactly(sock, header_bytes))
        space = memoryview(bytearray(2**20))
        while left:
            count = sock.recv_into(space[: min(left, len(space))])
            if not count:
                raise EOFError("the peer is gone")
            left -= count
        return header

    def _wait_for_others(self, round: int) -> None:
        with self._lock:
            together = self._rounds.setdefault(round, threading.Barrier(self._peers))
        try:
            together.wait(TOGETHER_S)
        except threading.BrokenBarrierError:
            print(f"round {round}: not all peers train", file=sys.stderr)


def session_of(directory: Path, peers: int, rounds: int) -> Any:
    timeouts = {"aggregation_timeout_s": 120, "ack_timeout_s": 200, "ping_timeout_s": 3, "watchdog_s": 900}
    tables = {
        "name": "large-model",
        "seed": 1,
        "nodes": peers,
        "hours": 1,
        "protocol": {"name": "plexus", "sample_size": peers, "success_fraction": 1.0, **timeouts},
        "task": {"name": "digits"},
        "session": {"start_with": peers, "rounds": rounds},
        "evaluation": {"every_rounds": 100},
    }
    return found_session(directory, parse_spec(tables, "large-model", {}).plain())


class Pinger(Near):
    """A member that trains nothing and is sent nothing to train."""

    sent = 0

    async def ping(self) -> float:
        self.sent += 1
        began = time.perf_counter()
        self.hub.send(self.far_key, wire.encode(Ping(self.sent, 1), self.roster))
        while await self._answers.get() != self.sent:
            pass
        return time.perf_counter() - began

    def message(self, src: bytes, payload: bytes) -> None:
        body, _ = wire.decode(payload, self.roster, src)
        if isinstance(body, Pong):
            self._answers.put_nowait(body.exchange)


class Bench(Homes):
    """A session, its peers, and who pings them."""

    def __init__(self, directory: Path, arguments: argparse.Namespace) -> None:
        self._directory = directory
        self._arguments = arguments
        self.session = session_of(directory / "session", arguments.peers, arguments.rounds)
        self.authority = Authority.load(directory / "session")
        self._count = 0
        self.homes = [self.new() for _ in range(arguments.peers)]
        self.peaks_mb = [0.0] * arguments.peers
        self.pings: list[tuple[float, float]] = []
        """When, and how long it took."""
        self.spent: list[tuple[float, float]] = []
        """When, and what all peers together had used of processors by then."""

    def start(self) -> list[subprocess.Popen[bytes]]:
        ports = free_ports(len(self.homes))
        self.ports = ports
        processes = []
        for number, home in enumerate(self.homes):
            home.chmod(0o700)
            command = [
                sys.executable,
                "-m",
                "plexus",
                "node",
                "start",
                str(self._directory / "session" / SESSION_FILE),
            ]
            options = {"--home": home, "--data": number, "--listen": f"{LOOPBACK}:{ports[number]}"}
            options |= {"--fork-server": self._directory / "workers.sock", "--memory": self._arguments.memory}
            # The first is the best connected one, so it aggregates, in every round.
            options |= {
                "--at-least": len(ports) - 1,
                "--bandwidth": 200 * MEGABYTE if number == 0 else MEGABYTE * 100,
            }
            command += [str(word) for pair in options.items() for word in pair]
            for port in ports:
                if port != ports[number]:
                    command += ["--join", f"{LOOPBACK}:{port}"]
            with (home / "log.jsonl").open("wb") as log:
                processes.append(subprocess.Popen(command, stderr=log))
        return processes

    async def watch(self, processes: list[subprocess.Popen[bytes]]) -> None:
        """Until all peers have gone home."""
        pinging = [asyncio.create_task(self._ping(port)) for port in self.ports]
        used_s = [0.0] * len(processes)
        while any(process.poll() is None for process in processes):
            for number, process in enumerate(processes):
                self.peaks_mb[number] = max(self.peaks_mb[number], memory_mb(process.pid, "VmHWM"))
                used_s[number] = max(used_s[number], cpu_s(process.pid))
            self.spent.append((time.time(), sum(used_s)))
            await asyncio.sleep(LOOK_S)
        for task in pinging:
            task.cancel()

    async def _ping(self, port: int) -> None:
        near = Pinger(Admission(self.new(), self.session))
        while await near.hub.dialler.introduce((LOOPBACK, port)) is not None:
            await asyncio.sleep(0.5)
        (near.far_key,) = near.hub.links
        while True:
            began = time.time()
            try:
                took_s = await asyncio.wait_for(near.ping(), LATE_S)
            except TimeoutError:  # or the peer is not online yet, and answers nobody
                took_s = LATE_S
            self.pings.append((began, took_s))
            await asyncio.sleep(PING_S)

    def transfers(self, kind: str) -> dict[int, list[tuple[float, float]]]:
        """By round, when models of this kind began and ended to be sent, by the clock on the wall."""
        found = defaultdict(list)
        for home in self.homes:
            rows, since_s = read(home / "run" / "transfers.csv"), started_s(home / "run")
            for row in zip(
                *(rows[name] for name in ("round", "kind", "cut", "began_s", "simulated_s")), strict=True
            ):
                if row[1] == kind and not row[2]:
                    found[int(row[0])].append((since_s + row[3], since_s + row[4]))
        return dict(found)


def memory_mb(pid: int, what: str) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith(f"{what}:"))


def cpu_s(pid: int) -> float:
    try:
        times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")


def send_plain(port: int, size: int, begin: Any, said: Any) -> None:
    data = np.full(size, 7, np.uint8).data
    for _ in range(PLAIN_TIMES):
        begin.wait()
        began = time.monotonic()
        asyncio.run(_send_plain(port, data))
        said.put((began, time.monotonic()))


async def plain_tcp(bench: Bench, size: int, senders: int) -> list[tuple[float, float]]:
    """The seconds in which one process receives a model of each of `senders` others, over plain TCP, and what
    all of them used of processors, several times."""
    context = get_context("spawn")
    begin, said = context.Barrier(senders + 1), context.Queue()
    found = []
    async with bench.far_side(plain, size) as (port, _):
        jobs = [context.Process(target=send_plain, args=(port, size, begin, said)) for _ in range(senders)]
        for job in jobs:
            job.start()
        for _ in range(PLAIN_TIMES):
            await asyncio.to_thread(begin.wait)
            pids = [each.pid for each in active_children()]
            at_first_s = sum(map(cpu_s, pids))
            spans = [await asyncio.to_thread(said.get) for _ in jobs]
            used_s = sum(map(cpu_s, pids)) - at_first_s
            took_s = max(end for _, end in spans) - min(began for began, _ in spans)
            print(f"plain TCP: {took_s:.1f} s, {used_s:.1f} s of processors", file=sys.stderr)
            found.append((took_s, used_s))
        for job in jobs:
            job.join()
    return found


async def measure(directory: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    size, others = arguments.megabytes * MEGABYTE, arguments.peers - 1
    bench = Bench(directory, arguments)
    plain_found = await plain_tcp(bench, size, others)
    workers = get_context("spawn").Process(
        target=answer, args=(directory / "workers.sock", size, arguments.peers)
    )
    workers.start()
    while not (directory / "workers.sock").exists():
        await asyncio.sleep(0.1)
    processes = bench.start()
    try:
        await asyncio.wait_for(bench.watch(processes), arguments.seconds)
    finally:
        for process in processes:
            process.kill()
            process.wait()
        workers.kill()
        workers.join()
    plain_found += await plain_tcp(bench, size, others)
    return figures(bench, arguments, plain_found, [process.returncode for process in processes])


def figures(
    bench: Bench, arguments: argparse.Namespace, plain: list[tuple[float, float]], ended: list[int]
) -> dict[str, Any]:
    to_aggregators = {
        k: each for k, each in bench.transfers("aggregate").items() if len(each) == arguments.peers - 1
    }
    spans = [
        each
        for kind in ("aggregate", "train")
        for all_of in bench.transfers(kind).values()
        for each in all_of
    ]
    whole = [
        (min(began for began, _ in each), max(end for _, end in each)) for each in to_aggregators.values()
    ]
    took_s = [end - began for began, end in whole]
    loaded = [rtt for at, rtt in bench.pings if any(began <= at <= end for began, end in spans)]
    sent_mb = arguments.megabytes * (arguments.peers - 1)
    at, used_s = zip(*bench.spent, strict=True)
    spent_s = [np.interp(end, at, used_s) - np.interp(began, at, used_s) for began, end in whole]
    return {
        "peers": arguments.peers,
        "model_mb": arguments.megabytes,
        "memory_mb": arguments.memory,
        "rounds": len(took_s),
        "ended_well": ended == [0] * arguments.peers,
        "aggregator_peak_mb": round(max(bench.peaks_mb)),
        "peaks_mb": [round(each) for each in bench.peaks_mb],
        "throughput_ratio_to_plain_tcp": round(min(plain)[0] / min(took_s), 3) if took_s else None,
        "throughput_mb_per_s": [round(sent_mb / each) for each in took_s],
        "plain_tcp_mb_per_s": [round(sent_mb / each) for each, _ in plain],
        "cpu_s_per_gb": [round(1e3 * each / sent_mb, 2) for each in spent_s],
        "plain_tcp_cpu_s_per_gb": [round(1e3 * each / sent_mb, 2) for _, each in plain],
        "ping_p50_under_load_ms": round(1e3 * statistics.median(loaded), 1) if loaded else None,
        "ping_p99_under_load_ms": round(1e3 * statistics.quantiles(loaded, n=100)[-1], 1) if loaded else None,
        "pings_under_load": len(loaded),
    }


def verdict(found: dict[str, Any], rounds: int) -> Iterator[Check]:
    """None where nothing was measured: that holds nothing."""
    ended, peak_mb = found["ended_well"] and found["rounds"] == rounds, found["aggregator_peak_mb"]
    ratio, ping_ms = found["throughput_ratio_to_plain_tcp"], found["ping_p99_under_load_ms"]
    yield f"{rounds} aggregations, and all peers end well", f"{found['rounds']}", ended
    yield f"memory of a peer at most {MOST_MB} MB", f"{peak_mb} MB", peak_mb <= MOST_MB
    yield f"throughput at least {LEAST_RATIO:g} of plain TCP", f"{ratio}", (ratio or 0) >= LEAST_RATIO
    is_soon = ping_ms is not None and ping_ms <= MOST_PING_MS
    yield f"99 of 100 pings under load within {MOST_PING_MS} ms", f"{ping_ms} ms", is_soon


def answer(path: Path, size: int, peers: int) -> None:
    """What the process does that answers for the workers."""
    Workers(path, made_up_model(size), peers)
    threading.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--peers", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=7, help="the first has nothing to aggregate")
    parser.add_argument("--memory", type=int, default=1100, help="of a peer, for models, in MB")
    parser.add_argument("--seconds", type=float, default=900.0, help="give up after so many")
    parser.add_argument("--folder", type=Path, help="where homes are; a dozen models of disk a peer")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as directory:
        found = asyncio.run(measure(Path(directory), arguments))
    print(json.dumps(found, indent=2), flush=True)
    sys.exit(0 if all_hold(verdict(found, arguments.rounds - 1), sys.stderr) else 1)


if __name__ == "__main__":
    main()
