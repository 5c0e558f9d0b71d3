"""Live peers for a long time on this machine: what they cost, and whether anything grows.

python benchmarks/endurance.py crowd --peers 60 --minutes 10     # peers come and go every few seconds
python benchmarks/endurance.py soak --minutes 30                 # a day of operation, 48 times as fast

Ends with 1 if a line says FAIL. A third of a crowd, and half of the peers of a soak, are never restarted:
whether something grows is seen in them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import fmean
from typing import NamedTuple, TextIO

from plexus.errors import PlexusError
from plexus.live.fleet.fleet import Fleet
from plexus.live.fleet.members import Member
from plexus.live.identity.authority import REVOKED_FILE, Authority
from plexus.live.identity.keys import create_key
from plexus.live.identity.session_file import Session
from plexus.live.operator.control import ask
from plexus.live.operator.log import LOG_FILE
from plexus.live.state import RUN_FOLDER
from plexus.spec.experiment import parse_spec

MOST_MB, MOST_IDLE_SHARE = 70.0, 0.005
GROWTH_MB, GROWTH_DESCRIPTORS, GROWTH_STATE_BYTES, GROWTH_LOG = 2.0, 4.0, 64 * 1024, 1.5
"""From the second quarter of the time to the last: of the memory, descriptors and files of a peer, and how
many times as fast its log grows."""
Check = tuple[str, str, bool]
"""What must hold, what was found, and whether it holds."""
LOOK_S, SETTLED_S = 5.0, 30.0
WORK = ("TrainingStarted", "AggregatorChosen", "AggregationCompleted", "SampleDerived", "online")
DAY_H = 24.0
SPEC = """
name = "endurance"
nodes = {peers}
hours = 1
evaluation = {{ every_rounds = 50 }}
task = {{ name = "resting:build" }}
traces = {{ availability = "none" }}

