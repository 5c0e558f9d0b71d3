"""Rehearsal = deployment: live peers and the simulator derive the same samples, aggregators and weights."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import load
from torch import Tensor

from plexus.learn.expressions import Expression
from plexus.learn.graph import LazyModels
from plexus.learn.layout import encode
from plexus.learn.rules import RULES
from plexus.learn.tasks import build_task, create_task
from plexus.learn.trainer import InlineEngine
from plexus.live.aggregator import Aggregator
from plexus.live.fleet.fleet import Fleet
from plexus.live.identity.keys import short
from plexus.live.identity.session_file import session_digest
from plexus.live.models import LiveModel, ModelLayout, seal
from plexus.live.state import newest_model
from plexus.live.transport.receiving import Buffers, Ticket
from plexus.protocol.api import Aggregate, Change, Collect, Merge
from plexus.protocol.facts import AggregatorChosen, SampleDerived
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.roster import Roster
from plexus.protocol.view import View
from plexus.sim.session import Nodes, Setting, SymbolicModels, assemble
from plexus.spec.experiment import ExperimentSpec, parse_spec
from plexus.traces.build import TracesSpec, build_world
from tests.live.homes import authority_public, node_keys

NODES, ROUNDS = 6, 10
SPEC = """
name = "conformance"
nodes = 6
hours = 1
protocol = { sample_size = 4, start_delay_s = 2.0, ping_timeout_s = 5.0, success_fraction = 1.0 }
task = { name = "digits" }
traces = { availability = "none" }
"""
Log = dict[tuple[str, int], set[Any]]
"""(what, round) -> everything that any node said about it."""


def bandwidth_of(node: int) -> int:
    return 1_000_000 + 1000 * (node * 5 % NODES)


async def run_fleet(spec: ExperimentSpec, out: Path, rounds: int) -> Fleet:
    fleet = Fleet(spec, out, world=None)
    try:
        await fleet.prepare()
        fleet.wait_for_all()
        for member in fleet.members:
            member.command += ["--bandwidth", str(bandwidth_of(member.number))]
        await asyncio.gather(*(member.start() for member in fleet.members))
        async with asyncio.timeout(90):
            while fleet.round < rounds:
                await asyncio.sleep(0.1)
                for member in fleet.members:
                    member.log.read()
                    assert not member.notice_death()
    finally:
        await fleet.close()
    return fleet


async def run_live(spec: ExperimentSpec, out: Path) -> tuple[Log, bytes, list[bytes]]:
    fleet = await run_fleet(spec, out, ROUNDS + 2)
    log: Log = defaultdict(set)
    for member in fleet.members:
        for text in (member.home / "log.jsonl").read_bytes().splitlines():
            line = msgspec.json.decode(text)
            if line["event"] == "SampleDerived":
                log["sample", line["round"]].add(tuple(line["sample"]))
            elif line["event"] == "AggregatorChosen":
                log["aggregator", line["round"]].add(line["aggregator"])
    keys = node_keys([member.home for member in fleet.members])
    return log, session_digest(spec.plain(), authority_public(out / "session")), keys


def run_simulated(spec: ExperimentSpec, session: bytes, keys: list[bytes]) -> Log:
    world = build_world(TracesSpec(availability="none"), NODES, spec.seed, Path())
    roster = Roster(session, keys)
    present = View.of(NODES, [(node, bandwidth_of(node)) for node in range(NODES)]).snapshot()
    nodes = [
        PlexusNode(
            me=node,
            parameters=spec.protocol.parameters,
            roster=roster,
            view=View(present),
            bandwidth_bytes_per_s=bandwidth_of(node),
            initial_model=None,
            rng=Random(node),
        )
        for node in range(NODES)
    ]
    log: Log = defaultdict(set)

    def observe(_now: float, _node: int, fact: object) -> None:
        if isinstance(fact, SampleDerived):
            log["sample", fact.ordinal].add(tuple(short(keys[node]) for node in fact.sample))
        elif isinstance(fact, AggregatorChosen):
            log["aggregator", fact.ordinal].add(short(keys[fact.aggregator]))

    setting = Setting(world, SymbolicModels(20_000), None, lambda _: 1.0, spec.seed)
    assemble(setting, Nodes(nodes, world), observe).run(3600.0)
    return log


@pytest.mark.slow
def test_a_quiet_session_has_the_same_samples_and_aggregators_live_and_simulated(tmp_path: Path) -> None:
    spec = parse_spec(SPEC, "conformance.toml")
    live, session, keys = asyncio.run(run_live(spec, tmp_path))
    simulated = run_simulated(spec, session, keys)
    wanted = [("sample", k) for k in range(1, ROUNDS + 1)]
    wanted += [("aggregator", k) for k in range(2, ROUNDS + 1)]
    for what in wanted:
        assert len(simulated[what]) == 1, f"the simulation disagrees with itself about {what}"
    assert {what: live[what] for what in wanted} == {what: simulated[what] for what in wanted}
    chosen = [next(iter(live["aggregator", k])) for k in range(2, ROUNDS + 1)]
    print(f"\n{NODES} nodes, {ROUNDS} rounds: the same samples, the same aggregators {chosen}")


WEIGHTED = """
name = "weights"
nodes = 5
hours = 1
aggregation = "{rule}"
protocol = {{ sample_size = 5, start_delay_s = 2.0, ping_timeout_s = 5.0, success_fraction = 1.0 }}
task = {{ name = "digits", partition = "dirichlet", alpha = 0.3 }}
traces = {{ availability = "none" }}
"""


def simulated_weights(spec: ExperimentSpec, rule: str, round: int) -> dict[str, Tensor]:
    """The model with which `round` begins, if everybody trains in every round."""
    task = build_task(spec.task.parameters, spec.nodes, spec.seed, Path())
    models = LazyModels(task, InlineEngine(task), RULES[rule]())
    nodes = range(spec.nodes)
    model = models.initial()
    for each in range(1, round):
        trained = [models.train(model, node, each) for node in nodes]
        model = models.mean(trained, [models.samples(node) for node in nodes])
    return models.weights(model)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_every_aggregation_gives_the_same_weights_live_and_simulated(rule: str, tmp_path: Path) -> None:
    spec = parse_spec(WEIGHTED.format(rule=rule), "weights.toml")
    fleet = asyncio.run(run_fleet(spec, tmp_path, rounds=3))
    held = [found for member in fleet.members if (found := newest_model(member.home)) is not None]
    newest = max(held, key=lambda found: found.round)
    live = load(bytes(newest.data))

    def difference(name: str) -> float:
        wanted = simulated_weights(spec, name, newest.ordinal)
        return max(float((live[key] - wanted[key]).abs().max()) for key in wanted)

    # Live, models are added in the order in which they arrive.
    assert difference(rule) < 1e-5
    assert all(difference(other) > 1e-4 for other in RULES if other != rule)


def aggregated_live(
    rule: str,
    models: list[bytes],
    samples: list[int],
    changes: list[tuple[bytes, bytes]],
    late: list[int],
    folder: Path,
) -> dict[str, Tensor]:
    """What an aggregator makes of models and changes that arrive in turn, one of each twice as often."""
    layout = ModelLayout(models[0])
    buffers = Buffers(layout.size_bytes, 4 * layout.size_bytes)
    found: list[LiveModel | None] = []

    def arrived(data: bytes | memoryview) -> LiveModel:
        ticket = Ticket(lambda: None)
        buffers.request(ticket)
        assert ticket.buffer is not None
        ticket.buffer[:] = data
        return LiveModel(ticket.buffer, seal(data), ticket)

    async def story() -> None:
        aggregator = Aggregator(
            layout, buffers, RULES[rule](), folder, lambda round, model, flaw: found.append(model)
        )
        held = [Change(*(LiveModel(memoryview(each), b"") for each in pair)) for pair in changes]
        sent: list[LiveModel] = []
        for change in held:
            aggregator.difference(change, sent.append)
        await asyncio.sleep(0)
        came, came_late = [arrived(each) for each in models[:2]], [arrived(each.data) for each in sent]
        for at in range(2):
            aggregator.collect(Collect(5, came_late[at], late[at], is_change=True))
            aggregator.collect(Collect(5, came[at], samples[at]))
        await asyncio.sleep(0)
        came.append(arrived(models[2]))
        aggregator.collect(Collect(5, came[2], samples[2]))
        counts = tuple(samples), tuple(late)
        aggregator.aggregate(Aggregate(5, tuple(came), counts[0], tuple(came_late), counts[1]))
        # The same of models and changes that the node has kept by itself.
        kept = [LiveModel(memoryview(each), b"") for each in models]
        aggregator.aggregate(Aggregate(6, tuple(kept), counts[0], tuple(sent), counts[1]))
        await asyncio.sleep(0)
        aggregator.close()

    asyncio.run(story())
    assert buffers.free == buffers.count
    first, second = (load(bytes(model.data)) for model in found if model is not None)
    assert all(torch.equal(first[name], second[name]) for name in first)
    return first


@pytest.mark.parametrize("rule", RULES)
def test_changes_move_an_aggregate_by_the_same_live_and_simulated(rule: str, tmp_path: Path) -> None:
    task = create_task("digits", nodes=12, seed=7)
    models = LazyModels(task, InlineEngine(task), RULES[rule]())

    def sent(model: Expression) -> bytes:
        return encode(models.weights(model))

    start = models.initial()
    first = models.mean([models.train(start, node, 1) for node in range(3)], [1] * 3)
    trained = [models.train(first, node, 2) for node in range(3)]
    late = [Change(models.train(start, 3, 1), start), Change(models.train(first, 4, 2), first)]
    samples, late_samples = [30, 10, 20], [25, 15]
    wanted = models.weights(models.mean(trained, samples, late, late_samples))
    without = models.weights(models.mean(trained, samples))
    changes = [(sent(each.trained), sent(each.base)) for each in late]
    live = aggregated_live(rule, [sent(each) for each in trained], samples, changes, late_samples, tmp_path)
    assert max(float((live[key] - wanted[key]).abs().max()) for key in wanted) < 1e-5
    assert max(float((live[key] - without[key]).abs().max()) for key in wanted) > 1e-3


def test_fedbuff_makes_the_same_of_changes_live_and_simulated(tmp_path: Path) -> None:
    """Of one change of the newest model and one that is two versions old, in a buffer of two."""
    task = create_task("digits", nodes=12, seed=7)
    models = LazyModels(task, InlineEngine(task), RULES["mean"]())
    old = models.initial()
    new = models.merge([models.train(old, node, 1) for node in range(3)], [1] * 3)
    parts = [new, models.train(new, 3, 3), new, models.train(old, 4, 1), old]
    fresh, stale = 1 / 2, 1 / 2 / 3**0.5
    weights = (1.0, fresh, -fresh, stale, -stale)
    held = [LiveModel(memoryview(encode(models.weights(part))), b"") for part in parts]
    layout = ModelLayout(bytes(held[0].data))
    found: list[LiveModel | None] = []

    async def story() -> None:
        buffers = Buffers(layout.size_bytes, 4 * layout.size_bytes)
        aggregator = Aggregator(
            layout, buffers, RULES["mean"](), tmp_path, lambda *made: found.append(made[1])
        )
        aggregator.merge(Merge(4, tuple(held), weights))
        await asyncio.sleep(0)
        aggregator.close()

    asyncio.run(story())
    assert found[0] is not None
    live, simulated = load(bytes(found[0].data)), models.weights(models.merge(parts, weights))
    x, *changes = (models.weights(part) for part in parts)
    for key, value in x.items():
        moved = fresh * (changes[0][key] - changes[1][key]) + stale * (changes[2][key] - changes[3][key])
        assert float(moved.abs().max()) > 0
        for each in (live, simulated):
            assert torch.allclose(each[key], value + moved, atol=1e-6)
