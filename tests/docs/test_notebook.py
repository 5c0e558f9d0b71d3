"""The notebooks run from top to bottom."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
PRINTED = {
    "tour.ipynb": ("best accuracy", "whisper:whisper"),
    "rounds.ipynb": ("aggregates round 1: ", "different nodes aggregated", "sample of 10: "),
}


@pytest.mark.docs
@pytest.mark.slow
@pytest.mark.parametrize("name", PRINTED)
def test_a_notebook_runs(name: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the notebook's machinery
        nbclient = pytest.importorskip("nbclient")
        nbformat = pytest.importorskip("nbformat")
        for each in (name, "whisper.py"):
            shutil.copy(EXAMPLES / each, tmp_path)
        notebook = nbformat.read(tmp_path / name, as_version=4)
        client = nbclient.NotebookClient(
            notebook, timeout=200, resources={"metadata": {"path": str(tmp_path)}}
        )
        client.execute()
    printed = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []))
    print(printed)
    assert all(words in printed for words in PRINTED[name])


@pytest.mark.parametrize("path", [*EXAMPLES.glob("*.ipynb")], ids=lambda path: path.name)
def test_a_notebook_is_small_and_without_outputs(path: Path) -> None:
    assert path.name in PRINTED
    assert path.stat().st_size < 20_000
    nbformat = pytest.importorskip("nbformat")
    cells = nbformat.read(path, as_version=4).cells
    assert not any(cell.get("outputs") for cell in cells)