[protocol]
sample_size = 5
success_fraction = 0.8
ping_timeout_s = 2.0
aggregation_timeout_s = 20.0
ack_timeout_s = 30.0
watchdog_s = 45.0
readvertise_s = 20.0
start_delay_s = 3.0
"""


class Look(NamedTuple):
    """What a process was like at a moment."""

    at_s: float
    pid: int
    memory_mb: float
    descriptors: int
    cpu_s: float
    log_bytes: int
    state_bytes: int
    work: int
    """Lines of its log that speak of work."""


@dataclass
class Watch:
    """All looks at all peers."""

    members: list[Member]
    looks: dict[int, list[Look]] = field(default_factory=dict)

    def look(self) -> None:
        for member in self.members:
            member.log.read()
            if member.process is not None and member.is_running:
                with suppress(OSError):  # it ends just now
                    self.looks.setdefault(member.number, []).append(_look_at(member, member.process.pid))

    def most_mb(self) -> float:
        return max(look.memory_mb for looks in self.looks.values() for look in looks)

    def idle_share(self) -> tuple[float, float]:
        """Of a core, which a peer without work needs: on average, and the most that one does."""
        shares = []
        for looks in self.looks.values():
            began = {
                pid: next(look.at_s for look in looks if look.pid == pid) for pid in {x.pid for x in looks}
            }
            pairs = [
                (a, b)
                for a, b in pairwise(looks)
                if a.pid == b.pid and a.work == b.work and a.at_s - began[a.pid] > SETTLED_S
            ]
            idle_s = sum(b.at_s - a.at_s for a, b in pairs)
            if idle_s > SETTLED_S:
                shares.append(sum(b.cpu_s - a.cpu_s for a, b in pairs) / idle_s)
        return (fmean(shares), max(shares)) if shares else (float("nan"), float("nan"))

    def course(self, numbers: list[int], of: Callable[[Look], float]) -> list[float]:
        """Of those who were never restarted, the mean in each quarter of the time."""
        found = [[fmean(map(of, quarter)) for quarter in self._quarters(number)] for number in numbers]
        return [fmean(each) for each in zip(*found, strict=True)]

    def log_bytes(self, numbers: list[int]) -> list[float]:
        """By how much a log grew, on average, in each quarter of the time."""
        found = [[x[-1].log_bytes - x[0].log_bytes for x in self._quarters(number)] for number in numbers]
        return [fmean(each) for each in zip(*found, strict=True)]

    def _quarters(self, number: int) -> list[list[Look]]:
        looks = self.looks[number]
        size = len(looks) // 4
        return [looks[at * size : (at + 1) * size] for at in range(4)]


def _look_at(member: Member, pid: int) -> Look:
    status = Path(f"/proc/{pid}/status").read_text()
    memory_kb = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    cpu_s = (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")
    files = [path for path in member.home.rglob("*") if path.is_file()]
    ours = [path for path in files if path.name != LOG_FILE and RUN_FOLDER not in path.parts]
    return Look(
        at_s=time.monotonic(),
        pid=pid,
        memory_mb=memory_kb / 1024,
        descriptors=len(os.listdir(f"/proc/{pid}/fd")),
        cpu_s=cpu_s,
        log_bytes=(member.home / LOG_FILE).stat().st_size,
        state_bytes=sum(path.stat().st_size for path in ours),
        work=sum(member.log.counts[event] for event in WORK),
    )


class Churn:
    """Peers come and go, with and without a goodbye."""

    def __init__(self, members: list[Member], rng: Random) -> None:
        self._members = members
        self._rng = rng
        self.ended = 0

    async def __call__(self) -> None:
        member = self._rng.choice(self._members)
        if member.is_running:
            await member.end(self._rng.choice([signal.SIGTERM, signal.SIGKILL]))
            self.ended += 1
        else:
            await member.start()


class Operation:
    """An hour of a day: a peer is restarted, another's certificate renewed, a visitor invited and removed."""

    def __init__(self, fleet: Fleet, session: Session, restarted: list[Member], rng: Random) -> None:
        self._fleet, self._session, self._restarted, self._rng = fleet, session, restarted, rng
        self._folder = fleet.out / "session"
        self._hours = 0

    async def __call__(self) -> None:
        self._hours += 1
        member = self._restarted[self._hours % len(self._restarted)]
        await member.end(signal.SIGTERM if self._hours % 2 else signal.SIGKILL)
        await member.start()
        other = self._rng.choice(self._fleet.members)
        await self._plexus("renew", other.id, "--days", "30", "--out", str(other.home / "node.crt"))
        visitor = self._fleet.out / f"visitor-{self._hours}"
        visitor.mkdir()
        public = create_key(visitor / "node.key").public_key().public_bytes_raw()
        authority = Authority.load(self._folder)
        authority.invite(public, self._session.digest, timedelta(days=1))
        await self._plexus("remove", f"ed25519:{public.hex()}")
        home = self._rng.choice(self._fleet.members).home
        (home / REVOKED_FILE).write_bytes((self._folder / REVOKED_FILE).read_bytes())

    async def _plexus(self, verb: str, *words: str) -> None:
        command = [sys.executable, "-m", "plexus", "session", verb, str(self._folder), *words]
        await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)


async def _ask_now_and_then(members: list[Member], every_s: float) -> None:
    """As monitoring does, one after the other."""
    while True:
        for member in members:
            await asyncio.sleep(every_s / len(members))
            if member.is_running:
                with suppress(PlexusError):  # it starts or ends
                    await asyncio.to_thread(ask, member.home, "status")


async def endure(
    fleet: Fleet, minutes: float, act: Callable[[], Awaitable[None]], every_s: float, asked_every_s: float
) -> Watch:
    """From the first process to the last; something is done every so often."""
    watch, until = Watch(fleet.members), time.monotonic() + 60 * minutes
    asking = asyncio.create_task(_ask_now_and_then(fleet.members, asked_every_s))
    next_act, next_look = time.monotonic() + SETTLED_S, time.monotonic()
    try:
        for member in fleet.members:
            await member.start()
        while (now := time.monotonic()) < until:
            await asyncio.sleep(0.2)
            if now >= next_look:
                next_look = now + LOOK_S
                watch.look()
            if now >= next_act:
                next_act += every_s
                await act()
            for member in fleet.members:
                if member.notice_death():
                    print(f"node {member.number} died: {member.log.last_words}", flush=True)
    finally:
        asking.cancel()
    return watch


