"""Panels of a picture of traces: who is online when."""

from __future__ import annotations

from typing import Any

import numpy as np

from plexus.traces.describe import facts as measured
from plexus.traces.describe.facts import (
    DAY_S,
    HOUR_S,
    AvailabilityFacts,
    device_shares,
    first_week,
    lengths,
)
from plexus.traces.describe.panels import (
    BLUE,
    VERMILION,
    cumulative,
    head,
    percent,
    percent_ticks,
    say,
)
from plexus.traces.describe.text import seconds
from plexus.traces.world import Availability

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
    head(
        axes, "How unequal devices are", f"a tenth of them has {top * 100:.0f} % of all time online"
    )
