"""One self-contained page: what came out, what was run, and how to run it again.

Nothing on it is fetched from anywhere. Figures (PNG and PDF), tables (CSV and LaTeX) and specs are also files
in a folder beside it, to which it links by relative paths; without the folder the page is still whole. What
it looks like is in `static/`.
"""

from __future__ import annotations

import csv
import io
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from plexus import quantities
from plexus.errors import PlexusError
from plexus.files import named, write_text
from plexus.report import naming
from plexus.report.arms import Arm, group, is_complete, reached_h
from plexus.report.document import Cell, Picture, Quantity, Section, Table, heading, is_numeric, text_of
from plexus.runs.run import Run
from plexus.spec import toml
from plexus.style import CARD, FAINT, INK, ON_COLOUR, PALETTE, SOFT, styled

_COLOUR_VARIABLES = {ON_COLOUR: "on-colour", CARD: "card", INK: "ink", SOFT: "soft", FAINT: "line"} | {
    value: name for name, value in PALETTE.items()
}
"""The name of the CSS variable that stands for each colour on the page."""
_COLOUR = re.compile("|".join(_COLOUR_VARIABLES), re.IGNORECASE)
_ID = re.compile(r"[a-z][a-z0-9-]*")
LONGEST_TABLE = 12
"""Rows; a longer list of runs is shown on demand."""
LONGEST_NAME = 80
"""Of a file, in characters: a label may be longer than a file system allows."""


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
    everything = [*sections, _provenance(arms)]
    _require_ids(everything)
    tables = [table for section in everything for table in section.tables]
    pictures = [picture for section in everything for picture in section.pictures]
    for picture in pictures:
        # The parts of a figure find their places once, not again for each of its three formats.
        picture.figure.draw_without_rendering()
        picture.figure.set_layout_engine("none")
    files = {table.id: write_table(folder, table) for table in tables}
    files |= {picture.id: write_picture(folder, picture) for picture in pictures}
    template = _environment().get_template("page.html")
    text = template.render(
        title=title,
        subtitle=_subtitle(runs),
        sections=everything,
        folder=folder.name,
        files=files,
        drawings={picture.id: Markup(inline(picture)) for picture in pictures},
        command=command,
        repeats=_repeats(arms, folder),
        needed=_needed_files(arms),
        versions=_versions(arms),
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


def write_picture(folder: Path, picture: Picture) -> list[str]:
    """PNG and PDF; their names. The same figure always gives the same bytes."""
    names = [f"{picture.id}.png", f"{picture.id}.pdf"]
    with named(folder), styled():
        picture.figure.savefig(folder / names[0], dpi=200)
        picture.figure.savefig(folder / names[1], metadata={"CreationDate": None})
    return names


def write_table(folder: Path, table: Table) -> list[str]:
    """CSV and LaTeX; their names."""
    names = [f"{table.id}.csv", f"{table.id}.tex"]
    write_text(folder / names[0], as_csv(table))
    write_text(folder / names[1], as_latex(table))
    return names


def as_csv(table: Table) -> str:
    """For programs: bare numbers, and the spread of a column in one of its own."""
    columns: list[list[str]] = []
    for name, *cells in zip(table.columns, *table.rows, strict=True):
        columns.append([name, *map(_bare, cells)])
        spreads = [_bare(cell.spread) if isinstance(cell, Quantity) else "" for cell in cells]
        if any(spreads):
            columns.append([f"{name} (± 95 %)", *spreads])
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(zip(*columns, strict=True))
    return buffer.getvalue()


def _bare(cell: Cell) -> str:
    if isinstance(cell, Quantity):
        return cell.text if cell.value is None else repr(cell.value)
    return cell if isinstance(cell, str) else "" if cell is None else repr(cell)


def as_latex(table: Table) -> str:
    """A table for a paper, with the rules of the package booktabs."""
    kinds = "".join("r" if is_numeric(table, at) else "l" for at in range(len(table.columns)))
    caption = f"{_latex(heading(table.title))}. {_latex(table.note)}"
    lines = [[_latex(text_of(cell)) for cell in row] for row in (table.columns, *table.rows)]
    head, *rows = (f"    {' & '.join(line)} \\\\" for line in lines)
    words = {"CAPTION": caption, "ID": table.id, "KINDS": kinds}
    words["ROWS"] = "\n".join([head, r"    \midrule", *rows])
    template = Path(__file__).with_name("static").joinpath("table.tex").read_text(encoding="utf-8")
    return re.sub("|".join(words), lambda found: words[found[0]], template)


def _latex(text: str) -> str:
    return re.sub(".", lambda found: naming.NAMES["latex"].get(found[0], found[0]), text)


def _subtitle(runs: Sequence[Run]) -> str:
    tasks = dict.fromkeys(naming.task(run.spec["task"]["name"]) for run in runs)
    names = sorted({run.spec["protocol"]["name"] for run in runs}, key=naming.rank)
    nodes = sorted({int(run.spec["nodes"]) for run in runs})
    seeds = sorted({int(run.spec["seed"]) for run in runs})
    facts = [
        ", ".join(map(naming.protocol, names)),
        ", ".join(tasks),
        " to ".join(f"{count:,}" for count in dict.fromkeys((nodes[0], nodes[-1]))) + " nodes",
        f"{'seeds' if len(seeds) > 1 else 'seed'} {quantities.ranges(seeds)}",
        f"{len(runs)} runs" if len(runs) > 1 else "1 run",
    ]
    return " · ".join(facts)


def _provenance(arms: Sequence[Arm]) -> Section:
    """How this was made, as far as tables can say it."""
    runs = [run for arm in arms for run in arm.runs]
    unfinished = [run for run in runs if not is_complete(run)]
    text = "Everything above comes from the runs listed here. A run with the same spec, seed and versions"
    text += " has the same digest and the same weights, on any machine of one kind."
    if any(run.is_live for run in runs):
        text += " Of live peers no two runs are alike; the digest is that of their session."
    if unfinished:
        text += f"\n\n{len(unfinished)} of the {len(runs)} runs did not come to the end: each is shown as"
        text += " an arm of its own, named unfinished, and sets no target and counts in no mean."
    return Section("provenance", "How this was made", text, tables=[_runs_table(arms), _settings_table(arms)])


def _runs_table(arms: Sequence[Arm]) -> Table:
    columns = ("Arm", "Seed", "State", "Rounds", "Digest", "Weights", "Spec", "Started")
    rows: list[tuple[Cell, ...]] = []
    for label, run in ((arm.label, run) for arm in arms for run in arm.runs):
        found = run.result
        state = "complete" if is_complete(run) else f"unfinished at {reached_h(run):.1f} h"
        about = (label, str(run.spec["seed"]), f"{state}, {'live' if run.is_live else 'simulated'}")
        came_to = (found.rounds, found.digest, found.weights_hash or None) if found else (None,) * 3
        made = (str(run.versions.get(key, "–")) for key in ("spec_digest", "started"))
        rows.append((*about, *came_to, *made))
    return Table("runs", "Runs", columns, tuple(rows), folded=len(rows) > LONGEST_TABLE)


def _settings_table(arms: Sequence[Arm]) -> Table:
    """Every key of every spec, once if all arms have the same value."""
    flat = [naming.flatten(arm.spec) for arm in arms]
    rows: list[tuple[Cell, ...]] = []
    for key in dict.fromkeys(key for each in flat for key in each):
        values: dict[str, list[str]] = {}
        for arm, each in zip(arms, flat, strict=True):
            if key in each:
                values.setdefault(naming.value_words(each[key]), []).append(arm.label)
        for value, labels in values.items():
            rows.append((key, value, "all" if len(labels) == len(arms) else "; ".join(labels)))
    return Table("settings", "Settings, every key", ("Key", "Value", "Arms"), tuple(rows), folded=True)


class _Repeat(NamedTuple):
    """How to run an arm again."""

    name: str
    """Of its spec's file, without `.toml`."""
    label: str
    toml: str
    command: str


def _repeats(arms: Sequence[Arm], folder: Path) -> list[_Repeat]:
    """For each arm a command and the spec that it runs, which goes to a file in `folder`."""
    specs = folder / "specs"
    with named(specs):
        specs.mkdir(parents=True, exist_ok=True)
    found: list[_Repeat] = []
    for arm in arms:
        name = re.sub(r"[^a-z0-9.]+", "-", arm.label.lower()[:LONGEST_NAME]).strip("-.") or "arm"
        while name in {each.name for each in found}:
            name += "-again"
        text = toml.dumps({"name": name, "seed": arm.seeds[0], **arm.spec})
        write_text(specs / f"{name}.toml", text)
        path = shlex.quote(f"{folder.name}/specs/{name}.toml")
        if arm.runs[0].is_live:
            rounds = arm.runs[0].result.rounds if arm.runs[0].result else 1
            command = f"plexus fleet run {path} --rounds {rounds} --out repeated/{name}"
        elif len(arm.seeds) == 1:
            command = f"plexus run {path} --seed {arm.seeds[0]} --out repeated/{name}-{arm.seeds[0]}"
        else:
            each = f'plexus run {path} --seed "$seed" --out "repeated/{name}-$seed"'
            command = f"for seed in {' '.join(map(str, arm.seeds))}; do {each}; done"
        found.append(_Repeat(name, arm.label, text, command))
    return found


def _needed_files(arms: Sequence[Arm]) -> dict[str, str]:
    """Files that a spec names and that are not found from where it is now, and the folder of each."""
    found: dict[str, str] = {}
    for run in (run for arm in arms for run in arm.runs):
        start = run.versions.get("spec_dir")
        for value in naming.flatten(run.spec).values() if start else ():
            may_be_relative = isinstance(value, str) and not Path(value).is_absolute()
            if may_be_relative and Path(str(start), value).is_file():
                found[value] = str(start)
    return found


def _versions(arms: Sequence[Arm]) -> Counter[str]:
    """What the runs were made with, and how many of them."""
    made: Counter[str] = Counter()
    for run in (run for arm in arms for run in arm.runs):
        keep = {k: v for k, v in run.versions.items() if k in ("plexus", "python", "platform")}
        facts = {**keep, **run.versions.get("packages", {})}
        made[" · ".join(f"{k} {v}" for k, v in facts.items())] += 1
    return made
