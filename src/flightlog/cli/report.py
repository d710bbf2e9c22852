"""Shows what happened in a run: tasks, workers, cache, cost, then failures, time and resources.

    flightlog report                                              # the run that started last
    flightlog report run-20260520T035200Z-demo-a1b2c3d4
    flightlog report --latest --format json --output report.json

Any run can be reported: one that is running, closed, killed or half-copied. What was in flight is listed with the
time since when, and the last section says how complete the recording is and what it cost.

The report is always computed from the events, never taken from `summary.json`, so it is right for a run that was
changed, too; `flightlog verify` says whether the two agree. The JSON is what `summary.json` holds, and
`flightlog schema report` is its JSON Schema.

Utilization is the time workers were held by tasks, failed ones included, over the time they were up. Efficiency is
the execution time of completed tasks over the time workers were up. Durations are execution alone; queueing is
apart. Quantiles interpolate linearly, as pandas does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flightlog.cli.options import AnyFormat, Format, RunId, RunRef, RunsDir
from flightlog.cli.output import check_file, put, wants_color, width, write_file
from flightlog.errors import UsageError


def report(
    run: RunRef = None,
    latest: Annotated[
        bool, typer.Option("--latest", "--last", help="The run that started last; the default.")
    ] = False,
    run_id: RunId = None,
    runs_dir: RunsDir = None,
    format_: AnyFormat = Format.text,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="F", help="Write to this file, and nothing to standard output."
        ),
    ] = None,
) -> None:
    """Show what happened in a run.

    Example: flightlog report --latest --format json --output report.json
    """
    named = {name for name in (run, run_id, "latest" if latest else None) if name is not None}
    if len(named) > 1:
        raise UsageError(f"name one run, not {len(named)}: {', '.join(sorted(named))}")
    if output is not None:
        check_file(output)

    from flightlog.analyze.summary import summarize, summary_bytes
    from flightlog.show.report import report_text
    from flightlog.store.run import open_run

    summary = summarize(open_run(named.pop() if named else "latest", runs_dir=runs_dir))
    if format_ is Format.json:
        text = summary_bytes(summary).decode()
    elif output is None:
        text = report_text(summary, width=width(), color=wants_color())
    else:
        text = report_text(summary)
    if output is None:
        put(text)
    else:
        write_file(output, text)
