"""The curves and the marks of a trace: tasks at once, what machines used, what was measured, what went
wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import duckdb

POINTS = 20_000
"""A curve of tasks has so many points at most: then each is the highest value of its interval."""
BATCH = 5000
SAMPLED = {
    ("node", "cpu_percent"): ("CPU", "%"),
    ("node", "memory_used_bytes"): ("memory used", "bytes"),
    ("cgroup", "memory_used_bytes"): ("cgroup memory used", "bytes"),
    ("worker", "cpu_percent"): ("CPU", "%"),
    ("worker", "rss_bytes"): ("memory", "bytes"),
    ("gpu", "gpu_percent"): ("GPU {}", "%"),
    ("gpu", "gpu_memory_used_bytes"): ("GPU {} memory used", "bytes"),
    ("gpu", "gpu_power_w"): ("GPU {} power", "W"),
}
"""Fields of samples that are drawn, by what was sampled, and how their curves and units are called."""
ALLOCATED = {
    "allocator_allocated_bytes": "allocated",
    "allocator_reserved_bytes": "reserved",
}
"""The same of device memory; what others use of a device is not known everywhere, and is left out."""

_STEPS = {
    "running": "SELECT unnest([began, coalesce(stopped, $until)]) AS moment, unnest([1, -1]) AS step"
    " FROM drawn WHERE began IS NOT NULL",
    "waiting": "SELECT unnest([submitted, coalesce(began, ended, $until)]) AS moment, unnest([1, -1]) AS step"
    " FROM drawn WHERE submitted IS NOT NULL AND coalesce(began, ended, $until) >= submitted",
}
_CURVE = """
SELECT moment, CAST(sum(sum(step)) OVER (ORDER BY moment) AS BIGINT) AS value FROM ({steps}) GROUP BY moment
"""
_THINNED = """
SELECT min(moment), max(value) FROM ({curve}) GROUP BY (moment - $first) // $width ORDER BY 1
"""


class Point(NamedTuple):
    """A value at a moment, of a worker, or else of a host, or else of the run; `unit` ends the curve's
    name.
    """

    name: str
    unit: str
    moment: int
    value: float
    host: str | None = None
    worker: str | None = None


class Mark(NamedTuple):
    """Something that happened at a moment, on the track of this name."""

    track: str
    name: str
    moment: int
    args: dict[str, Any]


def task_curves(
    connection: duckdb.DuckDBPyConnection, first: int, until: int, points: int = POINTS
) -> Iterator[Point]:
    """How many attempts ran and waited from each moment on."""
    width = max(1, -(-(until - first) // points))
    for name, steps in _STEPS.items():
        curve = _CURVE.format(steps=steps)
        distinct = f"SELECT count(DISTINCT moment) FROM ({steps})"  # noqa: S608 - constants
        [(count,)] = connection.execute(distinct, {"until": until}).fetchall()
        if count <= points:
            found = connection.execute(f"{curve} ORDER BY moment", {"until": until})
        else:
            found = connection.execute(
                _THINNED.format(curve=curve), {"until": until, "first": first, "width": width}
            )
        while rows := found.fetchmany(BATCH):
            for moment, value in rows:
                yield Point(name, "tasks", moment, value)


def sampled(connection: duckdb.DuckDBPyConnection) -> Iterator[Point]:
    """What machines, workers and GPUs used, in the order of the samples; what is unknown has no point."""
    fields = sorted({field for _, field in SAMPLED})
    found = connection.execute(
        f"""
        SELECT scope, us("timestamp"), host, worker, coalesce(gpu_mig, CAST(gpu_index AS VARCHAR)), {", ".join(fields)}
        FROM resources WHERE event = 'resource_sample' AND us("timestamp") IS NOT NULL
        """  # noqa: S608 - constants
    )
    while rows := found.fetchmany(BATCH):
        for scope, moment, host, worker, gpu, *values in rows:
            for field, value in zip(fields, values, strict=True):
                named = SAMPLED.get((scope, field))
                if named is not None and value is not None:
                    name = named[0].format("?" if gpu is None else gpu)
                    yield Point(name, named[1], moment, value, host, worker if scope == "worker" else None)


def allocated(connection: duckdb.DuckDBPyConnection) -> Iterator[Point]:
    """The device memory that each rank's allocator had handed out and held."""
    found = connection.execute(
        f"SELECT timestamp_ns // 1000, host, rank, device_id, {', '.join(ALLOCATED)} FROM devices"  # noqa: S608 - constants
        " WHERE timestamp_ns > 0"
    )
    while rows := found.fetchmany(BATCH):
        for moment, host, rank, device, *values in rows:
            for name, value in zip(ALLOCATED.values(), values, strict=True):
                if value is not None:
                    yield Point(f"rank {rank} device {device} memory {name}", "bytes", moment, value, host)


def measured(connection: duckdb.DuckDBPyConnection) -> Iterator[Point]:
    """The users' own metrics; values that are no numbers have no point."""
    found = connection.execute(
        """SELECT coalesce(name, '?'), us("timestamp"), value FROM metrics WHERE value IS NOT NULL AND us("timestamp") IS NOT NULL"""
    )
    while rows := found.fetchmany(BATCH):
        for name, moment, value in rows:
            yield Point("metric", name, moment, value)


def marks(connection: duckdb.DuckDBPyConnection) -> Iterator[Mark]:
    """Failures, and workers that came and went."""
    found = connection.execute(
        """
        SELECT us("timestamp") AS moment, coalesce(error_type, scope || ' failed') AS name, scope, message, task, task_id,
            attempt, worker, exit_code, signal
        FROM failures WHERE us("timestamp") IS NOT NULL ORDER BY ALL
        """
    )
    yield from _marks("failures", found)
    found = connection.execute(
        """
        SELECT us("timestamp") AS moment, replace(event, 'worker_', '') || ' ' || coalesce(worker, '?') AS name, worker,
            host, pid, reason, exit_code, signal
        FROM workers WHERE event IN ('worker_ready', 'worker_lost', 'worker_removed') AND us("timestamp") IS NOT NULL
        ORDER BY ALL
        """
    )
    yield from _marks("workers", found)


def _marks(track: str, found: duckdb.DuckDBPyConnection) -> Iterator[Mark]:
    names = [column[0] for column in found.description or ()][2:]
    while rows := found.fetchmany(BATCH):
        for moment, name, *values in rows:
            told = {key: value for key, value in zip(names, values, strict=True) if value is not None}
            yield Mark(track, name, moment, told)
