"""Trace files: what each format means, and one clear line for each way to get it wrong."""

import json
import os
import pickle

import numpy as np
import pytest

from plexus.errors import PlexusError
from plexus.traces.readers.availability import read_availability
from plexus.traces.readers.devices import choose_devices, read_devices
from plexus.traces.readers.latency import read_latency, read_places
from plexus.traces.world import Device

DAY = 86400.0


@pytest.fixture
def write(tmp_path):
    """Write a file and give its path back; anything but text and bytes is written as JSON."""

    def _write(content, name="trace"):
        path = tmp_path / name
        if isinstance(content, np.ndarray):
            with path.open("wb") as file:
                np.save(file, content)
            return path
        if not isinstance(content, str | bytes):
            content = json.dumps(content)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return _write


# Devices


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps({7: {"computation": 20.0, "communication": 8000.0}}),
        pickle.dumps({7: {"computation": 20, "communication": 8000}}, protocol=0),
        {"7": {"computation": 20.0, "communication": 8000.0}},
        [{"compute_ms_per_sample": 20, "kbps": 8000}],
        "client_id,computation_ms_per_sample,communication_kbps_int\n7,20,8000\n",
        "compute_ms_per_sample,up_kbps,down_kbps\n20,8000,8000\n",
        "\ufeffcompute_ms_per_sample,kbps\r\n20,8000\r\n",
    ],
)
def test_the_same_device_in_every_format(write, content):
    assert read_devices(write(content)) == [Device(20.0, 1e6, 1e6)]


def test_up_and_down_rates_are_kept_apart(write):
    path = write("compute_ms_per_sample,up_kbps,down_kbps\n20,800,8000\n")
    assert read_devices(path) == [Device(20.0, 1e5, 1e6)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"7": {"computation": 20.0}}, "client 7: kbps: missing (or under the name communication"),
        ({"7": {"computation": -1, "communication": 5}}, "client 7: computation: must be a posit"),
        ({"7": {"computation": True, "communication": 5}}, "client 7: computation: must be a po"),
        ({"7": {"computation": 1, "communication": float("nan")}}, "client 7: communication: must"),
        ({"7": {"computation": 1, "communication": [1]}}, "client 7: communication: must be a po"),
        ({"7": 3}, "client 7: must be an object with fields, is 3"),
        (
            {"1": {"computation": 1, "communication": 5}, "2": {"computation": 1}},
            "client 2: communication: missing",
        ),
        ("compute_ms_per_sample,kbps\n20,abc\n", "line 2: kbps: must be a positive number, is "),
        ("compute_ms_per_sample,kbps\n20\n", "line 2: has 1 values, the header names 2"),
        ("compute_ms_per_sample,up_kbps\n20,1\n", "line 2: down_kbps: missing"),
        ("compute_ms_per_sample,kbps\n", "there are no records in it"),
        ("1,2\n", "the first line must name the columns"),
        ("", "there are no records in it"),
        ({}, "there are no records in it"),
        ("{", "is not valid JSON"),
        (b"\xff\xfe\x00", "is neither text, pickle nor npy"),
        (pickle.dumps(3), "holds a int, not records"),
        (pickle.dumps({1: {"a": 1}})[:-4], "this is not a readable pickle"),
    ],
)
def test_a_bad_device_file_is_named_with_record_and_field(write, content, message):
    path = write(content)
    with pytest.raises(PlexusError) as caught:
        read_devices(path)
    assert str(caught.value).startswith(f"{path}: {message}")
    assert "\n" not in str(caught.value)


class Malicious:
    def __reduce__(self):
        return os.system, ("touch /tmp/plexus-was-here",)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_malicious_pickle_is_refused_and_runs_nothing(write, monkeypatch, protocol):
    ran = []
    data = pickle.dumps({1: Malicious()}, protocol=protocol)
    monkeypatch.setattr(os, "system", ran.append)
    with pytest.raises(PlexusError, match=r"asks for posix.system: only plain data is read"):
        read_devices(write(data))
    assert ran == []


