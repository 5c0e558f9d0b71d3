"""Which models are no longer worth sending, judged by the rounds that messages speak of.

Round r is complete once somebody has aggregated it. A model for the aggregator of a complete round, or
one to train in a round whose successor is complete, would be ignored by the protocol when it arrives.
"""

from __future__ import annotations

from typing import Any

from plexus.protocol.messages import Ack, AggregateRequest, Ping, Pong, TrainRequest


class Progress:
    """The newest round known to be complete."""

    def __init__(self, complete: int = 0) -> None:
        self.complete = complete

    def notice(self, body: Any) -> bool:
        """Learn from a message; says whether something may have become obsolete."""
        return self.advance(_complete_by(body))

    def advance(self, complete: int) -> bool:
        if complete <= self.complete:
            return False
        self.complete = complete
        return True

    def is_obsolete(self, kind: type, round: int) -> bool:
        """Whether a model message of this kind and round has become pointless."""
        if kind is AggregateRequest:
            return round <= self.complete
        return round < self.complete


def _complete_by(body: Any) -> int:
    """Which round must be complete if somebody sends `body`."""
    match body:
        case TrainRequest() | Ack():
            return body.round
        case AggregateRequest() | Ping():
            return body.round - 1  # the sender trained, or is about to, in the round before
        case Pong():
            return max(body.round - 1, body.held)
    return 0
