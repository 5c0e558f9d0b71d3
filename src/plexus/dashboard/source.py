"""What the page asks of anything it can show, be it a simulated run or a live fleet."""

from __future__ import annotations

from typing import Any, Protocol

Json = dict[str, Any]


class Source(Protocol):
    """Something to look at."""

    def stamp(self) -> str:
        """Changes whenever there is something new to see."""

    def spec(self) -> Json:
        """What it runs, as tables; empty where nobody knows."""

    def summary(self) -> Json:
        """A line in the list."""

    def overview(self) -> Json:
        """All that the first picture shows."""

    def window(self, from_s: float, to_s: float) -> Json:
        """All that happened between two moments."""

    def node(self, number: int) -> Json | None:
        """All that is known of one node; None if there is no such node."""
