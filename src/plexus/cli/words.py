"""Status and summaries as people read them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plexus import quantities
from plexus.live.fleet.logs import LOG_FILE

if TYPE_CHECKING:
    from plexus.live.fleet.fleet import FleetResult
    from plexus.live.fleet.members import NodeResult
    from plexus.live.worker.channel import Ready


def describe(picture: dict[str, Any]) -> str:
    """A peer's status on a few lines."""
    first = (
        f"node {picture['node']} of session {picture['session']}: {picture['phase']}"
        f" for {quantities.clock(picture['phase_since_s'])}"
    )
    if picture["phase"] == "starting":
        return "\n".join([first, *map(_wait, picture["waiting_for"])])
    lines = [
        f"{first}, at {picture['address']}",
        f"round {picture['round']}, {picture['peers']['linked']} linked of"
        f" {picture['peers']['known']} known, bandwidth"
        f" {quantities.size(picture['bandwidth_bytes_per_s'])}/s",
    ]
    if sample := _fresh(picture, "sample"):
        lines.append(f"sample of round {sample['round']}: {', '.join(sample['nodes'])}")
    if aggregator := _fresh(picture, "aggregator"):
        lines.append(f"aggregator of round {aggregator['round']}: {aggregator['node']}")
    if picture["training"]:
        training = picture["training"]
        lines.append(f"training for round {training['round']} since {training['since_s']} s")
    lines += [_wait(wait) for wait in picture["waiting_for"]]
    if picture["phase"] == "online" and not picture["training"] and not picture["waiting_for"]:
        lines.append("waits to be sampled")
    lines += [_transfer(transfer) for transfer in picture["transfers"]]
    metric = picture["metric"]
    if metric:
        value = quantities.metric(metric["name"], metric["value"])
        lines.append(f"{metric['name']} {value} after round {metric['round']}")
    lines.append(f"certificate good for {picture['certificate_days_left']} more days")
    return "\n".join(lines)


def _fresh(picture: dict[str, Any], what: str) -> dict[str, Any] | None:
    """What the node derived for this round or the one before; a node that is sampled seldom may know
    only older ones."""
    found: dict[str, Any] | None = picture[what]
    return found if found and found["round"] >= picture["round"] - 1 else None


def _wait(wait: dict[str, Any]) -> str:
    line = f"waits for {wait['what']} since {wait['since_s']} s"
    if "at_most_s" in wait:
        line += f", at most {wait['at_most_s']} s more"
    return f"{line}: {wait['reason']}" if wait.get("reason") else line


def _transfer(transfer: dict[str, Any]) -> str:
    way = "to" if transfer["way"] == "out" else "from"
    share = 100 * transfer["bytes"] / max(1, transfer["of_bytes"])
    return f"{transfer['kind']} of round {transfer['round']} {way} {transfer['peer']}: {share:.0f} %"


def fleet_table(result: FleetResult) -> None:
    """The summary of a fleet on standard output."""
    from rich.console import Console
    from rich.table import Table

    metric = quantities.metric(result.metric_name, result.metric)
    best = quantities.metric(result.metric_name, result.best_metric)
    title = (
        f"{result.name}: {len(result.nodes)} peers, {result.rounds} rounds in"
        f" {result.seconds:.0f} s, {result.metric_name} {metric} (best {best})"
    )
    table = Table(title=title, title_justify="left")
    for column in ("node", "id", "round", "trained", "aggregated", "sent", "received"):
        table.add_column(column, justify="left" if column == "id" else "right")
    for column in ("starts", "errors", "exit"):
        table.add_column(column, justify="right")
    for each in result.nodes:
        table.add_row(
            str(each.number),
            each.id,
            str(each.round),
            str(each.trained),
            str(each.aggregated),
            quantities.size(each.sent_bytes),
            quantities.size(each.received_bytes),
            str(each.starts),
            str(each.errors),
            str(each.exit_status),
        )
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 120
    console.print(table)
    for line in _endings(result):
        console.print(line, markup=False, soft_wrap=True)


def _endings(result: FleetResult) -> Iterator[str]:
    """Why processes ended that should not have, or could not train; what many share is said once."""
    ended: dict[tuple[str, str], list[NodeResult]] = {}
    for each in result.nodes:
        if each.exit_status:
            what = f"ended with {each.exit_status}"
            ended.setdefault((what, each.last_words), []).append(each)
        elif each.failure:  # the same in other words: each is about its own training
            ended.setdefault(("could not train or evaluate", ""), []).append(each)
    for (what, reason), (first, *more) in ended.items():
        others = f" and {len(more)} more" if more else ""
        log = Path(result.out) / f"node-{first.number:02}" / LOG_FILE
        yield f"node {first.number}{others} {what}: {reason or first.failure or f'see {log}'}"


def share_of_data(nodes: int, ready: Ready) -> str:
    """What part of the data these nodes have, where it is not all of it."""
    return (
        f"{quantities.whole(nodes)} nodes have {quantities.whole(ready.shared_out)} of"
        f" {quantities.whole(ready.examples)} examples; the rest takes no part"
    )


def next_steps(result: FleetResult) -> str:
    """What to do with a fleet that has ended."""
    out = Path(result.out)
    if out.is_relative_to(Path.cwd()):
        out = out.relative_to(Path.cwd())
    newest = max(result.nodes, key=lambda each: each.round)
    return (
        "Next:\n"
        f"  plexus export model.safetensors --home {out / f'node-{newest.number:02}'}\n"
        f"  plexus dashboard {out}"
    )
