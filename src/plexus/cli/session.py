"""`plexus session`: found a session and admit nodes to it."""

from __future__ import annotations

import sys
import time
import tomllib
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import click

from plexus.cli.groups import JSON, PATH, Group, answer, option, set_option
from plexus.errors import PlexusError
from plexus.files import write_text
from plexus.live.identity.authority import FAR_FUTURE, REVOKED_FILE, Admitted, Authority
from plexus.live.identity.keys import parse_public, public_text
from plexus.live.identity.session_file import MODEL_FILE, SESSION_FILE, Session, found_session, read_session
from plexus.live.operator.control import ask
from plexus.live.seats import complaint
from plexus.live.state import standing
from plexus.protocol.parameters import unknown_metric
from plexus.protocol.roster import key_of
from plexus.spec.experiment import ExperimentSpec, load_spec
from plexus.spec.toml import located

session = Group("session")


def _bounded(_: click.Context, __: click.Parameter, days: float) -> float:
    """No certificate outlives the authority's; and `nan` is no number of days."""
    if not 0 < days <= FAR_FUTURE.days:
        raise PlexusError(f"--days {days:g}: must be above 0 and at most {FAR_FUTURE.days}")
    return days


def _in_a_folder(_: click.Context, __: click.Parameter, out: Path | None) -> Path | None:
    """Said before a certificate is made that nobody gets."""
    if out is not None and not out.parent.is_dir():
        raise PlexusError(f"{out.parent}: no such folder")
    return out


DIRECTORY = click.argument("directory", metavar="DIR", type=PATH)
NODE = click.argument("node_name", metavar="NODE")
DAYS = option("--days", "N", type=float, default=30.0, show_default=True, callback=_bounded)
OUT = option("--out", "FILE", "[default: standard output]", callback=_in_a_folder)


@session.command()
@DIRECTORY
@option("--from spec_file", "SPEC.toml", required=True)
@option("--model", "FILE", "Start from this model, as `plexus export` wrote it.")
@set_option("a key of the spec, e.g. nodes=3")
@JSON
def init(
    directory: Path, spec_file: Path, model: Path | None, overrides: tuple[str, ...], as_json: bool
) -> None:
    """Make DIR the home of a session that trains what SPEC.toml describes.

    Writes session.toml, which all peers get, with model.safetensors if there is one, and authority.key,
    which nobody gets.
    """
    spec = load_spec(spec_file, overrides)
    check_deployable(spec_file, spec)
    if model is None and (named_in_spec := spec.task.parameters.initial) is not None:
        model = spec_file.parent / Path(named_in_spec).expanduser()
    frozen = frozen_weights(spec, spec_file.parent) if ":" in spec.task.name else ""
    founded = found_session(directory, spec.plain(), model, frozen)
    name, digest, file = founded.name, founded.digest.hex(), str(directory / SESSION_FILE)
    files = " and ".join([file, *([str(directory / MODEL_FILE)] if model else [])])
    said = f"session {name} {digest}", f"give {files} to every peer; keep the rest to yourself"
    answer({"name": name, "digest": digest, "file": file}, as_json, *said)


@session.command()
@DIRECTORY
@click.argument("public_key", metavar="PUBLIC_KEY")
@option("--name", "NAME", "What you call this machine in other commands.")
@DAYS
@OUT
def invite(directory: Path, public_key: str, name: str | None, days: float, out: Path | None) -> None:
    """Admit the node with PUBLIC_KEY (from `plexus node key`): write its certificate.

    Send the certificate back to the node as node.crt in its home. It is not secret.
    """
    agreed, _ = read_session_file(directory / SESSION_FILE)
    public = parse_public(public_key)
    authority = Authority.load(directory)
    was = next((each.name for each in authority.nodes() if each.public_key == public_text(public)), "")
    certificate = authority.invite(public, agreed.digest, timedelta(days=days), name)
    if was and name not in (None, was):
        click.echo(f"this node was {was}, and is {name} from now on", err=True)
    _hand_out(certificate, days, out, authority.newest_list().nodes[key_of(public)])


@session.command()
@DIRECTORY
@NODE
@DAYS
@OUT
def renew(directory: Path, node_name: str, days: float, out: Path | None) -> None:
    """Write another certificate for NODE: its name, its public key, or the first digits of its id.

    Put it into the node's home as node.crt: a running peer takes it over within seconds.
    """
    agreed, _ = read_session_file(directory / SESSION_FILE)
    authority = Authority.load(directory)
    key = authority.resolve(node_name)
    certificate = authority.renew(key, agreed.digest, timedelta(days=days))
    _hand_out(certificate, days, out, authority.newest_list().nodes[key])


def _hand_out(certificate: str, days: float, out: Path | None, node: Admitted) -> None:
    left = (node.until_s - time.time()) / 86400
    if left > days:
        has = f"the node has a certificate that is good for {left:.1f} days, and a running peer keeps"
        click.echo(f"{has} that one; `plexus session remove` takes it back", err=True)
    if out is None:
        click.echo(certificate, nl=False)
    else:
        write_text(out, certificate)
        click.echo(f"the certificate, good for {days:g} days, is in {out}")


