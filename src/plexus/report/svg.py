"""A figure as a piece of the page: its text stays text, its colours follow the theme."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from plexus.report.style import COLOUR_VARIABLES, styled

if TYPE_CHECKING:
    from plexus.report.document import Picture

_ID = re.compile(r'\bid="([^"]+)"')
_REFERENCE = re.compile(r'(url\(#|href="#)([^")]+)')
_COLOUR = re.compile("|".join(COLOUR_VARIABLES), re.IGNORECASE)
_FONT = re.compile(r"font: ([\d.]+)px [^;\"]*")


def inline(picture: Picture) -> str:
    """The figure as SVG to be put into HTML, without a reference to anything outside."""
    buffer = io.StringIO()
    with styled():
        # Ids must differ between the figures of a page, and be the same each time it is made.
        from matplotlib import rc_context

        with rc_context({"svg.hashsalt": picture.id}):
            picture.figure.savefig(buffer, format="svg", transparent=True)
    return _adapted(buffer.getvalue(), picture.id)


def _adapted(text: str, name: str) -> str:
    body = text[text.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    opening, _, rest = body.partition(">")
    box = re.search(r'viewBox="([^"]+)"', opening)
    assert box is not None, "matplotlib always says how large a figure is"
    width = float(box[1].split()[2])
    rest = _ID.sub(rf'id="{name}-\1"', rest)
    rest = _REFERENCE.sub(rf"\g<1>{name}-\g<2>", rest)
    rest = rest.replace("xlink:href", "href")
    rest = _COLOUR.sub(lambda found: f"var(--{COLOUR_VARIABLES[found[0].lower()]})", rest)
    rest = _FONT.sub(r"font-size: \1px", rest)
    return (
        f'<svg viewBox="{box[1]}" role="img" aria-labelledby="{name}-title"'
        f' style="max-width: {width * 1.5:.0f}px">{rest}'
    )
