"""The first round: everybody derives its sample, and its members begin by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plexus.protocol.messages import NodeId, TrainRequest
from plexus.protocol.parameters import Course
from plexus.protocol.quorum import FIRST_SAMPLE

if TYPE_CHECKING:
    from plexus.protocol.plexus import PlexusNode

START = ("start", 0)
FIRST_ROUND, FIRST_STEP = 1, 1


class Beginning:
    """What a node does that knows of no round."""

    def __init__(self, node: PlexusNode, course: Course) -> None:
        self._node = node
        self.least = course.start_with or 1
        """How many must be there before anybody trains."""
        self.is_near = False
        """It waits for others to show up before it begins the first round."""

    def wait(self, delay_s: float) -> None:
        self.is_near = True
        self._node.set_timer(START, delay_s)

    def on_start(self, _: int) -> None:
        if self._node.view.online_count() >= self.least:
            self._begin()
        else:
            self._wait_for_more()

    def on_ping(self) -> None:
        """Nodes do not come at the same instant, but the first one that begins tells the others: who kept
        waiting would miss the round."""
        if self._node.watchdog.k_seen == 0:
            self._node.joining.end()
        if self.is_near:
            self._node.cancel_timer(START)
            self._begin()

    def on_sample(self, sample: tuple[NodeId, ...]) -> None:
        node = self._node
        if len(sample) < min(self.least, node.parameters.sample_size):
            self._wait_for_more()
        elif node.me in sample and node.held_round < FIRST_ROUND:
            view = node.view.snapshot()
            node.train(TrainRequest(FIRST_ROUND, FIRST_STEP, FIRST_ROUND, len(sample), view, node.held_model))

    def _wait_for_more(self) -> None:
        parameters = self._node.parameters
        self.wait(max(parameters.start_delay_s, parameters.ping_timeout_s))

    def _begin(self) -> None:
        node, self.is_near = self._node, False
        first = node.roster.candidates(node.view, FIRST_ROUND)
        # Nodes further back would be members only if earlier ones are silent: the watchdog's case.
        if node.watchdog.k_seen <= FIRST_ROUND and node.me in first[: node.parameters.sample_size]:
            node.search(FIRST_SAMPLE, FIRST_ROUND, FIRST_ROUND)
