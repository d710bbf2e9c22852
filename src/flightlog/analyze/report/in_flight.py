"""What a run was doing when it was last seen, and whether that takes longer than usual."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from flightlog.core.stats import Distribution
from flightlog.events.base import Json

if TYPE_CHECKING:
    from flightlog.analyze.report.summary import Summary

ENOUGH = 5
"""How many ended ones it takes to say what is usual."""
FAR = 3.0
"""How many times p95 is far beyond usual."""


class UsualDuration(Struct, frozen=True, kw_only=True):
    """How long the ended ones of one name took."""

    count: int
    p50: float
    p95: float
    max: float
    of: Literal["run", "history"]
    """Where they ended: in this run, or in earlier ones."""


class InFlight(Struct, frozen=True, kw_only=True):
    """A task or span that began and has no end."""

    kind: Literal["task", "span"]
    name: str
    task_id: str | None
    args: Json | None
    worker: str | None
    since: str
    elapsed_s: float | None
    """Up to the run's end or last sign of life."""
    usual: UsualDuration | None
    """Null where fewer than five of its name have ended."""
    ratio: float | None
    """elapsed_s over the usual median."""
    stuck: bool | None
    """Whether it took longer than all that ended, and than three times their p95; null where nothing is
    usual."""


def in_flight(summary: Summary, history: Mapping[str, Distribution] | None = None) -> list[InFlight]:
    """What is in flight, the stuck first, then the longest; the summary lists the oldest hundred of each
    kind.

    `history` has the durations of completed tasks of earlier runs by name; it is asked for a task of which
    this run knows fewer than five, and for nothing else.
    """
    earlier = {} if history is None else history
    found = [
        _compared(
            "task",
            task.task,
            task.task_id,
            task.args,
            task.worker,
            task.since,
            task.elapsed_s,
            _usual(
                summary.tasks.by_name[task.task].duration_s if task.task in summary.tasks.by_name else None,
                "run",
            )
            or _usual(earlier.get(task.task), "history"),
        )
        for task in summary.tasks.in_flight
    ]
    for span in summary.spans.in_flight:
        name = summary.spans.by_name.get(span.name)
        ended = name and Distribution(count=name.count, p50=name.p50, p95=name.p95, max=name.max)
        usual = _usual(ended or None, "run")
        found.append(_compared("span", span.name, None, span.tags, None, span.since, span.elapsed_s, usual))
    return sorted(found, key=lambda one: (not one.stuck, -(one.elapsed_s or 0.0), one.since, one.name))


def _usual(ended: Distribution | None, of: Literal["run", "history"]) -> UsualDuration | None:
    if ended is None or ended.count < ENOUGH or ended.p50 is None or ended.p95 is None or ended.max is None:
        return None
    return UsualDuration(count=ended.count, p50=ended.p50, p95=ended.p95, max=ended.max, of=of)


def _compared(
    kind: Literal["task", "span"],
    name: str,
    task_id: str | None,
    args: Json | None,
    worker: str | None,
    since: str,
    elapsed_s: float | None,
    usual: UsualDuration | None,
) -> InFlight:
    known = usual is not None and elapsed_s is not None
    ratio = stuck = None
    if usual is not None and elapsed_s is not None:
        ratio = elapsed_s / usual.p50 if usual.p50 > 0 else None
        stuck = elapsed_s > max(FAR * usual.p95, usual.max)
    return InFlight(
        kind=kind,
        name=name,
        task_id=task_id,
        args=args,
        worker=worker,
        since=since,
        elapsed_s=elapsed_s,
        usual=usual if known else None,
        ratio=ratio,
        stuck=stuck,
    )
