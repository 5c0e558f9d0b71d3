"""Tables of a study that no other comparison has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

import numpy as np

from plexus import quantities
from plexus.protocol.view import Snapshot
from plexus.protocol.wire import view_bytes
from plexus.report.arms import Arm, common_metric
from plexus.report.document import Cell, Quantity, Table, over_seeds
from plexus.report.plots import durations_s
from plexus.runs.directory import Run
from plexus.runs.result import Result, Traffic
from plexus.studies.study import PaperTable

NOTHING = Traffic(0, 0)


def totals(arms: Sequence[Arm], id: str, title: str, note: str) -> Table:
    """What a whole session came to and cost."""
    metric, _ = common_metric(arms)
    columns = (
        "Setting",
        f"Best {quantities.metric_name(metric)}",
        "Rounds",
        "Mean round [s]",
        "Timed out",
        "Sent [GB]",
        "Training [h]",
    )
    rows = tuple(_totals_of(arm, metric) for arm in arms)
    return Table(id, title, columns, rows, note)


def _totals_of(arm: Arm, metric: str) -> tuple[Cell, ...]:
    results = [result_of(run) for run in arm.runs]
    best = [result.metric.best for result in results if result.metric.best is not None]
    rounds = [run.tables["rounds"] for run in arm.runs]
    each_seed = [durations_s(Arm(arm.label, (run,), arm.is_ours)) for run in arm.runs]
    mean_round_s = [float(found.mean()) for found in each_seed if len(found)]
    late = [100 * fmean(each["timed_out"]) for each in rounds if each]
    return (
        arm.label,
        over_seeds(best, lambda value: quantities.metric(metric, value)),
        over_seeds([float(result.rounds) for result in results], lambda value: f"{value:,.0f}"),
        over_seeds(mean_round_s, lambda value: f"{value:.1f}"),
        over_seeds(late, lambda value: f"{value:.1f} %"),
        over_seeds([result.sent_bytes / 1e9 for result in results], lambda value: f"{value:.3g}"),
        over_seeds([result.training_s / 3600 for result in results], lambda value: f"{value:.3g}"),
    )


def overhead(arms: Sequence[Arm], id: str, title: str, note: str) -> Table:
    """What share of all that is sent is the models themselves, and what the rest is."""
    columns = (
        "Setting",
        "Sent [GB]",
        "Models, of bytes",
        "Views, of bytes",
        "Membership, of messages",
        "A view, on average",
        "A view of all nodes",
    )
    return Table(id, title, columns, tuple(map(_overhead_of, arms)), note)


def _overhead_of(arm: Arm) -> tuple[Cell, ...]:
    results = [result_of(run) for run in arm.runs]
    nodes = int(arm.runs[0].spec["nodes"])
    whole = view_bytes(Snapshot(np.ones(nodes, np.uint32), np.zeros(nodes, np.uint32)))

    def share(kind: str, of: str) -> Quantity:
        shares = [_share(result, kind, of) for result in results]
        return over_seeds(shares, lambda value: f"{100 * value:.1f} %")

    views = [result.messages.get("view", NOTHING) for result in results]
    mean_view = [view.bytes / view.count for view in views if view.count]
    return (
        arm.label,
        over_seeds([result.sent_bytes / 1e9 for result in results], lambda value: f"{value:.3g}"),
        share("model", "bytes"),
        share("view", "bytes"),
        share("membership", "count"),
        over_seeds(mean_view, quantities.size),
        Quantity(quantities.size(whole), float(whole)),
    )


def _share(result: Result, kind: str, of: str) -> float:
    parts = {name: getattr(traffic, of) for name, traffic in result.messages.items()}
    total = sum(parts.values())
    return float(parts.get(kind, 0) / total) if total else 0.0


def views(arms: Sequence[Arm], id: str, title: str, note: str) -> Table:
    """How far the views of nodes are from the truth."""
    columns = (
        "Setting",
        "Online, mean",
        "In a view, mean",
        "Mean difference",
        "Largest difference",
    )
    return Table(id, title, columns, tuple(map(_views_of, arms)), note)


def _views_of(arm: Arm) -> tuple[Cell, ...]:
    found = [run.tables["views"] for run in arm.runs]
    differences = [np.abs(each["mean_view"] - each["online"]) / each["online"] for each in found]
    return (
        arm.label,
        over_seeds([float(each["online"].mean()) for each in found], lambda value: f"{value:.1f}"),
        over_seeds(
            [float(each["mean_view"].mean()) for each in found], lambda value: f"{value:.1f}"
        ),
        over_seeds([float(each.mean()) for each in differences], _percent),
        over_seeds([float(each.max()) for each in differences], _percent),
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def of_the_paper(study: str, table: PaperTable) -> Table:
    """The paper's own numbers."""
    return Table(f"{study}-paper", table.title, table.columns, table.rows, table.note)


def result_of(run: Run) -> Result:
    """The result of a run that came to its end."""
    assert run.result is not None, "only finished runs are drawn"
    return run.result


TABLES: dict[str, Callable[[Sequence[Arm], str, str, str], Table]] = {
    "totals": totals,
    "overhead": overhead,
    "view-table": views,
}
