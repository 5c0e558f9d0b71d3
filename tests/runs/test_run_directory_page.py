"""docs/run-directory.md says what the code does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plexus.runs.directory import FIGURE, RunDirectory, go_on, live
from plexus.runs.result import Result
from plexus.runs.run import RESULT, SPEC, VERSIONS
from plexus.runs.tables import TABLES

PAGE = (Path(__file__).parents[2] / "docs" / "run-directory.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", TABLES)
def test_every_table_and_column_is_described(name: str) -> None:
    table = TABLES[name]
    rows = "\n".join(f"| `{column}` | {meaning} |" for column, meaning in table.columns.items())
    assert f"### {name}.csv\n\n{table.meaning}\n\n| column | meaning |\n|---|---|\n{rows}\n" in PAGE
    assert table.further in " ".join(PAGE.split())


def test_every_file_is_listed() -> None:
    files = (SPEC, VERSIONS, RESULT, FIGURE, *(f"{name}.csv" for name in TABLES))
    assert [name for name in files if f"`{name}`" not in PAGE] == []


def test_every_key_of_the_versions_is_described(tmp_path: Path) -> None:
    [row] = [line for line in PAGE.splitlines() if line.startswith(f"| `{VERSIONS}`")]
    with RunDirectory(tmp_path / "run", "", "d1ge57", about={"tags": ["x"], "note": "y"}):
        pass
    go_on(tmp_path / "live", "", "d1ge57", 1000, live([".."], session="00"))
    written = [json.loads((tmp_path / run / VERSIONS).read_text()) for run in ("run", "live")]
    assert [key for keys in written for key in keys if f"`{key}`" not in row] == []


def test_every_key_of_the_result_is_described() -> None:
    described = PAGE[PAGE.index("## result.json") : PAGE.index("## Reading it")]
    assert [key for key in Result.__struct_fields__ if f"`{key}`" not in described] == []
