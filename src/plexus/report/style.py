"""How figures look: one colour for each protocol, quiet axes, room for the data.

Figures are drawn in a few named colours. On the page each of these becomes a CSS variable, so one drawing
serves the light and the dark theme; in PNG and PDF files they are what they are here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from plexus.errors import PlexusError
from plexus.report.arms import Arm

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, SOFT, FAINT = "#1f2933", "#5b6470", "#e4e7eb"
# Okabe and Ito's palette, which people with any colour vision can tell apart.
PALETTE = {
    "blue": "#0072b2",
    "vermilion": "#d55e00",
    "green": "#009e73",
    "purple": "#cc79a7",
    "orange": "#e69f00",
    "sky": "#56b4e9",
    "yellow": "#c9b800",  # a little darker than theirs, which vanishes on white
    "grey": "#7b8794",
}
ON_COLOUR, CARD = "#fffffe", "#fffffd"
"""Text on a coloured surface, and what figures lie on."""
COLOUR_VARIABLES = {ON_COLOUR: "on-colour", CARD: "card", INK: "ink", SOFT: "soft", FAINT: "line"} | {
    value: name for name, value in PALETTE.items()
}
"""The name of the CSS variable that stands for each colour on the page."""

_PROTOCOL_COLOURS = {
    "plexus": "blue",
    "gossip": "orange",
    "dpsgd": "green",
    "dpsgd regular": "purple",
    "epidemic": "vermilion",
    "fedavg": "grey",
}
_MESSAGE_COLOURS = {
    "model": "blue",
    "view": "orange",
    "ping": "green",
    "pong": "purple",
    "membership": "vermilion",
    "ack": "sky",
}
_SECOND_COLOURS = ("vermilion", "green", "purple", "orange", "sky", "yellow", "blue", "grey")
_DASHES, _DOTS = (0, (4, 2)), (0, (1, 1.6))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h")

STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.8,
    "text.color": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
}


class Stroke(NamedTuple):
    """How an arm is drawn, in every figure the same."""

    colour: str
    line: Any
    """Solid; dashed without churn where both are there; dotted if the run did not end."""
    marker: str


def strokes(arms: Sequence[Arm]) -> dict[str, Stroke]:
    """By label. Arms that differ only in churn share a colour; so does nothing else."""
    both = len({arm.has_churn for arm in arms}) > 1
    usual = {_colour(arm) for arm in arms}
    spare = iter(name for name in _SECOND_COLOURS if name not in usual)
    colours: dict[str, str] = {}
    for arm in arms:
        if _kind(arm) not in colours:
            wanted = _colour(arm)
            taken = wanted in colours.values()
            colours[_kind(arm)] = next(spare, "grey") if taken else wanted
    kinds = list(colours)
    found = {}
    for arm in arms:
        line: Any = "-" if arm.has_churn or not both else _DASHES
        line = line if arm.is_complete else _DOTS
        marker = _MARKERS[kinds.index(_kind(arm)) % len(_MARKERS)]
        found[arm.label] = Stroke(PALETTE[colours[_kind(arm)]], line, marker)
    return found


def legend_of_arms(axes: Any, arms: Sequence[Arm]) -> None:
    """One line for each colour; where dashes mean no churn, that is said once for all."""
    from matplotlib.lines import Line2D

    pairs = [(arm.label, strokes(arms)[arm.label]) for arm in arms]
    without = re.compile(r"(, |^)(no churn|churn( \([^)]*\))?)(?=,|$)")
    named = {without.sub("", label).removeprefix(", "): stroke.colour for label, stroke in pairs}
    if len(named) == len(pairs):  # no two share a line
        handles = [
            Line2D([], [], color=stroke.colour, ls=stroke.line, lw=1.8, label=label)
            for label, stroke in pairs
        ]
    else:
        handles = [Line2D([], [], color=c, lw=1.8, label=name) for name, c in named.items() if name]
        handles += [
            Line2D([], [], color=SOFT, ls=line, lw=1.8, label=name)
            for name, line in (("with churn", "-"), ("without", _DASHES))
        ]
    legend(axes, handles=handles)


def message_colours(names: Sequence[str]) -> dict[str, str]:
    """By type of message, in every figure the same."""
    known = {name: PALETTE[colour] for name, colour in _MESSAGE_COLOURS.items()}
    spare = [PALETTE[name] for name in ("yellow", "grey", "sky")]
    others = sorted(set(names) - set(known))
    return known | {name: spare[at % len(spare)] for at, name in enumerate(others)}


def _colour(arm: Arm) -> str:
    """The usual colour of a protocol; D-PSGD has one for each of the paper's two topologies."""
    regular = arm.runs[0].spec["protocol"].get("topology") == "regular"
    return _PROTOCOL_COLOURS.get(f"{arm.protocol} regular" if regular else arm.protocol, "sky")


def _kind(arm: Arm) -> str:
    """What decides the colour: everything but who is online when."""
    spec = {key: value for key, value in arm.spec.items() if key != "traces"}
    spec["live"] = arm.runs[0].is_live
    return repr(sorted(spec.items(), key=lambda item: item[0]))


@contextmanager
def styled() -> Iterator[None]:
    """Matplotlib as these figures want it, and as it was afterwards."""
    try:
        from matplotlib import rc_context
    except ModuleNotFoundError:
        raise PlexusError("matplotlib is not installed: pip install 'plexus-learning[report]'") from None
    with rc_context(STYLE):
        yield


def panel(width: float = 5.0, height: float = 3.2) -> tuple[Figure, Any]:
    """A figure with one panel; call it inside `styled`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def legend(axes: Any, *, ncols: int | None = None, **options: Any) -> None:
    """Above the panel, where it covers nothing: the figure grows by its lines."""
    handles, labels = axes.get_legend_handles_labels()
    handles = options.pop("handles", handles)
    labels = [handle.get_label() for handle in handles]
    if handles:
        ncols = ncols or (1 if sum(sorted(map(len, labels))[-2:]) > 46 else 2)
        figure = axes.get_figure()
        width, height = figure.get_size_inches()
        figure.set_size_inches(width, height + 0.2 * math.ceil(len(labels) / ncols))
        axes.legend(
            handles=handles,
            loc="lower left",
            bbox_to_anchor=(-0.02, 1.0),
            ncols=ncols,
            borderaxespad=0.4,
            handlelength=1.8,
            columnspacing=1.4,
            labelspacing=0.35,
            **options,
        )
