"""DuckDB as Flightlog uses it: a private connection in memory, file names that it takes literally, and the
columns that it reads from lines.

DuckDB reads some characters of a file name as a pattern, and knows UTF-8 alone: such a file gets a plain
name. A stream of users' events has the declared columns, and those that only its lines know of.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from flightlog.core.errors import UsageError
from flightlog.events import Event
from flightlog.events.base import classes_in
from flightlog.events.columns import columns, event_columns, projection, quoted
from flightlog.store.limits import StoreLimits
from flightlog.store.liveness import unix_time

if TYPE_CHECKING:
    import duckdb


class Executes(Protocol):
    """What statements are run on: a connection, or `RunTables`."""

    def execute(self, query: Any, parameters: Any = None, /) -> duckdb.DuckDBPyConnection:
        """Run a statement; gives what can be fetched from."""
        ...


INTERRUPTED = "Query interrupted"
"""What DuckDB raises as a `RuntimeError` on Ctrl-C, in place of Python's own."""


@contextmanager
def private_connection(settings: Mapping[str, str] | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """A new in-memory database with these settings; it is gone when the context ends.

    DuckDB draws progress bars by itself in notebooks and prompts: what prints here is the caller's alone.
    Ctrl-C while DuckDB works is a `KeyboardInterrupt`, as it is elsewhere.
    """
    import duckdb

    with duckdb.connect(config=dict(settings or {})) as connection:
        with suppress(duckdb.InvalidInputException):  # a notebook without ipywidgets has none to switch off
            connection.execute("SET enable_progress_bar = false")
        try:
            yield connection
        except RuntimeError as error:
            if str(error) == INTERRUPTED:
                raise KeyboardInterrupt from error
            raise


def records(found: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """The rows that a query has found, each by the names of its columns."""
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def create_table(
    tables: Executes,
    name: str,
    columns: Mapping[str, str],
    rows: Sequence[Sequence[Any]],
    *,
    temporary: bool = True,
) -> None:
    """Make a table of these rows, which cursors see if it is not temporary; `columns` are their names with
    their types.

    Whole numbers that a column of 64 bits cannot hold are null.
    """
    values = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in columns]
    for number, kind in enumerate(columns.values()):
        if kind == "BIGINT":
            values[number] = [within_64_bits(value) for value in values[number]]
    lists = ", ".join(f"unnest(CAST(? AS {kind}[])) AS {column}" for column, kind in columns.items())
    kind = "TEMP TABLE" if temporary else "TABLE"
    tables.execute(f"CREATE OR REPLACE {kind} {name} AS SELECT {lists}", values)


def utc_time(timestamp: str | None) -> datetime | None:
    """A timestamp of a document as a column takes it; None where it is none."""
    found = unix_time(timestamp)
    try:
        return None if found is None else datetime.fromtimestamp(found, UTC).replace(tzinfo=None)
    except (OverflowError, ValueError, OSError):
        return None


def within_64_bits(number: int | None) -> int | None:
    """A number that a column can hold; None for any other, which a document may claim."""
    return number if number is not None and -(1 << 63) <= number < 1 << 63 else None


_MISREAD = frozenset("*?[]{}\\")


def path_text(path: str | os.PathLike[str]) -> str:
    """A path to show, on one line of characters that every output takes; the others are spelled out, as
    Python does.
    """
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii") for sign in text
    )


def is_plain(path: Path) -> bool:
    """Whether a path means itself to DuckDB, and nothing else."""
    text = os.fspath(path)
    return text.isprintable() and not _MISREAD.intersection(text)  # half of a character is not printable


@contextmanager
def plain_scratch() -> Iterator[Path]:
    """A folder with a plain name, for this process alone, that goes away with the context. Raises OSError.

    Where the folder of temporary files has no plain name, it is called by its number, on systems that can; a
    `UsageError` on others.
    """
    from tempfile import TemporaryDirectory  # a process that only records needs it not

    with TemporaryDirectory(prefix="flightlog-") as made:
        folder = Path(made)
        if is_plain(folder):
            yield folder
            return
        fd = os.open(folder, os.O_RDONLY)
        try:
            numbered = Path(f"/proc/self/fd/{fd}")
            if not numbered.is_dir():
                raise UsageError(
                    f"the folder of temporary files, {path_text(folder.parent)}, has a name that "
                    "cannot be read as it is: name another one in TMPDIR"
                )
            yield numbered
        finally:
            os.close(fd)


class PlainPaths:
    """Plain names of files and folders: their own, or those of links in the folder `scratch`, which has to be
    plain.
    """

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._links: dict[Path, Path] = {}

    def folder(self, path: Path) -> Path:
        """A plain name of a folder, also of one that is to be made. Raises OSError."""
        path = path.absolute()
        return path if is_plain(path) else self._link(path)

    def file(self, path: Path) -> Path:
        """A plain name of a file that is there; of one that is to be made, if the last part of its name is
        plain.

        Raises OSError.
        """
        path = path.absolute()
        if is_plain(path):
            return path
        return self.folder(path.parent) / path.name if is_plain(Path(path.name)) else self._link(path)

    def _link(self, path: Path) -> Path:
        link = self._links.get(path)
        if link is None:
            ending = path.suffix if path.suffix in {".jsonl", ".parquet"} else ""
            link = self._scratch / f"link-{os.urandom(8).hex()}{ending}"
            link.symlink_to(path)
            self._links[path] = link
        return link


_OBJECTS = (
    "read_json($files, format='newline_delimited', ignore_errors=true, "
    "hive_partitioning=false, "  # a folder called `a=b` would add a column, if it were let
    f"maximum_object_size={StoreLimits.max_line_bytes}, columns={{'line': 'JSON'}}, records=false)"
)


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
