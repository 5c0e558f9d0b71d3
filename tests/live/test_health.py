"""What a peer says of its health: to load balancers, to Prometheus, to whoever watches a fleet of them."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from plexus.live.operator.control import page
from plexus.live.operator.status import TOLD_REASONS, FactObserver, PeerStatus, as_prometheus
from plexus.live.transport.hub import Hub
from plexus.protocol.facts import Refused
from tests.live.ends import End
from tests.live.party import Party
from tests.live.test_status import observed

MONITORING = Path(__file__).parents[2] / "examples" / "monitoring"
STATUS = PeerStatus(
    session="s",
    node="0a1b",
    phase="online",
    phase_since_s=1.0,
    certificate_days_left=6.5,
    waiting_for=[],
    online_view=5,
    since_progress_s=12.0,
    metric={"name": "accuracy", "round": 10, "value": 0.9, "loss": 0.3},
    counts=dict.fromkeys(("trainings_failed", "writes_failed", "clones_noticed", "errors"), 0),
    sent_bytes={"model": 1000, "probe": 64, "ping": 3},
    refused={"it does not fit its seal": 2},
)


def with_phase(phase: str, *problems: str) -> PeerStatus:
    return PeerStatus(
        session="s", node="0a1b", phase=phase, phase_since_s=1.0, certificate_days_left=1.0, waiting_for=[],
        problems=list(problems),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (with_phase("online"), "200 OK", b"ok\n"),
        (with_phase("ended"), "200 OK", b"ok\n"),
        (with_phase("joining"), "503 Service Unavailable", b"the peer is joining\n"),
        (
            with_phase("online", "no progress for 2000 s"),
            "503 Service Unavailable",
            b"no progress for 2000 s\n",
        ),
    ],
)
def test_a_peer_is_ready_when_it_is_online_and_well_and_healthy_while_it_answers(
    status: PeerStatus, code: str, said: bytes
) -> None:
    assert page("/readyz", status)[:2] == (code, said)
    assert page("/healthz", status)[:2] == ("200 OK", b"ok\n")


def test_prometheus_is_told_by_type_and_by_reason() -> None:
    text = as_prometheus(STATUS).decode()
    for line in (
        "plexus_seconds_since_progress 12.0",
        "plexus_online_view 5.0",
        "plexus_certificate_days_left 6.5",
        "plexus_trainings_failed_total 0.0",
        "plexus_writes_failed_total 0.0",
        'plexus_sent_bytes_total{type="probe"} 64.0',
        'plexus_refused_total{reason="it does not fit its seal"} 2.0',
    ):
        assert line in text.splitlines()


def test_reasons_that_others_think_up_do_not_fill_the_page() -> None:
    facts: FactObserver = observed(*(Refused(0, "x", f"reason {n}") for n in range(100)))[0]
    told = facts.by_reason()
    assert len(told) == TOLD_REASONS + 1
    assert sum(told.values()) == 100
    assert told["other reasons"] == 100 - TOLD_REASONS


@pytest.mark.parametrize("file", ["alerts.yml", "grafana.json"])
def test_what_the_monitoring_looks_at_is_there(file: str) -> None:
    text = (MONITORING / file).read_text()
    exported = {line.split("{")[0].split()[0] for line in as_prometheus(STATUS).decode().splitlines()}
    looked_at = set(re.findall(r"plexus_\w+", text))
    assert looked_at
    assert looked_at <= exported
    if file.endswith("json"):
        assert json.loads(text)["title"] == "Plexus"


def test_a_key_that_two_processes_use_is_noticed_and_a_restart_is_none(tmp_path: Path) -> None:
    party = Party(tmp_path)

    async def story() -> None:
        one, other = party.admissions("ab")
        watcher = End(one)
        await watcher.open()

        async def meet(hub: Hub) -> None:
            reason = await hub.dialler.introduce(watcher.address)
            assert reason is None, reason

        first, second = End(other), End(other)
        await meet(first.hub)
        await meet(second.hub)  # as after a restart
        assert watcher.hub.clones == 0
        await first.hub.close("gone")
        again = End(other)
        again.hub._incarnation = first.hub._incarnation  # it was there all the time
        await meet(again.hub)
        assert watcher.hub.clones == 1
        assert "cloned_identity" in watcher.log.getvalue()
        for end in (watcher, second, again):
            await end.hub.close("over")

    asyncio.run(story())
