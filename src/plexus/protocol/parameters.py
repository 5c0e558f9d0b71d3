"""The parameters of Plexus (the paper's section III-F), and when a session begins and ends (see `course`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta, Struct

MOST_LATE_ROUNDS = 1000


class PlexusParameters(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What every node of a session must agree on. A wrong value says which, why, and what is allowed."""

    sample_size: int = 13
    """s: how many nodes train in a round. More nodes average more data and load the aggregator more. At
    least 1; with fewer than s nodes online the sample is all of them."""

    success_fraction: float = 0.8
    """sf: the share of a sample's models that completes an aggregation, in (0, 1]. Higher wastes less
    training and waits longer for slow or gone participants."""

    ping_timeout_s: float = 2.0
    """Δt_p: how long a candidate may take to answer a ping, in seconds. An upper bound of the network's
    round-trip time: shorter flags slow nodes as offline, longer delays every sample with a gone node."""

    aggregation_timeout_s: float = 300.0
    """Δt_agg: an aggregator goes on with the models it has this long after the first, in seconds. Long
    enough for a slow participant to train and send its model."""

    ack_timeout_s: float = 450.0
    """Δt_ack: a participant tries another aggregator after this long without an acknowledgement, in
    seconds. Greater than the aggregation timeout, or models go to two aggregators."""

    advertise_size: int | None = None
    """|P|: how many nodes are told of a join or leave. Default: 10 times the sample size."""

    readvertise_s: float = 600.0
    """A node that nobody contacted for this long after joining advertises itself again, to others, and
    asks them to answer; and so on until somebody does, in seconds."""

    watchdog_s: float = 900.0
    """A node that sees no progress for this long asks around and, if nobody knows better, starts the next
    round from the newest model it holds, in seconds. Greater than the ack timeout, which comes first."""

    start_delay_s: float = 5.0
    """How long a node that knows of no round waits for others to show up before it derives the first
    sample, in seconds."""

    late_rounds: int = 0
    """How many rounds late a model may be and still count: its trainer sends what the training changed to a
    coming aggregator, which adds it and never waits for it. 0 is the paper: late models are lost."""

    wire: Literal["float32", "float16", "int8"] = "float32"
    """How the numbers of models travel: as they are; in half the bytes; or in a quarter, with a scale for
    each 128 of them and rounded with a dither, so that it is right on average."""

    views: Literal["whole", "lacking"] = "whole"
    """What travels of a node's view: all of it, 42 bytes a node, as in the paper; or what the receiver lacks,
    in about 5. Always so in live sessions."""

    signed_views: bool = False
    """Members may lie: entries of views are signed by their owners (64 bytes each), and no single member is
    believed what only it says. Always so in live sessions; off in the paper."""

    def __post_init__(self) -> None:
        """Refuse values that no session could work with."""
        require(self.sample_size >= 1, "sample_size", self.sample_size, "at least 1")
        require(
            0 < self.success_fraction <= 1,
            "success_fraction",
            self.success_fraction,
            "above 0 and at most 1: an aggregator needs a model, and cannot need more than all",
        )
        for timeout in ("ping_timeout_s", "aggregation_timeout_s", "ack_timeout_s"):
            require_duration(timeout, getattr(self, timeout))
        require_duration("readvertise_s", self.readvertise_s)
        require_duration("watchdog_s", self.watchdog_s)
        require(
            math.isfinite(self.start_delay_s) and self.start_delay_s >= 0,
            "start_delay_s",
            self.start_delay_s,
            "a number of seconds, 0 or more",
        )
        require(
            self.ack_timeout_s > self.aggregation_timeout_s,
            "ack_timeout_s",
            self.ack_timeout_s,
            f"greater than aggregation_timeout_s ({self.aggregation_timeout_s:g}): otherwise a participant "
            "turns to another aggregator while the first still waits for models",
        )
        require(
            self.watchdog_s > self.ack_timeout_s,
            "watchdog_s",
            self.watchdog_s,
            f"greater than ack_timeout_s ({self.ack_timeout_s:g}): otherwise rounds are started again "
            "that a retry would have saved",
        )
        require(
            0 <= self.late_rounds <= MOST_LATE_ROUNDS,
            "late_rounds",
            self.late_rounds,
            f"a number of rounds from 0 to {MOST_LATE_ROUNDS}",
        )
        require(self.advertise_to >= 1, "advertise_size", self.advertise_size, "at least 1")

    @property
    def advertise_to(self) -> int:
        """|P| with its default filled in."""
        return 10 * self.sample_size if self.advertise_size is None else self.advertise_size

    @property
    def readvertise_to(self) -> int:
        """How many are told again when nobody shows that it heard."""
        return self.sample_size


def require_duration(field: str, value: float) -> None:
    require(math.isfinite(value) and value > 0, field, value, "a number of seconds above 0")


def require(holds: bool, field: str, value: object, allowed: str) -> None:
    if not holds:
        raise ValueError(f"{field} is {value!r}, but must be {allowed}")


class Condition(NamedTuple):
    """When a model is good enough."""

    metric: str
    is_least: bool
    bound: float

    def holds(self, metrics: Mapping[str, float]) -> bool:
        value = metrics.get(self.metric, math.nan)
        return value >= self.bound if self.is_least else value <= self.bound


class Course(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When a session of Plexus begins, and when it has come to its end: at the first of what is said here."""

    start_with: Annotated[int, Meta(ge=1)] | None = None
    """How many of the `nodes` must be there before anybody trains. If it is not given: live, half of them,
    but at least two and at most `sample_size`; simulated, one."""

    rounds: Annotated[int, Meta(ge=1)] | None = None
    """The session ends with the model of this round."""

    until: str | None = None
    """The session ends when a measured model is as good as this, e.g. `"accuracy >= 0.95"` or
    `"loss <= 0.1"`: the task's metric or the loss. Models are measured as `[evaluation]` says."""

    patience: Annotated[int, Meta(ge=1)] | None = None
    """The session ends when for so many rounds no measured model was better than the best."""

    def __post_init__(self) -> None:
        if self.until is not None:
            condition(self.until)

    @property
    def is_measured(self) -> bool:
        """Whether the end depends on how good models are."""
        return self.until is not None or self.patience is not None

    @property
    def has_end(self) -> bool:
        return self.is_measured or self.rounds is not None

    def live(self, nodes: int, sample_size: int) -> Course:
        """What it is where nothing else is said, and peers are real."""
        at_first = min(max(2, math.ceil(nodes / 2)), sample_size, nodes)
        return Course(
            start_with=self.start_with or at_first,
            rounds=self.rounds,
            until=self.until,
            patience=self.patience,
        )


ENDLESS = Course()


def condition(text: str) -> Condition:
    """Of the form `metric >= number`."""
    metric, sign, bound = text.partition(">=") if ">=" in text else text.partition("<=")
    try:
        found = Condition(metric.strip(), sign == ">=", float(bound))
    except ValueError:
        raise ValueError(
            f"until is {text!r}, but must be a metric, >= or <=, and a number, as 'accuracy >= 0.95'"
        ) from None
    if found.metric == "accuracy" and not 0 <= found.bound <= 1:
        raise ValueError(f"until is {text!r}, but accuracy is a share, from 0 to 1, as 'accuracy >= 0.95'")
    return found


def unknown_metric(course: Course, measured: str) -> str | None:
    """What is wrong with `until`, if models are measured by this metric and the loss."""
    if course.until is None or condition(course.until).metric in (measured, "loss"):
        return None
    return f"session.until is {course.until!r}, but models are measured by {measured} and loss"
