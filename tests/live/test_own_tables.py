"""Every peer brings a table of its own, with no other data on the machine, and takes a model home."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from plexus.cli.new import OwnTable, write_project
from plexus.errors import PlexusError
from plexus.learn.saved import load_model, read_model
from plexus.learn.tabular import read_columns, read_schema
from plexus.live.fleet.fleet import free_ports
from plexus.live.worker.process import task_of
from plexus.runs.model_files import BEST_MODEL, metadata_of
from plexus.spec.experiment import load_spec
from tests.live.test_commands import plexus


def wines(folder: Path) -> Path:
    """Thirteen measurements of 178 wines, the cultivar, and the estate that measured it."""
    from sklearn.datasets import load_wine

    data = load_wine()
    path = folder / "wine.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*data.feature_names, "cultivar", "estate"])
        for at, (row, kind) in enumerate(zip(data.data, data.target, strict=True)):
            writer.writerow([*row, ("barolo", "grignolino", "barbera")[kind], f"estate-{at % 6}"])
    return path


def without(path: Path, out: Path, column: str, rows: slice, **changes: str) -> Path:
    """Some rows of a table, without a column, and with changed cells in the first of them."""
    cells = {name: each[rows] for name, each in read_columns(path).items() if name != column}
    for name, cell in changes.items():
        cells[name][0] = cell
    with out.open("w", newline="") as file:
        csv.writer(file).writerows([cells, *zip(*cells.values(), strict=True)])
    return out


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_project("wine", tmp_path, OwnTable(wines(tmp_path), "cultivar", "estate"))
    return tmp_path


def test_scales_are_learned_from_training_rows_alone(place: Path) -> None:
    schema = read_schema(place / "wine" / "wine" / "schema.json")
    table = schema.read(place / "wine.csv")
    train, test = table.split()
    assert table.inputs[train].mean(axis=0) == pytest.approx(np.zeros(13), abs=1e-5)
    assert table.inputs[train].std(axis=0) == pytest.approx(np.ones(13), abs=1e-5)
    assert np.abs(table.inputs[test].mean(axis=0)).max() > 0.01
    assert (schema.owner, schema.classes) == ("estate", ("barbera", "barolo", "grignolino"))


def test_a_table_of_ones_own_is_checked_against_the_schema(place: Path) -> None:
    spec = load_spec(place / "wine" / "session.toml")
    shutil.rmtree(place / "wine" / "data")
    everything = place / "wine.csv"
    own = without(everything, place / "own.csv", "estate", slice(0, 40), alcohol="NaN", hue="inf")
    task, node = task_of(spec, place / "wine", str(own))
    assert (node, task.nodes, len(task.train) + len(task.test)) == (0, 1, 40)
    assert torch.isfinite(task.train.inputs).all() and torch.isfinite(task.test.inputs).all()
    assert task.notes == tuple(
        f"1 gaps in {name!r} (empty, NaN or infinite) are its mean" for name in ("alcohol", "hue")
    )
    bad = {
        "has no column 'ash'": without(everything, place / "a.csv", "ash", slice(0, 9)),
        "column 'ash' is one of numbers": without(
            everything, place / "b.csv", "estate", slice(0, 9), ash="x"
        ),
        "0 rows have a class of the schema": place / "c.csv",
    }
    text = own.read_text()
    for name in ("barolo", "grignolino", "barbera"):
        text = text.replace(name, "merlot")
    (place / "c.csv").write_text(text)
    for complaint, path in bad.items():
        with pytest.raises(PlexusError, match=complaint) as caught:
            task_of(spec, place / "wine", str(path))
        assert str(path) in str(caught.value)
    with pytest.raises(PlexusError, match="no such file or folder"):
        task_of(spec, place / "wine", "nowhere.csv")
    with pytest.raises(PlexusError, match=r"nowhere.npz: no such file or folder"):
        task_of(spec, place / "wine", "nowhere.npz")
    np.savez(place / "own.npz", inputs=np.zeros((9, 13)), targets=np.zeros(9))
    wanted = r"own.npz needs the session's data here, too; .* for a table a .csv: .*/data/wine.csv: No such"
    with pytest.raises(PlexusError, match=wanted):
        task_of(spec, place / "wine", str(place / "own.npz"))
    (place / "wine" / "wine" / "schema.json").write_text(
        (place / "wine" / "wine" / "schema.json").read_text().replace("barbera", "dolcetto")
    )
    with pytest.raises(PlexusError, match=r"is schema .*, the session's is"):
        task_of(spec, place / "wine", str(own))


@pytest.mark.slow
def test_three_peers_with_tables_of_their_own_from_a_model_to_predictions(place: Path) -> None:
    spec = place / "wine" / "session.toml"
    small = ("--set", "hours=0.05", "--set", "nodes=3", "--set", "protocol.sample_size=3")
    plexus("run", spec, *small, "--out", "rehearsal", "--quiet", cwd=place)
    plexus(
        "session",
        "init",
        "authority",
        "--from",
        spec,
        *small,
        "--model",
        f"rehearsal/{BEST_MODEL}",
        cwd=place,
    )
    shutil.rmtree(place / "wine" / "data")
    ports = free_ports(3)
    processes = []
    for node in range(3):
        key = plexus("node", "key", "--home", f"peer{node}", cwd=place).stdout.strip()
        plexus("session", "invite", "authority", key, "--out", f"peer{node}/node.crt", cwd=place)
        own = without(place / "wine.csv", place / f"own{node}.csv", "estate", slice(node, None, 3))
        # On a machine of its own: the session's two files, the code, the table.
        shutil.copytree(place / "wine", place / f"peer{node}" / "wine")
        for file in ("session.toml", "model.safetensors"):
            shutil.copy(place / "authority" / file, place / f"peer{node}" / file)
        own.rename(place / f"peer{node}" / "my.csv")
        options = ["--task-dir", "wine", "--home", ".", "--data", "my.csv"]
        options += ["--listen", f"127.0.0.1:{ports[node]}"]
        options += [word for port in ports[:node] for word in ("--join", f"127.0.0.1:{port}")]
        command = [sys.executable, "-m", "plexus", "node", "start", "session.toml", *options]
        with (place / f"log{node}").open("w") as log:
            processes.append(subprocess.Popen(command, cwd=place / f"peer{node}", stderr=log))
    try:
        until = time.monotonic() + 90
        while not all((place / f"peer{node}" / "state.bin").exists() for node in range(3)) or not any(
            (place / f"peer{node}" / BEST_MODEL).exists() for node in range(3)
        ):
            assert time.monotonic() < until, [(place / f"log{node}").read_text() for node in range(3)]
            time.sleep(0.3)
        plexus("export", "peer1", "-o", "model.safetensors", cwd=place)
    finally:
        for process in processes:
            process.terminate()
        assert [process.wait(timeout=30) for process in processes] == [0, 0, 0]
    check_predictions(place)
    (place / "peer0" / "model.safetensors").write_bytes(b"another")
    done = plexus(
        *("node", "start", "session.toml", "--home", ".", "--data", "my.csv"),
        cwd=place / "peer0",
        check=False,
    )
    assert done.returncode == 2 and "not the model that this session starts from" in done.stderr


def check_predictions(place: Path) -> None:
    """Predictions on fresh rows are what the module itself says."""
    fresh = without(place / "wine.csv", place / "fresh.csv", "cultivar", slice(5, 25))
    done = plexus("predict", "model.safetensors", "--csv", fresh, "--task-dir", "peer1/wine", cwd=place)
    said = [row["predicted cultivar"] for row in csv.DictReader(io.StringIO(done.stdout))]
    module = load_model(place / "model.safetensors", place / "peer1" / "wine")
    about = metadata_of(place / "model.safetensors")
    schema = read_schema(place / "peer1" / "wine" / "wine" / "schema.json")
    assert json.loads(about["classes"]) == list(schema.classes)
    assert read_model(place / "model.safetensors")[0].keys() == dict(module.named_parameters()).keys()
    with torch.no_grad():
        outputs = module(torch.from_numpy(schema.inputs(fresh, read_columns(fresh), [])))
    assert said == [schema.classes[at] for at in outputs.argmax(dim=1)]
    truth = read_columns(place / "wine.csv")["cultivar"][5:25]
    assert sum(a == b for a, b in zip(said, truth, strict=True)) >= 16
