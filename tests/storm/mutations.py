"""One safeguard less: copies of the protocol and the simulator in which something is switched off, or one
word is another.

`python -m tests.storm.mutations` looks for the first seed that shows each, and writes the table into
docs/guarantees.md. `test_mutations` holds the table to what it says.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec
import numpy as np

from plexus.protocol import plexus, trust, wire
from plexus.protocol.aggregation import AggregationTask, models_needed
from plexus.protocol.baselines.gossip import GossipNode
from plexus.protocol.baselines.rounds import Rounds
from plexus.protocol.joining import Joining
from plexus.protocol.lacking import Lacking
from plexus.protocol.late import LateTask
from plexus.protocol.membership import Membership
from plexus.protocol.messages import Ack
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.quorum import Quorum, quorum
from plexus.protocol.roster import Roster
from plexus.protocol.sampling import Sampler
from plexus.protocol.training import TrainingTask
from plexus.protocol.trust import Trust
from plexus.protocol.view import JOINED, Snapshot, View, event_number
from plexus.protocol.watchdog import Watchdog
from plexus.sim.network import Network
from plexus.sim.runtime import Runtime
from plexus.sim.sharing import Fair, Fifo, Shared
from plexus.storm.plan import draw
from plexus.storm.storm import Finding, run_storm

PAGE = Path(__file__).parents[2] / "docs" / "guarantees.md"
BEGIN, END = "<!-- mutations: begin -->", "<!-- mutations: end -->"
MOST_SEEDS = 2000


def nothing(*_: Any, **__: Any) -> None:
    """Instead of what should be done."""


# The protocol


def learns_anything(self: View, node: int, event: int, bandwidth_bytes_per_s: int = 0) -> bool:
    if node >= len(self):
        self.grow(node + 1)
    self._write()
    self._event_of[node] = event
    self._bandwidth_of[node] = bandwidth_bytes_per_s
    return True


def merges_anything(self: View, other: Snapshot) -> Any:
    if len(other.events) > len(self):
        self.grow(len(other.events))
    self._write()
    said = other.events > 0
    np.copyto(self._events[: len(said)], other.events, where=said)
    np.copyto(self._bandwidths[: len(said)], other.bandwidths, where=said)
    return np.flatnonzero(said)


def never_due(self: Watchdog, held: int) -> bool:
    self._node.set_timer(("watchdog", 0), self._wait_s(held))
    return False


def finishes_first(begin: Any) -> Any:
    return lambda self, request: not self.busy and begin(self, request)


def trains_again(self: TrainingTask, request: Any) -> bool:
    self.k_train = request.round - 1
    return _begin(self, request)


_begin, _send_to_best, _on_request, _abandon, _collect = (
    TrainingTask.begin,
    TrainingTask.send_to_best,
    AggregationTask.on_request,
    AggregationTask._abandon,
    AggregationTask._collect,
)


def keeps_silent_about_stale(self: AggregationTask, src: int, request: Any, *rest: Any) -> bool:
    fresh = _on_request(self, src, request, *rest)
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


def collects_any_round(self: AggregationTask, src: int, request: Any, *rest: Any) -> bool:
    if self.collecting:
        self._collect(src, request)
        return False
    return _on_request(self, src, request, *rest)


def only_when_equal(self: Membership, src: int, event: int) -> None:
    if event >= event_number(self.counter, JOINED):
        _on_event_known(self, src, event)


_on_event_known = Membership.on_event_known


def does_not_probe(self: Sampler, search: Any, silent: tuple[int, ...]) -> None:
    assert self._gone is not None
    for node in silent:
        self._gone(node)


def offers_at_once(self: LateTask, k: int, aggregator: int, late: Any) -> None:
    self.offer(late)


def progresses(self: Trust, src: int, k: int, own: int) -> bool:
    return k > self._watchdog.k_seen


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
    self._transfers.cut(flows, self._kernel.now)
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
    instead: Any


MUTATIONS = [
    Mutation("views compare counters when told (planted bug)", View, "learn", learns_anything),
    Mutation("views compare counters when merged (planted bug)", View, "merge", merges_anything),
    Mutation(
        "aggregators keep one model a sender (planted bug)", AggregationTask, "_collect", counts_duplicates
    ),
    Mutation("ack timeout", PlexusNode, "look_elsewhere", nothing),
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
    Mutation("counter on disk before it is told", PlexusNode, "save", nothing),
    Mutation(
        "who is taken as gone says that it is there",
        Membership,
        "is_misrepresented",
        property(lambda _: False),
    ),
    Mutation("peers that know an old event are told", Membership, "on_event_known", only_when_equal),
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
    Mutation("simulator: cut bytes are counted", Network, "_cut", does_not_count),
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
        AggregationTask._derived,
        "participants = claims[-1]",
        "participants = claims[0]",
    ),
    bug("aggregators wait for no more models than they need", _collect, ">=", ">"),
    bug(
        "models weigh their own samples",
        AggregationTask._complete,
        "models, samples, ",
        "models, samples[::-1], ",
    ),
    bug(
        "participants tell how many samples they have",
        _send_to_best,
        "self.trained.samples",
        "self.participants",
    ),
    bug(
        "the aggregation timeout is the shorter one",
        AggregationTask._due_at,
        "aggregation_timeout_s",
        "ack_timeout_s",
    ),
    bug(
        "the aggregation timeout runs from the first model",
        _collect,
        "self._participants, least = ",
        f"{AGAIN}self._participants, least = ",
    ),
    bug("the greatest bandwidth is chosen", PlexusNode.aggregator_rank, "view.bandwidth_of", "view.event_of"),
    bug("aggregators that failed are tried last", _send_to_best, "self.tried |= {aggregator}", "pass"),
    bug(
        "bandwidths are merged with events",
        View.merge,
        "self._bandwidths[news] = ",
        "self._bandwidths.copy()[news] = ",
    ),
    bug(
        "a bandwidth is that of whoever tells it",
        Membership.on_joined,
        "joined.bandwidth_bytes_per_s",
        "self.bandwidth_bytes_per_s",
    ),
    bug(
        "acks of older rounds end nothing", TrainingTask.on_ack, "k != self.next_round", "k > self.next_round"
    ),
    bug(
        "those who leave tell as many as those who come", Membership.leave, "_advertise_to", "_readvertise_to"
    ),
    bug("nobody tells itself", Membership.random_set, "actives[actives != me]", "actives"),
    bug("the model held is saved", PlexusNode.hold, "self.save()", "pass"),
    bug(
        "the aggregate is pushed, not the model held",
        PlexusNode.on_sample,
        "search.model, sample",
        "self.held_model, sample",
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
        "= request.participants",
        "= max(1, request.participants - 1)",
    ),
    bug(
        "simulator: a goodbye is sent",
        Runtime.leave,
        "self._handle(node, ",
        "self.nodes[node].handle(self.kernel.now, ",
    ),
]

# Suspicion, quorum and the order of rounds

MUTATIONS += [
    bug("who is silent is pinged again", Sampler.on_timeout, "exchange not in self._reminded", "False"),
    Mutation("who is silent is probed", Sampler, "_on_silence", does_not_probe),
    bug("silence of a suspect is no news", PlexusNode.probe_a_suspect, "tries=-1", "tries=0"),
    bug("a suspicion keeps the counter", View.suspect, "+ SUSPECTED", "+ 4 + SUSPECTED"),
    Mutation("suspects are told", PlexusNode, "tell_if_suspected", nothing),
    Mutation("whoever pushes pings a suspect", PlexusNode, "probe_a_suspect", nothing),
    Mutation("who is silent is suspected", PlexusNode, "_on_gone", nothing),
    Mutation("a quorum is needed", Quorum, "is_missing", lambda *_: False),
    bug("a quorum is a half", quorum, "/ 2", "/ 3"),
    bug("nobody goes on alone while others are missing", Quorum.is_missing, "and not alone", ""),
    Mutation("young suspects are missed", Membership, "suspected_for_less_than", lambda *_: 0),
    bug(
        "after a while a node goes on without a quorum",
        Quorum.is_missing,
        "self._node.now - since >= self._parameters.watchdog_s",
        "False",
    ),
    Mutation("rounds grow by their step", plexus, "step", lambda _: 1),
    Mutation("steps are squares", plexus, "step", lambda online: online),
    bug("the step is passed on", TrainingTask.begin, "k + min(max(1, request.step), MAX_STEP)", "k + 1"),
    Mutation("who comes asks before it tells", Joining, "_look_around", lambda self: self.end()),
    Mutation("the awaited aggregator is looked after", TrainingTask, "look_after_awaited", nothing),
]

# Late models

MUTATIONS += [
    bug("late: unanswered changes are dropped", LateTask.on_timeout, "self._next()", "self._aim()"),
    bug("late: what two aggregators had is dropped", TrainingTask.as_late, "_attempts > 1", "_attempts > 9"),
    Mutation("late: models in doubt are not offered", LateTask, "offer_unless_used", offers_at_once),
    Mutation("late: changes are offered", LateTask, "offer", nothing),
    Mutation("late: the answer has a timeout", LateTask, "on_timeout", nothing),
    bug("late: an answer is given once and for all", AggregationTask.on_late, "said is not None", "False"),
    bug("late: who is left behind hears no", AggregationTask._abandon, "used=0", "used=1"),
    bug(
        "late: whose models were used is known",
        AggregationTask.on_request,
        "int(src in self._used.get(k, ()))",
        "0",
    ),
    bug("late: who trains says so", PlexusNode.pong, "BUSY * self.is_busy", "0"),
    bug("late: who trains is left out", PlexusNode.on_sample, "node not in busy", "True"),
    bug("late: what is queued is trained", PlexusNode._on_trained, "self.train(queued)", "pass"),
    Mutation("late: changes for past rounds are released", AggregationTask, "release", nothing),
    bug("late: small samples wait for all", AggregationTask._begin, "self._most <= SMALL", "False"),
    Mutation("late: changes are young", AggregationTask, "_is_too_old", lambda *_: False),
    bug(
        "late: changes weigh their own samples",
        AggregationTask._complete,
        "late.samples for",
        "late.ordinal for",
    ),
    bug(
        "late: the fastest does not go on alone",
        AggregationTask._derived,
        "(self._parameters.late_rounds > 0 or self._is_wary)",
        "self._is_wary",
    ),
    bug("late: one change a sender", AggregationTask.on_late, "elif src in self._late:", "elif False:"),
]

# Members that lie

MUTATIONS += [
    Mutation("liars: far rounds need witnesses", Trust, "witnesses", property(lambda _: 1)),
    Mutation("liars: where many may lie, more are needed", trust, "MOST_WITNESSES", 2),
    bug("liars: who says the same counts once", Trust.believes, "self._claims[src] =", "self._claims[k] ="),
    Mutation("liars: who speaks of far rounds is named", Trust, "_look_through_claims", nothing),
    bug(
        "liars: who asks to train is in the sample",
        Trust.may_ask_to_train,
        "not self._may_be_in_sample(src, request.round)",
        "False",
    ),
    bug(
        "liars: who trains is in the sample",
        Trust.may_ask_to_train,
        "not self._may_be_in_sample(self._node.me, request.round)",
        "False",
    ),
    bug(
        "liars: who sends a model was in the sample",
        Trust.may_send_model,
        "not self._may_be_in_sample(src, request.trained_in)",
        "False",
    ),
    bug(
        "liars: who aggregates is in the sample",
        Trust.may_send_model,
        "not self._may_be_in_sample(self._node.me, request.round)",
        "False",
    ),
    bug(
        "liars: a model is of a round shortly before",
        Trust.may_send_model,
        "not 0 < request.round - request.trained_in <= self.reach",
        "False",
    ),
    bug(
        "liars: the round after is not far ahead",
        Trust.may_ask_to_train,
        "self.is_wary and request.step > REACH",
        "False and request.step > REACH",
    ),
    bug("liars: there is room for views that differ", Trust._may_be_in_sample, "ROOM * ", "1 * "),
    Mutation("liars: after a pause anybody may begin", Trust, "_is_after_a_pause", property(lambda _: False)),
    Mutation("liars: who made nothing of a model is known", Trust, "failed", nothing),
    bug("liars: who made nothing of a model is asked last", Trust.best, "if n not in failed", ""),
    Mutation("liars: one alone makes nobody gone", Membership, "_suspected_by_one", lambda *_: []),
    bug("liars: two who tell are two nodes", Membership._is_told_by_one, "teller != src", "True"),
    Mutation("liars: whom one holds to be gone is asked last", View, "doubt", nothing),
    Mutation("liars: events are their owners'", Roster, "forged", nothing),
    Mutation("liars: nobody is told its own events", Roster, "is_own", lambda *_: True),
    bug(
        "liars: most senders say how many they are",
        AggregationTask._derived,
        "claims[len(claims) // 2]",
        "claims[0]",
    ),
    bug(
        "liars: no more participants than a sample has",
        AggregationTask._derived,
        "min(claims[len(claims) // 2], self._most)",
        "claims[len(claims) // 2]",
    ),
    bug(
        "liars: of two both count",
        AggregationTask._derived,
        "(self._parameters.late_rounds > 0 or self._is_wary)",
        "self._parameters.late_rounds > 0",
    ),
    bug(
        "liars: one model is not enough",
        AggregationTask._derived,
        "(self._is_wary and self._most > LEAST)",
        "False",
    ),
    bug(
        "liars: one model begins no round", AggregationTask.on_request, "self._most > LEAST >", "0 > LEAST >"
    ),
    Mutation(
        "liars: a model that waits alone is not forgotten", AggregationTask, "on_lone", lambda *_: False
    ),
    Mutation("liars: others have the model of a newer round", PlexusNode, "is_corroborated", lambda *_: True),
    Mutation("liars: one word is no progress", Trust, "is_progress", progresses),
    bug(
        "liars: who was sent no model acknowledges none",
        PlexusNode._on_ack,
        "self.trust.is_wary and is_of_task",
        "False",
    ),
]

# Views as what others lack

MUTATIONS += [
    bug(
        "views: who lacks one asks for it",
        PlexusNode._merge,
        "self.send((src,), lacking.ask(view.base))",
        "pass",
    ),
    bug(
        "views: an answer refers to what the asker has",
        Lacking.answer,
        "reversed(names) if name in kept",
        "kept if names",
    ),
    bug("views: all that differs is told", Snapshot.beyond, "events != before", "events < before"),
    bug("views: who answers with what nobody has is named", PlexusNode._merge, "self.report(", "id("),
    bug(
        "views: such an answer is none",
        PlexusNode._on_view_reply,
        "not self.membership.lacking.lacks(reply.view)",
        "True",
    ),
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


def _row(number: int) -> str:
    seed, checker = first_seed(MUTATIONS[number])
    return f"| {MUTATIONS[number].safeguard} | {seed} | `{checker}` |"


def main() -> None:
    rows = ["| safeguard switched off | seeds needed | found by |", "|---|---|---|"]
    with get_context("fork").Pool() as pool:  # mutations cannot be pickled
        for row in pool.imap(_row, range(len(MUTATIONS))):
            rows.append(row)
            print(row, flush=True)
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text("\n".join([f"{before}{BEGIN}", *rows, f"{END}{after}"]))


if __name__ == "__main__":
    main()
