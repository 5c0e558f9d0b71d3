"""What the server answers, and what it refuses."""

from __future__ import annotations

import http.client
import json
import re
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import numpy as np
import pytest
from click.testing import CliRunner

from plexus.cli.compare import compare
from plexus.dashboard.app import Guard, Questions, create_app
from plexus.dashboard.library import Library
from plexus.dashboard.run import _made_twice
from plexus.errors import PlexusError
from plexus.runs.result import Traffic
from plexus.runs.run import load_run
from tests.dashboard.kit import write_run
from tests.report.runs import result
from tests.report.saving import save

STATIC = Path(__file__).parents[2] / "src" / "plexus" / "dashboard" / "static"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Asks the server exactly what it is told to, wise or not."""

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)

    def get(self, path: str, *, method: str = "GET", **more: Any) -> Answer:
        connection = http.client.HTTPConnection(str(self._url.hostname), self._url.port)
        query = more.get("params")
        connection.request(
            method, path + (f"?{urlencode(query)}" if query else ""), headers=more.get("headers", {})
        )
        answer = connection.getresponse()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        found = Answer(answer.status, headers, answer.read())
        connection.close()
        return found


@pytest.fixture
def client(server: str) -> Client:
    return Client(server)


def ask(client: Client, path: str, **query: Any) -> Any:
    answer = client.get(path, params=query)
    assert answer.status == 200, answer.body
    return answer.json()


def test_the_list_has_every_run_below_the_directory(client: Client, runs: Path) -> None:
    (runs / "growing" / "rounds.csv").touch()
    found = {run["id"]: run for run in ask(client, "/api/runs")["runs"]}
    assert set(found) == {"first", "again", "longer", "folder/second", "growing", "damaged"}
    assert found["first"]["status"] == "finished"
    assert found["growing"]["status"] == "running"
    assert found["growing"]["reached_s"] == 1740
    assert "result.json" in found["damaged"]["error"]
    assert found["folder/second"]["metric"]["best"] == 0.9
    assert len(found["first"]["spark"]) > 5


def test_an_overview_holds_what_was_recorded(client: Client, runs: Path) -> None:
    found, run = ask(client, "/api/run", id="first"), load_run(runs / "first")
    assert found["spec"]["nodes"] == 30
    online = run.tables["online"]
    assert found["online"]["online"] == online["online"].tolist()
    assert found["evaluations"]["round"] == run.tables["evaluations"]["round"].tolist()
    phases = run.detail("phases")
    assert sum(found["phases"]["rounds"]) == len(phases["round"])
    assert found["phase_means_s"]["training_s"] == pytest.approx(phases["training_s"].mean())
    known = found["nodes_known"]
    assert len(known["place_of"]) == 30
    assert known["places"]["city"][known["place_of"][0]] == run.detail("nodes")["city"][0]
    assert found["views"]["mean_view"][0] > 0
    assert found["traffic"]["model_bytes"][-1] > 0


def test_a_model_that_diverges_hides_nothing_that_was_better(tmp_path: Path) -> None:
    write_run(tmp_path / "growing", until_s=600, finish=False)
    file = tmp_path / "growing" / "evaluations.csv"
    header, *lines = file.read_text().splitlines()
    found = [dict(zip(header.split(","), line.split(","), strict=True)) for line in lines]
    diverged = ",".join({**found[-1], "accuracy": "nan", "loss": "nan"}.values())
    file.write_text("\n".join([header, *lines, diverged, ""]))
    metric = Library(tmp_path).listing()["runs"][0]["metric"]
    assert metric["best"] == max(float(each["accuracy"]) for each in found)
    file.write_text("\n".join([header, diverged, ""]))
    assert Library(tmp_path).listing()["runs"][0]["metric"]["best"] is None


def made_up(folder: Path, protocol: str, *seeds: list[float]) -> None:
    for seed, values in enumerate(seeds, start=1):
        name = f"{protocol}-{seed}"
        outcome = result(digest=name, simulated_s=14_400.0, messages={"model": Traffic(10, 10**6)})
        save(folder / name, outcome, protocol, values, seed)


def test_runs_are_compared_as_on_the_command_line(tmp_path: Path) -> None:
    made_up(tmp_path, "plexus", [0.5, 0.7, 0.8, 0.8], [0.6, 0.7, 0.8, 0.82])
    made_up(tmp_path, "gossip", [0.1, 0.2, 0.3, 0.5], [0.1, 0.2, 0.3, 0.55])
    ids = ["plexus-1", "plexus-2", "gossip-1", "gossip-2"]
    found = Library(tmp_path).compared([*ids, "nowhere"])
    assert [(each["label"], each["runs"]) for each in found["arms"]] == [
        ("Plexus", ids[:2]),
        ("Gossip Learning", ids[2:]),
    ]
    [setting] = found["settings"]
    assert "best accuracy at the end is that of Plexus: 80.5 ± 6.4 %." in setting["seen"]
    rows = {name: cells for name, *cells in setting["rows"]}
    assert rows["End accuracy"] == ["80.5 ± 6.4 %", "41.2 ± 15.9 %"]
    assert rows["TTA saved"] == ["4.00× (4.00–4.00)", ""]
    assert rows["Sent by all nodes"] == ["1 ± 0 MB"] * 2
    assert rows["Rounds"] == ["1,234 ± 0"] * 2
    assert rows["Training on devices [h]"] == ["1.50 ± 0.00"] * 2
    printed = CliRunner().invoke(compare, [*(str(tmp_path / id) for id in ids), "--json"])
    [told] = json.loads(printed.stdout)
    assert told["setting"] == setting["title"]
    assert [arm["label"] for arm in told["comparison"]["arms"]] == [arm["label"] for arm in setting["arms"]]


def test_nobody_is_called_better_within_the_intervals_or_by_one_seed(tmp_path: Path) -> None:
    made_up(tmp_path, "plexus", [0.1, 0.2, 0.3, 0.5], [0.1, 0.2, 0.3, 0.6])
    made_up(tmp_path, "gossip", [0.1, 0.2, 0.3, 0.4], [0.1, 0.2, 0.3, 0.55])
    library, ids = Library(tmp_path), ["plexus-1", "plexus-2", "gossip-1", "gossip-2"]
    [setting] = library.compared(ids)["settings"]
    assert "Within their intervals: Gossip Learning." in setting["seen"]
    rows = {name: cells for name, *cells in setting["rows"]}
    assert rows["TTA saved"] == ["within noise", ""]
    [setting] = library.compared(ids[::2])["settings"]
    assert "One seed has no interval: whether the others differ is not known." in setting["seen"]


def test_other_hours_are_another_setting(client: Client) -> None:
    found = ask(client, "/api/compare?run=first&run=again&run=longer")
    titles = [setting["title"] for setting in found["settings"]]
    assert titles == ["Digits, 30 nodes, churn, hours = 1", "Digits, 30 nodes, churn, hours = 2"]
    assert [setting["arms"][0]["runs"] for setting in found["settings"]] == [["first", "again"], ["longer"]]


def test_a_window_holds_all_that_was_under_way(client: Client, runs: Path) -> None:
    run = load_run(runs / "first")
    found = ask(client, "/api/window", id="first", **{"from": 1200, "to": 1300})
    completed_s = [s for s in run.tables["rounds"]["simulated_s"].tolist() if s <= 1200]
    began_s = found["from_s"]
    assert began_s == completed_s[-2], "with the models that the round under way began with"
    transfers = run.detail("transfers")
    expected = (transfers["simulated_s"] >= began_s) & (transfers["began_s"] <= 1300)
    assert len(found["transfers"]["source"]) == expected.sum() > 0
    presence, online = run.detail("presence"), set()
    for at_s, node, is_on in zip(*presence.values(), strict=True):
        if at_s <= began_s:
            (online.add if is_on else online.discard)(int(node))
    assert set(found["online"]) == online
    assert not found["thinned"]


def test_what_goes_wrong_on_purpose_is_told(client: Client, runs: Path) -> None:
    shown = ask(client, "/api/run", id="folder/second")
    assert shown["attackers"] == {"4": "flip", "9": "flip"}
    assert ask(client, "/api/run", id="first")["attackers"] == {}
    assert shown["made_twice"] == 0
    twice = {"round": np.array([1, 2, 2, 3, 3, 3]), "aggregator": np.array([5, 6, 7, 8, 8, 9])}
    assert _made_twice(twice) == 2
    found = ask(client, "/api/window", id="folder/second", **{"from": 1000, "to": 1100})["faults"]
    assert (found["node"], found["kind"], found["until_s"]) == ([3], ["partition"], [1800])
    assert (
        ask(client, "/api/window", id="folder/second", **{"from": 3000, "to": 3100})["faults"]["node"] == []
    )
    assert ask(client, "/api/window", id="first", **{"from": 1000, "to": 1100})["faults"] == {}


def test_a_node_has_its_own_answer(client: Client, runs: Path) -> None:
    trainings = load_run(runs / "first").detail("trainings")
    node = int(trainings["node"][0])
    found = ask(client, "/api/node", id="first", node=node)
    assert found["node"] == node
    assert found["city"] and found["up_bytes_per_s"] > 0
    assert len(found["trainings"]["round"]) == (trainings["node"] == node).sum()
    assert set(found["states"]["node"]) == {node}
    assert client.get("/api/node", params={"id": "first", "node": 99}).status == 404
    assert client.get("/api/node", params={"id": "first", "node": "x"}).status == 404


def test_what_has_not_changed_is_not_sent_again(client: Client) -> None:
    tag = client.get("/api/run", params={"id": "first"}).headers["etag"]
    again = client.get("/api/run", params={"id": "first"}, headers={"If-None-Match": tag})
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize(
    "id", ["", "..", "../runs", "/etc", "first/../growing", "folder", "first/", "%2e%2e", "nothing"]
)
def test_only_what_is_in_the_list_can_be_asked_for(client: Client, id: str) -> None:
    assert client.get("/api/run", params={"id": id}).status == 404


@pytest.mark.parametrize(
    "path", ["/../pyproject.toml", "/js/../../app.py", "/%2e%2e/app.py", "/js/..%2f..%2fapp.py", "/js/"]
)
def test_no_path_leads_out_of_the_page(client: Client, path: str) -> None:
    assert client.get(path).status == 404


@pytest.mark.parametrize(
    "query", [{}, {"from": "a", "to": "b"}, {"from": 5, "to": 1}, {"from": "nan", "to": 1}]
)
def test_a_window_needs_two_moments(client: Client, query: dict[str, Any]) -> None:
    assert client.get("/api/window", params={"id": "first", **query}).status == 400


def test_a_damaged_run_is_a_line_that_names_the_file(client: Client, runs: Path) -> None:
    answer = client.get("/api/run", params={"id": "damaged"})
    assert answer.status == 500
    assert str(runs / "damaged" / "result.json") in answer.json()["error"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("result.json", b"{"),
        ("result.json", b"[]"),
        ("result.json", b'{"interrupted": false}'),
        ("result.json", b'"\xff"'),
        ("spec.toml", b'name = "x"'),
        ("spec.toml", b"nodes ="),
        ("versions.json", b"[]"),
        ("evaluations.csv", b"simulated_s,round,accuracy\n1,1\n"),
        ("evaluations.csv", b"simulated_s,round,accuracy\n1,1,good\n"),
        ("rounds.csv", b"\xff,round\n1,2\n"),
        ("online.csv", b"at,who\n1,2\n"),
    ],
)
def test_no_damage_hides_the_other_runs(name: str, content: bytes, tmp_path: Path) -> None:
    for each in ("damaged", "whole"):
        write_run(tmp_path / each, until_s=120, finish=False)
    (tmp_path / "damaged" / name).write_bytes(content)
    write_run(tmp_path / "fleet", until_s=120, finish=False)
    (tmp_path / "fleet" / "versions.json").write_text('{"spec_digest": "abc", "kind": "live", "homes": 3}')
    questions = Questions(Library(tmp_path))
    for _ in range(2):  # it is still damaged at the second look
        listed = {run["id"]: run for run in json.loads(questions.runs(None).body)["runs"]}
        assert listed["whole"]["status"] == "running"
        assert str(tmp_path / "damaged" / name) in listed["damaged"]["error"]
        assert str(tmp_path / "fleet" / "versions.json") in listed["fleet"]["error"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_it_only_shows_things(client: Client, method: str) -> None:
    assert client.get("/api/runs", method=method).status == 405


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8400", 200),
        ("localhost:8400", 200),
        ("[::1]:8400", 200),
        ("LOCALHOST", 200),
        ("evil.example", 421),
        ("evil.example:8400", 421),
        ("127.0.0.1.evil.example", 421),
        ("", 421),
    ],
)
def test_a_strangers_name_for_this_machine_is_refused(client: Client, host: str, status: int) -> None:
    assert client.get("/api/runs", headers={"Host": host}).status == status


def test_a_name_can_be_allowed(runs: Path) -> None:
    assert Guard(create_app(Library(runs)), ["lab.example"]).is_allowed("lab.example:8400")


def test_every_answer_says_what_a_browser_may_do(client: Client) -> None:
    for path in ("/", "/js/main.js", "/api/runs", "/nothing"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"


def test_the_page_refers_to_nothing_elsewhere() -> None:
    for file in STATIC.rglob("*"):
        if file.suffix in (".html", ".css", ".js") and "vendor" not in file.parts:
            elsewhere = re.findall(r"https?://[^\s\"'`]+", file.read_text(encoding="utf-8"))
            assert set(elsewhere) <= {"http://www.w3.org/2000/svg"}, file
            assert "innerHTML" not in file.read_text(encoding="utf-8"), file


def test_a_missing_directory_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(PlexusError, match="no such directory"):
        Library(tmp_path / "runs")


def test_a_directory_can_be_one_run(runs: Path) -> None:
    assert list(Library(runs / "first").sources()) == ["first"]
