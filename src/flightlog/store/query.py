"""Questions in SQL: only SELECT, only the runs, and answers that outlive the connection."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from uuid import uuid4

from flightlog.core.displayed import Displayed
from flightlog.core.errors import MissingExtra, UsageError
from flightlog.store.parts import find_parts
from flightlog.store.plain_paths import PlainPaths, plain_scratch
from flightlog.store.query_errors import explained
from flightlog.store.query_reading import names_in
from flightlog.store.snapshots import Snapshots
from flightlog.store.tables import open_all, read_again, table_names
from flightlog.store.tables_views import NEEDS, STORED

if TYPE_CHECKING:
    import duckdb
    import pandas as pd  # type: ignore[import-untyped]
    import polars
    import pyarrow as pa  # type: ignore[import-untyped]

    from flightlog.store.run import Run

Parameters = Sequence[Any] | Mapping[str, Any]


_TASKS = "FROM tasks"
_ORDERS = {
    _TASKS: "ORDER BY first_started_at NULLS LAST, run_id, task_id",
    "FROM spans": "ORDER BY started_at NULLS LAST, run_id, span_id",
}


class Answer:
    """The answer to a query, while the connection is open."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, query: str, params: Parameters | None, batch: int = 2000
    ) -> None:
        self._connection, self._batch = connection, batch
        found = connection.execute(query, params)
        described = found.description or []
        self.columns = [str(name) for name, *_ in described]
        self.types = [str(kind) for _, kind, *_ in described]

    def batches(self) -> Iterator[list[tuple[Any, ...]]]:
        """The rows, once, some at a time."""
        while rows := self._connection.fetchmany(self._batch):
            yield rows


class Peek(NamedTuple):
    """The first rows of an answer, and how many it has."""

    columns: list[str]
    rows: list[tuple[Any, ...]]
    total: int


class Table(Displayed):
    """The answer to a query over runs. Nothing is read before it is asked for, and then all of it.

    `rows()` gives tuples, `df()` a pandas frame, `pl()` a Polars one, `arrow()` an Arrow table; iteration
    goes through the rows. Each call reads the runs as they are then. A query that cannot be answered is a
    `UsageError`, a library that is not installed a `MissingExtra`.
    """

    def __init__(self, runs: Sequence[Run], query: str, params: Parameters | None = None) -> None:
        self.query = query
        """The SELECT that it is the answer to."""
        self.runs = tuple(runs)
        """What it is asked of."""
        self._params = params

    def __repr__(self) -> str:
        return f"Table({self.query!r})"

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows())

    @property
    @read_again
    def columns(self) -> list[str]:
        """The names of the columns."""
        with ask(self.runs, self.query, self._params) as answer:
            return answer.columns

    @read_again
    def rows(self) -> list[tuple[Any, ...]]:
        """All rows; timestamps are in UTC and without a zone, JSON is text."""
        with ask(self.runs, self.query, self._params) as answer:
            return [row for rows in answer.batches() for row in rows]

    def lines_bytes(self) -> int:
        """How many bytes of lines have to be gone through for the answer: those that no current snapshot
        holds.
        """
        return sum(_lines_bytes(run, names_in(self.query)) for run in self.runs)

    @read_again
    def peek(self, rows: int = 10) -> Peek:
        """The first rows and the count of all, without reading the rest into memory.

        Tasks and spans come by the time they began, whatever the query alone would begin with.
        """
        inner = self.query.rstrip().rstrip(";")
        with connected(self.runs, self.query) as connection:
            # The line break ends a comment that the query may end in.
            source = f"FROM ({inner}\n)"
            which, params = _ORDERS.get(inner, ""), self._params
            if inner == _TASKS and not self.lines_bytes():
                # A row is made from all attempts of its task; of some tasks alone that takes a tenth of the
                # time.
                params = _first_tasks(connection, rows)
                which = f"WHERE task_id IN ({', '.join('?' for _ in params)}) {which}" if params else which
            first = Answer(connection, f"{source} {which} LIMIT {int(rows)}", params)
            found = [row for batch in first.batches() for row in batch]
            count = connection.execute(f"{source} SELECT count(*)", self._params).fetchone()
            return Peek(first.columns, found, count[0] if count is not None else len(found))

    @read_again
    def df(self) -> pd.DataFrame:
        """All rows as a pandas frame."""
        with self._converted("pandas", "pandas") as relation:
            return relation.df()

    @read_again
    def pl(self) -> polars.DataFrame:
        """All rows as a Polars frame."""
        with self._converted("polars", "polars pyarrow") as relation:
            return cast("polars.DataFrame", relation.pl())

    @read_again
    def arrow(self) -> pa.Table:
        """All rows as an Arrow table."""
        with self._converted("pyarrow", "pyarrow") as relation:
            return relation.to_arrow_table()

    @contextmanager
    def _converted(self, library: str, packages: str) -> Iterator[duckdb.DuckDBPyRelation]:
        from importlib.util import find_spec

        if find_spec(library) is None:
            raise MissingExtra(f"this needs {library}, which is not installed: pip install {packages}")
        with connected(self.runs, self.query) as connection:
            yield connection.sql(self.query, params=self._params)


