"""Shows how a metric of a project's runs developed over time, and at which run it changed.

    flightlog trends
    flightlog trends --metric p95:run_simulation --last 200
    flightlog trends --project demo --metric memory:run_simulation --since 2026-05-01
    flightlog trends --format csv > history.csv

The metrics:

| metric | of each run |
|---|---|
| `wall` | wall time |
| `duration:TASK` | mean execution time of the completed tasks of that name |
| `p95:TASK` | the 95th percentile of the same |
| `memory:TASK` | largest resident memory that a task of that name was seen with |
| `memory` | largest resident memory of a sampled process tree |
| `hits` | share of lookups in the cache that hit |
| `cost` | estimated cost |
| `failures` | tasks that failed for good; 1 where the run itself failed and no task did |

A step is a lasting change of the level: at least three runs, and more than noise shows in 97 of 100 histories
without any change. The test uses ranks, so that a few outliers do not matter; a slow drift is called a drift
and not a step. For each step the text names the run and the commit where it began, its size with a confidence
interval, and what differs from the run before. Fewer than ten runs are shown without a verdict, unless four
or more on each side lie far apart.

Two things can look like a step. A drift over fewer than about 150 runs, or one
that is small beside the noise, is often called a step. And where each run resembles the one before, as on a
machine with long busy spells, steps are judged more strictly, as far as that shows; with fewer than about 40
runs it hardly shows, and one history in ten then has a false step. Look at the plot, and at what differs
from the run before.

Only runs that completed count, since others are as short as they happened to be; `failures` counts all that
ended. A plus after a commit means that files had uncommitted changes. Figures of tasks are those in each
run's `summary.json`; for a run that was too large for one when it closed, they are counted from its events,
once. So are costs.

Runs that have not changed are not read again: an index knows them, a hidden file in the folder of runs, or in
the user's cache where that cannot be written. It may be removed at any time. The first time, a long
history or very large runs take a while; a terminal shows the progress.

The JSON holds the points, the levels between steps, and the steps (`flightlog schema trends` is its JSON
Schema); the CSV has one row per run.
"""

from __future__ import annotations

from typing import Literal

import typer

from flightlog.cli.options import RunsDir, option, readable_runs_folder
from flightlog.cli.output import put_result
from flightlog.cli.progress import progress

DOING = "reading runs"


TrendFormat = Literal["text", "json", "csv"]
"""How a trend is written."""


def trends(
    project: str | None = option("P", "Only runs of this project. Default: the project of the latest run"),
    metric: str = option(
        "M",
        "Metric to show: wall, duration:TASK, p95:TASK, memory:TASK, memory, hits, cost or failures.",
        default="wall",
    ),
    last: int | None = option("N", "Only the newest N runs.", min=1),
    since: str | None = option("DATE", "Only runs since this date or time, such as 2026-05-20."),
    format_: TrendFormat = typer.Option("text", "--format", help="Output format."),
    runs_dir: RunsDir = None,
) -> None:
    """Show how a metric developed over runs, and where it jumped.

    Example: flightlog trends --metric duration:run_simulation --last 200
    """
    from flightlog.analyze.history.trends import trends as read_trends
    from flightlog.show.trends import trend_csv, trend_text

    folder = readable_runs_folder(runs_dir)
    with progress("reading run") as tell:
        trend = read_trends(project, metric, last=last, since=since, runs_dir=folder, progress=tell)
    put_result(trend, format_, trend_text, others={"csv": trend_csv})
