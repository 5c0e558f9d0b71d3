"""A place in which what pages show can be tried."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from tests.docs.blocks import ROOT

WINE = "alcohol,acid,colour,cultivar,estate\n" + "".join(
    f"{13 + n % 3},{(n * 7) % 5},{n % 4},{('barolo', 'barbera', 'grignolino')[n % 3]},e{n % 12}\n"
    for n in range(144)
)


def write_owners(folder: Path) -> None:
    """Pictures and letters of three owners."""
    (folder / "letters").mkdir()
    for number, owner in enumerate(("ann", "ben", "cleo")):
        (folder / "letters" / f"{owner}.txt").write_text(f"Dear {owner}, all is well here. " * 50)
        for shade, kind in ((60, "cat"), (200, "dog")):
            (folder / "photos" / owner / kind).mkdir(parents=True)
            for each in range(8):
                picture = Image.new("L", (40, 30), shade + 9 * number + each)
                picture.save(folder / "photos" / owner / kind / f"{each}.png")


@pytest.fixture
def clone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder like a clone of the repository, with the files that pages speak of.

    Its path is short: those of a peer's sockets may not be long.
    """
    tmp_path = Path(tempfile.mkdtemp(prefix="plexus-"))
    for folder in ("experiments", "examples"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    (tmp_path / "docs" / "figures").mkdir(parents=True)
    (tmp_path / "wine.csv").write_text(WINE)
    (tmp_path / "sessions.csv").write_text(
        "device,start_s,end_s,period_s\n" + "".join(f"{n},0,7200,86400\n" for n in range(6))
    )
    write_owners(tmp_path)
    (tmp_path / "bin").mkdir()
    plexus = tmp_path / "bin" / "plexus"
    plexus.write_text(f'#!/bin/sh\nexec {sys.executable} -m plexus "$@"\n')
    plexus.chmod(0o755)
    monkeypatch.setenv("PATH", f"{plexus.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    yield tmp_path
    sys.path[:] = path
    monkeypatch.undo()
    shutil.rmtree(tmp_path)
