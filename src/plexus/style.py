"""How figures look, in reports and pictures of traces alike: one palette, quiet axes, room for the data.

Figures are drawn in a few named colours. On a report's page each of these becomes a CSS variable, so one
drawing serves the light and the dark theme; in PNG and PDF files they are what they are here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from plexus.errors import needing

if TYPE_CHECKING:
    import matplotlib.figure

Figure: TypeAlias = "matplotlib.figure.Figure"
"""Under this name for whoever draws: matplotlib is imported when there is something to draw."""

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
    "brown": "#7a4a21",  # not theirs, for a ninth
}
BLUE, VERMILION = PALETTE["blue"], PALETTE["vermilion"]
ON_COLOUR, CARD = "#fffffe", "#fffffd"
"""Text on a coloured surface, and what figures lie on."""


@contextmanager
def styled(**more: Any) -> Iterator[None]:
    """Matplotlib as these figures want it, and as it was afterwards."""
    with needing("a figure"):
        from matplotlib import rc_context, rc_params_from_file
    style: Any = rc_params_from_file(Path(__file__).with_suffix(".mplstyle"), use_default_template=False)
    style.update(more)
    with rc_context(style):
        yield


def figure(width: float, height: float, pad: float | None = None) -> Figure:
    """An empty figure, whose panels leave room for what is written around them; call it inside `styled`."""
    from matplotlib import figure as drawn
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    return drawn.Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=pad, h_pad=pad))


def percent_ticks(axis: Any) -> None:
    """Shares of one, as people write them."""
    axis.set_major_formatter(lambda value, _: f"{100 * value:g} %")


def subtitle(axes: Any, text: str, above: int) -> Any:
    """A grey line between title and panel, so many points above the panel."""
    return axes.annotate(
        text, (0, 1), (0, above), xycoords="axes fraction", textcoords="offset points", color=SOFT
    )
