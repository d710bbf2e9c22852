"""Questions in SQL: only SELECT, only the runs, and answers that outlive the connection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from flightlog.errors import MissingExtra, UsageError
from flightlog.store.query_errors import explained
from flightlog.store.query_reading import names_in
from flightlog.store.tables import open_all, table_names

if TYPE_CHECKING:
    import duckdb
    import pandas as pd  # type: ignore[import-untyped]
    import polars
    import pyarrow as pa  # type: ignore[import-untyped]

    from flightlog.store.run import Run

Parameters = Sequence[Any] | Mapping[str, Any]


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


class Table:
    """The answer to a query over runs. Nothing is read before it is asked for, and then all of it.

    `rows()` gives tuples, `df()` a pandas frame, `pl()` a Polars one, `arrow()` an Arrow table; iteration goes
    through the rows. Each call reads the runs as they are then. A query that cannot be answered is a
    `UsageError`, a library that is not installed a `MissingExtra`.
    """

    def __init__(self, runs: Sequence[Run], query: str, params: Parameters | None = None) -> None:
        self.query = query
        self._runs = tuple(runs)
        self._params = params

    def __repr__(self) -> str:
        return f"Table({self.query!r})"

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows())

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        with ask(self._runs, self.query, self._params) as answer:
            return answer.columns

    def rows(self) -> list[tuple[Any, ...]]:
        """All rows; timestamps are in UTC and without a zone, JSON is text."""
        with ask(self._runs, self.query, self._params) as answer:
            return [row for rows in answer.batches() for row in rows]

    def df(self) -> pd.DataFrame:
        """All rows as a pandas frame."""
        with self._converted("pandas", "pandas") as relation:
            return relation.df()

    def pl(self) -> polars.DataFrame:
        """All rows as a Polars frame."""
        with self._converted("polars", "polars pyarrow") as relation:
            return cast("polars.DataFrame", relation.pl())

    def arrow(self) -> pa.Table:
        """All rows as an Arrow table."""
        with self._converted("pyarrow", "pyarrow") as relation:
            return relation.to_arrow_table()

    @contextmanager
    def _converted(self, library: str, packages: str) -> Iterator[duckdb.DuckDBPyRelation]:
        from importlib.util import find_spec

        if find_spec(library) is None:
            raise MissingExtra(f"this needs {library}, which is not installed: pip install {packages}")
        with connected(self._runs, self.query) as connection:
            yield connection.sql(self.query, params=self._params)


@contextmanager
def ask(runs: Sequence[Run], query: str, params: Parameters | None = None) -> Iterator[Answer]:
    """The answer to a query over these runs, to be read while the context lasts; see `connected`."""
    with connected(runs, query) as connection:
        yield Answer(connection, query, params)


@contextmanager
def connected(
    runs: Sequence[Run], query: str, *, output: Path | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection for this query, which can read the tables of these runs and nothing else, and writes nothing.

    `output` is a file that the caller may write the answer into. A query that is not one SELECT, that asks for
    other files, or that makes no sense is a `UsageError` which says why.
    """
    import duckdb

    wanted = names_in(query)
    with open_all(runs, only=wanted) as tables:
        lock(tables.connection, [*tables.files, *([] if output is None else [output])])
        try:
            yield tables.connection
        except duckdb.Error as error:
            raise UsageError(explained(error, table_names(runs))) from None


def lock(connection: duckdb.DuckDBPyConnection, files: Sequence[Path]) -> None:
    """From now on only these files can be opened, no extension loaded, and no setting changed."""
    connection.execute("SET python_enable_replacements = false")  # nor our variables read as tables
    connection.execute("SET allowed_paths = $files", {"files": [str(file) for file in files]})
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