@pytest.mark.parametrize("value", [{1, 2}, np.float64(1.5), Device(1.0, 1.0, 1.0), b"x" * 300])
def test_anything_but_plain_data_is_refused_in_a_pickle(write, value):
    with pytest.raises(PlexusError):
        read_devices(write(pickle.dumps({1: {"computation": value, "communication": 1.0}})))


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(PlexusError, match=r"nowhere: cannot be read \(No such file"):
        read_devices(tmp_path / "nowhere")


def test_the_choice_of_devices_is_seeded_and_fair():
    chosen = choose_devices(10, 25, 1, "devices")
    assert sorted(chosen[:10]) == sorted(chosen[10:20]) == list(range(10))
    assert np.array_equal(chosen, choose_devices(10, 25, 1, "devices"))
    assert not np.array_equal(chosen, choose_devices(10, 25, 2, "devices"))
    assert not np.array_equal(chosen, choose_devices(10, 25, 1, "availability"))


# Availability


def client(active, inactive, finish_time=100):
    return {"1": {"active": active, "inactive": inactive, "finish_time": finish_time}}


@pytest.mark.parametrize(
    ("active", "inactive", "rows"),
    [
        ([10, 30], [20, 40], [[10, 20], [30, 40]]),
        ([50], [51], [[50, 51]]),
        ([], [], []),
        ([10, 20], [20, 30], [[10, 30]]),
        ([10], [10], []),
        ([90], [110], [[0, 10], [90, 100]]),
        ([90], [20], [[0, 20], [90, 100]]),
        ([30, 90], [20, 40], [[0, 20], [30, 40], [90, 100]]),
        ([30], [20, 40], [[0, 20], [30, 40]]),
        ([], [20], [[0, 20]]),
        ([10, 90], [20], [[10, 20], [90, 100]]),
        ([5], [300], [[0, 100]]),
        ([120], [130], []),
    ],
    ids=[
        "two sessions", "one second", "never online", "touching", "no length", "past the end",
        "ends before it starts: crosses the wrap", "starts online, crosses the wrap",
        "online at 0", "online at 0 only", "still online at the end", "longer than the period",
        "after the end",
    ],
)  # fmt: skip
def test_behaviour_trace(write, active, inactive, rows):
    trace = read_availability(write(client(active, inactive)))
    assert trace.sessions[0].tolist() == rows
    assert trace.periods_s.tolist() == [100.0]


def test_special_clients_are_read_beside_plain_ones(write):
    """Plain clients are read at once, special ones one by one; together they keep their places."""
    clients = [([10], [20]), ([90], [20]), ([], []), ([30], [20, 40]), ([5, 50], [6, 60])]
    data = {str(i): client(*lists)["1"] for i, lists in enumerate(clients)}
    trace = read_availability(write(data))
    assert [s.tolist() for s in trace.sessions] == [
        [[10, 20]],
        [[0, 20], [90, 100]],
        [],
        [[0, 20], [30, 40]],
        [[5, 6], [50, 60]],
    ]


