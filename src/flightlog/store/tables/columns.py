"""The columns of users' streams: the declared ones, and what only the lines know of."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flightlog.events import Event
from flightlog.events.base import classes_in
from flightlog.events.columns import columns, event_columns, projection, quoted
from flightlog.store.read.files import MAX_LINE_BYTES

if TYPE_CHECKING:
    import duckdb

LONGEST_LINE_BYTES = MAX_LINE_BYTES
"""What DuckDB is told; it takes lines of up to twice as many bytes, and gives up on a file that has a longer
one."""

# A folder called `a=b` would add a column, if it were let.
READ = "read_json($files, format='newline_delimited', ignore_errors=true, hive_partitioning=false, {})"
_OBJECTS = READ.format(f"maximum_object_size={LONGEST_LINE_BYTES}, columns={{'line': 'JSON'}}, records=false")


def is_built_in(stream: str) -> bool:
    """Whether the columns of a stream are all declared, and so the same in every run."""
    return not stream.startswith("user.") and bool(classes_in(stream))


def users_table(
    connection: duckdb.DuckDBPyConnection, stream: str, paths: Sequence[Path]
) -> tuple[str, dict[str, str]]:
    """The select list and the columns to read for it: the declared ones, then what only the lines know of."""
    known = bool(classes_in(stream))
    declared = columns(stream) if known else event_columns(Event)
    selected = projection(stream) if known else ", ".join(map(quoted, declared))
    if is_built_in(stream):
        return selected, declared
    taken = {name.casefold() for name in declared}
    others = {}
    for name, kind in (_found_columns(connection, paths) if paths else {}).items():
        if name.casefold() not in taken:
            taken.add(name.casefold())
            others[name] = kind
    return ", ".join([selected, *map(quoted, others)]), declared | others


def columns_of(connection: duckdb.DuckDBPyConnection, parquet: Path) -> dict[str, str]:
    """The columns of a Parquet file, with their types."""
    described = connection.execute(
        "DESCRIBE SELECT * FROM read_parquet($file, hive_partitioning=false)", {"file": os.fspath(parquet)}
    ).fetchall()
    return {name: kind for name, kind, *_ in described}


def text(value: str) -> str:
    """A text as an SQL literal."""
    return "'" + value.replace("'", "''") + "'"


def _found_columns(connection: duckdb.DuckDBPyConnection, paths: Sequence[Path]) -> dict[str, str]:
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
        {"files": [os.fspath(path) for path in paths]},
    ).fetchall()
    return {name: _narrowest(set(types)) for name, types in found}


def _narrowest(types: set[str]) -> str:
    if types == {"BIGINT", "DOUBLE"}:
        return "DOUBLE"
    (kind, *others) = types
    return kind if not others and kind in {"BIGINT", "DOUBLE", "BOOLEAN", "VARCHAR"} else "JSON"
