"""Generated traces against the real ones, found through PLEXUS_DATA."""

import csv
import json
import os
from pathlib import Path

import numpy as np
import pytest

from plexus.traces.describe.facts import (
    availability_facts,
    device_shares,
    latency_facts,
    lengths,
    online_by_hour,
)
from plexus.traces.readers.availability import read_availability
from plexus.traces.readers.devices import read_devices
from plexus.traces.readers.latency import read_latency
from plexus.traces.synthetic import CALIBRATIONS, generate_availability, generate_devices, generate_latency
from plexus.traces.world import world_cities
from tools.fit_calibration import fit_start_rates

NODES = 20_000
SEEDS = (1, 2, 3)


@pytest.fixture(scope="module")
def real() -> Path:
    folder = os.environ.get("PLEXUS_DATA")
    if not folder or not (Path(folder) / "fedscale" / "fedscale_distribution_facts.json").is_file():
        pytest.skip("PLEXUS_DATA does not name the folder of the real traces")
    return Path(folder)


@pytest.fixture(scope="module")
def published(real):
    return json.loads((real / "fedscale" / "fedscale_distribution_facts.json").read_text())


@pytest.fixture(scope="module", params=SEEDS)
def devices(request):
    return generate_devices(100_000, request.param)


@pytest.fixture(scope="module", params=SEEDS)
def fedscale(request):
    return generate_availability(NODES, CALIBRATIONS["fedscale"], request.param)


@pytest.fixture(scope="module", params=SEEDS)
def strict(request):
    return generate_availability(NODES, CALIBRATIONS["strict"], request.param)


def test_compute_quantiles_are_within_15_percent(real, devices):
    """p5 to p95 of the 139 device models of the full trace."""
    with (real / "fedscale" / "compute_ms_pool_139.csv").open() as file:
        rows = [(int(r["ms_per_sample"]), int(r["devices_of_139"])) for r in csv.DictReader(file)]
    pool = np.repeat(*np.array(rows).T)
    compute = np.array([device.compute_ms_per_sample for device in devices])
    shares = np.arange(0.05, 0.96, 0.05)
    np.testing.assert_allclose(np.quantile(compute, shares), np.quantile(pool, shares), rtol=0.15)
    assert compute.mean() == pytest.approx(pool.mean(), rel=0.05)


def test_bandwidth_quantiles_are_within_15_percent(published, devices):
    """All published quantiles, not only p5, p50 and p95; and a quarter is below 3 Mbit/s."""
    kbps = np.array([device.up_bytes_per_s for device in devices]) / 125
    shares = np.array([float(share) for share in published["kbps_quantiles"]])
    wanted = np.array(list(published["kbps_quantiles"].values()))
    np.testing.assert_allclose(np.quantile(kbps, shares), wanted, rtol=0.15)
    assert (kbps < 3000).mean() == pytest.approx(0.26, abs=0.01)


def test_compute_and_bandwidth_are_uncorrelated(devices):
    pairs = np.array([(d.compute_ms_per_sample, d.up_bytes_per_s) for d in devices[:20_000]])
    assert abs(np.corrcoef(pairs.T)[0, 1]) < 0.03


def test_fedscale_is_within_2_points_of_every_published_hour(published, fedscale):
    """Four days are published; a generated day must be close to each of them."""
    found = online_by_hour(fedscale.sessions, fedscale.periods_s)
    wanted = np.array(published["online_pct_96h"]).reshape(4, 24) / 100
    assert np.abs(found - wanted).max() < 0.02
    assert 0.15 < found.min() < found.max() < 0.24


def test_strict_is_within_2_points_of_the_half_hour_matrix(real, strict):
    found = online_by_hour(strict.sessions, strict.periods_s)
    matrix = np.load(real / "flash" / "availability_723x241_halfhours.npy")[:240]
    wanted = np.nanmean(matrix.reshape(5, 24, -1), axis=(0, 2))
    assert np.abs(found - wanted).max() < 0.02


def test_sessions_last_as_long_as_those_of_300_real_phones(real, fedscale):
    """Median 8.1 and mean 59 minutes, as recorded; within 30 %."""
    session_s, _ = lengths(fedscale.sessions, fedscale.periods_s)
    assert np.median(session_s) / 60 == pytest.approx(8.1, rel=0.3)
    assert session_s.mean() / 60 == pytest.approx(59, rel=0.3)
    real_notes = read_availability(real / "flash" / "flash_300devices_6d_2state.json").notes
    assert real_notes[0].endswith("sessions recorded, median 8.1 min, mean 59 min")


