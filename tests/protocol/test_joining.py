"""What a live peer needs beyond the paper's messages: asking for a view, and a bandwidth that changes."""

from __future__ import annotations

from unittest.mock import ANY

import pytest

from plexus.protocol.api import BandwidthMeasured, Durable, Received, Save, TimerFired
from plexus.protocol.messages import Joined, ViewReply, ViewRequest
from plexus.protocol.view import View
from plexus.testing.exchange import INITIAL, sent
from tests.protocol.kit import NOTHING, online_node, snapshot_of

N = 5


def test_who_is_asked_for_its_view_sends_it() -> None:
    node = online_node(0, N)
    effects = node.handle(1.0, Received(3, ViewRequest()))
    assert sent(effects, ViewReply) == [(3, ViewReply(node.membership.view.snapshot()))]


def test_a_view_that_was_asked_for_is_merged() -> None:
    node = online_node(0, N)
    news = View.of(N)
    news.learn(4, 2 * 7, 0)
    assert node.membership.view.is_online(4)
    node.handle(1.0, Received(3, ViewReply(news.snapshot())))
    assert not node.membership.view.is_online(4)


@pytest.mark.parametrize(("counter", "heard"), [(0, False), (1, False), (2, True)])
def test_a_view_shows_whether_the_join_was_heard(counter: int, heard: bool) -> None:
    """An answer alone does not: the question may have arrived and the join not."""
    node = online_node(0, N)
    assert node.membership.counter == 2
    node.handle(1.0, Received(3, ViewReply(snapshot_of(N, (0, counter, True)))))
    again = node.handle(600.0, TimerFired(("readvertise", 0)))
    assert (sent(again, Joined) == []) == heard


def test_a_view_of_somebody_who_knows_nobody_is_no_news() -> None:
    node = online_node(3, N)
    assert node.handle(1.0, Received(1, ViewReply(NOTHING))) == []


def test_a_new_bandwidth_is_advertised_with_a_new_event() -> None:
    node = online_node(0, N)
    counter = node.membership.counter
    effects = node.handle(1.0, BandwidthMeasured(12_345))
    assert effects[0] == Save(Durable(counter + 1, 0, INITIAL, ANY))
    told = sent(effects, Joined)
    assert {body for _, body in told} == {Joined(counter + 1, 12_345)}
    assert node.membership.view.bandwidth_of(0) == 12_345


def test_the_address_of_who_joins_is_remembered() -> None:
    node = online_node(0, N)
    address = bytes(range(18))
    node.handle(1.0, Received(2, Joined(9, 100, address)))
    assert node.roster.address_of(2) == address
