"""How the run itself ended, where no failure of a task or worker says it: crashed, interrupted, or failed by
a word alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from flightlog.analyze.diagnosis.record.groups import Group
from flightlog.store.liveness import latest, unix_time

if TYPE_CHECKING:
    import duckdb

    from flightlog.store.run import Run


class RunEnd(NamedTuple):
    """A cause that is the run's own end, and what was under way then."""

    group: Group
    cancelled_by: str | None
    in_flight: int


def run_end(run: Run, connection: duckdb.DuckDBPyConnection, *, told: bool) -> RunEnd | None:
    """The run's own end as a group; None where it ended well, is running, or its failure is `told` by an
    event.
    """
    status = run.status
    if status not in {"crashed", "interrupted", "failed"} or (status == "failed" and told):
        return None
    info = run.info
    end = info.end_time or _last_sign(run, connection)
    begun, gone = unix_time(info.start_time), unix_time(end)
    tasks: dict[str, int] = {}
    flying = 0
    if status != "failed":
        for task, number in connection.execute(_FLYING).fetchall():
            flying += number
            if len(tasks) < 20:
                tasks[task] = number
    group = Group(
        root=f"the run {status}",
        incident=None,
        count=1,
        dependents=0,
        first=end,
        last=end,
        at=gone,
        last_at=gone,
        duration_s=None if begun is None or gone is None else max(0.0, gone - begun),
        scope="run",
        message=info.error,
        exit_code=info.exit_code,
        signal=info.signal,
        tasks=tasks,
        worker=None,
        recorded_in="run.json",
    )
    by = None
    if status == "interrupted":
        by = info.signal or info.error or "the program was told to stop"
    return RunEnd(group, by, flying)


def _last_sign(run: Run, connection: duckdb.DuckDBPyConnection) -> str | None:
    """The last heartbeat, end of a task or sample: what a run that was killed is last known by."""
    beats = [run.info.heartbeat, *(writer.heartbeat for writer in run.writers())]
    return latest(*beats, *(stamp for (stamp,) in connection.execute(_LAST).fetchall()))


_LAST = """
SELECT strftime(max(moment), '%Y-%m-%dT%H:%M:%S.%fZ') FROM (
    SELECT moment FROM ended UNION ALL SELECT "timestamp" FROM resources UNION ALL SELECT "timestamp"
        FROM metrics
    UNION ALL SELECT "timestamp" FROM workers UNION ALL SELECT "timestamp" FROM failures
)
"""

_FLYING = """
SELECT task_name(task) AS name, count(*) AS number FROM (
    SELECT task_id, attempt, any_value(task) AS task FROM task_events WHERE event = 'task_started'
        GROUP BY task_id, attempt
) AS begun ANTI JOIN ended ON ended.task_id = begun.task_id AND ended.attempt = begun.attempt
GROUP BY name ORDER BY number DESC, name
"""
