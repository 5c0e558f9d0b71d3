"""What the nodes of a session believe about each other, seen from outside."""

from __future__ import annotations

from plexus.protocol.membership import Membership
from plexus.sim.runtime import Runtime


def believed_online(runtime: Runtime) -> list[int]:
    """By each node online that has a view: how many nodes are online according to it."""
    memberships = (
        getattr(node, "membership", None)
        for node, online in zip(runtime.nodes, runtime.online, strict=True)
        if online
    )
    return [known.view.online_count() for known in memberships if isinstance(known, Membership)]
