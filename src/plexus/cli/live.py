"""The commands that found sessions and run live peers; part of the command line, which imports all."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tomllib
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from plexus.errors import PlexusError

if TYPE_CHECKING:
    from plexus.live.identity.session_file import Session
    from plexus.live.transport.addresses import Address
    from plexus.live.worker.channel import Ready
    from plexus.spec.experiment import ExperimentSpec

PATH = click.Path(path_type=Path)
HOME = click.option(
    "--home",
    type=PATH,
    metavar="DIR",
    default="plexus-node",
    show_default=True,
    help="The node's directory: key, certificate, state.",
)


@click.group()
def session() -> None:
    """Found a session and admit nodes to it."""


@session.command("init")
@click.argument("directory", metavar="DIR", type=PATH)
@click.option("--from", "spec_file", type=PATH, metavar="SPEC.toml", required=True)
@click.option(
    "--set",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    help="Change a key of the spec, e.g. nodes=3. May be given several times.",
)
@click.option("--json", "as_json", is_flag=True, help="Print name, digest and file as JSON.")
def session_init(directory: Path, spec_file: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Make DIR the home of a session that trains what SPEC.toml describes.

    Writes session.toml, which all peers get, and authority.key, which nobody gets.
    """
    from plexus.live.identity.session_file import SESSION_FILE, found_session
    from plexus.spec.experiment import load_spec

    founded = found_session(directory, load_spec(spec_file, overrides).plain())
    if as_json:
        facts = {"name": founded.name, "digest": founded.digest.hex()}
        click.echo(json.dumps({**facts, "file": str(directory / SESSION_FILE)}))
        return
    click.echo(f"session {founded.name} {founded.digest.hex()}")
    click.echo(f"give {directory / SESSION_FILE} to every peer; keep the rest to yourself")


@session.command("invite")
@click.argument("directory", metavar="DIR", type=PATH)
@click.argument("public_key", metavar="PUBLIC_KEY")
@click.option("--days", type=click.FloatRange(min=0, min_open=True), default=30.0, metavar="N")
@click.option("--out", type=PATH, metavar="FILE", help="[default: standard output]")
def session_invite(directory: Path, public_key: str, days: float, out: Path | None) -> None:
    """Admit the node with PUBLIC_KEY (from `plexus node key`): write its certificate.

    Send the certificate back to the node as node.crt in its home. It is not secret.
    """
    from plexus.files import write_text
    from plexus.live.identity.authority import Authority
    from plexus.live.identity.keys import parse_public

    agreed, _ = read_session_file(directory / "session.toml")
    public = parse_public(public_key)
    text = Authority.load(directory).invite(public, agreed.digest, timedelta(days=days))
    if out is None:
        click.echo(text, nl=False)
    else:
        write_text(out, text)
        click.echo(f"the certificate, good for {days:g} days, is in {out}")


@session.command("revoke")
@click.argument("directory", metavar="DIR", type=PATH)
@click.argument("node_name", metavar="NODE")
def session_revoke(directory: Path, node_name: str) -> None:
    """Take back the certificates of NODE: its public key, or the first digits of its id.

    Copy the new revoked.crl into the home of one running peer: it tells the others at once. NODE is out
    for good: to admit it again it needs a new key.
    """
    from plexus.live.identity.authority import Authority
    from plexus.live.identity.keys import node_key, parse_public

    authority = Authority.load(directory)
    if ":" in node_name:
        key = node_key(parse_public(node_name))
    elif re.fullmatch("[0-9a-fA-F]+", node_name):
        key = authority.find(node_name.lower())
    else:
        raise PlexusError(f"{node_name!r} is neither a public key nor a node's id")
    count = authority.revoke(key)
    click.echo(f"revoked {count} certificates of {key.hex()}; see {directory / 'revoked.crl'}")


@click.group()
def node() -> None:
    """Run one live peer and look after it."""


@node.command("key")
@HOME
def node_key_command(home: Path) -> None:
    """Print this node's public key; makes the key if there is none."""
    from plexus.live.identity.admission import KEY_FILE
    from plexus.live.identity.keys import exposure, load_or_create_key, make_home, public_text, raw_public

    make_home(home)
    if exposed := exposure(home):
        click.echo(exposed, err=True)
    key = load_or_create_key(home / KEY_FILE)
    click.echo(public_text(raw_public(key.public_key())))


