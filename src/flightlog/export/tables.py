"""The tables of a run as files: CSV, JSON and Parquet, made by DuckDB in bounded memory."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec
from msgspec import Struct

from flightlog.core.errors import UsageError
from flightlog.events.columns import quoted
from flightlog.export.base import Exported, ExportOptions, refuse, whole_file, whole_folder
from flightlog.store.tables.connection import PlainPaths, plain_scratch, text
from flightlog.store.tables.parquet import LEFT_OUT
from flightlog.store.tables.run_tables import RunTables, open_tables, table_names
from flightlog.version import __version__

if TYPE_CHECKING:
    from flightlog.store.run import Run

_TIMES = "TIMESTAMPFORMAT '%Y-%m-%dT%H:%M:%S.%fZ'"
_ORDERS = {
    "attempts": "coalesce(submitted_at, started_at, ended_at), task_id, attempt",
    "tasks": "coalesce(submitted_at, first_started_at, ended_at), task_id",
    "spans": "started_at, span_id",
    "concurrency": "since",
}
"""Order of derived tables; streams are in the order they were written."""


class TableExporter(Struct, frozen=True, kw_only=True):
    """Writes one file per table into a folder; for a single requested table, the file alone.

    All tables with rows are written, except `concurrency`; requested ones are written even if empty.
    """

    name: str
    what: str
    form: str
    """How DuckDB is to write."""
    ending: str | None = ""

    def ending_for(self, options: ExportOptions) -> str | None:
        """A file for one table, a folder for several or all."""
        return f".{options.tables[0]}.{self.name}" if len(options.tables) == 1 else ""

    def export(self, run: Run, output: Path | None, options: ExportOptions) -> Exported:
        """Write the tables; the counts are rows by table."""
        assert output is not None
        refuse(self.name, options, takes=("tables",))
        wanted = _wanted(run, options)
        counts: dict[str, int] = {}
        alone = len(options.tables) == 1
        with (whole_file if alone else whole_folder)(output) as made, _open(run, wanted) as tables:
            for number, table in enumerate(wanted):
                _report_progress(options, number, len(wanted))
                file = made if alone else made / f"{table}.{self.name}"
                counts[table] = _copy(tables, table, file, self.form)
                if not counts[table] and not options.tables:
                    file.unlink()
        return _exported(self.name, run, output, counts)


class JsonExporter(Struct, frozen=True, kw_only=True):
    """Writes one document: `run_id`, `flightlog_version`, and `tables`, each a list of objects."""

    name: str
    what: str
    ending: str | None = ".json"

    def export(self, run: Run, output: Path | None, options: ExportOptions) -> Exported:
        """Write the tables, one after the other; the counts are rows by table."""
        assert output is not None
        refuse(self.name, options, takes=("tables",))
        wanted = _wanted(run, options)
        counts: dict[str, int] = {}
        head = {"run_id": run.run_id, "flightlog_version": __version__}
        with (
            whole_file(output) as made,
            _open(run, wanted) as tables,
            TemporaryDirectory(prefix=".flightlog-", dir=made.parent) as aside,
            made.open("wb") as out,
        ):
            out.write(msgspec.json.encode(head)[:-1] + b',"tables":{')
            lead = b"\n"
            for number, table in enumerate(wanted):
                _report_progress(options, number, len(wanted))
                rows = Path(aside) / "rows.json"
                counts[table] = _copy(tables, table, rows, f"(FORMAT json, ARRAY true, {_TIMES})")
                if counts[table] or options.tables:
                    out.write(lead + msgspec.json.encode(table) + b":")
                    with rows.open("rb") as source:
                        shutil.copyfileobj(source, out, 1 << 20)
                    lead = b","
                rows.unlink()
            out.write(b"}}\n")
        return _exported(self.name, run, output, counts)


csv = TableExporter(
    name="csv", what="one CSV file a table, in a folder", form=f"(FORMAT csv, HEADER true, {_TIMES})"
)
parquet = TableExporter(
    name="parquet", what="one Parquet file a table, in a folder", form="(FORMAT parquet, COMPRESSION zstd)"
)
json = JsonExporter(name="json", what="one JSON document with the tables as lists of objects")


@contextmanager
def _open(run: Run, wanted: list[str]) -> Iterator[RunTables]:
    with open_tables([run]) as tables:
        tables.execute("SET preserve_insertion_order = true")
        tables.make(wanted)
        yield tables


def _wanted(run: Run, options: ExportOptions) -> list[str]:
    """The tables to write; a `UsageError` for one that there is not."""
    there = table_names([run])
    for table in options.tables:
        if table not in there:
            near = get_close_matches(table, there, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise UsageError(f"there is no table {table!r}.{hint} The tables are {', '.join(there)}.")
    return list(dict.fromkeys(options.tables)) or [table for table in there if table not in LEFT_OUT]


def _copy(tables: RunTables, table: str, file: Path, form: str) -> int:
    """Write a table's rows into a file; returns their number."""
    order = f" ORDER BY {_ORDERS[table]}" if table in _ORDERS else ""
    query = f"SELECT {_columns(tables, table, form)} FROM {quoted(table)}{order}"  # noqa: S608 - quoted
    with plain_scratch() as scratch:
        made = PlainPaths(scratch).folder(file.parent) / f".{uuid4().hex}.tmp"
        try:
            written = tables.execute(f"COPY ({query}) TO {text(os.fspath(made))} {form}").fetchone()
            made.replace(file)
        finally:
            made.unlink(missing_ok=True)
    assert written is not None
    return int(written[0])


def _columns(tables: RunTables, table: str, form: str) -> str:
    """All columns; in CSV, lists are JSON, as arguments, tags and metrics are."""
    if "csv" not in form:
        return "*"
    described = tables.execute(f"DESCRIBE {quoted(table)}").fetchall()
    lists = [name for name, kind, *_ in described if kind.endswith("[]")]
    made = ", ".join(f"to_json({quoted(name)}) AS {quoted(name)}" for name in lists)
    return f"* REPLACE ({made})" if made else "*"


def _report_progress(options: ExportOptions, done: int, of: int) -> None:
    if options.progress is not None:
        options.progress(done, of)


def _exported(name: str, run: Run, output: Path, counts: dict[str, int]) -> Exported:
    rows = {f"rows of {table}": number for table, number in counts.items() if number}
    notes = () if run.status != "running" else ("the run is running: these are the rows it had so far",)
    return Exported(to=name, where=str(output), counts=rows or {"rows": 0}, notes=(*notes, *run.problems))