def test_devices_are_as_unequal_as_the_published_ones(published, fedscale):
    """Online hours within four days, relative to their median."""
    wanted = published["avail_hours_in_96h_quantiles"]
    rows = np.clip(fedscale.sessions.rows, 0, 96 * 3600)
    hours = np.bincount(fedscale.sessions.owners(), np.diff(rows)[:, 0], minlength=NODES) / 3600
    # The published quantiles belong to a lower mean than the published curve: compare the shape.
    scale = wanted["0.5"] / np.median(hours)
    for share in ("0.25", "0.75", "0.9", "0.95", "0.99"):
        assert np.quantile(hours, float(share)) * scale == pytest.approx(wanted[share], rel=0.2)


def test_strict_devices_are_as_unequal_as_the_matrix(real, strict):
    """About a quarter hardly ever online, a median of 4.2 %, few almost always."""
    shares = device_shares(strict.sessions, strict.periods_s)
    recorded = np.nanmean(np.load(real / "flash" / "availability_723x241_halfhours.npy"), axis=0)
    assert (shares < 0.005).mean() == pytest.approx((recorded < 0.005).mean(), abs=0.05)
    for share in (0.5, 0.75, 0.9, 0.95):
        assert np.quantile(shares, share) == pytest.approx(np.quantile(recorded, share), abs=0.03)


def test_strict_has_the_churn_of_the_protocol_benchmark(strict):
    """About 8 % online, 300 to 400 joins and leaves an hour among 1000 devices."""
    facts = availability_facts(strict)
    assert facts.online == pytest.approx(0.082, abs=0.005)
    assert 300 < facts.changes_per_hour < 400


@pytest.mark.parametrize("seed", SEEDS)
def test_latency_quantiles_are_within_20_percent(real, seed):
    wanted = latency_facts(read_latency(real / "latency" / "wondernetwork-227.csv").matrix_s)
    found = latency_facts(generate_latency(world_cities(), seed))
    for name in ("p5", "p25", "p50", "p75", "p95", "mean"):
        expected = getattr(wanted.one_way_ms, name)
        assert getattr(found.one_way_ms, name) == pytest.approx(expected, rel=0.2)


def test_cities_are_many_and_on_all_continents():
    cities = world_cities()
    assert len(cities) >= 200
    assert len({(city.name, city.country) for city in cities}) == len(cities)
    countries = {city.country for city in cities}
    assert {"Kenya", "Japan", "France", "Canada", "Brazil", "Australia"} <= countries
    assert all(-90 <= city.lat <= 90 and -180 <= city.lon <= 180 for city in cities)


def test_the_capacity_excerpt_agrees_with_the_generator(real, devices):
    """383 rows of the real trace come from the distribution we generate."""
    excerpt = read_devices(real / "fedscale" / "client_device_capacity_excerpt.csv")
    compute = np.array([device.compute_ms_per_sample for device in devices])
    kbps = np.array([device.up_bytes_per_s for device in devices]) / 125
    for share in (0.25, 0.75, 0.9):
        real_ms = np.quantile([device.compute_ms_per_sample for device in excerpt], share)
        assert np.quantile(compute, share) == pytest.approx(real_ms, rel=0.15)
        real_kbps = np.quantile([device.up_bytes_per_s / 125 for device in excerpt], share)
        assert np.quantile(kbps, share) == pytest.approx(real_kbps, rel=0.15)


@pytest.mark.slow
def test_the_rates_are_found_by_fitting():
    """From a flat day to the wanted one, within a point: how the shipped numbers were made."""
    wanted = 0.2 + 0.05 * np.sin(np.arange(24) / 24 * 2 * np.pi)
    flat = fit_start_rates(CALIBRATIONS["fedscale"], np.full(24, 0.2), nodes=2000, rounds=1)
    assert set(flat.start_rate_by_hour) == {1.0}
    fitted = fit_start_rates(CALIBRATIONS["fedscale"], wanted, nodes=8000, rounds=6)
    generated = generate_availability(NODES, fitted, 1)
    found = online_by_hour(generated.sessions, generated.periods_s)
    np.testing.assert_allclose(found / found.mean(), wanted / wanted.mean(), atol=0.05)
    assert fitted.peak_online == pytest.approx(found.max(), abs=0.01)
