"""Study files: what they mean, and what is said about those that are wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from plexus.cli.reproduce import reproduce
from plexus.errors import PlexusError
from plexus.spec.experiment import load_spec
from plexus.studies.plan import make_plan
from plexus.studies.reproduce import load_studies
from plexus.studies.study import SIZES, STUDIES, load_study, parse_study, sized_parts
from tests.studies.kit import BASE, EXPERIMENTS, STUDY, folder_with


def test_a_size_takes_the_place_of_tasks_and_seeds_and_changes_specs(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, study=STUDY, base=BASE + "[sizes.small]\nhours = 0.1\n")
    paper = make_plan(load_study(str(folder / "study.toml"), "paper", folder), tmp_path / "out")
    small = make_plan(load_study(str(folder / "study.toml"), "small", folder), tmp_path / "out")
    assert [run.spec.seed for run in paper.runs["study", "base", "gossip"]] == [1, 2]
    (run,) = small.runs["study", "base", "gossip"]
    assert (run.spec.nodes, run.spec.hours, run.spec.protocol.name) == (9, 0.1, "gossip")
    assert run.spec.evaluation.every_hours == 0.25


def test_a_size_may_be_said_by_the_study_alone_but_must_be_said(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, study=STUDY, base=BASE.partition("[sizes")[0])
    small = make_plan(load_study(str(folder / "study.toml"), "small", folder), tmp_path / "out")
    (run,) = small.runs["study", "base", "gossip"]
    assert (run.spec.nodes, run.spec.hours) == (9, 0.5)
    tiny = load_study(str(folder / "study.toml"), "tiny", folder)
    with pytest.raises(PlexusError, match=r"base\.toml: has no size 'tiny', only 'paper'"):
        make_plan(tiny, tmp_path / "out")


def test_a_task_of_ones_own_gives_runs_a_name(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, study=STUDY, base=BASE.replace('"digits"', '"wine.task:build"'))
    plan = make_plan(load_study(str(folder / "study.toml"), "paper", folder), tmp_path / "out")
    names = {run.spec.name for run in plan.all_runs}
    assert names == {"wine.task-build-plexus", "wine.task-build-gossip"}


def test_runs_are_named_by_what_they_are_and_shared(tmp_path: Path) -> None:
    other = STUDY.replace("arms.plexus", "arms.ours").replace("[1, 2]", "[2, 3]")
    folder = folder_with(tmp_path, study=STUDY, other=other, base=BASE)
    names = [str(folder / f"{name}.toml") for name in ("study", "other")]
    both = [part for name in names for part in load_study(name, "paper", folder)]
    plan = make_plan(both, tmp_path / "out")
    assert len(plan.all_runs) == 6, "seeds 1, 2, 3 of two arms"
    first, second = plan.runs["study", "base", "plexus"], plan.runs["other", "base", "ours"]
    assert first[1].out == second[0].out
    spec = load_spec(folder / "base.toml", ["name=digits-plexus", "seed=2"])
    assert first[1].out == tmp_path / "out" / "runs" / f"digits-plexus-{spec.digest()}"


def test_two_studies_of_one_name_are_refused_before_anything_is_run(tmp_path: Path) -> None:
    folders = [folder_with(tmp_path / name, study=STUDY, base=BASE) for name in ("one", "two")]
    both = load_studies([str(folder / "study.toml") for folder in folders], "paper")
    with pytest.raises(
        PlexusError, match=r"two/study\.toml: is called as .*one/study\.toml: give one another"
    ):
        make_plan(both, tmp_path / "out")


def test_a_plan_says_that_runs_are_shared_only_where_they_are(tmp_path: Path) -> None:
    def last_line(*studies: str) -> str:
        options = ["--size", "tiny", "--task", "digits", "--plan", "--out", str(tmp_path)]
        found = CliRunner().invoke(reproduce, [*studies, *options], catch_exceptions=False)
        return found.output.splitlines()[-1]

    assert last_line("fig3").endswith(f" runs in {tmp_path / 'runs'}")
    assert last_line("fig3", "table2").endswith("runs, some in more than one study")


@pytest.mark.parametrize("size", SIZES)
def test_the_projects_own_studies_are_valid(size: str, tmp_path: Path) -> None:
    studies = load_studies(["all"], size, EXPERIMENTS)
    assert [study.name for study in studies] == list(STUDIES)
    for study in studies:
        assert study.seeds == (1, 2, 3) or study.size != "tiny"
        for task in study.tasks:
            assert (EXPERIMENTS / f"{task}.toml").is_file()


def test_the_papers_cifar_session_is_the_plain_spec(tmp_path: Path) -> None:
    """What `plexus run experiments/cifar10.toml` does, the study finds again."""
    from plexus.studies.plan import planned_runs

    (study,) = load_studies(["table2"], "paper", EXPERIMENTS)
    runs = planned_runs(EXPERIMENTS / "cifar10.toml", study, tmp_path)["dpsgd-regular"]
    overrides = ["name=cifar10-dpsgd", 'protocol={name="dpsgd",topology="regular",degree=10}']
    spec = load_spec(EXPERIMENTS / "cifar10.toml", overrides)
    assert runs[0].spec == spec
    assert (spec.nodes, spec.hours, spec.evaluation.every_hours) == (1000, 50.0, 2.0)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('title = "One study"\n', "", "s.toml: title: missing; this key has no default"),
        ("seeds = [1, 2]", "seeds = []", "s.toml: seeds: expected a list of length >= 1"),
        ("seeds = [1, 2]", "seed = 3", "s.toml: seed: unknown key (did you mean 'seeds'?)"),
        ('kind = "curves"', 'kind = "curve"', "s.toml: draw[0].kind: 'curve' is not one of"),
        ("[sizes.small]", "[sizes.smal]", "s.toml: sizes.smal: is not a size; known are tiny"),
        ('kind = "curves"', 'kind = "curves"\narms = ["gosip"]', "no arm 'gosip'; known are plexus"),
        ('label = "Plexus"', "label = 3", "s.toml: arms.plexus.label: expected a string"),
        ("Gossip Learning", "Plexus", "s.toml: arms.plexus.label: 'Plexus' is what another is called"),
        ("[[draw]]", "[draw]", "s.toml: draw: expected a list, got a table"),
        ("title", "title title", "s.toml: not valid TOML"),
    ],
)
def test_what_is_wrong_is_named(before: str, after: str, words: str) -> None:
    assert before in STUDY
    with pytest.raises(PlexusError) as error:
        parse_study(STUDY.replace(before, after), "s.toml")
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("size", "before", "after"),
    [
        ("paper", "seeds = [1, 2]", "seeds = [3, 1, 3]"),
        ("small", "seeds = [1]", "seeds = [3, 3]"),
        ("small", "nodes = 9", "seeds_for = { base = [3, 3] }"),
    ],
)
def test_a_seed_that_is_there_twice_is_refused(size: str, before: str, after: str) -> None:
    with pytest.raises(PlexusError, match=r"s\.toml: seeds: 3 is there twice"):
        sized_parts(STUDY.replace(before, after), Path("s.toml"), size)


def test_a_paper_table_has_as_many_cells_as_columns() -> None:
    table = '[paper_table]\ntitle = "T"\ncolumns = ["a", "b"]\nrows = [[1, "x"], [2]]\n'
    with pytest.raises(PlexusError, match=r"paper_table.rows\[1\]: 1 cells for 2 columns"):
        parse_study(STUDY + table, "s.toml")


def test_a_wrong_key_in_an_arm_names_study_and_arm(tmp_path: Path) -> None:
    wrong = STUDY.replace('{ name = "gossip" }', '{ name = "gossip", perod_s = 3 }')
    folder = folder_with(tmp_path, study=wrong, base=BASE)
    with pytest.raises(PlexusError) as error:
        make_plan(load_study(str(folder / "study.toml"), "paper", folder), tmp_path)
    assert "study.toml: arms.gossip of base.toml: protocol.perod_s: unknown key" in str(error.value)


def test_unknown_studies_sizes_and_tasks_are_named(tmp_path: Path) -> None:
    with pytest.raises(PlexusError, match=r"fig2: is not one of fig1, .*did you mean 'fig3'"):
        load_studies(["fig2"], "tiny", EXPERIMENTS)
    with pytest.raises(PlexusError, match="--size big: is not one of tiny, small, paper"):
        load_studies(["fig1"], "big", EXPERIMENTS)
    studies = load_studies(["fig1"], "tiny", EXPERIMENTS)
    with pytest.raises(PlexusError, match="--task cifar: at size tiny there are digits"):
        make_plan(studies, tmp_path, ["cifar"])


PARTS = """\
title = "Two parts"
tasks = ["base"]
seeds = [1, 2]
[arms.plexus]
label = "Plexus"
[[draw]]
kind = "curves"
title = "over time"
[parts.short]
title = "A short one"
spec = { hours = 0.2, nodes = 10 }
[parts.short.sizes.small]
nodes = 11
[parts.long]
title = "A long one"
only = ["paper"]
seeds = [3]
"""


def test_parts_have_what_stands_above_them_and_may_be_left_out(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, study=PARTS, base=BASE.partition("[sizes")[0])
    file = str(folder / "study.toml")
    short, long = load_study(file, "paper", folder)
    assert [(each.name, each.title, each.study.title) for each in (short, long)] == [
        ("study-short", "Two parts", "A short one"),
        ("study-long", "Two parts", "A long one"),
    ]
    assert (short.seeds, long.seeds) == ((1, 2), (3,))
    plan = make_plan([short, long], tmp_path / "out")
    assert [run.spec.hours for run in plan.all_runs] == [0.2, 0.2, 0.5]
    (small,) = load_study(file, "small", folder)
    (first, _) = make_plan([small], tmp_path / "out").all_runs
    assert (first.spec.nodes, first.spec.hours) == (11, 0.2), "a size is written over what all sizes have"


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('title = "A long one"', "titel = 3", "s.toml: parts.long: titel: unknown key"),
        ('["paper"]', '["papr"]', "s.toml: parts.long: sizes.papr: is not a size"),
        ('title = "Two parts"', "", "s.toml: a study with parts has a title and tables [parts.NAME]"),
    ],
)
def test_what_is_wrong_in_a_part_is_named(before: str, after: str, words: str) -> None:
    assert before in PARTS
    with pytest.raises(PlexusError, match=re.escape(words)):
        parse_study(PARTS.replace(before, after), "s.toml")


def test_a_study_that_has_nothing_of_a_size_says_so(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, study='only = ["paper"]\n' + STUDY, base=BASE)
    with pytest.raises(PlexusError, match="only: has nothing of size tiny"):
        load_study(str(folder / "study.toml"), "tiny", folder)
