"""The hospital drill: eight sites, twenty rounds, and all that goes wrong in a year within ten minutes.

The sites are network namespaces in eight cities with 30 Mbit/s each (see `wan`). Whoever dies is started
again after five seconds, as systemd would (`examples/plexus-node.service`). Nobody else does anything but
for what is in the script: an upgrade, a renewed certificate, a revocation.

With NAT nobody can dial any of them but one, by way of which they have their links with each other. That one
stays and is not revoked; and who is of an older version is of one that has relays.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Coroutine, Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec

from plexus.errors import RevokedError
from plexus.live.fleet.fleet import Fleet
from plexus.live.fleet.members import ForkServer, Member
from plexus.live.identity.authority import REVOKED_FILE
from plexus.live.operator.log import LOG_FILE
from plexus.live.state import newest_model
from plexus.live.worker.client import SetUp
from plexus.runs.model_files import FINAL_MODEL
from plexus.spec.experiment import ExperimentSpec, parse_spec
from tests.live.netns import PORT, move_into
from tests.live.wan import Wan, wan

CITIES = ("Berlin", "Paris", "Madrid", "London", "New York", "Tokyo", "São Paulo", "Sydney")
MBIT_PER_S = 30.0
ROUNDS = 20
AGGREGATION_S = 30.0
SPEC = f"""
name = "drill"
nodes = {len(CITIES)}
hours = 1
evaluation = {{ every_rounds = 1 }}
task = {{ name = "digits", hidden = 16700 }}    # 5 MB
traces = {{ availability = "none" }}

[session]
start_with = 5
rounds = {ROUNDS}

