"""The real traces, found through PLEXUS_DATA: imported, described, run on."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from plexus.cli import cli

SPEC = Path(__file__).parents[2] / "experiments" / "real-traces.toml"


@pytest.fixture
def real():
    folder = os.environ.get("PLEXUS_DATA")
    if not folder or not (Path(folder) / "flash" / "flash_300devices_6d_2state.json").is_file():
        pytest.skip("PLEXUS_DATA does not name the folder of the real traces")
    return Path(folder)


def plexus(*arguments):
    result = CliRunner().invoke(cli, [str(each) for each in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.slow
def test_what_import_reads_describe_reports(real, tmp_path, monkeypatch):
    """The facts known of each data set survive the way through the data directory."""
    monkeypatch.setenv("PLEXUS_DATA", str(tmp_path))
    plexus("data", "import", "flash-300", real / "flash/flash_300devices_6d_2state.json")
    plexus("data", "import", "flash-half-hours", real / "flash/availability_723x241_halfhours.npy")
    plexus("data", "import", "fedscale-excerpt", real / "fedscale")
    plexus("data", "import", "wondernetwork-227", real / "latency")
    plexus("data", "import", "wondernetwork-2020", real / "latency")

    def described(path, *options):
        return json.loads(plexus("traces", "describe", f"data:{path}", "--json", *options))

    phones = described("flash/flash_300devices_6d_2state.json")["availability"]
    assert (phones["devices"], round(phones["online"], 2)) == (300, 0.16)
    assert phones["period_days"]["min"] == 6
    assert phones["notes"][0].endswith("median 8.1 min, mean 59 min")

    strict = described("flash/availability_723x241_halfhours.npy")["availability"]
    assert strict["devices"] == 723
    assert strict["notes"][0] == "8.1 % online of the half hours recorded"
    assert strict["online_by_device"]["p50"] == pytest.approx(0.042, abs=0.001)
    assert strict["never_online"] == pytest.approx(0.29, abs=0.01)

    devices = described("fedscale/client_device_capacity_excerpt.csv")["devices"]
    assert (devices["devices"], devices["compute_ms_per_sample"]["p50"]) == (383, 41)

    behaviour = described("fedscale/client_behave_trace_excerpt.json")["availability"]
    assert (behaviour["devices"], behaviour["session_s"]["min"]) == (26, 1)

    paper = described("latency/wondernetwork-227.csv")["latency"]
    assert (paper["cities"], round(paper["one_way_ms"]["p50"])) == (227, 67)
    assert round(paper["one_way_ms"]["max"]) == 812
    assert paper["notes"][0].startswith("51 latencies missing")

    named = described("latency/wondernetwork-2020-07-19-pings-grouped.csv", "--round-trip")["latency"]
    assert 2 * named["one_way_ms"]["p50"] == pytest.approx(138.5, rel=0.01)


def test_list_says_that_the_real_data_is_here(real):
    printed = plexus("data", "list")
    for name in ("flash-300", "fedscale-excerpt", "wondernetwork-227", "movielens-small"):
        line = next(line for line in printed.splitlines() if line.startswith(name))
        assert line.split()[1] == "here"


@pytest.mark.slow
def test_a_run_on_real_traces(real, tmp_path):
    """FLASH's availability, FedScale's capacity, WonderNetwork's latency, by spec."""
    out = tmp_path / "run"
    options = ("--set", "hours=0.5", "--out", out, "--json", "--quiet")
    result = json.loads(plexus("run", SPEC, *options))
    assert result["rounds"] > 5
    assert result["messages"]["model"]["count"] > 50


@pytest.mark.slow
def test_nodes_join_the_nearest_of_the_real_cities(real, tmp_path):
    (tmp_path / "places.csv").write_text("lat,lon\n1.3,103.8\n48.1,16.4\n")
    spec = tmp_path / "spec.toml"
    spec.write_text(
        'name = "places"\nnodes = 4\nhours = 1\n[task]\nname = "digits"\n[traces]\n'
        'latency = "data:latency/wondernetwork-227.csv"\nplaces = "places.csv"\n'
        'cities = "data:latency/wondernetwork-227-city-guess.csv"\n'
    )
    from plexus.spec.experiment import load_spec
    from plexus.traces.build import build_world

    world = build_world(load_spec(spec).traces, 4, 1, tmp_path)
    assert world.latency.city_of[0] == world.latency.city_of[2] == 0
    assert world.latency.matrix_s[world.latency.city_of[0], world.latency.city_of[1]] > 0.05


@pytest.mark.slow
def test_100_000_generated_devices_fit_into_500_megabytes():
    """Time is not asserted here: `plexus traces bench` tells it."""
    command = [sys.executable, "-c", "from plexus.cli import main; main()", "traces", "bench", "--json"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result = json.loads(printed)
    assert result["nodes"] == 100_000
    assert result["sessions"] > 3_000_000
    assert result["peak_mb"] < 500
