"""Whisper: train, tell a few others at random, average what one heard, train again."""

from typing import Any

from msgspec import Struct

import plexus


class WhisperParameters(Struct, frozen=True, forbid_unknown_fields=True):
    fanout: int = 3
    pause_s: float = 30.0


class Whisper(plexus.Message, frozen=True):
    model: Any  # a field of this name travels over the devices' links, as large as the model is


class WhisperNode:
    def __init__(self, place: plexus.Place) -> None:
        self.parameters, self.rng = place.parameters, place.rng
        self.others = [node for node in range(place.nodes) if node != place.me]
        self.round, self.model = 0, place.initial_model
        self.heard: list[Any] = []

    def handle(self, now: float, event: Any) -> list[Any]:
        """One event in, a list of effects out: no clock, no socket, no thread."""
        match event:
            case plexus.WentOnline():
                self.heard = []  # what was under way when the device left is gone
                return [self.wait()]
            case plexus.Received(body=Whisper(model=model)):
                self.heard.append(model)
                return []
            case plexus.TimerFired(key=("pause", _)):
                models = (self.model, *self.heard)
                self.heard = []
                return [plexus.Merge(self.round, models, (1 / len(models),) * len(models))]
            case plexus.Aggregated(model=model):
                return [plexus.Train(self.round + 1, model)]
            case plexus.Trained(round=round, model=model):
                self.round, self.model = round, model
                count = min(self.parameters.fanout, len(self.others))
                told = tuple(self.rng.sample(self.others, count))
                updated = plexus.Report(plexus.ModelUpdated(round, model, merged=1))
                return [updated, plexus.Send(told, Whisper(model)), self.wait()]
        return []

    def wait(self) -> plexus.SetTimer:
        return plexus.SetTimer(("pause", 0), self.parameters.pause_s * self.rng.uniform(0.5, 1.5))


whisper = plexus.own_protocol(WhisperNode, WhisperParameters, judged_by="models of nodes")