@session.command(name="list")
@DIRECTORY
@JSON
def list_nodes(directory: Path, as_json: bool) -> None:
    """List the nodes that were invited to the session whose authority is in DIR, and until when."""
    nodes = Authority.load(directory).nodes()
    width = max([4, *(len(each.name) for each in nodes)])
    lines = [f"{'name':<{width}}  {'node':<12}  {'state':<8}  days left"]
    lines += [f"{n.name:<{width}}  {n.node:<12}  {n.state:<8}  {n.days_left:>9}" for n in nodes]
    answer({"nodes": nodes}, as_json, *(lines if nodes else ["nobody was invited yet"]))


@session.command()
@DIRECTORY
@NODE
def remove(directory: Path, node_name: str) -> None:
    """Let NODE (its name, public key or id) leave in peace: its certificates count no more.

    Copy the new revoked.crl into the home of one running peer: it tells the others at once. NODE may be
    invited again, with the same key.
    """
    _take_back(directory, node_name, "took back", for_good=False)


@session.command()
@DIRECTORY
@NODE
def revoke(directory: Path, node_name: str) -> None:
    """Take back the certificates of NODE: its name, its public key, or the first digits of its id.

    Copy the new revoked.crl into the home of one running peer: it tells the others at once. NODE is out
    for good: to admit it again it needs a new key.
    """
    _take_back(directory, node_name, "revoked", for_good=True)


def _take_back(directory: Path, name: str, done: str, for_good: bool) -> None:
    authority = Authority.load(directory)
    key = authority.resolve(name)
    count = authority.revoke(key, for_good)
    click.echo(f"{done} {count} certificates of {key.hex()}; see {directory / REVOKED_FILE}")


@session.command()
@click.argument("home", metavar="HOME", type=PATH)
@JSON
def status(home: Path, as_json: bool) -> None:
    """Show how far the session is, by what the peer in HOME has on its disk, whether it runs or not.

    Ends with 0 if the session has come to its end and the final model is here, else with 1.
    """
    found = standing(home)
    lines = [found.sentence]
    if not found.round:
        with suppress(PlexusError):  # no peer is running here
            lines += [f"waits for {each['what']}" for each in ask(home, "status")["waiting_for"]]
    answer(found, as_json, *lines)
    sys.exit(0 if found.ended and found.final_model else 1)


@session.command()
@click.argument("homes", metavar="HOME...", type=PATH, nargs=-1, required=True)
@JSON
def suspects(homes: tuple[Path, ...], as_json: bool) -> None:
    """Add up what peers refused, from whom and why, by their logs.

    HOME is a peer's home, the folder of a fleet, or the file that a peer's log went to. Take back the
    certificates of who should not be there with `plexus session revoke`.
    """
    from plexus.live.operator import log

    found = log.suspects(homes)
    lines = [f"{'node':<12}  {'times':>6}  {'peers':>5}  why it was refused"]
    lines += [f"{n.node:<12}  {n.times:>6}  {len(n.homes):>5}  {n.reason}" for n in found]
    answer({"suspects": found}, as_json, *(lines if found else ["nobody was refused anything"]))


def read_session_file(path: Path) -> tuple[Session, ExperimentSpec]:
    path = located(path)
    spec = load_spec(path)
    return read_session(path, tomllib.loads(path.read_text(encoding="utf-8")), spec.plain()), spec


def frozen_weights(spec: ExperimentSpec, folder: Path) -> str:
    """The hash of the weights that nobody trains or sends, for the session's digest; empty if there are none.

    Who founds a session need not have the task's code or data. Every model says it, too.
    """
    from plexus.learn.tasks import build_task
    from plexus.learn.trainer import frozen_hash

    try:
        return frozen_hash(build_task(spec.task.parameters, spec.nodes, spec.seed, folder))
    except PlexusError as error:
        unknown = "whether weights are frozen is not in the digest, as the task is not here"
        click.echo(f"{unknown}: {error}", err=True)
        return ""


def check_deployable(path: Path, spec: ExperimentSpec, is_server: bool = False) -> None:
    """Complain of a session that asks for what live peers cannot do."""
    if wrong := complaint(spec.protocol.name, spec.protocol.parameters, is_server):
        raise PlexusError(f"{path}: {wrong}")
    measured = getattr(spec.task.parameters, "metric", None)  # of a task of one's own its peers know it
    if measured and (wrong := unknown_metric(spec.session, measured)):
        raise PlexusError(f"{path}: {wrong}")
    if spec.faults:
        raise PlexusError(f"{path}: faults are simulated; live peers cannot run a spec that has some")
    if not spec.evaluation.every_rounds:
        raise PlexusError(f"{path}: evaluation.every_rounds is 0, but live peers evaluate by rounds")
    if spec.attackers:
        raise PlexusError(f"{path}: attackers are for `plexus run` and `plexus fleet run` alone")
