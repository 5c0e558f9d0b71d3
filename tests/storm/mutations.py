"""One safeguard less: copies of the protocol and the simulator in which something is switched off, or one
word is another.

`python -m tests.storm.mutations` looks for the first seed that shows each, and writes the table into
docs/guarantees.md. `test_mutations` holds the table to what it says.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec
import numpy as np

from plexus.protocol import wire
from plexus.protocol.aggregation import AggregationTask, models_needed
from plexus.protocol.baselines.gossip import GossipNode
from plexus.protocol.baselines.rounds import Rounds
from plexus.protocol.membership import Membership
from plexus.protocol.messages import Ack
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.sampling import Sampler
from plexus.protocol.training import TrainingTask
from plexus.protocol.view import Snapshot, View
from plexus.protocol.watchdog import Watchdog
from plexus.sim.network import Network
from plexus.sim.runtime import Runtime
from plexus.sim.sharing import Fair, Fifo, Shared
from plexus.storm.plan import draw
from plexus.storm.storm import Finding, run_storm

PAGE = Path(__file__).parents[2] / "docs" / "guarantees.md"
BEGIN, END = "<!-- mutations: begin -->", "<!-- mutations: end -->"
MOST_SEEDS = 2000


def nothing(*_: Any) -> None:
    """Instead of what should be done."""


# The protocol


def learns_anything(self: View, node: int, event: int, bandwidth_bytes_per_s: int = 0) -> bool:
    if node >= len(self):
        self.grow(node + 1)
    self._write()
    self._event_of[node] = event
    self._bandwidth_of[node] = bandwidth_bytes_per_s
    return True


def merges_anything(self: View, other: Snapshot) -> bool:
    if len(other.events) > len(self):
        self.grow(len(other.events))
    self._write()
    said = other.events > 0
    np.copyto(self._events[: len(said)], other.events, where=said)
    np.copyto(self._bandwidths[: len(said)], other.bandwidths, where=said)
    return True


def never_due(self: Watchdog, held: int) -> bool:
    self._node.set_timer(("watchdog", 0), self._wait_s(held))
    return False


def finishes_first(begin: Any) -> Any:
    return lambda self, k, model, participants: not self.busy and begin(self, k, model, participants)


def trains_again(self: TrainingTask, k: int, model: Any, participants: int) -> bool:
    self.k_train = k - 1
    return _begin(self, k, model, participants)


_begin, _send_to_best, _on_request, _abandon, _collect = (
    TrainingTask.begin,
    TrainingTask.send_to_best,
    AggregationTask.on_request,
    AggregationTask._abandon,
    AggregationTask._collect,
)


def keeps_silent_about_stale(self: AggregationTask, src: int, request: Any) -> bool:
    fresh = _on_request(self, src, request)
    self._node.outbox[:] = [
        effect
        for effect in self._node.outbox
        if not (getattr(effect, "to", None) == (src,) and type(effect.body) is Ack)  # type: ignore[attr-defined]
    ]
    return fresh


def abandons_silently(self: AggregationTask) -> None:
    with patch.object(AggregationTask, "_acknowledge", nothing):
        _abandon(self)


def counts_duplicates(self: AggregationTask, src: int, request: Any) -> None:
    while src in self._models:
        src += 1_000_000
    _collect(self, src, request)


def acknowledges_early(self: AggregationTask, src: int, request: Any) -> None:
    self._node.send((src,), Ack(request.round))
    _collect(self, src, request)


def collects_any_round(self: AggregationTask, src: int, request: Any) -> bool:
    if self.collecting:
        self._collect(src, request)
        return False
    return _on_request(self, src, request)


def only_when_equal(self: Membership, src: int, counter: int) -> None:
    if counter >= self.counter:
        _on_counter_known(self, src, counter)


_on_counter_known = Membership.on_counter_known


def forgets_the_timer(self: GossipNode, _: int) -> None:
    self.find_peers(1, self.age)


def takes_any_age(self: GossipNode, other: Any) -> None:
    _gossip_merge(self, other)
    self.age = other.age


_gossip_merge = GossipNode._merge


def takes_any_round(self: Rounds, src: int, k: int, model: Any) -> None:
    _on_model(self, src, self.k, model)


_on_model = Rounds.on_model


def names_no_fault(payload: bytes) -> Any:
    return msgspec.msgpack.decode(payload)


# The simulator, which keeps the contract that the protocol relies on


def keeps_timers(self: Runtime, node: int) -> None:
    timers = dict(self._timers[node])
    self._timers[node].clear()
    _crash(self, node)
    self._timers[node].update(timers)


_crash = Runtime.crash


def trains_beside(self: Runtime, node: int, effect: Any) -> None:
    self._training.pop(node, None)
    _train(self, node, effect)


_train = Runtime._train


def does_not_count(self: Network, flows: list[Any]) -> None:
    for flow in flows:
        self._account(flow, round(flow.sent_bytes))


def overbooks(start: Any) -> Any:
    def begin(self: Any, flows: Any, now: float) -> Any:
        changed = start(self, flows, now)
        for flow in flows:
            flow.change_rate(2 * flow.up.capacity_bytes_per_s, now)
        return changed

    return begin


# Bugs of one word


def with_bug(function: Callable[..., Any], word: str, instead: str) -> Callable[..., Any]:
    """The same function, but for this word."""
    source = dedent(inspect.getsource(function))
    assert source.count(word) == 1, f"{function.__qualname__} says {word!r} {source.count(word)} times"
    made: dict[str, Any] = {}
    exec(
        compile(source.replace(word, instead), inspect.getfile(function), "exec"), function.__globals__, made
    )
    return made[function.__name__]  # type: ignore[no-any-return]


AGAIN = "self._node.set_timer(AGGREGATION, self._parameters.aggregation_timeout_s); "
"""As if the aggregator waited for each model anew."""


class Mutation(NamedTuple):
    """One safeguard, and what there is without it."""

    safeguard: str
    target: Any
    name: str
    instead: Callable[..., Any] | property


MUTATIONS = [
    Mutation("views compare counters when told (planted bug)", View, "learn", learns_anything),
    Mutation("views compare counters when merged (planted bug)", View, "merge", merges_anything),
    Mutation(
        "aggregators keep one model a sender (planted bug)", AggregationTask, "_collect", counts_duplicates
    ),
    Mutation("ack timeout", PlexusNode, "_on_ack_timeout", nothing),
    Mutation("aggregation timeout", AggregationTask, "on_timeout", nothing),
    Mutation("ping timeout", Sampler, "on_timeout", nothing),
    Mutation("watchdog", Watchdog, "is_due", never_due),
    Mutation("re-advertisement", Membership, "on_readvertise", nothing),
    Mutation("interruption by a newer round", TrainingTask, "begin", finishes_first(_begin)),
    Mutation("older rounds are not trained again", TrainingTask, "begin", trains_again),
    Mutation("ack of stale models", AggregationTask, "on_request", keeps_silent_about_stale),
    Mutation("ack when a round is left behind", AggregationTask, "_abandon", abandons_silently),
    Mutation("ack only of complete rounds", AggregationTask, "_collect", acknowledges_early),
    Mutation("only models of the round are collected", AggregationTask, "on_request", collects_any_round),
    Mutation("counter on disk before it is told", PlexusNode, "_save", nothing),
    Mutation("refutation after a lost disk", Membership, "is_misrepresented", property(lambda _: False)),
    Mutation("peers that know an old event are told", Membership, "on_counter_known", only_when_equal),
    Mutation("overtaken aggregators advertise themselves", Membership, "advertise_again", nothing),
    Mutation("who is left out tells others", PlexusNode, "_tell_if_left_out", nothing),
    Mutation("training forgotten when back online", TrainingTask, "reset", nothing),
    Mutation("aggregation forgotten when back online", AggregationTask, "reset", nothing),
    Mutation("gossip: the next period is set", GossipNode, "_on_period", forgets_the_timer),
    Mutation("gossip: the greater age counts", GossipNode, "_merge", takes_any_age),
    Mutation("D-PSGD: the clock of the next round is set", Rounds, "_set_clock", nothing),
    Mutation("D-PSGD: models of other rounds are not merged", Rounds, "on_model", takes_any_round),
    Mutation("codec: broken MessagePack is refused by name", wire, "_decode_array", names_no_fault),
    Mutation("simulator: transfers are cut on leave", Network, "cut", nothing),
    Mutation("simulator: timers end on leave", Runtime, "crash", keeps_timers),
    Mutation("simulator: training ends on leave", Runtime, "_stop_training", nothing),
    Mutation("simulator: a new training ends the old", Runtime, "_train", trains_beside),
    Mutation("simulator: cut bytes are counted", Network, "_account_cut", does_not_count),
    Mutation("simulator: shared links", Shared, "start", overbooks(Shared.start)),
    Mutation("simulator: fair links", Fair, "start", overbooks(Fair.start)),
    Mutation("simulator: first-in-first-out links", Fifo, "start", overbooks(Fifo.start)),
]


def bug(safeguard: str, function: Callable[..., Any], word: str, instead: str) -> Mutation:
    """A planted bug: `word` of a method is another."""
    owner = function.__qualname__.rpartition(".")[0]
    of = inspect.getmodule(function)
    if owner:
        of = getattr(of, owner)
    return Mutation(safeguard, of, function.__name__, with_bug(function, word, instead))


MUTATIONS += [
    bug(
        "aggregators need a share of all participants",
        models_needed,
        "* participants",
        "* (participants - 1)",
    ),
    bug(
        "the most participants told of count",
        _collect,
        "max(self._participants, request.participants)",
        "request.participants",
    ),
    bug("aggregators wait for no more models than they need", _collect, ">=", ">"),
    bug(
        "models weigh their own samples",
        AggregationTask._complete,
        "models, samples)",
        "models, samples[::-1])",
    ),
    bug(
        "participants tell how many samples they have",
        _send_to_best,
        "self.trained.samples",
        "self._participants",
    ),
    bug(
        "the aggregation timeout is the shorter one",
        AggregationTask._begin,
        "aggregation_timeout_s",
        "ack_timeout_s",
    ),
    bug(
        "the aggregation timeout runs from the first model",
        _collect,
        "self._participants = ",
        f"{AGAIN}self._participants = ",
    ),
    bug("the greatest bandwidth is chosen", _send_to_best, "view.bandwidth_of", "view.event_of"),
    bug("aggregators that failed are tried last", _send_to_best, "self._tried.add(aggregator)", "pass"),
    bug(
        "bandwidths are merged with events",
        View.merge,
        "np.copyto(self._bandwidths",
        "np.copyto(self._bandwidths.copy()",
    ),
    bug(
        "a bandwidth is that of whoever tells it",
        Membership.on_joined,
        "joined.bandwidth_bytes_per_s",
        "self.bandwidth_bytes_per_s",
    ),
    bug(
        "acks of older rounds end nothing",
        TrainingTask.on_ack,
        "k != self.k_train + 1",
        "k > self.k_train + 1",
    ),
    bug(
        "those who leave tell as many as those who come", Membership.leave, "_advertise_to", "_readvertise_to"
    ),
    bug("nobody tells itself", Membership._random_set, "online[self._node.me] = False", "pass"),
    bug("the model held is saved", PlexusNode._hold, "self._save()", "pass"),
    bug(
        "the aggregate is pushed, not the model held",
        PlexusNode._on_sample,
        "search.model",
        "self.held_model",
    ),
    bug("all of the sample are asked", PlexusNode._push, "self.send(sample, ", "self.send(sample[:-1], "),
    bug(
        "participants are told how many they are",
        PlexusNode._push,
        "len(sample)",
        "self.parameters.sample_size",
    ),
    bug(
        "participants pass on how many they are",
        TrainingTask.begin,
        "= participants",
        "= max(1, participants - 1)",
    ),
    bug("simulator: a goodbye is sent", Runtime.leave, "self._perform", ""),
]


def storm_without(mutation: Mutation, seed: int) -> Finding | None:
    """What the storm of this seed finds when the safeguard is switched off."""
    with patch.object(mutation.target, mutation.name, mutation.instead):
        return run_storm(draw(seed)).finding


def first_seed(mutation: Mutation) -> tuple[int, str]:
    for seed in range(1, MOST_SEEDS + 1):
        finding = storm_without(mutation, seed)
        if finding is not None:
            return seed, finding.invariant
    raise LookupError(f"{mutation.safeguard}: not found within {MOST_SEEDS} seeds")


def table() -> dict[str, tuple[int, str]]:
    """What docs/guarantees.md states: safeguard → (seed, checker)."""
    stated = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in stated.strip().splitlines()[2:]]
    return {safeguard: (int(seed), checker.strip("`")) for safeguard, seed, checker in rows}


def main() -> None:
    rows = ["| safeguard switched off | seeds needed | found by |", "|---|---|---|"]
    for mutation in MUTATIONS:
        seed, checker = first_seed(mutation)
        rows.append(f"| {mutation.safeguard} | {seed} | `{checker}` |")
        print(rows[-1], flush=True)
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text("\n".join([f"{before}{BEGIN}", *rows, f"{END}{after}"]))


if __name__ == "__main__":
    main()
