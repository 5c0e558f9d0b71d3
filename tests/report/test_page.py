"""The page is whole in itself, and says what was run and how to run it again."""

from __future__ import annotations

import csv
import re
import tomllib
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from plexus.errors import PlexusError
from plexus.report import naming, plots
from plexus.report.arms import group
from plexus.report.document import Picture, Quantity, Section, Table, text_of
from plexus.report.page import as_csv, as_latex, write_report
from plexus.report.standard import by_setting, standard_sections
from plexus.runs.result import Cut
from tests.report.runs import arm_run, result

pytestmark = pytest.mark.slow  # draws and writes every figure

RUNS = [
    arm_run(seed=1),
    arm_run(values=[0.2, 0.7, 0.8, 0.9], seed=2),
    arm_run("gossip", [0.1, 0.2, 0.3, 0.6]),
    arm_run("gossip", [0.3, 0.4], seed=2, finished=False),
]


class Links(HTMLParser):
    """Everything a page refers to, and all of its ids."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.references: list[str] = []
        self.ids: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src", "xlink:href") and value:
                self.references.append(value)
            if name == "id" and value:
                self.ids.append(value)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report") / "out" / "my report.html"
    sections = standard_sections(group(RUNS))
    write_report(out, "A <b>title</b>", sections, RUNS, "plexus report some")
    return out


def test_nothing_is_fetched_and_every_link_leads_somewhere(page: Path) -> None:
    text = page.read_text()
    assert not re.findall(r"https?:|//[a-z]|@import|url\((?!#)", text)
    links = Links(text)
    assert len(links.ids) == len(set(links.ids))
    for reference in links.references:
        if reference.startswith("#"):
            assert reference[1:] in links.ids
        elif reference != "data:,":
            assert (page.parent / reference.replace("%20", " ")).is_file(), reference


def test_svg_refers_to_its_own_parts_only(page: Path) -> None:
    text = page.read_text()
    ids = set(Links(text).ids)
    assert set(re.findall(r"url\(#([^)]+)\)", text)) <= ids
    assert "A &lt;b&gt;title&lt;/b&gt;" in text and "<b>title" not in text


def test_colours_follow_the_theme(page: Path) -> None:
    drawings = re.findall(r"<svg.*?</svg>", page.read_text(), re.DOTALL)
    assert len(drawings) >= 5
    for drawing in drawings:
        assert "var(--ink)" in drawing
        left = set(re.findall(r"#[0-9a-f]{6}\b", drawing))
        assert left <= {"#ffffff", "#000000"}, "drawn in a colour that no theme knows"


def test_every_figure_and_table_is_a_file_as_well(page: Path) -> None:
    folder = page.with_name("my report-files")
    names = {path.name for path in folder.iterdir()}
    for picture in ("time", "communication", "resources", "messages-bytes", "messages-count"):
        assert {f"{picture}.png", f"{picture}.pdf"} <= names
    for table in ("summary", "runs", "settings"):
        assert {f"{table}.csv", f"{table}.tex"} <= names
    rows = list(csv.DictReader((folder / "summary.csv").read_text().splitlines()))
    assert float(rows[0]["Best accuracy"]) == pytest.approx(0.9)
    assert rows[1]["Method"] == "Gossip Learning (best baseline)"


def test_specs_to_repeat_it_can_be_read_and_are_in_the_commands(page: Path) -> None:
    spec = tomllib.loads((page.with_name("my report-files") / "specs" / "plexus.toml").read_text())
    assert (spec["protocol"]["name"], spec["nodes"], spec["seed"]) == ("plexus", 100, 1)
    text = unescape(page.read_text())
    each = 'plexus run \'my report-files/specs/plexus.toml\' --seed "$seed" --out "repeated/plexus-$seed"'
    assert f"for seed in 1 2; do {each}; done" in text
    assert "gossip-learning.toml' --seed 1 --out repeated/gossip-learning-1\n" in text
    assert "plexus report some" in text


def test_files_that_a_spec_finds_beside_itself_are_named(tmp_path: Path) -> None:
    (tmp_path / "who.csv").touch()
    run = arm_run(traces={"availability": "who.csv"})
    run.versions["spec_dir"] = str(tmp_path)
    write_report(tmp_path / "x.html", "X", [], [run], None)
    assert f"<code>who.csv</code> in {tmp_path}" in (tmp_path / "x.html").read_text()
    del run.versions["spec_dir"]
    write_report(tmp_path / "x.html", "X", [], [run], None)
    assert "first put these files" not in (tmp_path / "x.html").read_text()


def test_an_unfinished_run_is_named_so(page: Path) -> None:
    text = page.read_text()
    assert "Gossip Learning, seed 2, unfinished (2.0 h)" in text
    assert "1 of the 4 runs did not come to the end" in text


def test_the_same_runs_give_the_same_page_and_files(page: Path, tmp_path: Path) -> None:
    again = tmp_path / "my report.html"
    write_report(again, "A <b>title</b>", standard_sections(group(RUNS)), RUNS, "plexus report some")
    assert again.read_bytes() == page.read_bytes()
    for file in page.with_name("my report-files").rglob("*.*"):
        other = tmp_path / file.relative_to(page.parent)
        assert other.read_bytes() == file.read_bytes(), file.name


def test_settings_that_cannot_be_compared_have_sections_of_their_own() -> None:
    still = arm_run(traces={"availability": "none"})
    digits, cifar = arm_run(), arm_run(task={"name": "cifar10"})
    slow = arm_run("gossip", task={"name": "digits", "learning_rate": 0.01})
    groups = by_setting(group([digits, still, cifar, slow]))
    assert sorted(len(each) for each in groups) == [1, 1, 2]
    labels = [arm.label for arms in by_setting(group([digits, arm_run("gossip"), cifar])) for arm in arms]
    assert sorted(labels) == ["Gossip Learning", "Plexus", "Plexus"]
    peers = replace(digits, versions=digits.versions | {"kind": "live"})
    labels = [arm.label for arms in by_setting(group([peers, cifar])) for arm in arms]
    assert sorted(labels) == ["Plexus, live", "Plexus, simulated"], "whatever is in the other section"
    longer = arm_run("gossip", hours=8.0)
    titles = [section.title for section in standard_sections(group([digits, longer]))]
    assert titles == [f"Digits, 100 nodes, churn, hours = {each}" for each in (4, 8)], "other hours, no rank"
    titles = [section.title for section in standard_sections(group([digits, cifar]))]
    assert titles == ["CIFAR-10, 100 nodes, churn", "Digits, 100 nodes, churn"]


def test_settings_of_one_title_are_told_apart_by_their_keys_and_those_with_baselines_come_first() -> None:
    def of(**task: object) -> dict[str, object]:
        return {"name": "loans.task:build", "learning_rate": 0.1, **task}

    runs = [
        arm_run(task=of()),
        arm_run(task=of(hidden=64, l1=0.1)),
        arm_run(task={"name": "digits", "partition": "iid"}),
        arm_run(task={"name": "digits", "partition": "dirichlet"}),
        arm_run("gossip", task={"name": "digits", "partition": "dirichlet"}),
        arm_run(task={"name": "cifar10", "partition": "shards"}),
    ]
    assert [section.title for section in standard_sections(group(runs))] == [
        "Digits, 100 nodes, churn, partition = dirichlet",
        "CIFAR-10, 100 nodes, churn",
        "Digits, 100 nodes, churn, partition = iid",
        "Loans, 100 nodes, churn",
    ]
    assert [[arm.label for arm in arms] for arms in by_setting(group(runs[:2]))] == [
        ["hidden 64, l1 0.1", "hidden default, l1 default"]
    ], "what is tried of one's own task is ranked"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("cifar10", "CIFAR-10"),
        ("loans.task:build", "loans"),
        ("loans.task:wide", "loans:wide"),
        ("credit.loans:build", "credit.loans"),
    ],
)
def test_a_task_of_ones_own_is_named_by_its_package(name: str, shown: str) -> None:
    assert naming.task(name) == shown


def test_titles_begin_with_a_capital_but_not_symbols(tmp_path: Path) -> None:
    figure = plots.curves(group([arm_run()]))
    pictures = [Picture("a", "over time", "", figure), Picture("b", "n = 10, small", "", figure)]
    write_report(tmp_path / "x.html", "X", [Section("one", "One", "", pictures)], [arm_run()], None)
    found = re.findall(r'<h3 id="[ab]-title">(.*?)</h3>', (tmp_path / "x.html").read_text())
    assert found == ["Over time", "n = 10, small"]


def test_what_the_paper_reports_stands_beside_ours(tmp_path: Path) -> None:
    figure = plots.curves(group([arm_run()]))
    picture = Picture("mine", "Mine", "Caption.", figure, paper="75.8 % after `12.9` h")
    write_report(tmp_path / "x.html", "X", [Section("one", "One", "Text.", [picture])], [arm_run()], None)
    text = (tmp_path / "x.html").read_text()
    assert "<b>The paper:</b> 75.8 % after <code>12.9</code> h" in text


@pytest.mark.parametrize(
    ("ids", "complaint"),
    [(["a", "a"], "two things have the id 'a'"), (["A b"], "the id 'A b' must be"), (["runs"], "'runs'")],
)
def test_ids_are_places_on_the_page(ids: list[str], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(PlexusError, match=complaint):
        write_report(tmp_path / "x.html", "X", [Section(id, "S") for id in ids], [arm_run()], None)


def test_a_table_as_csv_and_latex() -> None:
    rows = (("a_b, c", Quantity("50 ± 1.0 %", 0.5, 0.01), 3), ("d", Quantity("not reached", None), None))
    table = Table("t", "100 %", ("Name", "Best", "N"), rows, "Note & more.")
    assert as_csv(table).splitlines() == [
        "Name,Best,Best (± 95 %),N",
        '"a_b, c",0.5,0.01,3',
        "d,not reached,,",
    ]
    latex = as_latex(table)
    assert r"  \caption{100 \%. Note \& more.}" in latex
    assert r"    a\_b, c & 50 $\pm$ 1.0 \% & 3 \\" in latex
    assert r"\begin{tabular}{lrr}" in latex
    with pytest.raises(ValueError, match="a row of 1"):
        Table("t", "T", ("a", "b"), (("x",),))


def test_whose_work_survived_cuts_is_a_table_of_runs_that_had_some() -> None:
    def cut(survived: int) -> Cut:
        theirs = {"cut_aggregates": 20, "cut_survived": survived, "others_aggregates": 50}
        return Cut(from_h=1, to_h=2.5, cut_nodes=3, others_survived=50 - survived, **theirs)

    cuts = [arm_run(seed=seed, outcome=result(cuts=(cut(seed),))) for seed in (1, 3)]
    (section,) = standard_sections(group([*cuts, arm_run({"name": "gossip"})]))
    (table,) = [each for each in section.tables if each.id == "cuts"]
    assert [tuple(map(text_of, row)) for row in table.rows] == [
        ("Plexus", "1–2.5", "3.00 ± 0.00", "20.0 ± 0.0", "2.00 ± 12.71", "50.0 ± 0.0", "48.0 ± 12.7")
    ]
    (section,) = standard_sections(group([arm_run()]))
    assert "cuts" not in [each.id for each in section.tables]
