"""What nodes send, by type of message, as bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from plexus import quantities
from plexus.errors import PlexusError
from plexus.report.arms import Arm
from plexus.report.style import ON_COLOUR, SOFT, legend, message_colours, panel, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def bars_of_messages(arms: Sequence[Arm], of: Literal["bytes", "count"] = "bytes") -> Figure:
    """The share of each type of message in the bytes (or the number of messages) that an arm sends."""
    shares = [(arm.label, *_shares(arm, of)) for arm in arms]
    heaviest: dict[str, float] = {}
    for _, parts, _ in shares:
        for name, share in parts.items():
            heaviest[name] = max(heaviest.get(name, 0.0), share)
    if not heaviest:
        raise PlexusError("no messages were counted: the runs did not end")
    names = sorted(heaviest, key=lambda name: -heaviest[name])
    colours = message_colours(names)
    with styled():
        figure, axes = panel(height=0.75 + 0.5 * len(arms))
        for row, (label, parts, total) in enumerate(shares):
            left = 0.0
            for name in names:
                share = 100 * parts.get(name, 0.0)
                axes.barh(row, share, left=left, height=0.46, color=colours[name])
                if share > 7:
                    _write_inside(axes, left + share / 2, row, f"{share:.3g} %")
                left += share
            text = quantities.size(total) if of == "bytes" else quantities.whole(round(total))
            above = {"textcoords": "offset points", "va": "bottom", "fontsize": 9}
            axes.annotate(label, (0, row - 0.23), (0, 2), **above)
            axes.annotate(text, (100, row - 0.23), (0, 2), ha="right", color=SOFT, **above)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.set_ylim(len(arms) - 0.6, -0.75)
        axes.set_xlim(0, 100)
        axes.grid(visible=False)
        axes.xaxis.set_major_formatter("{x:g} %")
        axes.set_xlabel("share of all bytes sent" if of == "bytes" else "share of all messages")
        _legend_of_messages(axes, names, colours)
    return figure


def _write_inside(axes: Any, x: float, row: int, text: str) -> None:
    axes.text(x, row + 0.01, text, ha="center", va="center", fontsize=8, color=ON_COLOUR)


def _legend_of_messages(axes: Any, names: Sequence[str], colours: dict[str, str]) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(color=colours[name], label=name) for name in names]
    legend(axes, handles=handles, ncols=min(4, len(names)), handleheight=0.8)


def _shares(arm: Arm, of: str) -> tuple[dict[str, float], float]:
    """By type of message, its share; and the whole, the mean over seeds."""
    sums: dict[str, float] = {}
    for run in arm.runs:
        for name, traffic in run.result.messages.items() if run.result else ():
            sums[name] = sums.get(name, 0.0) + getattr(traffic, of) / len(arm.runs)
    total = sum(sums.values())
    return {name: value / total for name, value in sums.items() if value}, total
