"""Converts a run for other programs: to a trace, tables or an RO-Crate, or sends it to a server.

    flightlog export --to perfetto                            # the run that started last, for Perfetto
    flightlog export latest --to csv                          # a folder with one file per table
    flightlog export latest --to csv --table attempts -o -    # one table, to standard output
    flightlog export latest --to parquet --table attempts --table spans --output tables
    flightlog export latest --to otlp --endpoint http://localhost:4318 --follow

| `--to` | result |
|---|---|
| `perfetto` | a trace for ui.perfetto.dev: workers, tasks, spans, counters, dependencies |
| `csv`, `parquet` | one file per table of `flightlog sql`, in a folder; with one `--table`, that file |
| `json` | one document with the tables as lists of objects |
| `otlp` | traces, metrics and logs, sent to an OpenTelemetry collector; extra `otel` |
| `otlp-json` | the same in a file |
| `prometheus` | a text file for node_exporter's textfile collector; extra `prometheus` |
| `ro-crate` | a folder that is a Workflow Run RO-Crate |
| `modelops` | `summary.json` and `spans.jsonl` in the shape of ModelOps |

Other distributions can add exporters, by the entry point `flightlog.exporters`; `--help` lists what is
installed.

Without `--output`, a file or folder named after the run is written into the working directory; where
`--output` is a folder that exists, a single file goes into it. Nothing is replaced without `--force`, and
then only files of the same name. Files appear whole or not at all. `-o -` is standard output, for formats
that are one file.

Any run can be exported: running, closed, killed or half-copied. A message says what is missing. The run is
never changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from flightlog.cli.options import AnyFormat, RunId, RunRef, RunsDir, flag, open_named, option
from flightlog.cli.output import check_file, note, put
from flightlog.cli.progress import end_progress, progress
from flightlog.core.errors import FlightlogError, UsageError
from flightlog.core.settings import expanded
from flightlog.export.base import ExportOptions, ending_of, exporter_names, extras_of, find_exporter

if TYPE_CHECKING:
    from flightlog.export.base import Exported, Exporter, ExportOptions
    from flightlog.store.run import Run

DOING = "reading the run"

STDOUT = Path("-")


def complete_exporter(incomplete: str) -> list[tuple[str, str]]:
    """Exporters for the shell, each with what it gives as far as it can be loaded here."""
    found = []
    for name in exporter_names():
        if name.startswith(incomplete):
            try:
                found.append((name, find_exporter(name).what))
            except FlightlogError as error:
                found.append((name, str(error)))
    return found


def complete_table(ctx: typer.Context, incomplete: str) -> list[str]:
    """The tables of the run that is named, for the shell."""
    from flightlog.store.tables.run_tables import table_names

    run, run_id, runs_dir = map(ctx.params.get, ("run", "run_id", "runs_dir"))
    try:
        tables = table_names([open_named(run, run_id, runs_dir=runs_dir)])
    except FlightlogError:
        return []
    return [name for name in tables if name.startswith(incomplete)]


def export(
    run: RunRef = None,
    to: str | None = option(
        "NAME", f"Target format: {', '.join(exporter_names())}.", autocompletion=complete_exporter
    ),
    run_id: RunId = None,
    output: Path | None = option(
        "PATH",
        "File or folder to write; - is standard output. Default: named after the run, in the current folder",
        "--output",
        "-o",
    ),
    force: bool = flag("--force", "Replace what already exists there."),
    table: list[str] | None = option(
        "T",
        "Only this table. May be given several times. For csv, json and parquet.",
        autocompletion=complete_table,
    ),
    endpoint: str | None = option(
        "URL", "Address of the server. Default: OTEL_EXPORTER_OTLP_ENDPOINT, else http://localhost:4318"
    ),
    follow: bool = flag("--follow", "Keep exporting while the run is running, and stop when it ends."),
    again: bool = flag("--again", "Send again what the server has already accepted. For otlp."),
    runs_dir: RunsDir = None,
    format_: AnyFormat = "text",
) -> None:
    """Convert a run to traces, tables, metrics or an RO-Crate.

    Example: flightlog export latest --to perfetto
    """
    if to is None:
        raise UsageError(f"name the format: --to {' or '.join(exporter_names())}")
    exporter = find_exporter(to)
    opened = open_named(run, run_id, runs_dir=runs_dir)
    options = ExportOptions(tables=tuple(table or ()), endpoint=endpoint, follow=follow, again=again)
    ending = ending_of(exporter, options)
    if output == STDOUT:
        _to_standard_output(exporter, opened, ending, options)
        return
    target = _target(opened, exporter, output, ending, force)
    exported = _export(exporter, opened, target, options)
    size = None if target is None else _size_of(target)
    from flightlog.show.outcomes import exported_json, exported_text

    if format_ == "json":
        put(exported_json(exported, opened.run_id, size_bytes=size))
    else:
        put(exported_text(exported, written=target is not None, size_bytes=size))


def _export(exporter: Exporter, run: Run, target: Path | None, options: ExportOptions) -> Exported:
    import msgspec

    with progress(f"exporting to {exporter.name}:") as tell, extras_of(exporter.name):
        return exporter.export(run, target, msgspec.structs.replace(options, progress=tell))


def _target(
    run: Run, exporter: Exporter, output: Path | None, ending: str | None, force: bool
) -> Path | None:
    """Where it will be written; a `UsageError` now, before any work, where that cannot be."""
    if ending is None:
        if output is not None:
            raise UsageError(f"--to {exporter.name} writes no file here: leave --output out")
        return None
    name = run.run_id.replace("/", "-")
    default = f"{name}{ending}" if ending else f"{name}-{exporter.name}"
    target = Path(default) if output is None else expanded(output)
    if ending and target.is_dir():
        target = target / default
    check_file(target)
    if target.resolve().is_relative_to(run.path.resolve()):
        raise UsageError(f"{target} is within the run, which is never changed: name another place")
    if target.exists() and not target.is_dir() and not target.is_file():
        raise UsageError(f"{target} is no file, and is never replaced: name another place, or -o - to print")
    if target.is_dir() != (not ending) and target.exists():
        is_, wanted = ("a folder", "a file") if ending else ("a file", "a folder")
        raise UsageError(f"{target} is {is_}, and --to {exporter.name} writes {wanted}: name another place")
    if not force and (any(target.iterdir()) if target.is_dir() else target.exists()):
        raise UsageError(f"{target} already exists: name another with --output, or replace it with --force")
    return target


def _to_standard_output(exporter: Exporter, run: Run, ending: str | None, options: ExportOptions) -> None:
    """Write the one file aside and then to standard output, so that an error leaves nothing half printed."""
    import shutil
    import sys
    from tempfile import TemporaryDirectory

    if not ending:
        hint = "; name one --table" if ending == "" and exporter.name in {"csv", "parquet"} else ""
        raise UsageError(f"--to {exporter.name} is no single file, and does not go to standard output{hint}")
    if sys.stdout.isatty() and ending.endswith((".gz", ".parquet")):
        raise UsageError(f"{ending} cannot be printed: name a file with --output")
    with TemporaryDirectory(prefix="flightlog-") as folder:
        made = Path(folder) / f"out{ending}"
        exported = _export(exporter, run, made, options)
        end_progress()
        with made.open("rb") as source:
            shutil.copyfileobj(source, sys.stdout.buffer, 1 << 20)
        sys.stdout.flush()
    for said in exported.notes:
        note(said)


def _size_of(target: Path) -> int:
    files = target.rglob("*") if target.is_dir() else [target]
    return sum(file.stat().st_size for file in files if file.is_file())
