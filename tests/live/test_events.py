"""Signed events: what their owners said is believed from anybody, and nothing else is."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import msgspec
import numpy as np
import pytest

from plexus.live.identity.admission import Admission
from plexus.live.identity.events import SignedRoster
from plexus.live.identity.keys import load_key
from plexus.live.state import Store
from plexus.live.transport.limits import Limits
from plexus.protocol import wire
from plexus.protocol.messages import ADDRESS_BYTES, NO_ADDRESS, Joined, Left, Message, ViewReply
from plexus.protocol.view import EXPELLED, JOINED, LEFT, SUSPECTED, Excerpt, Snapshot, View, event_number
from plexus.protocol.wire import WireError
from tests.live.party import Party

HERE, THERE = b"h" * ADDRESS_BYTES, b"t" * ADDRESS_BYTES
UNSIGNED = "that it has not signed"


class End:
    """A node: its roster, its view, and what it says."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self.key = admission.key
        self.roster = SignedRoster(admission, 1000)
        self.view = View.of(1, is_signed=True)

    def comes(self, counter: int, bandwidth: int = 100, address: bytes = HERE) -> Joined:
        return Joined(
            counter, bandwidth, address, self._makes(event_number(counter, JOINED), bandwidth, address)
        )

    def goes(self, counter: int, address: bytes = HERE) -> Left:
        return Left(counter, self._makes(event_number(counter, LEFT), 0, address), address)

    def _makes(self, event: int, bandwidth: int, address: bytes) -> bytes:
        self.view.learn(0, event, bandwidth)
        return self.roster.sign(0, event, bandwidth, address)

    def hears(self, src: End, body: Message) -> None:
        payload = wire.encode(body, src.roster)[wire.LENGTH_BYTES :]
        told, _ = wire.decode(payload, self.roster, src.key)
        if isinstance(told, ViewReply):
            self.view.merge(told.view)
        elif isinstance(told, Joined):
            event = event_number(told.counter, JOINED)
            self.view.learn(self.roster.number(src.key), event, told.bandwidth_bytes_per_s)
        elif isinstance(told, Left):
            self.view.learn(self.roster.number(src.key), event_number(told.counter, LEFT))

    def hears_view_of(self, src: End) -> None:
        self.hears(src, ViewReply(src.view.snapshot()))

    def knows(self, other: End) -> tuple[int, int, bytes]:
        number = self.roster.number(other.key)
        event, bandwidth = self.view.event_of(number), self.view.bandwidth_of(number)
        return event, bandwidth, self.roster.address_of(number)


@pytest.fixture
def party(tmp_path: Path) -> Party:
    return Party(tmp_path)


@pytest.fixture
def ends(party: Party) -> list[End]:
    """Three who know the newest list."""
    homes = [party.home(name) for name in "abc"]
    made = [End(Admission(home, party.session)) for home in homes]
    for end in made:
        end.admission.adopt(end.admission.read(party.revocations()))
    return made


def test_an_event_is_believed_from_whoever_heard_of_it(ends: list[End]) -> None:
    a, b, c = ends
    b.hears(a, a.comes(1, 70))
    c.hears_view_of(b)
    assert c.knows(a) == (event_number(1, JOINED), 70, HERE)
    b.hears(a, a.goes(2))
    c.hears_view_of(b)
    assert c.knows(a) == (event_number(2, LEFT), 0, HERE)


def test_each_event_is_checked_once(ends: list[End]) -> None:
    a, b, c = ends
    b.hears(a, a.comes(1))
    c.hears_view_of(b)
    spent_s = c.roster.spent_s
    assert spent_s > 0
    c.hears_view_of(b)
    b.view.suspect(b.roster.number(a.key))
    c.hears_view_of(b)
    assert c.roster.spent_s == spent_s
    assert c.view.is_suspected(c.roster.number(a.key)), "which is not its owner's word"


def excerpt(src: End, to: End, view: Snapshot, base: Snapshot | None = None) -> Excerpt:
    """What `to` is told of a view."""
    if base is not None:
        wire.name_of(base, src.roster)
    payload = wire.encode(ViewReply(Excerpt.of(view, base)), src.roster)[wire.LENGTH_BYTES :]
    told = wire.decode(payload, to.roster, src.key)[0].view  # type: ignore[attr-defined]
    assert isinstance(told, Excerpt)
    return told


