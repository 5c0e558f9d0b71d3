"""A fleet: real peers, one process each, on this machine.

Every peer gets its own key, certificate, port, home and log. Nothing in the peers knows that they are
neighbours; shaping happens in proxies in front of them, churn by ending and starting processes.
"""

from __future__ import annotations

import asyncio
import math
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import InitVar, dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from plexus.errors import PlexusError
from plexus.files import named, write_bytes
from plexus.live.fleet.fleet_tables import FleetTables
from plexus.live.fleet.members import ForkServer, Member, NodeResult, TraceChurn
from plexus.live.fleet.shaping import Neighbourhood
from plexus.live.identity.admission import CERTIFICATE_FILE, KEY_FILE
from plexus.live.identity.authority import Authority
from plexus.live.identity.keys import create_key, make_home, short
from plexus.live.identity.session_file import SESSION_FILE, Session, found_session
from plexus.live.operator.log import suspects
from plexus.live.state import newest_of, taken_home
from plexus.live.transport import addresses
from plexus.live.transport.addresses import Address
from plexus.live.worker.client import Evaluated, Ready, SetUp
from plexus.protocol.registry import SERVERS
from plexus.protocol.roster import key_of
from plexus.runs.directory import RunDirectory, live
from plexus.runs.model_files import BEST_MODEL, FINAL_MODEL, is_better, metadata_of
from plexus.runs.result import MOST_SUSPECTS, Evaluations, Metric, Result, Suspect, Traffic, Trainings
from plexus.runs.run import started_s
from plexus.runs.tables import read, rows

if TYPE_CHECKING:
    from plexus.spec.experiment import ExperimentSpec
    from plexus.traces.world import World

LOOPBACK = "127.0.0.1"
TICK_S = 0.25
USUAL_S = 60.0
"""How long a fleet runs if nothing says when it ends."""
INTERRUPTED = "interrupted"
FULL_MESH = 16
"""Up to this many nodes wait for all others before the first round."""


class FleetConfig(Struct, frozen=True, kw_only=True):
    seconds: float | None = None
    rounds: int | None = None
    out: Path | None = None
    force: bool = False
    shape: bool = False
    churn: float | None = None


class FleetResult(Struct, frozen=True, kw_only=True):
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
    stopped: str
    """By what, if not by its end."""
    out: str


def home_name(number: int) -> str:
    return f"node-{number:02}"


