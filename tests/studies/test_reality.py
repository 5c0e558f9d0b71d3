"""What reality does to a session: measures and sentences by hand, and the studies themselves in small."""

from __future__ import annotations

import csv
import html
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plexus import reproduce
from plexus.report.arms import Arm
from plexus.report.document import half_width_95, text_of
from plexus.report.plots import hourly_rounds, rounds_by_hour
from plexus.runs.result import Believed, Cut, Lineage, Metric, Result, Traffic, Used
from plexus.runs.run import Run
from plexus.studies import reality
from plexus.studies.page import TABLES
from plexus.studies.reality import Told
from plexus.studies.reproduce import load_studies
from plexus.studies.study import REALITY, SIZES
from tests.report.runs import arm_run, result
from tests.studies.kit import EXPERIMENTS, cut_down_reality


def run_of(
    seed: int = 1, completed_s: Any = (), values: Any = (0.1, 0.6, 0.9, 0.8), spec: Any = None, **changes: Any
) -> Run:
    """A run of four hours with rounds at these moments, and a result with these changes."""
    rounds: dict[str, Any] = {}
    if len(completed_s):
        rounds = {
            "simulated_s": np.array(completed_s, float),
            "round": np.arange(2, len(completed_s) + 2),
            "timed_out": np.zeros(len(completed_s), bool),
        }
    quality = Metric("accuracy", max(values), values[-1], higher_is_better=True)
    outcome: Result = result(simulated_s=4 * 3600.0, metric=quality, **changes)
    return arm_run(seed=seed, values=values, outcome=outcome, tables={"rounds": rounds}, **(spec or {}))


def shown(told: Told) -> list[list[str]]:
    return [[text_of(cell) for cell in row] for row in told.rows]


def test_a_round_that_two_nodes_aggregated_counts_once_in_the_hour_of_the_first() -> None:
    run = run_of(completed_s=[10, 3599, 3601, 3650, 9000])
    run.tables["rounds"]["round"] = np.array([2, 3, 3, 4, 5])
    assert reality.rounds(run) == 4
    assert rounds_by_hour(run).tolist() == [2, 1, 1, 0]
    assert rounds_by_hour(run_of()).tolist() == [0, 0, 0, 0]
    short = replace(run, result=None, tables={**run.tables, "evaluations": {}})
    short.tables["rounds"]["simulated_s"] = np.array([10.0, 20, 30, 40, 1800])
    assert rounds_by_hour(short).tolist() == [4], "what is less than an hour is one"
    assert len(hourly_rounds([Arm("some", (run,))]).axes[0].lines) == 1


def test_the_interval_is_students() -> None:
    assert half_width_95([1.0, 3.0]) == pytest.approx(12.706)
    assert half_width_95([1.0, 2.0, 3.0]) == pytest.approx(4.303 / 3**0.5)
    assert half_width_95([0.0, 1.0] * 50) == pytest.approx(1.9842 * 0.5025 / 10, rel=1e-3)


def test_how_long_there_is_no_round_after_a_fault() -> None:
    fault = {"faults": [{"kind": "crash", "from_h": 1.0, "to_h": 4.0, "nodes": 0.7}]}
    run = run_of(completed_s=[100, 3600, 3700, 9700, 9800], spec=fault)
    assert reality.waits_s(run) == (100.0, 6000.0)
    silent = run_of(2, completed_s=[100, 200], spec=fault)
    assert reality.waits_s(silent) == (None, 3 * 3600.0), "none came until the end"
    told = reality.recovery([Arm("most crash", (run, silent))])
    assert shown(told)[0][:3] == ["most crash", "1 of 2", "1 of 2: 100.0"]
    assert "a round follows in 1 of 2 seeds, after 100.0 s on average" in told.seen
    assert told.seen.endswith("the longest time without one is 10800.0 s.")


def test_rounds_and_beliefs_against_those_of_the_first_arm() -> None:
    def arm(label: str, counts: tuple[int, int], ratio: float) -> Arm:
        membership = Believed(10 * ratio, 10.0, ratio, ratio + 1)
        lineage = Lineage(5, 0, 0, 2)
        shared = {
            "membership": membership,
            "lineage": lineage,
            "messages": {"ping": Traffic(1, 3_000_000_000)},
        }
        return Arm(label, tuple(run_of(at, np.arange(n), **shared) for at, n in enumerate(counts)))

    told = reality.crashes([arm("all announced", (10, 20), 1.0), arm("half crash", (6, 20), 2.5)])
    _, half = shown(told)
    assert half[:3] == ["half crash", "13 ± 89", "80.0 ± 254.1 %"], "means of 6/10 and 20/20"
    assert half[3:] == ["21.7 ± 148.2 %", "2.50 ± 0.00", "3.50 ± 0.00", "3 ± 0"]
    said = "Half crash: 13 rounds (80.0 % of those with all announced), 21.7 % of them with two aggregators"
    assert said in told.seen and "2.50 nodes are believed to be online" in told.seen
    hours = reality.hours([arm("all announced", (10, 20), 1.0)])
    assert shown(hours) == [["all announced", "15 ± 64", "0 ± 0", "0 ± 0", "0 ± 0"]]
    assert hours.seen == "All announced: the hours have 15, 0, 0, 0 rounds."


