"""docs/league.md and its picture, from results/league/league.json alone."""

from __future__ import annotations

import ast
import json
import statistics
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from benchmarks.league import work
from benchmarks.league.environments import HERE, Contender, contenders
from benchmarks.league.probes import FEATURES
from benchmarks.league.work import ROOT
from plexus.style import INK, PALETTE, SOFT, figure, styled, subtitle

RESULT = ROOT / "results" / "league" / "league.json"
PAGE, PICTURE = ROOT / "docs" / "league.md", ROOT / "docs" / "images" / "league.svg"
LOSS_TOLERANCE = 0.02
"""How far from the bare loop's a test loss may be: a fifth of the rounds left out is several times as far."""
COLOURS = {"plexus": PALETTE["blue"], "peer": PALETTE["grey"], "reference": "#cfd5db"}

Found = dict[str, Any]


class Row:
    """One contender that was measured."""

    def __init__(self, contender: Contender, found: Found) -> None:
        self.contender = contender
        self.entry: Found = found["contenders"][contender.name]
        self.runs: list[Found] = self.entry["runs"]
        plexus: list[Found] = found["contenders"]["plexus"]["runs"]
        self.cpu_ms, self.wall_ms, self.before_s, self.loss = (
            statistics.median(run[key] for run in self.runs)
            for key in ("cpu_ms", "wall_ms", "before_cpu_s", "loss")
        )
        self.cpu_ratios, self.wall_ratios = (
            [own[key] / ours[key] for own, ours in zip(self.runs, plexus, strict=True)]
            for key in ("cpu_ms", "wall_ms")
        )
        self.expected_loss: float = found["bare_loop_loss"][str(contender.last)]

    @property
    def learned_the_same(self) -> bool:
        """Whether every run ended where the bare loop does, so that nobody left work out."""
        return all(abs(run["loss"] / self.expected_loss - 1) < LOSS_TOLERANCE for run in self.runs)

    @property
    def repeatable(self) -> str:
        kinds = len({run["weights"] for run in self.runs})
        return "yes" if kinds == 1 else f"no: {len(self.runs)} runs, {kinds} different results"

    @property
    def label(self) -> str:
        return f"**{self.contender.label}**" if self.contender.kind == "plexus" else self.contender.label

    @property
    def linked(self) -> str:
        return f"[{self.contender.label}]({self.contender.home})" if self.contender.home else self.label

    @property
    def versions(self) -> str:
        return ", ".join(f"{name} {version}" for name, version in self.entry["versions"].items())

    @property
    def environment(self) -> str:
        name, note = self.contender.requirements, self.contender.note
        if name is None:
            return "the one that Plexus is in"
        return f"[{name}.txt](../benchmarks/league/requirements/{name}.txt)" + (f": {note}" if note else "")


def rows_of(found: Found) -> list[Row]:
    """Those that were measured, the cheapest round first."""
    rows = [Row(each, found) for each in contenders() if found["contenders"][each.name]["runs"]]
    return sorted(rows, key=lambda row: row.cpu_ms)


def write_page() -> None:
    found = json.loads(RESULT.read_text())
    PAGE.write_text(page(found))
    draw(found, PICTURE)