[protocol]
sample_size = {len(CITIES)}
success_fraction = 0.75
ping_timeout_s = 2.0
aggregation_timeout_s = {AGGREGATION_S}
ack_timeout_s = 45.0
watchdog_s = 60.0
readvertise_s = 20.0
start_delay_s = 3.0
"""
EVERY_S, LOSS_S, RESTART_S = 60.0, 20.0, 5.0
LOSES_AT_S, KILLED_AT_S = 15.0, 45.0
"""In every minute."""
UPGRADE_AT, RENEW_AT, GOES_AT, REVOKE_AT, AWAY_AT = 5, 7, 10, 13, ROUNDS - 1
"""In rounds; the last so that somebody is away when the session ends."""
OLDER, OLDER_VERSIONS = 2, ("tests.live.older", "tests.live.previous")
"""Who begins as a peer of an older version: the oldest, with NAT the one before."""
RELAY = 0
"""Whom all others can dial, with NAT."""
AT_MOST_S = 1200.0
LOOK_S = 0.2


class Event(NamedTuple):
    """Something that was done to a site."""

    at_s: float
    what: str


class Check(NamedTuple):
    """A line of the verdict."""

    what: str
    found: str
    holds: bool


class Drill:
    """A fleet in the wide area network, and what happens to it."""

    def __init__(self, fleet: Fleet, net: Wan, rng: Random, kept: set[int]) -> None:
        """Of the members, `kept` are neither gone for good nor revoked."""
        self.fleet = fleet
        self.net = net
        self._rng = rng
        self._kept = kept
        self.revoked: Member | None = None
        self.events: list[Event] = []
        self.out: set[int] = set()
        """Numbers of the members that are gone for good or revoked."""
        self.died: list[str] = []
        """Those who are still in and ended by themselves otherwise than with 0."""
        self._restart_at: dict[int, float] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.began_s = 0.0

    @property
    def remaining(self) -> list[Member]:
        return [member for member in self.fleet.members if member.number not in self.out]

    @property
    def round(self) -> int:
        return max((member.log.worked_on for member in self.remaining), default=0)

    def note(self, member: Member, what: str) -> None:
        self.events.append(Event(time.time() - self.began_s, f"{CITIES[member.number]} {what}"))

    async def go_on(self) -> None:
        """From the first process until all that remain have ended by themselves."""
        self.began_s = time.time()
        for member in self.fleet.members:
            await member.start()
        script = self._script()
        self._tasks += [asyncio.create_task(each) for each in (self._lose_networks(), self._kill())]
        try:
            async with asyncio.timeout(AT_MOST_S):
                at, act = next(script)
                while not all(member.has_finished for member in self.remaining):
                    await self._look()
                    if self.round >= at:
                        await act()
                        at, act = next(script, (ROUNDS + 1, self._look))
        except TimeoutError:
            pass  # the verdict says what is missing
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _script(self) -> Iterator[tuple[int, Callable[[], Coroutine[Any, Any, None]]]]:
        yield UPGRADE_AT, self._upgrade
        yield RENEW_AT, self._renew
        yield GOES_AT, self._best_connected_goes
        yield REVOKE_AT, self._revoke
        yield AWAY_AT, self._be_away_at_the_end

    async def _look(self) -> None:
        """What systemd does: who has died is started again."""
        await asyncio.sleep(LOOK_S)
        for member in self.fleet.members:
            member.log.read()
            if member.notice_death():
                status = member.unexpected[-1]
                self.note(member, f"ends by itself with {status}: {member.log.last_words}")
                if member.number not in self.out:
                    self.died.append(f"{CITIES[member.number]} with {status}")
                    self._restart_at[member.number] = time.monotonic() + RESTART_S
        for number, at in list(self._restart_at.items()):
            if time.monotonic() >= at:
                del self._restart_at[number]
                await self.fleet.members[number].start()

    def _one(self, but: Collection[int] = ()) -> Member:
        there = [member for member in self.remaining if member.is_running and member.number not in but]
        return self._rng.choice(there)

    async def _lose_networks(self) -> None:
        await asyncio.sleep(LOSES_AT_S)
        while True:
            await self._lose_network(self._one())
            await asyncio.sleep(EVERY_S - LOSS_S)

    async def _lose_network(self, member: Member) -> None:
        self.note(member, f"loses its network for {LOSS_S:g} s")
        self.net.cut(member.number + 1)
        await asyncio.sleep(LOSS_S)
        self.net.mend(member.number + 1)

    async def _be_away_at_the_end(self) -> None:
        self._tasks.append(asyncio.create_task(self._lose_network(self._one())))

    async def _kill(self) -> None:
        await asyncio.sleep(KILLED_AT_S)
        while True:
            member = self._one()
            self.note(member, "is killed -9")
            await member.end(signal.SIGKILL)
            self._restart_at[member.number] = time.monotonic() + RESTART_S
            await asyncio.sleep(EVERY_S)

    async def _upgrade(self) -> None:
        member = self.fleet.members[OLDER]
        self.note(member, "is upgraded")
        member.command = ["plexus" if word in OLDER_VERSIONS else word for word in member.command]
        if member.is_running:
            await member.end(signal.SIGTERM)
            await member.start()

    async def _renew(self) -> None:
        member = self._one()
        self.note(member, "gets another certificate")
        await self._session("renew", member.id, "--days", "90", "--out", str(member.home / "node.crt"))

    async def _best_connected_goes(self) -> None:
        """Whom the others send their models to at this moment; if that one is to stay, any other."""
        chosen = [
            each.log.newest.get("AggregatorChosen", {"round": 0, "aggregator": ""}) for each in self.remaining
        ]
        best = max(chosen, key=lambda line: line["round"])["aggregator"]
        member = next(each for each in self.fleet.members if each.id == best)
        if member.number in self._kept:
            member = self._one(but=self._kept)
        self.note(member, "goes for good" if member.id != best else "aggregates, and goes for good")
        self.out.add(member.number)
        self._restart_at.pop(member.number, None)
        self.net.cut(member.number + 1)
        await member.end(signal.SIGKILL)

    async def _revoke(self) -> None:
        self.revoked = member = self._one(but=self._kept)
        self.out.add(member.number)
        other = self._one()
        self.note(member, f"is revoked; {CITIES[other.number]} gets the list")
        await self._session("revoke", member.id)
        shutil.copy(self.fleet.out / "session" / REVOKED_FILE, other.home)

    async def _session(self, verb: str, *words: str) -> None:
        command = [sys.executable, "-m", "plexus", "session", verb, str(self.fleet.out / "session"), *words]
        await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)


class Outcome(NamedTuple):
    """What became of a session."""

    drill: Drill
    completed_s: dict[int, float]
    """By round, when its model was there for the first time."""
    checks: list[Check]


async def quiet_session(spec: ExperimentSpec, out: Path) -> float:
    """How good the final model is where nothing happens."""
    fork_server = ForkServer(out)
    fleet = Fleet(spec, out, None, fork_server=fork_server)
    try:
        await fleet.prepare()
        await asyncio.gather(*(member.start() for member in fleet.members))
        async with asyncio.timeout(AT_MOST_S):
            while not all(member.has_finished for member in fleet.members):
                await asyncio.sleep(LOOK_S)
                for member in fleet.members:
                    member.log.read()
                    assert not member.notice_death()
        return await _measured(spec, fork_server, fleet.members[0])
    finally:
        await fleet.close()


async def drilled_session(
    spec: ExperimentSpec, out: Path, net: Wan, seed: int, nat: bool
) -> tuple[Drill, float]:
    """What happened, and how good the final model is."""
    fork_server = ForkServer(out)
    fleet = Fleet(spec, out, None, fork_server=fork_server)
    try:
        await fleet.prepare()
        if nat:
            _move_behind_nat(net, fleet)
        else:
            move_into(net, fleet, joins=2)
        older = fleet.members[OLDER].command
        # The oldest version does not relay, so nobody but the one in the middle would reach it.
        older[older.index("plexus")] = OLDER_VERSIONS[nat]
        drill = Drill(fleet, net, Random(seed), kept={RELAY} if nat else set())
        await drill.go_on()
        return drill, await _measured(spec, fork_server, drill.remaining[0])
    finally:
        await fleet.close()


def _move_behind_nat(net: Wan, fleet: Fleet) -> None:
    """All know one whom they can dial. Half of those whom nobody can know it, the others do not."""
    move_into(net, fleet, joins=0)
    for member in fleet.members:
        if member.number != RELAY:
            member.command += ["--join", f"{net.address(RELAY + 1)}:{PORT}"]
            member.command += ["--advertise", "none"] if member.number % 2 else []


async def _measured(spec: ExperimentSpec, fork_server: ForkServer, member: Member) -> float:
    held = newest_model(member.home)
    setup = SetUp(spec.to_toml(), "0", str(Path().resolve()), False)
    return (await fork_server.evaluate(setup, held.data if held else None)).value


def run(out: Path, seed: int, nat: bool) -> Outcome:
    """Both sessions, and what is to be said of them."""
    spec = parse_spec(SPEC, "drill.toml")
    for name in ("quiet", "drill"):
        (out / name).mkdir(parents=True)
    quiet = asyncio.run(quiet_session(spec, out / "quiet"))
    with wan(CITIES, MBIT_PER_S * 1e6 / 8, reachable=RELAY + 1 if nat else None) as net:
        drill, value = asyncio.run(drilled_session(spec, out / "drill", net, seed, nat))
    completed_s = completions(drill)
    checks = [
        *_of_rounds(drill, completed_s),
        *_of_peers(drill),
        _of_models(drill),
        _of_accuracy(value, quiet),
    ]
    return Outcome(drill, completed_s, checks)


def lines(member: Member, event: str) -> list[dict[str, Any]]:
    """Of a member's log; kill -9 may have cut one off."""
    found = []
    for line in (member.home / LOG_FILE).read_bytes().splitlines():
        if line.startswith(b"{") and line.endswith(b"}"):
            found.append(msgspec.json.decode(line))
    return [line for line in found if line["event"] == event]