def cut(off: int, theirs: tuple[int, int], others: tuple[int, int]) -> Cut:
    return Cut(1.0, 3.0, off, *theirs, *others)


def test_the_larger_side_is_the_one_with_more_nodes() -> None:
    one = run_of(1, cuts=(cut(40, (8, 0), (100, 96)),))
    two = run_of(2, cuts=(cut(60, (50, 40), (9, 0)),))
    assert reality.larger_side(one) == (100, 96, 8)
    assert reality.larger_side(two) == (50, 40, 9)
    told = reality.survival([Arm("40 / 60", (one, two))])
    row = dict(zip(told.columns, shown(told)[0], strict=True))
    assert (row["95 % in"], row["Survived of the larger"][:4]) == ("1 of 2", "88.0")
    assert "the work of the larger side survives in 1 of 2 seeds" in told.seen
    idle = run_of(3, cuts=(cut(40, (8, 8), (0, 0)),))
    assert reality.survived(idle) is None
    assert "survives in 0 of 1 seeds" in reality.survival([Arm("idle", (idle,))]).seen


@pytest.mark.parametrize(
    ("values", "fall"),
    [
        ((0.9, 0.5, 0.8, 0.95), 0.4),  # evaluated every hour: the cut begins with the first
        ((0.5, 0.9, 0.6, 0.7), 0.3),
        ((0.1, 0.2, 0.3, 0.4), 0.0),
    ],
)
def test_a_fall_is_from_the_best_until_then(values: tuple[float, ...], fall: float) -> None:
    run = run_of(values=values, cuts=(cut(1, (1, 0), (1, 1)),))
    assert reality.greatest_fall(run) == pytest.approx(fall)
    told = reality.survival([Arm("alone", (run,))])
    assert told.seen.endswith(f"accuracy falls by {100 * fall:.1f} points at most.")


def test_before_a_cut_a_fall_is_none_of_it() -> None:
    later = Cut(2.5, 3.0, 1, 0, 0, 1, 1)
    run = run_of(values=(0.9, 0.2, 0.85, 0.9), cuts=(later,))
    assert reality.greatest_fall(run) == pytest.approx(0.05)
    assert reality.greatest_fall(run_of(values=(0.9,), cuts=(later,))) is None


def with_use(run: Run, path: Path, used: list[int], late: list[int]) -> Run:
    rows = [
        f"{node},10,{behind},{after}" for node, (behind, after) in enumerate(zip(used, late, strict=True))
    ]
    path.mkdir()
    (path / "used.csv").write_text("\n".join(["node,trainings,trainings_used,late_used", *rows, ""]))
    return replace(run, path=path)


def test_late_models_are_judged_by_what_it_takes_with_the_same_seed(tmp_path: Path) -> None:
    """Evaluated every hour, ten device hours each: the goals are 0.8 and 0.6."""
    first = [run_of(1, values=(0.1, 0.6, 0.8, 0.8)), run_of(2, values=(0.3, 0.6, 0.5, 0.6))]
    other = [run_of(1, values=(0.8, 0.9, 0.9, 0.7)), run_of(2, values=(0.1, 0.2, 0.3, 0.4))]
    arms = []
    for name, runs in (("sf = 0.8", first), ("late", other)):
        used = [with_use(run, tmp_path / f"{name}{at}", [6, 2], [2, 0]) for at, run in enumerate(runs)]
        arms.append(Arm(name, tuple(used)))
    told = reality.late(arms)
    usual, late = (dict(zip(told.columns, row, strict=True)) for row in shown(told))
    assert usual["Time to it [h]"][:4] == "2.50", "hours 3 and 2"
    assert (usual["Comes to it in"], usual["Time to it, ratio"]) == ("2 of 2", "1.00 ± 0.00")
    assert late["Comes to it in"] == "1 of 2"
    assert (late["Time to it, ratio"], late["Device hours, ratio"]) == ("1 of 2: 0.33", "1 of 2: 0.33")
    assert late["Late, of used"] == "25.0 ± 0.0 %"
    assert "sf = 0.8: it ends at 70.0 %. Late: it ends at 55.0 %; it comes" in told.seen
    assert told.seen.endswith(
        "sf = 0.8 in 1 of 2 seeds, in 0.33 times the time and 0.33 times the device hours."
    )
    never = reality.late([arms[0], Arm("never", (with_use(other[1], tmp_path / "n", [1, 1], [0, 0]),))])
    assert never.seen.endswith(
        "it ends at 40.0 %; it comes to the final accuracy of sf = 0.8 in 0 of 1 seeds."
    )


