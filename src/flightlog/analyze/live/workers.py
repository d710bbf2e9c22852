"""Workers, hosts and devices of a run as they are now: who is there, what each does, and how it did over the
last minutes; and what they cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from flightlog.analyze.charts.layout import TimeWindow
from flightlog.analyze.charts.results import Chart, ChartSeries
from flightlog.analyze.cost.cost import CostSummary, CostTally, Used, run_cost
from flightlog.analyze.limits import LiveLimits
from flightlog.analyze.live.results import DeviceNow, HostNow, WorkerNow
from flightlog.analyze.live.tasks import Row
from flightlog.analyze.tallies import grouped
from flightlog.core.text import cut
from flightlog.core.time import SECOND
from flightlog.events import JobStarted, WorkerLaunched, WorkerLost, WorkerRemoved
from flightlog.events.rates import Sizes
from flightlog.store import layout
from flightlog.store.read.lines import AnyEvent
from flightlog.store.run import Run
from flightlog.store.tables.workers import (
    WorkerStep,
    component_of,
    given_to,
    host_of,
    launches_of,
    lifetime,
    uptimes_of,
)

if TYPE_CHECKING:
    from flightlog.store.tables.run_tables import RunTables

_BUSY, _IDLE, _STARTING, _LOST, _GONE = range(5)
_STATES: tuple[Literal["starting", "idle", "busy", "gone", "lost"], ...] = (
    *("busy", "idle", "starting", "lost", "gone"),
)

_WORKED = """
SELECT worker, coalesce(sum(n) FILTER (state <> 'running'), 0) AS ended,
    coalesce(sum(n) FILTER (state = 'failed'), 0) AS failed, max(seen) AS seen,
    min(began) FILTER (state <> 'running') AS began
FROM attempt_tallies WHERE worker IS NOT NULL AND state <> 'pending' GROUP BY worker
"""
_LATEST_OF_WORKERS = """
SELECT worker, arg_max(row(host, cpu_cores, rss_bytes), row("timestamp", writer, seq)),
    max(at_ns("timestamp"))
FROM resources WHERE event = 'resource_sample' AND scope IN ('worker', 'worker_process')
    AND worker IS NOT NULL AND "timestamp" IS NOT NULL GROUP BY worker
"""


class LiveWorkers:
    """The workers that events, `steps`, and attempts name, as of `until`, in nanoseconds since 1970."""

    def __init__(self, tables: RunTables, steps: Mapping[str, list[WorkerStep]], until: int | None) -> None:
        self._tables, self._until = tables, until
        self.steps = steps

    @cached_property
    def worked(self) -> dict[str, Row]:
        """What each worker that attempts name has executed."""
        return {row["worker"]: row for row in self._tables.records(_WORKED)}

    @cached_property
    def names(self) -> list[str]:
        """All workers, in order."""
        return sorted({*self.steps, *self.worked})

    @cached_property
    def lives(self) -> dict[str, list[tuple[int, int]]]:
        """When each worker that has events was up."""
        return {
            name: uptimes_of(life, self.worked.get(name, {}).get("began"), self._until)
            for name, life in self.steps.items()
        }

    @property
    def up(self) -> int:
        """Workers that are up, by their events."""
        return sum(not isinstance(life[-1].event, WorkerLost | WorkerRemoved) for life in self.steps.values())

    @property
    def lost(self) -> int:
        """How often a worker was lost."""
        return sum(isinstance(step.event, WorkerLost) for life in self.steps.values() for step in life)

    def results(self, running: Iterable[Row], *, over: bool) -> list[WorkerNow]:
        """Busy workers first, then by name."""
        doing = grouped((row["worker"], row) for row in running if row["worker"] is not None)
        states = {name: self._state(name, name in doing, over=over) for name in self.names}
        listed = sorted(states, key=lambda name: (states[name], name))[: LiveLimits.max_listed_workers]
        samples: dict[str, Any] = {}
        if "resources" in self._tables.streams:
            rows = self._tables.execute(_LATEST_OF_WORKERS).fetchall()
            samples = {worker: (*sample, at) for worker, sample, at in rows}
        return [self._result(name, states[name], doing.get(name, []), samples.get(name)) for name in listed]

    def _state(self, name: str, busy: bool, *, over: bool) -> int:
        kind = type(self.steps[name][-1].event) if name in self.steps else None
        if kind is WorkerLost:
            return _LOST
        if kind is WorkerRemoved or over:
            return _GONE
        if busy:
            return _BUSY
        ended = self.worked.get(name, {}).get("ended")
        return _STARTING if kind is WorkerLaunched and not ended else _IDLE

    def _result(self, name: str, state: int, doing: list[Row], sample: Sequence[Any] | None) -> WorkerNow:
        life, worked = self.steps.get(name, []), self.worked.get(name, {})
        sampled_on, cores, memory, sampled = sample or (None, None, None, None)
        signs = [worked.get("seen"), sampled, *(step.moment for step in life)]
        task = doing[0] if doing else None
        fresh = state not in {_GONE, _LOST}
        return WorkerNow(
            worker=cut(name, LiveLimits.max_name_chars),
            host=host_of(life) or sampled_on,
            state=_STATES[state],
            task=None if task is None else cut(task["task"], LiveLimits.max_name_chars),
            task_id=None if task is None else cut(task["task_id"], LiveLimits.max_name_chars),
            since_s=None if task is None else self._ago_s(task["began"]),
            ended=worked.get("ended", 0),
            failed=worked.get("failed", 0),
            cpu_cores=cores if fresh else None,
            memory_bytes=memory if fresh else None,
            seen_s=self._ago_s(max((sign for sign in signs if sign is not None), default=None)),
            running=len(doing),
        )

    def _ago_s(self, when: int | None) -> float | None:
        return None if when is None or self._until is None else max(0, self._until - when) / SECOND


class LiveCost:
    """By the run's rates and the time its workers have lived; of a run that is over, what its report says.

    Takes the events of the streams `cost` and `jobs`.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self._tally = CostTally()
        self._recorded = False
        self._jobs: dict[str, Sizes] = {}

    def add(self, event: AnyEvent) -> None:
        """An event of the stream `cost`."""
        self._recorded = True
        self._tally.add(event)

    def add_job(self, event: AnyEvent) -> None:
        """A worker may live in a batch job, which says what it was given."""
        if isinstance(event, JobStarted) and event.worker is not None:
            said = Sizes(cpus=event.cpus, memory_bytes=event.memory_bytes, gpus=event.gpus)
            self._jobs[event.worker] = self._jobs.get(event.worker, Sizes()).else_(said)

    def summary(
        self, workers: LiveWorkers, provider: str | None, wall_ns: int | None, *, over: bool
    ) -> CostSummary:
        """What the run cost so far; `wall_ns` is how long it has lived."""
        if over and (self._run / layout.SUMMARY).exists():
            return run_cost(Run(self._run))
        used = Used(ended=over, provider=provider, told=self._recorded)
        if self._tally.rates is not None:  # else nothing is paid by the hour, and many workers take time
            given = {name: given_to(life) for name, life in workers.steps.items()}
            for name, job in self._jobs.items():
                given[name] = given.get(name, Sizes()).else_(job)
            used = msgspec.structs.replace(
                used,
                lifetimes={
                    name: lifetime(workers.lives[name], launches_of(life))
                    for name, life in sorted(workers.steps.items())
                },
                components={name: component_of(life) for name, life in workers.steps.items()},
                given=given,
                wall_ns=wall_ns,
            )
        return self._tally.summary(used)


