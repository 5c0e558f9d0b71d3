"""The outcome of a run or a benchmark, for a person at a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from plexus import quantities
from plexus.runs.result import Cut, ProtocolBench, Result, RoundTuning, Traffic, Used


def print_summary(title: str, result: Result, console: Console) -> None:
    """Rounds, quality, cost, traffic, fingerprints, and where the files are."""
    console.print(f"\n[bold]{title}[/]")
    _print_facts(_run_facts(result), console)
    if result.messages:
        _print_traffic(result.messages, console)
    console.print()
    _print_facts(_where(result), console)


def _print(table: Table, console: Console) -> None:
    """Where lines are kept, in a file or a pipe, without the spaces that fill a column up."""
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        console.out(line.rstrip(), highlight=False)


def _run_facts(result: Result) -> list[tuple[str, str]]:
    metric, trainings = result.metric, result.trainings
    spared, trained = trainings.asked - trainings.computed, quantities.hours(result.training_s)
    cut = " (interrupted)" if result.interrupted else ""
    written = (quantities.metric(metric.name, value) for value in (metric.best, metric.final))
    best, final = (f"[bold]{text}[/]" for text in written)
    quality = f"{best} at best, {final} at the end"
    if metric.of_nodes:  # every node has a model of its own: whose it was is said
        quality = f"best node {best} at best, mean over nodes {final} at the end"
    return [
        ("simulated", f"{quantities.hours(result.simulated_s)} hours{cut}"),
        ("rounds", f"{result.rounds:,}"),
        *(("note", note) for note in result.notes),
        *_tuned(result.tuning),
        *([] if metric.name == "none" else [(quantities.metric_name(metric.name), quality)]),
        ("training", f"{trained} device hours; {trainings.asked:,} trainings, {spared:,} never needed"),
        *([("examples", f"{result.sets:,} sets, each of several nodes")] if result.sets else []),
        *_used(result.used),
        *_cuts(result.cuts),
        ("sent", f"{quantities.size(result.sent_bytes)} by all nodes"),
        ("computed in", f"{result.wall_s:.1f} s ({result.cpu_s:.1f} s of processor time)"),
    ]


def _tuned(tuning: RoundTuning | None) -> list[tuple[str, str]]:
    if tuning is None:
        return []
    share = f"{100 * tuning.complete:g} % of {tuning.transfers:,} transfers"
    return [("rounds of", f"{tuning.round_duration_s:g} s: time for {share} without churn")]


def _used(used: Used | None) -> list[tuple[str, str]]:
    """How much of what was trained is behind the final model."""
    if used is None or used.share is None:
        return []
    slowest = quantities.share(used.slowest_tenth_share)
    never = f"unused nodes: {used.never_used_nodes:,}"
    line = ("used", f"{quantities.share(used.share)} of trainings (slowest tenth: {slowest}); {never}")
    late = ("late", f"{used.late:,} of these trainings, used in a later round")
    return [line, late] if used.late else [line]


def _cuts(cuts: Iterable[Cut]) -> Iterable[tuple[str, str]]:
    """Of what both sides aggregated while they were apart, what is behind the final model."""
    for cut in cuts:
        theirs = f"{cut.cut_survived:,} of {cut.cut_aggregates:,} aggregates of theirs"
        others = f"{cut.others_survived:,} of {cut.others_aggregates:,} of the others'"
        yield "survived", f"{cut.from_h:g}–{cut.to_h:g} h, {cut.cut_nodes:,} cut off: {theirs}, {others}"


def _where(result: Result) -> list[tuple[str, str]]:
    files = ", ".join(sorted(file.name for file in Path(result.out).glob("[!.]*")))
    where = [f"[bold]{escape(result.out)}[/]", *([f"[dim]{escape(files)}[/]"] if files else [])]
    return [("digest", result.digest), ("weights", result.weights_hash), ("files", "\n".join(where))]


def _print_facts(rows: Sequence[tuple[str, str]], console: Console) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(f"  {name}", value)
    _print(table, console)


def _print_traffic(messages: Mapping[str, Traffic], console: Console) -> None:
    """By type of message, the heaviest first."""
    numbers = (Column(name, justify="right", no_wrap=True) for name in ("count", "bytes", "share"))
    table = Table("  messages", *numbers, box=None, pad_edge=False, padding=(0, 2), header_style="dim")
    total = sum(traffic.bytes for traffic in messages.values())
    for name, traffic in sorted(messages.items(), key=lambda item: (-item[1].bytes, item[0])):
        share = f"{100 * traffic.bytes / total:.1f} %" if total else "–"
        table.add_row(f"  {name}", f"{traffic.count:,}", quantities.size(traffic.bytes), share)
    console.print()
    _print(table, console)


def print_bench(bench: ProtocolBench, console: Console) -> None:
    churn = "with churn" if bench.churn else "without churn"
    title = f"{bench.protocol} alone, {bench.nodes:,} nodes, {bench.hours:g} h, {churn}"
    sent = sum(traffic.count for traffic in bench.messages.values())
    toggles = f"{bench.joins_and_leaves_per_hour:.0f} joins and leaves an hour"
    facts = [
        ("cpu", f"[bold]{bench.cpu_s_per_simulated_hour:.3g} s[/] per simulated hour"),
        ("speed", f"{round(bench.messages_per_s):,} messages per cpu second"),
        ("memory", f"{bench.peak_mb:.0f} MB at most"),
        ("simulated", f"{sent:,} messages, {bench.rounds:,} rounds"),
        ("online", f"{bench.mean_online:.0f} nodes on average, {toggles}"),
        *_tuned(bench.tuning),
        *_used(bench.used),
        ("set-up", f"{bench.setup_cpu_s:.2f} s of cpu, not counted"),
        ("digest", bench.digest),
    ]
    console.print(f"\n[bold]{title}[/]")
    _print_facts(facts, console)
    _print_traffic(bench.messages, console)


def print_growth(benches: Sequence[ProtocolBench], console: Console) -> None:
    """The same of several sizes, and the power of n by which each grew since the one before."""
    headings = ("nodes", "cpu s/h", "∝ n^", "memory", "∝ n^", "rounds", "models", "views", "a view")
    columns = (Column(each, justify="right", no_wrap=True) for each in headings)
    table = Table(*columns, box=None, pad_edge=False, padding=(0, 1), header_style="dim")
    for bench, before in zip(benches, (None, *benches), strict=False):
        view, model = bench.messages["view"], bench.messages["model"]
        cpu = f"{bench.cpu_s_per_simulated_hour:.3g}", _power(bench, before, "cpu_s_per_simulated_hour")
        memory = f"{bench.peak_mb:.0f} MB", _power(bench, before, "peak_mb")
        sizes = model.bytes, view.bytes, round(view.bytes / max(1, view.count))
        table.add_row(f"{bench.nodes:,}", *cpu, *memory, f"{bench.rounds:,}", *map(quantities.size, sizes))
    console.print()
    _print(table, console)


def _power(bench: ProtocolBench, before: ProtocolBench | None, name: str) -> str:
    if before is None or before.nodes == bench.nodes:
        return ""
    grown = getattr(bench, name) / getattr(before, name)
    return f"{math.log(grown) / math.log(bench.nodes / before.nodes):.2f}"
