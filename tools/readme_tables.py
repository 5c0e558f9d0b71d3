"""Writes the tables of `PAGES` from the runs in results/, between marks such as

    <!-- made: cifar10 --> … <!-- end -->

where the name is a folder of results/, or one of `MADE`. Run it as `python -m tools.readme_tables`; with
`--pictures` it draws results/NAME/*.png and writes the tables there, too.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from plexus import quantities
from plexus.report import naming
from plexus.report.arms import Arm
from plexus.report.comparison import REFERENCES, ArmOutcome, Comparison, compare, saved, table_of
from plexus.report.document import over_seeds, text_of
from plexus.report.measuring import LAST
from plexus.report.page import write_table
from plexus.report.standard import standard_sections
from tools import paper_figures
from tools.kept_runs import is_papers, markdown, settings

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "results/README.md", "docs/paper.md", "docs/figures.md")
MARKS = re.compile(r"(<!-- made: ([\w-]+) -->).*?(<!-- end -->)", re.DOTALL)
FOLDERS = ("cifar10", "movielens", "movielens-biased", "digits-by-writer")
"""In the order of the README."""
PAPERS_TARGETS = {"cifar10": 0.659}
PAPERS_BASELINES = frozenset({"gossip", "dpsgd"})
"""Savings against these can be held beside the paper's."""
ENOUGH_SEEDS = 2
"""With fewer there is no interval, and no row in the README."""
NOTHING = "No setting has been run with several seeds of both yet."


def savings(results: Path) -> str:
    """The README's table: what has intervals, and nothing else."""
    ahead = ["task", "Plexus at the end", "best baseline at the end"]
    ahead += [f"{part} saved" for part in ("time", "bytes", "training")]
    rows = []
    for name in FOLDERS:
        for setting in settings(results / name)[:1]:
            papers = [arm for arm in setting.arms if arm.is_ours or arm.protocol in PAPERS_BASELINES]
            for arms in (setting.arms, papers):
                rows += [row for row in _savings(arms) if row not in rows]
    return f"\n{markdown(ahead, rows) if rows else NOTHING}\n"


def _savings(arms: Sequence[Arm]) -> Iterator[list[str]]:
    """Each arm of ours against the best baseline."""
    found = compare(arms, judge="best")
    baseline = next((each for each in found.arms if each.label == found.best_baseline), None)
    ours = [each for each in found.arms if each.is_ours and each.is_complete]
    for each in ours:
        if baseline and min(len(each.seeds), len(baseline.seeds)) >= ENOUGH_SEEDS:
            who = f"{each.label}: " if len(ours) > 1 else ""
            cells = [text_of(cell) for cell in saved(each)] or ["not reached"] * 3
            with_name = f"{_both(baseline, found)}, {baseline.label}"
            yield [_task(arms[0]), f"{who}{_both(each, found)}", with_name, *cells]


def session(results: Path) -> str:
    """What the paper's session takes on one GPU: the fastest seed of Plexus with the paper's values."""
    for setting in settings(results / "cifar10")[:1]:
        arm = next(filter(is_papers, setting.arms))
        known = [run.result for run in arm.runs if run.result]
        best = over_seeds([each.metric.best or 0.0 for each in known], quantities.share).text
        wall_s = min(each.wall_s for each in known)
        size = f"{arm.spec['hours']:g} hours, {arm.spec['nodes']:,} nodes"
        return f"{size}, {best} at best, in {wall_s:.0f} s beside other sessions"
    return "not run yet"


def paper(results: Path) -> str:
    """Beside the paper's Table II: Plexus with the paper's values, and Gossip Learning."""
    for setting in settings(results / "cifar10")[:1]:
        arms = [arm for arm in setting.arms if is_papers(arm) or arm.protocol == "gossip"]
        found = compare(arms, judge="best")
        write = partial(quantities.metric, found.metric)
        ours, gossip = found.arms
        rows = [["best, Plexus", "75.8 %", over_seeds(ours.best, write).text]]
        rows += [["best, Gossip Learning", "65.9 %", over_seeds(gossip.best, write).text]]
        saved_there = zip(("time", "bytes", "training"), ("3.7×", "15.3×", "39.9×"), saved(ours), strict=True)
        rows += [[f"saved: {part}", there, text_of(here)] for part, there, here in saved_there]
        (to_papers, _) = compare(arms, PAPERS_TARGETS["cifar10"], judge="best").arms
        units = zip(to_papers.cost_over_seeds, ("h", "GB", "device hours"), strict=True)
        costs = ", ".join(f"{cost.text} {unit}" for cost, unit in units)
        rows += [["Plexus to 65.9 %", "12.9 h, 13.2 GB, 96 device hours", costs]]
        return f"\n{markdown(['', 'the paper', 'here'], rows)}\n"
    return "not run yet"


