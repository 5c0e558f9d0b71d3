"""`plexus predict`: what it cannot do is one line that says what to do instead."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import torch
from click.testing import CliRunner

from plexus.cli.predict import predict
from plexus.learn.saved import save_model
from plexus.learn.tabular import read_csv

PLAN = '{"call": "nosuch_mill.task:network", "args": [], "kwargs": {}}'


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "rows.csv").write_text("size,kind\n1,u\n2,v\n")
    return tmp_path / "rows.csv"


def said_of(table: Path, rows: Path, **about: str) -> str:
    model = table.with_name("model.safetensors")
    save_model(model, {"weight": torch.zeros(1)}, about)
    return str(CliRunner().invoke(predict, [str(model), "--csv", str(rows)]).exception)


def test_a_model_of_pictures_is_asked_in_python(table: Path) -> None:
    said = said_of(table, table, task="pets")
    assert "model.safetensors: the model is not of a table (task pets): ask it in Python" in said
    assert "plexus.load(RUN).best_model()" in said and "docs/own-task.md#a-model-to-take-home" in said


def test_code_that_is_not_found_is_said_with_task_dir(table: Path) -> None:
    schema = msgspec.json.encode(read_csv(table, "kind").schema).decode()
    said = said_of(table, table, schema=schema, model=PLAN)
    assert "No module named 'nosuch_mill'" in said
    assert said.endswith("; say with --task-dir which folder it is in")


def test_a_word_among_numbers_is_named_with_its_row(table: Path) -> None:
    schema = msgspec.json.encode(read_csv(table, "kind").schema).decode()
    rows = table.with_name("new.csv")
    rows.write_text("size\n3\nlarge\n")
    said = said_of(table, rows, schema=schema, model=PLAN)
    assert said == f"{rows}: column 'size' is one of numbers, but line 3 has 'large'"
