"""The state of a run, asked of its tables: the same questions while it goes on and after."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from flightlog.analyze.charts.layout import TimeWindow
from flightlog.analyze.charts.lines import concurrency_chart, curves
from flightlog.analyze.limits import LiveLimits
from flightlog.analyze.live.recent import STAMP, LiveLog, failures_of
from flightlog.analyze.live.results import LogLine, MetricNow, OpenSpan, Progress, SpanNow, args_text
from flightlog.analyze.live.tasks import KnownTasks, LiveTasks, RunTime, usual_of
from flightlog.analyze.live.workers import LiveCost, LiveMachines, LiveWorkers
from flightlog.analyze.report.metrics import distribution_from, distribution_sql
from flightlog.analyze.report.spans import spans_in_flight
from flightlog.analyze.tallies import copied
from flightlog.core.text import cut
from flightlog.store.tables.workers import WorkerStep, steps_of

if TYPE_CHECKING:
    from flightlog.analyze.charts.results import Chart
    from flightlog.core.stats import Distribution
    from flightlog.store.read.lines import AnyEvent
    from flightlog.store.tables.run_tables import RunTables

T = TypeVar("T")


class LiveEvents:
    """What is taken in of the streams that are no tables, event by event and in any order: few lines each."""

    def __init__(self, run: Path) -> None:
        self._workers: list[AnyEvent] = []
        self._steps: tuple[int, dict[str, list[WorkerStep]]] = 0, {}
        self.cost, self.log = LiveCost(run), LiveLog()

    @property
    def workers(self) -> dict[str, list[WorkerStep]]:
        """What happened to each worker, in order."""
        if self._steps[0] != len(self._workers):
            self._steps = len(self._workers), steps_of(self._workers)
        return self._steps[1]

    def taker(self, stream: str) -> Callable[[AnyEvent], None]:
        """The method that takes the events of a stream."""
        takers = {"workers": self._worker, "jobs": self._job, "cost": self.cost.add}
        return takers.get(stream, self.log.add)

    def _worker(self, event: AnyEvent) -> None:
        self._workers.append(event)
        self.log.add(event)

    def _job(self, event: AnyEvent) -> None:
        self.cost.add_job(event)
        self.log.add(event)


class LiveQuestions:
    """Asks tables for the fields of a `LiveState`, again and again. What follows from lines alone is asked
    only when there are more of them.
    """

    def __init__(self, events: LiveEvents, history: Mapping[str, Distribution] | None = None) -> None:
        self._events, self._history = events, history or {}
        self._known_tasks = KnownTasks()
        self._answers: dict[str, tuple[Hashable, Any]] = {}

    def _once(self, name: str, changed: Hashable, ask: Callable[[], T]) -> T:
        known = self._answers.get(name)
        if known is None or known[0] != changed:
            known = self._answers[name] = (changed, ask())
        answer: T = known[1]
        return answer

    def ask(
        self,
        tables: RunTables,
        time: RunTime,
        now: int,
        *,
        rows: Mapping[str, int],
        provider: str | None,
        log: Sequence[LogLine],
    ) -> dict[str, Any]:
        """The fields that tables know; `rows` counts those of each stream, and `log` are lines of the log
        beside those of events.
        """
        until, over = time.until, time.over
        tasks = LiveTasks(tables, time, self._history, self._known_tasks)
        workers = LiveWorkers(tables, self._events.workers, until)
        machines = LiveMachines(tables, until)
        window = time.window(now)
        wall = None if time.started is None or until is None else max(0, until - time.started)
        cost = self._events.cost.summary(workers, provider, wall, over=over)
        troubles = tuple(tasks.count(state) for state in ("failed", "retried", "cancelled"))
        failed = (*troubles, rows.get("failures"))
        failures: tuple[int, list[Any]] = (0, [])
        if any(troubles) or "failures" in tables.streams:
            failures = self._once("failures", failed, lambda: failures_of(tables))
        logged = (*failed, rows.get("devices"), self._events.log.count, *log)
        return {
            "progress": tasks.progress(),
            "names": tasks.results(),
            "names_all": len(tasks.names),
            "workers": workers.results(tasks.running, over=over),
            "workers_all": len(workers.names),
            "hosts": machines.hosts(),
            "devices": machines.devices(),
            "doing": tasks.doing(),
            "failures_all": failures[0],
            "failures": failures[1],
            "slowest": self._once("slowest", tasks.count("completed"), tasks.slowest),
            "timeline": tasks.timeline(now if until is None else until, len(workers.names)),
            "concurrency": _concurrency(tables, tasks, workers, window),
            **machines.charts(window),
            **_lookups(tables),
            "cost": cost.total,
            "currency": cost.currency,
            "log": self._once("log", logged, lambda: self._events.log.lines(tables, log, any(troubles))),
            **self._spans(tables, rows.get("spans")),
            "metrics": self._once("metrics", rows.get("metrics"), lambda: _metrics(tables, time)),
        }

    def _spans(self, tables: RunTables, changed: Hashable) -> dict[str, Any]:
        """Spans by name, the names that took most of the time first; and those that are open."""
        if "spans" not in tables.streams:
            return {}
        rows = self._once("spans", changed, lambda: tables.records(_SPANS))
        return {
            "spans": [
                copied(SpanNow, row, name=cut(row["name"], LiveLimits.max_name_chars))
                for row in rows[: LiveLimits.max_listed_spans]
            ],
            "spans_all": sum(row["ended"] for row in rows),
            "open_spans": _open_spans(tables) if any(row["open"] for row in rows) else [],
        }


def counts_so_far(tables: RunTables) -> dict[str, Any]:
    """The fields that are known while a run is read for the first time: lines of tasks by their kind."""
    kinds = ("submitted", "completed", "failed", "cancelled", "retried")
    counted = ", ".join(f"count(*) FILTER (event = 'task_{kind}')" for kind in kinds)
    [counts] = tables.execute(f"SELECT {counted} FROM task_events").fetchall()  # noqa: S608 - constants
    return {"progress": Progress(**dict(zip(kinds, counts, strict=True)), running=0, waiting=0)}


def _concurrency(
    tables: RunTables, tasks: LiveTasks, workers: LiveWorkers, window: TimeWindow
) -> Chart | None:
    """Tasks that run and wait, and workers that are up."""
    lines, ups = tasks.lines(window.until), [up for of in workers.lives.values() for up in of]
    if ups:
        lines["workers"] = "SELECT unnest($since::BIGINT[]) AS since, unnest($until::BIGINT[]) AS until"
    return concurrency_chart(
        tables,
        window,
        lines,
        points=LiveLimits.max_chart_points,
        digits=3,
        parameters={"since": [up[0] for up in ups], "until": [up[1] for up in ups]} if ups else None,
    )


def _lookups(tables: RunTables) -> dict[str, int]:
    """Cache lookups, where there was any."""
    counts = dict(tables.execute(_LOOKUPS).fetchall()) if "cache" in tables.streams else {}
    if not counts:
        return {}
    hits = counts.get("hit", 0)
    return {"cache_hits": hits, "cache_lookups": hits + counts.get("miss", 0)}


_LOOKUPS = "SELECT result, count(*) FROM cache WHERE event = 'cache_lookup' GROUP BY result"
_SPANS = """
SELECT name, count(*) FILTER (NOT "open") AS ended, count(*) FILTER (status = 'error') AS errors,
    count(*) FILTER ("open") AS "open", max(duration_s) FILTER (NOT "open") AS max_s,
    sum(in_ns(duration_s)) FILTER (NOT "open") / 1e9 AS total_s,
    total_s / count(duration_s) FILTER (NOT "open") AS mean_s
