"""The kit for whoever writes a protocol, used on the one of docs/write-a-protocol.md."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from plexus import ModelUpdated
from plexus.protocol.api import Aggregate, Change
from plexus.testing import Conversation, Exchange, TalkingExchange, placed

SCRIPT = """# Both train, each as fast as it can, and tell the other.

nodes 2 training_s=10,20
online 0 1
run until 1 tells
----
    0.00  0 1 online
   19.18  1 timeout: pause
   19.18  1 merges m0 in round 0
   19.18  1 trains m0@1 in round 1
   25.52  0 timeout: pause
   25.52  0 merges m0 in round 0
   25.52  0 trains m0@0 in round 1
   35.52  0 has trained m0@0>0 in round 1
   35.52  0 tells
   36.52  0 → 1: whisper m0@0>0
   39.18  1 has trained m0@1>1 in round 1
   39.18  1 tells
"""


@pytest.fixture
def whisper(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    sys.modules.pop("whisper", None)
    import whisper

    return whisper


class Whispering(TalkingExchange):
    def fact(self, fact: Any) -> str:
        return "tells"


def test_a_crashed_node_is_silent_and_its_transfers_are_cut(whisper: Any) -> None:
    session = Exchange(3, placed(whisper.WhisperNode, 3, whisper.WhisperParameters()), model_s=50.0)
    session.go_online(0, 1, 2)
    session.run_until(lambda: any(node == 2 for _, node, _ in session.of(ModelUpdated)))
    told_s = session.now
    session.crash(2)
    session.run(told_s + 60.0)
    assert not [src for now, src, _, _ in session.messages if src == 2 and now > told_s]
    assert [src for now, src, _, _ in session.messages if now > told_s]


def test_a_conversation_is_written_down(whisper: Any) -> None:
    def start(n: int, **network: Any) -> TalkingExchange:
        return Whispering(n, placed(whisper.WhisperNode, n, whisper.WhisperParameters(fanout=1)), **network)

    assert Conversation(start).rewritten(SCRIPT) == SCRIPT


def test_what_a_script_loses_does_not_arrive(whisper: Any) -> None:
    def start(n: int, **network: Any) -> TalkingExchange:
        return Whispering(n, placed(whisper.WhisperNode, n, whisper.WhisperParameters(fanout=1)), **network)

    lost = "nodes 2\nonline 0 1\nlose whisper 0 -> 1\nrun until lost\n----\n"
    printed = Conversation(start).rewritten(lost)
    assert "0 → 1: whisper m0@0>0 — lost" in printed


def test_an_aggregate_of_models_and_changes_is_told() -> None:
    effect = Aggregate(3, ("m2>0", "m2>1"), (10, 10), (Change("m1>4", "m1"),), (10,))
    made = TalkingExchange(1, lambda me, durable: None)._sentence(effect)
    assert made == "aggregates round 3 of m2>0 + m2>1 + (m1>4 - m1)"


def test_a_session_that_stands_still_fails() -> None:
    class Mute:
        def handle(self, now: float, event: Any) -> list[Any]:
            return []

    session = Exchange(2, lambda me, durable: Mute())
    session.go_online(0, 1)
    with pytest.raises(AssertionError, match="nothing will ever happen again"):
        session.run_until(lambda: bool(session.facts))
