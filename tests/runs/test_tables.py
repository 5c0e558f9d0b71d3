"""Tables are text that reads back exactly, whatever happened to the process that wrote them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plexus.errors import PlexusError
from plexus.runs.recorder import Recorder
from plexus.runs.tables import line, read


def test_columns_come_back_with_their_types(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    common = {"aggregator": 7, "models": 10, "participants": 13}
    recorder.record("rounds", simulated_s=0.1, round=1, **common, timed_out=False, waited_s=None, note="a,b")
    recorder.record(
        "rounds",
        simulated_s=np.float64(1 / 3),
        round=np.int64(2),
        **common,
        timed_out=np.True_,
        waited_s=4,
        note='say "x"',
    )
    recorder.flush()
    columns = read(tmp_path / "rounds.csv")
    assert {name: column.dtype.kind for name, column in columns.items()} == {
        "simulated_s": "f",
        "round": "i",
        "aggregator": "i",
        "models": "i",
        "participants": "i",
        "timed_out": "b",
        "waited_s": "f",
        "note": "U",
    }
    assert columns["simulated_s"].tolist() == [0.1, 1 / 3]
    assert columns["timed_out"].tolist() == [False, True]
    assert np.isnan(columns["waited_s"][0])
    assert columns["note"].tolist() == ["a,b", 'say "x"']


@given(st.lists(st.floats(allow_nan=False), min_size=1))
def test_every_number_reads_back_exactly(numbers: list[float]) -> None:
    assert [float(line((number,))) for number in numbers] == numbers


def test_rows_reach_the_file_without_being_asked_to(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    for moment in range(2000):
        recorder.record("online", simulated_s=float(moment), online=moment)
    assert len(read(tmp_path / "online.csv")["online"]) >= 1000


def test_a_flush_that_is_interrupted_loses_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(tmp_path)
    for moment in range(5):
        recorder.record("online", simulated_s=float(moment), online=moment)
    write = os.pwrite

    def interrupted(descriptor: int, data: bytes, at: int) -> int:
        write(descriptor, data[: len(data) // 2], at)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "pwrite", interrupted)
    with pytest.raises(KeyboardInterrupt):
        recorder.flush()
    monkeypatch.undo()
    recorder.record("online", simulated_s=5.0, online=5)
    recorder.flush()
    assert read(tmp_path / "online.csv")["online"].tolist() == list(range(6))


def test_a_line_that_was_cut_off_is_no_row(tmp_path: Path) -> None:
    path = tmp_path / "online.csv"
    path.write_text("simulated_s,online\n0.0,12\n60.0,1")
    assert read(path)["online"].tolist() == [12]
    path.write_text("simulated_s,onl")
    assert read(path) == {}
    path.write_text("simulated_s,online\n")
    assert read(path) == {}


def test_a_damaged_row_is_named_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "online.csv"
    path.write_text("simulated_s,online\n0.0,12\n60.0\n")
    with pytest.raises(PlexusError, match=r"online\.csv: line 3 has 1 cells, the header 2"):
        read(path)


def test_columns_may_be_given_in_any_order_but_must_be_the_same(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.record("online", simulated_s=0.0, online=1)
    recorder.record("online", online=2, simulated_s=1.0)
    recorder.flush()
    assert (tmp_path / "online.csv").read_text() == "simulated_s,online\n0.0,1\n1.0,2\n"
    with pytest.raises(ValueError, match="online has columns"):
        recorder.record("online", simulated_s=2.0, online=3, more=1)


@pytest.mark.parametrize(
    ("table", "columns", "message"),
    [
        ("onlin", {"simulated_s": 0.0}, "no table 'onlin'"),
        ("online", {"simulated_s": 0.0}, "a row of online lacks online"),
    ],
)
def test_an_undeclared_row_is_a_mistake(
    tmp_path: Path, table: str, columns: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Recorder(tmp_path).record(table, **columns)


@pytest.mark.parametrize(("cell", "error"), [("a\nb", ValueError), ([1], TypeError)])
def test_a_cell_is_one_value_on_one_line(cell: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="a cell"):
        line((cell,))


def test_a_table_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "online.csv").mkdir()
    with pytest.raises(PlexusError, match=r"online\.csv: cannot be written: Is a directory"):
        Recorder(tmp_path).record("online", simulated_s=0.0, online=1)