def verdict(watch: Watch, constant: list[Member], is_crowd: bool) -> Iterator[Check]:
    members = watch.members
    errors = sum(member.log.errors for member in members)
    died = [f"{member.number}: {member.unexpected}" for member in members if member.unexpected]
    rounds = max(member.log.round for member in members)
    yield "rounds go on", f"{rounds} rounds", rounds > 10
    yield (
        "no errors",
        f"{errors} in logs; ended otherwise than told: {died or 'none'}",
        not errors and not died,
    )
    most = watch.most_mb()
    yield f"memory of a peer without its worker at most {MOST_MB:g} MB", f"{most:.1f} MB", most <= MOST_MB
    if is_crowd:
        mean, worst = watch.idle_share()
        found = f"{100 * mean:.2f} % on average, {100 * worst:.2f} % at most"
        yield (
            f"an idle peer needs at most {100 * MOST_IDLE_SHARE:g} % of a core",
            found,
            worst <= MOST_IDLE_SHARE,
        )
    grown: list[tuple[str, Callable[[Look], float], float]] = [
        ("memory [MB]", lambda look: look.memory_mb, GROWTH_MB),
        ("descriptors", lambda look: look.descriptors, GROWTH_DESCRIPTORS),
        ("state [bytes]", lambda look: look.state_bytes, GROWTH_STATE_BYTES),
    ]
    numbers = [member.number for member in constant]
    for what, of, limit in grown:
        course = watch.course(numbers, of)
        yield (
            f"{what} of a peer does not grow by more than {limit:g}",
            _show(course),
            course[3] - course[1] <= limit,
        )
    if is_crowd:
        return  # at first all are there, later half of them: there is more and more to say
    written = watch.log_bytes(numbers)
    what = f"logs do not come to grow {GROWTH_LOG:g} times as fast [bytes]"
    yield what, _show(written), written[3] <= GROWTH_LOG * written[1]


def _show(quarters: list[float]) -> str:
    return f"{', '.join(f'{each:,.1f}' for each in quarters)} in the quarters of the time"


async def run(kind: str, peers: int, minutes: float, out: Path) -> bool:
    rng = Random(1)
    spec = parse_spec(SPEC.format(peers=peers), "endurance.toml")
    fleet = Fleet(spec, out, None, base_dir=Path(__file__).parent)
    try:
        session = await fleet.prepare()
        constant = fleet.members[: max(1, peers // (3 if kind == "crowd" else 2))]
        others = fleet.members[len(constant) :]
        if kind == "crowd":
            watch = await endure(fleet, minutes, Churn(others, rng), 3.0, 60.0)
        else:
            hour_s = 60 * minutes / DAY_H
            act = Operation(fleet, session, others, rng)
            watch = await endure(fleet, minutes, act, hour_s, 15 * hour_s / 3600)
    finally:
        await fleet.close()
    print(f"{kind}: {peers} peers, {minutes:g} minutes, {sum(each.starts for each in fleet.members)} starts")
    return all_hold(verdict(watch, constant, kind == "crowd"))


def all_hold(verdict: Iterable[Check], file: TextIO | None = None) -> bool:
    """Says of each line whether it holds; whether all do."""
    checks = list(verdict)
    for what, found, is_so in checks:
        print(f"{'PASS' if is_so else 'FAIL'}  {what}: {found}", file=file)
    return all(is_so for *_, is_so in checks)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=["crowd", "soak"])
    parser.add_argument("--peers", type=int)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--out", type=Path, help="keep homes and logs here")
    given = parser.parse_args()
    peers = given.peers or (60 if given.kind == "crowd" else 8)
    with tempfile.TemporaryDirectory(prefix="plexus-") as scratch:
        out = given.out or Path(scratch)
        out.mkdir(parents=True, exist_ok=True)
        sys.exit(0 if asyncio.run(run(given.kind, peers, given.minutes, out)) else 1)


if __name__ == "__main__":
    main()
