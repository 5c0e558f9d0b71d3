"""Who attacks, and what a spec may say of it and of rules."""

from __future__ import annotations

from typing import Any

import pytest

from plexus.errors import PlexusError
from plexus.learn.rules import ClipRule, MeanRule
from plexus.loading import OwnSpec
from plexus.spec.attackers import AttackerSpec, attackers_of, parsed
from plexus.spec.experiment import ExperimentSpec, parse_spec

TABLES: dict[str, Any] = {"name": "x", "nodes": 20, "hours": 1, "task": "digits"}


def spec(**changes: Any) -> ExperimentSpec:
    return parse_spec({**TABLES, **changes}, "x.toml")


def test_a_share_is_drawn_by_seed_and_nobody_attacks_twice() -> None:
    some = (AttackerSpec(behaviour="flip", share=0.2), AttackerSpec(behaviour="alie", share=0.5))
    found = attackers_of(some, 20, seed=1)
    kinds = [each.behaviour for each in found.values()]
    assert (kinds.count("flip"), kinds.count("alie")) == (4, 10)
    assert found == attackers_of(some, 20, seed=1) != attackers_of(some, 20, seed=2)
    named = AttackerSpec(behaviour="noise", nodes=(3, 4))
    assert attackers_of([named], 20, 1) == {3: named, 4: named}


def test_attackers_on_the_command_line() -> None:
    flip, alie = parsed(["2:flip", "3:alie"], nodes=6, seed=1)
    assert (flip.behaviour, len(flip.nodes), alie.behaviour, len(alie.nodes)) == ("flip", 2, "alie", 3)
    assert len(set(flip.nodes + alie.nodes)) == 5
    for text, words in (("flip", "as 2:flip"), ("7:flip", "as 2:flip"), ("2:flop", "did you mean 'flip'")):
        with pytest.raises(PlexusError, match=f"^--attackers {text}: .*{words}"):
            parsed([text], nodes=6, seed=1)


def test_what_is_wrong_with_attackers_is_named() -> None:
    for table, words in (
        ({"behaviour": "flip"}, "attackers.*either share or nodes"),
        ({"behaviour": "flip", "share": 0.1, "nodes": [1]}, "attackers.*either share or nodes"),
        ({"behaviour": "flip", "nodes": [20]}, "there is no node 20"),
        ({"behaviour": "flop", "share": 0.1}, "behaviour.*flop"),
        ({"behaviour": "flip", "share": 0.1, "factr": 1}, "factr.*did you mean"),
    ):
        with pytest.raises(PlexusError, match=words):
            spec(attackers=[table])


def test_a_rule_is_a_name_or_a_table_and_reads_back() -> None:
    assert spec().aggregation.parameters == MeanRule()
    assert spec().plain()["aggregation"] == "mean", (
        "specs from before rules had parameters keep their digests"
    )
    assert spec(aggregation="clip").digest() == spec(aggregation={"name": "clip", "factor": 1}).digest()
    assert spec(aggregation={"name": "clip", "factor": 2}).aggregation.parameters == ClipRule(factor=2.0)
    own = spec(aggregation={"name": "mine:Rule", "by": 3})
    assert own.aggregation.parameters == OwnSpec("mine:Rule", {"by": 3})
    robust = spec(aggregation="nnm-trimmed", attackers=[{"behaviour": "flip", "share": 0.1}])
    for each in (spec(), own, robust):
        assert parse_spec(each.to_toml(), "again.toml") == each


def test_what_is_wrong_with_a_rule_is_named() -> None:
    for value, words in (
        ("maen", r"aggregation.name.*'maen' is not one of .*did you mean 'mean'"),
        ({"name": "clip", "facter": 2}, "aggregation.facter: unknown key.*factor"),
        ({"name": "median", "tolerated": 0.2}, "aggregation.tolerated: unknown key"),
        ({"name": "trimmed-mean", "tolerated": 0.5}, "aggregation.tolerated"),
    ):
        with pytest.raises(PlexusError, match=words):
            spec(aggregation=value)
