"""Runs as SQL tables: a private DuckDB connection with one view per stream, and the views derived from
them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from flightlog.core.errors import DamagedSnapshot
from flightlog.core.text import first_line
from flightlog.store.liveness import unix_time
from flightlog.store.tables.attempts import keep_views
from flightlog.store.tables.connection import path_text
from flightlog.store.tables.streams import StreamTables, open_streams, stream_of, union, view_names
from flightlog.store.tables.views import DERIVED, NEEDS, STORED, attempts_of_one

if TYPE_CHECKING:
    import duckdb

    from flightlog.store.run import Run
    from flightlog.store.tables.sources import Sources


P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def open_tables(
    runs: Sequence[Run], *, only: Collection[str] | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A private in-memory connection with the tables of all these runs; `only` names the views that are
    needed.

    Raw views, one a stream, hold every event once: `task_events`, `span_events`, `workers`, `resources`,
    `cache`, `failures`, …; users' streams under their names with `_` for `.`. Derived ones: `attempts`,
    `tasks`, `spans`, `concurrency`, `runs`. Every one has `run_id` first, and timestamps in UTC. A run that
    is not closed is read as it is when the connection is opened. Each use of a view reads the files anew; the
    connection may be used to make temporary tables. It is closed, and all that was made goes away, when the
    context ends. Raises OSError where files cannot be read.
    """
    with open_all(runs, only=only) as tables:
        yield tables.connection


@contextmanager
def open_all(
    runs: Sequence[Run], *, only: Collection[str] | None = None, names_alone: bool = False
) -> Iterator[StreamTables]:
    """As `open_tables`, with the names of the views and of the files that they read; `names_alone` as in
    `open_streams`.
    """
    streams = None if only is None else _streams_for(only)
    with open_streams(runs, only=streams, names_alone=names_alone) as tables, _blaming(tables.sources):
        if only is None or "runs" in only:
            create_runs(tables.connection, runs)
        one = tables.run_ids[0] if len(tables.run_ids) == 1 else None
        for name, statement in DERIVED.items():
            if only is None or name in only or (name == "attempts" and {"tasks", "concurrency"} & set(only)):
                lean = attempts_of_one(one) if one is not None and name == "attempts" else statement
                made = [lean] if name not in STORED or name in tables.unstored else []
                view = union([*made, *tables.stored.get(name, ())])
                tables.connection.execute(f"CREATE VIEW {name} AS {view}")
        yield tables


@contextmanager
def _blaming(sources: Sequence[Sources]) -> Iterator[None]:
    """Turn an error of DuckDB's for which a snapshot is to blame into a `DamagedSnapshot`."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        blamed = [one for one in sources if one.blame(str(error))]
        if blamed:
            raise DamagedSnapshot(
                f"a Parquet snapshot could not be read ({first_line(str(error))}): ask again, "
                "and the lines are read"
            ) from error
        raise


def read_again(function: Callable[P, T]) -> Callable[P, T]:
    """The function, called once more where a snapshot fails while it is read: it reads the lines then."""

    @wraps(function)
    def called(*args: P.args, **options: P.kwargs) -> T:
        try:
            return function(*args, **options)
        except DamagedSnapshot:
            return function(*args, **options)

    return called


BATCH = 2000


def rows_of(run: Run, query: str, views: Collection[str]) -> Iterator[tuple[Any, ...]]:
    """The rows of a query of our own over these views of one run, in bounded memory, however large the run
    is.

    Timestamps are in UTC and without a zone, JSON is text. Raises `duckdb.Error` where there is no room to
    wait on.
    """
    with open_all([run], only=frozenset(views)) as tables:
        keep_views(tables, views)
        found = tables.connection.execute(query)
        while rows := found.fetchmany(BATCH):
            yield from rows


def table_names(runs: Sequence[Run]) -> list[str]:
    """The names of all tables there are of these runs, the derived ones first."""
    found = {stream for run in runs for stream in run.streams()}
    return [*NEEDS, *sorted(view_names(found).values())]


def _streams_for(views: Collection[str]) -> set[str]:
    streams = {stream_of(view) for view in views if view not in NEEDS}
    return streams.union(*(NEEDS[view] for view in views if view in NEEDS))


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