def test_a_behaviour_pickle_and_periods_of_their_own(write):
    data = {1: client([0], [5], 50)["1"], 2: client([0], [5], 80)["1"]}
    trace = read_availability(write(pickle.dumps(data)))
    assert trace.periods_s.tolist() == [50.0, 80.0]
    assert trace.online_at(52.0).tolist() == [True, False]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (client([1, 2, 3], [4]), "client 1: active and inactive: 3 starts but 1 ends"),
        (client([1, 50, 60], [40, 30, 70]), "client 1: session 1: ends at 30 s, before it starts"),
        (client([1, "x"], [2, 3]), "client 1: active[1]: must be a number, 0 or more, is 'x'"),
        (client([1, [2]], [2, 3]), "client 1: active[1]: must be a number, 0 or more, is [2]"),
        (client([-1], [3]), "client 1: active[0]: must be a number, 0 or more, is -1"),
        (client([1], [3], 0), "client 1: finish_time: must be a positive number, is 0"),
        ({"1": {"active": [], "inactive": []}}, "client 1: finish_time: missing"),
        ({"1": {"active": 3, "inactive": [], "finish_time": 9}}, "client 1: active: must be a li"),
        ({"1": [[5, "on"], [3, "off"]]}, "device 1: event 1: is earlier than the one before"),
        ({"1": [[5, "asleep"]]}, "device 1: event 0: state 'asleep' is none of AVL_TRAIN"),
        ({"1": [[5]]}, "device 1: event 0: must be [second, state], is [5]"),
        ({"1": [["x", "on"]]}, "device 1: event 0: must be a number, 0 or more, is 'x'"),
        ({"1": [[5, "on"]], "2": 3}, "device 2: must be a list of [second, state]"),
        ([1], "must be an object with one entry per device"),
        (np.zeros(3), "must be a matrix of half hours by devices, is (3,)"),
        (np.array([[0.0, 0.5]]), "device 1: half hour 0: must be 1, 0 or NaN, is 0.5"),
        (np.array(["a"]), "is not a readable npy file of numbers"),
        ("device,start_s\n1,2\n", "line 2: end_s: missing"),
        ("device,start_s,end_s\n1,9,2\n", "line 2: end_s: 2 is before the start, 9"),
        ("device,start_s,end_s\n1,,2\n", "line 2: start_s: must be a number, 0 or more, is ''"),
        ("device,start_s,end_s,period_s\n1,1,2,0\n", "line 2: period_s: must be a positive number"),
        ({"1": [[1.7e12, "on"]]}, "lasts for 1.7e+12 s; at most 1e+10 are read: are these milliseconds?"),
        (client([], [], 1e13), "lasts for 1e+13 s; at most"),
    ],
)
def test_a_bad_availability_file_is_named_with_record_and_field(write, content, message):
    path = write(content)
    with pytest.raises(PlexusError) as caught:
        read_availability(path)
    assert str(caught.value).startswith(f"{path}: {message}")


def test_an_npy_file_with_pickled_objects_is_refused(write):
    path = write(np.array([[Malicious()]], dtype=object))
    with pytest.raises(PlexusError, match="is not a readable npy file"):
        read_availability(path)


def test_events_switch_on_and_off(write):
    events = {
        "a": [[0, "AVL_TRAIN"], [300, "UN_AVL"], [400, "AVL_EVAL"], [500, "AVL_TRAIN"]],
        "b": [[10, "on"], [20, "off"], [20, "on"], [30, "off"]],
        "c": [],
        "d": [[5, 1], [7, 0], [0.9 * DAY, "online"], [1.2 * DAY, "offline"]],
    }
    trace = read_availability(write(events))
    assert [s.tolist() for s in trace.sessions] == [
        [[0, 300], [500, DAY]],
        [[10, 30]],
        [],
        [[5, 7], [0.9 * DAY, DAY]],
    ]
    assert set(trace.periods_s) == {DAY}
    assert "1 session cut where the trace repeats" in trace.notes
    assert "1 session joined with one they touch" in trace.notes


def test_a_given_period_wins(write):
    trace = read_availability(write({"a": [[5, "on"], [70, "off"]]}), 60.0)
    assert trace.sessions[0].tolist() == [[5, 60]]
    assert trace.periods_s.tolist() == [60.0]


def test_half_hours_become_sessions(write):
    matrix = np.zeros((49, 3))
    matrix[1:4, 0] = matrix[46:49, 0] = 1
    matrix[:, 1] = 1
    trace = read_availability(write(matrix))
    assert trace.periods_s.tolist() == [DAY] * 3
    assert trace.sessions[0].tolist() == [[1800, 4 * 1800], [46 * 1800, DAY]]
    assert trace.sessions[1].tolist() == [[0, DAY]]
    assert trace.sessions[2].tolist() == []


def test_half_hours_not_recorded_are_taken_from_the_nearest_day(write):
    matrix = np.zeros((3 * 48, 2))
    matrix[48 + 5, 0] = 1
    matrix[5, 0] = matrix[2 * 48 + 5, 0] = np.nan
    matrix[7::48, 1] = np.nan
    trace = read_availability(write(matrix))
    starts = [5 * 1800, DAY + 5 * 1800, 2 * DAY + 5 * 1800]
    assert trace.sessions[0].tolist() == [[s, s + 1800] for s in starts]
    assert trace.sessions[1].tolist() == []
    assert trace.notes[1].endswith("2 are taken from the same time of the nearest day, 3 count as offline")


