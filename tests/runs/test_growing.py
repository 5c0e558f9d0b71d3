"""Tables that grow while they are looked at, and large ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from plexus.errors import PlexusError
from plexus.runs import tables
from plexus.runs.tables import TableReader, read


def test_rows_are_taken_in_as_they_come(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    table = TableReader(path)
    assert table.columns() == {}
    with path.open("a") as file:
        for text in ("a,b,c\n1,2.5,tr", "ue\n2,3,false\n3,", ',true\n4,1,"x, y"\n'):
            file.write(text)
            file.flush()
            table.columns()
    found = table.columns()
    assert found["a"].tolist() == [1, 2, 3, 4]
    np.testing.assert_array_equal(found["b"], [2.5, 3, np.nan, 1])
    assert found["c"].tolist() == ["true", "false", "true", "x, y"]


@pytest.mark.parametrize("step", [1, 7, 100])
def test_however_it_grows_it_reads_the_same(step: int, tmp_path: Path) -> None:
    text = "a,b,c,d\n" + "".join(f"{i},{i / 7},w{i % 3},{'true' if i % 2 else 'false'}\n" for i in range(50))
    path = tmp_path / "t.csv"
    table = TableReader(path)
    with path.open("w") as file:
        for at in range(0, len(text), step):
            file.write(text[at : at + step])
            file.flush()
            table.columns()
    whole = read(path)
    for name, column in table.columns().items():
        assert column.dtype.kind == whole[name].dtype.kind
        np.testing.assert_array_equal(column, whole[name])


@pytest.mark.parametrize(
    ("row", "odd"),
    [
        ("1,2.5,train,true", "1,2.5,aggregate,false"),
        ("1,2,train,true", "1,2.5,train,true"),  # a column of whole numbers that is none
        ("1,2,train,true", ",2,train,true"),
        ("1,2,train,true", "1,2,,true"),
        ("1,2,train,true", "1,2,a word that is long,true"),
        ("1,2,train,true", '1,2,"a, b",true'),
        ("1,2,train,true", "1,nan,#train,true"),
    ],
)
def test_many_rows_are_read_as_few_are(
    row: str, odd: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["a,b,c,d", *[row] * 4000, odd, *[row] * 4000]) + "\n")
    many = read(path)
    monkeypatch.setattr(tables, "MANY", 10**9)
    for name, column in read(path).items():
        assert many[name].dtype.kind == column.dtype.kind
        np.testing.assert_array_equal(many[name], column)


def test_a_row_that_lacks_cells_is_found_among_many(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["a,b", *["1,2"] * 4000, "", *["1,2"] * 4000]) + "\n")
    with pytest.raises(PlexusError, match="line 4002 has 0 cells, the header 2"):
        read(path)


def test_a_table_that_begins_anew_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a\n1\n2\n3\n")
    table = TableReader(path)
    assert len(table.columns()["a"]) == 3
    path.unlink()
    path.write_text("a\n7\n")
    assert table.columns()["a"].tolist() == [7]


def test_a_table_that_is_replaced_while_it_is_read_is_read_anew(tmp_path: Path) -> None:
    path, other = tmp_path / "t.csv", tmp_path / "other.csv"
    path.write_text("a\n1\n")
    other.write_text("a\n20\n30\n")
    table = TableReader(path)
    with path.open("rb") as file:
        other.replace(path)
        table._catch_up(file)
    assert table.columns()["a"].tolist() == [20, 30]


def test_a_row_of_another_width_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n3\n")
    with pytest.raises(PlexusError, match=r"t\.csv"):
        TableReader(path).columns()