@node.command("start")
@click.argument("session_file", metavar="SESSION.toml", type=PATH)
@HOME
@click.option(
    "--data",
    required=True,
    metavar="N|FILE",
    help="What to learn from: part N of the session's data, or an .npz of inputs and targets.",
)
@click.option(
    "--task-dir",
    type=PATH,
    metavar="DIR",
    help="Where the task's own module is.  [default: the folder of SESSION.toml]",
)
@click.option("--listen", default="[::]:7000", metavar="HOST:PORT", show_default=True)
@click.option(
    "--advertise",
    metavar="HOST:PORT|none",
    help="Where others can dial this node, if not where it listens: behind a port forward.",
)
@click.option("--join", multiple=True, metavar="HOST:PORT", help="A member to begin with.")
@click.option(
    "--at-least",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Go online when links to this many others are up.",
)
@click.option(
    "--bandwidth",
    type=click.IntRange(min=0),
    metavar="BYTES_PER_S",
    help="What to tell others, instead of what is measured.",
)
@click.option("--metrics", metavar="HOST:PORT", help="Answer Prometheus here.")
@click.option("--source", metavar="HOST", help="The local address to dial from.")
@click.option("--memory", type=click.IntRange(min=1), metavar="MB", help="For arriving models.")
@click.option("--fork-server", type=PATH, hidden=True)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning"]), default="info", show_default=True
)
def node_start(session_file: Path, home: Path, log_level: str, **options: Any) -> None:
    """Run a peer of the session until it is told to stop (Ctrl-C, SIGTERM, `plexus node stop`).

    Logs to standard error, one JSON object a line.
    """
    from plexus.live.operator.log import Log
    from plexus.live.peer import Peer

    config = peer_config(session_file, home, **options)
    log = Log(level=log_level)

    async def main() -> None:
        await Peer(config, log).run()

    asyncio.run(main())


def peer_config(
    session_file: Path,
    home: Path,
    data: str,
    listen: str,
    task_dir: Path | None = None,
    advertise: str | None = None,
    join: tuple[str, ...] = (),
    at_least: int = 0,
    bandwidth: int | None = None,
    metrics: str | None = None,
    source: str | None = None,
    memory: int | None = None,
    fork_server: Path | None = None,
) -> Any:
    """The options of `node start` as what a peer needs."""
    from plexus.live.peer import PeerConfig
    from plexus.live.transport import addresses
    from plexus.live.transport.limits import Limits
    from plexus.protocol.view import MAX_BANDWIDTH_BYTES_PER_S

    if bandwidth is not None and bandwidth > MAX_BANDWIDTH_BYTES_PER_S:
        raise PlexusError(f"--bandwidth {bandwidth}: at most {MAX_BANDWIDTH_BYTES_PER_S} bytes per second")
    agreed, spec = read_session_file(session_file)
    dial_only = advertise == "none"

    def resolved(text: str | None) -> Address | None:
        return None if text is None else addresses.resolve(text)

    return PeerConfig(
        home=home,
        session=agreed,
        parameters=_plexus_parameters(session_file, spec),
        aggregation=spec.aggregation,
        spec=spec.to_toml(),
        data=data,
        folder=(task_dir or session_file.parent).resolve(),
        listen=addresses.resolve(listen),
        advertise=None if dial_only else resolved(advertise),
        dial_only=dial_only,
        join=[address for each in join for address in addresses.resolve_all(each)],
        at_least=at_least,
        bandwidth_bytes_per_s=bandwidth,
        evaluate_every=spec.evaluation.every_rounds,
        metrics=resolved(metrics),
        source=source,
        fork_server=fork_server,
        limits=Limits() if memory is None else Limits(memory_bytes=memory * 2**20),
    )


def read_session_file(path: Path) -> tuple[Session, ExperimentSpec]:
    """A session file: what the peers agree on, and the spec."""
    from plexus.live.identity.session_file import read_session
    from plexus.spec.experiment import load_spec

    spec = load_spec(path)
    table = tomllib.loads(path.read_text(encoding="utf-8")).get("session")
    return read_session(path, table, spec.plain()), spec


