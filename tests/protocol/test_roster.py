"""Who exists, and the order in which a round contacts them: the same for everybody."""

from __future__ import annotations

import hashlib
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plexus.protocol.roster import KEY_BYTES, Roster, key_of
from plexus.protocol.view import JOINED, View, event_number

SESSION = b"session"
keys = st.lists(st.binary(min_size=KEY_BYTES, max_size=KEY_BYTES), unique=True, max_size=20)
rounds = st.integers(0, 2**63 - 1)


def order_of_keys(roster: Roster, k: int) -> list[bytes]:
    return [roster.keys[node] for node in roster.order(k).tolist()]


def candidate_keys(roster: Roster, online: set[bytes], k: int) -> list[bytes]:
    view = View.of(0)
    for key in online:
        view.learn(roster.number(key), event_number(1, JOINED))
    return [roster.keys[node] for node in roster.candidates(view, k)]


@given(keys, rounds, st.randoms(use_true_random=False))
def test_the_order_is_the_same_whoever_learnt_the_keys_in_whatever_order(
    known: list[bytes], k: int, rng: Random
) -> None:
    shuffled = list(known)
    rng.shuffle(shuffled)
    assert order_of_keys(Roster(SESSION, known), k) == order_of_keys(Roster(SESSION, shuffled), k)


@given(keys, st.data())
def test_candidates_agree_wherever_views_agree_even_if_one_roster_knows_of_more_nodes(
    known: list[bytes], data: st.DataObject
) -> None:
    online = data.draw(st.sets(st.sampled_from(known)) if known else st.just(set()))
    k = data.draw(rounds)
    more = Roster(SESSION, list(reversed(known)))
    few = Roster(SESSION, sorted(online))
    assert candidate_keys(more, online, k) == candidate_keys(few, online, k)
    assert set(candidate_keys(few, online, k)) == online


@given(keys, st.lists(rounds, min_size=1, max_size=40))
def test_an_order_asked_for_again_or_after_new_keys_is_the_one_of_a_fresh_roster(
    known: list[bytes], ks: list[int]
) -> None:
    """Orders are kept for a while; nothing may show it."""
    growing = Roster(SESSION)
    for at in range(max(len(known), len(ks))):
        if at < len(known):
            growing.number(known[at])
        k = ks[at % len(ks)]
        assert order_of_keys(growing, k) == order_of_keys(Roster(SESSION, growing.keys), k)


def test_rounds_and_sessions_are_ordered_differently() -> None:
    orders = {
        tuple(Roster.simulated(session, 30).order(k).tolist()) for session in (b"a", b"b") for k in range(50)
    }
    assert len(orders) == 100


def test_the_order_is_fixed_for_ever() -> None:
    """Peers of different releases must agree: a change here is a change of the protocol."""
    roster = Roster(SESSION, [key_of(b"%d" % node) for node in range(8)])
    assert roster.order(1).tolist() == [6, 0, 3, 7, 1, 2, 4, 5]
    assert roster.order(10**12).tolist() == [7, 3, 2, 5, 0, 6, 4, 1]


@given(keys, rounds)
def test_the_order_is_that_of_a_hash_computed_with_plain_integers(known: list[bytes], k: int) -> None:
    roster = Roster(SESSION, known)
    assert order_of_keys(roster, k) == sorted(known, key=lambda key: plain_hash(key, k))


def plain_hash(key: bytes, k: int) -> int:
    """What another implementation would write: blake2b of session and key, then splitmix64 twice."""
    seed = hashlib.blake2b(SESSION + key, digest_size=8, person=b"plexus order").digest()
    return mix(int.from_bytes(seed, "big") ^ mix(k))


def mix(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) % 2**64
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB % 2**64
    return value ^ (value >> 31)


def test_a_key_has_one_number_and_a_new_key_the_next() -> None:
    roster = Roster(SESSION)
    first, second = key_of(b"one"), key_of(b"two")
    assert [roster.number(key) for key in (first, second, first)] == [0, 1, 0]
    assert len(roster) == 2
    assert roster.keys == [first, second]


def test_something_else_than_a_key_is_refused_and_not_remembered() -> None:
    roster = Roster(SESSION)
    with pytest.raises(ValueError, match="a node key has 16 bytes, this one has 3"):
        roster.number(b"abc")
    assert len(roster) == 0


def test_views_grow_with_the_roster() -> None:
    roster = Roster.simulated(SESSION, 3)
    view = View.of(3, [(0, 1), (2, 1)])
    newcomer = roster.number(key_of(b"newcomer"))
    assert newcomer not in roster.candidates(view, 1)
    view.learn(newcomer, event_number(1, JOINED))
    assert set(roster.candidates(view, 1)) == {0, 2, newcomer}
