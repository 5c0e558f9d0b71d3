"""`shared`: each link splits its capacity equally among its flows; a flow gets the lesser share.

What a flow cannot use of one share, because its other share is smaller, stays unused. In return a
change is local: when flows start or stop, only the flows on the very same links can change, and of
these only the ones that the link limits.
"""

from __future__ import annotations

from collections.abc import Sequence

from plexus.sim.sharing.links import Flow, Sharing


class Shared(Sharing):
    """Equal split per link, the lesser of the two shares."""

    def start(self, flows: Sequence[Flow], now: float) -> list[Flow]:
        touched = self._attach(flows, now)
        for link in touched:
            link.share_bytes_per_s = link.capacity_bytes_per_s / len(link.flows)
        changed: list[Flow] = []
        for link in touched:
            share = link.share_bytes_per_s
            # Shares only fell: a flow that has no more than this one is limited elsewhere.
            for flow in link.flows:
                if flow.rate_bytes_per_s > share:
                    flow.change_rate(_lesser_share(flow), now)
                    changed.append(flow)
        for flow in flows:
            flow.change_rate(_lesser_share(flow), now)
        changed.extend(flows)
        return changed

    def stop(self, flows: Sequence[Flow], now: float) -> list[Flow]:
        touched = [(link, link.share_bytes_per_s) for link in self._detach(flows, now)]
        for link, _ in touched:
            link.share_bytes_per_s = link.capacity_bytes_per_s / (len(link.flows) or 1)
        changed: list[Flow] = []
        for link, share_before in touched:
            # Shares only rose: a flow that had less than this link's share is limited elsewhere.
            for flow in link.flows:
                if flow.rate_bytes_per_s == share_before:
                    rate = _lesser_share(flow)
                    if rate != share_before:
                        flow.change_rate(rate, now)
                        changed.append(flow)
        return changed


def _lesser_share(flow: Flow) -> float:
    up, down = flow.up.share_bytes_per_s, flow.down.share_bytes_per_s
    return up if up < down else down
