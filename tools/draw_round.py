"""Draws docs/images/round.svg, a round that moves: `python tools/draw_round.py`.

It moves by CSS alone, so it does where pages show it as an image; who asks the system for less motion sees
the whole round at once. A turn takes `TURN_S`: a round as long as its strip below, and how the next begins.
"""

from __future__ import annotations

import math
import random
from itertools import pairwise
from pathlib import Path

Point = tuple[float, float]
WIDTH, HEIGHT = 960, 566
TURN_S, TURN = 13, 1000
"""How long a turn takes, and what that is on the strip, whose phases have 880 of it."""
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


def crowd() -> tuple[list[str], list[Point]]:
    """Everybody else: online, or not; and where those online are."""
    rng = random.Random(7)
    near = [AGGREGATOR, NEXT, *PARTICIPANTS]
    dots: list[str] = []
    online: list[Point] = []
    placed: list[Point] = []
    while len(dots) < 74:
        x, y = rng.uniform(40, WIDTH - 40), rng.uniform(58, 372)
        clear = all(math.dist((x, y), spot) > 62 for spot in near)
        on_a_line = any(_near_line((x, y), end, to) for to in PARTICIPANTS for end in (AGGREGATOR, NEXT))
        in_words = any(
            left - 8 < x < right + 8 and top - 8 < y < bottom + 8 for left, top, right, bottom in WORDS
        )
        if clear and not on_a_line and not in_words and all(math.dist((x, y), spot) > 24 for spot in placed):
            placed.append((x, y))
            look = f'fill="none" stroke="{PALE}"'
            if rng.random() < 0.35:
                look = f'fill="{PALE}"'
                online.append((x, y))
            dots.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="5" stroke-width="1.5" {look}/>')
    return dots, online


def _near_line(p: Point, a: Point, b: Point) -> bool:
    length = math.dist(a, b)
    share = ((p[0] - a[0]) * (b[0] - a[0]) + (p[1] - a[1]) * (b[1] - a[1])) / length**2
    foot = (a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1]))
    return 0 <= share <= 1 and math.dist(p, foot) < 16


def between(a: Point, b: Point, leave: float, arrive: float) -> tuple[float, float, float, float]:
    """Of the line from a to b what is not covered by its ends."""
    length = math.dist(a, b)
    ux, uy = (b[0] - a[0]) / length, (b[1] - a[1]) / length
    return a[0] + leave * ux, a[1] + leave * uy, b[0] - arrive * ux, b[1] - arrive * uy


def arrow(a: Point, b: Point, leave: float, arrive: float) -> str:
    x1, y1, x2, y2 = between(a, b, leave, arrive)
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{BLUE}"'
        ' stroke-width="3.5" marker-end="url(#head)"/>'
    )


def asked(a: Point, b: Point, leave: float, arrive: float) -> str:
    """A ping and its pong."""
    x1, y1, x2, y2 = between(a, b, leave, arrive)
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{QUIET}"'
        ' stroke-width="1.5" stroke-dasharray="3 5"/>'
    )


def model(a: Point, b: Point, leave: float, arrive: float, kind: str, delay_s: float) -> str:
    """A model on its way."""
    x1, y1, x2, y2 = between(a, b, leave, arrive)
    to = f"--x:{x2 - x1:.0f}px;--y:{y2 - y1:.0f}px;animation-delay:{delay_s:g}s"
    colour = BLUE if kind == "pushed" else ORANGE
    look = f'fill="{colour}" stroke="#ffffff" stroke-width="2"'
    return f'<circle class="{kind}" style="{to}" cx="{x1:.0f}" cy="{y1:.0f}" r="9" opacity="0" {look}/>'


def group(name: str, *parts: str, hidden: bool = False) -> str:
    """Parts that come and go together; `hidden` where nothing moves."""
    usually = ' opacity="0"' if hidden else ""
    return f'<g class="{name}"{usually}>{"".join(parts)}</g>'


def keyframes(name: str, *steps: tuple[float, str]) -> str:
    """The look of something from moment to moment, which are places on the strip."""
    frames = " ".join(f"{100 * at / TURN:g}%{{{look}}}" for at, look in steps)
    return f"@keyframes {name}{{{frames}}}.{name}{{animation:{name} {TURN_S}s linear infinite}}"


def seen(name: str, from_at: float, until_at: float, before: float = 0.0, after: float = 0.0) -> str:
    """Something that is there for a while."""
    low, high, gone = f"opacity:{before:g}", "opacity:1", f"opacity:{after:g}"
    come, go = [(from_at, low), (from_at + 12, high)], [(until_at - 12, high), (until_at, gone)]
    return keyframes(name, (0, low), *come, *go, (TURN, gone))


