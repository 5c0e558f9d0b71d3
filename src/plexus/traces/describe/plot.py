"""A picture of traces that one understands without the code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from plexus.errors import PlexusError
from plexus.traces.describe import online_panels
from plexus.traces.describe import panels as draw_panel
from plexus.traces.describe.text import Opened, facts_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    "xtick.color": draw_panel.GREY,
    "ytick.color": draw_panel.GREY,
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
        raise PlexusError(
            "matplotlib is not installed: pip install 'plexus-learning[report]'"
        ) from None
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
        panels.append(lambda axes: draw_panel.compute(axes, compute_ms, devices))
        panels.append(lambda axes: draw_panel.bandwidth(axes, up_mbps, down_mbps, devices))
    if (who := opened.availability) is not None and (online := facts.availability) is not None:
        panels.append(lambda axes: online_panels.online_over_time(axes, who, online))
        panels.append(lambda axes: online_panels.timelines(axes, who, online))
        panels.append(lambda axes: online_panels.session_lengths(axes, who, online))
        panels.append(lambda axes: online_panels.online_by_device(axes, who, online))
    if (matrix_s := opened.matrix_s) is not None and (latency := facts.latency) is not None:
        panels.append(lambda axes: draw_panel.latency(axes, matrix_s, latency))
        panels.append(lambda axes: draw_panel.latency_map(axes, matrix_s))
    return panels
