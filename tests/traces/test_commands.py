"""`plexus traces describe` as a user meets it."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from plexus.cli.traces import traces
from plexus.errors import PlexusError
from plexus.traces.describe.text import kind_of
from plexus.traces.readers.files import load

SPEC = 'name = "small"\nnodes = 50\nhours = 1\n[task]\nname = "digits"\n'


@pytest.fixture
def describe():
    """Run the command; give back what it printed."""

    def _describe(*arguments):
        result = CliRunner().invoke(traces, ["describe", *map(str, arguments)], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    return _describe


FILES = {
    "devices.csv": ("compute_ms_per_sample,up_kbps,down_kbps\n20,800,8000\n30,80,80\n40,1,1\n", "devices"),
    "devices.json": ('{"1": {"computation": 20, "communication": 10}}', "devices"),
    "online.csv": ("device,start_s,end_s\na,0,4000\nb,,\n", "availability"),
    "online.json": ('{"1": {"active": [1], "inactive": [5], "finish_time": 86400}}', "availability"),
    "events.json": ('{"1": [[0, "on"], [50, "off"]]}', "availability"),
    "matrix.csv": ("0,10,20\n10,0,30\n20,30,0\n", "latency"),
    "named.csv": ("a,b,c\n0,10,20\n10,0,30\n20,30,0\n", "latency"),
    "at-once.csv": ("0,0\n0,0\n", "latency"),
    "pairs.csv": ("source,destination,ms\na,b,10\nb,a,12\n", "latency"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file_is_recognised_described_and_drawn(describe, tmp_path, name):
    text, kind = FILES[name]
    path, png = tmp_path / name, tmp_path / "out.png"
    path.write_text(text)
    assert kind_of(load(path)) == kind
    title = {"devices": "Hardware", "availability": "Availability", "latency": "Latency"}[kind]
    printed = describe(path, "--plot", png)
    assert printed.splitlines()[0] == name
    assert printed.splitlines()[1].startswith(title)
    assert png.read_bytes().startswith(b"\x89PNG")
    facts = json.loads(describe(path, "--json"))
    assert [key for key in ("devices", "availability", "latency") if facts[key]] == [kind]


def test_half_hours_are_recognised_by_their_shape(describe, tmp_path):
    np.save(tmp_path / "x.npy", np.eye(48))
    assert "Availability of 48 devices" in describe(tmp_path / "x.npy")


@pytest.mark.slow
def test_a_spec_is_described_with_its_devices_availability_and_latency(describe, tmp_path):
    spec, png = tmp_path / "spec.toml", tmp_path / "out.png"
    spec.write_text(SPEC)
    printed = describe(spec, "--plot", png)
    assert printed.startswith("small: 50 nodes, seed 1\nHardware of 50 devices\n")
    assert "Availability of 50 devices" in printed
    assert "Latency between 247 cities" in printed
    assert png.stat().st_size > 50_000
    more = json.loads(describe(spec, "--nodes", "80", "--seed", "2", "--json"))
    assert more["source"] == "small: 80 nodes, seed 2"
    assert more["availability"]["devices"] == 80


@pytest.mark.slow
def test_a_spec_in_which_nobody_leaves_is_drawn_too(describe, tmp_path):
    spec, png = tmp_path / "spec.toml", tmp_path / "out.png"
    spec.write_text(SPEC + '[traces]\navailability = "none"\n')
    assert "100.0 % on average" in describe(spec, "--plot", png)
    assert png.exists()


def test_round_trips_are_halved_on_request(describe, tmp_path):
    (tmp_path / "m.csv").write_text("0,10\n10,0\n")
    assert json.loads(describe(tmp_path / "m.csv", "--json"))["latency"]["one_way_ms"]["p50"] == 10
    halved = json.loads(describe(tmp_path / "m.csv", "--round-trip", "--json"))
    assert halved["latency"]["one_way_ms"]["p50"] == 5


def test_a_file_in_the_data_directory(describe, tmp_path, monkeypatch):
    monkeypatch.setenv("PLEXUS_DATA", str(tmp_path))
    (tmp_path / "m.csv").write_text("0,10\n10,0\n")
    assert "Latency between 2 cities" in describe("data:m.csv")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gone.csv"], "there is no file gone.csv"),
        (["data:gone.csv"], "`plexus data list` shows what can be fetched"),
        (["{tmp}/strange.csv"], "strange.csv: is no trace: it has neither compute"),
        (["{tmp}/m.csv", "--plot", "{tmp}/no/such/folder.png"], "cannot be written"),
        (["{tmp}/m.csv", "--plot", "{tmp}/picture.xyz"], "cannot be written"),
    ],
)
def test_what_cannot_be_described_is_one_line(tmp_path, arguments, message):
    (tmp_path / "strange.csv").write_text("x,y\n1,2\n3,4\n5,6\n7,8\n")
    (tmp_path / "m.csv").write_text("0,10\n10,0\n")
    arguments = [each.format(tmp=tmp_path) for each in arguments]
    with pytest.raises(PlexusError, match=message):
        CliRunner().invoke(traces, ["describe", *arguments], catch_exceptions=False)


def test_nodes_are_for_specs(tmp_path):
    (tmp_path / "m.csv").write_text("0,10\n10,0\n")
    result = CliRunner().invoke(traces, ["describe", str(tmp_path / "m.csv"), "--nodes", "3"])
    assert result.exit_code == 2
    assert "--nodes and --seed are for a spec" in result.output
