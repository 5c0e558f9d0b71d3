"""Runs on one grid, what they are at the end, and what a network adds to their bytes."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from plexus.report.arms import group
from plexus.report.comparison import compare, summary_table, table_of
from plexus.report.document import half_width_95
from plexus.report.measuring import (
    RECORD_BYTES,
    RECORD_HEADER_BYTES,
    Cost,
    at_the_end,
    common_grid_s,
    header_bytes,
    on_grid,
    times_less,
    with_headers,
)
from plexus.runs.result import Traffic
from plexus.runs.run import Run
from tests.report.runs import arm_run, result


def often(values: Any, every_h: float, seed: int = 1, protocol: str = "plexus", **more: Any) -> Run:
    """A run of four hours that was evaluated at other times than every hour; 1 GB and 10 h in each."""
    hours = every_h * np.arange(1, len(values) + 1)
    costs = {"sent_gb": hours, "training_h": 10 * hours, **more}
    run = arm_run(protocol, values, seed, outcome=result(simulated_s=4 * 3600.0, digest=f"{seed}"), **costs)
    run.tables["evaluations"]["simulated_s"] = 3600 * hours
    return run


def test_runs_on_the_same_grid_are_taken_as_they_are() -> None:
    assert common_grid_s([arm_run(), arm_run("gossip"), arm_run("dpsgd", [0.1, 0.2])]) is None
    assert not compare(group([arm_run(), arm_run("gossip")])).is_thinned
    assert common_grid_s([arm_run(tables={"evaluations": {}})]) is None


def test_who_is_looked_at_more_often_is_thinned_to_the_least_often() -> None:
    # Of sixteen looks one was lucky; of the four that the others had, none.
    lucky = often([0.1, 0.9, 0.3, 0.4, 0.5, 0.9, 0.7, 0.7, *[0.7] * 8], 0.25)
    rare = arm_run("gossip", [0.1, 0.2, 0.3, 0.6])
    found = compare(group([lucky, rare]))
    assert (found.is_thinned, found.looks, found.target) == (True, 4, 0.6)
    ours = found.arms[0]
    assert (ours.best, ours.costs) == ((0.7,), (Cost(2.0, 2.0, 20.0),))
    assert "Runs were evaluated at different times" in summary_table(group([lucky, rare])).note
    assert "best: the best of 4 evaluations" in summary_table(group([lucky, rare])).note


def test_between_two_evaluations_the_model_is_the_last_and_costs_have_grown_evenly() -> None:
    by_rounds = often([0.5, 0.6, 0.7], 1.2)
    thin = on_grid(by_rounds, np.array([3600.0, 7200, 10800, 14400])).tables["evaluations"]
    assert thin["simulated_s"].tolist() == [7200, 10800, 14400], "at the first there was nothing yet"
    assert thin["accuracy"].tolist() == [0.5, 0.6, 0.7]
    assert thin["sent_bytes"] == pytest.approx([2e9, 3e9, 3.6e9]), "the end of the last is not known"
    assert thin["training_s"] == pytest.approx([72_000, 108_000, 129_600])


def test_a_run_that_was_killed_sets_no_pace_and_one_that_ended_early_cuts_nobody_short() -> None:
    killed = often([0.5], 2, 2, "gossip", finished=False)
    killed = Run(killed.path, killed.spec, killed.versions, None, killed.tables)
    assert common_grid_s([arm_run(), killed]) is None
    early = often([0.5], 2, 2, "gossip")
    grid_s = common_grid_s([often([0.1] * 16, 0.25), early])
    assert grid_s is not None and grid_s.tolist() == [7200, 14400]


@pytest.mark.parametrize(
    ("values", "end"),
    [
        ([*[0.0] * 40, 0.99, *[0.5] * 5, *[0.7] * 5], 0.6),
        ([0.0, 0.0, 0.0, 0.4, 0.6, 0.8], 0.6),
        ([0.1, 0.4, 0.8], 0.6),
        ([0.6], 0.6),
        ([0.1, float("nan")], None),
        ([], None),
    ],
)
def test_the_end_is_the_mean_of_the_last_ten_or_of_the_last_half(
    values: list[float], end: float | None
) -> None:
    assert at_the_end(np.array(values)) == (None if end is None else pytest.approx(end))


def test_one_ratio_and_its_interval() -> None:
    assert times_less([1, 2], [4, 8], same_seeds=True) == pytest.approx((4, 4, 4))
    middle, low, high = times_less([1, 2], [4, 8], same_seeds=False)
    assert (middle, low * high) == pytest.approx((4, 16)) and low < 1 < high
    assert times_less([1], [4], same_seeds=True) == pytest.approx((4, 0, np.inf))
    assert times_less([0], [4], same_seeds=True)[0] == np.inf


def test_welchs_interval_of_a_difference() -> None:
    # 2.39 degrees of freedom, taken as 2.
    one, other = [1.0, 2.0, 3.0, 4.0], [2.0, 4.0, 9.0]
    error = (np.var(one, ddof=1) / 4 + np.var(other, ddof=1) / 3) ** 0.5
    assert half_width_95(one, other) == pytest.approx(4.303 * error)
    assert half_width_95([1.0], other) == np.inf
    assert half_width_95([1.0, 1.0], [2.0, 2.0]) == 0


@pytest.mark.parametrize(
    ("count", "quantile"), [(21, 2.0860), (22, 2.0796), (31, 2.0423), (61, 2.0003), (121, 1.9799)]
)
def test_of_many_samples_too_the_interval_is_students(count: int, quantile: float) -> None:
    many = [float(at) for at in range(count)]
    error = (np.var(many, ddof=1) / count) ** 0.5
    assert half_width_95(many) == pytest.approx(quantile * error, rel=2e-4)


def test_headers_are_what_the_packets_of_a_message_need() -> None:
    # 20 bytes: a record, a segment, an acknowledgement. 20,000: two records, 14 segments, 7 acknowledgements.
    small, large = Traffic(1000, 20_000), Traffic(10, 200_000)
    assert header_bytes({"ping": small}) == 1000 * (22 + 52 + 52)
    assert header_bytes({"model": large}) == 10 * (2 * 22 + (14 + 7) * 52)
    assert header_bytes({"ping": small, "model": large, "ack": Traffic(0, 0)}) == 126_000 + 11_360


def test_with_headers_communication_costs_more_and_nothing_else_does() -> None:
    messages = {"ping": Traffic(1000, 20_000), "model": Traffic(1, 106_000)}
    run = arm_run(outcome=result(messages=messages))
    factor = 1 + header_bytes(messages) / 126_000
    assert factor > 2
    [plain], [more] = (compare(group([run]), headers=headers).arms[0].costs for headers in (False, True))
    assert plain is not None and more is not None
    assert more.cta_gb == pytest.approx(factor * plain.cta_gb)
    assert (more.tta_h, more.rta_h) == (plain.tta_h, plain.rta_h)
    assert "10⁹, with headers)" in table_of(compare(group([run]), headers=True)).note
    killed = arm_run(finished=False)
    assert with_headers(killed) is killed


@pytest.mark.parametrize("size", [20, 1000, RECORD_BYTES, RECORD_BYTES + 1, 200_000])
def test_a_record_of_tls_is_as_long_as_is_said(tmp_path: Path, size: int) -> None:
    sender, wire, _ = tls_connection(tmp_path)
    wire.read()
    sender.write(bytes(size))
    assert len(wire.read()) == size + RECORD_HEADER_BYTES * ceil(size / RECORD_BYTES)


def tls_connection(folder: Path) -> tuple[ssl.SSLObject, ssl.MemoryBIO, ssl.SSLObject]:
    """Both ends of TLS 1.3 without a network: who sends, what it has sent, who receives."""
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    server.load_cert_chain(certificate(folder))
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    client.minimum_version = ssl.TLSVersion.TLSv1_3
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server)
    other = server.wrap_bio(to_server, to_client, server_side=True)
    for end in (one, other, one, other):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return one, to_server, other


def certificate(folder: Path) -> Path:
    """One that somebody made for himself, with its key."""
    key, nobody, now = Ed25519PrivateKey.generate(), x509.Name([]), datetime.now(UTC)
    made = x509.CertificateBuilder(nobody, nobody, key.public_key(), 1, now, now + timedelta(hours=1))
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path = folder / "both.pem"
    path.write_bytes(pem + made.sign(key, None).public_bytes(Encoding.PEM))
    return path
