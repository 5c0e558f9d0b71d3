"""Other protocols than Plexus as live peers: the same nodes, their effects performed for real."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

import plexus
from plexus.errors import PlexusError
from plexus.live.fleet.fleet import Fleet, FleetConfig, run_fleet
from plexus.live.fleet.members import Member
from plexus.live.identity.session_file import found_session
from plexus.live.operator.control import ask
from plexus.live.operator.status import Status
from plexus.live.seats import LiveProtocol, Seated, other
from plexus.protocol import wire
from plexus.protocol.api import (
    Durable,
    Effect,
    PeerLost,
    Received,
    Report,
    Save,
    Send,
    SetTimer,
    TimerFired,
    WentOffline,
    WentOnline,
)
from plexus.protocol.baselines.dpsgd import DpsgdParameters
from plexus.protocol.baselines.fedavg import FedavgParameters
from plexus.protocol.baselines.fedbuff import FedbuffParameters
from plexus.protocol.baselines.gossip import GossipParameters
from plexus.protocol.baselines.teleportation import TeleportationParameters
from plexus.protocol.facts import ModelUpdated, ServerLost
from plexus.protocol.messages import GlobalModel, Joined, Left, NeighbourModel, Ping, Pong
from plexus.protocol.parameters import PlexusParameters
from plexus.protocol.registry import SERVERS
from plexus.protocol.roster import Roster, key_of
from plexus.protocol.view import View
from plexus.spec.experiment import ExperimentSpec, parse_spec
from tests.live.party import Party
from tests.live.test_failures import status_of

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENCE_S = 90.0
KEYS = [key_of(b"node %d" % number) for number in range(4)]
SPEC = """
name = "others"
nodes = 3
hours = 1
evaluation = { every_rounds = 2 }
task = { name = "digits", hidden = 16, learning_rate = 0.1, partition = "iid" }
traces = { availability = "none" }
"""
PROTOCOLS = {
    "gossip": 'name = "gossip"\nperiod_s = 0.5',
    "epidemic": 'name = "epidemic"\nround_duration_s = 1.0\nfanout = 2',
    "dpsgd": 'name = "dpsgd"\nround_duration_s = 1.0\ntopology = "ring"\nmixing = "metropolis"',
    "fedavg": 'name = "fedavg"\nsample_size = 3\nstart_delay_s = 1.0\naggregation_timeout_s = 3.0',
    "teleportation": 'name = "teleportation"\nround_duration_s = 1.0\nactive = 2',
    "fedbuff": 'name = "fedbuff"\nconcurrency = 2\nbuffer_size = 2\nstart_delay_s = 1.0',
    "whisper:whisper": 'name = "whisper:whisper"\npause_s = 0.5',
    "first_in_line:first_in_line": 'name = "first_in_line:first_in_line"\nsample_size = 3\nstart_delay_s = 1',
}


def spec_of(name: str) -> ExperimentSpec:
    return parse_spec(f"{SPEC}\n[protocol]\n{PROTOCOLS[name]}\n", "others.toml")


class Echo:
    """A protocol of one's own that says what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.answer: list[Effect] = []

    def handle(self, now: float, event: Any) -> list[Effect]:
        self.told.append(event)
        return self.answer


class Note(plexus.Message, frozen=True):
    number: int


def seated(protocol: LiveProtocol, held: Durable | None = None) -> Seated:
    """The node with the first key, which has another seat: those are in the order of keys."""
    node = other(
        protocol,
        KEYS,
        Roster(b"session", KEYS),
        me=0,
        view=View.of(4, [(number, 1) for number in range(1, 4)]),
        bandwidth_bytes_per_s=1,
        initial_model="initial",
        rng=Random(1),
        durable=held or Durable(0, 0, "initial"),
        address=bytes(18),
    )
    assert isinstance(node, Seated)
    return node


SEATS = [sorted(KEYS).index(key) for key in KEYS]