def test_places_are_those_on_the_authoritys_list_and_only_what_is_told_carries_proofs(
    ends: list[End],
) -> None:
    """A view goes from a to b, and from b to c by its name; then b tells c what has changed since."""
    a, b, c = ends
    a.comes(1, 70)
    a.hears(b, b.comes(1, 80))
    a.hears(c, c.comes(1, 90))
    came = excerpt(a, b, a.view.snapshot()).whole
    b.view.merge(came)
    b.hears(c, c.comes(2, 91))
    passed_on = excerpt(b, c, came).whole
    c.view.merge(passed_on)
    assert wire.name_of(passed_on, c.roster) == wire.name_of(came, b.roster)
    changed = excerpt(b, c, b.view.snapshot(), came)
    assert changed.base == passed_on.name
    assert changed.told.tolist() == [c.roster.number(c.key)]
    assert wire.view_bytes(changed) < 200 < wire.view_bytes(excerpt(b, c, came))
    c.view.merge(changed.on(passed_on))
    assert [c.knows(end)[:2] for end in ends] == [b.knows(end)[:2] for end in ends]


def test_a_lie_in_what_has_changed_is_refused(ends: list[End]) -> None:
    a, b, c = ends
    b.hears(a, a.comes(1, 70))
    came = b.view.snapshot()
    said = b.roster._proved[a.key]
    b.roster._proved[a.key] = said._replace(event=event_number(5, LEFT))
    lie = View(came)
    lie.learn(b.roster.number(a.key), event_number(5, LEFT))
    with pytest.raises(WireError, match=UNSIGNED):
        excerpt(b, c, lie.snapshot(), came)


def test_who_has_another_list_understands_nothing_and_who_is_on_none_is_told_by_key(
    party: Party, ends: list[End]
) -> None:
    a, b, _ = ends
    a.comes(1)
    late = End(Admission(party.home("late"), party.session))
    b.admission.adopt(b.admission.read(party.revocations()))
    assert excerpt(a, b, a.view.snapshot()).base == wire.UNLISTED
    late.comes(1)
    late.roster._admission.list = a.admission.list  # it was admitted since
    payload = wire.encode(ViewReply(Excerpt(late.view.snapshot())), late.roster)[wire.LENGTH_BYTES :]
    told, _ = wire.decode(payload, b.roster, late.key)
    assert type(told.view) is Snapshot  # type: ignore[attr-defined]
    assert told.view.known == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("event", "bandwidth", "address"),
    [
        (event_number(2, JOINED), 70, HERE),
        (event_number(2, LEFT), 0, HERE),
        (event_number(2, SUSPECTED), 70, HERE),
        (event_number(1, LEFT), 0, HERE),
        (event_number(1, JOINED) - 1, 70, HERE),
        (event_number(1, JOINED), 71, HERE),
        (event_number(1, JOINED), 70, THERE),
        (event_number(1, JOINED), 70, NO_ADDRESS),
    ],
)
def test_whatever_is_changed_of_an_event_the_message_is_refused_and_leaves_no_trace(
    ends: list[End], event: int, bandwidth: int, address: bytes
) -> None:
    a, b, c = ends
    b.hears(a, a.comes(1, 70))
    b.comes(1)
    number = b.roster.number(a.key)
    genuine = b.roster.entry(number, event_number(1, JOINED), 70)
    assert genuine is not None
    changed = genuine._replace(event=event, bandwidth_bytes_per_s=bandwidth, address=address)
    b.roster.entry = lambda node, *_: changed if node == number else b.roster._proved[b.key]  # type: ignore[method-assign]
    with pytest.raises(WireError, match=f"an event of node {a.key.hex()[:12]} {UNSIGNED}"):
        c.hears_view_of(b)
    assert len(c.roster) == 1


def test_who_says_without_proof_that_it_comes_or_goes_is_refused(ends: list[End]) -> None:
    a, b, _ = ends
    joined, left = a.comes(1), a.goes(2)
    for body in (joined, left):
        with pytest.raises(WireError, match=UNSIGNED):
            b.hears(a, msgspec.structs.replace(body, proof=b""))
        with pytest.raises(WireError, match=UNSIGNED):
            b.hears(a, msgspec.structs.replace(body, counter=9))
        assert b.view.online_count() == 0
    b.hears(a, joined)
    assert b.view.online_count() == 1


def test_a_view_without_proofs_is_refused(ends: list[End]) -> None:
    a, b, _ = ends
    a.comes(1)
    bare = Snapshot(a.view.snapshot().events, a.view.snapshot().bandwidths)
    with pytest.raises(WireError, match=UNSIGNED):
        b.hears(a, ViewReply(bare))


def test_what_was_signed_in_another_session_counts_for_nothing(ends: list[End], tmp_path: Path) -> None:
    a, b, _ = ends
    other = Party(tmp_path / "other")
    home = tmp_path / "a"
    public = load_key(home / "node.key").public_key().public_bytes_raw()
    (home / "node.crt").write_text(other.authority.invite(public, other.session.digest, timedelta(days=1)))
    (home / "revoked.crl").unlink(missing_ok=True)
    same = End(Admission(home, other.session))
    with pytest.raises(WireError, match=UNSIGNED):
        b.hears(a, same.comes(1))


