"""gossipy: its simulator with a hub that averages. Clients fetch the average, train by its handler, and push.

gossipy imports torchvision for data sets of its own, which are not used here: an empty module stands for it.
"""

from __future__ import annotations

import logging
import sys
from types import ModuleType

sys.modules.setdefault("torchvision", ModuleType("torchvision"))

import torch  # noqa: E402
from gossipy import CACHE, LOG, set_seed  # noqa: E402
from gossipy.core import AntiEntropyProtocol, Message, MessageType, StaticP2PNetwork  # noqa: E402
from gossipy.data import DataDispatcher  # noqa: E402
from gossipy.data.handler import ClassificationDataHandler  # noqa: E402
from gossipy.model import TorchModel  # noqa: E402
from gossipy.model.handler import TorchModelHandler  # noqa: E402
from gossipy.node import GossipNode  # noqa: E402
from gossipy.simul import GossipSimulator, SimulationEventReceiver  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from benchmarks.league.work import (  # noqa: E402
    BATCH,
    CLASSES,
    CLIENTS,
    HIDDEN,
    LEARNING_RATE,
    PIXELS,
    Clock,
    Weights,
    Work,
    main,
)

HUB = CLIENTS
STEPS_A_ROUND = 2
"""Of the simulator's time: to fetch and train, and to push."""


class Net(TorchModel):
    def __init__(self, initial: dict[str, Tensor]) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(PIXELS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))
        self.layers.load_state_dict(initial)

    def init_weights(self) -> None:
        """As they are."""

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs)


class Client(GossipNode):
    def init_model(self, local_train: bool = False) -> None:
        self.model_handler.init()

    def timed_out(self, t: int) -> bool:
        return True

    def get_peer(self) -> int:
        return HUB

    def send(self, t: int, peer: int, protocol: AntiEntropyProtocol) -> Message:
        is_fetching = t % STEPS_A_ROUND == 0
        return super().send(t, peer, AntiEntropyProtocol.PULL if is_fetching else AntiEntropyProtocol.PUSH)

    def receive(self, t: int, msg: Message) -> None:
        """The average: where training begins. The ten that fetch it share one object, so it is copied."""
        average = CACHE.pop(msg.value[0])
        self.model_handler.model.load_state_dict(average.model.state_dict())
        self.model_handler._update(self.data[0])


class Hub(Client):
    def timed_out(self, t: int) -> bool:
        return False

    def receive(self, t: int, msg: Message) -> Message | None:
        if msg.type == MessageType.PULL:
            return GossipNode.receive(self, t, msg)
        self.received = [*getattr(self, "received", []), CACHE.pop(msg.value[0])]
        if len(self.received) == CLIENTS:
            # Its merge averages with the own model, which therefore becomes the first of the ten.
            first, *others = self.received
            self.model_handler.model.load_state_dict(first.model.state_dict())
            self.model_handler._merge(others)
            self.received = []
        return None


class Marks(SimulationEventReceiver):
    def __init__(self, clock: Clock, done: int = 0) -> None:
        self.clock, self.done = clock, done

    def update_message(self, failed: bool, msg: Message | None = None) -> None: ...

    def update_end(self) -> None: ...

    def update_timestep(self, t: int) -> None:
        if t % STEPS_A_ROUND == STEPS_A_ROUND - 1:
            self.done += 1
            self.clock.round_done(self.done)


def set_up(work: Work) -> GossipSimulator:
    torch.set_num_threads(1)
    LOG.setLevel(logging.WARNING)
    set_seed(work.seed)
    inputs = torch.from_numpy(work.inputs.reshape(-1, PIXELS))
    data = ClassificationDataHandler(inputs, torch.from_numpy(work.targets.reshape(-1)), test_size=0)
    dispatcher = DataDispatcher(data, CLIENTS, eval_on_user=False, auto_assign=False)
    dispatcher.set_assignments(torch.arange(len(inputs)).reshape(CLIENTS, -1).tolist(), None)
    initial = {name: torch.from_numpy(array) for name, array in work.initial.items()}
    handler = TorchModelHandler(
        Net(initial),
        torch.optim.SGD,
        {"lr": LEARNING_RATE},
        nn.functional.cross_entropy,
        local_epochs=1,
        batch_size=BATCH,
    )
    network = StaticP2PNetwork(CLIENTS + 1)
    nodes: dict[int, GossipNode] = {
        number: Client(number, dispatcher[number], STEPS_A_ROUND, handler.copy(), network)
        for number in range(CLIENTS)
    }
    nodes[HUB] = Hub(HUB, (None, None), STEPS_A_ROUND, handler.copy(), network)
    simulator = GossipSimulator(nodes, dispatcher, STEPS_A_ROUND, AntiEntropyProtocol.PUSH)
    simulator.init_nodes(work.seed)
    return simulator


def weights_of(simulator: GossipSimulator) -> Weights:
    state = simulator.nodes[HUB].model_handler.model.layers.state_dict()
    return {name: tensor.numpy() for name, tensor in state.items()}


def learn(work: Work, clock: Clock) -> Weights:
    simulator = set_up(work)
    simulator.add_receiver(Marks(clock))
    simulator.start(n_rounds=work.rounds)
    return weights_of(simulator)


if __name__ == "__main__":
    main(learn, "gossipy-dfl", "torch")