def page(found: Found) -> str:
    """The whole page."""
    rows = rows_of(found)
    wrong = [row.contender.label for row in rows if not row.learned_the_same]
    assert not wrong, f"did not learn what the bare loop does: {', '.join(wrong)}"
    plexus, bare = (_named(name, rows) for name in ("plexus", "bare-loop"))
    peers = [row for row in rows if row.contender.kind == "peer"]
    words = Environment(undefined=StrictUndefined, keep_trailing_newline=True)
    words.filters |= {"ms": _ms, "times": _times}
    others = [row for row in rows if row.contender.kind != "plexus"]
    return words.from_string((HERE / "page.md.jinja").read_text()).render(
        found=found,
        work=work,
        tested=len(work.make_work(1, 0).test_targets),
        rows=rows,
        busy=plexus.wall_ms > 1.2 * plexus.cpu_ms,
        bare=bare,
        peers=peers,
        shorter=[row for row in rows if row.contender.last != bare.contender.last],
        tolerance=LOSS_TOLERANCE,
        fifth_less=found["bare_loop_loss"][str(bare.contender.last * 4 // 5)],
        not_first=_not_first(plexus, others),
        ahead_of=", ".join(
            [
                f"{row.contender.label} ({_times(row.cpu_ratios)})"
                for row in others
                if row.cpu_ms > plexus.cpu_ms
            ]
        ),
        alone=", ".join(
            f"{row.contender.label} ({_times(_ratios(row, _named('plexus-rounds', rows)))})" for row in peers
        ),
        features=[_feature(name, plexus, peers) for name in FEATURES],
        missing=[
            {"label": each.label, "home": each.home, "reason": reason}
            for each in contenders()
            if (reason := found["contenders"][each.name]["reason"])
        ],
    )


def _named(name: str, rows: list[Row]) -> Row:
    return next(row for row in rows if row.contender.name == name)


def _ratios(row: Row, other: Row) -> list[float]:
    return [own["cpu_ms"] / theirs["cpu_ms"] for own, theirs in zip(row.runs, other.runs, strict=True)]


def _not_first(plexus: Row, rows: list[Row]) -> list[str]:
    """Everything measured in which somebody is ahead of Plexus."""
    lines = []
    for key, what, shown in (
        ("cpu_ms", "CPU a round", _ms),
        ("wall_ms", "Wall time a round", _ms),
        ("before_s", "CPU before the first round", lambda value: f"{value:.2f} s"),
    ):
        own = getattr(plexus, key)
        ahead = [row for row in rows if getattr(row, key) < own]
        if ahead:
            named = ", ".join(f"{row.contender.label} {shown(getattr(row, key))}" for row in ahead)
            lines.append(f"{what}: {named}; Plexus {shown(own)}.")
    return lines


def _feature(name: str, plexus: Row, peers: list[Row]) -> Found:
    """A line of the table: of Plexus as tests show, of the others as was found in their environments."""
    feature = FEATURES[name]
    tests = ", ".join(map(_link, feature["tests"]))
    if name == "bitwise":
        return {
            **feature,
            "plexus": f"{plexus.repeatable}: {tests}",
            "peers": [row.repeatable for row in peers],
        }
    probes = [row.entry["probes"][name] for row in peers]
    return {
        **feature,
        "plexus": f"yes: {tests}",
        "peers": [f"{answer['answer']}: {answer['says']}" for answer in probes],
    }


def _link(test: str) -> str:
    path, _, name = test.partition("::")
    assert exists(test), f"features.toml: there is no test {test}"
    return f"[{name.removeprefix('test_').replace('_', ' ')}](../{path})"


def exists(test: str) -> bool:
    """Whether there is a test with this node id."""
    path, _, name = test.partition("::")
    if not (ROOT / path).is_file():
        return False
    tree = ast.parse((ROOT / path).read_text())
    return any(isinstance(node, ast.FunctionDef) and node.name == name for node in tree.body)


def _ms(value: float) -> str:
    return f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms"


def _times(ratios: list[float]) -> str:
    middle, least, most = statistics.median(ratios), min(ratios), max(ratios)
    if least == most == 1:
        return "1"
    digits = 0 if middle >= 20 else 1 if middle >= 3 else 2
    return f"{middle:.{digits}f} ×, {least:.{digits}f}–{most:.{digits}f}"


def draw(found: Found, path: Path) -> None:
    """A bar for everybody, on a scale of decades, and a dot for each run."""
    rows = rows_of(found)[::-1]
    with styled(**{"svg.hashsalt": "league", "svg.fonttype": "none"}):
        picture = figure(7.2, 0.36 * len(rows) + 1.1)
        axes = picture.subplots()
        for at, row in enumerate(rows):
            each = [run["cpu_ms"] for run in row.runs]
            axes.barh(at, row.cpu_ms, 0.62, color=COLOURS[row.contender.kind], zorder=2)
            axes.plot(each, [at] * len(each), ".", color=INK, markersize=3, zorder=3)
            beside = {"textcoords": "offset points", "va": "center", "color": INK}
            axes.annotate(_ms(row.cpu_ms), (max(each), at), (6, 0), **beside)
        axes.set_xscale("log")
        axes.set_xlim(1, 3 * rows[0].cpu_ms)
        axes.set_yticks(range(len(rows)), [row.contender.label for row in rows])
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g} ms")
        axes.grid(axis="y", visible=False)
        axes.set_title("CPU time of a round", pad=24)
        steps = work.EXAMPLES // work.BATCH
        subtitle(axes, f"{work.CLIENTS} clients × {steps} steps, digits 64-64-10; light bars: by hand", 8)
        axes.tick_params(axis="y", colors=INK)
        axes.tick_params(axis="x", colors=SOFT)
        path.parent.mkdir(parents=True, exist_ok=True)
        picture.savefig(path, metadata={"Date": None, "Creator": None})
