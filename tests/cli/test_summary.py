"""The summary on the terminal, as text."""

from __future__ import annotations

import io

from rich.console import Console

from plexus.cli.summary import print_bench, print_summary
from plexus.runs.result import Cut, Metric, ProtocolBench, Result, Traffic, Used
from tests.report.runs import result


def printed(outcome: Result | ProtocolBench) -> list[str]:
    console = Console(file=io.StringIO(), width=80, highlight=False)
    if isinstance(outcome, ProtocolBench):
        print_bench(outcome, console)
    else:
        print_summary("small: plexus on digits", outcome, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_a_run_in_words() -> None:
    assert printed(result()) == [
        "",
        "small: plexus on digits",
        "  simulated    2.0 hours",
        "  rounds       1,234",
        "  accuracy     90.0 % at best, 85.0 % at the end",
        "  training     1.5 device hours; 20 trainings, 5 never needed",
        "  sent         1 MB by all nodes",
        "  computed in  2.5 s (1.2 s of processor time)",
        "",
        "  messages    count     bytes     share",
        "  model          10    979 kB    97.9 %",
        "  ping        1,000     20 kB     2.0 %",
        "  ack             9      1 kB     0.1 %",
        "",
        "  digest   d1ge57",
        "  weights  we16h75",
        "  files    runs/small",
    ]


def test_where_every_node_has_a_model_it_is_said_whose_is_meant() -> None:
    quality = Metric("accuracy", best=0.961, final=0.94, higher_is_better=True, of_nodes=True)
    line = "  accuracy     best node 96.1 % at best, mean over nodes 94.0 % at the end"
    assert line in printed(result(metric=quality))


def test_how_much_of_what_was_trained_is_used_is_one_line() -> None:
    line = "  used         80.4 % of trainings (slowest tenth: 11.6 %); unused nodes: 1,035"
    used = Used(0.8042, 1035, 0.1155, 0.98)
    lines = printed(result(used=used))
    assert lines[6] == line
    assert lines[:6] + lines[7:] == printed(result())
    none_of_the_slowest = printed(result(used=Used(0.5, 0, None, 0.5)))[6]
    assert none_of_the_slowest == "  used         50.0 % of trainings (slowest tenth: –); unused nodes: 0"
    some_late = printed(result(used=Used(0.8042, 1035, 0.1155, 0.98, late=1200)))
    assert some_late[6:8] == [line, "  late         1,200 of these trainings, used in a later round"]
    assert printed(result(used=Used(None, 0, None, None))) == printed(result()), "nothing was trained"


def test_what_to_know_before_believing_a_run_stands_on_top() -> None:
    lines = printed(result(notes=("nobody was online",)))
    assert lines[4] == "  note         nobody was online"
    assert lines[:4] + lines[5:] == printed(result())


def test_an_interrupted_run_without_evaluations_or_messages() -> None:
    never = Metric("mse", best=None, final=None, higher_is_better=False)
    silent = result(metric=never, interrupted=True, messages={"ping": Traffic(0, 0)})
    lines = printed(silent)
    assert "  simulated    2.0 hours (interrupted)" in lines
    assert "  MSE          – at best, – at the end" in lines
    assert "  ping            0      0 B        –" in lines


def test_a_directory_may_have_any_name() -> None:
    assert printed(result(out="runs/[bold]x[/]"))[-1] == "  files    runs/[bold]x[/]"


def test_the_cost_of_the_protocol_in_words() -> None:
    bench = ProtocolBench(
        nodes=1000,
        hours=1.0,
        churn=True,
        cpu_s_per_simulated_hour=0.4321,
        messages_per_s=123456.7,
        peak_mb=132.2,
        setup_cpu_s=0.531,
        rounds=97,
        events=99_999,
        messages={"ping": Traffic(53_000, 10), "ack": Traffic(123, 90)},
        joins_and_leaves_per_hour=344.2,
        mean_online=81.4,
        digest="d1ge57",
    )
    assert printed(bench)[:9] == [
        "",
        "plexus alone, 1,000 nodes, 1 h, with churn",
        "  cpu        0.432 s per simulated hour",
        "  speed      123,457 messages per cpu second",
        "  memory     132 MB at most",
        "  simulated  53,123 messages, 97 rounds",
        "  online     81 nodes on average, 344 joins and leaves an hour",
        "  set-up     0.53 s of cpu, not counted",
        "  digest     d1ge57",
    ]


def test_whose_work_survived_a_cut_is_one_line() -> None:
    cut = Cut(
        from_h=1.0,
        to_h=2.5,
        cut_nodes=4,
        cut_aggregates=30,
        cut_survived=2,
        others_aggregates=1200,
        others_survived=1199,
    )
    found = printed(result(cuts=(cut,)))
    text = " ".join(" ".join(found[6:8]).split())
    said = "survived 1–2.5 h, 4 cut off: 2 of 30 aggregates of theirs, 1,199 of 1,200 of the others'"
    assert text == said
