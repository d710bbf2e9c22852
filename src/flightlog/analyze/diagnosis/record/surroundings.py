"""What stood around a failure: memory before it, kills by the kernel, what ran and failed beside it on the
host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

if TYPE_CHECKING:
    import duckdb

BEFORE_S = 120.0
"""The curve before the end is looked at for so long."""
AFTER_S = 10.0
"""Samples so much later still tell of it: the kernel's counters are read by the next one."""
MOMENT_S = 2.0
"""What ends within so long of something else ended at that moment."""
SLOPE_SAMPLES = 12
NEIGHBOURS = 5
_KEPT = 400


class Place(NamedTuple):
    """When and where a failure was."""

    number: int
    at: float
    host: str | None
    worker: str | None
    task_id: str | None
    root: str


class Around(Struct, kw_only=True):
    """What is known of the surroundings of a failure; None is unknown."""

    memory_scope: str | None = None
    last_bytes: int | None = None
    slope_bytes_per_s: float | None = None
    samples: int = 0
    first_time: str | None = None
    last_time: str | None = None
    first_bytes: int | None = None
    cgroup_limit_bytes: int | None = None
    cgroup_used_bytes: int | None = None
    node_total_bytes: int | None = None
    node_used_percent: float | None = None
    oom_kills: int | None = None
    """Rise of the cgroup's counter from before to after the failure."""
    oom_time: str | None = None
    gpu_used_percent: float | None = None
    neighbours: tuple[str, ...] = ()
    running: int = 0
    """Attempts that ran beside it on the host."""
    failed_beside: int = 0


class _Sample(NamedTuple):
    at: float
    scope: str
    exact: bool
    used: int | None
    total: int | None
    oom_kills: int | None
    gpu_used: int | None
    gpu_total: int | None
    time: str


def look_around(
    connection: duckdb.DuckDBPyConnection, places: Sequence[Place], hosts: Mapping[str, str], home: str
) -> dict[int, Around]:
    """The surroundings of each place, from `resources`, `ended` and `rooted`; each is gone through once for
    all.

    `hosts` is where each worker ran; a worker that is not named there ran on `home`.
    """
    found = {place.number: Around() for place in places}
    if not places:
        return found
    names = [[*column] for column in zip(*places, strict=True)]
    connection.execute(_PLACES, names)
    connection.execute(_HOSTS, [list(hosts), list(hosts.values())])
    samples: dict[int, list[_Sample]] = {}
    for number, *values in connection.execute(
        _SAMPLES, {"before": BEFORE_S, "after": AFTER_S, "kept": _KEPT}
    ).fetchall():
        samples.setdefault(number, []).append(_Sample(*values))
    for place in places:
        _read_curve(found[place.number], samples.get(place.number, []), place.at)
    for number, running, beside in connection.execute(_RUNNING, {"home": home}).fetchall():
        found[number].running = running
        found[number].neighbours = tuple(beside[:NEIGHBOURS])
    for number, failed in connection.execute(_FAILED, {"home": home, "moment": MOMENT_S}).fetchall():
        found[number].failed_beside = failed
    return found


def _read_curve(around: Around, samples: list[_Sample], at: float) -> None:
    before = [one for one in samples if one.at <= at + 0.5]
    for scope, exact in (
        ("task", True),
        ("worker", True),
        ("worker", False),
        ("cgroup", False),
        ("node", False),
    ):
        curve = [one for one in before if one.scope == scope and one.exact == exact and one.used is not None]
        if curve:
            first, last = curve[0], curve[-1]
            around.memory_scope, around.samples = scope, len(curve)
            around.first_bytes, around.last_bytes = first.used, last.used
            around.first_time, around.last_time = first.time, last.time
            around.slope_bytes_per_s = _slope(curve[-SLOPE_SAMPLES:])
            break
    for one in before:
        if one.scope == "cgroup" and one.total is not None:
            around.cgroup_limit_bytes, around.cgroup_used_bytes = one.total, one.used
        if one.scope == "node" and one.total:
            around.node_total_bytes = one.total
            around.node_used_percent = None if one.used is None else 100.0 * one.used / one.total
        if one.scope == "gpu" and one.gpu_total and one.gpu_used is not None:
            around.gpu_used_percent = 100.0 * one.gpu_used / one.gpu_total
    counted = [one for one in samples if one.scope == "cgroup" and one.oom_kills is not None]
    if len(counted) > 1:
        around.oom_kills = (counted[-1].oom_kills or 0) - (counted[0].oom_kills or 0)
        around.oom_time = counted[-1].time


