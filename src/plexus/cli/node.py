"""`plexus node`: run one live peer and look after it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from plexus import quantities
from plexus.cli.groups import COUNT, HOME, JSON, NATURAL, PATH, Group, flag, option, print_json
from plexus.cli.session import check_deployable, read_session_file
from plexus.errors import PlexusError
from plexus.learn.rules import built
from plexus.live.identity.admission import KEY_FILE
from plexus.live.identity.keys import create_key, exposure, load_key, make_home, public_text
from plexus.live.operator.control import ask, wait_until_gone
from plexus.live.operator.log import Log
from plexus.live.peer import Peer, PeerConfig
from plexus.live.seats import LiveProtocol
from plexus.live.transport import addresses
from plexus.live.transport.limits import Limits
from plexus.machine import end_with_input
from plexus.protocol.api import Node
from plexus.protocol.parameters import ENDLESS
from plexus.protocol.view import MAX_BANDWIDTH_BYTES_PER_S
from plexus.spec.attackers import AttackerSpec, liars
from plexus.spec.experiment import ExperimentSpec, parse_spec

node = Group("node")


@node.command()
@HOME
def key(home: Path) -> None:
    """Print this node's public key; makes the key if there is none."""
    make_home(home)
    if exposed := exposure(home):
        click.echo(exposed, err=True)
    file = home / KEY_FILE
    own = load_key(file) if file.exists() else create_key(file)
    click.echo(public_text(own.public_key().public_bytes_raw()))


@node.command()
@click.argument("session_file", metavar="SESSION.toml", type=PATH)
@HOME
@option(
    "--data",
    "N|FILE",
    "What to learn from: part N of the session's data, an .npz of inputs and targets, or a table or"
    " folder that the task takes.",
    required=True,
)
@option("--task-dir", "DIR", "Where the task's module is.  [default: beside SESSION.toml]")
@option("--listen", "HOST:PORT", default="[::]:7000")
@option(
    "--advertise",
    "HOST:PORT|none",
    "Where others can dial this node, if not where it listens: behind a port forward.",
)
@option("--join", "HOST:PORT", "A member to begin with.", multiple=True)
@option("--at-least", "N", "Go online when links to so many others are up.", type=NATURAL, default=0)
@option("--bandwidth", "BYTES_PER_S", "What to tell others, if not what is measured.", type=NATURAL)
@option("--metrics", "HOST:PORT", "Answer Prometheus here.")
@option("--source", "HOST", "The local address to dial from.")
@option("--memory", "MB", "For models: more lie in files in --home.", type=COUNT)
@option(
    "--relay",
    "BYTES_PER_S",
    "What to carry at most for members that cannot reach each other; 0 for nothing.",
    type=NATURAL,
)
@flag("--server", "Be the server of a session of protocol fedavg or fedbuff.")
@flag("--stay", "Serve the final model when the session has ended.")
@option("--fork-server", type=PATH, hidden=True)
@option("--attackers", hidden=True)
@option("--log-level", type=click.Choice(["debug", "info", "warning"]), default="info")
def start(session_file: Path, home: Path, log_level: str, **options: Any) -> None:
    """Run a peer until the session ends, or it is told to stop (Ctrl-C, SIGTERM, `plexus node stop`).

    Logs to standard error, one JSON object a line.
    """
    config = peer_config(session_file, home=home, **options)
    if config.fork_server is not None:
        end_with_input()  # whoever runs the fleet is gone

    async def main() -> None:
        await Peer(config, Log(level=log_level)).run()

    asyncio.run(main())


def peer_config(
    session_file: Path,
    *,
    listen: str,
    task_dir: Path | None,
    advertise: str | None,
    join: tuple[str, ...],
    bandwidth: int | None,
    metrics: str | None,
    source: str | None,
    memory: int | None,
    relay: int | None = None,
    data: str,
    server: bool = False,
    attackers: str | None = None,
    **as_they_are: Any,
) -> PeerConfig:
    """The options of `node start` as what a peer needs."""
    if bandwidth is not None and bandwidth > MAX_BANDWIDTH_BYTES_PER_S:
        raise PlexusError(f"--bandwidth {bandwidth}: at most {MAX_BANDWIDTH_BYTES_PER_S} bytes per second")
    agreed, spec = read_session_file(session_file)
    check_deployable(session_file, spec, server)
    if spec.task.parameters.initial is not None:  # it is beside the session file, wherever the task is
        there = (session_file.parent / spec.task.parameters.initial).resolve()
        spec = parse_spec(spec.plain(), str(session_file), {"task.initial": str(there)})
    if attackers is not None:  # a rehearsal, of which the session's own file does not know
        spec = replace(spec, attackers=msgspec.json.decode(attackers, type=tuple[AttackerSpec, ...]))
    folder = (task_dir or session_file.parent).resolve()
    dial_only = advertise == "none"
    limits = Limits(relay_bytes_per_s=relay)
    protocol = live_protocol(spec, folder, server)
    course = ENDLESS
    if protocol.variation:
        course = spec.session.live(spec.nodes, protocol.parameters.sample_size)
    return PeerConfig(
        session=agreed,
        protocol=protocol,
        course=course,
        aggregation=built(spec.aggregation.parameters, folder),
        spec=spec.to_toml(),
        data=data,
        folder=folder,
        listen=said("--listen", listen, addresses.resolve),
        advertise=None if dial_only else said("--advertise", advertise, addresses.dialled),
        dial_only=dial_only,
        join=[said("--join", each, addresses.parse) for each in join],
        bandwidth_bytes_per_s=bandwidth,
        lie=liars(spec.attackers, spec.nodes, spec.seed).get(int(data)) if data.isdigit() else None,
        evaluate_every=spec.evaluation.every_rounds,
        metrics=said("--metrics", metrics, addresses.resolve),
        source=said("--source", source, lambda host: addresses.resolve(f"[{host}]:0")[0]),
        limits=limits if memory is None else replace(limits, memory_bytes=memory * 2**20),
        **as_they_are,
    )


