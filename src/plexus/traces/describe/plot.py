"""A picture of traces that one understands without the code: a panel for each thing that they say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plexus import quantities
from plexus.errors import PlexusError
from plexus.style import BLUE, VERMILION, figure, percent_ticks, styled, subtitle
from plexus.traces.describe import facts as measured
from plexus.traces.describe.facts import AvailabilityFacts, DeviceFacts, LatencyFacts
from plexus.traces.describe.text import Opened, facts_of, seconds
from plexus.traces.world import DAY_S, HOUR_S, Availability, Device

Floats = NDArray[np.float64]
COLUMNS = 2
DAYS_SHOWN = 4
DEVICES_SHOWN = 40
POINTS_SHOWN = 4000
"""Of a curve: a screen has no more."""


def picture(opened: Opened, path_png: Path) -> None:
    """Write a PNG with a panel for each thing the traces say."""
    panels = _panels(opened)
    rows = -(-len(panels) // COLUMNS)
    with styled():
        drawn = figure(11, 0.7 + 3.4 * rows, pad=0.14)
        drawn.suptitle(opened.source, x=0.02, ha="left", fontsize=14, fontweight="bold")
        axes = drawn.subplots(rows, COLUMNS, squeeze=False).ravel()
        for panel, axis in zip(panels, axes, strict=False):
            panel(axis)
        for axis in axes[len(panels) :]:
            axis.set_axis_off()
    try:
        drawn.savefig(path_png, dpi=110)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise PlexusError(f"{path_png}: cannot be written ({reason})") from error


def _panels(opened: Opened) -> list[Callable[[Any], None]]:
    facts = facts_of(opened)
    of_online = (_online_over_time, _timelines, _session_lengths, _online_by_device)
    kinds: tuple[tuple[Any, Any, tuple[Callable[..., None], ...]], ...] = (
        (opened.devices, facts.devices, (_compute, _bandwidth)),
        (opened.availability, facts.availability, of_online),
        (opened.matrix_s, facts.latency, (_latencies, _latency_map)),
    )
    return [partial(each, data, found) for data, found, panels in kinds if found for each in panels]


def _compute(devices: Sequence[Device], facts: DeviceFacts, axes: Any) -> None:
    compute_ms = np.array([device.compute_ms_per_sample for device in devices])
    bins = np.linspace(0, 1.05 * float(np.quantile(compute_ms, 0.999)), 45)
    weights = np.full(len(compute_ms), 1 / len(compute_ms))
    axes.hist(compute_ms, bins=bins, weights=weights, color=BLUE, alpha=0.85)
    percent_ticks(axes.yaxis)
    axes.set(xlabel="milliseconds to process one sample", ylabel="devices")
    typical, slow = seconds(facts.training_s.p50), seconds(facts.training_s.p95)
    below = f"5 steps of 20 samples take {typical} in the median, {slow} at the slow end"
    _head(axes, f"How fast {facts.devices:,} devices compute", below)


def _bandwidth(devices: Sequence[Device], facts: DeviceFacts, axes: Any) -> None:
    up_mbps, down_mbps = 8e-6 * np.array([(each.up_bytes_per_s, each.down_bytes_per_s) for each in devices]).T
    same = facts.up_kbps == facts.down_kbps
    axes.set_xscale("log")
    axes.set_xlim(0.9 * min(1.0, up_mbps.min()), 1.2 * max(100.0, down_mbps.max()))
    _cumulative(axes, up_mbps, BLUE, "both ways" if same else "up", "{:.2g} Mbit/s")
    if not same:
        _cumulative(axes, down_mbps, VERMILION, "down", "{:.2g} Mbit/s")
        axes.legend(loc="lower right")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    axes.set(xlabel="megabits a second", ylabel="devices with at most that")
    below = f"sending 1 MB takes {seconds(8e3 / facts.up_kbps.p50)} in the median"
    _head(axes, "Bandwidth, the same up and down" if same else "Bandwidth up and down", below)


def _online_over_time(availability: Availability, facts: AvailabilityFacts, axes: Any) -> None:
    """How many are online in the course of the first days."""
    share = measured.online_over_time(*measured.first_week(availability), HOUR_S / 2, DAYS_SHOWN * 48)
    hours = (np.arange(len(share)) + 0.5) / 2
    axes.fill_between(hours, share, color=BLUE, alpha=0.2, linewidth=0)
    axes.plot(hours, share, color=BLUE, linewidth=1.6)
    average = f"average {quantities.share(facts.online)}"
    axes.axhline(facts.online, color=VERMILION, linewidth=1.4, linestyle="--", label=average)
    axes.legend(loc="lower right", labelcolor=VERMILION)
    axes.set_ylim(0, min(1.02, max(0.01, 1.25 * float(share.max()))))
    percent_ticks(axes.yaxis)
    _hours_axis(axes, "devices online")
    least, most = min(facts.online_by_hour), max(facts.online_by_hour)
    below = f"by hour of the day {least * 100:.1f} to {quantities.share(most)};"
    below += f" {facts.changes_per_hour:.0f} joins and leaves an hour in 1000"
    _head(axes, f"How many of {facts.devices:,} devices are online", below)


def _timelines(availability: Availability, facts: AvailabilityFacts, axes: Any) -> None:
    shown = np.linspace(0, facts.devices - 1, min(DEVICES_SHOWN, facts.devices)).astype(int)
    until_s = DAYS_SHOWN * DAY_S
    for line, device in enumerate(shown.tolist()):
        shown_of_it = takewhile(lambda change: change[0] < until_s, availability.toggles(device))
        changes = pairwise([*shown_of_it, (until_s, False)])
        bars = [(at_s / HOUR_S, (end_s - at_s) / HOUR_S) for (at_s, online), (end_s, _) in changes if online]
        axes.broken_barh(bars, (line + 0.1, 0.8), color=BLUE, linewidth=0.3, edgecolor=BLUE)
    axes.set(ylim=(0, len(shown)), yticks=[])
    axes.grid(visible=False)
    _hours_axis(axes, "one device a line")
    never = f"{facts.never_online * 100:.0f} % of all devices are never online"
    _head(axes, f"{len(shown)} of the devices: online where blue", never)


def _session_lengths(availability: Availability, facts: AvailabilityFacts, axes: Any) -> None:
    if facts.session_s is None or facts.gap_s is None:
        axes.set_axis_off()
        _head(axes, "Sessions and gaps", "nobody ever comes or goes")
        return
    session_s, gap_s = measured.lengths(*measured.first_week(availability))
    axes.set_xscale("log")
    _cumulative(axes, np.maximum(session_s, 1), BLUE, "online (sessions)")
    _cumulative(axes, np.maximum(gap_s, 1), VERMILION, "offline (gaps)")
    axes.set_xlim(0.8, 14 * DAY_S)
    axes.set_xticks([1, 10, 60, 600, HOUR_S, 6 * HOUR_S, DAY_S, 7 * DAY_S])
    axes.set_xticks([], minor=True)
    axes.set_xticklabels(["1 s", "10 s", "1 min", "10 min", "1 h", "6 h", "1 d", "7 d"])
    axes.set_ylabel("lasting at most that")
    axes.legend(loc="upper left")
    below = f"sessions: median {seconds(facts.session_s.p50)}, mean {seconds(facts.session_s.mean)};"
    below += f" gaps: {seconds(facts.gap_s.p50)}, {seconds(facts.gap_s.mean)}"
    _head(axes, "How long devices stay, and stay away", below)


def _online_by_device(availability: Availability, facts: AvailabilityFacts, axes: Any) -> None:
    share = np.sort(measured.device_shares(*measured.first_week(availability)))[::-1]
    rank = np.arange(len(share) + 1) / len(share)
    axes.stairs(share, rank, color=BLUE, alpha=0.2, linewidth=0, fill=True)
    axes.stairs(share, rank, color=BLUE, linewidth=1.8)
    middle = facts.online_by_device.p50
    axes.plot(0.5, middle, "o", color=VERMILION, markersize=5)
    beside = (4, 8) if middle < 0.8 else (4, -14)
    _say(axes, f"half of them at most {quantities.share(middle)}", (0.5, middle), beside, VERMILION)
    axes.set(xlim=(0, 1), ylim=(0, min(1.02, max(0.05, 1.05 * float(share[0])))))
    percent_ticks(axes.xaxis)
    percent_ticks(axes.yaxis)
    axes.set(xlabel="devices, the most present first", ylabel="share of the time online")
    top = float(share[: max(1, len(share) // 10)].sum() / max(share.sum(), 1e-12))
    _head(axes, "How unequal devices are", f"a tenth of them has {top * 100:.0f} % of all time online")


def _latencies(matrix_s: Floats, facts: LatencyFacts, axes: Any) -> None:
    pairs_ms = matrix_s[~np.eye(len(matrix_s), dtype=np.bool_)] * 1000
    longest = float(np.quantile(pairs_ms, 0.999)) if len(pairs_ms) else 0.0
    _cumulative(axes, pairs_ms, BLUE, None, "{:.0f} ms", VERMILION)
    axes.set_xlim(0, 1.02 * (longest or 1.0))
    axes.set(xlabel="milliseconds one way", ylabel="pairs of cities within that")
    below = f"median {facts.one_way_ms.p50:.0f} ms one way; the longest is {facts.one_way_ms.max:.0f} ms"
    _head(axes, f"Latency between {facts.cities} cities", below)


def _latency_map(matrix_s: Floats, facts: LatencyFacts, axes: Any) -> None:
    """Every pair of cities, near ones side by side."""
    order = _by_likeness(matrix_s)
    shown_ms = matrix_s[np.ix_(order, order)] * 1000
    most_ms = float(np.quantile(shown_ms, 0.99))
    image = axes.imshow(shown_ms, cmap="viridis_r", vmin=0, vmax=most_ms, aspect="auto")
    axes.grid(visible=False)
    axes.set(xlabel="city", ylabel="city")
    for axis in (axes.xaxis, axes.yaxis):
        axis.get_major_locator().set_params(integer=True)
    axes.figure.colorbar(image, cax=axes.inset_axes((1.02, 0, 0.03, 1)), label="milliseconds one way")
    _head(axes, "Every pair of cities", "near ones side by side: the squares are continents")


def _by_likeness(matrix_s: Floats) -> NDArray[np.intp]:
    """An order in which each city follows one near to it: the walk to the nearest not yet visited."""
    near = (matrix_s + matrix_s.T) / 2
    order = [int(near.sum(axis=1).argmax())]
    left = np.ones(len(near), np.bool_)
    left[order[0]] = False
    while left.any():
        order.append(int(np.where(left, near[order[-1]], np.inf).argmin()))
        left[order[-1]] = False
    return np.array(order, np.intp)


def _head(axes: Any, title: str, below: str) -> None:
    axes.set_title(title, pad=22)
    # A long line must not squeeze the panel.
    subtitle(axes, below, above=7).set(fontsize=9, in_layout=False)


def _hours_axis(axes: Any, ylabel: str) -> None:
    axes.set_xlim(0, DAYS_SHOWN * 24)
    axes.set_xticks(range(0, DAYS_SHOWN * 24 + 1, 12))
    axes.set(xlabel="hours since the trace began", ylabel=ylabel)


def _cumulative(
    axes: Any, values: Floats, color: str, label: str | None, unit: str = "", marks: str | None = None
) -> None:
    """A curve that reads: this share of all is at most so much; with a `unit`, points at p5, p50 and p95."""
    ordered = np.sort(values)
    ordered = np.concatenate((ordered[:1], ordered))
    share = np.arange(len(ordered)) / (len(ordered) - 1)
    if len(ordered) > POINTS_SHOWN:
        picked = np.linspace(0, len(ordered) - 1, POINTS_SHOWN).astype(int)
        ordered, share = ordered[picked], share[picked]
    axes.plot(ordered, share, color=color, linewidth=1.8, label=label, drawstyle="steps-post")
    percent_ticks(axes.yaxis)
    if not unit or len(values) < 30:  # of a staircase, the points would hang in the air
        return
    for at, value in zip((0.05, 0.5, 0.95), np.quantile(values, (0.05, 0.5, 0.95)), strict=True):
        axes.plot(value, at, "o", color=marks or color, markersize=5, zorder=4)
        is_high = at > 0.9
        offset, va = (8, -4 if is_high else 0), "top" if is_high else "center"
        _say(axes, unit.format(value), (value, at), offset, marks or color, va=va)


def _say(
    axes: Any, text: str, at: tuple[float, float], offset: tuple[int, int], color: str, **where: str
) -> None:
    """A few words beside a point, readable over whatever they cover."""
    box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
    words = axes.annotate(text, at, offset, textcoords="offset points", color=color, bbox=box, **where)
    words.set(fontweight="bold", fontsize=9, zorder=5, in_layout=False)