def test_nothing_recorded_is_said(write):
    trace = read_availability(write(np.full((48, 2), np.nan)))
    assert trace.notes[0] == "nothing was recorded: all devices count as offline"
    assert len(trace.sessions.rows) == 0


def test_our_own_csv(write):
    text = "device,start_s,end_s,period_s\nx,10,20,100\ny,,,200\nx,90,105,100\n"
    trace = read_availability(write(text))
    assert [s.tolist() for s in trace.sessions] == [[[0, 5], [10, 20], [90, 100]], []]
    assert trace.periods_s.tolist() == [100.0, 200.0]
    assert "1 session going on across the wrap" in trace.notes


def test_our_own_csv_without_a_period_repeats_after_whole_days(write):
    trace = read_availability(write("device,start_s,end_s\n1,0,1\n1,100000,110000\n"))
    assert trace.periods_s.tolist() == [DAY]
    assert trace.sessions[0].tolist() == [[0, 1]]


# Latency


def milliseconds(trace):
    return (trace.matrix_s * 1000).round(6).tolist()


@pytest.mark.parametrize(
    "content", ["0,10\n20,0\n", "Rome,Oslo\n0,10\n20,0\n", "city,Rome,Oslo\nRome,0,10\nOslo,20,0\n"]
)
def test_a_square_matrix_with_and_without_names(write, content):
    trace = read_latency(write(content))
    assert milliseconds(trace) == [[0, 10], [20, 0]]
    assert trace.cities == (("0", "1") if content.startswith("0") else ("Rome", "Oslo"))
    assert trace.notes == ()


def test_round_trips_are_halved(write):
    trace = read_latency(write("0,10.5\n20,0\n"), "round-trip")
    assert milliseconds(trace) == [[0, 5.25], [10, 0]]


def test_missing_latencies_come_from_the_way_back_or_the_median_of_the_row(write):
    trace = read_latency(write("0,-0.5,4,-0.5\n2,0,6,8\n4,6,,\nnan,8,-1,0\n"))
    assert milliseconds(trace) == [[0, 2, 4, 3], [2, 0, 6, 8], [4, 6, 0, 5], [8, 8, 8, 0]]
    assert trace.notes == (
        "6 latencies missing: 2 taken from the reverse direction, 4 set to the median of their row",
    )


def test_a_list_of_pairs(write):
    text = "source,destination,min,avg\n7,7,0,0.5\n7,9,1,10\n9,11,1,30\n11,7,1,50\n"
    trace = read_latency(write(text), "round-trip")
    assert trace.cities == ("7", "9", "11")
    assert milliseconds(trace) == [[0.25, 5, 25], [5, 0, 15], [25, 15, 0]]
    assert trace.notes[0].startswith("3 latencies missing: 3 taken from the reverse direction, 0")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("0,1\n2\n", "line 2: has 1 values, must have 2"),
        ("a,b\n0,1\n2,x\n", "line 3: column 2: must be a number, 0 or more, is 'x'"),
        ("a,b,c,d\n0,1\n2,0\n", "must be square, has 2 rows and names 4 cities"),
        ("0,-\n1,0\n", "line 1: column 2: must be a number, 0 or more, is ''"),
        ("x,a,b\na,0,1\nc,2,0\n", "line 3: must begin with 'b', as the header"),
        ("0,-1\n-1,0\n", "row 0: not one latency of this city is known"),
        ("source,destination,x\n1,2,3\n", "line 2: ms: missing"),
        ({"a": 1}, "a latency matrix must be a CSV file"),
    ],
)
def test_a_bad_latency_file_is_named(write, content, message):
    path = write(content)
    with pytest.raises(PlexusError) as caught:
        read_latency(path)
    assert str(caught.value).startswith(f"{path}: {message}")


def test_places(write):
    (identity, city), _ = read_places(write("id,title,latitude,longitude\n7,X,-1.5,9\n8,Y,0,-9\n"))
    assert (identity, city.name, city.lat, city.lon) == ("7", "X", -1.5, 9.0)
    with pytest.raises(PlexusError, match=r"line 2: lat: must be between -90 and 90"):
        read_places(write("lat,lon\n91,0\n"))
