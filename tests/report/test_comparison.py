"""What it costs to come to the target, and what ours saves."""

from __future__ import annotations

from dataclasses import astuple

import pytest

from plexus import quantities
from plexus.errors import PlexusError
from plexus.report.arms import group
from plexus.report.comparison import compare, findings, summary_table, table_of
from plexus.report.document import Quantity, Table, number, over_seeds, text_of
from plexus.report.measuring import Cost
from plexus.runs.result import Used
from plexus.runs.run import Run
from tests.report.runs import arm_run, result

OURS = [0.3, 0.7, 0.9]
GOSSIP = [0.1, 0.2, 0.4, 0.6, 0.5]


def cells(table: Table) -> list[list[str]]:
    return [[text_of(cell) for cell in row] for row in table.rows]


def test_the_target_is_the_best_that_the_best_baseline_became() -> None:
    found = compare(group([arm_run(values=OURS), arm_run("gossip", GOSSIP), arm_run("dpsgd", [0.5])]))
    assert (found.target, found.best_baseline) == (0.6, "Gossip Learning")
    ours, gossip, dpsgd = found.arms
    assert ours.costs == (Cost(2.0, 2.0, 20.0),)
    assert gossip.costs == (Cost(4.0, 4.0, 40.0),)
    assert dpsgd.costs == (None,)
    assert (ours.savings, gossip.savings) == (Cost(2.0, 2.0, 2.0), None)


def test_bytes_and_training_are_counted_apart_from_time() -> None:
    ours = arm_run(values=OURS, sent_gb=[0.5, 1, 2], training_h=[1, 2, 3])
    found = compare(group([ours, arm_run("gossip", GOSSIP)]))
    assert astuple(found.arms[0].savings) == pytest.approx((2.0, 4.0, 20.0))


def test_of_an_error_the_lowest_is_the_best() -> None:
    error = {"metric": "mse", "higher_is_better": False}
    runs = [arm_run(values=[2.0, 1.0, 0.5], **error), arm_run("gossip", [3.0, 1.5, 1.7], **error)]
    found = compare(group(runs))
    assert (found.target, found.arms[0].costs) == (1.5, (Cost(2.0, 2.0, 20.0),))


def test_with_several_seeds_the_target_is_what_every_seed_of_the_baseline_reached() -> None:
    runs = [
        arm_run(values=OURS, seed=1),
        arm_run(values=[0.6, 0.9], seed=2),
        arm_run("gossip", GOSSIP, seed=1),
        arm_run("gossip", [0.1, 0.5, 0.7], seed=2),
    ]
    found = compare(group(runs))
    assert found.target == 0.6
    assert found.arms[0].costs == (Cost(2, 2, 20), Cost(1, 1, 10))
    assert found.arms[1].costs == (Cost(4, 4, 40), Cost(3, 3, 30))
    assert astuple(found.arms[0].savings) == pytest.approx([6**0.5] * 3), "twice and three times"


def test_an_arm_that_came_there_with_some_seeds_only_has_no_mean_and_saves_nothing() -> None:
    runs = [arm_run(values=OURS, seed=1), arm_run(values=[0.3, 0.4], seed=2), arm_run("gossip", GOSSIP)]
    table = summary_table(group(runs))
    columns = ("Method", "End accuracy", "Best accuracy", "TTA [h]", "CTA [GB]", "RTA [h]", "Seeds")
    assert table.columns == columns
    assert cells(table)[0] == [
        "Plexus",
        "60.0 ± 254.1 %",
        "65.0 ± 317.6 %",
        "1 of 2 seeds: 2.00",
        "1 of 2 seeds: 2.00",
        "1 of 2 seeds: 20.0",
        "1, 2",
    ]


def test_how_much_was_used_is_a_column_where_it_is_known() -> None:
    def plexus(seed: int, share: float | None) -> Run:
        outcome = result(digest=f"{seed}", used=Used(share, 0, None, None))
        return arm_run(values=OURS, seed=seed, outcome=outcome)

    live = arm_run("fedavg", OURS, outcome=result())
    table = summary_table(group([plexus(1, 0.8), plexus(2, 0.9), plexus(3, None), live]), target=0.5)
    assert table.columns[-2:] == ("Used", "Seeds")
    assert [row[-2:] for row in cells(table)] == [["85.0 ± 63.5 %", "1..3"], ["–", "1"]]
    assert "Used: the share of finished trainings" in table.note
    assert "Used" not in summary_table(group([live])).note


def test_judged_by_the_mean_or_by_the_best_node() -> None:
    gossip = arm_run("gossip", GOSSIP)
    gossip.tables["evaluations"]["accuracy_best"] = gossip.tables["evaluations"]["accuracy"] + 0.2
    arms = group([arm_run(values=OURS), gossip])
    assert compare(arms).target == 0.6
    best = compare(arms, judge="best")
    assert best.target == pytest.approx(0.8)
    assert [outcome.costs[0] for outcome in best.arms] == [Cost(3, 3, 30), Cost(4, 4, 40)]
    assert "the mean over nodes" in summary_table(arms).note
    assert "the best node" in summary_table(arms, judge="best").note


