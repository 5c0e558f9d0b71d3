"""Events belong to their owner: what the simulator, which knows who made what, believes of a view."""

from __future__ import annotations

from random import Random

import pytest

from plexus.protocol.api import Received, Report, WentOffline, WentOnline
from plexus.protocol.facts import Refused
from plexus.protocol.messages import PROOF_BYTES, Joined, Left, Pong, ViewReply, ViewRequest
from plexus.protocol.parameters import PlexusParameters
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.roster import Roster
from plexus.protocol.view import JOINED, LAST, LEFT, SUSPECTED, Snapshot, View, event_number
from plexus.testing.exchange import sent
from tests.protocol.kit import SESSION, come_online, snapshot_of, train_request, view_of

N = 4
FIRST = event_number(1, JOINED)


def node_of(roster: Roster, me: int, initial: Snapshot) -> PlexusNode:
    return PlexusNode(
        me=me,
        parameters=PlexusParameters(sample_size=2, signed_views=True),
        roster=roster,
        view=View(initial),
        bandwidth_bytes_per_s=100 * (me + 1),
        initial_model="m0",
        rng=Random(me),
    )


@pytest.fixture
def nodes() -> list[PlexusNode]:
    """All are online, by their second event."""
    view = view_of(N)
    view.is_signed = True
    initial = Snapshot(view.snapshot().events, view.snapshot().bandwidths, is_signed=True)
    roster = Roster.simulated(SESSION, N, initial)
    made = [node_of(roster, me, initial) for me in range(N)]
    for node in made:
        come_online(node)
    return made


def told(node: PlexusNode, view: Snapshot) -> list[Refused]:
    effects = node.handle(5.0, Received(3, ViewReply(view)))
    return [
        effect.fact for effect in effects if isinstance(effect, Report) and isinstance(effect.fact, Refused)
    ]


def altered(node: PlexusNode, of: int, event: int, bandwidth: int) -> Snapshot:
    """The view of `node`, with something else about `of`."""
    view = View(node.view.snapshot())
    view.learn(of, event, bandwidth)
    return view.snapshot()


def test_what_others_know_is_believed(nodes: list[PlexusNode]) -> None:
    assert told(nodes[0], nodes[1].view.snapshot()) == []
    assert nodes[0].view.event_of(1) == nodes[1].membership.event > FIRST


@pytest.mark.parametrize(
    ("event", "bandwidth"),
    [
        (event_number(7, LEFT), 0),
        (event_number(7, JOINED), 200),
        (event_number(7, SUSPECTED), 200),
        (event_number(2, LEFT), 0),
        (event_number(2, JOINED), 10**9),
        (LAST, 200),
    ],
)
def test_a_view_with_one_event_that_nobody_made_is_refused_as_a_whole(
    nodes: list[PlexusNode], event: int, bandwidth: int
) -> None:
    before = nodes[0].view.snapshot()
    view = View(nodes[2].view.snapshot())
    view.learn(1, event, bandwidth)
    assert told(nodes[0], view.snapshot()) == [Refused(3, "view", "an event that is not its node's own")]
    assert nodes[0].view.snapshot() == before


def test_a_suspicion_is_not_the_word_of_its_owner_and_no_forgery(nodes: list[PlexusNode]) -> None:
    assert told(nodes[0], altered(nodes[0], 1, event_number(2, SUSPECTED), 200)) == []
    assert nodes[0].view.doubted == {1}


def test_events_that_their_owner_made_are_believed_from_anybody(nodes: list[PlexusNode]) -> None:
    nodes[1].handle(3.0, WentOffline())
    assert told(nodes[0], nodes[1].view.snapshot()) == []
    assert nodes[0].view.event_of(1) == event_number(3, LEFT)
    nodes[1].handle(4.0, WentOnline())
    assert told(nodes[0], nodes[1].view.snapshot()) == []
    assert nodes[0].view.is_online(1)


def test_a_model_of_whoever_lies_about_others_leaves_views_as_they_were(nodes: list[PlexusNode]) -> None:
    view = snapshot_of(N, *((node, 9, False) for node in range(3)))
    nodes[0].handle(5.0, Received(3, train_request(5, view=view)))
    assert nodes[0].view.actives() == [0, 1, 2, 3]


def test_a_number_that_is_claimed_of_a_node_does_not_become_its_own(nodes: list[PlexusNode]) -> None:
    """Or a single pong would take it to the last event there is, after which it cannot say that it left."""
    effects = nodes[0].handle(5.0, Received(3, Pong(0, 1, 1, LAST)))
    assert sent(effects, ViewRequest) == [(3, ViewRequest())], "what it forgot would come with its proof"
    assert sent(effects, Joined) == []
    assert nodes[0].membership.counter == 2


def test_who_has_forgotten_an_event_of_its_own_is_reminded_of_it(nodes: list[PlexusNode]) -> None:
    for _ in range(3):
        nodes[0].handle(5.0, WentOnline())
    forgetful = node_of(nodes[0].roster, 0, View.of(N, is_signed=True).snapshot())
    come_online(forgetful)
    effects = forgetful.handle(6.0, Received(3, Pong(0, 1, 1, nodes[0].membership.event)))
    assert {joined.counter for _, joined in sent(effects, Joined)} == {nodes[0].membership.counter + 1}


def test_coming_and_going_are_told_with_their_proof(nodes: list[PlexusNode]) -> None:
    effects = nodes[0].handle(5.0, WentOffline())
    assert {body for _, body in sent(effects, Left)} == {Left(3, bytes(PROOF_BYTES))}
    effects = come_online(nodes[0], 6.0)
    assert {body for _, body in sent(effects, Joined)} == {Joined(4, 100, proof=bytes(PROOF_BYTES))}