def completions(drill: Drill) -> dict[int, float]:
    """By round, when its model was there for the first time. The first begins with the first training; of one
    that was started again, the model is that of the round before."""
    members = drill.fleet.members
    started = [line["time"] for member in members for line in lines(member, "TrainingStarted")]
    kinds = ("AggregationCompleted", "RoundRestarted")
    done = [line for member in members for kind in kinds for line in lines(member, kind)]
    found = {1: min(started, default=drill.began_s)}
    for line in sorted(done, key=lambda line: line["time"]):
        found.setdefault(line["round"], line["time"])
    return {k: found[k] - drill.began_s for k in sorted(found)}


def durations(completed_s: dict[int, float]) -> dict[int, float]:
    """By round, how long it was until its model was there."""
    return {k: completed_s[k] - completed_s[before] for before, k in pairwise(sorted(completed_s))}


def _of_rounds(drill: Drill, completed_s: dict[int, float]) -> Iterator[Check]:
    missing = [k for k in range(1, ROUNDS + 1) if k not in completed_s]
    again = {line["round"] for member in drill.fleet.members for line in lines(member, "RoundRestarted")}
    found = f"without {missing}" if missing else f"all; started again: {sorted(again) or 'none'}"
    yield Check(f"{ROUNDS} of {ROUNDS} rounds", found, not missing)
    longest = max(durations(completed_s).values(), default=0.0)
    limit = 2 * AGGREGATION_S
    yield Check(f"no round takes more than {limit:g} s", f"longest {longest:.1f} s", longest <= limit)