def test_an_unfinished_run_is_shown_but_sets_no_target_and_claims_no_savings() -> None:
    stopped = arm_run("gossip", [0.8, 0.9], 2, outcome=result(interrupted=True))
    ours = arm_run(values=OURS, seed=2, outcome=result(interrupted=True))
    found = compare(group([arm_run(values=OURS), arm_run("gossip", GOSSIP), stopped, ours]))
    assert found.target == 0.6
    unfinished = [outcome for outcome in found.arms if not outcome.is_complete]
    assert len(unfinished) == 2
    assert [outcome.savings for outcome in unfinished] == [None, None]


def test_a_server_is_no_baseline_unless_it_is_all_there_is() -> None:
    ours, server, gossip = arm_run(values=OURS), arm_run("fedavg", [0.9]), arm_run("gossip", GOSSIP)
    assert compare(group([ours, server, gossip])).best_baseline == "Gossip Learning"
    assert compare(group([ours, server])).best_baseline == "FedAvg"


def test_a_protocol_of_ones_own_is_no_baseline() -> None:
    own = arm_run("thrifty:thrifty", [0.8])
    assert compare(group([arm_run(values=OURS), own])).best_baseline is None
    assert compare(group([arm_run(values=OURS), own, arm_run("fedavg", [0.1])])).best_baseline == "FedAvg"


@pytest.mark.parametrize(
    ("sent_gb", "column", "shown"),
    [(0.25, "CTA [GB]", "0.250"), (4.71e-3, "CTA [MB]", "4.71"), (4.71e-5, "CTA [kB]", "47.1")],
)
def test_communication_is_in_a_unit_that_fits(sent_gb: float, column: str, shown: str) -> None:
    table = summary_table(group([arm_run(values=[0.5], sent_gb=[sent_gb])]))
    assert cells(table)[0][table.columns.index(column)] == shown
    assert f"({column[5:7]}, 10" in table.note


def test_without_baselines_the_target_is_what_all_came_to() -> None:
    runs = [arm_run({"name": "plexus", "sample_size": s}, v) for s, v in ((10, OURS), (20, GOSSIP))]
    found = compare(group(runs))
    assert (found.target, found.best_baseline) == (0.6, None)
    assert [outcome.costs[0] for outcome in found.arms] == [Cost(2, 2, 20), Cost(4, 4, 40)]


def test_a_target_can_be_given_and_be_out_of_reach() -> None:
    table = summary_table(group([arm_run(values=OURS), arm_run("gossip", GOSSIP)]), target=0.85)
    assert cells(table) == [
        ["Plexus", "80.0 %", "90.0 %", "3.00", "3.00", "30.0", "1"],
        ["Gossip Learning (best baseline)", "50.0 %", "60.0 %", *["not reached"] * 3, "1"],
    ]
    assert table.note.startswith("Target: accuracy 85.0 % (given).")


def test_who_did_not_come_to_a_target_that_is_given_is_named_and_nobody_else() -> None:
    arms = group([arm_run(values=OURS), arm_run("gossip", GOSSIP)])
    short = "did not come to accuracy"
    for target, who in ((0.85, "Gossip Learning"), (0.95, "Plexus; Gossip Learning")):
        last = findings(compare(arms, target=target)).split("\n\n")[-1]
        assert last == f"{who} {short} {100 * target:.1f} % with every seed."
    assert short not in findings(compare(arms, target=0.5))


def test_what_cannot_be_compared_is_one_line() -> None:
    with pytest.raises(PlexusError, match="nothing to compare"):
        compare([])
    error = arm_run("gossip", metric="mse", higher_is_better=False)
    with pytest.raises(PlexusError, match=r"runs/gossip-1: is judged by mse, but runs/plexus-1 by"):
        compare(group([arm_run(), error]))
    old = arm_run()
    del old.tables["evaluations"]["training_s"]
    with pytest.raises(PlexusError, match=r"evaluations\.csv: no column training_s"):
        compare(group([old]))


def test_runs_without_evaluations_reach_nothing() -> None:
    never = arm_run(tables={"evaluations": {}})
    found = compare(group([never]))
    assert (found.target, found.arms[0].best, found.arms[0].costs) == (None, (), (None,))


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.00321, "0.00321"), (1.0, "1.00"), (39.94, "39.9"), (370.2, "370"), (13302, "13,302")],
)
def test_numbers_have_three_digits_that_matter(value: float, text: str) -> None:
    assert number(value) == text


