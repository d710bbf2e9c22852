"""Converts runs to Parquet: beside their lines or, with `--history`, in a history folder that any tool can
read.

    flightlog compact latest
    flightlog compact --all
    flightlog compact --all --history /data/flightlog-history

A compacted run has a folder `parquet` with one file per stream, and `parquet/views` with `attempts` and
`spans`. Every command reads these instead of the lines while they are current: while no line was added or
changed. For a large run its report is kept, too (`parquet/report.json`), and shown while no file of the run
has changed. The lines remain the source of truth, and are never changed. Compacting again makes only what is
missing, out of date or damaged. Where `FLIGHTLOG_TELEMETRY_PARQUET=1` is set, a run gets these files when it
has ended: from a process beside the program, or from the first command that reads it.

`parquet/snapshot.json` holds the SHA-256 of each file, and a file is checked before it is read. A file that
is damaged, missing or unreadable is not read: the answer comes from the lines, and a message says so.
`flightlog verify` names such files, and `flightlog compact` makes them again. Files of earlier versions
without a checksum are not read either, and are made again, too. Nothing is written through a link: if
`parquet` or `parquet/views` is one, compacting is refused.

A history has one folder per table, with one file per run:

    /data/history/attempts/project=sir-demo/date=2026-05-20/run-20260520T035200Z-sir-demo-a1b2c3d4.parquet

The tables are those of `flightlog sql` (`runs`, `attempts`, `tasks`, `spans`, `task_events`, `workers`, …).
`project` and `date`, the UTC date of the start, are columns for every reader that knows Hive partitions.
A history may be at an address, `--history s3://bucket/history`, that `flightlog sync` could copy runs to.
There, a file is written again if it is missing or of another size.
Files appear whole. A run that did not change is skipped; one that changed, or whose files in the history are
damaged, is written again. Runs that were removed from the folder of runs stay in the history:

    SELECT project, date, count(*) AS attempts, avg(duration_s) AS mean_s
    FROM read_parquet('/data/flightlog-history/attempts/**', hive_partitioning=true, union_by_name=true)
    GROUP BY ALL ORDER BY date;

Runs that are still running are skipped, with a message.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from flightlog.cli.options import EveryRun, RunRefs, RunsDir, open_named, option, readable_runs_folder
from flightlog.cli.output import note, put
from flightlog.cli.progress import progress
from flightlog.core.errors import UsageError
from flightlog.core.text import first_line, plural

if TYPE_CHECKING:
    from flightlog.store.run import Run
    from flightlog.store.tables.parquet import HistoryFolder

DOING = "making tables"


def compact(
    runs: RunRefs = None,
    every: EveryRun = False,
    history: str | None = option(
        "DIR", "Write to this history, a folder or an address, instead of the run's own folder."
    ),
    runs_dir: RunsDir = None,
) -> None:
    """Convert runs to Parquet, for fast queries.

    Example: flightlog compact --all --history /data/flightlog-history
    """
    from flightlog.store.catalogue import run_paths
    from flightlog.store.run import Run
    from flightlog.store.runs_folder import is_copy, place
    from flightlog.store.tables.connection import path_text
    from flightlog.store.tables.parquet import open_history

    if every and runs:
        raise UsageError("give either --all or runs, not both")
    if every:
        folder = readable_runs_folder(runs_dir)
        chosen = [Run(path.absolute(), note=note) for path in sorted(run_paths(folder))]
        if not chosen:
            note(f"there are no runs in {place(folder)}")
    else:
        chosen = [open_named(name, runs_dir=runs_dir) for name in runs or ["latest"]]
    where = "beside its lines" if history is None else f"in {path_text(history)}"
    with nullcontext() if history is None else open_history(history) as opened:
        for number, run in enumerate(chosen, 1):
            if history is None and is_copy(run.path):
                raise UsageError(
                    f"{run.run_id} is at an address, and runs there are only read: add --history DIR"
                )
            if run.status == "running" and len(chosen) > 1:
                note(f"{run.run_id} is running, and was skipped")
                continue
            with progress("making tables of run") as tell:
                tell(number, len(chosen))
                rows = _made(run, opened)
            tables = f"{plural(sum(rows.values()), 'row')} in {plural(len(rows), 'table')}"
            put(f"{run.run_id}: {tables if rows else 'nothing new'} {where}\n")


def _made(run: Run, history: HistoryFolder | None) -> dict[str, int]:
    """The rows of each table that was written."""
    import duckdb

    from flightlog.analyze.report.report import keep_report
    from flightlog.store.tables.parquet import add_to_history, snapshot_run

    try:
        if history is not None:
            return add_to_history(run, history)
        rows = snapshot_run(run)
        keep_report(run)
    except duckdb.Error as error:
        raise UsageError(f"{run.path} cannot be compacted: {first_line(str(error))}") from error
    return rows