@dataclass(eq=False)
class Fleet:
    spec: ExperimentSpec
    out: Path
    world: InitVar[World | None]
    base_dir: Path = Path()
    fork_server: InitVar[ForkServer | None] = None

    def __post_init__(self, world: World | None, fork_server: ForkServer | None) -> None:
        self.nodes = self.spec.nodes + (self.spec.protocol.name in SERVERS)
        self.neighbourhood = Neighbourhood(world) if world is not None else None
        self.members: list[Member] = []
        self._fork_server = fork_server or ForkServer(self.out)

    async def prepare(self, frozen: str = "") -> Session:
        """Keys, certificates, ports and the fork server; `frozen` as in `found_session`."""
        agreed = msgspec.structs.replace(self.spec, attackers=()).plain()
        session = found_session(self.out / "session", agreed, frozen=frozen)
        authority = Authority.load(self.out / "session")
        await self._fork_server.start()
        ports = free_ports(self.nodes)
        fronts = [(LOOPBACK, port) for port in ports]
        if self.neighbourhood is not None:
            fronts = await self.neighbourhood.open(fronts)
        homes = [self.out / home_name(number) for number in range(self.nodes)]
        for home in homes:
            make_home(home)
        publics = [create_key(home / KEY_FILE).public_key().public_bytes_raw() for home in homes]
        certificates = authority.invite_all(publics, session.digest, timedelta(days=8))
        for number, (home, public) in enumerate(zip(homes, publics, strict=True)):
            (home / CERTIFICATE_FILE).write_text(certificates[number])
            command = self._command(number, home, ports[number], fronts)
            self.members.append(Member(number, home, short(key_of(public)), command))
        return session

    def _command(self, number: int, home: Path, port: int, fronts: list[Address]) -> list[str]:
        is_server, own = number == self.spec.nodes, addresses.show(fronts[number])
        command: list[Any] = [sys.executable, "-m", "plexus", "node", "start"]
        command += [self.out / "session" / SESSION_FILE, "--home", home]
        command += ["--data", 0 if is_server else number]  # a server does not train on it
        command += ["--task-dir", self.base_dir.resolve(), "--fork-server", self._fork_server.socket]
        command += ["--listen", f"{LOOPBACK}:{port}", "--advertise", own]
        if self.neighbourhood is not None:
            command += ["--source", self.neighbourhood.source(number)]
        if self.spec.attackers:
            command += ["--attackers", msgspec.json.encode(self.spec.attackers).decode()]
        if is_server:
            command.append("--server")
        for front in map(addresses.show, fronts[:FULL_MESH]):
            command += ["--join", front] if front != own else []
        return [str(each) for each in command]

    def wait_for_all(self) -> None:
        """Let nobody begin before everybody is there (or, in a large fleet, enough of them)."""
        for member in self.members:
            member.command += ["--at-least", str(min(self.nodes, FULL_MESH) - 1)]

    async def end_members(self) -> None:
        await asyncio.gather(*(member.end(signal.SIGTERM) for member in self.members))
        for member in self.members:
            member.log.read()

    async def evaluate(self) -> tuple[int, Evaluated]:
        """Round and metric of the newest model that a member holds, or of the initial one.

        The newest and the best are left in the fleet's directory.
        """
        held = newest_of(member.home for member in self.members)
        model = held.data if held else None
        found = await self._fork_server.evaluate(_setup(self.spec, self.base_dir), model)
        if held is None:
            return 0, found
        about = {"round": str(held.ordinal), "value": repr(found.value), "spec_digest": self.spec.digest()}
        write_bytes(self.out / FINAL_MODEL, *taken_home(held.home, held.data, about))
        best = self.out / BEST_MODEL
        for path in (self.out / FINAL_MODEL, *(member.home / BEST_MODEL for member in self.members)):
            if path.exists() and is_better(float(metadata_of(path)["value"]), best):
                write_bytes(best, path.read_bytes())
        return held.ordinal, found

    async def close(self) -> None:
        await self.end_members()
        if self.neighbourhood is not None:
            await self.neighbourhood.close()
        await self._fork_server.close()

    @property
    def round(self) -> int:
        return max((member.log.round for member in self.members), default=0)

    def is_done(self, rounds: int | None) -> bool:
        """It has come to this round, or its session to the end."""
        is_over = any(member.has_finished for member in self.members)
        is_over &= not any(member.is_running for member in self.members)
        return is_over or (rounds is not None and self.round >= rounds)


async def run_fleet(
    spec: ExperimentSpec,
    base_dir: Path,
    config: FleetConfig,
    tell: Callable[[Ready], None] = lambda _: None,
    look: Callable[[], None] = lambda: None,
) -> FleetResult:
    """Run a fleet from start to stop; `tell` hears of the task before the first peer starts, and `look` is
    called again and again: its `KeyboardInterrupt` stops the fleet."""
    from plexus.traces.build import build_world

    out = (config.out or Path("runs") / f"fleet-{spec.name}").resolve()
    _refuse_taken(out, config.force)
    needs_world = config.shape or config.churn
    world = build_world(spec.traces, spec.nodes, spec.seed, base_dir) if needs_world else None
    if config.churn and world is not None:  # half of those who are there at first, not of all
        there = max(1, int(world.availability.online_at(0.0).sum()))
        course = spec.session.live(there, getattr(spec.protocol.parameters, "sample_size", there))
        spec = msgspec.structs.replace(spec, session=course)
    fork_server, told = await _try_out(spec, base_dir, out)
    fleet = Fleet(spec, out, world if config.shape else None, base_dir, fork_server)
    try:
        about = live([home_name(number) for number in range(fleet.nodes)])
        with RunDirectory(out, spec.to_toml(), spec.digest(), base_dir=base_dir, about=about) as directory:
            tell(told)
            session = await fleet.prepare(told.frozen)
            homes = {member.id: member.home for member in fleet.members}
            tables = FleetTables(directory.recorder, homes, started_s(out))
            churn = None
            if config.churn and world is not None:
                churn = TraceChurn(fleet.members, world, spec.traces, spec.seed, config.churn)
            stopped = await _go_on(fleet, config, churn, tables, look)
            number, found = await fleet.evaluate()
            metrics = {told.metric: found.value, "loss": found.loss, **found.others}
            tables.evaluated(tables.now_s, number, metrics)
            result = _result(fleet, tables, told, found.value, stopped)
            directory.finish(_outcome(result, session, tables, told))
            return result
    finally:
        await fleet.close()


