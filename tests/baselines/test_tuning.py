"""The duration of fixed rounds: long enough for 99 % of the transfers of rounds without churn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from plexus.errors import PlexusError
from plexus.protocol.baselines.dpsgd import DpsgdParameters
from plexus.protocol.baselines.epidemic import EpidemicParameters
from plexus.protocol.baselines.teleportation import TeleportationParameters
from plexus.sim import protocols
from plexus.sim.session import Setting, SymbolicModels
from plexus.traces.world import Device, Latency, World, always_online
from tests.sim.kit import TRAINING_S, Session, sessions

BYTES_PER_S = 1e6
LATENCY_S = 0.25
MODEL_BYTES = 2_000_000


def setting(nodes: int, slow: int = 0, training_s: float = TRAINING_S, churn: bool = True) -> Setting:
    """Equal devices, `slow` of which take a minute longer to train."""
    gone = sessions(*[[(0.0, 50.0)]] * nodes)
    world = World(
        [Device(20.0, BYTES_PER_S, BYTES_PER_S)] * nodes,
        gone if churn else always_online(nodes),
        Latency(np.full((1, 1), LATENCY_S), np.zeros(nodes, np.intp)),
    )
    return Setting(
        world=world,
        models=SymbolicModels(MODEL_BYTES),
        initial_model=None,
        training_s=lambda node: training_s + 60 * (node < slow),
        seed=1,
        base_dir=Path(),
    )


def tuned_s(setting: Setting, **parameters: object) -> float:
    tuning = protocols.dpsgd(setting, DpsgdParameters(**parameters)).tuning  # type: ignore[arg-type]
    assert tuning is not None
    return tuning.round_duration_s


def test_equal_devices_need_the_time_to_train_and_to_send() -> None:
    """A model takes 2 s alone; in the ring each link carries two, so 4 s. Frames add some bytes."""
    assert tuned_s(setting(8)) == pytest.approx(TRAINING_S + 2 + LATENCY_S, abs=0.11)
    assert tuned_s(setting(8), topology="ring") == pytest.approx(TRAINING_S + 4 + LATENCY_S, abs=0.11)


def test_the_duration_is_rounded_up_to_a_tenth_of_a_second() -> None:
    duration_s = tuned_s(setting(8))
    assert duration_s > TRAINING_S + 2 + LATENCY_S
    assert round(duration_s, 1) == duration_s


def test_a_hundredth_of_slow_transfers_is_not_waited_for_but_more_are() -> None:
    quick_s, slow_s = TRAINING_S + 2 + LATENCY_S, TRAINING_S + 62 + LATENCY_S
    assert tuned_s(setting(100, slow=1)) == pytest.approx(quick_s, abs=0.11)
    assert tuned_s(setting(100, slow=2)) == pytest.approx(slow_s, abs=0.11)
    assert tuned_s(setting(100, slow=1), transfers_complete=1.0) == pytest.approx(slow_s, abs=0.11)
    assert tuned_s(setting(100, slow=40), transfers_complete=0.6) == pytest.approx(quick_s, abs=0.11)


def test_what_was_measured_is_reported() -> None:
    tuning = protocols.dpsgd(setting(100, slow=1), DpsgdParameters()).tuning
    assert tuning is not None
    assert (tuning.transfers, tuning.complete) == (100 * 7, 0.99)
    assert tuning.slowest_s == pytest.approx(TRAINING_S + 62 + LATENCY_S, abs=0.11)


def test_nothing_is_tuned_without_churn_or_when_the_duration_is_given() -> None:
    assert protocols.dpsgd(setting(8, churn=False), DpsgdParameters()).tuning is None
    assert protocols.dpsgd(setting(8), DpsgdParameters(round_duration_s=30.0)).tuning is None


def test_epidemic_learning_is_tuned_with_its_own_traffic() -> None:
    tuning = protocols.epidemic(setting(20), EpidemicParameters(fanout=4)).tuning
    assert tuning is not None
    assert tuning.transfers == 5 * 20 * 4
    assert tuning.round_duration_s > TRAINING_S + 8, "four models share the sender's link"


def test_teleportation_is_tuned_with_its_own_traffic() -> None:
    tuning = protocols.teleportation(setting(20), TeleportationParameters(active=4)).tuning
    assert tuning is not None
    assert tuning.transfers <= 10 * 4 * 2, "two models for each active node, and none from a node to itself"
    handed_s, exchanged_s, asked_s = 2 + LATENCY_S, 2 + LATENCY_S, 2 * LATENCY_S
    assert tuning.round_duration_s >= handed_s + TRAINING_S + exchanged_s
    assert tuning.round_duration_s <= asked_s + handed_s + TRAINING_S + exchanged_s + 0.2


def test_a_node_alone_needs_the_time_to_train() -> None:
    assert tuned_s(setting(1)) == TRAINING_S


def test_rounds_that_would_take_days_are_refused() -> None:
    with pytest.raises(PlexusError, match="round_duration_s cannot be tuned: one training takes 25 h"):
        tuned_s(setting(8, training_s=90_000.0))
    large = replace(setting(8), models=SymbolicModels(10**12))
    with pytest.raises(PlexusError, match="after 24 hours only 0 of 24 transfers are complete"):
        tuned_s(large)


def test_a_tuned_session_loses_few_transfers_to_the_clock() -> None:
    always_but_one = sessions(*[[(0.0, 9e5)]] * 39, [(0.0, 1.0)])
    session = Session(40, always_but_one, protocol="dpsgd", topology="regular", degree=6).run(2000)
    accounts = session.runtime.accounts
    assert accounts.cut_bytes < 0.02 * sum(accounts.sent_bytes)


def test_a_topology_is_read_from_a_file_beside_the_spec(tmp_path: Path) -> None:
    (tmp_path / "line.txt").write_text("0 1\n1 2\n2 3\n")
    there = replace(setting(4), base_dir=tmp_path)
    assert tuned_s(there, topology="file", topology_file="line.txt") > TRAINING_S + 2
    for name, text, complaint in (
        ("none.txt", None, "protocol.topology_file: .*none.txt: No such file or directory"),
        ("odd.txt", "0 9\n", "odd.txt: line 1: '9' is no node: they are 0 to 3"),
        ("raw.txt", b"\xff", r"raw.txt: not UTF-8 text \(byte 0\)"),
    ):
        if text is not None:
            (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(PlexusError, match=complaint):
            tuned_s(there, topology="file", topology_file=name)


def test_a_degree_that_cannot_be_is_named() -> None:
    with pytest.raises(PlexusError, match=r"protocol.degree: 8 nodes cannot have 10 neighbours"):
        protocols.dpsgd(setting(8), DpsgdParameters(topology="regular"))
