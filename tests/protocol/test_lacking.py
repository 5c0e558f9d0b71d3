"""What differs from a view that both have is as good as the whole view, whatever is lost on the way."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plexus.protocol.api import Received, Report, WentOnline
from plexus.protocol.facts import Refused
from plexus.protocol.lacking import KEPT, Lacking
from plexus.protocol.messages import AggregateRequest, Message, Pong, TrainRequest, ViewReply, ViewRequest
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.roster import Roster
from plexus.protocol.sparse import SparseView
from plexus.protocol.view import JOINED, LEFT, Excerpt, Snapshot, View, event_number
from plexus.protocol.wire import LENGTH_BYTES, decode, encode, frame_bytes, name_of
from plexus.testing.exchange import sent
from tests.protocol.kit import SESSION, Exchange, aggregate_request, make_node, online_node, train_request

N = 6
ROSTER = Roster.simulated(SESSION, N)
entries = st.tuples(st.integers(0, N - 1), st.integers(1, 40), st.integers(0, 2**32 - 1))
steps = st.lists(
    st.tuples(st.sampled_from(["learn", "train", "aggregate", "ask", "restart"]), st.integers(0, 2), entries),
    max_size=40,
)


class Knower:
    """A node's view, twice: as it is with excerpts, and as it would be with whole views."""

    def __init__(self, kind: type[View], first: Snapshot, roster: Roster) -> None:
        self.kind, self.first, self.roster = kind, first, roster
        self.begin(first, first)

    def begin(self, view: Snapshot, oracle: Snapshot) -> None:
        self.view, self.oracle = self.kind(view), View(oracle)
        self.lacking = Lacking(self.view.snapshot(), self.roster, is_on=True)
        self.trains: Snapshot | None = None

    def told(self, view: Snapshot) -> ViewRequest | None:
        """What it asks its teller for."""
        question = self.lacking.ask(view.base) if self.lacking.lacks(view) else None  # type: ignore[attr-defined]
        self.view.merge(self.lacking.whole(view))
        return question


@given(st.sets(st.integers(0, 199), max_size=40), st.integers(0, 2**30), st.booleans())
def test_an_excerpt_is_as_long_as_it_is_said_to_be(told: set[int], counter: int, is_sparse: bool) -> None:
    """Few numbers are counted one by one, and many together."""
    roster, base = Roster.simulated(SESSION, 200), View.of(200, [(0, 7)]).snapshot()
    name_of(base, roster)
    view = (SparseView if is_sparse else View)(base)
    for node in told:
        view.learn(node, event_number(counter >> node % 30, JOINED), 2**32 - 1 >> node % 32)
    body = ViewReply(Excerpt.of(view.snapshot(), base))
    assert frame_bytes(body) == len(encode(body, roster))


@given(steps, st.booleans(), st.sampled_from([View, SparseView]))
def test_views_are_the_same_join_as_if_whole_views_were_sent(
    taken: list[Any], through_codec: bool, kind: type[View]
) -> None:
    """Three nodes learn, send each other models, come online and lose their memories, in any order. Names are
    forgotten, so there are misses; all that is asked for is answered."""
    first = kind(View.of(N, [(0, 7), (1, 8)]).snapshot()).snapshot()
    nodes = [Knower(kind, first, ROSTER) for _ in range(3)]

    def carried(body: ViewReply) -> Snapshot:
        frame = encode(body, ROSTER)
        assert frame_bytes(body) == len(frame), "what the simulator accounts for is what travels"
        arrived, _ = decode(frame[LENGTH_BYTES:], ROSTER)
        return arrived.view if through_codec else body.view

    def tell(
        teller: Knower, hearer: Knower, view: Snapshot, oracle: Snapshot, is_answer: bool = False
    ) -> None:
        told = carried(ViewReply(view))
        assert not is_answer or not hearer.lacking.lacks(told), "an answer refers to what the asker has"
        question = hearer.told(told)
        hearer.oracle.merge(oracle)
        if question is not None:
            answer = carried(ViewReply(teller.lacking.answer(question, teller.view.snapshot())))
            assert hearer.told(answer) is None
            hearer.lacking.keep(answer)
        elif not getattr(told, "base", b""):
            hearer.trains = told.whole
            hearer.lacking.keep(told)

    for what, number, (node, event, bandwidth) in taken:
        teller, hearer = nodes[number], nodes[(number + 1) % 3]
        view, oracle = teller.view.snapshot(), teller.oracle.snapshot()
        if what == "learn":
            for knows in (teller.view, teller.oracle):
                knows.learn(node, event, bandwidth)
        elif what == "train":
            tell(teller, hearer, teller.lacking.excerpt(view), oracle)
        elif what == "aggregate":
            tell(teller, hearer, teller.lacking.excerpt(view, base=teller.trains), oracle)
        elif what == "ask":
            tell(teller, hearer, teller.lacking.answer(hearer.lacking.ask(), view), oracle, is_answer=True)
        else:
            teller.begin(view, oracle)
        assert all(each.view.snapshot() == each.oracle.snapshot() for each in nodes)