def _plexus_parameters(path: Path, spec: ExperimentSpec) -> Any:
    if spec.protocol.name != "plexus":
        raise PlexusError(f"{path}: protocol {spec.protocol.name} cannot run live, only plexus can")
    return spec.protocol.parameters


@node.command("status")
@HOME
@click.option("--json", "as_json", is_flag=True, help="Print it as one JSON object.")
def node_status(home: Path, as_json: bool) -> None:
    """Show what the peer in --home is doing, what it waits for and since when."""
    import msgspec

    from plexus.cli.words import describe
    from plexus.live.operator.control import ask

    picture = ask(home, "status")
    if as_json:
        click.echo(msgspec.json.encode(picture))
    else:
        click.echo(describe(picture))


@node.command("stop")
@HOME
def node_stop(home: Path) -> None:
    """Let the peer in --home leave the session and end."""
    from plexus.live.operator.control import ask, wait_until_gone

    ask(home, "stop")
    wait_until_gone(home)
    click.echo(f"the peer in {home} has left the session and ended")


@click.command()
@click.argument("out", metavar="FILE.safetensors", type=PATH)
@HOME
def export(out: Path, home: Path) -> None:
    """Write the newest model that the peer in --home holds, whether it runs or not."""
    from plexus.files import write_bytes
    from plexus.live.state import MODEL_SUFFIX, newest_model

    if out.suffix != MODEL_SUFFIX:
        raise PlexusError(f"{out}: models are written as safetensors: use {out.stem}{MODEL_SUFFIX}")
    if not out.parent.is_dir():
        raise PlexusError(f"{out.parent}: no such folder")
    held = newest_model(home)
    if held is None:
        raise PlexusError(f"{home}: this node holds no model but the initial one yet")
    write_bytes(out, held[1])
    click.echo(f"the model of round {held[0]} is in {out}")


@click.group()
def fleet() -> None:
    """Run many live peers on this machine."""


@fleet.command("run")
@click.argument("spec_file", metavar="SESSION.toml", type=PATH)
@click.option("--nodes", type=click.IntRange(min=1), metavar="N", help="[default: the file's]")
@click.option("--seconds", type=click.FloatRange(min=1), default=60.0, show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), metavar="N", help="Stop after this round.")
@click.option(
    "--set",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    help="Change a key of the file, e.g. protocol.sample_size=5. May be given several times.",
)
@click.option("--out", type=PATH, metavar="DIR", help="[default: runs/fleet-NAME]")
@click.option("--force", is_flag=True, help="Replace an earlier fleet in --out.")
@click.option(
    "--shape",
    is_flag=True,
    help="Give every node the latency and bandwidth of its device in the file's [traces].",
)
@click.option(
    "--churn",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SPEED",
    help="Let nodes come and go by the file's [traces], this many times as fast.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON object.")
def fleet_run(spec_file: Path, overrides: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Run the session of SESSION.toml with a process per node, over TLS on loopback.

    Makes an authority and keys of its own. Keys, logs and states of the nodes stay in --out.
    """
    import msgspec

    from plexus.cli.words import fleet_table, next_steps, share_of_data
    from plexus.live.fleet.fleet import FleetConfig, run_fleet
    from plexus.spec.experiment import load_spec

    def tell(ready: Ready) -> None:
        if ready.shared_out < ready.examples:
            click.echo(share_of_data(config.nodes or spec.nodes, ready), err=True)

    spec = load_spec(spec_file, overrides)
    _plexus_parameters(spec_file, spec)
    config = FleetConfig(**options)
    result = asyncio.run(run_fleet(spec, spec_file.parent, config, tell))
    if as_json:
        click.echo(msgspec.json.encode(result))
    else:
        fleet_table(result)
    if result.failed:
        sys.exit(1)
    click.echo(next_steps(result), err=True)


@click.command("transport")
@click.option("--megabytes", type=click.IntRange(min=1), default=100, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def bench_transport(megabytes: int, as_json: bool) -> None:
    """The network of live peers on loopback: throughput, round trips, an aggregator's memory."""
    import msgspec

    from plexus.bench.transport import bench

    result = bench(megabytes)
    if as_json:
        click.echo(msgspec.json.encode(result))
    else:
        for name in result.__struct_fields__:
            click.echo(f"{name:32} {getattr(result, name):.6g}")
