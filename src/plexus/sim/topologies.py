"""The topology that a spec asks for."""

from __future__ import annotations

from plexus.errors import PlexusError
from plexus.protocol.baselines.dpsgd import DpsgdParameters
from plexus.protocol.baselines.topology import (
    FullyConnected,
    Graph,
    OnePeerExponential,
    Topology,
    random_regular,
    ring,
)
from plexus.rng import stream
from plexus.sim.edges import parse_graph
from plexus.sim.session import Setting


def build_topology(parameters: DpsgdParameters, setting: Setting) -> Topology:
    """The same for the same parameters, number of nodes and seed."""
    nodes = len(setting.world)
    match parameters.topology:
        case "one-peer-exponential":
            return OnePeerExponential(nodes)
        case "ring":
            return ring(nodes)
        case "full":
            return FullyConnected(nodes)
        case "regular":
            try:
                return random_regular(nodes, parameters.degree, stream(setting.seed, "topology"))
            except ValueError as error:
                raise PlexusError(f"protocol.degree: {error}") from None
        case "file":
            return _read(parameters, setting)


def _read(parameters: DpsgdParameters, setting: Setting) -> Graph:
    assert parameters.topology_file is not None, "checked with the parameters"
    path = setting.base_dir / parameters.topology_file
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise PlexusError(f"protocol.topology_file: {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise PlexusError(f"{path}: not UTF-8 text (byte {error.start})") from None
    try:
        return parse_graph(text, parameters.topology_format, len(setting.world))
    except ValueError as error:
        raise PlexusError(f"{path}: {error}") from None
