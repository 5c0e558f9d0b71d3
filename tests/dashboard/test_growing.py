"""Tables that grow while they are looked at, and columns made small."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from plexus.dashboard.slices import binned, evenly, peaks, plain
from plexus.errors import PlexusError
from plexus.runs.growing import GrowingTable
from plexus.runs.tables import read


def test_rows_are_taken_in_as_they_come(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    table = GrowingTable(path)
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


def test_the_same_as_read_all_at_once(runs: Path) -> None:
    for path in (runs / "first").glob("*.csv"):
        grown, whole = GrowingTable(path).columns(), read(path)
        assert list(grown) == list(whole)
        for name, column in whole.items():
            np.testing.assert_array_equal(grown[name], column)


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
def test_many_rows_are_read_as_few_are(row: str, odd: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["a,b,c,d", *[row] * 4000, odd, *[row] * 4000]) + "\n")
    grown, whole = GrowingTable(path).columns(), read(path)
    for name, column in whole.items():
        assert grown[name].dtype.kind == column.dtype.kind
        np.testing.assert_array_equal(grown[name], column)


def test_a_table_that_begins_anew_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a\n1\n2\n3\n")
    table = GrowingTable(path)
    assert len(table.columns()["a"]) == 3
    path.unlink()
    path.write_text("a\n7\n")
    assert table.columns()["a"].tolist() == [7]


def test_a_row_of_another_width_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n3\n")
    with pytest.raises(PlexusError, match=r"t\.csv"):
        GrowingTable(path).columns()


def test_a_thinned_curve_keeps_what_stands_out() -> None:
    values = np.sin(np.linspace(0, 300, 50_000))
    values[31_234] = 9.0
    kept = peaks(values, 600)
    assert len(kept) <= 602
    assert {0, 31_234, 49_999} <= set(kept.tolist())
    assert evenly(10, 4).tolist() == [0, 3, 6, 9]


def test_bins_hold_means_and_every_row() -> None:
    rows = 1000
    table = {
        "began_s": np.arange(rows) * 10.0,
        "simulated_s": np.arange(rows) * 10.0 + 10,
        "round": np.arange(rows),
        "x_s": np.ones(rows),
    }
    found = binned(table, ("x_s",), most=30)
    assert len(found["x_s"]) == 30 and sum(found["rounds"]) == rows
    assert set(found["x_s"]) == {1}
    assert (found["from_s"][0], found["to_s"][-1]) == (0, 10_000)


def test_numbers_become_short_and_unknown_ones_null() -> None:
    assert plain({"a": np.array([1.0, 2.0]), "b": np.array([0.12345, np.nan])}, 3)["a"] == [1, 2]
    assert plain({"b": np.array([0.12345])}, 3) == {"b": [0.123]}
