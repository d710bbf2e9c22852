"""The samples of one run, as relations."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flightlog.store.tables.run_tables import RunTables

SAMPLES_BY_TREE = """
WITH trees AS (
    SELECT host, pid, max(processes) AS processes, count(processes) + count(cpu_s) = 0 AS told,
        min("timestamp") AS first, max("timestamp") AS last
    FROM resources WHERE event = 'resource_sample' AND scope = 'worker' AND pid IS NOT NULL GROUP BY host, pid
), workers_at_once AS (
    SELECT one.host, count(*) AS number FROM trees AS one JOIN trees AS other
        ON one.host = other.host AND other.first <= one.first AND one.first <= other.last
    WHERE one.told AND other.told GROUP BY one.host, one.pid
), holding AS ( -- hosts on which a tree has more processes than there are workers beside it
    SELECT host FROM trees JOIN workers_at_once USING (host)
    GROUP BY host HAVING max(processes) > max(number)
)
SELECT * REPLACE (CASE WHEN scope = 'worker' AND (host, pid) IN (
        SELECT (host, pid) FROM trees JOIN holding USING (host) WHERE told)
    THEN 'worker_process' ELSE scope END AS scope)
FROM resources WHERE event = 'resource_sample'
"""
"""The samples of a run, each process in one tree.

A worker of Dask tells of itself in scope `worker`, without counters. Where the program started it, as a
cluster on this machine does, it is a part of the program's tree, which was sampled whole: its samples have
the scope of such a part."""

_SAMPLES = f"""
CREATE OR REPLACE TEMP TABLE samples_of_run AS
SELECT "timestamp", scope, host, pid, worker, final, interval_s, cpus, cpu_percent, cpu_cores,
    cpu_wait_s, children_cpu_wait_s, interpreter_wait_s, processes,
    cpu_s, steal_s, throttled_percent, memory_pressure_s, io_pressure_s, memory_used_bytes, swap_used_bytes,
    rss_bytes, disk_read_bytes_per_s, disk_write_bytes_per_s, gpu_uuid
FROM ({SAMPLES_BY_TREE})
"""  # noqa: S608 - a constant
"""What findings read of the samples, which are read once."""

RELATIONS: dict[str, Callable[[RunTables], object]] = {
    "samples_of_run": lambda tables: tables.execute(_SAMPLES)
}
