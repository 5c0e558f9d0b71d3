"""Quantities as people read them; used by the progress bar, the summary and the figures alike."""

from __future__ import annotations

import math
from collections.abc import Iterable


def metric(name: str, value: float | None) -> str:
    """Accuracies as a percentage, anything else to four significant digits."""
    if value is None or math.isnan(value):
        return "–"
    return share(value) if is_percentage(name) else f"{value:.4g}"


def difference(name: str, value: float) -> str:
    """Between two values of a metric: of percentages, points."""
    return f"{100 * value:.1f} points" if is_percentage(name) else metric(name, value)


def share(value: float | None) -> str:
    """A part of one, in percent."""
    return "–" if value is None else f"{100 * value:.1f} %"


def metric_name(name: str) -> str:
    """Abbreviations in capitals, as they are written in a text."""
    return name.upper() if name in ("mse", "rmse", "mae", "auc") else name


def is_percentage(name: str) -> bool:
    """Whether this metric is a share of one, shown in percent."""
    return name.removeprefix("own_") == "accuracy"


def size(count: float) -> str:
    """A number of bytes, in powers of 1000."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 999.5 or unit == "TB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.3g} {unit}"


def ranges(numbers: Iterable[int]) -> str:
    """`1..5, 9`: numbers that follow each other, three or more, as one."""
    spans: list[list[int]] = []
    for each in sorted(numbers):
        if spans and each == spans[-1][-1] + 1:
            spans[-1].append(each)
        else:
            spans.append([each])
    return ", ".join(f"{s[0]}..{s[-1]}" if len(s) > 2 else ", ".join(map(str, s)) for s in spans)


def clock(seconds: float) -> str:
    """A duration as h:mm:ss, or m:ss under an hour."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def hours(seconds: float) -> str:
    """Seconds of simulated time, in hours."""
    value = seconds / 3600
    return f"{value:.1f}" if value < 1000 else f"{value:,.0f}"