def test_a_mean_and_its_spread_have_the_same_decimals() -> None:
    assert over_seeds([1.0, 3.0], number) == Quantity("2.00 ± 12.71", 2.0, pytest.approx(12.706))
    assert over_seeds([900.0, 1100.0], quantities.size).text == "1 ± 1 kB"
    assert over_seeds([1.24e6, 1.26e6], quantities.size).text == "1.25 ± 0.13 MB"
    assert over_seeds([0.2556, 1.6084], number).text == "0.932 ± 8.594"
    assert over_seeds([0.0, 0.0], number).text == "0 ± 0"
    assert over_seeds([2.5], number) == Quantity("2.50", 2.5)
    assert over_seeds([], number) == Quantity("–", None)


def test_where_an_arm_was_seldom_evaluated_its_costs_are_called_coarse() -> None:
    nodes = {"evaluations": {**arm_run("gossip", [0.5]).tables["evaluations"], "nodes": [100]}}
    arms = group(
        [
            arm_run(values=GOSSIP),
            arm_run("gossip", [0.5], tables=nodes),
            arm_run("fedavg", OURS),
            arm_run("dpsgd", [0.1], finished=False),
        ]
    )
    note = summary_table(arms).note
    assert "Gossip Learning was evaluated only once: its costs are coarse; see evaluation.every_h" in note
    assert "FedAvg was evaluated only 3 times: its costs are coarse; see evaluation.every_r" in note
    assert note.count("coarse") == 2


def seeds_of(protocol: str, bests: list[float]) -> list[Run]:
    """One run for each seed: 0.5 after an hour, the best after two."""
    return [arm_run(protocol, [0.5, best], seed, training_h=[seed, 9]) for seed, best in enumerate(bests, 1)]


def test_what_is_within_the_intervals_is_not_called_a_difference() -> None:
    near, far = [0.80, 0.82, 0.84], [0.60, 0.61, 0.62]
    runs = [*seeds_of("plexus", [0.81, 0.83, 0.85]), *seeds_of("fedavg", near), *seeds_of("gossip", far)]
    found = compare(group([*runs, arm_run("dpsgd", [0.7, 0.8])]), target=0.5)
    first, *others = findings(found).split("\n\n")
    assert first == (
        "The best accuracy at the end is that of Plexus: 83.0 ± 5.0 %. Within their intervals: FedAvg."
        " Of one seed, and so without an interval: D-PSGD."
    )
    assert found.best_baseline == "D-PSGD" and "needs" in others[0]
    found = compare(group(runs), target=0.5)
    assert findings(found).split("\n\n")[1] == (
        "Time, communication and training to come to accuracy 50.0 %: Plexus and Gossip Learning, the best"
        " baseline, are within noise."
    )
    saved = [row[6:9] for row in cells(summary_table(group(runs), target=0.5))]
    assert saved == [["within noise"] * 3, [""] * 3, [""] * 3]


def test_seeds_that_differ_by_more_than_their_intervals_are_apart() -> None:
    slow = [arm_run("gossip", [0.1, 0.2, 0.5], seed) for seed in (1, 2, 3)]
    found = compare(group([*seeds_of("plexus", [0.9, 0.9, 0.9]), *slow]))
    assert findings(found) == (
        "The best accuracy at the end is that of Plexus: 90.0 ± 0.0 %.\n\n"
        "To come to accuracy 50.0 %, Plexus needs 3.00 times less time, 3.00 times less communication and"
        " 16.5 times less training than Gossip Learning, the best baseline."
    )
    [ours, *_] = cells(table_of(found))
    assert ours[6:9] == ["3.00× (3.00–3.00)", "3.00× (3.00–3.00)", "16.5× (4.15–65.6)"]
    assert "Mean over seeds ± its 95 % interval" in table_of(found).note


def test_who_is_compared_with_other_seeds_has_an_interval_too() -> None:
    slow = [arm_run("gossip", [0.1, 0.2, 0.5], seed) for seed in (1, 2, 4)]
    paired = [arm_run("gossip", [0.1, 0.2, 0.5], seed, training_h=[1, 2, 30 * seed]) for seed in (1, 2, 3)]
    plexus = seeds_of("plexus", [0.9, 0.9, 0.9])
    by_seed, apart = (compare(group([*plexus, *others])).arms[0] for others in (paired, slow))
    assert by_seed.savings_95 is not None and apart.savings_95 is not None
    # Seed by seed it is always 30 times, though the costs of both go up and down.
    assert [each.rta_h for each in by_seed.savings_95] == pytest.approx([30, 30])
    assert apart.savings_95[0].rta_h < 10 < apart.savings_95[1].rta_h


def test_a_single_seed_has_no_interval() -> None:
    found = compare(group([arm_run(values=OURS), arm_run("gossip", GOSSIP)]))
    assert found.arms[0].savings_95 is None
    assert "the best baseline. One seed has no interval: that may be noise." in findings(found)
    assert "One seed has no interval: whether the others differ is not known." in findings(found)
