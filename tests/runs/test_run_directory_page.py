"""docs/run-directory.md says what the code does."""

from __future__ import annotations

from pathlib import Path

import pytest

from plexus.runs.directory import FIGURE
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


def test_every_key_of_the_result_is_described() -> None:
    described = PAGE[PAGE.index("## result.json") : PAGE.index("## Reading it")]
    assert [key for key in Result.__struct_fields__ if f"`{key}`" not in described] == []