@given(steps, st.lists(st.integers(0, 5), max_size=40))
def test_what_comes_late_or_twice_or_never_makes_nobody_know_less_than_with_whole_views(
    taken: list[Any], order: list[int]
) -> None:
    """Messages wait, and are delivered in any order, some again and some not at all; answers are lost, or
    come from somebody who has forgotten what it referred to. Nobody learns what nobody knew."""
    first = View.of(N, [(0, 7), (1, 8)]).snapshot()
    nodes = [Knower(View, first, ROSTER) for _ in range(3)]
    waiting: list[tuple[Knower, Knower, Snapshot, Snapshot]] = []
    everything = View(first)
    for number, (what, me, (node, event, bandwidth)) in enumerate(taken):
        teller, hearer = nodes[me], nodes[(me + 1) % 3]
        view = teller.view.snapshot()
        if what == "learn":
            for knows in (teller.view, teller.oracle, everything):
                knows.learn(node, event, event + 100)
        elif what == "restart":
            teller.begin(view, teller.oracle.snapshot())
        else:
            base = teller.trains if what == "aggregate" else None
            told = teller.lacking.excerpt(view, base)
            if what == "ask":
                told = teller.lacking.answer(hearer.lacking.ask(), view)
            waiting.append((teller, hearer, told, teller.oracle.snapshot()))
        for at in order[number : number + 1]:
            if at < len(waiting):
                teller, hearer, told, oracle = waiting[at]
                question = hearer.told(told)
                if question is None:
                    hearer.oracle.merge(oracle)
                elif bandwidth % 2:
                    answer = teller.lacking.answer(question, teller.view.snapshot())
                    hearer.told(answer)
                    hearer.lacking.keep(answer)
                if isinstance(told, Excerpt) and not told.base:
                    hearer.trains = told.whole
                    hearer.lacking.keep(told)
        for each in nodes:
            assert (each.view.snapshot().events >= each.oracle.snapshot().events).all()
            assert (each.view.snapshot().events <= everything.snapshot().events).all()


@given(st.lists(entries, max_size=20), st.lists(entries, max_size=20), st.sampled_from([View, SparseView]))
def test_an_excerpt_says_what_differs_and_nothing_else(
    old: list[Any], new: list[Any], kind: type[View]
) -> None:
    known = kind(View.of(N).snapshot())
    known.note((*each, None) for each in old)
    base = known.snapshot()
    name_of(base, ROSTER)
    newer = kind(base)
    newer.note((*each, None) for each in new)
    excerpt = Excerpt.of(newer.snapshot(), base)
    changed = [n for n in range(N) if newer.event_of(n) != base.event_of(n)]
    assert excerpt.told.tolist() == changed
    alone = excerpt.on(None)
    assert [alone.event_of(n) for n in changed] == [newer.event_of(n) for n in changed]
    assert all(alone.event_of(n) == 0 for n in range(N) if n not in changed)
    arrived, _ = decode(encode(ViewReply(excerpt), ROSTER)[LENGTH_BYTES:], ROSTER)
    for on in (excerpt.on(base), arrived.view.on(base)):
        assert on == newer.snapshot()


# The node


def lacking_node(me: int = 0, n: int = N, **options: Any) -> PlexusNode:
    return online_node(me, n, views="lacking", sample_size=2, **options)


def excerpt_of(base: Snapshot, *events: tuple[int, int]) -> Excerpt:
    name_of(base, ROSTER)
    view = View(base)
    for node, event in events:
        view.learn(node, event, 9)
    return Excerpt.of(view.snapshot(), base)


STRANGE = View.of(N, [(4, 11)]).snapshot()
"""A view that nobody has yet."""


def view_requests(effects: list[Any]) -> list[tuple[int, Message]]:
    return sent(effects, ViewRequest)


