"""Device memory by rank, from what the ranks tracked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flightlog.analyze.drawn.frame import Frame
from flightlog.analyze.drawn.results import Chart
from flightlog.analyze.drawn.samples import STRETCHES, Line, chart, inside

if TYPE_CHECKING:
    import duckdb

_TRACKED = """
CREATE OR REPLACE TEMP TABLE tracked AS
SELECT CASE WHEN ranks > 1 THEN 'rank ' || rank ELSE coalesce(host, 'unknown host') || ', device ' ||
    device_id END
        || CASE WHEN ranks > 1 AND devices > ranks THEN ', device ' || device_id ELSE '' END AS label,
    moment // {width} AS stretch, avg(moment) AS moment, count(*) AS samples,
        max(coalesce(allocated, used)) AS bytes, max(total) AS total
FROM (
    SELECT coalesce(rank, 0) AS rank, host, coalesce(device_id, 0) AS device_id, {at} AS moment,
        allocator_allocated_bytes AS allocated, device_used_bytes AS used, device_total_bytes AS total
    FROM devices WHERE timestamp_ns IS NOT NULL
), (
    SELECT count(DISTINCT coalesce(rank, 0)) AS ranks, count(DISTINCT (coalesce(rank, 0), coalesce(device_id,
        0))) AS devices
    FROM devices WHERE timestamp_ns IS NOT NULL
)
WHERE moment IS NOT NULL GROUP BY ALL
"""
_MEMORY = Line("tracked", "label", "bytes", "true", "largest", "max(bytes)", "max(total)")


def device_memory(connection: duckdb.DuckDBPyConnection, frame: Frame) -> Chart | None:
    """What the frameworks' allocators had handed out, by rank, or by device where there is one rank; None
    without any.
    """
    width = frame.stretches(STRETCHES).width
    connection.execute(_TRACKED.format(at=inside(frame, "timestamp_ns"), width=width))
    return chart(connection, frame, "bytes", _MEMORY, ["Memory that the framework had handed out."])