_SAMPLES = """
SELECT scope, coalesce(host, 'unknown') AS host, gpu_index, gpu_uuid, gpu_mig,
    CASE WHEN scope = 'node' THEN cpu_percent ELSE gpu_percent END AS "percent",
    CASE WHEN scope = 'node' THEN memory_used_bytes ELSE gpu_memory_used_bytes END AS used,
    CASE WHEN scope = 'node' THEN memory_total_bytes ELSE gpu_memory_total_bytes END AS total,
    NULL::BIGINT AS rank, NULL::BIGINT AS pid, NULL::BIGINT AS device_id, "timestamp", writer, seq
FROM resources WHERE event = 'resource_sample' AND scope IN ('node', 'gpu')
"""
_TRACKED = """
SELECT 'allocator' AS scope, host, NULL::BIGINT AS gpu_index, NULL::VARCHAR AS gpu_uuid,
    NULL::VARCHAR AS gpu_mig, NULL::DOUBLE AS "percent", allocator_allocated_bytes AS used,
    device_total_bytes AS total, rank, pid, device_id, "timestamp", writer, seq
FROM devices WHERE timestamp_ns IS NOT NULL
"""
_PLACE = "scope, host, gpu_index, gpu_uuid, gpu_mig, rank, pid, device_id"
_LATEST = f"""
SELECT {_PLACE}, arg_max(row(used, total, "percent"), row("timestamp", writer, seq)) AS said,
    max(at_ns("timestamp")) AS seen
FROM ({{samples}}) WHERE "timestamp" IS NOT NULL GROUP BY {_PLACE}
"""  # noqa: S608 - constants
_OVER_TIME = f"""
SELECT {_PLACE}, (at_ns("timestamp") // {SECOND} - $first) // $step AS stretch, avg("percent") AS "percent",
    max(used) AS used
FROM ({{samples}}) WHERE at_ns("timestamp") // {SECOND} BETWEEN $first AND $last
GROUP BY {_PLACE}, stretch ORDER BY stretch
"""  # noqa: S608 - constants
Place = tuple[Any, ...]


