"""Carries out the faults of a plan: switches the weather, and makes nodes come and go."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TypeVar

from plexus.protocol.api import BandwidthMeasured
from plexus.protocol.messages import NodeId
from plexus.storm.network import OF_THE_NETWORK, Weather
from plexus.storm.nodes import Make
from plexus.storm.plan import Churn, Collapse, Fault, Flapping, Partition, Plan, PowerCut, Remeasured, Skew
from plexus.storm.runtime import StormRuntime

F = TypeVar("F", bound=Fault)


class Script:
    def __init__(self, plan: Plan, runtime: StormRuntime, make: Make, weather: Weather, rng: Random) -> None:
        self._plan = plan
        self._runtime = runtime
        self._at = runtime.call_at
        self._make = make
        self._weather = weather
        self._rng = rng
        self._lives = [0] * plan.nodes

    def begin(self) -> None:
        for node in range(self._plan.at_start, self._plan.nodes):
            if self._rng.random() < 0.7:
                self._at(self._rng.random() * self._plan.storm_s, partial(self._come, node))
        for fault in self._plan.faults:
            match fault:
                case Skew():
                    self._skew(fault)
                case Churn():
                    self._every(fault, fault.mean_s / self._plan.nodes, self._churn)
                case PowerCut():
                    self._every(fault, fault.mean_s, self._doom)
                case Remeasured():
                    self._every(fault, fault.mean_s, self._remeasure)
                case Flapping():
                    for node in sorted(fault.nodes):
                        self._at(fault.from_s, partial(self._flap, fault, node))
                case Collapse():
                    self._at(fault.from_s, partial(self._resize, fault, fault.factor))
                    self._at(fault.until_s, partial(self._resize, fault, 1.0))
            if isinstance(fault, OF_THE_NETWORK):
                self._at(fault.from_s, partial(self._begin_weather, fault))
                self._at(fault.until_s, partial(self._weather.end, fault))

    def heal(self) -> None:
        """The storm is over: everybody comes back but those who are gone for good."""
        runtime, plan = self._runtime, self._plan
        runtime.doomed.clear()
        for node in range(plan.nodes):
            if node >= plan.nodes - plan.gone:
                runtime.crash(node)
            elif not runtime.online[node]:
                self._come(node)

    def _every(self, fault: F, mean_s: float, action: Callable[[F], None]) -> None:
        def act(is_first: bool) -> None:
            if not is_first:
                action(fault)
            next_s = self._runtime.kernel.now + self._rng.expovariate(1 / mean_s)
            if next_s < fault.until_s:
                self._at(next_s, partial(act, False))

        self._at(fault.from_s, partial(act, True))

    def _begin_weather(self, fault: Fault) -> None:
        self._weather.begin(fault)
        if isinstance(fault, Partition):
            self._runtime.network.cut_parted()

    def _skew(self, fault: Skew) -> None:
        for node in sorted(fault.nodes):
            observed = self._runtime.nodes[node]
            observed.offset_s = fault.offset_s * self._rng.random()
            observed.drift = fault.drift * self._rng.uniform(-1, 1)

    def _resize(self, fault: Collapse, factor: float) -> None:
        for node in sorted(fault.nodes):
            self._runtime.network.resize(node, factor)

    def _churn(self, fault: Churn) -> None:
        node = self._rng.randrange(self._plan.nodes)
        if not self._runtime.online[node]:
            self._come(node, fault)
        else:
            self._go(node, graceful=self._rng.random() < fault.leave_share)

    def _flap(self, fault: Flapping, node: NodeId) -> None:
        runtime = self._runtime
        if runtime.kernel.now >= fault.until_s:
            return
        if runtime.online[node]:
            self._go(node, fault.graceful)
            wait_s = fault.down_s
        else:
            self._come(node)
            wait_s = fault.up_s
        self._at(runtime.kernel.now + wait_s * self._rng.uniform(0.5, 1.5), partial(self._flap, fault, node))

    def _doom(self, _: PowerCut) -> None:
        """The power fails while the node carries out what it next decides."""
        node = self._rng.randrange(self._plan.nodes)
        if self._runtime.online[node]:
            self._runtime.doomed[node] = self._rng.randrange(4)

    def _remeasure(self, _: Remeasured) -> None:
        node = self._rng.randrange(self._plan.nodes)
        measured = BandwidthMeasured(self._rng.randint(1, 2**32 - 1))
        self._runtime.kernel.at(self._runtime.kernel.now, node, measured)

    def _go(self, node: NodeId, graceful: bool) -> None:
        self._runtime.show("noted", node, "leaves" if graceful else "crashes")
        go = self._runtime.leave if graceful else self._runtime.crash
        go(node)

    def _come(self, node: NodeId, fault: Churn | None = None) -> None:
        """As the same process, or as a new one that finds its disk, old or lost."""
        if self._runtime.online[node]:
            return
        rng = self._rng
        if fault is not None and rng.random() < fault.restart_share:
            self._restart(node, lost=rng.random() < fault.disk_lost_share)
        else:
            self._runtime.show("noted", node, "comes online")
        self._runtime.bring_online(node)

    def _restart(self, node: NodeId, lost: bool) -> None:
        disk = self._runtime.disks[node]
        if lost:
            disk = self._runtime.disks[node] = type(disk)()
        self._lives[node] += 1
        durable = disk.read(lagging=self._rng.random() < 0.3)
        self._runtime.nodes[node].node = self._make(node, self._lives[node], durable)
        self._runtime.show("noted", node, "starts again, its disk is lost" if lost else "starts again")
        self._runtime.show("restarted", node, lost)
