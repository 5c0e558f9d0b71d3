"""`import plexus`: simulate, load, callbacks, and what is said to whom uses it wrongly."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import plexus
from plexus.api import as_spec
from plexus.errors import EXTRAS
from plexus.experiment.progress import Tick
from plexus.runs.directory import RunDirectory
from plexus.runs.run import Frame

ROOT = Path(__file__).parents[1]
SPEC: dict[str, Any] = {
    "name": "small",
    "nodes": 8,
    "hours": 0.1,
    "protocol": {"sample_size": 3},
    "task": {"name": "digits"},
    "traces": {"availability": "none"},
    "evaluation": {"every_rounds": 2},
}
TOML = """
name = "small"
nodes = 8
hours = 0.1
protocol.sample_size = 3
task = "digits"
traces.availability = "none"
evaluation.every_rounds = 2
"""


def test_importing_plexus_imports_nothing_else() -> None:
    script = (
        "import sys, plexus; print(plexus.__version__, 'simulate' in dir(plexus));"
        "print(sorted({'torch', 'numpy', 'msgspec', 'click'} & sys.modules.keys()))"
    )
    printed = subprocess.check_output([sys.executable, "-c", script], text=True)
    assert printed.splitlines() == [f"{plexus.__version__} True", "[]"]


@pytest.mark.parametrize("name", plexus.__all__)
def test_every_name_of_the_api_is_there_and_says_what_it_is(name: str) -> None:
    assert (getattr(plexus, name).__doc__ or "").strip()


def test_the_page_lists_the_names_of_the_api() -> None:
    _, _, table = (ROOT / "docs" / "python.md").read_text().partition("## All names")
    listed = re.findall(r"`(\w+)`", table.partition("| to | names |")[2].partition("\n\n")[0])
    assert sorted(listed) == sorted(set(plexus.__all__) - {"__version__"})


def test_a_type_checker_finds_the_same_names_at_the_same_places() -> None:
    tree = ast.parse(Path(plexus.__file__).with_suffix(".pyi").read_text())
    imports = [each for each in tree.body if isinstance(each, ast.ImportFrom)]
    typed = {name.asname: each.module for each in imports for name in each.names}
    assert typed == vars(plexus)["_HOMES"]
    assert sorted(plexus.__all__) == sorted(["__version__", *typed])


EXAMPLES = [*ROOT.glob("examples/*.*"), *ROOT.glob("examples/*/*.py")]
USERS = [*ROOT.glob("docs/*.md"), *EXAMPLES, *ROOT.glob("src/plexus/cli/templates/*.txt")]
NOT_FOR_USERS = {"traces.md": "how the calibrations that come with Plexus were fitted"}


@pytest.mark.parametrize(
    "file", [file for file in USERS if file.name not in NOT_FOR_USERS], ids=lambda f: f.name
)
def test_what_users_see_imports_from_plexus_itself(file: Path) -> None:
    """The inner layout is not the API: moving a module breaks nobody."""
    assert re.findall(r"(?:from|import) plexus\.(?!testing\b)[\w.]+.*", file.read_text()) == []


def test_a_study_that_does_not_exist_is_one_clear_line() -> None:
    with pytest.raises(plexus.PlexusError, match="did you mean 'table2'"):
        plexus.reproduce("tabel2", size="tiny")


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'plexus' has no attribute 'simulated'"):
        plexus.simulated  # type: ignore[attr-defined]  # noqa: B018


def test_a_spec_may_be_a_path_text_a_dictionary_or_a_spec(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(TOML)
    specs = [as_spec(each) for each in (file, str(file), TOML, SPEC, as_spec(SPEC))]
    assert {spec.digest() for spec in specs} == {plexus.load_spec(file).digest()}
    assert SPEC["protocol"] == {"sample_size": 3}, "the caller's dictionary is left alone"


def test_changes_and_seed_are_as_on_the_command_line() -> None:
    changed = as_spec(SPEC, {"protocol.sample_size": np.int64(5), "task.partition": "shards"}, 9)
    assert (changed.seed, changed.protocol.parameters.sample_size) == (9, 5)
    assert changed.task.parameters.partition == "shards"
    with pytest.raises(plexus.PlexusError, match=r"did you mean 'protocol.sample_size'\?"):
        as_spec(SPEC, {"protocol.samplesize": 5})


def test_numbers_and_texts_may_be_those_of_numpy() -> None:
    changed = as_spec({**SPEC, "hours": np.float64(0.5), "name": np.str_("other")}, {}, np.int64(3))
    assert changed == as_spec({**SPEC, "hours": 0.5, "name": "other"}, {}, 3)


def own_task(nodes: int, seed: int) -> Any:
    """A task like any; only its name matters here."""


def test_a_function_stands_for_its_name() -> None:
    assert as_spec({**SPEC, "task": {"name": own_task}}).task.name == f"{__name__}:own_task"
    with pytest.raises(plexus.PlexusError, match=r"spec: task\.name is <function .*lambda"):
        as_spec({**SPEC, "task": {"name": lambda nodes, seed: None}})


@pytest.mark.slow
def test_a_run_and_its_directory_say_the_same(tmp_path: Path) -> None:
    rounds: list[Any] = []
    evaluations: list[Any] = []
    ticks: list[Tick] = []
    run = plexus.simulate(
        SPEC,
        out=tmp_path / "run",
        on_round=rounds.append,
        on_evaluation=evaluations.append,
        on_progress=ticks.append,
        engine="inline",
    )
    assert run.result is not None
    assert run.result.engine is not None and run.result.engine.name == "inline"
    assert [row["round"] for row in rounds] == run.rounds["round"].tolist()
    assert [row["accuracy"] for row in evaluations] == run.metrics["accuracy"].tolist()
    assert [tick.simulated_s for tick in ticks] == [60.0 * n for n in range(1, 7)]
    assert run.online["online"].tolist() == [8, 8]
    assert run.node_metrics.rows == 0
    again = plexus.load(tmp_path / "run")
    assert again.result == run.result
    assert repr(again) == repr(run)
    assert f"{run.result.rounds} rounds, accuracy " in repr(run)


@pytest.mark.slow
def test_listening_changes_nothing_and_a_callback_can_stop_the_run(tmp_path: Path) -> None:
    whole = plexus.simulate(SPEC, out=tmp_path / "whole")

    def enough(row: Any) -> None:
        if row["round"] == 3:
            raise plexus.StopRun

    stopped = plexus.simulate(SPEC, out=tmp_path / "stopped", on_round=enough)
    assert whole.result is not None and stopped.result is not None
    assert stopped.result.interrupted and not whole.result.interrupted
    assert stopped.rounds["round"].tolist() == [2, 3]
    heard = plexus.simulate(SPEC, out=tmp_path / "heard", on_round=lambda row: None)
    assert heard.result is not None
    assert heard.result.digest == whole.result.digest


@pytest.mark.slow
def test_many_runs_side_by_side_are_those_one_by_one(tmp_path: Path) -> None:
    def many() -> list[plexus.Run]:
        changes = ({"protocol.sample_size": 2}, {})
        return [*plexus.simulate_many(SPEC, changes, seeds=(1, 2), out=tmp_path, jobs=2, quiet=True)]

    runs = many()
    kinds = [(run.spec["protocol"]["sample_size"], run.spec["seed"]) for run in runs]
    assert kinds == [(2, 1), (2, 2), (3, 1), (3, 2)]
    alone = plexus.simulate(SPEC, seed=2, out=tmp_path / "alone")
    assert alone.result is not None and runs[3].result is not None
    assert runs[3].result.weights_hash == alone.result.weights_hash
    started = [run.versions["started"] for run in runs]
    (runs[0].path / "result.json").write_text("damaged")
    again = many()
    assert [run.result for run in again[1:]] == [run.result for run in runs[1:]], "not done again"
    assert [run.versions["started"] for run in again[1:]] == started[1:]
    assert again[0].result is not None and runs[0].result is not None
    assert again[0].result.digest == runs[0].result.digest


@pytest.mark.slow
def test_of_many_runs_one_that_fails_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def build(nodes, seed, bad=0):\n    1 / (1 - bad)\n")
    spec = {**SPEC, "task": {"name": "broken:build"}}
    with pytest.raises(plexus.PlexusError, match=r"2 of 2 runs failed; the first, .*runs.small-"):
        plexus.simulate_many(
            spec, ({"task.bad": 0}, {"task.bad": 1}), out=tmp_path / "runs", base_dir=tmp_path, quiet=True
        )


def test_an_error_in_a_callback_is_the_callers(tmp_path: Path) -> None:
    def fails(row: Any) -> None:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        plexus.simulate(SPEC, out=tmp_path / "run", on_round=fails)
    assert plexus.load(tmp_path / "run").result is None


def test_an_unknown_option_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="takes no on_rounds; machinery is engine, device"):
        plexus.simulate(SPEC, out=tmp_path / "run", on_rounds=print)
    assert not (tmp_path / "run").exists()
    with pytest.raises(TypeError, match="a spec is a path, text, a dictionary"):
        plexus.simulate(7)  # type: ignore[arg-type]


def test_an_unknown_option_leaves_the_run_that_is_there_where_it_is(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with RunDirectory(out, as_spec(SPEC).to_toml(), as_spec(SPEC).digest()) as directory:
        directory.recorder.record("online", simulated_s=0.0, online=8)
    with pytest.raises(TypeError, match="takes no worker"):
        plexus.simulate(SPEC, out=out, worker=1)
    assert out.exists() and not (tmp_path / "run.1").exists()


def frame() -> Frame:
    return Frame({"round": np.arange(30), "accuracy": np.linspace(0, 1, 30)})


def test_a_frame_reads_like_a_dictionary() -> None:
    assert list(frame()) == ["round", "accuracy"]
    assert (frame().rows, len(frame()), "loss" in frame()) == (30, 2, False)
    assert frame().row(-1) == {"round": 29, "accuracy": 1.0}
    assert repr(frame()) == "<30 rows of round, accuracy>"
    with pytest.raises(KeyError, match="no column 'loss'; there are round, accuracy"):
        frame()["loss"]


@pytest.mark.parametrize(("rows", "shown"), [(30, [*range(5), *range(25, 30)]), (10, list(range(10)))])
def test_a_notebook_shows_both_ends(rows: int, shown: list[int]) -> None:
    html = Frame({"<round>": np.arange(rows)})._repr_html_()
    assert "<th>&lt;round&gt;</th>" in html
    cells = [cell for cell in html.replace("</td>", "<td>").split("<td>")[1::2] if cell != "…"]
    assert cells == [str(row) for row in shown]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_frame_becomes_a_data_frame_if_the_library_is_there(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_frame = pytest.importorskip(library).DataFrame
    convert = getattr(frame(), f"to_{library}")
    found = convert()
    assert isinstance(found, data_frame)
    assert list(found.columns) == ["round", "accuracy"]
    assert found["round"].to_list() == list(range(30))
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(plexus.PlexusError, match=rf"needs .* {library}, .*'plexus-learning\[frames\]'$"):
        convert()


def test_errors_know_the_extras_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {
        extra: tuple(re.split("[<>=]", package)[0] for package in packages)
        for extra, packages in project["optional-dependencies"].items()
        if extra not in ("dev", "fuzz")  # for developers
    }
    assert extras == EXTRAS
