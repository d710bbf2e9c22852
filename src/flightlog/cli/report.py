"""Shows what happened in a run: what set the wall time and what stands out first, then tasks, workers, cache,
cost, time, failures and resources.

    flightlog report                                              # the run that started last
    flightlog report run-20260520T035200Z-demo-a1b2c3d4
    flightlog report --tasks --workers                            # these sections in full, and no others
    flightlog report --failures                                   # every cause, with arguments and attempts
    flightlog report --compare run-abc123 run-def456              # what `flightlog compare` shows
    flightlog report --latest --format json --output report.json
    flightlog report --format md >> $GITHUB_STEP_SUMMARY
    flightlog report --format html --open                         # a page with figures, in the browser
    flightlog report --format html --output report.html
    flightlog report --rates rates.yaml                           # what it cost, at these rates

Any run can be reported: one that is running, closed, killed or half-copied. The report of a running one is a
snapshot, made from a temporary copy so that its figures agree; where the copy would take more than a quarter
of the free space, the files are read as they grow, and a message says so. What is in flight is listed with
its start and the usual duration in this run: a task that has taken longer than all that ended, and than three
times their p95, may be stuck. Where fewer than five of a name have ended in this run, the last 20 completed
runs of the project in the same folder are used instead. The last section says how complete the recording is
and what it cost.

The report is always computed from the events, never taken from `summary.json`, so it is also right for a run
that was changed; `flightlog verify` checks `summary.json` against the lines. For a large compacted run, the
report computed by `flightlog compact` is used until a file of the run changes. The JSON holds all that the
text says, and more; `summary.json` has some of its numbers under the same names. `flightlog schema report` is
its JSON Schema.

`--format html` makes one page with the verdict, the timeline and all figures, which needs no network and can
be mailed; see [the HTML report](../html-report.md). Without `--output` it goes into a pipe like every other
format; in a terminal it is written to `flightlog-report-RUN.html` in the current folder, and with `--open` to
a temporary file that the browser shows.

In a terminal the report draws small plots after what stands out: concurrency, CPU and memory of the
machines over the time of the run, and how long tasks took. `--plots` draws them into a pipe or a file as
well, `--no-plots` nowhere.

**Where the time went** splits the time of all workers, from launch to removal, so that every moment of
every worker counts once. *Completed work*, *failed work* (failed, retried and cancelled attempts) and *in
flight* are time in which a worker executed such attempts; where several run side by side on one worker, the
first of these that applies counts. *Transfer* is time in spans named `transfer`, `serialize` or `deserialize`
directly inside a task, and unknown where there are none. *Scheduling overhead* is time a worker was free
while a task that it could have run was queued. *Worker start-up* is from launch to ready. *Idle* is the
rest: nothing was queued. Without workers the run's wall time is split. Utilization is the time workers
executed tasks, failed ones included, over the time they were up, without start-up. Efficiency is the
execution time of completed tasks over the same. Durations are execution alone, without queueing. Quantiles
interpolate linearly, as pandas does.

**Estimated cost** is the rates of the manifest times the lifetime of the workers, and what that time was
spent on: *useful* work, attempts that were *retried* or *failed*, *idle* workers and *worker start-up*.
`--rates FILE` charges other rates, for a run that has none or to see what another price would come to;
nothing is written into the run. See [cost](../cost.md).

In Python the same is `flightlog.report(run)`, whose fields are those of the JSON; its `text()` is this text.

The **critical path** is the chain from the run's start to its end in which each segment waited for the one
before: for the tasks it depends on, for its worker to be free or started, or for the program to submit it.
Its *max. saving* is an upper bound: the run is replayed on the same workers with that task name
taking no time, and another chain then sets the wall time. It is computed for runs of up to 50,000
attempts. **What set the wall time** begins with the verdict:
what failed, then what limited the run most, how much of the time that is, and what to try. Below 10 % of
the time it names no limit. The text, Markdown and the page have the same words;
`verdict` in the JSON has them in parts.

What the verdict can distinguish, because it is measured: each task's time on a CPU, waiting for one, and
blocked (`thread_cpu_s`, `cpu_wait_s`, the rest of `duration_s`); what other programs used of the machine;
how long a thread waits for Python's interpreter lock (`interpreter_wait_s`); what memory a worker has before
each task (`rss_before_bytes`); and which task needs which. Where the kernel hides one of these, nothing is
concluded from it.

A finding is reported from 3 % of the worker time on, and always where memory of a host or a device ran out;
its numbers are in the JSON. Findings may overlap, and do not add up.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from flightlog.cli import options
from flightlog.cli.options import flag, option
from flightlog.cli.output import (
    OpenPage,
    check_page,
    columns,
    note,
    put_or_write,
    put_page,
    wants_color,
    width,
)
from flightlog.core.errors import UsageError
from flightlog.show.limits import TextLimits

if TYPE_CHECKING:
    from flightlog.events import CostRates
    from flightlog.store.run import Run

DOING = "reading the run"


def report(
    run: options.RunRef = None,
    latest: bool = typer.Option(
        False, "--latest", "--last", help="The run that started last. This is the default."
    ),
    run_id: options.RunId = None,
    runs_dir: options.RunsDir = None,
    tasks: bool = flag("--tasks", "Show all task names, and the slowest tasks of each."),
    spans: bool = flag("--spans", "Show all spans by name, as a tree."),
    workers: bool = flag("--workers", "Show all workers, and how they spent their time."),
    failures: bool = flag("--failures", "Show all failures by cause, with arguments, workers and attempts."),
    compare: tuple[str, str] | None = option("A B", "Compare two runs instead. See flightlog compare."),
    rates: options.RatesFile = None,
    format_: options.AnyPageFormat = "text",
    output: options.OutputFile = None,
    open_: OpenPage = False,
    plots: bool | None = flag(
        "--plots/--no-plots",
        "Draw small plots in the text. Default: only if standard output is a terminal",
        show_default=False,
        default=None,
    ),
) -> None:
    """Show what happened in a run.

    Example: flightlog report --latest --format json --output report.json
    """
    named = (run, run_id, "latest" if latest else None)
    asked = {"tasks": tasks, "spans": spans, "workers": workers, "failures": failures}
    parts = [part for part, wanted in asked.items() if wanted]
    check_page(format_, output, open_=open_)
    if compare is not None:
        if any(named) or parts:
            raise UsageError("--compare names both runs: leave out other runs and sections")
        if rates is not None:
            raise UsageError("--rates goes with the report of one run: leave out --compare")
        from flightlog.cli.compare import compare as compare_runs

        compare_runs(list(compare), [], False, format_, output, open_, runs_dir)
        return
    if plots and (parts or format_ != "text"):
        raise UsageError("--plots goes with the whole report as text")
    if parts and format_ in {"json", "html"}:
        what = "JSON" if format_ == "json" else "page"
        raise UsageError(f"the {what} holds all sections: leave out --{parts[0]}")
    from flightlog.store.earlier_runs import EarlierRuns
    from flightlog.store.read.snapshot import held_still

    opened = options.open_named(*named, runs_dir=runs_dir)
    charged = options.rates_in(rates, target=opened.info.target, provider=opened.info.provider, run=opened)
    if format_ == "html":
        from flightlog.show.html.report_page import report_html

        with held_still(opened, note=note) as still:
            page = report_html(still, history=EarlierRuns(opened), rates=charged)
        put_page(page, f"flightlog-report-{opened.run_id}", output=output, open_=open_)
    else:
        drawn = columns() is not None and output is None if plots is None else plots
        with held_still(opened, note=note) as still:
            text = _report_in(format_, still, charged, parts, whole=output is not None, plots=drawn)
        put_or_write(text, output, format_)
    if opened.status != "running":
        _note_copies(opened.path)


def _report_in(
    format_: options.PageFormat,
    run: Run,
    rates: CostRates | None,
    parts: list[str],
    *,
    whole: bool,
    plots: bool,
) -> str:
    """The report as text, JSON or Markdown; `whole` is not cut to the terminal's width, nor painted."""
    from flightlog.analyze.charts.report_with_charts import overview_of
    from flightlog.analyze.report.report import report_and, report_bytes, report_on
    from flightlog.show.bounded import bounded
    from flightlog.show.plot import report_plots
    from flightlog.show.report import report_markdown, report_text
    from flightlog.store.earlier_runs import EarlierRuns

    history, wide, drawn = EarlierRuns(run), TextLimits.default_width if whole else width(), list[str]()
    if plots and format_ == "text" and not parts:
        found, glance = report_and(run, overview_of, details=False, history=history, rates=rates)
        found = bounded(found)
        drawn = report_plots(found, glance, width=wide)
    else:
        details = bool(parts) or format_ == "json"
        found = report_on(run, details=details, history=history, rates=rates)
        if format_ == "json":
            return report_bytes(found).decode()
        found = bounded(found)
    if format_ == "md":
        return report_markdown(found, parts=parts)
    return report_text(found, width=wide, color=wants_color() and not whole, parts=parts, plots=drawn)


def _note_copies(run: Path) -> None:
    """Say where the run should have been copied to and was not, at least not wholly."""
    from flightlog.show.outcomes import incomplete_copy_text
    from flightlog.store.remote.state import unfinished_copies

    for copy in unfinished_copies(run):
        note(incomplete_copy_text(copy))
