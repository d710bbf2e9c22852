"""The table `runs`: one row a run, from its documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flightlog.store.liveness import unix_time
from flightlog.store.plain_paths import path_text

if TYPE_CHECKING:
    import duckdb

    from flightlog.store.run import Run

RUNS = {
    "run_id": "VARCHAR",
    "project": "VARCHAR",
    "status": "VARCHAR",
    "started_at": "TIMESTAMP",
    "ended_at": "TIMESTAMP",
    "duration_s": "DOUBLE",
    "target": "VARCHAR",
    "provider": "VARCHAR",
    "host": "VARCHAR",
    "python": "VARCHAR",
    "git_commit": "VARCHAR",
    "tasks_submitted": "BIGINT",
    "tasks_completed": "BIGINT",
    "tasks_failed": "BIGINT",
    "path": "VARCHAR",
}
"""The columns of `runs`."""


def create_runs(connection: duckdb.DuckDBPyConnection, runs: Sequence[Run]) -> None:
    """Make the table. A run that was killed ended with its last event, for which its lines are gone
    through.
    """
    table = ", ".join(f"{name} {kind}" for name, kind in RUNS.items())
    connection.execute(f"CREATE TABLE runs ({table})")
    rows = [_row(run) for run in runs]
    if rows:
        lists = ", ".join(f"unnest(${name})" for name in RUNS)
        values = {name: [row[number] for row in rows] for number, name in enumerate(RUNS)}
        connection.execute(f"INSERT INTO runs SELECT {lists}", values)


def _row(run: Run) -> list[Any]:
    info, ending = run.info, run.ending()
    return [
        run.run_id,
        info.project,
        run.status,
        _time(info.start_time),
        _time(ending.end_time),
        ending.duration_s,
        info.target,
        info.provider,
        info.host or None,
        info.python,
        info.git_commit,
        _count(info.tasks_submitted),
        _count(info.tasks_completed),
        _count(info.tasks_failed),
        path_text(run.path),
    ]


def _count(number: int) -> int | None:
    """A number that the column can hold; None for any other, which a document may claim."""
    return number if -(1 << 63) <= number < 1 << 63 else None


def _time(timestamp: str | None) -> str | None:
    """A timestamp as DuckDB takes it; None where it is none."""
    return None if unix_time(timestamp) is None else timestamp