MADE = {"savings": savings, "session": session, "paper": paper, **paper_figures.TABLES}


def folder(path: Path) -> str:
    """All tables of one folder."""
    parts: list[str] = []
    for at, setting in enumerate(settings(path)):
        parts += [f"### {setting.title}", *_table(setting.arms, compare(setting.arms, judge="best"))]
        if at == 0 and any(arm.has_own_models for arm in setting.arms):
            parts += ["By the mean over nodes instead:", *_table(setting.arms, compare(setting.arms))]
        if at == 0:
            parts += [*_against_each(setting.arms), *_said(path.name, setting.arms)]
    return "\n".join(["", *(f"{part}\n" for part in parts)])


def _table(arms: Sequence[Arm], found: Comparison) -> Iterator[str]:
    table = table_of(found)
    rows = []
    for arm, row in zip(arms, table.rows, strict=True):
        name, *cells = map(text_of, row)
        if arm.protocol in REFERENCES:
            name += " (a server: reference)"
        rows.append([name, *cells[:-1], cells[-1] if len(arm.seeds) >= ENOUGH_SEEDS else "one seed"])
    yield markdown(table.columns, rows)
    goal = quantities.metric(found.metric, found.target)
    thinned = " Some were evaluated more often." if found.is_thinned else ""
    looks = f"{found.looks} evaluations; the end is the mean of the last {min(LAST, (found.looks + 1) // 2)}."
    yield f"Target: {goal}, {found.target_is}. {found.stated} {looks}{thinned}"


def _against_each(arms: Sequence[Arm]) -> Iterator[str]:
    """What ours saves against each of the others; the paper says it of Gossip Learning."""
    ours = [arm for arm in arms if arm.is_ours]
    rows = []
    for other in (arm for arm in arms if not arm.is_ours):
        found = compare([*ours, other], judge="best")
        write = partial(quantities.metric, found.metric)
        for each in found.arms[: len(ours)]:
            cells = [text_of(cell) for cell in saved(each)] or ["not reached"] * 3
            rows.append([each.label, other.label, write(found.target or 0.0), *cells])
    if rows:
        yield "What is saved against each, at the best that it became:"
        yield markdown(["", "against", "target", "time", "bytes", "training"], rows)


def _said(name: str, arms: Sequence[Arm]) -> Iterator[str]:
    """With headers, and to the paper's own target."""
    found = compare(arms, judge="best", headers=True)
    for each in found.arms:
        if cells := saved(each):
            yield f"With the headers of TLS and TCP/IP, bytes saved by {each.label}: {cells[1].text}."
    if name in PAPERS_TARGETS:
        to_papers = compare(arms, PAPERS_TARGETS[name], judge="best")
        goal = quantities.metric(to_papers.metric, to_papers.target)
        for each in to_papers.arms:
            if each.is_ours and None not in each.costs:
                units = zip(each.cost_over_seeds, ("h", "GB", "device hours"), strict=True)
                costs = ", ".join(f"{cost.text} {unit}" for cost, unit in units)
                yield f"To the paper's target, {goal}, {each.label} takes {costs}."


def _task(arm: Arm) -> str:
    return f"{naming.task(arm.spec['task']['name'])}, {arm.spec['nodes']:,} nodes, {arm.spec['hours']:g} h"


def _both(outcome: ArmOutcome, found: Comparison) -> str:
    write = partial(quantities.metric, found.metric)
    end, best = (over_seeds(values, write) for values in (outcome.end, outcome.best))
    return f"{end.text} ({best.text} at best)"


def filled(text: str, results: Path) -> str:
    """A page with all its tables made anew."""

    def made(match: re.Match[str]) -> str:
        begin, name, end = match.groups()
        make = MADE.get(name)
        return f"{begin}{make(results) if make else folder(results / name)}{end}"

    return MARKS.sub(made, text)


def pictures(results: Path) -> None:
    """For each folder the figures and tables of its main setting, as `plexus report` makes them."""
    for name in FOLDERS:
        for setting in settings(results / name)[:1]:
            (section,) = standard_sections(setting.arms)
            for picture in section.pictures:
                if picture.id in ("time", "communication", "resources", "messages-bytes"):
                    picture.figure.savefig(results / name / f"{picture.id}.png", dpi=200)
            for table in section.tables:
                write_table(results / name, table)
    paper_figures.draw(results)


if __name__ == "__main__":
    for page in PAGES:
        path = ROOT / page
        path.write_text(filled(path.read_text(encoding="utf-8"), ROOT / "results"), encoding="utf-8")
        print(f"wrote {path}")
    if "--pictures" in sys.argv[1:]:
        pictures(ROOT / "results")