def test_nodes_know_seats_and_the_network_knows_numbers() -> None:
    echo = Echo()
    node = seated(LiveProtocol(name="echo:echo", parameters=None, nodes=4, make=lambda **place: echo))
    node.handle(0.0, WentOnline())
    assert echo.told == [WentOnline()]
    assert Note in node.messages
    echo.answer = [Send((SEATS[3], 17), Note(1)), SetTimer(("ping", 5), 2.0)]
    effects = node.handle(1.0, Received(2, Note(1)))
    assert echo.told[-1] == Received(SEATS[2], Note(1))
    assert effects == [Send((3,), Note(1)), SetTimer(("its own ping", 5), 2.0)]
    echo.answer = []
    node.handle(2.0, TimerFired(("its own ping", 5)))
    assert echo.told[-1] == TimerFired(("ping", 5))
    told = len(echo.told)
    node.handle(3.0, PeerLost(1))
    node.handle(3.0, TimerFired(("readvertise", 0)))
    assert any(isinstance(each, Send) for each in node.handle(3.0, Received(1, Ping(1, 1)))), "it is answered"
    assert len(echo.told) == told, "what is not in the documentation is not told"


def test_own_messages_travel_behind_those_of_the_session() -> None:
    roster = Roster(b"session", KEYS)
    assert Note in wire.own_kinds()
    frame = wire.encode(Note(7), roster)
    assert wire.decode(frame[wire.LENGTH_BYTES :], roster) == (Note(7), 0)


def test_the_newest_model_is_kept_and_given_to_the_node_that_starts_again() -> None:
    echo = Echo()
    given: dict[str, Any] = {}

    def make(**place: Any) -> Echo:
        given.update(place)
        return echo

    protocol = LiveProtocol(name="echo:echo", parameters="these", nodes=4, make=make)
    node = seated(protocol, Durable(6, 3, "held"))
    assert (given["me"], given["nodes"], given["parameters"]) == (SEATS[0], 4, "these")
    assert given["initial_model"] == "held"
    node.handle(0.0, WentOnline())
    echo.answer = [Report(ModelUpdated(4, "newer", 1)), Save(Durable(0, 1, "its own idea"))]
    save, report = node.handle(1.0, Received(1, Note(1)))
    assert isinstance(save, Save) and isinstance(report, Report)
    kept = save.state
    assert (kept.counter, kept.round, kept.ordinal, kept.model) == (7, 4, 4, "newer")
    echo.answer = []
    left = [each for each in node.handle(2.0, WentOffline()) if isinstance(each, Save)]
    assert (left[0].state.counter, left[0].state.model) == (8, "newer")


def test_d_psgd_sends_along_the_topology_of_seats_and_needs_everybody() -> None:
    from plexus.protocol.baselines.dpsgd import DpsgdNode
    from plexus.protocol.baselines.topology import ring

    def make(me: int, initial_model: Any, **_: Any) -> DpsgdNode:
        return DpsgdNode(me, ring(4), initial_model, 10.0)

    protocol = LiveProtocol(name="dpsgd", parameters=DpsgdParameters(), nodes=4, make=make)
    node = seated(protocol)
    node.handle(1.0, WentOnline())
    effects = node.handle(2.0, plexus.Trained(1, "trained", 1))
    (sent,) = [each for each in effects if isinstance(each, Send)]
    assert isinstance(sent.body, NeighbourModel)
    beside = {(SEATS[0] - 1) % 4, (SEATS[0] + 1) % 4}
    assert {SEATS[number] for number in sent.to} == beside
    five = LiveProtocol(name="dpsgd", parameters=DpsgdParameters(), nodes=5, make=make)
    with pytest.raises(PlexusError, match="one of all 5 nodes, and 4 are invited: invite all before"):
        seated(five)


@pytest.mark.parametrize(
    ("name", "parameters", "silence"),
    [
        ("fedavg", FedavgParameters(sample_size=3, success_fraction=1.0), "its own round"),
        ("fedbuff", FedbuffParameters(concurrency=2), "its own client"),
    ],
)
def test_a_server_asks_whom_it_hears_of_and_goes_on_where_it_was(
    name: str, parameters: Any, silence: str
) -> None:
    protocol = LiveProtocol(name=name, parameters=parameters, nodes=3, is_server=True)
    server = seated(protocol, Durable(1, 9, "held"))
    server.handle(0.0, WentOnline())
    server.handle(1.0, Received(2, Left(5)))
    (sent,) = server.handle(5.0, TimerFired(("its own start", 0)))[:1]
    assert isinstance(sent, Send) and sent.body == GlobalModel(9, "held")
    assert set(sent.to) == {1, 3}, "who has left is not asked, nor the server itself"
    server.handle(6.0, Received(2, Joined(6, 1)))
    gone = 0 if name == "fedavg" else SEATS[1]
    assert server.handle(400.0, TimerFired((silence, gone)))[0].to == (2,)  # type: ignore[attr-defined]