def _first_tasks(connection: duckdb.DuckDBPyConnection, number: int) -> list[str]:
    """The ids of those that began first: their attempts tell, without any task being put together."""
    limit = 4 * number
    while True:
        found = connection.execute(
            "SELECT task_id FROM attempts ORDER BY started_at NULLS LAST, run_id, task_id LIMIT ?", [limit]
        ).fetchall()
        ids = list(dict.fromkeys(task_id for (task_id,) in found))
        if len(ids) >= number or len(found) < limit:
            return ids[:number]
        limit *= 8  # many attempts of few tasks


def _lines_bytes(run: Run, wanted: frozenset[str] | None) -> int:
    parts = find_parts(run.path)
    snapshots = Snapshots(run.path, parts).current
    read: set[str] = set()
    for name in table_names([run]) if wanted is None else wanted:
        stream = {"task_events": "tasks", "span_events": "spans"}.get(name, name)
        for needed in NEEDS.get(name, {stream}):
            kept = (
                {f"views/{view}" for view, of in STORED.items() if of == needed}
                if name in NEEDS
                else {needed}
            )
            if not kept & snapshots:
                read.add(needed)
    return sum(part.path.stat().st_size for stream in read for part in parts.get(stream, ()))


@contextmanager
def ask(runs: Sequence[Run], query: str, params: Parameters | None = None) -> Iterator[Answer]:
    """The answer to a query over these runs, to be read while the context lasts; see `connected`."""
    with connected(runs, query) as connection:
        yield Answer(connection, query, params)


@read_again
def write_answer(runs: Sequence[Run], query: str, output: Path) -> None:
    """Write the answer to a query into a Parquet file, which appears whole or not at all; see `connected`.
    Raises OSError.
    """
    with plain_scratch() as scratch:
        made = PlainPaths(scratch).folder(output.absolute().parent) / f".{uuid4().hex}.tmp"
        try:
            with connected(runs, query, output=made) as connection:
                connection.sql(query).write_parquet(os.fspath(made))
            made.replace(output)
        finally:
            made.unlink(missing_ok=True)


@contextmanager
def connected(
    runs: Sequence[Run], query: str, *, output: Path | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection for this query, which can read the tables of these runs and nothing else, and writes
    nothing.

    `output` is a file that the caller may write the answer into. A query that is not one SELECT, that asks
    for other files, or that makes no sense is a `UsageError` which says why.
    """
    import duckdb

    names_alone = query.upper().rstrip("; \t\r\n").split() == ["SHOW", "TABLES"]
    try:
        with open_all(runs, only=names_in(query), names_alone=names_alone) as tables:
            lock(tables.connection, [*tables.files, *([] if output is None else [output])])
            yield tables.connection
    except duckdb.Error as error:
        raise UsageError(explained(error, table_names(runs))) from None


def lock(connection: duckdb.DuckDBPyConnection, files: Sequence[Path]) -> None:
    """From now on only these files can be opened, no extension loaded, and no setting changed."""
    connection.execute("SET python_enable_replacements = false")  # nor our variables read as tables
    connection.execute("SET allowed_paths = $files", {"files": sorted({os.fspath(file) for file in files})})
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
