"""What must be true of a node after every event, whatever the network does to it."""

from __future__ import annotations

from collections.abc import Collection

from plexus.protocol.api import TimerKey
from plexus.protocol.plexus import AGGREGATOR, PlexusNode


def check_invariants(node: PlexusNode, armed: Collection[TimerKey], training: bool) -> None:
    """`armed` are the timers the runtime keeps for the node; `training`: it trains right now."""
    _check_nothing_stalls(node, armed, training)
    _check_numbers(node)


def _check_nothing_stalls(node: PlexusNode, armed: Collection[TimerKey], training: bool) -> None:
    """Work that is begun waits for an event that will come."""
    task = node.training
    searches = node.sampler._exchanges
    for exchange in searches:
        assert ("ping", exchange) in armed, "pings without a timeout"
    if task.awaited is not None:
        assert ("ack", 0) in armed, "an acknowledgement is awaited without a timeout"
        assert task.trained is not None
    elif task.trained is not None:
        looking = any(search.purpose == AGGREGATOR for search in searches.values())
        assert looking, "a trained model, and nobody looks for an aggregator"
    elif task.busy:
        assert training, "busy, but neither training nor sending"
    if node.aggregation.collecting:
        assert ("aggregation", 0) in armed, "models are collected without a timeout"
    assert ("watchdog", 0) in armed, "an online node always has its watchdog"
    if not node.membership.contacted:
        assert ("readvertise", 0) in armed, "nobody knows of the node, and it will not tell"


def _check_numbers(node: PlexusNode) -> None:
    membership = node.membership
    assert membership.view.is_online(node.me), "an online node is a candidate to itself"
    assert membership.view.event_of(node.me) == 2 * membership.counter + 1
    assert node.training.k_train <= node.watchdog.k_seen
    assert node.aggregation.k_agg <= node.watchdog.k_seen
    assert node.held_round <= node.watchdog.k_seen
