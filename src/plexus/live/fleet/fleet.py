"""A fleet: real peers, one process each, on this machine.

Every peer gets its own key, certificate, port, home and log. Nothing in the peers knows that they are
neighbours; shaping happens in proxies in front of them, churn by ending and starting processes.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from plexus.errors import PlexusError
from plexus.files import named
from plexus.live.fleet.churn import Churn
from plexus.live.fleet.logs import LOG_FILE, LogReader
from plexus.live.fleet.shaping import Neighbourhood
from plexus.live.identity.admission import CERTIFICATE_FILE, KEY_FILE
from plexus.live.identity.authority import Authority
from plexus.live.identity.keys import create_key, make_home, node_key, raw_public, short
from plexus.live.identity.session_file import SESSION_FILE, found_session
from plexus.live.state import newest_model
from plexus.live.worker.channel import (
    Evaluated,
    EvaluateJob,
    Ready,
    SetUp,
    Stopped,
    receive_async,
    send_async,
)
from plexus.live.worker.forkserver import ForkServer

if TYPE_CHECKING:
    from plexus.spec.experiment import ExperimentSpec
    from plexus.traces.world import World

LOOPBACK = "127.0.0.1"
TICK_S = 0.25
STOP_S = 20.0
FULL_MESH = 16
"""Up to this many nodes wait for all others before the first round."""


class FleetConfig(Struct, frozen=True, kw_only=True):
    """How to run a fleet."""

    nodes: int | None = None
    seconds: float = 60.0
    rounds: int | None = None
    out: Path | None = None
    force: bool = False
    shape: bool = False
    churn: float | None = None


class NodeResult(Struct, frozen=True, kw_only=True):
    """What one process did."""

    number: int
    id: str
    round: int
    trained: int
    aggregated: int
    sent_bytes: int
    received_bytes: int
    starts: int
    errors: int
    exit_status: int
    """0, or what it ended with when nobody had told it to end, or otherwise than it should have."""
    last_words: str
    """What it said last outside its log."""
    failure: str
    """Why it could not train or evaluate, if it could not."""


class FleetResult(Struct, frozen=True, kw_only=True):
    """What the fleet did."""

    name: str
    seconds: float
    rounds: int
    metric_name: str
    metric: float
    """Of the newest model when the fleet ended."""
    best_metric: float
    nodes: list[NodeResult]
    failed: bool
    """A process ended otherwise than by leaving the session when told to, or could not train or evaluate."""
    out: str


class Member:
    """One process of the fleet, over all its lives."""

    def __init__(self, number: int, home: Path, id: str, command: list[str]) -> None:
        self.number = number
        self.home = home
        self.id = id
        self.command = command
        self.process: asyncio.subprocess.Process | None = None
        self.log = LogReader(home / LOG_FILE)
        self.starts = 0
        self.unexpected: list[int] = []

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    async def start(self) -> None:
        if self.is_running:
            return
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        with (self.home / LOG_FILE).open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self.command, stdin=asyncio.subprocess.DEVNULL, stderr=log, env=environment
            )
        self.starts += 1

    async def end(self, number: signal.Signals) -> None:
        """Send a signal and wait for the end; a process that ends otherwise is noted."""
        if self.process is None or not self.is_running:
            return
        self.process.send_signal(number)
        try:
            async with asyncio.timeout(STOP_S):
                status = await self.process.wait()
        except TimeoutError:
            self.process.kill()
            status = await self.process.wait()
        self.log.read()
        is_polite = number is signal.SIGTERM and self.log.begun == self.starts
        if status != 0 if is_polite else status not in (0, -number):
            self.unexpected.append(status)
        self.process = None

    def notice_death(self) -> bool:
        """Whether the process ended by itself since last asked."""
        if self.process is None or self.process.returncode is None:
            return False
        self.unexpected.append(self.process.returncode)
        self.process = None
        return True

    def result(self) -> NodeResult:
        log = self.log
        return NodeResult(
            number=self.number,
            id=self.id,
            round=log.worked_on,
            trained=log.trained,
            aggregated=log.aggregated,
            sent_bytes=log.sent_bytes,
            received_bytes=log.received_bytes,
            starts=self.starts,
            errors=log.errors,
            exit_status=self.unexpected[0] if self.unexpected else 0,
            last_words=log.last_words,
            failure=log.failure,
        )


class Fleet:
    """Members, and the things around them."""

    def __init__(
        self,
        spec: ExperimentSpec,
        out: Path,
        world: World | None,
        base_dir: Path = Path(),
        fork_server: ForkServer | None = None,
    ) -> None:
        self.spec = spec
        self.base_dir = base_dir
        self.out = out
        self.nodes = spec.nodes
        self.neighbourhood = Neighbourhood(world) if world is not None else None
        self.members: list[Member] = []
        self._fork_server = fork_server or ForkServer(out)

    async def prepare(self) -> None:
        """Keys, certificates, ports and the fork server."""
        session = found_session(self.out / "session", self.spec.plain())
        authority = Authority.load(self.out / "session")
        await self._fork_server.start()
        ports = free_ports(self.nodes)
        fronts = [(LOOPBACK, port) for port in ports]
        if self.neighbourhood is not None:
            fronts = await self.neighbourhood.open([(LOOPBACK, port) for port in ports])
        joins = fronts[:FULL_MESH]
        for number in range(self.nodes):
            home = self.out / f"node-{number:02}"
            make_home(home)
            public = raw_public(create_key(home / KEY_FILE).public_key())
            certificate = authority.invite(public, session.digest, timedelta(days=7))
            (home / CERTIFICATE_FILE).write_text(certificate)
            command = self._command(number, home, ports[number], fronts, joins)
            self.members.append(Member(number, home, short(node_key(public)), command))

    def _command(self, number: int, home: Path, port: int, fronts: list[Any], joins: list[Any]) -> list[str]:
        options = {
            "--home": home,
            "--data": number,
            "--task-dir": self.base_dir.resolve(),
            "--listen": f"{LOOPBACK}:{port}",
            "--advertise": f"{fronts[number][0]}:{fronts[number][1]}",
            "--fork-server": self._fork_server.socket,
        }
        if self.neighbourhood is not None:
            options["--source"] = self.neighbourhood.source(number)
        command = [sys.executable, "-m", "plexus", "node", "start"]
        command.append(str(self.out / "session" / SESSION_FILE))
        for name, value in options.items():
            command += [name, str(value)]
        for host, join_port in joins:
            if (host, join_port) != fronts[number]:
                command += ["--join", f"{host}:{join_port}"]
        return command

    def wait_for_all(self) -> None:
        """Let nobody begin before everybody is there (or, in a large fleet, enough of them)."""
        for member in self.members:
            member.command += ["--at-least", str(min(self.nodes, FULL_MESH) - 1)]

    async def end_members(self) -> None:
        await asyncio.gather(*(member.end(signal.SIGTERM) for member in self.members))
        for member in self.members:
            member.log.read()

    async def evaluate(self) -> float:
        """The metric of the newest model that a member holds, or of the initial one."""
        round, model = 0, None
        for member in self.members:
            held = newest_model(member.home)
            if held is not None and held[0] > round:
                round, model = held
        reader, writer = await asyncio.open_unix_connection(self._fork_server.socket)
        try:
            await send_async(writer, _setup(self.spec, self.base_dir))
            _, initial = await receive_async(reader)
            await send_async(writer, EvaluateJob(1), initial if model is None else model)
            answer, _ = await receive_async(reader)
        except (OSError, EOFError):
            raise PlexusError("the training worker ended while it measured the model") from None
        finally:
            writer.close()
        if isinstance(answer, Stopped):
            raise PlexusError(f"the newest model cannot be measured: {answer.reason}")
        assert isinstance(answer, Evaluated)
        return answer.value

    async def close(self) -> None:
        await self.end_members()
        if self.neighbourhood is not None:
            await self.neighbourhood.close()
        await self._fork_server.close()

    @property
    def round(self) -> int:
        return max((member.log.round for member in self.members), default=0)


async def run_fleet(
    spec: ExperimentSpec, base_dir: Path, config: FleetConfig, tell: Callable[[Ready], None] = lambda _: None
) -> FleetResult:
    """Run a fleet from start to stop; `tell` hears of the task before the first peer starts."""
    from plexus.traces.build import build_world

    nodes = config.nodes or spec.nodes
    spec = msgspec.structs.replace(spec, nodes=nodes)
    out = (config.out or Path("runs") / f"fleet-{spec.name}").resolve()
    _refuse_taken(out, config.force)
    world = None
    if config.shape or config.churn:
        world = build_world(spec.traces, nodes, spec.seed, base_dir)
    fork_server, told = await _try_out(spec, base_dir, out)
    fleet = Fleet(spec, out, world if config.shape else None, base_dir, fork_server)
    began = time.monotonic()
    try:
        tell(told)
        await fleet.prepare()
        if config.churn and world is not None:
            churn = Churn(fleet.members, world, spec.traces, spec.seed, config.churn)
            await churn.begin()
        else:
            churn = None
            fleet.wait_for_all()
            await asyncio.gather(*(member.start() for member in fleet.members))
        await _watch(fleet, config, churn)
        await fleet.end_members()
        seconds = time.monotonic() - began
        return _result(fleet, seconds, told, await fleet.evaluate())
    finally:
        await fleet.close()


async def _watch(fleet: Fleet, config: FleetConfig, churn: Churn | None) -> None:
    began = time.monotonic()
    while time.monotonic() - began < config.seconds:
        await asyncio.sleep(TICK_S)
        for member in fleet.members:
            member.log.read()
            if member.notice_death():
                return
        if config.rounds is not None and fleet.round >= config.rounds:
            return
        if churn is not None:
            await churn.go_on(time.monotonic() - began)


def _result(fleet: Fleet, seconds: float, measure: Ready, metric: float) -> FleetResult:
    values = [value for member in fleet.members for _, value in member.log.metrics]
    best = max if measure.higher_is_better else min
    return FleetResult(
        name=fleet.spec.name,
        seconds=seconds,
        rounds=fleet.round,
        metric_name=measure.metric,
        metric=metric,
        best_metric=best([*values, metric]),
        nodes=[member.result() for member in fleet.members],
        failed=any(member.unexpected or member.log.failure for member in fleet.members),
        out=str(fleet.out),
    )


async def _try_out(spec: ExperimentSpec, base_dir: Path, out: Path) -> tuple[ForkServer, Ready]:
    """Set the task up once and try it. Only when that has worked is an earlier fleet in `out` removed."""
    is_new = not out.exists()
    with named(out):
        out.mkdir(parents=True, exist_ok=True)
    fork_server = ForkServer(out)
    try:
        await fork_server.start()
        told = await fork_server.ask(_setup(spec, base_dir, try_out=True))
    except BaseException:
        await fork_server.close()
        fork_server.tidy_up()
        if is_new:
            out.rmdir()
        raise
    for each in out.iterdir():
        if each.is_dir():
            shutil.rmtree(each)
        elif each.name not in fork_server.files:
            each.unlink()
    return fork_server, told


def _setup(spec: ExperimentSpec, base_dir: Path, try_out: bool = False) -> SetUp:
    return SetUp(spec.to_toml(), "0", str(base_dir.resolve()), try_out)


def _refuse_taken(out: Path, force: bool) -> None:
    with named(out):
        if not out.exists() or not any(out.iterdir()):
            return
    if not (out / "session" / SESSION_FILE).exists():
        raise PlexusError(f"{out}: not empty, and not of an earlier fleet")
    if not force:
        raise PlexusError(f"{out}: there is a fleet here already; use --force or another --out")


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody uses at the moment."""
    sockets = [socket.create_server((LOOPBACK, 0)) for _ in range(count)]
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