async def _go_on(
    fleet: Fleet, config: FleetConfig, churn: TraceChurn | None, tables: FleetTables, look: Callable[[], None]
) -> str:
    """From the first process to the last; what they recorded is kept, however this ends. By what it was
    stopped."""
    has_end = config.rounds is not None or fleet.spec.session.has_end
    seconds = config.seconds or (math.inf if has_end else USUAL_S)
    try:
        if churn is not None:
            await churn.go_on(0.0)
        else:
            fleet.wait_for_all()
            await asyncio.gather(*(member.start() for member in fleet.members))
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            await asyncio.sleep(TICK_S)
            look()
            tables.look([member.is_running for member in fleet.members])
            for member in fleet.members:
                member.log.read()
            if any(member.notice_death() for member in fleet.members) or fleet.is_done(config.rounds):
                return ""
            if churn is not None:
                await churn.go_on(time.monotonic() - began)
        return f"after {seconds:g} s (--seconds)" if has_end or not fleet.round else ""
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        await fleet.end_members()
        tables.look([False] * fleet.nodes, is_last=True)
        tables.put_in_order(fleet.out)


def _result(fleet: Fleet, tables: FleetTables, measure: Ready, metric: float, stopped: str) -> FleetResult:
    best = max if measure.higher_is_better else min
    return FleetResult(
        name=fleet.spec.name,
        seconds=tables.now_s,
        rounds=fleet.round,
        metric_name=measure.metric,
        metric=metric,
        best_metric=best([*(value for _, value in tables.metrics), metric]),
        nodes=[member.result(tables.state_of(member.number)) for member in fleet.members],
        failed=any(member.unexpected or member.log.failure for member in fleet.members),
        stopped=stopped,
        out=str(fleet.out),
    )


def _outcome(result: FleetResult, session: Session, tables: FleetTables, measure: Ready) -> Result:
    """The same as a run directory has it."""
    sent, trained = tables.all_of("traffic", math.inf), read(Path(result.out) / "trainings.csv")
    types = [name.removesuffix("_count") for name in sent if name.endswith("_count")]
    metric = Metric(measure.metric, result.best_metric, result.metric, measure.higher_is_better)
    return Result(
        digest=session.digest.hex(),
        weights_hash="",
        rounds=result.rounds,
        simulated_s=result.seconds,
        cpu_s=None,
        wall_s=result.seconds,
        metric=metric,
        messages={name: Traffic(sent[f"{name}_count"], sent[f"{name}_bytes"]) for name in types},
        training_s=sent.get("training_s", 0.0),
        trainings=Trainings(rows(trained), int(sum(trained.get("completed", ())))),
        evaluations=Evaluations(len(tables.metrics), 0.0),
        suspects=tuple(
            Suspect(each.node, each.reason, each.times, len(each.homes))
            for each in suspects([Path(result.out)])[:MOST_SUSPECTS]
        ),
        interrupted=result.failed or result.stopped == INTERRUPTED,
        out=result.out,
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
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server((LOOPBACK, 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]
