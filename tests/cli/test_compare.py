"""Tables in terminals of any width: every name and every number is there, whole."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from plexus.cli.compare import print_table
from plexus.report.arms import group, load_runs
from plexus.report.comparison import compare, table_of
from plexus.report.document import Table, text_of
from tests.report.runs import arm_run

RESULTS = Path(__file__).parents[2] / "results"
WIDTHS = (40, 60, 80, 120)


def printed(table: Table, width: int) -> list[str]:
    console = Console(width=width, highlight=False)
    with console.capture() as captured:
        print_table(table, console)
    return captured.get().splitlines()


def lost(table: Table, lines: list[str]) -> Counter[str]:
    """Words of the table that are not printed as often as they stand in it."""
    cells = [text_of(cell) for row in table.rows for cell in row]
    wanted = Counter(" ".join([*table.columns, *cells, table.note]).split())
    return wanted - Counter(" ".join(lines).split())


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("target", [None, 0.755])
@pytest.mark.parametrize("task", ["cifar10", "digits-by-writer", "movielens-biased"])
def test_tables_of_real_runs_lose_no_word(task: str, target: float | None, width: int) -> None:
    table = table_of(compare(group(load_runs([RESULTS / task / "runs"])), target))
    lines = printed(table, width)
    assert lost(table, lines) == Counter()
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("width", WIDTHS)
def test_names_stay_where_only_some_seeds_came_to_the_target(width: int) -> None:
    runs = [
        arm_run(protocol, values, seed, sent_gb=[1000.123 * seed] * 2)
        for protocol, best in (("plexus", 0.9), ("gossip", 0.6), ("epidemic", 0.5))
        for seed, values in ((1, [0.1, best]), (2, [0.2, best]), (3, [0.1, best - 0.1]))
    ]
    table = table_of(compare(group(runs), target=0.45))
    assert lost(table, printed(table, width)) == Counter()


def test_what_does_not_fit_is_continued_below_the_names_again() -> None:
    table = Table("x", "X", ("Method", "One", "Two"), (("Plexus", "1" * 11, "2" * 11),))
    side_by_side, below = printed(table, 30), printed(table, 29)
    assert [line.split() for line in side_by_side[2:]] == [
        ["Method", "One", "Two"],
        ["Plexus", "1" * 11, "2" * 11],
    ]
    assert [line.split() for line in below[2:]] == [
        ["Method", "One"],
        ["Plexus", "1" * 11],
        [],
        ["Method", "Two"],
        ["Plexus", "2" * 11],
    ]


def test_a_name_longer_than_the_terminal_is_folded_not_cut() -> None:
    name = "a-topology-with-a-file-name-that-goes-on-and-on.edges"
    table = Table("x", "X", ("Method", "Best"), ((name, 3),))
    (_, _, _, first, *others) = printed(table, 40)
    begin, three = first.split()
    assert ("".join([begin, *(line.strip() for line in others)]), three) == (name, "3")
