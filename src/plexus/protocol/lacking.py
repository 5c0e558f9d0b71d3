"""What a node tells others of its view: what they lack, where `protocol.views` says so.

Two nodes that have a view in common, and know its name, need not repeat it: what differs is enough. A view
that comes with a model is known to all who train it, so they tell the next aggregator what has changed since.
Who comes online says what it has, and is told the rest. Who is referred to a view that it does not have takes
what it is told, and asks the teller for that view; nothing waits for the answer, since views only grow.
"""

from __future__ import annotations

from plexus.protocol.messages import MOST_NAMES, NAME_BYTES, ViewRequest
from plexus.protocol.roster import Roster
from plexus.protocol.view import Excerpt, Snapshot
from plexus.protocol.wire import UNLISTED, name_of

NEWEST = bytes(NAME_BYTES)
"""What is asked for by who asks for no view in particular."""
KEPT = MOST_NAMES - 2
MOST_SAID = 32
"""Names that a node remembers to have told."""


class Lacking:
    """The views that a node has in common with others."""

    def __init__(self, first: Snapshot, roster: Roster, is_on: bool) -> None:
        """`first` is what the node begins with: others may have begun with the same."""
        self._roster = roster
        self._is_on = is_on
        self.kept = [first]
        self._names: dict[bytes, Snapshot] = {}
        self._said: list[bytes] = []
        """The names in its questions: an answer may refer to a view that it has given up meanwhile."""

    def excerpt(self, view: Snapshot, base: Snapshot | None = None) -> Snapshot:
        """How to tell `view`: all of it, or as it differs from one that came from others."""
        if not self._is_on:
            return view
        is_known = base is not None and self._named.get(base.name) is base
        return Excerpt.of(view, base if is_known else None)

    def ask(self, of: bytes = b"") -> ViewRequest:
        """For the view of this name, or for the newest."""
        if not self._is_on:
            return ViewRequest()
        listing = self._roster.listing or bytes(NAME_BYTES)
        fresh = [name for name in self._named if name not in self._said]
        self._said = [*self._said, *fresh][-MOST_SAID:]
        return ViewRequest(b"".join([listing, of or NEWEST, *self._named]))

    def answer(self, request: ViewRequest, view: Snapshot) -> Snapshot:
        """What somebody lacks of `view`, or the other view that it asks for."""
        kept, asks = self._named, request.asks
        names = [asks[at : at + NAME_BYTES] for at in range(0, len(asks), NAME_BYTES)]
        if not names or names[0] != self._roster.listing:
            return view
        if names[1] in kept:
            return Excerpt(kept[names[1]])
        return Excerpt.of(view, next((kept[name] for name in reversed(names) if name in kept), None))

    def lacks(self, view: Snapshot) -> bool:
        """Whether it refers to one that this node does not have."""
        return isinstance(view, Excerpt) and bool(view.base) and view.base not in self._named

    def has_said(self, view: Snapshot) -> bool:
        """Whether it refers to one that this node said it has, or to one of another list of nodes."""
        return isinstance(view, Excerpt) and view.base in (UNLISTED, *self._said)

    def whole(self, view: Snapshot) -> Snapshot:
        """All that its sender knows; as far as it was told, if it refers to what this node does not have."""
        if not isinstance(view, Excerpt):
            return view
        return view.on(self._named.get(view.base)) if view.base else view.whole

    def keep(self, view: Snapshot) -> None:
        """Others have it too, if it was told as a whole."""
        if isinstance(view, Excerpt) and not view.base:
            others = [each for each in self.kept[1:] if each is not view.whole]
            self.kept = [self.kept[0], *others[2 - KEPT :], view.whole]
            self._names = {}

    @property
    def _named(self) -> dict[bytes, Snapshot]:
        if not self._names:
            self._names = {view.name or name_of(view, self._roster): view for view in self.kept}
            self._names.pop(UNLISTED, None)
        return self._names
