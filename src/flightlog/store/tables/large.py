"""The derived views of a very large run, made part by part and kept on disk: bounded memory, the same
rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flightlog.store.read.files import find_parts
from flightlog.store.tables.connection import text
from flightlog.store.tables.run_tables import open_all
from flightlog.store.tables.views import HIDDEN, OF_ONE, ONE, TASKS, attempts_of_one

if TYPE_CHECKING:
    import duckdb

    from flightlog.store.run import Run
    from flightlog.store.tables.streams import StreamTables

LARGE_BYTES = 16 << 20
"""Streams of fewer bytes are left to DuckDB as they are."""
MEMORY = "340MB"
"""What DuckDB may hold at once of a run with a large stream; the rest waits on disk."""
PART_BYTES = {"tasks": 96 << 20, "spans": 40 << 20}
"""Lines of so many bytes are put together at a time: what is kept of each group cannot wait on disk."""
BATCH = 2000
_BESIDE = "(FORMAT parquet, COMPRESSION lz4_raw, ROW_GROUP_SIZE 40960, DICTIONARY_SIZE_LIMIT 1000)"


def put_aside(
    run: Run,
    tables: StreamTables,
    views: Collection[str],
    *,
    attempts: str = "*",
    from_bytes: int = LARGE_BYTES,
    part_bytes: int | None = None,
) -> None:
    """Make these of `attempts`, `tasks` and `spans` on disk, where their streams are large; the views then
    read that.

    `tables` are those of this one run, with these views. `attempts` is a select list: the columns of
    `attempts` that are needed. Where a stream is large, DuckDB's memory is limited from then on. `part_bytes`
    is for tests.
    """
    connection, scratch = tables.connection, tables.scratch
    sizes = {
        stream: sum(part.path.stat().st_size for part in parts)
        for stream, parts in find_parts(run.path).items()
    }
    if max(sizes.values(), default=0) >= from_bytes:
        connection.execute(f"SET memory_limit = '{MEMORY}'")

    def parts_of(stream: str) -> int:
        size = sizes.get(stream, 0)
        return 0 if size < from_bytes else -(-size // (part_bytes or PART_BYTES[stream]))

    if {"attempts", "tasks"} & set(views) and parts_of("tasks"):
        if "attempts" in tables.unstored:
            # A column that goes into the grouping of tasks may be missing from a short list: then all are
            # kept.
            selected = "*" if "tasks" in views else attempts
            source = _copied(connection, f"{HIDDEN}.for_attempts", "task_id", parts_of("tasks"), scratch)
            [run_id] = tables.run_ids
            _make(
                connection,
                "attempts",
                parts_of("tasks"),
                scratch,
                lambda k: (
                    f"SELECT {selected} "  # noqa: S608 - ours
                    f"FROM ({attempts_of_one(run_id, _part(source, k))})"
                ),
            )
            source.unlink()
        if "tasks" in views:
            source = _copied(connection, "attempts", "task_id", parts_of("tasks"), scratch)
            _make(
                connection,
                "tasks",
                parts_of("tasks"),
                scratch,
                lambda k: TASKS.replace("FROM attempts", f"FROM {_part(source, k)}"),
            )
            source.unlink()
    if "spans" in views and "spans" in tables.unstored and parts_of("spans"):
        source = _copied(connection, f"{HIDDEN}.for_spans", "span_id", parts_of("spans"), scratch)
        _make(
            connection,
            "one_span",
            parts_of("spans"),
            scratch,
            lambda k: ONE.replace(f"FROM {HIDDEN}.for_spans", f"FROM {_part(source, k)}"),
        )
        source.unlink()
        spans = f"WITH RECURSIVE one AS (FROM one_span),{OF_ONE}"
        connection.execute(f"CREATE OR REPLACE VIEW spans AS {spans}")


def rows_of(run: Run, query: str, views: Collection[str]) -> Iterator[tuple[Any, ...]]:
    """The rows of a query of our own over these views of one run, in bounded memory, however large the run
    is.

    Timestamps are in UTC and without a zone, JSON is text. Raises `duckdb.Error` where there is no room to
    wait on.
    """
    with open_all([run], only=frozenset(views)) as tables:
        put_aside(run, tables, views)
        found = tables.connection.execute(query)
        while rows := found.fetchmany(BATCH):
            yield from rows


def _copied(connection: duckdb.DuckDBPyConnection, view: str, key: str, parts: int, scratch: Path) -> Path:
    """The rows of a view in a file, with `part`, the same for all rows of one key."""
    file = scratch / f"{view}-by-{key}.parquet"
    part = f"CAST(hash({key}) % {parts} AS INTEGER) AS part"
    # Ours.
    connection.execute(f"COPY (SELECT *, {part} FROM {view}) TO {text(str(file))} {_BESIDE}")  # noqa: S608
    return file


def _part(file: Path, number: int) -> str:
    # Quoted.
    rows = f"read_parquet({text(str(file))})"
    return f"(SELECT * EXCLUDE (part) FROM {rows} WHERE part = {number})"  # noqa: S608


def _make(
    connection: duckdb.DuckDBPyConnection,
    view: str,
    parts: int,
    scratch: Path,
    statement: Callable[[int], str],
) -> None:
    """Make a view part by part, and let it read what was made."""
    files = []
    for number in range(parts):
        file = text(str(scratch / f"{view}-{number}.parquet"))
        connection.execute(f"COPY ({statement(number)}) TO {file} {_BESIDE}")
        files.append(file)
    connection.execute(
        f"CREATE OR REPLACE VIEW {view} AS SELECT * "  # noqa: S608 - quoted
        f"FROM read_parquet([{', '.join(files)}], hive_partitioning=false)"
    )