def _of_peers(drill: Drill) -> Iterator[Check]:
    unfinished = [CITIES[member.number] for member in drill.remaining if not member.has_finished]
    left = len(drill.remaining)
    found = f"not {', '.join(unfinished)}" if unfinished else f"all {left} that remain"
    yield Check("peers end by themselves when the session has", found, not unfinished)
    yield Check("nobody dies who was not killed", ", ".join(drill.died) or "nobody", not drill.died)
    revoked = drill.revoked
    status = revoked.unexpected[-1:] if revoked is not None else []
    found = ", ".join(map(str, status)) or "it has not ended"
    is_told = status == [RevokedError.exit_code]
    yield Check("who is revoked ends, not to be started again", found, is_told)
    renewed = any(lines(member, "certificate_renewed") for member in drill.fleet.members)
    yield Check("the new certificate is used without a restart", "it is" if renewed else "it is not", renewed)
    errors = {CITIES[member.number]: said for member in drill.remaining if (said := _errors(member))}
    yield Check("no errors in logs", str(errors or "none"), not errors)


def _errors(member: Member) -> list[str]:
    found = [line for event in member.log.newest for line in lines(member, event) if line["level"] == "error"]
    return [f"{line['event']} {line.get('where', line.get('reason', ''))}" for line in found]


def _of_models(drill: Drill) -> Check:
    paths = [member.home / FINAL_MODEL for member in drill.remaining]
    hashes = {
        hashlib.sha256(path.read_bytes()).hexdigest()[:12] if path.exists() else "none" for path in paths
    }
    is_one = len(hashes) == 1 and "none" not in hashes
    return Check("the same final model everywhere", ", ".join(sorted(hashes)), is_one)


def _of_accuracy(value: float, quiet: float) -> Check:
    found = f"{100 * value:.1f} %, undisturbed {100 * quiet:.1f} %"
    return Check("accuracy within 2 points of an undisturbed session", found, abs(value - quiet) <= 0.02)


def page(outcome: Outcome, seed: int, nat: bool) -> str:
    """Every round, every event and the verdict."""
    drill, completed_s = outcome.drill, outcome.completed_s
    took_s = durations(completed_s)
    told = [
        f"The hospital drill, seed {seed}: {', '.join(CITIES)}; {MBIT_PER_S:g} Mbit/s each,"
        f" round trips up to {1000 * drill.net.longest_round_trip_s:.0f} ms"
        + (f"; all but {CITIES[RELAY]} behind NAT" if nat else ""),
        "",
    ]
    rounds = [
        (at, f"round {k:>2} is there after {took_s[k]:5.1f} s") for k, at in completed_s.items() if k > 1
    ]
    happened = [(at, f"    {what}") for at, what in drill.events]
    told += [f"{at // 60:3.0f}:{at % 60:04.1f}  {what}" for at, what in sorted([*rounds, *happened])]
    told += ["", *(f"{'PASS' if it.holds else 'FAIL'}  {it.what}: {it.found}" for it in outcome.checks)]
    return "\n".join(told)