def test_what_is_lost_is_the_difference_to_the_first_arm_in_the_last_fifth() -> None:
    usual = [run_of(seed, values=(0.1, *[0.5] * 7, 0.9, 0.8)) for seed in (1, 2)]
    other = [run_of(2, values=(0.9, *[0.5] * 7, 0.2, 0.3)), run_of(1, values=(0.9, *[0.5] * 7, 0.7, 0.9))]
    told = reality.losses([Arm("mean", tuple(usual)), Arm("mean, flip", tuple(other))])
    first, attacked = (dict(zip(told.columns, row, strict=True)) for row in shown(told))
    assert (first["Lost, points"], attacked["Lost, points"].split(" ")[0]) == ("0.0 ± 0.0", "32.5")
    assert "Mean, flip: it ends at 52.5 %, 32.5 lost" in told.seen


def test_who_is_never_used_and_who_never_finishes(tmp_path: Path) -> None:
    used = with_use(run_of(used=Used(0.5, 1, None, 0.9)), tmp_path / "used", [5, 0, 0], [0, 0, 0])
    told = reality.fairness([Arm("n = 3", (used,))])
    row = dict(zip(told.columns, shown(told)[0], strict=True))
    assert (row["Used"], row["Slowest tenth"], row["Never used"]) == ("50.0 %", "–", "1.0")
    assert row["Nodes without use"] == "2.0"
    assert "n = 3: 90.0 % of the trainings of the fastest half are used, the slowest tenth" in told.seen


@pytest.mark.parametrize("size", SIZES)
def test_the_studies_are_valid(size: str) -> None:
    for study in load_studies(REALITY, size, EXPERIMENTS):
        assert study.title and study.study.about
        assert all((EXPERIMENTS / f"{task}.toml").is_file() for task in study.tasks)
    names = [study.name for study in load_studies(["crashes"], size, EXPERIMENTS)]
    assert ("crashes-many" in names) == (size == "paper"), "ten thousand nodes are for the full size"


def rows_of(page: Path, id: str) -> list[dict[str, str]]:
    with (page.parent / "report-files" / f"{id}.csv").open() as file:
        return list(csv.DictReader(file))


def text_on(page: Path) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text()))


def tables_of(studies: list[Any]) -> Iterator[tuple[str, list[str]]]:
    for study in studies:
        for task in study.tasks:
            for number, drawing in enumerate(study.study.draw, start=1):
                if drawing.kind in TABLES:
                    labels = [study.study.label(arm) for arm in drawing.arms or study.study.arms]
                    yield f"{study.name}-{task}-{number}", labels


def check(page: Path, studies: list[Any]) -> None:
    """Every arm has its row and its sentence, and what the sentences say is what the tables have."""
    text = text_on(page)
    for id, labels in tables_of(studies):
        rows = rows_of(page, id)
        assert [row["Setting"] for row in rows] == labels
        for row in rows:
            sentences = [row["Setting"][0].upper() + row["Setting"][1:], row["Setting"]]
            assert any(f"{label}: " in text for label in sentences), row
            if "Of the smaller" in row:
                assert f"survives in {round(float(row['95 % in']) * len(studies[0].seeds))} of" in text
            if "Final accuracy" in row:
                assert f"it ends at {100 * float(row['Final accuracy']):.1f} %" in text
            if "Fastest half" in row:
                assert f"{100 * float(row['Fastest half']):.1f} % of the trainings of the fastest" in text
            if "Believed / online" in row:
                assert f"{float(row['Believed / online']):.2f} nodes are believed" in text


@pytest.mark.slow
@pytest.mark.parametrize("name", REALITY)
def test_each_study_in_small(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = cut_down_reality(tmp_path / "experiments")
    page = reproduce(name, size="tiny", out=tmp_path / "out", experiments=folder)
    studies = load_studies([name], "tiny", folder)
    check(page, studies)
    said = " ".join(capsys.readouterr().err.split())
    assert all(f"plexus: {study.study.title}: " in said for study in studies), "the terminal says it too"
    assert f"<h1>{studies[0].title}, size tiny</h1>" in page.read_text()


@pytest.mark.paper
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", REALITY)
def test_each_study_at_size_tiny(name: str, tmp_path: Path) -> None:
    page = reproduce(name, size="tiny", out=tmp_path / "out", experiments=EXPERIMENTS, quiet=True)
    studies = load_studies([name], "tiny", EXPERIMENTS)
    assert [rows for id, labels in tables_of(studies) if len(rows := rows_of(page, id)) != len(labels)] == []
