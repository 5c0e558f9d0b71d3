"""The learning curve shows the numbers of the run, and says what they belong to."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plexus.errors import PlexusError
from plexus.report.learning_curve import accuracy_over_time, learning_curve
from plexus.runs.result import Metric
from tests.report.runs import ACCURACIES, result, run


def texts(figure: Any) -> set[str]:
    """Every word in a figure but the numbers of its axes."""
    found = {text.get_text() for axes in figure.axes for text in axes.texts}
    for axes in figure.axes:
        found |= {axes.get_title(loc="left"), axes.get_xlabel(), axes.get_ylabel()}
    return found - {""}


def test_the_curve_is_the_metric_over_simulated_hours() -> None:
    upper, lower = learning_curve(run(result())).axes
    hours, values = upper.lines[0].get_data()
    assert list(hours) == [0.5, 1.0, 1.5, 2.0]
    assert tuple(values) == ACCURACIES
    assert [tuple(point) for point in upper.lines[1].get_xydata()] == [(1.5, 0.9)]
    hours, online = lower.lines[0].get_data()
    assert (list(hours), list(online)) == ([0, 1, 2], [40, 60, 60])
    assert lower.get_xlim() == (0, 2)


def test_the_words_say_what_is_seen() -> None:
    assert texts(learning_curve(run(result()))) == {
        "small",
        "plexus on digits · 1,000 nodes · seed 3 · 1,234 rounds",
        "test accuracy",
        "best 90.0 %",
        "online",
        "simulated hours",
    }


def test_of_an_error_the_lowest_is_the_best() -> None:
    error = Metric("mse", best=1.2, final=1.3, higher_is_better=False)
    figure = learning_curve(run(result(metric=error), "mse", [2.0, 1.2, 1.3]))
    assert {"test MSE", "best 1.2"} <= texts(figure)


@pytest.mark.parametrize("outcome", [None, result(interrupted=True)])
def test_a_run_that_did_not_end_says_so(outcome: Any) -> None:
    words = " ".join(texts(learning_curve(run(outcome))))
    assert "interrupted" in words
    assert "test accuracy" in words
    assert "best 90.0 %" in words


def test_one_evaluation_and_missing_values_can_be_drawn(tmp_path: Path) -> None:
    for values in ([0.5], [np.nan, 0.5], [np.nan]):
        accuracy_over_time(run(result(), values=values), tmp_path / "figure.png")
    without_online = replace(run(result()), tables={**run(result()).tables, "online": {}})
    accuracy_over_time(without_online, tmp_path / "figure.png")


def test_the_file_is_a_png_of_a_sensible_size(tmp_path: Path) -> None:
    accuracy_over_time(run(result()), tmp_path / "figure.png")
    header = (tmp_path / "figure.png").read_bytes()[:24]
    assert header.startswith(b"\x89PNG\r\n\x1a\n")
    assert (int.from_bytes(header[16:20], "big"), int.from_bytes(header[20:24], "big")) == (1280, 800)


def test_what_prevents_a_figure_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = replace(run(result()), tables={"evaluations": {}, "rounds": {}, "online": {}})
    with pytest.raises(PlexusError, match="nothing was evaluated"):
        learning_curve(nothing)
    with pytest.raises(PlexusError, match=r"nowhere/figure\.png: No such file or directory"):
        accuracy_over_time(run(result()), tmp_path / "nowhere" / "figure.png")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(PlexusError, match=r"pip install 'plexus-learning\[report\]'"):
        learning_curve(run(result()))
