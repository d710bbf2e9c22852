"""Queries runs with SQL: one table per stream, and `attempts`, `tasks`, `spans`, `concurrency` and `runs`.

    flightlog sql "SELECT task, count(*) AS n, avg(duration_s) AS mean_s FROM attempts GROUP BY ALL"
    flightlog sql "SELECT worker, sum(duration_s) FROM attempts GROUP BY worker" --run latest --format csv
    flightlog sql "SELECT project, count(*) AS runs, max(duration_s) FROM runs GROUP BY project" --all
    flightlog sql "DESCRIBE attempts"
    flightlog sql "FROM attempts WHERE state = 'failed'" --format parquet --output failed.parquet

The SQL is DuckDB's. Without `--run` it queries the run that started last, with `--all` every run in the
folder; `run_id` is the first column of every table. Any run can be queried: running, closed, killed or
half-copied. For a run that is not closed, the result is that of the lines it had when the command started.

| table | holds |
|---|---|
| `attempts` | one row per attempt: its times, what it used, its error, its `state` |
| `tasks` | one row per task, with what its last attempt says |
| `spans` | one row per span: its duration, its own time (`self_s`: less the spans inside), its depth |
| `concurrency` | how many attempts were running from each moment (`since`) on |
| `runs` | one row per run |
| `task_events`, `span_events` | the streams `tasks` and `spans` as they were recorded |
| `workers`, `resources`, `cache`, `failures`, `artifacts`, `cost` | other streams; every event once |
| `metrics`, `events`, `devices`, `definitions` | and the rest of them |
| `user_…` | streams of your own events, with `_` for `.` |

The `state` of an attempt is `completed`, `failed`, `cancelled`, `running` or `pending`.

`SHOW TABLES` lists them, `DESCRIBE attempts` the columns. Times are in UTC, durations in seconds, sizes in
bytes; what is unknown is `NULL`. Arguments, tags and metrics are JSON: `args->>'seed'`, `CAST(metrics->'loss'
AS DOUBLE)`.

A query is one SELECT. It reads these tables and nothing else: no other file, no network, no setting, and it
writes nothing. In a terminal a table shows its first 1,000 rows and says so if there are more; the other
formats have all rows. In JSON the answer is a list of objects, in which arguments, tags and metrics are
objects, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from flightlog.cli import options
from flightlog.cli.limits import CliLimits
from flightlog.cli.options import flag, option
from flightlog.cli.output import check_file, columns, note, put, put_or_write, wants_color, write_file
from flightlog.cli.progress import progress
from flightlog.core.errors import UsageError

if TYPE_CHECKING:
    from flightlog.store.run import Run
    from flightlog.store.tables.query import Answer

DOING = "reading the tables"


RowFormat = Literal["table", "csv", "json", "parquet"]
"""How rows are written."""


def sql(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="One SELECT statement, in DuckDB's SQL.")],
    run: list[str] | None = option(
        "RUN",
        "'latest', a run id, a unique prefix of one, a path, or 'all'. May be given several "
        "times. Default: latest",
        autocompletion=options.complete_run,
    ),
    every: bool = flag("--all", "Every run in the folder. Same as --run all."),
    runs_dir: options.RunsDir = None,
    format_: RowFormat = typer.Option("table", "--format", help="Output format of the rows."),
    output: options.OutputFile = None,
) -> None:
    """Query one run, or all runs, with SQL.

    Example: flightlog sql "SELECT task, max(duration_s) FROM attempts GROUP BY task"
    """
    if format_ == "parquet" and output is None:
        raise UsageError("Parquet cannot be printed: name a file with --output")
    check_file(output)
    runs = _open_runs(run or [], every, runs_dir)
    if format_ == "parquet":
        assert output is not None
        from flightlog.store.tables.query import write_answer

        write_answer(runs, query, output)
        return

    from flightlog.store.tables.query import ask

    with ask(runs, query) as answer:
        if format_ == "table":
            text = _table(answer, None if output is not None else columns())
            put_or_write(text, output)
            return
        pieces = _csv(answer) if format_ == "csv" else _json(answer)
        if output is None:
            for piece in pieces:
                put(piece)
        else:
            write_file(output, "".join(pieces))


def _open_runs(named: list[str], every: bool, runs_dir: str | None) -> list[Run]:
    from flightlog.store.catalogue import run_paths
    from flightlog.store.run import Run
    from flightlog.store.runs_folder import place

    if not every and "all" not in named:
        return [options.open_named(name, runs_dir=runs_dir) for name in named or ["latest"]]
    if set(named) - {"all"}:
        raise UsageError(
            f"give either --all or runs, not both: leave out --run {', '.join(sorted(set(named) - {'all'}))}"
        )
    folder = options.readable_runs_folder(runs_dir)
    paths = sorted(run_paths(folder))
    if not paths:
        raise UsageError(f"there are no runs in {place(folder)}; record one, or name another folder of runs")
    runs: list[Run] = []
    with progress("opening run") as tell:
        for path in paths:
            tell(len(runs), len(paths))
            runs.append(Run(path.absolute(), note=note))
    return runs


def _table(answer: Answer, width: int | None) -> str:
    from flightlog.show.document import rows_text

    shown: list[tuple[Any, ...]] = []
    count = 0
    for rows in answer.batches():
        count += len(rows)
        shown += rows[: CliLimits.max_sql_rows - len(shown)]
    if count > len(shown):
        note(f"these are the first {len(shown):,} of {count:,} rows; --format csv gives all")
    elif not count:
        note("no rows")
    return rows_text(answer.columns, shown, width=width, color=width is not None and wants_color())


def _csv(answer: Answer) -> Iterator[str]:
    import csv
    import io
    import json

    from flightlog.show.document import json_value

    def text(rows: list[Any]) -> str:
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows(rows)
        return out.getvalue()

    def cell(value: Any) -> Any:
        found = json_value(value)
        return json.dumps(found) if isinstance(found, list | dict | bool) else found

    yield text([answer.columns])
    for rows in answer.batches():
        yield text([[cell(value) for value in row] for row in rows])


def _json(answer: Answer) -> Iterator[str]:
    import msgspec

    from flightlog.show.document import json_value

    names = answer.columns
    texts = [kind == "JSON" for kind in answer.types]
    lead = "[\n"
    for rows in answer.batches():
        for row in rows:
            values = (
                msgspec.Raw(value.encode()) if is_json and isinstance(value, str) else json_value(value)
                for value, is_json in zip(row, texts, strict=True)
            )
            yield lead + "  " + msgspec.json.encode(dict(zip(names, values, strict=True))).decode()
            lead = ",\n"
    yield "[]\n" if lead == "[\n" else "\n]\n"
