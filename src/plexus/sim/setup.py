"""Puts a simulated session together: a setting, the nodes of a protocol, the runtime."""

from __future__ import annotations

from typing import Any

from plexus.sim.registry import PROTOCOLS, Entry
from plexus.sim.runtime import Observer, Runtime
from plexus.sim.session import Cast, Setting, assemble
from plexus.sim.watch import Watch


def simulated_session(
    protocol: str | Entry,
    parameters: Any,
    setting: Setting,
    observe: Observer,
    watch: Watch | None = None,
) -> tuple[Runtime, Cast]:
    """A session of `protocol`, or of the one called that, ready to run."""
    entry = PROTOCOLS[protocol] if isinstance(protocol, str) else protocol
    cast = entry.build(setting, parameters)
    return assemble(setting, cast, observe, watch), cast
