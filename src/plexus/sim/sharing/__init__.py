"""How concurrent transfers share the up and down links of the nodes: three rules, one interface."""

from __future__ import annotations

from plexus.sim.sharing.fair import Fair
from plexus.sim.sharing.fifo import Fifo
from plexus.sim.sharing.links import Flow, Link, Sharing
from plexus.sim.sharing.shared import Shared

RULES: dict[str, type[Sharing]] = {"shared": Shared, "fair": Fair, "fifo": Fifo}
"""The rules by the name a spec gives them."""

__all__ = ["RULES", "Fair", "Fifo", "Flow", "Link", "Shared", "Sharing"]
