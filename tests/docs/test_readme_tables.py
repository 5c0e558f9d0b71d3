"""Every number in the tables of README.md, results/README.md and docs is in the runs of results/."""

from __future__ import annotations

from pathlib import Path

import pytest

from plexus.runs.result import Traffic
from tests.report.runs import result
from tests.report.saving import save
from tools import paper_figures, readme_tables
from tools.readme_tables import MARKS, NOTHING, PAGES, ROOT, filled

PAGE = "<!-- made: savings -->old<!-- end --> and <!-- made: cifar10 -->old<!-- end -->"


def made(text: str, name: str) -> str:
    [found] = [match[0] for match in MARKS.finditer(text) if match[2] == name]
    return found


@pytest.mark.parametrize("page", PAGES)
def test_nothing_differs_from_what_the_runs_say(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert filled(text, ROOT / "results") == text, "run: python -m tools.readme_tables"


def test_no_row_of_the_readme_is_without_an_interval() -> None:
    table = made((ROOT / "README.md").read_text(encoding="utf-8"), "savings")
    rows = [line for line in table.splitlines() if line.startswith("|")][2:]
    assert rows or NOTHING in table
    for row in rows:
        assert row.count("±") == 4, row
        savings = row.strip("| ").split(" | ")[-3:]
        assert all("–" in cell or cell in ("within noise", "not reached") for cell in savings), row


def runs(folder: Path, protocol: str, values: list[list[float]], first: int = 1, **spec: object) -> None:
    """Four hours of a protocol, with a seed for each list of accuracies."""
    for seed, each in enumerate(values, start=first):
        name = "-".join([protocol, str(seed), *spec])
        outcome = result(digest=name, simulated_s=14_400.0, messages={"model": Traffic(10, 10**6)})
        save(folder / "cifar10" / "runs" / name, outcome, protocol, each, seed, **spec)


def test_what_has_seeds_is_in_the_readme_and_what_has_one_says_so(tmp_path: Path) -> None:
    assert NOTHING in filled(PAGE, tmp_path)
    runs(tmp_path, "plexus", [[0.5, 0.7, 0.8, 0.8], [0.6, 0.7, 0.8, 0.82]])
    runs(tmp_path, "gossip", [[0.1, 0.2, 0.3, 0.5]])
    runs(tmp_path, "fedavg", [[0.9, 0.9, 0.9, 0.9]])
    text = filled(PAGE, tmp_path)
    assert NOTHING in made(text, "savings")
    assert "| Gossip Learning (best baseline) | 40.0 % | 50.0 % |" in text
    assert "| FedAvg (a server: reference) |" in text
    assert made(text, "cifar10").count("| one seed |") == 2
    runs(tmp_path, "gossip", [[0.1, 0.2, 0.3, 0.55]], first=2)
    text = filled(PAGE, tmp_path)
    row = made(text, "savings").splitlines()[-2]
    assert row == (
        "| digits, 100 nodes, 4 h | 80.5 ± 6.4 % (81.0 ± 12.7 % at best)"
        " | 41.2 ± 15.9 % (52.5 ± 31.8 % at best), Gossip Learning"
        " | 4.00× (4.00–4.00) | 4.00× (4.00–4.00) | 4.00× (4.00–4.00) |"
    )
    assert filled(text, tmp_path) == text


def test_another_churn_is_another_table_and_not_in_the_readme(tmp_path: Path) -> None:
    crashes = {"availability": "fedscale", "graceful_share": 0.5}
    for protocol, values in (("plexus", [0.5, 0.7, 0.8, 0.8]), ("gossip", [0.1, 0.2, 0.3, 0.5])):
        runs(tmp_path, protocol, [values, values])
        runs(tmp_path, protocol, [values], traces=crashes)
    text = filled(PAGE, tmp_path)
    assert made(text, "savings").count("digits") == 1
    tables, crashing = made(text, "cifar10"), "### Digits, 100 nodes, churn, graceful_share = 0.5, 4 h"
    assert tables.index("Who leaves says so.") < tables.index(crashing)
    assert "Of the leaves 50.0 % are crashes." in tables


def test_a_number_that_is_not_in_the_files_is_found() -> None:
    text = (ROOT / "results/README.md").read_text(encoding="utf-8")
    assert "Plexus | 7" in text
    wrong = text.replace("Plexus | 7", "Plexus | 8", 1)
    assert filled(wrong, ROOT / "results") == text


def test_the_figures_of_a_folder_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    runs(tmp_path, "plexus", [[0.5, 0.7, 0.8, 0.8], [0.6, 0.7, 0.8, 0.82]])
    runs(tmp_path, "gossip", [[0.1, 0.2, 0.3, 0.5]])
    readme_tables.pictures(tmp_path)
    names = {path.name for path in (tmp_path / "cifar10").iterdir()}
    assert {"time.png", "communication.png", "resources.png", "summary.csv", "summary.tex"} <= names


def test_every_figure_of_the_paper_is_on_its_page() -> None:
    page = (ROOT / "docs/figures.md").read_text(encoding="utf-8")
    for name in paper_figures.TABLES:
        assert "|" in made(page, name), f"{name}: nothing to be seen"
    for name in paper_figures.PICTURES:
        assert f"](../results/figures/{name}.png)" in page
        assert (ROOT / f"results/figures/{name}.png").exists()


def test_what_the_paper_states_stands_beside_ours(tmp_path: Path) -> None:
    assert paper_figures.fig3(tmp_path) == paper_figures.table2(tmp_path) == paper_figures.NOT_YET
    runs(tmp_path, "plexus", [[0.5, 0.7, 0.8, 0.8], [0.6, 0.7, 0.8, 0.82]])
    runs(tmp_path, "gossip", [[0.1, 0.2, 0.3, 0.5], [0.1, 0.2, 0.3, 0.55]])
    table = paper_figures.fig3(tmp_path)
    assert "| best: Plexus | 75.8 % | 81.0 ± 12.7 % | 1.07 |" in table
    assert "| best: Gossip Learning | 65.9 % | 52.5 ± 31.8 % | 0.797 |" in table
    assert "| Plexus to 65.9 %: time | 12.9 h | 2.00 ± 0.00 h | 0.155 |" in table
    assert "| time saved | 3.7× | 4.00× (4.00–4.00) | 1.08 |" in paper_figures.table2(tmp_path)
    assert "| bytes saved | 2.4–15.3× | 15.8–292× | 4.00× (4.00–4.00) |" in paper_figures.successor(tmp_path)


def test_stars_are_where_the_paper_is(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    runs(tmp_path, "plexus", [[0.5, 0.7, 0.8, 0.8]])
    runs(tmp_path, "gossip", [[0.1, 0.2, 0.3, 0.5]])
    over_time, over_bytes, over_training = paper_figures.draw_fig3(tmp_path).axes
    for axes, expected in (
        (over_time, [12.9, 48.0]),
        (over_bytes, [12.3 * 1.073741824, 187.8 * 1.073741824]),
        (over_training, [96.2, 3840.0]),
    ):
        stars = [line for line in axes.lines if line.get_marker() == "*" and len(line.get_xdata())]
        assert [line.get_xdata()[0] for line in stars] == pytest.approx(expected)
        assert {line.get_ydata()[0] for line in stars} == {0.659}
    paper_figures.draw(tmp_path)
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {"fig3.png", "table2.png"}