def motion() -> str:
    """The style sheet: who does what when."""
    at = [0.0]
    for _, width, _, _ in PHASES:
        at.append(at[-1] + width)
    sample, push, train, find, send, average, done = at
    here, there = "transform:translate(0,0)", "transform:translate(var(--x),var(--y))"
    rules = [
        seen("asks", sample + 8, push),
        seen("finds", find + 8, send),
        seen("chosen", sample + 50, TURN, 0.25, 0.25),
        seen("pushes", push, done, 0.12, 0.12),
        seen("nexts", find + 50, TURN, 0.25, 0.25),
        seen("sends", send, done, 0.12, 0.12),
        seen("late", find, done),
        seen("again", done, TURN),
    ]
    for name, begin, end in (("pushed", push, train - 30), ("sent", send, average - 40)):
        moments = (0, here), (begin, f"opacity:0;{here}"), (begin + 6, f"opacity:1;{here}")
        arrived = (end, f"opacity:1;{there}"), (end + 8, f"opacity:0;{there}"), (TURN, f"opacity:0;{there}")
        rules.append(keyframes(name, *moments, *arrived))
    for n, end in enumerate((find - 80, find - 40, find, TURN)):
        empty, full = "transform:scaleX(0)", "transform:scaleX(1)"
        rules.append(keyframes(f"bar{n}", (0, empty), (train, empty), (end, full), (TURN, full)))
    small, large = "transform:scale(1)", "transform:scale(1.25)"
    middle = (average + done) / 2
    rules.append(keyframes("averages", (0, small), (average, small), (middle, large), (done, small)))
    rules += [seen(f"phase{n}", *ends, 0.3, 0.3) for n, ends in enumerate(pairwise(at))]
    own = "[class^=bar],.averages{transform-box:fill-box;transform-origin:left}"
    own += ".averages{transform-origin:center}"
    still = "@media (prefers-reduced-motion:reduce){*{animation:none!important}}"
    return f"<style>{''.join(rules)}{own}{still}</style>"


def aggregator(at: Point, symbol: str, colour: str) -> list[str]:
    x, y = at
    return [
        f'<circle cx="{x}" cy="{y}" r="27" fill="{colour}"/>',
        text(x, y + 6, symbol, 17, "#ffffff", text_anchor="middle", font_weight="600"),
    ]


def participant(at: Point, number: int) -> list[str]:
    x, y = at
    bar = (
        f'<rect x="{x - 30}" y="{y + 11}" width="60" height="7" rx="3.5" fill="#fbe3d0"/>'
        f'<rect class="bar{number}" x="{x - 30}" y="{y + 11}" width="{(60, 60, 60, 28)[number]}" height="7"'
        f' rx="3.5" fill="{ORANGE}"/>'
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
    for number, (name, width, colour, below) in enumerate(PHASES):
        parts.append(
            f'<rect class="phase{number}" x="{x:g}" y="{y}" width="{width - 4}" height="34" rx="5"'
            f' fill="{colour}"/>'
        )
        middle = x + (width - 4) / 2
        parts.append(text(middle, y + 22, name, 14, "#ffffff", text_anchor="middle"))
        parts.append(text(middle, y + 54, below, 12, QUIET, text_anchor="middle"))
        x += width
    notes = (
        "sample, find: the first that answer, in the order of a hash that everybody computes alike",
        "average: as soon as enough models are there; slower nodes are not waited for",
    )
    return parts + [text(40, y + 84 + 18 * n, note, 12, QUIET) for n, note in enumerate(notes)]


def next_sample(online: list[Point]) -> list[str]:
    """The round after it, which the next aggregator begins with those who are online then."""
    near = sorted(online, key=lambda spot: math.dist(spot, NEXT))[:4]
    rings = [
        f'<circle cx="{x:.0f}" cy="{y:.0f}" r="9" fill="none" stroke="{ORANGE}" stroke-width="2.5"/>'
        for x, y in near
    ]
    arrows = [arrow(NEXT, each, 32 if each[1] < NEXT[1] else 85, 14) for each in near]  # below stand words
    return [*arrows, *rings]


def picture() -> str:
    others, online = crowd()
    pushes = [(AGGREGATOR, each, 34, 54) for each in PARTICIPANTS]
    sends = [(each, NEXT, 50, 36) for each in PARTICIPANTS[:3]]
    chosen = [part for n, each in enumerate(PARTICIPANTS) for part in participant(each, n)]
    body = [
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="14" fill="#ffffff"/>',
        text(40, 36, "Round k", 20, INK, font_weight="700"),
        *others,
        group("asks", *(asked(*line) for line in pushes), hidden=True),
        group("pushes", *(arrow(*line) for line in pushes)),
        group("finds", *(asked(*line) for line in sends), hidden=True),
        group("sends", *(arrow(*line) for line in sends)),
        group("again", *next_sample(online), hidden=True),
        *(model(*line, "pushed", 0.15 * n) for n, line in enumerate(pushes)),
        *aggregator(AGGREGATOR, "aᵏ", BLUE),
        group("nexts", group("averages", *aggregator(NEXT, "aᵏ⁺¹", GREEN))),
        group("chosen", *chosen),
        *(model(*line, "sent", 0.25 * n) for n, line in enumerate(sends)),
        text(150, 254, "aggregator of round k", 13, QUIET, text_anchor="middle"),
        text(150, 272, "pushes the model", 13, QUIET, text_anchor="middle"),
        text(480, 388, "the sample Sᵏ: s nodes that are online", 13, QUIET, text_anchor="middle"),
        text(810, 254, "best-connected node of Sᵏ⁺¹", 13, QUIET, text_anchor="middle"),
        text(810, 272, "averages and goes on", 13, QUIET, text_anchor="middle"),
        group("late", text(540, 340, "too slow: not waited for", 12, ORANGE)),
        group("again", text(150, 36, "… and round k+1", 20, GREEN, font_weight="700"), hidden=True),
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
    return "\n".join([head, title, motion(), marker, *body, "</svg>", ""])


if __name__ == "__main__":
    Path("docs/images/round.svg").write_text(picture(), encoding="utf-8")
