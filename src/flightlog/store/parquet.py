"""Columnar snapshots of a run's streams, made from its lines by DuckDB."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from flightlog.events import Event, streams
from flightlog.events.columns import columns, event_columns, projection, quoted

if TYPE_CHECKING:
    import duckdb

LONGEST_LINE_BYTES = 16 << 20
"""Longer lines are damage: the recorder's are bounded far below. DuckDB gives up on a file that has one."""

# A folder called `a=b` would add a column, if it were let.
_READ = "read_json($files, format='newline_delimited', ignore_errors=true, hive_partitioning=false, {})"
_LINES = _READ.format(f"maximum_object_size={LONGEST_LINE_BYTES}, columns=$columns")
_OBJECTS = _READ.format(
    f"maximum_object_size={LONGEST_LINE_BYTES}, columns={{'line': 'JSON'}}, records=false"
)


def write_snapshot(files: Mapping[str, Sequence[Path]], folder: Path) -> dict[str, int]:
    """Write each stream's JSONL files as `folder/<stream>.parquet`; gives the number of rows by stream.

    One row a line that has an `event`, in the order of the files; lines that are torn or foreign are skipped,
    and values that do not fit their column are null. Built-in streams have their declared columns, with the
    defaults that lines leave out filled in. Streams of users' events also have what is found in the lines, for
    this process may not know their declarations. Each file appears whole or not at all, in place of an earlier
    one. Streams without files are left out. Raises `OSError` or `duckdb.Error` where files cannot be read or
    written; the JSONL files are never touched.
    """
    import duckdb

    folder.mkdir(parents=True, exist_ok=True)
    rows: dict[str, int] = {}
    # What does not fit in memory is spilled next to the result, not into the working directory.
    with duckdb.connect(config={"temp_directory": str(folder)}) as connection:
        for stream, paths in files.items():
            if paths:
                rows[stream] = _write_stream(connection, stream, paths, folder)
    return rows


def _write_stream(
    connection: duckdb.DuckDBPyConnection, stream: str, paths: Sequence[Path], folder: Path
) -> int:
    import duckdb

    unique = f"{stream}.{uuid4().hex}"
    made = folder / f".{unique}.parquet"
    cleaned = folder / f".{unique}.jsonl"
    try:
        try:
            rows = _copy(connection, stream, paths, made)
        except duckdb.InvalidInputException:
            _drop_long_lines(paths, cleaned)
            rows = _copy(connection, stream, [cleaned], made)
        made.replace(folder / f"{stream}.parquet")
    finally:
        made.unlink(missing_ok=True)
        cleaned.unlink(missing_ok=True)
    return rows


def _copy(connection: duckdb.DuckDBPyConnection, stream: str, paths: Sequence[Path], made: Path) -> int:
    files = [glob.escape(os.fspath(path.absolute())) for path in paths]
    selected, table = _columns(connection, stream, files)
    written = connection.execute(
        f"COPY (SELECT {selected} FROM {_LINES} WHERE event IS NOT NULL) TO $made (FORMAT parquet, COMPRESSION zstd)",  # noqa: S608 - names are quoted
        {"files": files, "columns": table, "made": os.fspath(made)},
    ).fetchone()
    assert written is not None
    return int(written[0])


def _columns(
    connection: duckdb.DuckDBPyConnection, stream: str, files: list[str]
) -> tuple[str, dict[str, str]]:
    """The select list and the columns to read for it: the declared ones, then what only the lines know of."""
    known = stream in streams()
    declared = columns(stream) if known else event_columns(Event)
    selected = projection(stream) if known else ", ".join(map(quoted, declared))
    if known and not stream.startswith("user."):
        return selected, declared
    taken = {name.casefold() for name in declared}
    others = {}
    for name, kind in _found_columns(connection, files).items():
        if name.casefold() not in taken:
            taken.add(name.casefold())
            others[name] = kind
    return ", ".join([selected, *map(quoted, others)]), declared | others


def _found_columns(connection: duckdb.DuckDBPyConnection, files: list[str]) -> dict[str, str]:
    """The fields of all lines, by name, with the narrowest type that holds every value unchanged."""
    found = connection.execute(
        f"""
        SELECT field.key, list(DISTINCT CASE
            WHEN field.type NOT IN ('BIGINT', 'UBIGINT') THEN field.type
            WHEN TRY_CAST(field.value AS BIGINT) IS NULL THEN 'beyond BIGINT'
            ELSE 'BIGINT' END)
        FROM {_OBJECTS} AS lines, json_each(lines.line) AS field
        WHERE json_type(lines.line) = 'OBJECT' AND field.key <> '' AND field.type <> 'NULL'
        GROUP BY field.key ORDER BY field.key
        """,  # noqa: S608 - nothing of the user's is in it
        {"files": files},
    ).fetchall()
    return {name: _narrowest(set(types)) for name, types in found}


def _narrowest(types: set[str]) -> str:
    if types == {"BIGINT", "DOUBLE"}:
        return "DOUBLE"
    (kind, *others) = types
    return kind if not others and kind in {"BIGINT", "DOUBLE", "BOOLEAN", "VARCHAR"} else "JSON"


def _drop_long_lines(paths: Sequence[Path], cleaned: Path) -> None:
    """Copy the lines of the files, except those that are too long; holds one line in memory."""
    with cleaned.open("wb") as out:
        for path in paths:
            with path.open("rb") as lines:
                whole = True
                while line := lines.readline(LONGEST_LINE_BYTES):
                    ends = line.endswith(b"\n")
                    if whole and (ends or len(line) < LONGEST_LINE_BYTES):
                        out.write(line if ends else line + b"\n")
                    whole = ends
