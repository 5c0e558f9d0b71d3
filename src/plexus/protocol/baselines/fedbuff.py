"""FedBuff: asynchronous training with a server that buffers what clients changed (Nguyen et al., 2022).

The same ideal server as federated averaging has, without rounds: a number of clients train at any time, each
the model that was newest when it was asked. As soon as enough changes are there the server adds their mean,
scaled, and that is the next version of the model. Whoever is done or gone is replaced at once.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from msgspec import Meta

from plexus.protocol.api import Merge
from plexus.protocol.baselines.fedavg import Server, ServerParameters
from plexus.protocol.machine import to
from plexus.protocol.messages import ClientModel, GlobalModel, Joined, Left, Model, NodeId
from plexus.protocol.parameters import require_duration


class FedbuffParameters(ServerParameters, frozen=True):
    """FedBuff with an ideal server: clients train all the time, each what was the newest model when it was
    asked, and the server adds up what they change, so many changes at a time."""

    concurrency: Annotated[int, Meta(ge=1)] = 13
    """How many clients train at any time; with fewer online, all of them."""

    buffer_size: Annotated[int, Meta(ge=1)] = 10
    """K: how many changes make a new version of the model."""

    server_learning_rate: Annotated[float, Meta(gt=0)] = 1.0
    """What the mean of the changes is multiplied by."""

    scale_stale: bool = True
    """Whether a change counts 1 / √(1 + τ), τ being how many versions were made since the one that it began
    with; else all count the same."""

    client_timeout_s: float = 300.0
    """A client that has not answered for so long is replaced by another, in seconds. What it sends later
    counts nevertheless."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_duration("client_timeout_s", self.client_timeout_s)


class Asked(NamedTuple):
    """What a client was asked to train: a model, and which version that is."""

    version: int
    base: Model


class FedbuffServer(Server):
    """Keeps clients busy, and the models that they began with until they answer."""

    _on_timeout = Server._on_timeout | {"client": to("_on_silence")}

    def __init__(self, me: NodeId, parameters: FedbuffParameters, *rest: Any, **more: Any) -> None:
        super().__init__(me, parameters, *rest, **more)
        self._parameters = parameters
        self._is_begun = False
        self._asked: dict[NodeId, Asked] = {}
        self._training: set[NodeId] = set()
        """Those asked who have not been given up."""
        self._buffer: list[tuple[Asked, Model]] = []
        self._first_at = 0.0

    # Clients

    def _on_joined(self, src: NodeId, joined: Joined) -> None:
        self._release(src)  # it was gone meanwhile, and what it trained with it
        super()._on_joined(src, joined)

    def _on_left(self, src: NodeId, left: Left) -> None:
        super()._on_left(src, left)
        self._release(src)
        self._fill()

    def _heard_of(self, client: NodeId) -> None:
        super()._heard_of(client)
        self._fill()

    def _on_silence(self, client: NodeId) -> None:
        self._training.discard(client)
        self._silent.add(client)
        self._fill()

    def _release(self, client: NodeId) -> None:
        if self._asked.pop(client, None) is not None and client in self._training:
            self._training.remove(client)
            self.cancel_timer(("client", client))

    def _fill(self) -> None:
        """Ask others to train the newest model, until as many do as may."""
        if not self._is_begun or self._is_aggregating:  # soon there is a newer one
            return
        free = [client for client in self._clients() if client not in self._training]
        missing = min(len(free), self._parameters.concurrency - len(self._training))
        drawn = tuple(self._rng.sample(free, missing))
        self.send(drawn, GlobalModel(self.k, self.model))
        for client in drawn:
            self._training.add(client)
            self._asked[client] = Asked(self.k, self.model)
            self.set_timer(("client", client), self._parameters.client_timeout_s)

    # Versions of the model

    def _begin(self) -> None:
        self._is_begun = True
        self._merge_if_enough()
        self._fill()

    def _on_model(self, src: NodeId, body: ClientModel) -> None:
        asked = self._asked.get(src)
        if asked is not None and asked.version == body.round:
            self._release(src)
            if not self._buffer:
                self._first_at = self.now
            self._buffer.append((asked, body.model))
            self._merge_if_enough()
        self._heard_of(src)

    def _merge_if_enough(self) -> None:
        """x + η/K · Σ s(τᵢ) · (trainedᵢ - baseᵢ), as a mean whose weights sum to 1."""
        size = self._parameters.buffer_size
        if self._is_aggregating or len(self._buffer) < size:
            return
        self._is_aggregating = True
        models, weights = [self.model], [1.0]
        for asked, trained in self._buffer[:size]:
            scale = (1 + self.k - asked.version) ** -0.5 if self._parameters.scale_stale else 1.0
            weight = self._parameters.server_learning_rate / size * scale
            models += [trained, asked.base]
            weights += [weight, -weight]
        del self._buffer[:size]
        self.outbox.append(Merge(self.k + 1, tuple(models), tuple(weights)))

    def _outcome(self) -> dict[str, Any]:
        size = self._parameters.buffer_size
        waited_s = self.now - self._first_at
        self._first_at = self.now
        return {"models": size, "participants": size, "timed_out": False, "waited_s": waited_s}