def said(option: str, text: str | None, read: Callable[[str], Any]) -> Any:
    """What an option says, if it is given; a complaint about it names the option."""
    try:
        return None if text is None else read(text)
    except PlexusError as error:
        raise PlexusError(f"{option} {text}: {error}") from None


def live_protocol(spec: ExperimentSpec, folder: Path, is_server: bool) -> LiveProtocol:
    """What a peer runs; a module of the user's own and a topology's file are searched in `folder`."""
    name, parameters = spec.protocol.name, spec.protocol.parameters
    make: Callable[..., Node] | None = None
    if ":" in name:
        from plexus.sim.protocols import find

        entry, parameters = find(name, parameters, folder)
        make = entry.make
        if make is None:
            raise PlexusError(f"protocol {name} cannot run live: it was not made by plexus.own_protocol")
    elif name == "dpsgd":
        from plexus.protocol.baselines.dpsgd import DpsgdNode
        from plexus.sim.topologies import build_topology

        topology = build_topology(parameters, spec.nodes, spec.seed, folder)

        def make(me: int, initial_model: Any, **_: Any) -> Node:
            return DpsgdNode(me, topology, initial_model, parameters.round_duration_s, parameters.mixing)

    common = {"name": name, "parameters": parameters, "nodes": spec.nodes}
    return LiveProtocol(**common, make=make, is_server=is_server)


@node.command()
@HOME
@JSON
def status(home: Path, as_json: bool) -> None:
    """Show what the peer in --home is doing, what it waits for and since when.

    Ends with 0 if all is well, 1 if the peer is not online, 2 if there is none, 3 if there is a problem.
    """
    picture = ask(home, "status")
    print_json(picture) if as_json else click.echo(describe(picture))
    is_ready = picture["phase"] in ("online", "ended")
    sys.exit(3 if picture.get("problems", []) else 0 if is_ready else 1)


@node.command()
@HOME
def stop(home: Path) -> None:
    """Let the peer in --home leave the session and end."""
    ask(home, "stop")
    wait_until_gone(home)
    click.echo(f"the peer in {home} has left the session and ended")


def describe(picture: dict[str, Any]) -> str:
    first = (
        f"node {picture['node']} of session {picture['session']}: {picture['phase']}"
        f" for {quantities.clock(picture['phase_since_s'])}"
    )
    if picture["phase"] == "starting":
        return "\n".join([first, *map(_wait, picture["waiting_for"])])
    relayed = f" ({count} by way of others)" if (count := picture["peers"]["relayed"]) else ""
    lines = [
        f"{first}, at {picture['address']}",
        f"round {picture['round']}, {picture['peers']['linked']} linked{relayed} of"
        f" {picture['peers']['known']} known, bandwidth"
        f" {quantities.size(picture['bandwidth_bytes_per_s'])}/s",
    ]
    # A node that is sampled seldom may know only those of older rounds.
    sample, aggregator, newest = picture["sample"], picture["aggregator"], picture["round"] - 1
    if sample and sample["round"] >= newest:
        lines.append(f"sample of round {sample['round']}: {', '.join(sample['nodes'])}")
    if aggregator and aggregator["round"] >= newest:
        lines.append(f"aggregator of round {aggregator['round']}: {aggregator['node']}")
    if training := picture["training"]:
        lines.append(f"training for round {training['round']} since {training['since_s']} s")
    lines += map(_wait, picture["waiting_for"])
    if picture["phase"] == "online" and not training and not picture["waiting_for"]:
        lines.append("waits to be sampled")
    lines += map(_transfer, picture["transfers"])
    if metric := picture["metric"]:
        value = quantities.metric(metric["name"], metric["value"])
        lines.append(f"{metric['name']} {value} after round {metric['round']}")
    lines += [f"problem: {each}" for each in picture.get("problems", [])]
    lines.append(f"certificate good for {picture['certificate_days_left']} more days")
    return "\n".join(lines)


def _wait(wait: dict[str, Any]) -> str:
    line = f"waits for {wait['what']}" + (f" since {wait['since_s']} s" if "since_s" in wait else "")
    if "at_most_s" in wait:
        line += f", at most {wait['at_most_s']} s more"
    return f"{line}: {wait['reason']}" if wait.get("reason") else line


def _transfer(transfer: dict[str, Any]) -> str:
    way = "to" if transfer["way"] == "out" else "from"
    share = 100 * transfer["bytes"] / max(1, transfer["of_bytes"])
    return f"{transfer['kind']} of round {transfer['round']} {way} {transfer['peer']}: {share:.0f} %"
