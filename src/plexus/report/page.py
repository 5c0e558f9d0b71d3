"""One self-contained page: what came out, what was run, and how to run it again.

Nothing on it is fetched from anywhere. Figures and tables are also files in a folder beside it, to which it
links by relative paths; without the folder the page is still whole. What it looks like is in `static/`.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from plexus.errors import PlexusError
from plexus.files import named, write_text
from plexus.report import provenance
from plexus.report.arms import Arm, group
from plexus.report.document import Picture, Section, Table, heading, text_of
from plexus.report.export import is_numeric, write_picture, write_table
from plexus.runs.run import Run
from plexus.style import CARD, FAINT, INK, ON_COLOUR, PALETTE, SOFT, styled

_COLOUR_VARIABLES = {ON_COLOUR: "on-colour", CARD: "card", INK: "ink", SOFT: "soft", FAINT: "line"} | {
    value: name for name, value in PALETTE.items()
}
"""The name of the CSS variable that stands for each colour on the page."""
_COLOUR = re.compile("|".join(_COLOUR_VARIABLES), re.IGNORECASE)
_ID = re.compile(r"[a-z][a-z0-9-]*")


def write_report(
    out: Path,
    title: str,
    sections: Sequence[Section],
    runs: Sequence[Run],
    command: str | None,
    arms: Sequence[Arm] | None = None,
) -> None:
    """Write the page to `out`, and its files to the folder `<stem>-files` beside it.

    `command` is what made all of this, for a reader who wants to do so again. `arms` are the runs as they
    are to be listed; without them they are grouped and named by their settings.
    """
    folder = out.with_name(f"{out.stem}-files")
    with named(folder):
        folder.mkdir(parents=True, exist_ok=True)
    arms = group(runs) if arms is None else arms
    everything = [*sections, provenance.section(arms)]
    _require_ids(everything)
    tables = [table for section in everything for table in section.tables]
    pictures = [picture for section in everything for picture in section.pictures]
    for picture in pictures:
        # The parts of a figure find their places once, not again for each of its three formats.
        picture.figure.draw_without_rendering()
        picture.figure.set_layout_engine("none")
    files = {table.id: write_table(folder, table) for table in tables}
    files |= {picture.id: write_picture(folder, picture) for picture in pictures}
    text = (
        _environment()
        .get_template("page.html")
        .render(
            title=title,
            subtitle=provenance.subtitle(runs),
            sections=everything,
            folder=folder.name,
            files=files,
            drawings={picture.id: Markup(inline(picture)) for picture in pictures},
            command=command,
            repeats=provenance.repeats(arms, folder),
            needed=provenance.needed_files(arms),
            versions=provenance.versions(arms),
        )
    )
    write_text(out, text)


def _require_ids(sections: Sequence[Section]) -> None:
    seen: set[str] = set()
    for section in sections:
        things: tuple[Section | Picture | Table, ...] = (section, *section.pictures, *section.tables)
        for thing in things:
            if not _ID.fullmatch(thing.id):
                raise PlexusError(f"report: the id {thing.id!r} must be small letters, digits and '-'")
            if thing.id in seen:
                raise PlexusError(f"report: two things have the id {thing.id!r}")
            seen.add(thing.id)


def _environment() -> Environment:
    loader = PackageLoader("plexus.report", "static")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    environment.trim_blocks = environment.lstrip_blocks = True
    environment.filters |= {"heading": heading, "text": text_of, "prose": _prose}
    environment.globals["is_numeric"] = is_numeric
    return environment


def _prose(text: str) -> Markup:
    """Text with `code` in it."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def inline(picture: Picture) -> str:
    """The figure as SVG to be put into HTML, without a reference to anything outside.

    Its text stays text, and its colours follow the theme.
    """
    buffer, name = io.StringIO(), picture.id
    # Ids must differ between the figures of a page, and be the same each time it is made.
    with styled(**{"svg.hashsalt": name}):
        picture.figure.savefig(buffer, format="svg", transparent=True)
    text = re.sub(r"<metadata>.*?</metadata>", "", buffer.getvalue(), flags=re.DOTALL)
    opening, _, rest = text[text.index("<svg") :].partition(">")
    box = re.search(r'viewBox="([^"]+)"', opening)
    assert box is not None, "matplotlib always says how large a figure is"
    width = float(box[1].split()[2])
    rest = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', rest)
    rest = re.sub(r'(url\(#|href="#)([^")]+)', rf"\g<1>{name}-\g<2>", rest)
    rest = rest.replace("xlink:href", "href")
    rest = _COLOUR.sub(lambda found: f"var(--{_COLOUR_VARIABLES[found[0].lower()]})", rest)
    rest = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", rest)
    return (
        f'<svg viewBox="{box[1]}" role="img" aria-labelledby="{name}-title"'
        f' style="max-width: {width * 1.5:.0f}px">{rest}'
    )
