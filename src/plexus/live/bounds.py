"""How far a model from outside may be from the one that this node holds.

What honest trainings change is known from this node's own: a model further away than a few of those, for each
round that it is ahead, is refused. So one model cannot take a session over, nor ruin the numbers of a mean;
whoever poisons does so within these bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from plexus.live.models import LiveModel, ModelLayout
from plexus.live.room import pieces
from plexus.protocol.messages import FinalModel, LateModel

FACTOR = 5.0
"""Others may have more data than this node, and make larger steps."""
DECAY = 0.99
"""What the largest change still counts after one more training: changes become smaller as a model learns."""
LEAST_SHARE = 0.1
"""Of the largest change ever. A node that was alone for long changes next to nothing any more; those who come
back do."""
LEAST_AHEAD, MOST_AHEAD = 2, 100
"""Rounds: so many may always have passed, and so many of which nothing is known."""
HURRY = 2
"""So many times faster than they were, rounds may be."""
PACE = 0.2
"""How much the newest round counts for how long rounds take."""
TOO_FAR = "it is further from this node's model than trainings go"


class Bounds:
    """What this node's own trainings change, and what it holds."""

    def __init__(self, layout: ModelLayout) -> None:
        self._layout = layout
        self._held: LiveModel | None = None
        self._ordinal = 0
        self._since_s = 0.0
        """When the held model came; 0 of the first one, which has been there for who knows how long."""
        self._round_s = 0.0
        """How long rounds take; 0 before the second."""
        self._usual = self._largest = 0.0
        """The norm of a large change by one training; 0 before the first."""

    def hold(self, model: LiveModel, ordinal: int, now_s: float) -> None:
        if ordinal > self._ordinal and self._held is not None:
            if self._since_s:
                took_s = (now_s - self._since_s) / (ordinal - self._ordinal)
                self._round_s += (PACE if self._round_s else 1.0) * (took_s - self._round_s)
            self._since_s = now_s
        self._held, self._ordinal = model, ordinal

    def trained(self, change: float) -> None:
        if math.isfinite(change):
            self._largest = max(change, self._largest)
            self._usual = max(change, DECAY * self._usual, LEAST_SHARE * self._largest)

    def flaw(self, body: Any, model: LiveModel, now_s: float) -> Callable[[], str | None]:
        """What finds out, in whatever thread, whether the model of this message is too far away."""
        held, is_change = self._held, isinstance(body, LateModel)
        # Of a protocol whose nodes have models of their own, rounds do not say how far apart these may be.
        ahead = max(0, body.ordinal - self._ordinal) if hasattr(body, "ordinal") else MOST_AHEAD
        if isinstance(body, FinalModel):  # it may be older than the one that is held
            ahead = abs(body.ordinal - self._ordinal)
        ahead = 1 if is_change else min(ahead, self._passed(now_s))

        def found() -> str | None:
            if (held is None or self._layout.is_packed) and (flaw := self._layout.flaw(model.data)):
                return flaw
            if held is None:
                return None
            length = self._usual or self._distance(held.data, None) + 1
            distance = self._distance(model.data, None if is_change else held.data, is_change)
            if not math.isfinite(distance):
                return self._layout.flaw(model.data) or TOO_FAR
            return None if distance <= FACTOR * length * (1 + ahead) else TOO_FAR

        return found

    def _passed(self, now_s: float) -> float:
        """How many rounds there may have been since that of the held model, whatever others say. The longer
        a node has refused models, the more, so it finds its way to the others."""
        if not self._round_s:
            return MOST_AHEAD
        return LEAST_AHEAD + HURRY * (now_s - self._since_s) / self._round_s

    def _distance(self, data: memoryview, other: memoryview | None, is_change: bool = False) -> float:
        """Of two models, or of one from zero."""
        numbers = self._layout.values_of(is_change)
        runs = numbers(data)
        others = [None] * len(runs) if other is None else numbers(other)
        total = 0.0
        with np.errstate(all="ignore"):  # what is too large for a square is too far as well
            for run, beside in zip(runs, others, strict=True):
                wide = np.result_type(np.float32, getattr(run, "dtype", np.float32))
                for part in pieces(run.size):
                    piece = run[part].astype(wide, copy=False)
                    if beside is not None:
                        piece = piece - beside[part]
                    # Not by a library of matrices: its threads take the processor from everybody else.
                    total += float(np.einsum("i,i->", piece, piece))
        return math.sqrt(total)
