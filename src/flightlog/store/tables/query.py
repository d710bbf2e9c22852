"""SQL queries over runs: only SELECT, only the runs' tables, and results that outlive the connection."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from uuid import uuid4

from flightlog.core.displayed import Displayed
from flightlog.core.errors import MissingExtra, UsageError
from flightlog.core.text import words
from flightlog.store.read.files import find_parts
from flightlog.store.tables.connection import PlainPaths, plain_scratch, private_connection
from flightlog.store.tables.run_tables import open_views, read_again, stream_of, table_names
from flightlog.store.tables.snapshots import Snapshots
from flightlog.store.tables.views import NEEDS, STORED

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
        for needed in NEEDS.get(name, {stream_of(name)}):
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
        with open_views(runs, names_in(query), names_alone=names_alone) as tables:
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


_NO_TABLE = re.compile(r"Table with name (?P<name>.+?) does not exist")
_NO_ACCESS = re.compile(r'Cannot access (?:file|directory) "(?P<path>.*?)"')


def explained(error: duckdb.Error, tables: Sequence[str]) -> str:
    """What is wrong with a query, and what would be right, as far as DuckDB knows; `tables` are those there
    are.
    """
    text, _, shown = str(error).partition("\n\nLINE ")
    if match := _NO_ACCESS.search(text):
        return f"a query reads the tables of runs and nothing else: {match['path']} is out of reach"
    if "disabled" in text and "configuration" in text:
        return f"a query reads the tables of runs and nothing else ({_line(text)})"
    if "configuration has been locked" in text:
        return "a query cannot change settings"
    if match := _NO_TABLE.search(text):
        near = get_close_matches(match["name"].casefold(), tables, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        return f"there is no table {match['name']}.{hint} The tables are {', '.join(tables)}."
    where = f" (at {_place(shown)})" if shown and _place(shown) else ""
    return f"the query cannot be answered: {_line(text)}{where}"


def _line(text: str) -> str:
    """The message without its class, on one line."""
    _, _, said = text.partition(": ")
    return "; ".join(part.strip() for part in (said or text).splitlines() if part.strip())


def _place(shown: str) -> str:
    """The piece of the query that the caret points at, from DuckDB's picture of it."""
    lines = shown.splitlines()
    if len(lines) < 2 or "^" not in lines[1]:
        return ""
    source = f"LINE {lines[0]}"
    at = lines[1].index("^")
    return source[at : at + 40].strip()


_NEVER = "a query changes neither runs nor files nor settings"
_QUERIES = {"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"}
"""Nodes of a parsed query that read. Others (`INSERT_QUERY_NODE`, `COPY_QUERY_NODE`, …) may stand within
WITH."""
_HARMLESS = {"unnest", "range", "generate_series", "generate_subscripts", "json_each", "json_tree", "repeat"}
"""Table functions that look at no table."""
_CATALOGUE = words(
    "query_table duckdb_columns duckdb_functions duckdb_tables duckdb_types duckdb_views pragma_table_info "
    "pragma_show sql_auto_complete"
)
"""Table functions that look at tables by name. No others can be used: some read files, some run other
queries."""


def names_in(query: str) -> frozenset[str] | None:
    """The tables that a query names, in lower case; None where it could mean any.

    A `UsageError` where it is not exactly one SELECT (or DESCRIBE, SUMMARIZE, SHOW, which are SELECTs too).
    """
    import duckdb

    with private_connection() as connection:
        try:
            statements = connection.extract_statements(query)
        except duckdb.Error as error:
            raise UsageError(explained(error, ())) from None
        if len(statements) != 1:
            found = f"there are {len(statements)} statements" if statements else "there is nothing"
            raise UsageError(f"a query is one SELECT, and {found}")
        (statement,) = statements
        kind = statement.type.name
        if kind == "MULTI":
            raise UsageError(
                "PIVOT needs the values it makes columns of: PIVOT … ON state IN ('completed', 'failed') …"
            )
        if kind not in {"SELECT", "SELECT_STATEMENT"}:
            spoken = kind.removesuffix("_STATEMENT").replace("_", " ")
            raise UsageError(f"only SELECT is allowed, and this is {spoken}: {_NEVER}")
        [(parsed,)] = connection.execute("SELECT json_serialize_sql(?)", [statement.query]).fetchall()
        tree = json.loads(parsed)
    if tree.get("error"):
        raise UsageError(f"the query cannot be checked for what it reads: {tree.get('error_message')}")
    nodes = list(_nodes(tree))
    types = {str(node["type"]) for node in nodes if "type" in node}
    if {name for name in types if name.endswith("_NODE")} - _QUERIES:
        raise UsageError(f"only SELECT is allowed, also within WITH: {_NEVER}")
    functions = {node["function"]["function_name"] for node in nodes if node.get("type") == "TABLE_FUNCTION"}
    for name in sorted(functions - _HARMLESS - _CATALOGUE):
        raise UsageError(f"a query reads the tables of runs and nothing else: {name}() cannot be used in it")
    if functions & _CATALOGUE or "SHOW_REF" in types:
        return None
    tables = [node for node in nodes if node.get("type") == "BASE_TABLE"]
    if any(node.get("schema_name") not in {"", "main", None} for node in tables):
        return None
    return frozenset(node["table_name"].casefold() for node in tables)


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Every object in the parsed query."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
