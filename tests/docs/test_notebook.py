"""The notebook runs from top to bottom."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.docs
@pytest.mark.slow
def test_the_tour_runs(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the notebook's machinery
        nbclient = pytest.importorskip("nbclient")
        nbformat = pytest.importorskip("nbformat")
        for name in ("tour.ipynb", "whisper.py"):
            shutil.copy(EXAMPLES / name, tmp_path)
        notebook = nbformat.read(tmp_path / "tour.ipynb", as_version=4)
        client = nbclient.NotebookClient(
            notebook, timeout=200, resources={"metadata": {"path": str(tmp_path)}}
        )
        client.execute()
    printed = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []))
    assert "best accuracy" in printed
    assert "whisper:whisper" in printed


def test_the_tour_is_small_and_without_outputs() -> None:
    path = EXAMPLES / "tour.ipynb"
    assert path.stat().st_size < 20_000
    nbformat = pytest.importorskip("nbformat")
    cells = nbformat.read(path, as_version=4).cells
    assert not any(cell.get("outputs") for cell in cells)
