"""`plexus storm`: seeded storms over the real nodes, on all cores; exit 1 if an invariant does not hold."""

from __future__ import annotations

import os
import re

import click

from plexus.cli.groups import COUNT, JSON, NATURAL, POSITIVE, flag, option, print_json
from plexus.errors import PlexusError
from plexus.machine import usable_cores
from plexus.storm.plan import Plan, draw
from plexus.storm.seeds import BrokenSeed, SeedsReport, run_seeds, shrink
from plexus.storm.storm import Finding, Storm, run_storm

MOST_SHOWN = 3
"""So many findings are shrunk and shown with their trace; of more, only the seeds are."""
FRESH_SEEDS_FROM = 1_000_000


@click.command()
@option("--seeds", "A..B", "The storms to run.  [default: 1..200]")
@option("--seed", "N", "One storm.", type=NATURAL)
@option("--minutes", "M", "Fresh seeds, or those of --seeds, for so long.", type=POSITIVE)
@flag("--trace", "Print the storm of --seed as a conversation.")
@JSON
@option("--workers", "N", "Processes.  [default: all cores]", type=COUNT)
def storm(
    seeds: str | None,
    seed: int | None,
    minutes: float | None,
    trace: bool,
    as_json: bool,
    workers: int | None,
) -> int:
    """Find ways in which a session fails: networks under faults, watched by checkers.

    A seed draws the size of a network, a protocol, its parameters and its faults. When the faults stop,
    rounds must go on and views must agree. A storm that breaks a rule is printed with its seed, the rule and
    the last things said, and the exit status is 1. docs/guarantees.md says what is checked.
    """
    if seed is not None and seeds is not None:
        raise click.UsageError("give --seed or --seeds, not both")
    if trace:
        if seed is None:
            raise click.UsageError("--trace needs --seed N")
        return _tell(seed)
    first, last = _range(seeds, seed, minutes)
    report = run_seeds(first, last, minutes, workers or usable_cores())
    print_json(report) if as_json else _print(report)
    return 1 if report.violations else 0


def _range(seeds: str | None, seed: int | None, minutes: float | None) -> tuple[int, int | None]:
    if seed is not None:
        return seed, seed
    if seeds is None and minutes is not None:
        return FRESH_SEEDS_FROM + int.from_bytes(os.urandom(4), "big"), None
    ends = re.fullmatch(r"(\d+)\.\.(\d+)", seeds or "1..200")
    if ends is None or int(ends[1]) > int(ends[2]):
        raise PlexusError(f"--seeds {seeds}: give two numbers like 1..200, the lesser one first")
    return int(ends[1]), int(ends[2])


def _print(report: SeedsReport) -> None:
    for found in report.found[:MOST_SHOWN]:
        _show(found)
    for found in report.found[MOST_SHOWN:]:
        click.echo(f"seed {found.seed}: {found.finding.invariant}: {found.finding.text}")
    counts = f"{report.seeds} storms, {report.violations} violations"
    took = f"{report.cpu_s:.1f} s of CPU in {report.wall_s:.1f} s"
    click.echo(f"seeds {report.first}..{report.last}: {counts}, {took}")


def _show(found: BrokenSeed) -> None:
    """The finding as it is, then the smallest storm that shows it."""
    click.echo(f"seed {found.seed}: {_in_words(found.finding)}")
    smallest = shrink(run_storm(draw(found.seed)))
    assert smallest.finding is not None
    click.echo(f"  still so in: {describe(smallest.plan)}")
    click.echo(f"  {_in_words(smallest.finding)}; before that:")
    for line in smallest.finding.trace:
        click.echo(f"  {line}")
    click.echo(f"  all of it: plexus storm --seed {found.seed} --trace")


def _in_words(finding: Finding) -> str:
    where = "" if finding.node is None else f" at node {finding.node}"
    return f"{finding.invariant}{where} after {finding.at_s:.2f} s: {finding.text}"


def _tell(seed: int) -> int:
    plan = draw(seed)
    click.echo(describe(plan))
    played = Storm(plan, kept_lines=None)
    outcome = played.run()
    for line in played.conversation.lines:
        click.echo(str(line))
    if outcome.finding is None:
        click.echo(f"no violation; {outcome.rounds} rounds after the storm, digest {outcome.digest}")
        return 0
    click.echo(_in_words(outcome.finding))
    return 1


def describe(plan: Plan) -> str:
    faults = ", ".join(map(str, plan.faults)) or "no faults"
    nodes = f"{plan.nodes} nodes, {plan.at_start} at the beginning, {plan.gone} gone after it"
    text = f"{nodes}; {plan.parameters}; {plan.sharing} links; {plan.storm_s:.0f} s of {faults}"
    return re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.3g}", f"seed {plan.seed}: {text}")
