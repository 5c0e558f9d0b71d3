"""A picture of traces that one understands without the code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from plexus.errors import PlexusError
from plexus.traces.describe import facts as measured
from plexus.traces.describe.facts import (
    DAY_S,
    HOUR_S,
    AvailabilityFacts,
    DeviceFacts,
    LatencyFacts,
    Spread,
    device_shares,
    first_week,
    lengths,
)
from plexus.traces.describe.text import Opened, facts_of, seconds
from plexus.traces.world import Availability

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Panels of a picture of traces, each on its own axes: devices and latency, and what all share.

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


def bandwidths(axes: Any, up_mbps: Floats, down_mbps: Floats, facts: DeviceFacts) -> None:
    """How fast the devices send and receive."""
    axes.set_xscale("log")
    same = facts.up_kbps == facts.down_kbps
    axes.set_xlim(min(1.0, facts.up_kbps.min / 1e3) * 0.9, max(100.0, facts.down_kbps.max / 1e3) * 1.2)
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


def latencies(axes: Any, matrix_s: Floats, facts: LatencyFacts) -> None:
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


# Panels of a picture of traces: who is online when.

DAYS_SHOWN = 4
DEVICES_SHOWN = 40


def online_over_time(axes: Any, availability: Availability, facts: AvailabilityFacts) -> None:
    """How many are online in the course of the first days."""
    sessions, periods_s = first_week(availability.packed, availability.periods_s)
    share = measured.online_over_time(sessions, periods_s, HOUR_S / 2, DAYS_SHOWN * 48)
    hours = (np.arange(len(share)) + 0.5) / 2
    axes.fill_between(hours, share, color=BLUE, alpha=0.2, linewidth=0)
    axes.plot(hours, share, color=BLUE, linewidth=1.6)
    average = f"average {percent(facts.online)}"
    axes.axhline(facts.online, color=VERMILION, linewidth=1.4, linestyle="--", label=average)
    axes.legend(frameon=False, loc="lower right", labelcolor=VERMILION)
    axes.set_xlim(0, DAYS_SHOWN * 24)
    axes.set_ylim(0, min(1.02, max(0.01, 1.25 * float(share.max()))))
    axes.set_xticks(range(0, DAYS_SHOWN * 24 + 1, 12))
    percent_ticks(axes.yaxis)
    axes.set_xlabel("hours since the trace began")
    axes.set_ylabel("devices online")
    by_hour = facts.online_by_hour
    head(
        axes,
        f"How many of {facts.devices:,} devices are online",
        f"by hour of the day {min(by_hour) * 100:.1f} to {percent(max(by_hour))};"
        f" {facts.changes_per_hour:.0f} joins and leaves an hour in 1000",
    )


def timelines(axes: Any, availability: Availability, facts: AvailabilityFacts) -> None:
    """Some devices, one per line."""
    shown = np.linspace(0, facts.devices - 1, min(DEVICES_SHOWN, facts.devices)).astype(int)
    until_s = DAYS_SHOWN * DAY_S
    for line, device in enumerate(shown.tolist()):
        bars, start_s = [], None
        for time_s, online in availability.toggles(device):
            if start_s is not None:
                bars.append((start_s / HOUR_S, (min(time_s, until_s) - start_s) / HOUR_S))
            start_s = time_s if online else None
            if time_s > until_s:
                start_s = None
                break
        if start_s is not None:
            bars.append((start_s / HOUR_S, (until_s - start_s) / HOUR_S))
        axes.broken_barh(bars, (line + 0.1, 0.8), color=BLUE, linewidth=0.3, edgecolor=BLUE)
    axes.set_xlim(0, DAYS_SHOWN * 24)
    axes.set_ylim(0, len(shown))
    axes.set_xticks(range(0, DAYS_SHOWN * 24 + 1, 12))
    axes.set_yticks([])
    axes.grid(visible=False)
    axes.set_xlabel("hours since the trace began")
    axes.set_ylabel("one device a line")
    never = f"{facts.never_online * 100:.0f} % of all devices are never online"
    head(axes, f"{len(shown)} of the devices: online where blue", never)


def session_lengths(axes: Any, availability: Availability, facts: AvailabilityFacts) -> None:
    """How long devices stay, and stay away."""
    session_s, gap_s = lengths(*first_week(availability.packed, availability.periods_s))
    if facts.session_s is None or facts.gap_s is None:
        axes.set_axis_off()
        head(axes, "Sessions and gaps", "nobody ever comes or goes")
        return
    axes.set_xscale("log")
    cumulative(axes, np.maximum(session_s, 1), BLUE, "online (sessions)")
    cumulative(axes, np.maximum(gap_s, 1), VERMILION, "offline (gaps)")
    axes.set_xlim(0.8, 14 * DAY_S)
    axes.set_xticks([1, 10, 60, 600, 3600, 6 * 3600, DAY_S, 7 * DAY_S])
    axes.set_xticks([], minor=True)
    axes.set_xticklabels(["1 s", "10 s", "1 min", "10 min", "1 h", "6 h", "1 d", "7 d"])
    percent_ticks(axes.yaxis)
    axes.set_ylabel("lasting at most that")
    axes.legend(frameon=False, loc="upper left")
    head(
        axes,
        "How long devices stay, and stay away",
        f"sessions: median {seconds(facts.session_s.p50)}, mean {seconds(facts.session_s.mean)};"
        f" gaps: {seconds(facts.gap_s.p50)}, {seconds(facts.gap_s.mean)}",
    )


def online_by_device(axes: Any, availability: Availability, facts: AvailabilityFacts) -> None:
    """How unequal devices are."""
    share = np.sort(device_shares(*first_week(availability.packed, availability.periods_s)))[::-1]
    rank = np.arange(len(share) + 1) / len(share)
    axes.stairs(share, rank, color=BLUE, alpha=0.2, linewidth=0, fill=True)
    axes.stairs(share, rank, color=BLUE, linewidth=1.8)
    middle = facts.online_by_device.p50
    axes.plot(0.5, middle, "o", color=VERMILION, markersize=5)
    beside = (4, 8) if middle < 0.8 else (4, -14)
    say(axes, f"half of them at most {percent(middle)}", (0.5, middle), beside, VERMILION)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, min(1.02, max(0.05, 1.05 * float(share[0]))))
    percent_ticks(axes.xaxis)
    percent_ticks(axes.yaxis)
    axes.set_xlabel("devices, the most present first")
    axes.set_ylabel("share of the time online")
    top = float(share[: max(1, len(share) // 10)].sum() / max(share.sum(), 1e-12))
    head(axes, "How unequal devices are", f"a tenth of them has {top * 100:.0f} % of all time online")


INK, FAINT = "#1F2933", "#E4E7EB"
STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.edgecolor": "#9AA5B1",
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "grid.color": FAINT,
    "grid.linewidth": 0.8,
    "text.color": INK,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}
Panel = Callable[[Any], None]
COLUMNS = 2


def picture(opened: Opened, path_png: Path) -> None:
    """Write a PNG with a panel for each thing the traces say."""
    figure = draw(opened)
    try:
        figure.savefig(path_png, dpi=110)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise PlexusError(f"{path_png}: cannot be written ({reason})") from error


def draw(opened: Opened) -> Figure:
    """As `picture`, not yet written."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ModuleNotFoundError:
        raise PlexusError("matplotlib is not installed: pip install 'plexus-learning[report]'") from None
    panels = _panels(opened)
    rows = -(-len(panels) // COLUMNS)
    with rc_context(STYLE):
        layout = ConstrainedLayoutEngine(w_pad=0.14, h_pad=0.14)
        figure = Figure(figsize=(11, 0.7 + 3.4 * rows), layout=layout)
        figure.suptitle(opened.source, x=0.02, ha="left", fontsize=14, fontweight="bold")
        axes = figure.subplots(rows, COLUMNS, squeeze=False).ravel()
        for panel, axis in zip(panels, axes, strict=False):
            panel(axis)
        for axis in axes[len(panels) :]:
            axis.set_axis_off()
    return figure


def _panels(opened: Opened) -> list[Panel]:
    facts = facts_of(opened)
    panels: list[Panel] = []
    if opened.devices is not None and (devices := facts.devices) is not None:
        compute_ms, up_mbps, down_mbps = (
            np.array([getattr(device, field) * scale for device in opened.devices])
            for field, scale in (
                ("compute_ms_per_sample", 1.0),
                ("up_bytes_per_s", 8e-6),
                ("down_bytes_per_s", 8e-6),
            )
        )
        panels.append(lambda axes: compute(axes, compute_ms, devices))
        panels.append(lambda axes: bandwidths(axes, up_mbps, down_mbps, devices))
    if (who := opened.availability) is not None and (online := facts.availability) is not None:
        panels.append(lambda axes: online_over_time(axes, who, online))
        panels.append(lambda axes: timelines(axes, who, online))
        panels.append(lambda axes: session_lengths(axes, who, online))
        panels.append(lambda axes: online_by_device(axes, who, online))
    if (matrix_s := opened.matrix_s) is not None and (latency := facts.latency) is not None:
        panels.append(lambda axes: latencies(axes, matrix_s, latency))
        panels.append(lambda axes: latency_map(axes, matrix_s))
    return panels
