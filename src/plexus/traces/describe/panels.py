"""Panels of a picture of traces, each on its own axes: devices and latency, and what all share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from plexus.traces.describe.facts import DeviceFacts, LatencyFacts, Spread
from plexus.traces.describe.text import seconds

# Okabe and Ito's palette, which people with any colour vision can tell apart.
BLUE, VERMILION, GREY = "#0072B2", "#D55E00", "#5B6470"
Floats = NDArray[np.float64]


def head(axes: Any, title: str, below: str) -> None:
    axes.set_title(title, pad=22)
    note = axes.annotate(
        below, (0, 1), xytext=(0, 7), xycoords="axes fraction", textcoords="offset points",
        color=GREY, fontsize=9,
    )  # fmt: skip
    note.set_in_layout(False)  # a long line must not squeeze the panel


def cumulative(axes: Any, values: Floats, color: str, label: str | None = None) -> None:
    """A curve that reads: this share of all is at most so much."""
    ordered = np.sort(values)
    ordered = np.concatenate((ordered[:1], ordered))
    share = np.arange(len(ordered)) / (len(ordered) - 1)
    if len(ordered) > 4000:  # more points than a screen has
        picked = np.linspace(0, len(ordered) - 1, 4000).astype(int)
        ordered, share = ordered[picked], share[picked]
    axes.plot(ordered, share, color=color, linewidth=1.8, label=label, drawstyle="steps-post")


def percent_ticks(axis: Any) -> None:
    axis.set_major_formatter(lambda value, _: f"{100 * value:g} %")


def mark(axes: Any, spread: Spread, word: Any, color: str = VERMILION) -> None:
    """Points for p5, p50 and p95 on a cumulative curve, with their values."""
    if len(axes.lines[-1].get_xdata()) < 30:  # a staircase: the points would hang in the air
        return
    for share, value in ((0.05, spread.p5), (0.5, spread.p50), (0.95, spread.p95)):
        axes.plot(value, share, "o", color=color, markersize=5, zorder=4)
        say(axes, word(value), (value, share), (8, -4 if share > 0.9 else 0), color,
             va="top" if share > 0.9 else "center")  # fmt: skip


def say(
    axes: Any, text: str, at: tuple[float, float], offset: tuple[int, int], color: str, **where: str
) -> None:
    """A few words beside a point, readable over whatever they cover."""
    label = axes.annotate(
        text, at, xytext=offset, textcoords="offset points", color=color, fontweight="bold",
        fontsize=9, zorder=5, **where,
        bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.85},
    )  # fmt: skip
    label.set_in_layout(False)


def percent(share: float) -> str:
    """A share of one, as people write it."""
    return f"{share * 100:.1f} %"


def compute(axes: Any, compute_ms: Floats, facts: DeviceFacts) -> None:
    """How fast the devices are."""
    slowest = float(np.quantile(compute_ms, 0.999))
    axes.hist(compute_ms, bins=np.linspace(0, slowest * 1.05, 45), color=BLUE, alpha=0.85,
              weights=np.full(len(compute_ms), 1 / len(compute_ms)))  # fmt: skip
    percent_ticks(axes.yaxis)
    axes.set_xlabel("milliseconds to process one sample")
    axes.set_ylabel("devices")
    typical, slow = seconds(facts.training_s.p50), seconds(facts.training_s.p95)
    head(
        axes,
        f"How fast {facts.devices:,} devices compute",
        f"5 steps of 20 samples take {typical} in the median, {slow} at the slow end",
    )


def bandwidth(axes: Any, up_mbps: Floats, down_mbps: Floats, facts: DeviceFacts) -> None:
    """How fast the devices send and receive."""
    axes.set_xscale("log")
    same = facts.up_kbps == facts.down_kbps
    axes.set_xlim(
        min(1.0, facts.up_kbps.min / 1e3) * 0.9, max(100.0, facts.down_kbps.max / 1e3) * 1.2
    )
    cumulative(axes, up_mbps, BLUE, "both ways" if same else "up")
    mark(axes, _scaled(facts.up_kbps, 1e-3), _mbps, BLUE)
    if not same:
        cumulative(axes, down_mbps, VERMILION, "down")
        mark(axes, _scaled(facts.down_kbps, 1e-3), _mbps)
        axes.legend(frameon=False, loc="lower right")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    percent_ticks(axes.yaxis)
    axes.set_xlabel("megabits a second")
    axes.set_ylabel("devices with at most that")
    below = f"sending 1 MB takes {seconds(8e3 / facts.up_kbps.p50)} in the median"
    head(axes, "Bandwidth, the same up and down" if same else "Bandwidth up and down", below)


def _scaled(spread: Spread, factor: float) -> Spread:
    return Spread(*(getattr(spread, name) * factor for name in Spread.__struct_fields__))


def _mbps(value: float) -> str:
    return f"{value:.2g} Mbit/s"


def latency(axes: Any, matrix_s: Floats, facts: LatencyFacts) -> None:
    """How far apart cities are in time."""
    between = ~np.eye(len(matrix_s), dtype=np.bool_)
    pairs_ms = matrix_s[between] * 1000
    longest = float(np.quantile(pairs_ms, 0.999)) if len(pairs_ms) else 1.0
    cumulative(axes, pairs_ms, BLUE)
    mark(axes, facts.one_way_ms, lambda value: f"{value:.0f} ms")
    axes.set_xlim(0, longest * 1.02)
    percent_ticks(axes.yaxis)
    axes.set_xlabel("milliseconds one way")
    axes.set_ylabel("pairs of cities within that")
    head(
        axes,
        f"Latency between {facts.cities} cities",
        f"median {facts.one_way_ms.p50:.0f} ms one way; the longest is {facts.one_way_ms.max:.0f} ms",
    )


def latency_map(axes: Any, matrix_s: Floats) -> None:
    """Every pair of cities, near ones side by side."""
    order = _by_likeness(matrix_s)
    shown_ms = matrix_s[np.ix_(order, order)] * 1000
    image = axes.imshow(
        shown_ms, cmap="viridis_r", vmin=0, vmax=float(np.quantile(shown_ms, 0.99)), aspect="auto"
    )
    axes.grid(visible=False)
    axes.set_xlabel("city")
    axes.set_ylabel("city")
    for axis in (axes.xaxis, axes.yaxis):
        axis.get_major_locator().set_params(integer=True)
    bar = axes.inset_axes((1.02, 0, 0.03, 1))
    axes.figure.colorbar(image, cax=bar, label="milliseconds one way")
    head(axes, "Every pair of cities", "near ones side by side: the squares are continents")


def _by_likeness(matrix_s: Floats) -> NDArray[np.intp]:
    """An order in which each city follows one near to it: the walk to the nearest not yet visited."""
    near = (matrix_s + matrix_s.T) / 2
    order = [int(near.sum(axis=1).argmax())]
    left = np.ones(len(near), np.bool_)
    left[order[0]] = False
    while left.any():
        step = np.where(left, near[order[-1]], np.inf)
        order.append(int(step.argmin()))
        left[order[-1]] = False
    return np.array(order, np.intp)