def test_a_client_serves_whoever_sends_it_a_model_and_says_that_the_server_is_gone() -> None:
    protocol = LiveProtocol(name="fedavg", parameters=FedavgParameters(), nodes=3)
    client = seated(protocol)
    client.handle(0.0, WentOnline())
    assert client.handle(1.0, PeerLost(2)) == []
    client.handle(2.0, Received(2, GlobalModel(4, "global")))
    (sent,) = client.handle(3.0, plexus.Trained(4, "trained", 8))
    assert isinstance(sent, Send) and sent.to == (2,)
    lost = client.handle(4.0, PeerLost(2))
    assert lost == [Report(ServerLost("nobody trains until it is back"))]


def test_teleportation_finds_the_active_nodes_by_its_own_view() -> None:
    parameters = TeleportationParameters(active=4, round_duration_s=10.0)
    node = other(
        LiveProtocol(name="teleportation", parameters=parameters, nodes=4),
        KEYS,
        Roster(b"session", KEYS),
        me=0,
        view=View.of(4, [(number, 1) for number in range(1, 4)]),
        bandwidth_bytes_per_s=1,
        initial_model="initial",
        rng=Random(1),
        durable=Durable(0, 0, "initial"),
        address=bytes(18),
    )
    effects = node.handle(1.0, WentOnline())
    (asked,) = [each for each in effects if isinstance(each, Send) and isinstance(each.body, Ping)]
    assert set(asked.to) == {1, 2, 3}
    answers = [node.handle(2.0, Received(each, Pong(asked.body.exchange, 0, 0, 0))) for each in asked.to]
    assert plexus.Train(1, "initial") in answers[-1]


