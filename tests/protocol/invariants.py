"""What must be true of a node after every event, whatever the network does to it."""

from __future__ import annotations

from collections.abc import Collection

from plexus.protocol.api import Effect, Send, TimerKey
from plexus.protocol.joining import COMING
from plexus.protocol.messages import Ack, TrainRequest
from plexus.protocol.plexus import AGGREGATOR, PlexusNode
from plexus.protocol.quorum import PURPOSES
from plexus.protocol.view import JOINED, event_number


def check_invariants(node: PlexusNode, armed: Collection[TimerKey], training: bool) -> None:
    """`armed` are the timers the runtime keeps for the node; `training`: it trains right now."""
    _check_nothing_stalls(node, armed, training)
    _check_numbers(node)


def _check_nothing_stalls(node: PlexusNode, armed: Collection[TimerKey], training: bool) -> None:
    """Work that is begun waits for an event that will come."""
    task = node.training
    searches = node.sampler.exchanges
    for exchange in searches:
        assert ("ping", exchange) in armed, "pings without a timeout"
    if task.awaited is not None:
        assert ("ack", 0) in armed, "an acknowledgement is awaited without a timeout"
        assert ("look", 0) in armed, "nobody looks after the awaited aggregator"
        assert task.trained is not None
    elif task.trained is not None:
        looking = node.sampler.is_searching(AGGREGATOR)
        assert looking, "a trained model, and nobody looks for an aggregator"
    elif task.busy:
        assert training, "busy, but neither training nor sending"
    if node.aggregation.collecting:
        assert ("aggregation", 0) in armed, "models are collected without a timeout"
    for number, purpose in enumerate(PURPOSES):
        if node.quorum.is_waiting(purpose):
            goes_on = node.sampler.is_searching(purpose) or ("quorum", number) in armed
            assert goes_on, "too few were found, and nobody looks for the others"
    if node.joining.is_under_way:
        waits = node.sampler.is_searching(COMING) or ("view", 0) in armed
        assert waits, "the node has not told that it is there, and waits for nothing"
    if not node.ending.is_over:
        assert ("watchdog", 0) in armed, "a node always has its watchdog, until the session has ended"
    elif not node.ending.has_model:
        assert ("final", 0) in armed, "the session has ended, and the node does not ask for its model"
    if not node.membership.contacted:
        assert ("readvertise", 0) in armed, "nobody knows of the node, and it will not tell"


def _check_numbers(node: PlexusNode) -> None:
    membership = node.membership
    assert membership.view.is_online(node.me), "an online node is a candidate to itself"
    assert not node.membership.is_misrepresented, "it would have refuted that"
    assert membership.view.event_of(node.me) == event_number(membership.counter, JOINED)
    assert node.training.k_train <= node.watchdog.k_seen
    assert node.aggregation.k_agg <= node.watchdog.k_seen
    assert node.held_round <= node.watchdog.k_seen


def check_models(node: PlexusNode, effects: list[Effect]) -> None:
    """A round starts from its own model or, after a restart, an older one. The kit's label is m<number>."""
    for effect in effects:
        work = effect.body if isinstance(effect, Send) else effect
        if isinstance(work, TrainRequest):
            made_in = int(work.model.removeprefix("m"))
            k = work.round if isinstance(work, TrainRequest) else node.training.k_train
            assert made_in <= k, f"the model of round {made_in} in round {k}"
            assert k > 1 or made_in == 0, "all start from the common initial model"


def check_acknowledgements(node: PlexusNode, effects: list[Effect], finished: set[tuple[int, int]]) -> None:
    """Who is told to stop looking for an aggregator can rely on it: the round is done or overtaken."""
    for effect in effects:
        if isinstance(effect, Send) and isinstance(effect.body, Ack):
            k = effect.body.round
            known_to_be_done = k < node.aggregation.k_agg or k <= node.held_round
            assert known_to_be_done or (node.me, k) in finished, f"a false Ack({k})"
