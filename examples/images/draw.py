"""Draws what twelve owners have pictures of, into data/OWNER/CLASS: python examples/images/draw.py

Every owner has a hand of its own (colour, size, how steady) and likes some classes more than others.
"""

import math
import random
from pathlib import Path

from PIL import Image, ImageDraw

DATA = Path(__file__).with_name("data")
OWNERS = ("ada", "bo", "cy", "dora", "emil", "fay", "gus", "hana", "ivo", "jo", "kim", "lou")
SIDES = {"square": 4, "star": 10, "sun": 24, "triangle": 3}
"""Class -> corners; from ten on, every second one lies inside."""


def picture(kind, hand, rng):
    """One picture, 40 by 40."""
    paper = Image.new("RGB", (40, 40), tuple(rng.randint(160, 255) for _ in range(3)))
    x, y, size = rng.uniform(16, 24), rng.uniform(16, 24), hand["size"] * rng.uniform(0.8, 1.2)
    turn, corners = rng.uniform(0, math.tau), SIDES[kind]
    points = []
    for corner in range(corners):
        radius = size * (0.5 if corners >= 10 and corner % 2 else 1) * rng.uniform(1 - hand["shaky"], 1)
        angle = turn + math.tau * corner / corners
        points.append((x + radius * math.cos(angle), y + radius * math.sin(angle)))
    ImageDraw.Draw(paper).polygon(points, fill=hand["colour"], outline="black")
    return paper


def main():
    for owner in OWNERS:
        rng = random.Random(owner)
        colour = tuple(rng.randint(0, 140) for _ in range(3))
        hand = {"colour": colour, "size": rng.uniform(10, 15), "shaky": rng.uniform(0, 0.2)}
        for kind in SIDES:
            folder = DATA / owner / kind
            folder.mkdir(parents=True, exist_ok=True)
            for number in range(rng.randint(10, 40)):
                picture(kind, hand, rng).save(folder / f"{number:02}.png")
    print(f"pictures of {len(OWNERS)} owners are in {DATA}")


if __name__ == "__main__":
    main()
