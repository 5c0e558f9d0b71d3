from pathlib import Path

import msgspec
import numpy as np
import pytest

from plexus.errors import PlexusError
from plexus.traces.build import TracesSpec, build_world
from plexus.traces.world import Device, world_cities


def test_same_spec_and_seed_give_the_same_world():
    one, two = (build_world(TracesSpec(), 50, 3, Path()) for _ in range(2))
    assert one.devices == two.devices
    assert np.array_equal(one.availability.sessions.rows, two.availability.sessions.rows)
    assert np.array_equal(one.latency.matrix_s, two.latency.matrix_s)
    assert build_world(TracesSpec(), 50, 4, Path()).devices != one.devices


def test_uniform_values_replace_those_of_every_device():
    spec = TracesSpec(uniform_up_kbps=8000.0, uniform_compute_ms_per_sample=50.0)
    world = build_world(spec, 20, 1, Path())
    assert {d.up_bytes_per_s for d in world.devices} == {1_000_000.0}
    assert {d.compute_ms_per_sample for d in world.devices} == {50.0}
    assert len({d.down_bytes_per_s for d in world.devices}) == 20


def test_none_keeps_everybody_online():
    world = build_world(TracesSpec(availability="none"), 5, 1, Path())
    assert [list(world.availability.toggles(i)) for i in range(5)] == [[(0.0, True)]] * 5
    assert world.availability.online_at(1e9).all()


@pytest.mark.parametrize(
    ("field", "value"),
    [("graceful_share", 1.5), ("uniform_up_kbps", 0.0), ("start_s", -1.0), ("offsets", "weeks")],
)
def test_an_impossible_value_is_named(field, value):
    with pytest.raises(msgspec.ValidationError, match=field):
        msgspec.convert({field: value}, TracesSpec)


def test_a_peak_needs_generated_availability():
    with pytest.raises(PlexusError, match="peak_online is for generated availability only"):
        TracesSpec(availability="trace.json", peak_online=0.088)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A little world on disk: three devices, three behaviours, three cities."""
    monkeypatch.setenv("PLEXUS_DATA", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    (tmp_path / "devices.csv").write_text(
        "compute_ms_per_sample,up_kbps,down_kbps\n1,8,80\n2,16,160\n3,24,240\n"
    )
    (tmp_path / "data" / "online.csv").write_text(
        "device,start_s,end_s,period_s\na,0,10,86400\nb,20,30,172800\nc,,,86400\n"
    )
    (tmp_path / "latency.csv").write_text("0,10,20\n10,0,30\n20,30,0\n")
    (tmp_path / "cities.csv").write_text("row,lat,lon\n2,-34,151\n0,41.9,12.5\n")
    (tmp_path / "places.csv").write_text("lat,lon\n45,9\n-40,175\n")
    return tmp_path


FILES = TracesSpec(
    devices="devices.csv", availability="data:online.csv", latency="$PLEXUS_DATA/../latency.csv"
)


def rows(world):
    return sorted(s.tolist() for s in world.availability.sessions)


def test_a_world_from_files(files):
    world = build_world(FILES, 3, 1, files)
    wanted = [Device(k, k * 1000.0, k * 10_000.0) for k in (1.0, 2.0, 3.0)]
    assert sorted(world.devices, key=lambda d: d.compute_ms_per_sample) == wanted
    assert rows(world) == [[], [[0, 10]], [[20, 30]]]
    assert sorted(world.availability.periods_s) == [86400, 86400, 172800]
    assert (world.latency.matrix_s * 1000).round(6).tolist() == [[0, 10, 20], [10, 0, 30], [20, 30, 0]]
    assert sorted(world.latency.city_of.tolist()) == [0, 1, 2]


def test_more_nodes_than_recorded_devices_use_them_in_turn(files):
    world = build_world(FILES, 6, 1, files)
    assert len(world) == 6
    assert rows(world) == sorted([[], [[0, 10]], [[20, 30]]] * 2)
    cities = world.latency.city_of.tolist()
    assert sorted(cities[:3]) == [0, 1, 2]
    assert cities[3:] == cities[:3]


def test_the_run_may_begin_within_the_trace(files):
    spec = msgspec.structs.replace(FILES, start_s=5.0)
    assert rows(build_world(spec, 3, 1, files)) == [[], [[0, 5], [86395, 86400]], [[15, 25]]]


def test_the_beginning_of_a_trace_may_be_dropped(files):
    spec = msgspec.structs.replace(FILES, drop_before_s=5.0)
    assert rows(build_world(spec, 3, 1, files)) == [[], [[5, 10]], [[20, 30]]]


def test_offsets_by_days_keep_the_time_of_day(files):
    spec = msgspec.structs.replace(FILES, offsets="days")
    starts = {r[0][0] for seed in range(20) for r in rows(build_world(spec, 3, seed, files)) if r}
    assert starts == {0, 20, 86420}
    spec = msgspec.structs.replace(FILES, offsets="any")
    assert {r[0][0] for r in rows(build_world(spec, 3, 1, files)) if r}.isdisjoint(starts)


def test_any_number_of_nodes_is_all_over_the_world():
    cities = world_cities()
    places = np.array([(city.lat, city.lon) for city in cities])
    parts = {
        "south": places[:, 0] < 0,
        "America": places[:, 1] < -30,
        "Europe and Africa": (places[:, 1] > -30) & (places[:, 1] < 60),
        "Asia": places[:, 1] > 60,
    }
    for seed in range(1, 11):
        dealt = build_world(TracesSpec(), 120, seed, Path()).latency.city_of
        assert len(set(dealt.tolist())) == 120, "none twice before all were used once"
        for name, part in parts.items():
            assert part[dealt].mean() > part.mean() / 2, name
    more = build_world(TracesSpec(), 3 * len(cities), 1, Path()).latency.city_of
    assert np.bincount(more).tolist() == [3] * len(cities)


def test_nodes_join_the_city_nearest_to_their_place(files):
    spec = msgspec.structs.replace(FILES, places="places.csv", cities="cities.csv")
    assert build_world(spec, 3, 1, files).latency.city_of.tolist() == [0, 2, 0]
    spec = msgspec.structs.replace(spec, latency="generated")
    names = [world_cities()[i].name for i in build_world(spec, 2, 1, files).latency.city_of]
    assert names == ["Milan", "Wellington"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"devices": "gone.csv"}, "traces.devices = 'gone.csv': there is no file"),
        ({"availability": "data:gone"}, "traces.availability = 'data:gone': there is no file"),
        ({"latency": "$NOT_SET/x"}, "traces.latency = '$NOT_SET/x': an environment variable in"),
        ({"places": "places.csv"}, "traces.cities: needed beside traces.places"),
        ({"places": "places.csv", "cities": "devices.csv"}, "lat: missing"),
    ],
)
def test_what_is_missing_is_one_line_that_names_the_key(files, changes, message):
    with pytest.raises(PlexusError) as caught:
        build_world(msgspec.structs.replace(FILES, **changes), 3, 1, files)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_coordinates_of_other_cities_are_refused(files):
    (files / "cities.csv").write_text("id,lat,lon\nRome,41.9,12.5\n")
    spec = msgspec.structs.replace(FILES, places="places.csv", cities="cities.csv")
    with pytest.raises(PlexusError, match=r"cities.csv: knows none of the cities"):
        build_world(spec, 3, 1, files)