def test_who_is_referred_to_a_view_that_it_lacks_takes_what_is_told_and_asks_for_it() -> None:
    node = lacking_node()
    gone = event_number(3, LEFT)
    view = excerpt_of(STRANGE, (5, gone))
    [(to, question)] = view_requests(node.handle(1.0, Received(3, aggregate_request(5, view=view))))
    assert (to, node.view.event_of(5)) == (3, gone)
    assert question.asks[16:32] == view.base  # type: ignore[attr-defined]
    node.handle(1.1, Received(3, ViewReply(Excerpt(STRANGE))))
    again = excerpt_of(STRANGE, (2, gone))
    assert view_requests(node.handle(1.2, Received(2, aggregate_request(5, view=again)))) == []
    assert node.view.event_of(2) == gone


def test_who_never_answers_holds_up_nothing() -> None:
    node = lacking_node()
    effects = []
    for src in (3, 2, 1):
        effects += node.handle(
            1.0, Received(src, aggregate_request(5, view=excerpt_of(STRANGE), participants=3))
        )
    assert [to for to, _ in view_requests(effects)] == [3, 2, 1], "each is asked for what it refers to"
    assert node.aggregation.is_combining or node.aggregation.collecting


def test_an_answer_that_refers_to_what_the_asker_lacks_is_refused_and_another_is_asked() -> None:
    node = make_node(0, N, views="lacking", sample_size=2)
    effects = node.handle(0.0, WentOnline())
    [exchange] = node.sampler.exchanges
    for src in range(1, N):
        effects = node.handle(0.1, Received(src, Pong(exchange, 9, 9, 0)))
    [(asked, _)] = view_requests(effects)
    effects = node.handle(0.2, Received(asked, ViewReply(excerpt_of(STRANGE, (5, 99)))))
    refused = [effect.fact for effect in effects if isinstance(effect, Report)]
    assert [fact.src for fact in refused if isinstance(fact, Refused)] == [asked]
    assert view_requests(effects) == []
    assert node.joining.is_under_way
    node.handle(0.3, Received(asked, ViewReply(STRANGE)))
    assert not node.joining.is_under_way


def test_a_view_under_a_false_name_is_not_known_by_it() -> None:
    """A name is what a view says: who answers with another one has told just that."""
    node = lacking_node()
    node.handle(1.0, Received(3, aggregate_request(5, view=excerpt_of(STRANGE))))
    node.handle(1.1, Received(3, ViewReply(Excerpt(View.of(N, [(5, 5)]).snapshot()))))
    effects = node.handle(1.2, Received(2, aggregate_request(5, view=excerpt_of(STRANGE))))
    assert [to for to, _ in view_requests(effects)] == [2]


def test_a_participant_refers_to_the_view_that_came_with_the_model() -> None:
    exchange = Exchange(N, views="lacking", sample_size=3)
    exchange.go_online(*range(N))
    exchange.run_until(exchange.has_aggregated(4))
    bodies = [
        body for _, _, _, body in exchange.messages if isinstance(body, TrainRequest | AggregateRequest)
    ]
    assert all(isinstance(body.view, Excerpt) for body in bodies)
    assert all(body.view.base == b"" for body in bodies if isinstance(body, TrainRequest))
    assert any(body.view.base for body in bodies)
    told = {name_of(body.view.whole, ROSTER) for body in bodies if isinstance(body, TrainRequest)}
    assert {body.view.base for body in bodies if isinstance(body, AggregateRequest)} <= {*told, b""}


def test_of_views_in_common_few_are_kept_and_the_first_always() -> None:
    first = View.of(N).snapshot()
    lacking = Lacking(first, ROSTER, is_on=True)
    views = [View.of(N, [(0, number)]).snapshot() for number in range(1, 10)]
    for view in views:
        lacking.keep(Excerpt(view))
    kept = [first, *views[1 - KEPT :]]
    asks = lacking.ask().asks
    assert asks[32:] == b"".join(name_of(view, ROSTER) for view in kept)


@pytest.mark.parametrize("asks", [b"", bytes(32), b"x" * 96])
def test_who_goes_by_another_list_or_none_is_told_whole_views(asks: bytes) -> None:
    node = lacking_node()
    effects = node.handle(1.0, Received(3, ViewRequest(asks)))
    [(_, reply)] = sent(effects, ViewReply)
    assert type(reply.view) is Snapshot  # type: ignore[attr-defined]
    assert train_request(1).view is not None
    assert event_number(1, JOINED) == reply.view.event_of(1)  # type: ignore[attr-defined]
