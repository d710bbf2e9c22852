"""Select statements over files of one stream, with the run of each row."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from flightlog.events.columns import columns, projection, quoted
from flightlog.store.columns_found import LONGEST_LINE_BYTES, columns_of, is_built_in, text, users_table

if TYPE_CHECKING:
    import duckdb

HIDDEN = "hidden"
"""The schema of what the views are made from."""
ALL = '* EXCLUDE ("the run", "the file")'
"""What was recorded: not the columns that say where a row stands, whose names no event has."""
UNIONS = 8
"""So many runs are read one by one. More are read by one scan, and their small files from one bundle."""
SMALL_BYTES = 1 << 20


@dataclass(frozen=True)
class Table:
    """How the rows of one stream are read."""

    read: Mapping[str, str]
    selected: str
    """The select list that makes rows of lines."""

    def rows(self) -> str:
        """The select list of what was read; a user's column that is called as ours is gets another name."""
        own = next((name for name in self.read if name.casefold() == "run_id"), None)
        return ALL if own is None else f"{ALL} RENAME ({quoted(own)} AS event_run_id)"

    def lines(self, files: str, *, ours: str = "") -> str:
        """The scan of JSONL files; `ours` is a column of the bundle's."""
        read = {**self.read, **({ours: "VARCHAR"} if ours else {})}
        table = ", ".join(f"{text(name)}: {text(kind)}" for name, kind in read.items())
        more = f", {quoted(ours)}" if ours else ""
        return (
            f'(SELECT {self.selected}, "the file"{more} FROM read_json({files}, '  # noqa: S608 - names are quoted
            "format='newline_delimited', ignore_errors=true, hive_partitioning=false, "
            f"maximum_object_size={LONGEST_LINE_BYTES}, filename='the file', columns={{{table}}}) "
            "WHERE event IS NOT NULL)"
        )

    def bundle(self, files: Sequence[Path]) -> list[str]:
        """Select statements over what `bundled` made."""
        scan = self.lines(_list(files), ours="the run")
        return [f'SELECT "the run" AS run_id, {self.rows()} FROM {scan}'] if files else []  # noqa: S608

    def nothing(self) -> str:
        """A select statement without rows."""
        kinds = ", ".join(f"CAST(NULL AS {kind}) AS {quoted(name)}" for name, kind in self.read.items())
        return f"SELECT CAST(NULL AS VARCHAR) AS run_id, {kinds} WHERE false"


def table_of(
    connection: duckdb.DuckDBPyConnection, stream: str, lines: Sequence[Path], stored: Sequence[Path]
) -> Table:
    """How a stream is read from these files of lines and these snapshots."""
    if is_built_in(stream):
        return Table(columns(stream), projection(stream))
    selected, read = users_table(connection, stream, lines)
    return Table({**read, **(columns_of(connection, stored[0]) if stored else {})}, selected)


def snapshots_scan(files: str) -> str:
    """The scan of Parquet files."""
    return f"read_parquet({files}, hive_partitioning=false, union_by_name=true, filename='the file')"


def scans_of(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    files: Sequence[tuple[str, Path]],
    selected: str,
    scan: Callable[[str], str],
) -> list[str]:
    """Select statements over files, each with its run; one for all where there are many runs.

    `name` is that of a table which then says whose file is whose.
    """
    by_run: dict[str, list[Path]] = {}
    for run_id, file in files:
        by_run.setdefault(run_id, []).append(file)
    if len(by_run) <= UNIONS:
        return [
            f'SELECT "the run" AS run_id, {selected} '  # noqa: S608 - all quoted
            f'FROM (SELECT *, CAST({text(run_id)} AS VARCHAR) AS "the run" FROM {scan(_list(of))})'
            for run_id, of in by_run.items()
        ]
    owners = f"{HIDDEN}.{quoted(name)}"
    connection.execute(f'CREATE TABLE {owners} ("the run" VARCHAR, "the file" VARCHAR)')
    connection.execute(
        f"INSERT INTO {owners} SELECT unnest($runs), unnest($files)",
        {"runs": [run_id for run_id, _ in files], "files": [os.fspath(file) for _, file in files]},
    )
    read = scan(_list([file for _, file in files]))
    return [f'SELECT "the run" AS run_id, {selected} FROM {read} JOIN {owners} USING ("the file")']  # noqa: S608


def bundled(
    files: Sequence[tuple[str, Path]], scratch: Path, *, less: Collection[str] = ()
) -> tuple[list[tuple[str, Path]], list[Path]]:
    """Put the small files of very many runs into one; gives the other files, and the bundle if there is one.

    To open a file takes DuckDB longer than to read a small one. Every line of the bundle says first whose it
    is. The files of the runs `less` stay as they are. Raises OSError.
    """
    if len({run_id for run_id, _ in files}) <= UNIONS:
        return list(files), []
    rest: list[tuple[str, Path]] = []
    bundle = scratch / f"{uuid4().hex}.jsonl"
    with bundle.open("wb") as out:
        for run_id, file in files:
            if run_id in less or file.stat().st_size > SMALL_BYTES:
                rest.append((run_id, file))
                continue
            mark = b'{"the run":' + msgspec.json.encode(run_id) + b","
            lines = file.read_bytes().split(b"\n")  # a line feed stands in no string
            out.writelines(
                mark + line[1:] + b"\n" for line in lines if line[:1] == b"{" and line[-1:] == b"}"
            )
    return rest, [bundle]


def union(statements: Sequence[str]) -> str:
    """One statement that gives the rows of all; columns that one of them lacks are null."""
    return " UNION ALL BY NAME ".join(statements)


def _list(files: Sequence[Path]) -> str:
    return f"[{', '.join(text(os.fspath(file)) for file in files)}]"
