"""`plexus predict`: what it cannot do is one line that says what to do instead."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import torch
from click.testing import CliRunner

from plexus.cli.predict import predict
from plexus.learn.saved import about, save_model
from plexus.learn.tabular import read_csv
from plexus.learn.tasks import create_task

PLAN = '{"call": "nosuch_mill.task:network", "args": [], "kwargs": {}}'


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "rows.csv").write_text("size,kind\n1,u\n2,v\n")
    return tmp_path / "rows.csv"


def said_of(table: Path, rows: Path, **facts: str) -> str:
    model = table.with_name("model.safetensors")
    save_model(model, {"weight": torch.zeros(1)}, facts)
    return str(CliRunner().invoke(predict, [str(model), "--csv", str(rows)]).exception)


def test_a_model_of_pictures_is_asked_in_python(table: Path) -> None:
    said = said_of(table, table, task="pets")
    assert "model.safetensors: the model is not of a table (task pets): ask it in Python" in said
    assert "plexus.load(RUN).best_model()" in said and "docs/own-task.md#a-model-to-take-home" in said


def test_code_that_is_not_found_is_said_with_task_dir(table: Path) -> None:
    schema = msgspec.json.encode(read_csv(table, "kind").schema).decode()
    said = said_of(table, table, schema=schema, model=PLAN)
    assert "its model is built by nosuch_mill.task:network, which is not in" in said
    assert said.endswith("; say with --task-dir which folder it is in")


def doubled(inputs: torch.Tensor) -> torch.Tensor:
    return 2 * inputs


def test_what_a_task_makes_of_rows_is_not_left_out(table: Path) -> None:
    schema = read_csv(table, "kind").schema
    task = create_task("digits", 2, 1)
    facts = about(replace(task, schema=schema, prepare=doubled))
    assert "prepare" not in about(replace(task, schema=schema))
    said = said_of(table, table, **facts)
    assert (
        "model.safetensors: the model takes what its task's doubled makes of rows: ask it in Python" in said
    )


def test_a_model_that_raises_is_one_line(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = msgspec.json.encode(read_csv(table, "kind").schema).decode()
    monkeypatch.setattr("plexus.learn.saved.load_model", lambda *_: torch.nn.Linear(3, 2))
    said = said_of(table, table, schema=schema)
    assert "model.safetensors: asking the model: RuntimeError: mat1 and mat2 shapes cannot be" in said


def test_a_word_among_numbers_is_named_with_its_row(table: Path) -> None:
    schema = msgspec.json.encode(read_csv(table, "kind").schema).decode()
    rows = table.with_name("new.csv")
    rows.write_text("size\n3\nlarge\n")
    said = said_of(table, rows, schema=schema, model=PLAN)
    assert said == f"{rows}: column 'size' is one of numbers, but line 3 has 'large'"