FROM span_rows GROUP BY name ORDER BY total_s DESC NULLS LAST, name
"""
_USUAL_SPANS = f"""
SELECT name, {distribution_sql("duration_s", "true", "durations")} FROM span_rows
WHERE NOT "open" AND name IN (SELECT unnest($names)) GROUP BY name
"""  # noqa: S608 - constants


def _open_spans(tables: RunTables) -> list[OpenSpan]:
    """What may be stuck first, then the longest."""
    flying = spans_in_flight(tables)
    ended = tables.records(_USUAL_SPANS, {"names": [one.name for one in flying]})
    usual = {row["name"]: distribution_from(row, "durations") for row in ended}
    opened: list[OpenSpan] = []
    for one in flying:
        p95, stuck = usual_of(usual.get(one.name), one.elapsed_s)
        name, span_id = (cut(text, LiveLimits.max_name_chars) for text in (one.name, one.span_id))
        tags = args_text(one.tags)
        opened.append(copied(OpenSpan, one, name=name, span_id=span_id, tags=tags, usual_s=p95, stuck=stuck))
    return sorted(opened, key=lambda one: (not one.stuck, -(one.elapsed_s or 0.0), one.since, one.name))


_METRICS = f"""
SELECT name, count(*) AS count, arg_max(row(value, step, {STAMP.format('"timestamp"')}),
    row(coalesce("timestamp", '-infinity'::TIMESTAMP), writer, seq)) AS last
FROM metrics WHERE event = 'metric' AND name IS NOT NULL GROUP BY name ORDER BY name LIMIT $few
"""  # noqa: S608 - constants


def _metrics(tables: RunTables, time: RunTime) -> list[MetricNow]:
    """In order of their names; those with the most values are drawn."""
    if "metrics" not in tables.streams:
        return []
    found = None
    if time.started is not None and time.until is not None:
        window = TimeWindow(time.started, max(1, time.until - time.started))
        most, points = LiveLimits.max_metric_curves, LiveLimits.max_metric_points
        found = curves(tables, window, most=most, points=points)
    drawn = {} if found is None else {curve.name: curve for curve in found.curves}
    return [
        MetricNow(
            name=(name := cut(row["name"], LiveLimits.max_name_chars)),
            value=row["last"][0],
            step=row["last"][1],
            at=row["last"][2],
            count=row["count"],
            points=drawn.get(name),
        )
        for row in tables.records(_METRICS, {"few": LiveLimits.max_listed_metrics})
    ]