def test_who_was_not_admitted_gets_no_number(ends: list[End]) -> None:
    a, b, _ = ends
    a.comes(1)
    a.roster.number(b"somebody unknown")
    a.view.learn(1, event_number(1, JOINED), 10)
    a.roster._proved[b"somebody unknown"] = a.roster._proved[a.key]
    b.hears_view_of(a)
    assert (b.roster.strangers, b.roster.keys) == (1, [b.key, a.key])


def test_who_was_invited_later_is_believed_by_its_certificate_and_by_the_list_that_follows(
    ends: list[End], party: Party
) -> None:
    a, b, _ = ends
    late = End(party.admission("late"))
    joined = late.comes(1)
    a.admission.admit(_certificate(late.admission))
    a.hears(late, joined)
    b.hears_view_of(a)
    assert (b.roster.strangers, b.view.actives()) == (1, []), "b has heard of neither"
    assert b.admission.adopt(b.admission.read(party.revocations()))
    b.hears_view_of(a)
    assert b.knows(late)[0] == event_number(1, JOINED)


def _certificate(admission: Admission) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return admission._own.public_bytes(Encoding.DER)


def test_of_a_revoked_key_nothing_is_believed_nor_passed_on(ends: list[End], party: Party) -> None:
    a, b, c = ends
    b.hears(a, a.comes(1))
    party.authority.revoke(a.key)
    assert c.admission.adopt(c.admission.read(party.revocations()))
    b.comes(1)
    c.hears_view_of(b)
    assert c.view.actives() == [c.roster.number(b.key)]
    assert c.roster.strangers == 0, "b does not know yet, which is no lie"
    b.view.learn(b.roster.number(a.key), EXPELLED)
    payload = wire.encode(ViewReply(b.view.snapshot()), b.roster)
    assert a.key not in payload, "that is the authority's word, and travels as its list"


def test_of_a_key_that_ran_out_it_is_believed_that_it_left(ends: list[End], party: Party) -> None:
    a, b, c = ends
    b.hears(a, a.comes(1))
    c.admission.list.nodes[a.key] = c.admission.list.nodes[a.key]._replace(until_s=1.0)
    c.hears_view_of(b)
    assert len(c.roster) == 1
    b.hears(a, a.goes(2))
    c.hears_view_of(b)
    assert c.knows(a)[0] == event_number(2, LEFT)


def test_a_view_that_waited_is_told_with_what_is_known_by_now(ends: list[End]) -> None:
    """It waits for a disk, for instance, while the roster goes on: the old proof is gone."""
    a, b, c = ends
    b.hears(a, a.comes(1, 70))
    waiting = ViewReply(b.view.snapshot())
    b.hears(a, a.comes(2, 80, THERE))
    c.hears(b, waiting)
    assert c.knows(a) == (event_number(2, JOINED), 80, THERE)


def test_who_cannot_be_reached_any_more_can_still_prove_that_it_is_there(ends: list[End]) -> None:
    a, b, c = ends
    b.hears(a, a.comes(1))
    b.hears(a, a.comes(2, address=NO_ADDRESS))
    c.hears_view_of(b)
    assert c.knows(a) == (event_number(2, JOINED), 100, NO_ADDRESS)


def test_an_event_that_its_owner_forgot_comes_back_with_its_proof(ends: list[End]) -> None:
    a, b, _ = ends
    b.hears(a, a.comes(7))
    again = End(a.admission)
    again.comes(1)
    assert not again.roster.is_own(0, event_number(7, JOINED)), "a number alone proves nothing"
    again.hears_view_of(b)
    assert again.roster.is_own(0, event_number(7, JOINED))
    assert again.view.event_of(0) == event_number(7, JOINED)


def test_proofs_survive_a_restart(ends: list[End], tmp_path: Path) -> None:
    a, b, c = ends
    b.hears(a, a.comes(3, 70))
    store = Store(tmp_path / "b", b.roster, on_error=lambda error: None)
    store.save_counter(1, b.view.snapshot(), 5).result()
    store.close()
    again = End(b.admission)
    saved = Store(tmp_path / "b", again.roster, on_error=lambda error: None).view()
    assert saved is not None
    again.view.merge(saved)
    c.hears_view_of(again)
    assert c.knows(a) == (event_number(3, JOINED), 70, HERE)


def test_a_view_of_as_many_nodes_as_are_remembered_fits_a_frame() -> None:
    limits = Limits()
    events = np.full(limits.max_nodes, 5, np.uint32)
    view = Snapshot(events, events, is_signed=True)
    assert wire.frame_bytes(ViewReply(view)) + 1000 < limits.max_frame_bytes
