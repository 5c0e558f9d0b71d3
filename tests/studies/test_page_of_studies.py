"""The page of the paper's studies in a real browser: every figure and table, and no complaint."""

from __future__ import annotations

from pathlib import Path

import pytest

from plexus import reproduce
from plexus.studies.page import TABLES
from plexus.studies.reproduce import load_studies
from tests.studies.kit import BASE, EXPERIMENTS, STUDY, cut_down


def check(page: Path, browser: object, experiments: Path) -> None:
    """Every drawing of every study is on the page, and visible."""
    browser.open(page)  # type: ignore[attr-defined]
    assert browser.find("h1")[0].text == "The paper's results, size tiny"  # type: ignore[attr-defined]
    for study in load_studies(["all"], "tiny", experiments):
        assert len(browser.find(f"section#{study.name} h2")) == 1, study.name  # type: ignore[attr-defined]
        for task in study.tasks:
            for number, drawing in enumerate(study.study.draw, start=1):
                id = f"{study.name}-{task}-{number}"
                inside = "table tbody tr" if drawing.kind in (*TABLES, "summary") else "svg"
                found = browser.find(f"#{id} {inside}")  # type: ignore[attr-defined]
                assert found and found[0].is_displayed(), f"{id} is not on the page"
    assert browser.find("#table2-paper table tbody tr")  # type: ignore[attr-defined]
    assert browser.complaints() == []  # type: ignore[attr-defined]


@pytest.mark.slow
def test_every_figure_and_table_is_on_the_page(tmp_path: Path, browser: object) -> None:
    folder = cut_down(tmp_path / "experiments")
    page = reproduce("all", size="tiny", out=tmp_path / "out", experiments=folder, quiet=True)
    check(page, browser, folder)


@pytest.mark.slow
def test_a_study_and_its_tasks_may_be_called_anything(tmp_path: Path) -> None:
    (tmp_path / "My_base.toml").write_text(BASE)
    drawn = STUDY.replace('"base"', '"My_base"').replace("[1, 2]", "[1]")
    for name in ("2nd_Study", "Étude"):
        (tmp_path / f"{name}.toml").write_text(drawn)
        page = reproduce(str(tmp_path / f"{name}.toml"), size="tiny", out=tmp_path / "out", quiet=True)
        assert "One study" in page.read_text()
    names = {file.name for file in (tmp_path / "out").rglob("*.png")}
    assert {"study-2nd-study-my-base-1.png", "tude-my-base-1.png"} <= names


@pytest.mark.paper
@pytest.mark.timeout(1800)
def test_the_tiny_reproduction(tmp_path: Path, browser: object) -> None:
    """`plexus reproduce all --size tiny` as it is; minutes of two cores."""
    page = reproduce("all", size="tiny", out=tmp_path / "out", experiments=EXPERIMENTS, quiet=True)
    check(page, browser, EXPERIMENTS)
