"""`plexus new --template`: each project works as it is, and takes the data that a peer brings."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from click.testing import CliRunner
from PIL import Image

import plexus
from plexus.cli.new import new, write_project
from plexus.errors import PlexusError
from plexus.learn.engines import choose
from plexus.learn.tasks import build_task
from plexus.live.worker.process import task_of
from plexus.runs.model_files import BEST_MODEL, metadata_of
from plexus.spec.experiment import load_spec

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("template", "own", "best"),
    [("images", "data/ben", 0.6), ("text", "data/cleo.txt", 0.6), ("own-loop", "data/readings.csv", 0.9)],
)
def test_a_project_learns_and_a_peer_brings_its_own(
    template: str, own: str, best: float, tmp_path: Path
) -> None:
    name = f"mine_{template.replace('-', '_')}"
    write_project(name, tmp_path, template=template)
    session = tmp_path / name / "session.toml"
    run = plexus.simulate(session, changes={"hours": 0.15}, out=tmp_path / "run")
    assert run.result is not None and run.result.metric.best is not None and run.result.metric.best > best
    assert metadata_of(run.path / BEST_MODEL)["task"] == name
    assert sum(each.numel() for each in run.best_model().parameters()) > 100
    spec = load_spec(session)
    task, node = task_of(spec, tmp_path / name, str(tmp_path / name / own))
    assert (task.nodes, node) == (1, 0) and len(task.test) > 0
    if template == "own-loop":
        assert task.loop is not None and choose(task, workers=1, device="cpu").name == "inline"


def test_a_table_is_no_picture(tmp_path: Path) -> None:
    result = CliRunner().invoke(new, ["x", "--template", "images", "--csv", "t.csv", "--into", str(tmp_path)])
    assert "--csv is a table" in result.output and list(tmp_path.iterdir()) == []


def made(tmp_path: Path, *words: str) -> str:
    result = CliRunner().invoke(new, ["mine", "--into", str(tmp_path), *words])
    return str(result.exception) if isinstance(result.exception, PlexusError) else result.output


def test_own_pictures_say_owners_and_classes(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    for owner, kind in (("ann", "cat"), ("ann", "dog"), ("ben", "dog"), ("cleo", "Löwe")):
        (photos / owner / kind).mkdir(parents=True)
        for number in range(6):
            Image.new("RGB", (50, 40), (40 * number, 0, 0)).save(photos / owner / kind / f"{number}.JPG")
        (photos / owner / kind / ".DS_Store").write_text("of a file manager")
    (photos / "dora").mkdir()
    said = made(tmp_path, "--template", "images", "--data", str(photos))
    assert "24 pictures of 3 owners, one a node; 3 classes; no pictures, so no node: dora" in said
    spec = load_spec(tmp_path / "mine" / "session.toml")
    task = build_task(spec.task.parameters, spec.nodes, 1, tmp_path / "mine")
    assert (task.nodes, task.classes) == (3, ("Löwe", "cat", "dog"))
    # What a peer brings may know other classes, and must have some picture.
    (photos / "cleo" / "fox").mkdir()
    task, _ = task_of(spec, tmp_path / "mine", str(photos / "cleo"))
    assert task.notes == ("left out: fox is no class of this session",)
    assert len(task.train) + len(task.test) == 6
    with pytest.raises(PlexusError, match="photos: no pictures of Löwe, cat, dog"):
        task_of(spec, tmp_path / "mine", str(photos))


def test_pages_to_test_are_not_trained_on(tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    for owner, letter in (("ann", "a"), ("ben", "b")):
        # No two of the lines are alike.
        lines = [f"{letter} {hashlib.sha256(f'{letter}{n}'.encode()).hexdigest()}" for n in range(60)]
        (texts / f"{owner}.txt").write_text("\n".join(lines))
    assert "of 2 owners, one a node" in made(tmp_path, "--template", "text", "--data", str(texts))
    spec = load_spec(tmp_path / "mine" / "session.toml")
    task = build_task(spec.task.parameters, 2, 1, tmp_path / "mine")
    trained, tested = ({bytes(row.tolist()) for row in each.inputs} for each in (task.train, task.test))
    assert len(tested) > 500 and not trained & tested
    (tmp_path / "short.txt").write_text("too little")
    with pytest.raises(PlexusError, match=r"short\.txt: 10 letters, at least 600 are needed"):
        task_of(spec, tmp_path / "mine", str(tmp_path / "short.txt"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--template", "images", "--data", "{}"), "no pictures in folders OWNER/CLASS"),
        (("--template", "text", "--data", "{}"), "no texts OWNER.txt"),
        (("--template", "images", "--data", "{}/nosuch"), "nosuch: no such folder"),
        (("--data", "{}"), "--data is a folder of pictures or texts: add --template images|text"),
    ],
)
def test_a_folder_without_what_is_needed_is_refused(
    words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    assert said in made(tmp_path, *(word.format(tmp_path) for word in words))
    assert list(tmp_path.iterdir()) == []