@pytest.mark.parametrize(
    ("name", "parameters", "patience_s"),
    [
        ("plexus", PlexusParameters(watchdog_s=1000.0), 2000.0),
        ("gossip", GossipParameters(period_s=60.0), 1800.0),
        ("gossip", GossipParameters(period_s=600.0), 6000.0),
        ("teleportation", TeleportationParameters(round_duration_s=300.0), 3000.0),
        ("fedavg", FedavgParameters(), math.inf),
        ("echo:echo", None, 1800.0),
    ],
)
def test_no_progress_is_a_problem_of_every_protocol_in_which_each_node_has_its_turn(
    name: str, parameters: Any, patience_s: float, tmp_path: Path
) -> None:
    protocol = LiveProtocol(name=name, parameters=parameters, nodes=4)
    assert protocol.patience_s == patience_s
    status = Status("s", Party(tmp_path).admission("a"), protocol.patience_s)
    found = [f"{what} for 7000 s" for what in ("no progress", "the training worker has read nothing")]
    problems = [each for each in status._problems(7000.0, 7000.0) if "certificate" not in each]
    assert problems == (found if patience_s < 7000.0 else [])


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--protocol", "dpsgd"], "protocol.round_duration_s is not set: live, a round of this protocol"),
        (["--protocol", "epidemic"], "protocol.round_duration_s is not set: live, a round of this protocol"),
        (["--protocol", "teleportation"], "protocol.round_duration_s is not set: live, a round of this"),
        (["--protocol", "gosip"], "'gosip' is not one of"),
        (
            ["--protocol", "gossip", "--set", "session.rounds=3"],
            "only the protocol plexus has a beginning and an end, not gossip",
        ),
        (["--protocol", "fedavg", "--shape"], "--shape and --churn: the server of fedavg is in no trace"),
    ],
)
def test_what_cannot_run_live_is_said_in_one_line(
    words: list[str], complaint: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert status_of("fleet", "run", "quickstart", "--out", str(tmp_path / "fleet"), *words) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert complaint in line
    assert not (tmp_path / "fleet").exists()


def test_only_sessions_with_a_clock_say_when_they_were_founded(tmp_path: Path) -> None:
    for name, has_clock in (("gossip", False), ("epidemic", True), ("whisper:whisper", True)):
        session = found_session(tmp_path / name[:4], spec_of(name).plain())
        assert bool(session.founded_s) == has_clock
        text = (tmp_path / name[:4] / "session.toml").read_text()
        assert ("founded" in text) == has_clock
        from plexus.cli.session import read_session_file

        again, _ = read_session_file(tmp_path / name[:4] / "session.toml")
        assert again == session
        if has_clock:
            (tmp_path / name[:4] / "session.toml").write_text(text.replace('founded = "', 'founded = "1'))
            with pytest.raises(PlexusError, match=r"session\.digest is"):
                read_session_file(tmp_path / name[:4] / "session.toml")


@pytest.mark.slow
@pytest.mark.parametrize("name", list(PROTOCOLS))
def test_three_peers_learn(name: str, tmp_path: Path) -> None:
    for example in ("whisper.py", "first_in_line.py"):
        shutil.copy(EXAMPLES / example, tmp_path)
    # By the clock, rounds pass while peers start.
    rounds = 30 if "round_duration_s" in PROTOCOLS[name] else 14
    config = FleetConfig(seconds=PATIENCE_S, rounds=rounds, out=tmp_path / "fleet")
    result = asyncio.run(run_fleet(spec_of(name), tmp_path, config))
    assert not result.failed
    assert result.rounds >= rounds
    assert result.best_metric > 0.5, "it began with a tenth"
    assert [node.errors for node in result.nodes] == [0] * (4 if name in SERVERS else 3)
    measured = (tmp_path / "fleet" / "evaluations.csv").read_text().splitlines()
    assert len(measured) > 2, "peers measure their models on the way"


async def until(fleet: Fleet, is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            await asyncio.sleep(0.1)
            for member in fleet.members:
                member.log.read()
                assert not member.notice_death(), f"node {member.number} died by itself"


@pytest.mark.slow
def test_a_killed_peer_does_not_stop_gossip_and_goes_on_where_it_was(tmp_path: Path) -> None:
    async def story() -> None:
        fleet = Fleet(spec_of("gossip"), tmp_path / "fleet", world=None)
        try:
            await fleet.prepare()
            one, two, killed = fleet.members
            await asyncio.gather(*(member.start() for member in fleet.members))
            await until(fleet, lambda: min(member.log.round for member in fleet.members) >= 3)
            await killed.end(signal.SIGKILL)
            held, before = killed.log.round, max(one.log.round, two.log.round)
            await until(fleet, lambda: min(one.log.round, two.log.round) >= before + 5)
            await killed.start()
            await until(fleet, lambda: killed.log.round > held + 1)
        finally:
            await fleet.close()

    asyncio.run(story())


def idle_s(member: Member) -> float:
    return float(ask(member.home, "status")["since_progress_s"])


@pytest.mark.slow
def test_without_its_server_nobody_trains_which_is_said_and_with_it_they_go_on(tmp_path: Path) -> None:
    async def story() -> None:
        fleet = Fleet(spec_of("fedavg"), tmp_path / "fleet", world=None)
        try:
            await fleet.prepare()
            *clients, server = fleet.members
            await asyncio.gather(*(member.start() for member in fleet.members))
            await until(fleet, lambda: server.log.round >= 3)
            await server.end(signal.SIGKILL)
            await until(fleet, lambda: all(each.log.counts["ServerLost"] for each in clients))
            before = server.log.round
            await until(fleet, lambda: idle_s(clients[0]) > 3.0)
            await server.start()
            await until(fleet, lambda: server.log.round > before + 2)
            await until(fleet, lambda: idle_s(clients[0]) < 3.0 and idle_s(server) < 3.0)
        finally:
            await fleet.close()
        lines = [json.loads(line) for line in (clients[0].home / "log.jsonl").read_text().splitlines()]
        lost = next(line for line in lines if line["event"] == "ServerLost")
        assert lost["reason"] == "nobody trains until it is back"

    asyncio.run(story())
