"""How good models were, as members measured them: what a session that ends by patience goes by.

Where members may lie, what one alone says to be so good ends no session, and no round far ahead keeps one
from its end: of what is told, the best counts that several say at least.
"""

from __future__ import annotations

import math
import struct
from operator import itemgetter

from plexus.protocol.messages import NodeId, Score
from plexus.protocol.trust import REACH, Trust

_SCORE, _LARGEST = struct.Struct(">f"), 3.4e38
WORST = -math.inf, 0
"""No score, of no round."""


class Scores:
    """The best one known, and the ordinal of its round."""

    __slots__ = ("_measured", "_told", "_trust")

    def __init__(self, trust: Trust) -> None:
        self._trust = trust
        self._measured = WORST
        """Here; where all are believed, or by anybody."""
        self._told: dict[NodeId, tuple[float, int]] = {}
        """By sender, where members may lie."""

    @property
    def best(self) -> tuple[float, int]:
        several = sorted(self._told.values(), reverse=True)[: self._trust.several]
        return max([self._measured, *several[-1:]], key=itemgetter(0))

    def measured(self, score: float, ordinal: int) -> Score | None:
        """What others are to be told of it, if anything."""
        is_unsure = 0 < len(self._told) < self._trust.several and score > self._measured[0]
        if score <= self.best[0] and not is_unsure:
            return None
        self._measured = score, ordinal
        return Score(ordinal, int.from_bytes(_SCORE.pack(score), "big"))

    def on_score(self, src: NodeId, told: Score, held_ordinal: int) -> None:
        [score] = _SCORE.unpack(told.score.to_bytes(_SCORE.size, "big"))
        found = score, told.ordinal
        if not self._trust.is_wary:
            self._measured = max(self._measured, found, key=itemgetter(0))
        elif 0 < told.ordinal <= held_ordinal + REACH:
            self._told[src] = max(self._told.get(src, WORST), found, key=itemgetter(0))


def rounded(score: float) -> float:
    """As others know it: who compares must not differ in the last digits."""
    [found] = _SCORE.unpack(_SCORE.pack(max(-_LARGEST, min(score, _LARGEST))))
    return float(found)
