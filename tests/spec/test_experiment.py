"""Reading a spec: typed, complete, reproducible; and one clear line for everything that is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import pytest
from msgspec import Meta, Struct

from plexus.errors import PlexusError
from plexus.spec import experiment as specs
from plexus.spec import toml
from plexus.spec.experiment import ExperimentSpec, load_spec, parse_spec
from plexus.traces.build import TracesSpec
from tools import spec_reference
from tools.spec_reference import field_docs

TEXT = """\
name = "small"
nodes = 10
hours = 3
[task]
name = "parity"
[task.rate]
kind = "falling"
"""


class Constant(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="constant"):
    """The same all the time."""


class Falling(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="falling"):
    """Less and less."""

    half_life_s: float = 60.0
    """Time in which it halves, in seconds."""


class ParitySpec(Struct, frozen=True, forbid_unknown_fields=True, tag_field="name", tag="parity"):
    """A task that exists only here, with every kind of key there is."""

    partition: Literal["iid", "dirichlet"] = "iid"
    """How examples are divided."""
    learning_rate: Annotated[float, Meta(gt=0)] = 1
    """Step size;
    continued on a second line."""
    widths: tuple[int, ...] = (8, 8)
    """Sizes of the layers."""
    rate: Constant | Falling = Constant()
    """How the step size changes."""
    file: str | None = None
    """Where data comes from."""

    def __post_init__(self) -> None:
        if not self.widths:
            raise PlexusError(f"widths = {self.widths}: at least one is needed")


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(specs.CHOICES, "task", {"parity": ParitySpec})


def read(*overrides: str, text: str = TEXT, seed: int | None = None) -> ExperimentSpec:
    return parse_spec(text, "small.toml", overrides, seed)


def complaint(*overrides: str, text: str = TEXT, seed: int | None = None) -> str:
    with pytest.raises(PlexusError) as error:
        read(*overrides, text=text, seed=seed)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_sections_have_the_types_that_their_names_choose() -> None:
    spec = read()
    assert (spec.name, spec.seed, spec.nodes, spec.hours) == ("small", 1, 10, 3.0)
    assert spec.protocol.name == "plexus"
    assert spec.protocol.parameters.sample_size == 13
    assert spec.task == specs.Choice("parity", ParitySpec(learning_rate=1.0, rate=Falling()))
    assert spec.traces == TracesSpec()
    assert (spec.network.sharing, spec.evaluation.every_rounds) == ("shared", 10)


def test_overrides_beat_the_file_and_the_seed_option_beats_both() -> None:
    spec = read("seed=5", "nodes=7", "network.sharing=fifo", "task.widths=[4]", seed=9)
    assert (spec.seed, spec.nodes, spec.network.sharing) == (9, 7, "fifo")
    assert spec.task.parameters.widths == (4,)


def test_an_override_can_make_a_section_that_the_file_lacks() -> None:
    assert read("protocol.sample_size=4").protocol.parameters.sample_size == 4


def test_the_resolved_spec_reads_back_as_the_same() -> None:
    spec = read("task.file='a \"b\".csv'", "task.learning_rate=1e-7", seed=3)
    assert read(text=spec.to_toml()) == spec
    assert "sample_size = 13" in spec.to_toml()


def test_equal_specs_have_equal_digests_however_they_are_written() -> None:
    digest = read().digest()
    assert len(digest) == 16
    assert read("hours=3.0", "task.learning_rate=1.0", "network.sharing=shared").digest() == digest
    assert read(text=read().to_toml()).digest() == digest
    others = {read(seed=2).digest(), read("hours=4").digest(), read("task.partition=dirichlet").digest()}
    assert len(others | {digest}) == 4


@pytest.mark.parametrize(
    ("override", "rest"),
    [
        ("nodez=3", "unknown key (did you mean 'nodes'?)"),
        ("sample_size=3", "unknown key (did you mean 'protocol.sample_size'?)"),
        ("partition=iid", "unknown key (did you mean 'task.partition'?)"),
        ("qqq=1", "unknown key"),
        ("protocol.sampel_size=3", "unknown key (did you mean 'protocol.sample_size'?)"),
        ("task.rate.half_lif_s=1", "unknown key (did you mean 'task.rate.half_life_s'?)"),
        ("nodes=0", "expected an integer >= 1, got 0"),
        ("nodes=many", "expected an integer, got 'many'"),
        ("nodes=true", "expected an integer, got true"),
        ("nodes=1.5", "expected an integer, got 1.5"),
        ("hours=0", "expected a number > 0.0, got 0"),
        ("hours=inf", "hours is inf, but must be finite"),
        ("hours=nan", "hours is not a number (nan)"),
        ("seed=-1", "expected an integer >= 0, got -1"),
        ("network=3", "expected a table, got 3"),
        ("protocol=3", "expected a table, got 3"),
        ("task.file=3", "expected a string, got 3"),
        ("task.widths=4", "expected a list, got 4"),
        ("task.name=1", "1 is not one of 'parity'"),
        ("task.name=[]", "a list is not one of 'parity'"),
        ("task.name=pairty", "'pairty' is not one of 'parity' (did you mean 'parity'?)"),
        ("network.sharing=shard", "'shard' is not one of 'fair', 'fifo', 'shared' (did you mean 'shared'?)"),
        (
            "task.rate.kind=constnat",
            "'constnat' is not one of 'constant', 'falling' (did you mean 'constant'?)",
        ),
        ("traces.graceful_share=3", "expected a number <= 1.0, got 3"),
        ("task.widths=[]", "task.widths = (): at least one is needed"),
        ("nodes.x=1", "nodes is not a section"),
        ("protocol.advertise_size=0", "protocol.advertise_size is 0, but must be at least 1"),
        (
            "name='a b'",
            "name is 'a b', but must consist of letters, digits, '.', '_' and '-',"
            " and begin with a letter or digit",
        ),
    ],
)
def test_a_wrong_option_is_told_in_one_line(override: str, rest: str) -> None:
    assert complaint(override) == f"--set {override}: {rest}"


def test_a_wrong_list_item_is_named_by_its_place() -> None:
    assert complaint("task.widths=[1, 'x']") == (
        "--set task.widths=[1, 'x']: task.widths[1]: expected an integer, got 'x'"
    )


def test_a_wrong_value_in_the_file_is_named_by_file_and_key() -> None:
    text = TEXT.replace("[task]", "[protocol]\nack_timeout_s = 10\n[task]")
    assert complaint(text=text).startswith(
        "small.toml: protocol.ack_timeout_s is 10.0, but must be greater than aggregation_timeout_s"
    )
    assert complaint(text=TEXT.replace("hours", "huors")) == (
        "small.toml: huors: unknown key (did you mean 'hours'?)"
    )
    assert complaint("hours=2", text=TEXT.replace("10", '"ten"')) == (
        "small.toml: nodes: expected an integer, got 'ten'"
    )


def test_a_session_that_ends_by_what_is_found_is_evaluated_by_rounds() -> None:
    text = f"{TEXT}[session]\npatience = 3\n"
    assert complaint("evaluation.every_rounds=0", text=text) == (
        "small.toml: evaluation.every_rounds is 0, but the end of the session depends on what it finds"
    )


def test_a_session_cannot_wait_for_more_nodes_than_it_has() -> None:
    text = f"{TEXT}[session]\nstart_with = 10\n"
    assert parse_spec(text, "small.toml").session.start_with == 10
    assert complaint("nodes=9", text=text) == (
        "small.toml: session.start_with is 10, but must be at most nodes (9): otherwise nobody ever trains"
    )


def test_a_missing_key_is_named() -> None:
    assert complaint(text="nodes = 3") == "small.toml: name: missing; this key has no default"
    without_task = TEXT.replace('[task]\nname = "parity"\n', "")
    assert complaint(text=without_task) == "small.toml: task.name: missing; one of 'parity'"


def test_a_wrong_seed_option_is_named() -> None:
    assert complaint(seed=-2) == "--seed -2: expected an integer >= 0, got -2"


def test_a_syntax_error_is_told_with_its_line() -> None:
    assert complaint(text="name = 'x'\nnodes = = 3") == (
        "small.toml: not valid TOML: Invalid value (at line 2, column 9)"
    )


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "quickstart.toml").write_text(TEXT)
    assert load_spec(tmp_path / "quickstart.toml").name == "small"
    with pytest.raises(PlexusError) as error:
        load_spec(tmp_path / "quikstart.toml")
    assert str(error.value) == (
        f"{tmp_path}/quikstart.toml: no such file (did you mean '{tmp_path}/quickstart.toml'?)"
    )
    with pytest.raises(PlexusError) as error:
        load_spec(tmp_path.parent / "exp" / "quickstart.toml")
    assert str(error.value).endswith(f"no such file (did you mean '{tmp_path}/quickstart.toml'?)")
    with pytest.raises(PlexusError, match="cannot be read: Is a directory"):
        load_spec(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"name = '\xe9'")
    with pytest.raises(PlexusError, match=r"latin.toml: not UTF-8 text \(byte 8\)"):
        load_spec(tmp_path / "latin.toml")


def test_the_meaning_of_a_key_is_the_docstring_under_it() -> None:
    assert field_docs(ParitySpec)["learning_rate"] == "Step size; continued on a second line."


def test_the_reference_page_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    written = spec_reference.PAGE.read_text(encoding="utf-8")
    assert written == spec_reference.page(), "run: python tools/spec_reference.py"


def test_the_reference_has_a_row_for_every_key() -> None:
    page = spec_reference.page()
    for row in (
        "| `nodes` | integer, at least 1 | required | How many devices take part; at any time only"
        " some of them are online. |",
        "| `protocol.sample_size` | integer | `13` | s: how many",
        '| `task.partition` | one of `dirichlet`, `iid` | `"iid"` | How examples are divided. |',
        "| `task.widths` | list of integer | `[8, 8]` | Sizes of the layers. |",
        '### [task.rate] with kind = "falling"',
        "| `task.rate.half_life_s` | number | `60.0` | Time in which it halves, in seconds. |",
        "| `traces.graceful_share` | number, at least 0, at most 1 | `1.0` | Share of departures",
        "| `evaluation.every_rounds` | integer, at least 0 | `10` |",
    ):
        assert row in page


def test_a_field_without_a_docstring_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Undocumented(Struct):
        """No word under its field."""

        size: int = 1

    monkeypatch.setitem(specs.CHOICES, "task", {"x": Undocumented})
    with pytest.raises(LookupError, match=r"Undocumented\.size has no docstring under it"):
        spec_reference.page()


SIZED = TEXT + "[sizes.tiny]\nnodes = 3\nprotocol = { sample_size = 2 }\ntask = { learning_rate = 0.5 }\n"


def test_a_size_is_written_over_the_file_section_by_section() -> None:
    full = parse_spec(SIZED, "small.toml")
    assert full == read() == parse_spec(SIZED, "small.toml", size="paper")
    tiny = parse_spec(SIZED, "small.toml", ["nodes=4"], size="tiny")
    assert (tiny.nodes, tiny.hours, tiny.protocol.parameters.sample_size) == (4, 3.0, 2)
    assert tiny.task.parameters == ParitySpec(learning_rate=0.5, rate=Falling())


def test_a_section_that_is_given_a_name_begins_anew() -> None:
    before = {"protocol": {"name": "plexus", "sample_size": 5}, "traces": {"devices": "x", "y": 1}}
    after = toml.overlay(before, {"protocol": {"name": "gossip"}, "traces": {"y": 2}})
    assert after == {"protocol": {"name": "gossip"}, "traces": {"devices": "x", "y": 2}}
    assert before["protocol"] == {"name": "plexus", "sample_size": 5}


@pytest.mark.parametrize(
    ("text", "size", "words"),
    [
        (SIZED, "tyny", "small.toml: has no size 'tyny', only 'tiny', 'paper' (did you mean 'tiny'?)"),
        (TEXT, "tiny", "small.toml: has no size 'tiny', only 'paper'"),
        ("sizes = 3\n" + TEXT, "paper", "small.toml: sizes: expected a table for each size"),
        (SIZED + "hors = 2\n", "tiny", "small.toml: hors: unknown key (did you mean 'hours'?)"),
    ],
)
def test_a_size_that_is_not_there_or_wrong_is_named(text: str, size: str, words: str) -> None:
    with pytest.raises(PlexusError) as error:
        parse_spec(text, "small.toml", size=size)
    assert str(error.value).startswith(words)


FAULT = """
[[faults]]
kind = "partition"
from_h = 1
to_h = 2
nodes = [3]
"""


def test_faults_belong_to_the_spec_and_its_digest() -> None:
    plain, cut = parse_spec(TEXT, "f.toml"), parse_spec(TEXT + FAULT, "f.toml")
    assert "faults" not in plain.plain(), "specs from before there were faults keep their digests"
    assert parse_spec(TEXT, "f.toml", ["faults=[]"]).digest() == plain.digest()
    assert parse_spec(cut.to_toml(), "f.toml") == cut
    others = ['nodes="aggregators"', "nodes=0.5", "to_h=2.5", 'kind="crash"']
    digests = {parse_spec(_with(change), "f.toml").digest() for change in others}
    assert len({plain.digest(), cut.digest(), *digests}) == 6


def _with(*changes: str) -> str:
    """The spec with a fault, of which some keys are others."""
    lines = FAULT.strip().splitlines()
    for change in changes:
        key = change.partition("=")[0]
        lines = [line for line in lines if not line.startswith(f"{key} ")] + [change]
    return "\n".join([TEXT, *lines])


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            ['kind="partitoin"'],
            ".kind: 'partitoin' is not one of 'crash', 'partition', 'silence', 'slow-link'",
        ),
        (["to_h=1"], ".to_h is 1.0, but must be after from_h, 1.0"),
        (["to_h=inf"], ".to_h is inf, but must be after from_h, 1.0, and finite"),
        (["from_h=-1"], ".from_h: expected a number >= 0.0, got -1"),
        (["to_h=3.5"], ".to_h is 3.5, but the session ends after 3.0 hours"),
        (["nodes=[3, 10]"], ".nodes is wrong: there is no node 10, only 0 to 9"),
        (["nodes=[-1]"], ".nodes is wrong: there is no node -1, only 0 to 9"),
        (["nodes=[]"], ".nodes is [], but must name a node"),
        (["nodes=0.0"], ".nodes is 0.0, but a share must be above 0 and at most 1"),
        (["nodes=1.5"], ".nodes is 1.5, but a share must be above 0 and at most 1"),
        (["nodes=1"], ".nodes is 1, but must be a list, as [1], or a share with a point, as 0.3"),
        (
            ['nodes="agregators"'],
            ".nodes: 'agregators' is not one of 'aggregators' (did you mean 'aggregators'?)",
        ),
        (["factor=0.5"], ".factor is only for kind 'slow-link'"),
        (['kind="slow-link"'], ".factor is needed by kind 'slow-link'"),
        (["until_h=2"], ".until_h: unknown key"),
    ],
)
def test_what_is_wrong_with_a_fault_is_one_line(changes: list[str], complaint: str) -> None:
    with pytest.raises(PlexusError) as wrong:
        parse_spec(_with(*changes), "f.toml")
    assert str(wrong.value).startswith(f"f.toml: faults[0]{complaint}")
    assert "\n" not in str(wrong.value)
