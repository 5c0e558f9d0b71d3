"""The baselines' messages on the wire: they come back as they went, and their size is known before."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plexus.protocol.messages import (
    MODEL_KINDS,
    NAMES,
    ClientModel,
    EpidemicModel,
    GlobalModel,
    GossipModel,
    Message,
    NeighbourModel,
    TokenModel,
)
from plexus.protocol.roster import Roster
from plexus.protocol.view import View
from plexus.protocol.wire import LENGTH_BYTES, decode, encode, frame_bytes

NODES = 40
ROSTER = Roster.simulated(b"session", NODES)
numbers = st.integers(0, 2**40 - 1)
views = st.lists(st.tuples(st.integers(0, NODES - 1), st.integers(0, 2**32 - 1))).map(
    lambda joined: View.of(NODES, joined).snapshot()
)
none = st.none()
ours: st.SearchStrategy[Message] = st.one_of(
    st.builds(GossipModel, numbers, views, none),
    st.builds(NeighbourModel, numbers, none),
    st.builds(EpidemicModel, numbers, views, none),
    st.builds(TokenModel, numbers, numbers, st.integers(0, 1), views, none),
    st.builds(GlobalModel, numbers, none),
    st.builds(ClientModel, numbers, numbers, none),
)


@given(ours, numbers)
def test_a_message_comes_back_as_it_went_and_its_size_is_known_before(body: Any, model_bytes: int) -> None:
    frame = encode(body, ROSTER, model_bytes)
    assert len(frame) == frame_bytes(body, model_bytes)
    assert decode(frame[LENGTH_BYTES:], ROSTER) == (body, model_bytes)


@pytest.mark.parametrize(
    "kind", [GossipModel, NeighbourModel, EpidemicModel, TokenModel, GlobalModel, ClientModel]
)
def test_models_are_accounted_as_models(kind: type[Message]) -> None:
    assert kind in MODEL_KINDS
    assert NAMES[kind] == "model"