def _slope(curve: Sequence[_Sample]) -> float | None:
    """Least squares over the last samples; None for fewer than three."""
    if len(curve) < 3 or curve[-1].at <= curve[0].at:
        return None
    middle = sum(one.at for one in curve) / len(curve)
    level = sum(one.used or 0 for one in curve) / len(curve)
    spread = sum((one.at - middle) ** 2 for one in curve)
    return sum((one.at - middle) * ((one.used or 0) - level) for one in curve) / spread


_PLACES = """
CREATE OR REPLACE TEMP TABLE places AS SELECT unnest($1::INTEGER[]) AS number,
    unnest($2::DOUBLE[]) AS gone_at,
    unnest($3::VARCHAR[]) AS host, unnest($4::VARCHAR[]) AS worker, unnest($5::VARCHAR[]) AS task_id,
    unnest($6::VARCHAR[]) AS root
"""

_HOSTS = """
CREATE OR REPLACE TEMP TABLE lives_on AS SELECT unnest($1::VARCHAR[]) AS worker, unnest($2::VARCHAR[]) AS host
"""

_SAMPLES = """
SELECT number, epoch("timestamp") AS sampled, scope,
    coalesce(scope = 'task' OR (scope = 'worker' AND resources.worker = places.worker), false),
    CASE WHEN scope IN ('task', 'worker') THEN rss_bytes ELSE memory_used_bytes END, memory_total_bytes,
        oom_kills,
    gpu_memory_used_bytes, gpu_memory_total_bytes, strftime("timestamp", '%Y-%m-%dT%H:%M:%S.%fZ')
FROM resources JOIN places
    ON epoch("timestamp") BETWEEN gone_at - $before AND gone_at + $after
    AND CASE scope WHEN 'task' THEN resources.task_id = places.task_id
        ELSE coalesce(resources.host = places.host, true) AND
            (scope <> 'worker' OR resources.worker IS NULL OR resources.worker = places.worker
             OR places.worker IS NULL OR resources.worker NOT IN (SELECT worker FROM lives_on)) END
WHERE event = 'resource_sample'
QUALIFY row_number() OVER (PARTITION BY number, scope ORDER BY "timestamp" DESC) <= $kept
ORDER BY number, sampled
"""

_RUNNING = """
WITH beside AS (
    SELECT number, ended.task, count(*) AS times FROM ended
    LEFT JOIN lives_on USING (worker) JOIN places ON coalesce(lives_on.host, $home) = places.host
    WHERE ended.worker IS NOT NULL AND ended.duration_s IS NOT NULL AND event <> 'task_retried'
        AND epoch(ended.moment) >= places.gone_at - 0.02
            AND epoch(ended.moment) - ended.duration_s < places.gone_at
        AND ended.task_id IS DISTINCT FROM places.task_id
    GROUP BY number, ended.task
)
SELECT number, CAST(sum(times) AS BIGINT), list(task ORDER BY times DESC, task) FROM beside GROUP BY number
"""

_FAILED = """
SELECT number, count(*) FROM rooted LEFT JOIN lives_on USING (worker)
JOIN places ON coalesce(lives_on.host, $home) = places.host
WHERE rooted.root <> places.root AND NOT rooted.dependent
    AND abs(epoch(rooted.moment) - places.gone_at) <= $moment
GROUP BY number
"""
