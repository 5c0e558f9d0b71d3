"""The whole way, in a real browser: small real runs, the commands, the page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from plexus import cli
from plexus.experiment.simulation import Machinery, simulate
from plexus.spec.experiment import parse_spec
from tests.browser import Browser

SPEC = """\
name = "browsed"
nodes = 12
hours = 0.3
[task]
name = "digits"
[evaluation]
every_hours = 0.1
"""
PROTOCOLS = {
    "plexus": '{name="plexus", sample_size=3}',
    "gossip": '{name="gossip"}',
    "dpsgd": '{name="dpsgd"}',
}

pytestmark = pytest.mark.slow


def command(*arguments: str) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 0


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three protocols, two seeds."""
    folder = tmp_path_factory.mktemp("runs")
    for name, protocol in PROTOCOLS.items():
        for seed in (1, 2):
            spec = parse_spec(SPEC, "small.toml", [f"protocol={protocol}"], seed)
            simulate(spec, Path(), folder / f"{name}-{seed}", machinery=Machinery(engine="inline"))
    return folder


@pytest.fixture(scope="module")
def page(runs: Path) -> Path:
    command("report", str(runs), "-o", str(runs / "report.html"))
    return runs / "report.html"


def background(browser: Browser) -> Any:
    return browser.run("return getComputedStyle(document.body).backgroundColor")


def ink(browser: Browser) -> Any:
    script = "return getComputedStyle(document.querySelector('figure svg text')).fill"
    return browser.run(script)


def test_every_figure_and_table_is_seen_without_a_complaint(page: Path, browser: Browser) -> None:
    browser.open(page)
    figures = {figure.get_attribute("id") for figure in browser.find("figure")}
    assert figures == {
        "time", "communication", "resources", "round-durations", "used",
        "messages-bytes", "messages-count", "online",
    }  # fmt: skip
    for drawing in browser.find("figure svg"):
        assert drawing.size["width"] > 200 and drawing.size["height"] > 100
    tables = {table.get_attribute("id") for table in browser.find(".table")}
    assert tables == {"summary", "summary-best-node", "runs", "settings"}
    assert len(browser.find("#runs tbody tr")) == 6
    methods = [cell.text for cell in browser.find("#summary tbody td:first-child")]
    assert [method.removesuffix(" (best baseline)") for method in methods] == [
        "Plexus", "Gossip Learning", "D-PSGD, one-peer exponential",
    ]  # fmt: skip
    loaded = browser.run("return performance.getEntriesByType('resource').map(e => e.name)")
    assert [name for name in loaded if not name.startswith("data:")] == []
    assert browser.complaints() == []


def test_the_contents_lead_to_what_they_name(page: Path, browser: Browser) -> None:
    browser.open(page)
    browser.resize(1400, 900)
    for link in browser.find("nav a"):
        target = str(link.get_attribute("href")).rpartition("#")[2]
        heading = browser.run(
            "return document.getElementById(arguments[0]).querySelector('h2, h3').textContent", target
        )
        assert heading == link.get_property("textContent")


def test_the_theme_is_the_systems_until_the_reader_chooses(page: Path, browser: Browser) -> None:
    browser.prefer("dark")
    browser.open(page)
    dark, dark_ink = background(browser), ink(browser)
    browser.prefer("light")
    light, light_ink = background(browser), ink(browser)
    assert len({dark, light}) == len({dark_ink, light_ink}) == 2
    (button,) = browser.find("#theme")
    seen = []
    for _ in range(3):
        button.click()
        seen.append((button.get_attribute("aria-label"), background(browser), ink(browser)))
    assert seen == [
        ("Theme: light", light, light_ink),
        ("Theme: dark", dark, dark_ink),
        ("Theme: auto", light, light_ink),
    ]
    button.click()
    button.click()
    browser.open(page)
    assert background(browser) == dark, "the choice is kept"
    browser.prefer("light", media="print")
    assert background(browser) == light, "paper is white"
    assert browser.complaints() == []


@pytest.mark.parametrize(("width", "columns"), [(360, 1), (390, 1), (1280, 2), (1400, 2)])
def test_it_fits_a_phone_and_a_desk(width: int, columns: int, page: Path, browser: Browser) -> None:
    browser.resize(width, 800, phone=width < 500)
    browser.open(page)
    assert browser.run("return document.documentElement.scrollWidth") <= width
    cut_off = browser.run(
        """
        const read = "#summary td, #summary-best-node td, h1, h2, h3";
        return [...document.querySelectorAll(read)].filter(each => {
            const box = each.getBoundingClientRect();
            return box.width && (box.left < 0 || box.right > arguments[0] + 1);
        }).map(each => each.textContent);""",
        width,
    )
    assert cut_off == [], "tables are read without scrolling sideways"
    assert browser.complaints() == []
    lefts = {figure.location["x"] for figure in browser.find("figure")}
    assert len(lefts) == columns
    texts = "[...document.querySelectorAll('figure svg text')].map(t => t.getBoundingClientRect().height)"
    assert browser.run(f"return Math.min(...{texts})") >= 7, "too small to be read"


def test_texts_of_a_figure_do_not_leave_it(page: Path, browser: Browser) -> None:
    browser.resize(1400, 900)
    browser.open(page)
    outside = browser.run("""
        return [...document.querySelectorAll('figure')].flatMap(figure => {
            const box = figure.getBoundingClientRect();
            return [...figure.querySelectorAll('svg text')].filter(text => {
                const at = text.getBoundingClientRect();
                return at.left < box.left || at.right > box.right || at.top < box.top;
            }).map(text => figure.id + ': ' + text.textContent);
        });""")
    assert outside == []


def test_compare_prints_the_same_table(
    runs: Path, page: Path, browser: Browser, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    command("compare", str(runs), "--json")
    (found,) = json.loads(capsys.readouterr().out)
    arms = found["comparison"]["arms"]
    browser.open(page)
    for column, what in ((2, "end"), (3, "best")):
        cells = [cell.text for cell in browser.find(f"#summary tbody td:nth-child({column})")]
        assert len(cells) == len(arms) == 3
        for text, arm in zip(cells, arms, strict=True):
            mean = sum(arm[what]) / len(arm[what])
            assert float(re.match(r"[\d.]+", text)[0]) == pytest.approx(100 * mean, abs=0.051)  # type: ignore[index]
    command("compare", str(runs))
    printed = " ".join(capsys.readouterr().out.split())
    assert "Digits, 12 nodes, churn" in printed
    assert "Target: accuracy" in printed
