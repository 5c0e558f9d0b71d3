"""`plexus new`: a project of one's own, which learns from the first minute on."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from plexus.cli.new import new
from plexus.errors import PlexusError
from plexus.learn.engines import choose
from plexus.learn.tabular import read_schema
from plexus.learn.tasks import build_task, parse_task
from plexus.loading import OwnSpec
from plexus.spec.experiment import load_spec


def make(name: str, into: Path, *words: str) -> Path:
    result = CliRunner().invoke(new, [name, "--into", str(into), *words], catch_exceptions=False)
    assert result.exit_code == 0
    assert f"plexus run {into / name / 'session.toml'}" in result.output
    return into / name


@pytest.mark.slow
@pytest.mark.parametrize("template", ["csv", "text", "own-loop"])
def test_a_new_project_passes_its_own_tests(template: str, tmp_path: Path) -> None:
    folder = make("turbines", tmp_path, "--template", template)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_its_session_names_its_task(tmp_path: Path) -> None:
    folder = make("mills", tmp_path)
    session = tomllib.loads((folder / "session.toml").read_text())
    spec = parse_task(session["task"])
    schema = read_schema(folder / "mills" / "schema.json").hash
    assert spec == OwnSpec("mills.task:build", {"learning_rate": 0.1, "schema": schema})
    task = build_task(spec, session["nodes"], session["seed"], base_dir=folder)
    assert (task.name, task.nodes) == ("mills", 30)
    assert len(task.train) + len(task.test) == 600
    assert choose(task, device="cpu").name == "stacked"


def test_in_its_session_baselines_are_looked_at_many_times(tmp_path: Path) -> None:
    spec = load_spec(make("kilns", tmp_path) / "session.toml")
    assert spec.hours / spec.evaluation.every_hours >= 20


@pytest.mark.parametrize(("owners", "peers"), [(2, 2), (5, 3)])
def test_a_fleet_has_no_more_peers_than_there_are_owners(owners: int, peers: int, tmp_path: Path) -> None:
    rows = [f"{n % 7},owner {n % owners},{n % 2}\n" for n in range(80)]
    (tmp_path / "own.csv").write_text("size,whose,kind\n" + "".join(rows))
    options = ["few", "--into", str(tmp_path), "--csv", str(tmp_path / "own.csv"), "--owner", "whose"]
    said = CliRunner().invoke(new, options, catch_exceptions=False).output
    assert f"session.toml --nodes {peers} --rounds 20" in said
    assert f"--nodes {peers} " in (tmp_path / "few" / "session.toml").read_text()


@pytest.mark.parametrize("name", ["My-Task", "1st", "class", "a b", "../up"])
def test_a_name_that_is_no_package_is_refused(name: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(new, [name, "--into", str(tmp_path)])
    assert isinstance(result.exception, PlexusError)
    assert "cannot name a Python package" in str(result.exception)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["torch", "json", "plexus"])
def test_a_name_that_others_have_is_refused(name: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(new, [name, "--into", str(tmp_path)])
    assert str(result.exception) == f"'{name}' is the name of a module that is installed: choose another"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["data", "test_task"])
def test_the_name_of_a_part_of_the_project_is_refused(name: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(new, [name, "--into", str(tmp_path)])
    assert str(result.exception) == f"'{name}' is what a part of the project is called: choose another"
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    result = CliRunner().invoke(new, ["mine", "--into", str(tmp_path)])
    assert str(result.exception) == f"{tmp_path / 'mine'} is already there: choose another name or remove it"


GRAPES = "name,sugar,soil,grower,price\n" + "".join(
    f"cask {n},{n % 7},{'clay' if n % 3 else 'sand'},grower {n % 4},{n % 7 + n % 3 / 3}\n" for n in range(80)
)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), "predicts 'price', a number, in standard deviations from its mean"),
        (("--target", "soil"), "predicts 'soil', one of 2 classes (clay, sand)"),
        (("--owner", "grower"), "4 owners, one a node"),
        ((), "left out, as its words are nearly all different: 'name'"),
    ],
)
def test_a_table_of_ones_own_becomes_a_task(tmp_path: Path, options: tuple[str, ...], expected: str) -> None:
    (tmp_path / "grapes.csv").write_text(GRAPES)
    arguments = ["grapes", "--into", str(tmp_path), "--csv", str(tmp_path / "grapes.csv")]
    result = CliRunner().invoke(new, [*arguments, *options], catch_exceptions=False)
    assert expected in result.output
    session = tomllib.loads((tmp_path / "grapes" / "session.toml").read_text())
    sys.modules.pop("grapes", None)
    sys.modules.pop("grapes.task", None)
    task = build_task(parse_task(session["task"]), session["nodes"], 1, base_dir=tmp_path / "grapes")
    sys.path.remove(str(tmp_path / "grapes"))
    assert len(task.train) + len(task.test) == 80
    assert task.nodes == (4 if "--owner" in options else 12)
    assert task.initial_model()(task.test.inputs).shape[:1] == (20,)


def test_what_is_not_taken_from_a_table_is_told(tmp_path: Path) -> None:
    rows = "".join(f"{n},inf,,{'NaN' if n % 4 == 0 else n % 2}\n" for n in range(39))
    (tmp_path / "t.csv").write_text(f"n,size,colour,kind\n{rows}39,1.5,,1\n")
    arguments = ["taken", "--into", str(tmp_path), "--csv", str(tmp_path / "t.csv")]
    result = CliRunner().invoke(new, arguments, catch_exceptions=False)
    assert [line.strip() for line in result.output.splitlines()[1:5]] == [
        "30 rows; 2 inputs; predicts 'kind', one of 2 classes (0, 1)",
        "10 rows left out, as they have nothing in 'kind'",
        "left out, as there is nothing in it: 'colour'",
        "29 gaps in 'size' (empty, NaN or infinite) are its mean",
    ]


def test_columns_that_become_many_words_are_told_by_name(tmp_path: Path) -> None:
    rows = "".join(f"2024-01-{n % 20 + 10};{n % 12},5;{n},25;{n % 2}\n" for n in range(80))
    (tmp_path / "t.csv").write_text(f"day;price;weight;kind\n{rows}")
    arguments = ["many", "--into", str(tmp_path), "--csv", str(tmp_path / "t.csv")]
    said = CliRunner().invoke(new, arguments, catch_exceptions=False).output
    assert "'day' is taken for words, 20 different: an input each" in said
    assert "numbers of 'price', 'weight' have a decimal comma: with a point they are numbers" in said


def test_a_table_of_texts_says_what_to_do(tmp_path: Path) -> None:
    rows = "".join(f"review number {n},{n % 2}\n" for n in range(80))
    (tmp_path / "reviews.csv").write_text(f"text,stars\n{rows}")
    arguments = ["reviews", "--into", str(tmp_path), "--csv", str(tmp_path / "reviews.csv")]
    said = str(CliRunner().invoke(new, arguments).exception)
    assert "reviews.csv: no column is left to learn from: 'text' left out, as the words are" in said
    assert "--template text" in said and not (tmp_path / "reviews").exists()


def test_a_table_that_cannot_be_read_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "grapes.csv").write_text(GRAPES)
    arguments = ["grapes", "--into", str(tmp_path), "--csv", str(tmp_path / "grapes.csv")]
    result = CliRunner().invoke(new, [*arguments, "--target", "prize"])
    assert "has no column 'prize'; it has name, sugar" in str(result.exception)
    assert not (tmp_path / "grapes").exists()
    result = CliRunner().invoke(new, ["grapes", "--target", "price"])
    assert "give it with --csv" in result.output
