"""One self-contained page: what came out, what was run, and how to run it again.

Nothing on it is fetched from anywhere. Figures and tables are also files in a folder beside it, to which it
links by relative paths; without the folder the page is still whole.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from plexus.errors import PlexusError
from plexus.files import named, write_text
from plexus.report import provenance
from plexus.report.arms import Arm, group
from plexus.report.document import Cell, Picture, Section, Table, heading, text_of
from plexus.report.export import is_numeric, write_picture, write_table
from plexus.report.style import COLOUR_VARIABLES, styled
from plexus.runs.run import Run

if TYPE_CHECKING:
    from plexus.report.document import Picture

# A figure as a piece of the page: its text stays text, its colours follow the theme.

_ID_ATTRIBUTE = re.compile(r'\bid="([^"]+)"')
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
    rest = _ID_ATTRIBUTE.sub(rf'id="{name}-\1"', rest)
    rest = _REFERENCE.sub(rf"\g<1>{name}-\g<2>", rest)
    rest = rest.replace("xlink:href", "href")
    rest = _COLOUR.sub(lambda found: f"var(--{COLOUR_VARIABLES[found[0].lower()]})", rest)
    rest = _FONT.sub(r"font-size: \1px", rest)
    return (
        f'<svg viewBox="{box[1]}" role="img" aria-labelledby="{name}-title"'
        f' style="max-width: {width * 1.5:.0f}px">{rest}'
    )


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
    parts = [_section(each, folder) for each in sections]
    parts.append(_section(everything[-1], folder, provenance.ending(arms, folder, command)))
    body = "\n".join(parts)
    write_text(out, _page(title, provenance.subtitle(runs), everything, body))


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


def _page(title: str, subtitle: str, sections: Sequence[Section], body: str) -> str:
    static = resources.files("plexus.report") / "static"
    style, script = ((static / name).read_text("utf-8") for name in ("page.css", "page.js"))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
<header>
<button id="theme" type="button" title="Light, dark, or as the system has it">theme</button>
<h1>{escape(title)}</h1>
<p class="subtitle">{escape(subtitle)}</p>
</header>
<div class="columns">
<nav aria-label="Contents">
<details open><summary>Contents</summary>
{_contents(sections)}
</details>
</nav>
<main>
{body}
</main>
</div>
<script>
{script}</script>
</body>
</html>
"""


def _contents(sections: Sequence[Section]) -> str:
    items = []
    for section in sections:
        things: tuple[Picture | Table, ...] = (*section.tables, *section.pictures)
        inner = "".join(
            f'<li><a href="#{thing.id}">{escape(heading(thing.title))}</a></li>' for thing in things
        )
        nested = f"<ul>{inner}</ul>" if inner else ""
        items.append(f'<li><a href="#{section.id}">{escape(heading(section.title))}</a>{nested}</li>')
    return f"<ol>{''.join(items)}</ol>"


def _section(section: Section, folder: Path, ending: str = "") -> str:
    paragraphs = "".join(f"<p>{_prose(p)}</p>\n" for p in section.text.split("\n\n") if p.strip())
    tables = "\n".join(_table(table, folder) for table in section.tables)
    pictures = "\n".join(_picture(picture, folder) for picture in section.pictures)
    gallery = f'<div class="gallery">\n{pictures}\n</div>' if pictures else ""
    return f"""<section id="{section.id}">
<h2>{escape(heading(section.title))}</h2>
{paragraphs}{tables}
{gallery}
{ending}
</section>"""


def _prose(text: str) -> str:
    """Text with `code` in it."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text.strip()))


def _picture(picture: Picture, folder: Path) -> str:
    # The parts of a figure find their places once, not again for each of its three formats.
    picture.figure.draw_without_rendering()
    picture.figure.set_layout_engine("none")
    links = _links(folder, write_picture(folder, picture))
    wide = ' class="wide"' if picture.figure.get_figwidth() > 7 else ""
    paper = f'<p class="paper"><b>The paper:</b> {_prose(picture.paper)}</p>' if picture.paper else ""
    return f"""<figure id="{picture.id}"{wide}>
<h3 id="{picture.id}-title">{escape(heading(picture.title))}</h3>
<div class="drawing">{inline(picture)}</div>
<figcaption><p>{_prose(picture.caption)}</p>{paper}{links}</figcaption>
</figure>"""


def _table(table: Table, folder: Path) -> str:
    links = _links(folder, write_table(folder, table))
    kinds = ['class="number"' if is_numeric(table, at) else "" for at in range(len(table.columns))]
    head = "".join(
        f'<th scope="col" {kind}>{escape(name)}</th>' for name, kind in zip(table.columns, kinds, strict=True)
    )
    rows = "\n".join(
        "<tr>"
        + "".join(f"<td {kind}>{_cell(cell)}</td>" for cell, kind in zip(row, kinds, strict=True))
        + "</tr>"
        for row in table.rows
    )
    note = f'<p class="note">{_prose(table.note)}</p>' if table.note else ""
    title = f"<h3>{escape(heading(table.title))}</h3>"
    opening, closing = (f"<details><summary>{title}</summary>", "</details>") if table.folded else (title, "")
    return f"""<div class="table" id="{table.id}">
{opening}
<div class="scroll" tabindex="0" role="region" aria-label="{escape(heading(table.title))}"><table>
<thead><tr>{head}</tr></thead>
<tbody>
{rows}
</tbody></table></div>
{note}{links}
{closing}</div>"""


def _cell(cell: Cell) -> str:
    """The spread stands back behind the mean."""
    mean, plus_minus, spread = escape(text_of(cell)).partition(" ± ")
    return f'{mean} <span class="spread">± {spread}</span>' if plus_minus else mean


def _links(folder: Path, names: Sequence[str]) -> str:
    links = " ".join(
        f'<a href="{escape(folder.name)}/{name}">{name.rpartition(".")[2].upper()}</a>' for name in names
    )
    return f'<p class="files">{links}</p>'
