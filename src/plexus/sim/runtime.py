"""Performs the effects of all nodes in virtual time: the simulator's half of the contract in `api`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from plexus.protocol import api
from plexus.protocol.api import Effect, Event, Received, Send, SetTimer, TimerFired, TimerKey, Trained
from plexus.protocol.messages import Model, NodeId
from plexus.rng import stream
from plexus.sim.kernel import Kernel, Token
from plexus.sim.many import Mail, Unmade
from plexus.sim.network import INTERNAL, Accounts, Network, Observer
from plexus.sim.sharing import RULES

if TYPE_CHECKING:
    from plexus.sim.session import Nodes, Setting


class Models(Protocol):
    """What the simulator needs of learning. It never looks inside a model."""

    model_bytes: int

    def train(self, model: Model, node: NodeId, round: int) -> Model: ...
    def mean(
        self,
        models: Sequence[Model],
        samples: Sequence[int],
        changes: Sequence[api.Change] = (),
        change_samples: Sequence[int] = (),
    ) -> Model: ...
    def merge(self, models: Sequence[Model], weights: Sequence[float]) -> Model: ...
    def samples(self, node: NodeId) -> int: ...


OnFact = Callable[[float, NodeId, Any], None]


class Runtime:
    """Nodes, their devices and the network between them."""

    network_type: type[Network] = Network
    """What carries messages; another one where faults are simulated (see `storm`)."""

    def __init__(
        self, setting: Setting, taking_part: Nodes, observe: OnFact, observer: Observer | None = None
    ) -> None:
        nodes, world, models = taking_part.nodes, taking_part.world, setting.models
        sharing = RULES[setting.sharing](
            [device.up_bytes_per_s for device in world.devices],
            [device.down_bytes_per_s for device in world.devices],
        )
        self._observer = observer
        self.kernel = Kernel(self._deliver)
        self.accounts = Accounts(len(nodes))
        self._received_bytes = self.accounts.received_bytes
        self.online: list[bool] = [False] * len(nodes)
        self.online_count = 0
        self.network = self.network_type(
            self.kernel, world.latency, sharing, models.model_bytes, self.online, self.accounts, observer
        )
        self._send = self.network.send
        self.nodes = nodes
        if isinstance(nodes[0], Unmade) or hasattr(nodes[0], "heeds"):
            longest_s = float(world.latency.matrix_s.max())
            self.network.mail = Mail(self.kernel, nodes, self.online, self.network.delay_s, longest_s)
        self._mail = self.network.mail
        self._models = models
        self._training_s = setting.training_s
        self._observe = observe
        self._leave_rng = stream(setting.seed, "leaves")
        self._graceful_share = setting.graceful_share
        self._timers: list[dict[TimerKey, Token]] = [{} for _ in nodes]
        self._training: dict[NodeId, tuple[Token, float]] = {}
        self._perform_one: dict[type[Effect], Callable[[NodeId, Any], None]] = {
            SetTimer: self._set_timer,
            api.CancelTimer: self._cancel_timer,
            api.Train: self._train,
            api.Collect: self._collect,
            api.Aggregate: self._aggregate,
            api.Merge: self._merge,
            api.StopSending: lambda node, _: self.network.cut_sends(node),
            api.Save: self._save,
            api.Report: self._report,
        }
        for node in range(len(nodes)):
            self._schedule_toggle(node, world.availability.toggles(node))

    def run(self, until_s: float) -> None:
        self.kernel.run(until_s)
        if self._mail is not None:  # whoever looks at nodes and accounts now finds nothing unread
            for node in [node for node, box in enumerate(self._mail.boxes) if box]:
                self._received_bytes[node] += self._mail.read(node)

    def call_at(self, time_s: float, action: Callable[[], None]) -> None:
        """Do something to the simulated world at `time_s`: an evaluation, a fault."""
        self.kernel.at(time_s, INTERNAL, action)

    def tell(self, node: NodeId, event: Event) -> None:
        """Let a node know something at once, if it is online."""
        self.kernel.at(self.kernel.now, node, event)

    # Coming and going

    def bring_online(self, node: NodeId) -> None:
        if not self.online[node]:
            self.online[node] = True
            self.online_count += 1
            if self._observer is not None:
                self._observer.presence(self.kernel.now, node, True)
            self._handle(node, api.WentOnline())

    def leave(self, node: NodeId) -> None:
        """Graceful: the node sends its last messages, then everything it had under way stops."""
        if self.online[node]:
            self._handle(node, api.WentOffline())
            self.crash(node)

    def crash(self, node: NodeId) -> None:
        """The node is gone from one instant to the next."""
        if not self.online[node]:
            return
        self.online[node] = False
        self.online_count -= 1
        for token in self._timers[node].values():
            self.kernel.cancel(token)
        self._timers[node].clear()
        self._stop_training(node)
        self.network.cut(node)
        if self._mail is not None:
            self._received_bytes[node] += self._mail.read(node)
            self._mail.forget(node)
        if self._observer is not None:
            self._observer.presence(self.kernel.now, node, False)

    def _schedule_toggle(self, node: NodeId, toggles: Iterator[tuple[float, bool]]) -> None:
        change = next(toggles, None)
        if change is not None:
            time_s, online = change
            self.call_at(time_s, partial(self._toggle, node, online, toggles))

    def _toggle(self, node: NodeId, online: bool, toggles: Iterator[tuple[float, bool]]) -> None:
        if online:
            self.bring_online(node)
        elif self._graceful_share >= 1 or self._leave_rng.random() < self._graceful_share:
            self.leave(node)
        else:
            self.crash(node)
        self._schedule_toggle(node, toggles)

    # For whoever looks on

    def timers_of(self, node: NodeId) -> Collection[TimerKey]:
        """What the node waits for."""
        return self._timers[node].keys()

    def is_training(self, node: NodeId) -> bool:
        return node in self._training

    # Events in, effects out

    def _deliver(self, target: int, event: Any) -> None:
        if type(event) is Received:  # most are
            if not self.online[target]:
                self.accounts.lose(1, event.size_bytes)
                return
            self._received_bytes[target] += event.size_bytes
        elif not self._is_told(target, event):
            return
        if self._mail is not None and self._mail.boxes[target]:
            self._received_bytes[target] += self._mail.read(target)
        effects = self.nodes[target].handle(self.kernel.now, event)
        if effects:
            self._perform(target, effects)

    _handle = _deliver  # of what does not come from the kernel

    def _is_told(self, target: int, event: Any) -> bool:
        if target == INTERNAL:
            event()
            return False
        if type(event) is TimerFired:
            del self._timers[target][event.key]
        elif type(event) is Trained:
            self.accounts.training_s[target] += self._training_s(target)
            self.accounts.trainings[target] += 1
            del self._training[target]
            if self._observer is not None:
                self._observer.training_ended(self.kernel.now, target, True)
        return self.online[target]

    def _perform(self, node: NodeId, effects: list[Effect]) -> None:
        only_sends = True
        for effect in effects:
            if type(effect) is Send:  # most are
                self._send(node, effect.to, effect.body)
            else:
                only_sends = False
                self._perform_one[type(effect)](node, effect)
        if not only_sends and self._mail is not None and self.online[node]:  # else it heeds whom it did
            self._mail.look_after(node)

    def _set_timer(self, node: NodeId, effect: SetTimer) -> None:
        timers = self._timers[node]
        old = timers.get(effect.key)
        if old is not None:
            self.kernel.cancel(old)
        due_s = self.kernel.now + effect.delay_s
        timers[effect.key] = self.kernel.at(due_s, node, TimerFired(effect.key))

    def _cancel_timer(self, node: NodeId, effect: api.CancelTimer) -> None:
        token = self._timers[node].pop(effect.key, None)
        if token is not None:
            self.kernel.cancel(token)

    def _train(self, node: NodeId, effect: api.Train) -> None:
        self._stop_training(node)
        model = self._models.train(effect.model, node, effect.round)
        trained = Trained(effect.round, model, self._models.samples(node))
        now = self.kernel.now
        token = self.kernel.at(now + self._training_s(node), node, trained)
        self._training[node] = (token, now)
        if self._observer is not None:
            self._observer.training_began(now, node, effect.round)

    def _stop_training(self, node: NodeId) -> None:
        """Interrupt: the time already spent was spent, the result is never sent."""
        under_way = self._training.pop(node, None)
        if under_way is not None:
            token, since_s = under_way
            self.kernel.cancel(token)
            self.accounts.training_s[node] += self.kernel.now - since_s
            if self._observer is not None:
                self._observer.training_ended(self.kernel.now, node, False)

    def _collect(self, node: NodeId, effect: api.Collect) -> None:
        """Nothing to do: what is to be aggregated comes with `Aggregate`."""

    def _aggregate(self, node: NodeId, effect: api.Aggregate) -> None:
        model = self._models.mean(effect.models, effect.samples, effect.changes, effect.change_samples)
        self.kernel.at(self.kernel.now, node, api.Aggregated(effect.round, model))

    def _merge(self, node: NodeId, effect: api.Merge) -> None:
        model = self._models.merge(effect.models, effect.weights)
        self.kernel.at(self.kernel.now, node, api.Aggregated(effect.round, model))

    def _save(self, node: NodeId, effect: api.Save) -> None:
        """Nothing to do: a simulated node keeps its state in memory while it is offline."""

    def _report(self, node: NodeId, effect: api.Report) -> None:
        self._observe(self.kernel.now, node, effect.fact)
