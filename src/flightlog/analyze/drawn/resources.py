"""What workers and hosts used over time, from the samples of the run: CPU, memory, and the memory and use of
GPUs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from flightlog.analyze.drawn.frame import Frame
from flightlog.analyze.drawn.results import Chart
from flightlog.analyze.drawn.samples import STRETCHES, Line, chart, inside

if TYPE_CHECKING:
    import duckdb

_SAMPLED = """
CREATE OR REPLACE TEMP TABLE sampled AS
WITH samples AS (
    SELECT scope, coalesce(host, 'unknown host') AS host, worker, pid, gpu_index, gpu_uuid, gpu_mig,
        {at} AS moment,
        CASE WHEN interval_s > 0 AND isfinite(interval_s) THEN interval_s ELSE 1e-3 END AS weight,
        CASE WHEN isfinite(cpu_cores) THEN cpu_cores END AS cpu_cores,
        CASE WHEN isfinite(cpu_percent) THEN cpu_percent END AS cpu_percent,
        CASE WHEN isfinite(gpu_percent) THEN gpu_percent END AS gpu_percent,
        rss_bytes, memory_used_bytes, memory_total_bytes, gpu_memory_used_bytes, gpu_memory_total_bytes
    FROM resources WHERE event = 'resource_sample' AND scope IN ('node', 'cgroup', 'worker', 'gpu')
)
SELECT scope,
    CASE scope WHEN 'node' THEN host WHEN 'cgroup' THEN host || ', container'
        WHEN 'worker' THEN coalesce(worker, host || ', process ' || coalesce(pid::VARCHAR, 'unknown'))
            || CASE WHEN worker IN (SELECT worker FROM places) THEN '' ELSE ' and its processes' END
        ELSE host || ', GPU ' || coalesce(gpu_index::VARCHAR, gpu_uuid, 'unknown') || coalesce(', ' ||
            gpu_mig, '')
    END AS label,
    moment // {width} AS stretch, avg(moment) AS moment, count(*) AS samples,
    sum(cpu_cores * weight) / sum(CASE WHEN cpu_cores IS NOT NULL THEN weight END) AS cores,
    sum(cpu_percent * weight) / sum(CASE WHEN cpu_percent IS NOT NULL THEN weight END) AS "percent",
    sum(gpu_percent * weight) / sum(CASE WHEN gpu_percent IS NOT NULL THEN weight END) AS gpu_percent,
    max(rss_bytes) AS rss, max(memory_used_bytes) AS used, max(memory_total_bytes) AS total,
    max(gpu_memory_used_bytes) AS gpu_used, max(gpu_memory_total_bytes) AS gpu_total
FROM samples GROUP BY ALL
"""
"""Means of rates, each sample weighed by the time it covers, and the largest of sizes."""

_WORKER, _NODE, _GPU = (f"scope = '{scope}' AND stretch IS NOT NULL" for scope in ("worker", "node", "gpu"))
_MEMORY = "scope IN ('node', 'cgroup') AND (scope = 'node' OR total IS NOT NULL) AND stretch IS NOT NULL"
_WORKER_CPU = Line("sampled", "label", "cores", _WORKER, "mean", "avg(cores)")
_WORKER_MEMORY = Line("sampled", "label", "rss", _WORKER, "largest", "max(rss)")
_HOST_CPU = Line("sampled", "label", '"percent"', _NODE, "mean", 'avg("percent")', "100")
_HOST_MEMORY = Line("sampled", "label", "used", _MEMORY, "largest", "max(used)", "max(total)")
_GPU_MEMORY = Line("sampled", "label", "gpu_used", _GPU, "largest", "max(gpu_used)", "max(gpu_total)")
_GPU_USE = Line("sampled", "label", "gpu_percent", _GPU, "mean", "avg(gpu_percent)", "100")


class Use(NamedTuple):
    """The charts; None where nothing was sampled of it."""

    worker_cpu: Chart | None
    worker_memory: Chart | None
    host_cpu: Chart | None
    host_memory: Chart | None
    gpu_memory: Chart | None
    gpu_use: Chart | None


def resource_use(connection: duckdb.DuckDBPyConnection, frame: Frame) -> Use:
    """What the samples say; the stream is read once. Names that are not in `places` are of the run's own
    processes.
    """
    width = frame.stretches(STRETCHES).width
    connection.execute(_SAMPLED.format(at=inside(frame, "at_ns(timestamp)"), width=width))
    [(astray,)] = connection.execute(
        "SELECT coalesce(sum(samples), 0)::BIGINT FROM sampled WHERE stretch IS NULL"
    ).fetchall()
    beside = [f"{astray:,} samples were taken outside of the run's time, by their clocks."] if astray else []
    return Use(
        worker_cpu=chart(connection, frame, "cores", _WORKER_CPU, beside),
        worker_memory=chart(connection, frame, "bytes", _WORKER_MEMORY, beside),
        host_cpu=chart(connection, frame, "percent", _HOST_CPU, beside),
        host_memory=chart(connection, frame, "bytes", _HOST_MEMORY, beside),
        gpu_memory=chart(connection, frame, "bytes", _GPU_MEMORY, beside),
        gpu_use=chart(connection, frame, "percent", _GPU_USE, beside),
    )