class LiveMachines:
    """Hosts and GPUs by their samples, and the memory that ranks have tracked themselves."""

    def __init__(self, tables: RunTables, until: int | None) -> None:
        self._tables, self._until = tables, until
        samples = {"resources": _SAMPLES, "devices": _TRACKED}
        self._samples = " UNION ALL ".join(samples[name] for name in samples if name in tables.streams)

    @cached_property
    def latest(self) -> dict[Place, tuple[tuple[int | None, int | None, float | None], int | None]]:
        """Of each host and device in order: memory in use, memory there is and how busy it is, by its latest
        sample; and when that was taken.
        """
        if not self._samples:
            return {}
        rows = self._tables.execute(_LATEST.format(samples=self._samples)).fetchall()
        found = {tuple(place): (said, seen) for *place, said, seen in rows}
        return dict(sorted(found.items(), key=lambda one: _order(one[0])))

    def hosts(self) -> list[HostNow]:
        """In order of their names."""
        return [
            HostNow(
                host=_label(place),
                cpu_percent=percent,
                memory_used_bytes=used,
                memory_total_bytes=total,
                seen_s=self._seen_s(seen),
            )
            for place, ((used, total, percent), seen) in self._of("node")[: LiveLimits.max_listed_machines]
        ]

    def devices(self) -> list[DeviceNow]:
        """GPUs first, then what ranks tracked themselves."""
        found = [*self._of("gpu"), *self._of("allocator")]
        return [
            DeviceNow(
                label=_label(place),
                host=None if place[1] is None else cut(place[1], LiveLimits.max_name_chars),
                scope="device" if place[0] == "gpu" else "allocator",
                memory_used_bytes=used,
                memory_total_bytes=total,
                percent=percent,
                seen_s=self._seen_s(seen),
            )
            for place, ((used, total, percent), seen) in found[: LiveLimits.max_listed_machines]
        ]

    def _of(self, scope: str) -> list[tuple[Place, Any]]:
        return [(place, said) for place, said in self.latest.items() if place[0] == scope]

    def _seen_s(self, seen: int | None) -> float | None:
        return None if seen is None or self._until is None else max(0, self._until - seen) / SECOND

    def charts(self, window: TimeWindow) -> dict[str, Chart | None]:
        """`cpu` and `memory` of each host; `device_memory` by rank where ranks tracked it, else by device."""
        if not self.latest:
            return {}
        first, last = window.start // SECOND, window.until // SECOND
        step = -(-(last - first + 1) // LiveLimits.max_chart_points)
        rows = self._tables.execute(
            _OVER_TIME.format(samples=self._samples), {"first": first, "last": last, "step": step}
        ).fetchall()
        points = grouped((tuple(row[:-3]), (row[-3] * step, *row[-2:])) for row in rows)
        hosts, devices = self._of("node"), self._of("allocator") or self._of("gpu")
        return {
            "cpu": _chart("percent", hosts, points, 1, window, step),
            "memory": _chart("bytes", hosts, points, 2, window, step),
            "device_memory": _chart("bytes", devices, points, 2, window, step),
        }


def _chart(
    unit: Literal["percent", "bytes"],
    places: Sequence[tuple[Place, Any]],
    points: Mapping[Place, list[tuple[Any, ...]]],
    column: int,
    window: TimeWindow,
    step: int,
) -> Chart | None:
    """A line per place of one column of its points; null where there is none."""
    several = places[0][0][0] != "node" and len({place[1] for place, _ in places}) > 1 if places else False
    series = []
    for place, ((_, total, _), _) in places[: LiveLimits.max_chart_series]:
        known = [(point[0], point[column]) for point in points.get(place, ()) if point[column] is not None]
        if known:
            label = f"{place[1]}: {_label(place)}" if several else _label(place)
            at, value = _with_gaps(known, step)
            limit = total if unit == "bytes" else None
            shown = cut(label, LiveLimits.max_name_chars)
            series.append(ChartSeries(label=shown, at_s=at, value=value, limit=limit))
    left_out = len(places) - LiveLimits.max_chart_series
    return window.chart(unit, series, [f"{left_out} more are not drawn"] if left_out > 0 else [])


def _with_gaps(points: Sequence[tuple[int, float]], step: int) -> tuple[list[float], list[float | None]]:
    """Seconds and values; null in the middle of a time without samples."""
    at: list[float] = []
    value: list[float | None] = []
    for second, known in points:
        if at and second - at[-1] > max(LiveLimits.max_chart_gap_s, 3 * step):
            at.append((at[-1] + second) / 2)
            value.append(None)
        at.append(float(second))
        value.append(round(known, 3) if isinstance(known, float) else known)
    return at, value


def _label(place: Place) -> str:
    scope, host, index, uuid, mig, rank, _, device = place
    if scope == "node":
        return cut(host, LiveLimits.max_name_chars)
    if scope == "allocator":
        return f"rank {rank}, device {device}"
    name = cut(uuid or "GPU", LiveLimits.max_name_chars) if index is None else f"GPU {index}"
    return f"{name}{' (MIG)' * bool(mig)}"


def _order(place: Place) -> tuple[Any, ...]:
    label = _label(place)
    return ("node", "gpu", "allocator").index(place[0]), place[1] or "", len(label), label, str(place)
