"""Figures show the numbers of the runs, one arm one colour."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plexus.errors import PlexusError
from plexus.report import plots
from plexus.report.arms import group
from plexus.report.plots import MOST_POINTS, average, curve, used_shares
from plexus.report.standard import MOST_DRAWN, standard_sections
from plexus.report.strokes import strokes
from plexus.runs.recorder import Recorder
from plexus.runs.result import Traffic
from plexus.runs.run import Run
from plexus.runs.tables import TABLES
from plexus.style import PALETTE
from tests.report.runs import arm_run, result


def legend(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.axes[0].get_legend().get_texts()]


def test_a_curve_is_the_mean_over_seeds_between_the_lowest_and_the_highest() -> None:
    (arm,) = group([arm_run(values=[0.2, 0.4], seed=1), arm_run(values=[0.4, 0.8], seed=2)])
    found = curve(arm, "simulated_h", "accuracy")
    assert found is not None
    assert found.x.tolist() == [1.0, 2.0]
    np.testing.assert_allclose(found.mean, [0.3, 0.6])
    assert (found.low.tolist(), found.high.tolist()) == ([0.2, 0.4], [0.4, 0.8])


def test_seeds_evaluated_at_other_moments_meet_on_the_stretch_that_all_cover() -> None:
    found = average(
        [(np.array([0.0, 2.0]), np.array([0.0, 2.0])), (np.array([1.0, 3.0]), np.array([1.0, 1.0]))]
    )
    assert found is not None
    assert (found.x.tolist(), found.mean.tolist()) == ([1.0, 2.0], [1.0, 1.5])
    apart = average([(np.array([1.0]), np.array([0.2])), (np.array([3.0]), np.array([0.4]))])
    assert apart is not None
    assert (apart.x.tolist(), apart.mean.round(9).tolist()) == ([2.0], [0.3])
    assert average([]) is None


def test_long_curves_are_thinned_but_keep_their_ends() -> None:
    xs = np.arange(5000.0)
    found = average([(xs, xs)])
    assert found is not None
    assert (len(found.x), found.x[0], found.x[-1]) == (MOST_POINTS, 0.0, 4999.0)


def test_missing_values_are_left_out() -> None:
    (arm,) = group([arm_run(values=[np.nan, 0.4, np.nan, 0.8])])
    found = curve(arm, "sent_gb", "accuracy")
    assert found is not None
    assert (found.x.tolist(), found.mean.tolist()) == ([2.0, 4.0], [0.4, 0.8])


@pytest.mark.parametrize(
    ("x", "label", "last"),
    [
        ("simulated_h", "simulated time [h]", 4.0),
        ("sent_gb", "sent by all nodes [GB]", 4.0),
        ("training_h", "training on all devices [device hours]", 40.0),
    ],
)
def test_curves_over_time_bytes_and_training(x: Any, label: str, last: float) -> None:
    arms = group([arm_run(), arm_run("gossip")])
    figure = plots.curves(arms, x, reference=(0.75, "the paper: 75 %"))
    axes = figure.axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == (label, "test accuracy")
    assert axes.lines[0].get_xdata()[-1] == last
    assert legend(figure) == ["Plexus", "Gossip Learning"]
    assert [text.get_text() for text in axes.texts] == ["the paper: 75 %"]
    assert plots.curves(arms, x, log=True).axes[0].get_xscale() == "log"


def test_a_curve_of_one_point_is_seen_above_the_others() -> None:
    figure = plots.curves(group([arm_run(values=[0.1] * 20), arm_run("gossip", [0.1])]))
    ours, alone = figure.axes[0].lines[:2]
    assert ours.get_marker() == "None"
    assert (alone.get_marker(), alone.get_markersize()) == ("s", 8)
    assert alone.get_zorder() > ours.get_zorder()


def test_colours_stay_with_the_protocol_and_dashes_mean_no_churn() -> None:
    still = {"availability": "none"}
    runs = [arm_run(), arm_run("gossip"), arm_run(traces=still), arm_run("gossip", traces=still)]
    found = strokes(group(runs))
    alone = strokes(group([arm_run("gossip")]))
    assert found["Gossip Learning, churn"].colour == alone["Gossip Learning"].colour == PALETTE["orange"]
    assert found["Plexus, no churn"].colour == found["Plexus, churn"].colour == PALETTE["blue"]
    assert found["Plexus, churn"].line == "-" != found["Plexus, no churn"].line
    names = ["Plexus", "Gossip Learning", "with churn", "without"]
    assert legend(plots.curves(group(runs))) == names
    assert legend(plots.curves(group([runs[0], runs[2]]))) == ["with churn", "without"]


def test_names_that_are_not_ours_stay_as_they_are() -> None:
    one, other = group([arm_run("gossip"), arm_run("gossip", traces={"availability": "none"})])
    arms = [replace(one, label="8.8 % online"), replace(other, label="all online, no churn")]
    assert legend(plots.curves(arms)) == ["8.8 % online", "all online, no churn"]


def test_many_arms_have_different_colours() -> None:
    sweep = group([arm_run({"name": "plexus", "sample_size": s}) for s in (5, 10, 20, 40)])
    assert len({stroke.colour for stroke in strokes(sweep).values()}) == 4
    mixed = group([*(run for arm in sweep for run in arm.runs), arm_run("gossip")])
    assert len({stroke.colour for stroke in strokes(mixed).values()}) == 5
    rivals = [*("plexus", "gossip", "dpsgd", "epidemic", "fedavg", "teleportation", "fedbuff")]
    variations = [
        {"name": "plexus", "late_rounds": 20},
        {"name": "dpsgd", "topology": "regular", "degree": 10},
    ]
    paper = group([arm_run(each) for each in [*rivals, *variations]])
    assert len({stroke.colour for stroke in strokes(paper).values()}) == len(paper) == MOST_DRAWN


def test_bars_are_shares_of_all_that_was_sent() -> None:
    messages = {"model": Traffic(1, 750), "ping": Traffic(3, 250)}
    arms = group([arm_run(outcome=result(messages=messages))])
    by_bytes = plots.bars_of_messages(arms).axes[0]
    assert [round(bar.get_width()) for bar in by_bytes.patches] == [75, 25]
    assert {text.get_text() for text in by_bytes.texts} == {"Plexus", "75 %", "25 %", "1 kB"}
    by_count = plots.bars_of_messages(arms, "count").axes[0]
    assert [round(bar.get_width()) for bar in by_count.patches] == [75, 25]
    assert legend(plots.bars_of_messages(arms, "count")) == ["ping", "model"]


def rounds(times_s: list[float], numbers: list[int]) -> dict[str, Any]:
    return {"rounds": {"simulated_s": np.array(times_s), "round": np.array(numbers)}}


def test_a_round_lasts_from_one_completion_to_the_next() -> None:
    table = rounds([10.0, 30.0, 31.0, 90.0], [1, 2, 2, 3])
    (arm,) = group([arm_run(tables=table)])
    assert plots.durations_s(arm).tolist() == [20.0, 60.0]
    figure = plots.round_durations([arm])
    assert legend(figure) == ["Plexus (mean 40.0 s)"]
    assert figure.axes[0].lines[0].get_ydata()[-1] == 100


def test_online_nodes_and_what_views_say() -> None:
    online = {"simulated_s": np.array([0.0, 3600.0]), "online": np.array([8, 10])}
    views = {**online, "mean_view": [7.5, 9.0], "min_view": [7, 8], "max_view": [8, 11]}
    views = {name: np.array(column) for name, column in views.items()}
    (arm,) = group([arm_run(tables={"online": online, "views": views})])
    figure = plots.online_and_views([arm])
    assert legend(figure) == ["in the mean of their views", "online"]
    assert figure.axes[0].lines[0].get_ydata().tolist() == [7.5, 9.0]


CUT = {"kind": "partition", "from_h": 1.0, "to_h": 2.0, "nodes": [7]}
SLOW = {"kind": "slow-link", "from_h": 1.5, "to_h": 3.5, "nodes": 0.3, "factor": 0.1}


def spans(figure: Any) -> list[tuple[float, float]]:
    return [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in figure.axes[0].patches]


def test_faults_are_shaded_over_time_alone_and_named_once() -> None:
    again = {**CUT, "from_h": 2.5, "to_h": 4.0}
    arms = group(
        [arm_run(faults=[CUT, again, SLOW], values=[0.2, 0.4, 0.6]), arm_run("gossip", faults=[CUT])]
    )
    figure = plots.curves(arms)
    assert spans(figure) == [(1, 2), (2.5, 3), (1.5, 3)], "no further than the run came"
    assert legend(figure)[2:] == ["partition of node 7", "slow-link (× 0.1) of 30 % of the nodes"]
    assert spans(plots.curves(arms, "sent_gb")) == []
    (quiet,) = group([arm_run()])
    assert spans(plots.curves([quiet])) == []
    online = {"simulated_s": np.array([0.0, 3600.0]), "online": np.array([8, 10])}
    (arm,) = group([arm_run(tables={"online": online}, faults=[CUT])])
    drawn = plots.online_and_views([arm])
    assert (spans(drawn), legend(drawn)) == ([(1, 2)], ["online", "partition of node 7"])


def test_a_long_name_is_broken_into_lines() -> None:
    many = [
        {**CUT, "nodes": nodes, "to_h": to_h} for nodes in ([1, 2, 3], "aggregators") for to_h in (2.0, 3.0)
    ]
    arms = group([arm_run(faults=many), arm_run(faults=many[:2]), arm_run(faults=many[1:3])])
    figure = plots.curves(arms)
    assert max(len(line) for text in legend(figure) for line in text.splitlines()) <= 50
    figure.canvas.draw()  # would warn if there were no room for the panel
    assert figure.axes[0].get_position().height > 0.3


def live(run: Run) -> Run:
    return replace(run, versions=run.versions | {"kind": "live"})


def test_live_peers_tried_out_for_seconds_are_seen_beside_simulated_ones() -> None:
    """They look at their views once in a while: of a session of seconds there may be one row."""
    online = {"simulated_s": np.array([0.0, 4.0]), "online": np.array([0, 4])}
    view = {"simulated_s": [6.0], "online": [4], "mean_view": [4.0], "min_view": [4], "max_view": [4]}
    views = {name: np.array(column) for name, column in view.items()}
    tables = {"evaluations": {}, "online": online, "views": views}
    simulated = arm_run(tables=tables, outcome=result(simulated_s=360.0))
    peers = live(arm_run(tables=tables, outcome=result(simulated_s=8.0)))
    axes = plots.online_and_views(group([simulated, peers])).axes[0]
    point, _, of_peers, of_nodes = axes.lines
    assert (point.get_label(), point.get_marker()) == ("Plexus, live: in the mean of their views", "o")
    assert of_peers.get_label() == "online (Plexus, live)"
    assert of_peers.get_xdata()[-1] == 8 / 3600
    assert of_nodes.get_label() == "online (Plexus, simulated)"
    assert of_nodes.get_xdata()[-1] == 0.1
    assert axes.get_xlabel() == "time [s]"


def test_numbers_below_a_logarithmic_axis_have_room() -> None:
    """Also where it covers less than a power of ten, and matplotlib would write ten of them."""
    figure = plots.curves(group([arm_run(sent_gb=[0.0012, 0.002, 0.0029, 0.0032])]), "sent_gb", log=True)
    low, high = figure.axes[0].get_xlim()
    assert 2 <= sum(low <= tick <= high for tick in figure.axes[0].get_xticks()) <= 5


def test_nothing_to_draw_is_one_line() -> None:
    empty = group([arm_run(tables={"evaluations": {}})])
    for draw in (plots.curves, plots.round_durations, plots.online_and_views):
        with pytest.raises(PlexusError):
            draw(empty)
    with pytest.raises(PlexusError, match="no messages"):
        plots.bars_of_messages(group([arm_run(finished=False)]))


def with_work(path: Path, run: Run, used: list[tuple[int, int]]) -> Run:
    """A run in which a training takes 1 s on the first device, 2 s on the second, and so on."""
    recorder = Recorder(path)
    for node, (finished, behind) in enumerate(used):
        place = dict.fromkeys(TABLES["nodes"].columns) | {"node": node, "training_s": node + 1.0}
        recorder.record("nodes", **place)
        recorder.record("used", node=node, trainings=finished, trainings_used=behind, late_used=0)
    recorder.flush()
    return replace(run, path=path)


def test_whose_work_is_used_is_shown_for_each_tenth_of_the_devices(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    half_in_vain = [(4, 4)] * 6 + [(0, 0)] + [(4, 2)] * 3
    runs = [
        with_work(tmp_path / "one", arm_run(seed=1), half_in_vain),
        with_work(tmp_path / "two", arm_run(seed=2), [*half_in_vain[:9], (12, 0)]),
        arm_run("gossip"),
    ]
    ours, gossip = group(runs)
    training_s, shares = used_shares(ours)
    assert training_s.tolist() == [1, 2, 3, 4, 5, 6, 8, 9, 10], "nobody finished a training of 7 s"
    assert shares.tolist() == [1, 1, 1, 1, 1, 1, 0.5, 0.5, 2 / 16]
    figure = plots.used_by_speed([ours, gossip])
    assert legend(figure) == ["Plexus"]
    assert figure.axes[0].lines[0].get_ydata().tolist() == (100 * shares).tolist()
    assert "used" in [each.id for section in standard_sections([ours, gossip]) for each in section.pictures]
    assert "used" not in [each.id for section in standard_sections([gossip]) for each in section.pictures]
    with pytest.raises(PlexusError, match="nothing is known of whose trainings"):
        plots.used_by_speed([gossip])


def test_few_devices_are_a_point_each(tmp_path: Path) -> None:
    (arm,) = group([with_work(tmp_path, arm_run(), [(1, 1), (2, 1)])])
    assert [column.tolist() for column in used_shares(arm)] == [[1.0, 2.0], [1.0, 0.5]]
