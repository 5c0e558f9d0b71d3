"""Draws docs/images/round.svg: `python tools/draw_round.py`."""

from __future__ import annotations

import math
import random
from pathlib import Path

WIDTH, HEIGHT = 960, 566
INK, QUIET, PALE = "#1f2933", "#52606d", "#cbd2d9"
BLUE, ORANGE, GREEN = "#2563a8", "#c2570c", "#2f855a"
AGGREGATOR, NEXT = (150, 205), (810, 205)
PARTICIPANTS = [(480, 75), (480, 161), (480, 249), (480, 335)]
WORDS = [(62, 238, 240, 282), (705, 238, 915, 282), (530, 322, 700, 350), (340, 370, 620, 396)]
"""Rectangles that are kept free for text."""
PHASES = [
    ("sample", 96, QUIET, "ping, pong"),
    ("push", 150, BLUE, "model and view"),
    ("train", 270, ORANGE, "on own data"),
    ("find", 96, QUIET, "ping, pong"),
    ("send", 150, BLUE, "model and view"),
    ("average", 118, GREEN, "⌊sf·s⌋ models"),
]


def text(x: float, y: float, words: str, size: int = 14, fill: str = INK, **more: str) -> str:
    extra = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{fill}"{extra}>{words}</text>'


def crowd() -> list[str]:
    """Everybody else: online, or not."""
    rng = random.Random(7)
    near = [AGGREGATOR, NEXT, *PARTICIPANTS]
    dots: list[str] = []
    placed: list[tuple[float, float]] = []
    while len(dots) < 74:
        x, y = rng.uniform(40, WIDTH - 40), rng.uniform(58, 372)
        clear = all(math.dist((x, y), spot) > 62 for spot in near)
        on_a_line = any(_near_line((x, y), end, to) for to in PARTICIPANTS for end in (AGGREGATOR, NEXT))
        in_words = any(
            left - 8 < x < right + 8 and top - 8 < y < bottom + 8 for left, top, right, bottom in WORDS
        )
        if clear and not on_a_line and not in_words and all(math.dist((x, y), spot) > 24 for spot in placed):
            placed.append((x, y))
            look = f'fill="{PALE}"' if rng.random() < 0.35 else f'fill="none" stroke="{PALE}"'
            dots.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="5" stroke-width="1.5" {look}/>')
    return dots


def _near_line(p: tuple[float, float], a: tuple[float, float], b: tuple[float, float]) -> bool:
    length = math.dist(a, b)
    share = ((p[0] - a[0]) * (b[0] - a[0]) + (p[1] - a[1]) * (b[1] - a[1])) / length**2
    foot = (a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1]))
    return 0 <= share <= 1 and math.dist(p, foot) < 16


def arrow(a: tuple[float, float], b: tuple[float, float], leave: float, arrive: float) -> str:
    length = math.dist(a, b)
    ux, uy = (b[0] - a[0]) / length, (b[1] - a[1]) / length
    x1, y1, x2, y2 = a[0] + leave * ux, a[1] + leave * uy, b[0] - arrive * ux, b[1] - arrive * uy
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{BLUE}"'
        ' stroke-width="3.5" marker-end="url(#head)"/>'
    )


def aggregator(at: tuple[float, float], symbol: str, colour: str) -> list[str]:
    x, y = at
    return [
        f'<circle cx="{x}" cy="{y}" r="27" fill="{colour}"/>',
        text(x, y + 6, symbol, 17, "#ffffff", text_anchor="middle", font_weight="600"),
    ]


def participant(at: tuple[float, float], number: int) -> list[str]:
    x, y = at
    bar = (
        f'<rect x="{x - 30}" y="{y + 11}" width="60" height="7" rx="3.5" fill="#fbe3d0"/>'
        f'<rect x="{x - 30}" y="{y + 11}" width="{(60, 60, 60, 28)[number]}" height="7" rx="3.5"'
        f' fill="{ORANGE}"/>'
    )
    return [
        f'<rect x="{x - 44}" y="{y - 26}" width="88" height="52" rx="10" fill="#ffffff"'
        f' stroke="{ORANGE}" stroke-width="2"/>',
        text(x, y - 3, "trains", 14, INK, text_anchor="middle"),
        bar,
    ]


def strip() -> list[str]:
    """Where the time of a round goes."""
    x, y = 40.0, 448
    parts = [text(40, y - 16, "One round over time", 15, INK, font_weight="600")]
    for name, width, colour, below in PHASES:
        parts.append(f'<rect x="{x:g}" y="{y}" width="{width - 4}" height="34" rx="5" fill="{colour}"/>')
        middle = x + (width - 4) / 2
        parts.append(text(middle, y + 22, name, 14, "#ffffff", text_anchor="middle"))
        parts.append(text(middle, y + 54, below, 12, QUIET, text_anchor="middle"))
        x += width
    notes = (
        "sample, find: the first that answer, in the order of a hash that everybody computes alike",
        "average: as soon as enough models are there; slower nodes are not waited for",
    )
    return parts + [text(40, y + 84 + 18 * n, note, 12, QUIET) for n, note in enumerate(notes)]


def picture() -> str:
    body = [
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="14" fill="#ffffff"/>',
        text(40, 36, "Round k", 20, INK, font_weight="700"),
        *crowd(),
        *(arrow(AGGREGATOR, each, 34, 54) for each in PARTICIPANTS),
        *(arrow(each, NEXT, 50, 36) for each in PARTICIPANTS[:3]),
        *aggregator(AGGREGATOR, "aᵏ", BLUE),
        *aggregator(NEXT, "aᵏ⁺¹", GREEN),
        *(part for n, each in enumerate(PARTICIPANTS) for part in participant(each, n)),
        text(150, 254, "aggregator of round k", 13, QUIET, text_anchor="middle"),
        text(150, 272, "pushes the model", 13, QUIET, text_anchor="middle"),
        text(480, 388, "the sample Sᵏ: s nodes that are online", 13, QUIET, text_anchor="middle"),
        text(810, 254, "best-connected node of Sᵏ⁺¹", 13, QUIET, text_anchor="middle"),
        text(810, 272, "averages and goes on", 13, QUIET, text_anchor="middle"),
        text(540, 340, "too slow: not waited for", 12, ORANGE),
        f'<circle cx="700" cy="31" r="5" fill="{PALE}"/>',
        text(712, 36, "online", 12, QUIET),
        f'<circle cx="776" cy="31" r="5" fill="none" stroke="{PALE}" stroke-width="1.5"/>',
        text(788, 36, "offline: most, at any time", 12, QUIET),
        f'<line x1="40" y1="408" x2="{WIDTH - 40}" y2="408" stroke="#e4e7eb"/>',
        *strip(),
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        ' font-family="system-ui, -apple-system, Segoe UI, Roboto, DejaVu Sans, sans-serif"'
        ' aria-labelledby="title">'
    )
    title = (
        '<title id="title">One round: the aggregator pushes the model to a sample of nodes, each trains'
        " it on its own data and sends it to the aggregator of the next round, which averages.</title>"
    )
    marker = (
        '<defs><marker id="head" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="4.2"'
        f' markerHeight="4.2" orient="auto"><path d="M0 0 10 5 0 10z" fill="{BLUE}"/></marker></defs>'
    )
    return "\n".join([head, title, marker, *body, "</svg>", ""])


if __name__ == "__main__":
    Path("docs/images/round.svg").write_text(picture(), encoding="utf-8")
