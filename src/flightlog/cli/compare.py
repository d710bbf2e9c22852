"""Shows what changed between two runs, or two groups of runs, and whether it is more than noise.

    flightlog compare                                        # the last two runs of the latest run's project
    flightlog compare a1b2c3d4 latest
    flightlog compare demo:last5 demo:latest                 # the five before the latest, and the latest
    flightlog compare run-a,run-b,run-c run-d,run-e
    flightlog compare demo:last5 latest --fail-on "p95>10%" "failures>0" "duration:simulate>10%"
    flightlog compare A B --format md --output comparison.md
    flightlog compare A B --format html --open               # a page with both timelines, in the browser

A is before, B is after. Each is a run (`latest`, an id, a unique prefix of one, a path), `PROJECT:latest`,
`PROJECT:last5`, or several of these with commas. The last five of a project before B's runs do not include
B's own. Without B, it is the latest run of A's project: `flightlog compare demo:last5` compares it with the
five runs before it.

## What is compared

Completed tasks are matched by name and, where at least half of them have a partner with the same arguments on
the other side, by arguments: the spread between arguments then drops out. Tasks that found all their results
in a cache are compared among themselves, and listed separately as `(cached)`. A task that was called with
other arguments (fewer than half of the sets are on both sides) is compared by its name alone, and the
comparison says so wherever it shows its ratio: it may have had other work to do. Three ratios, B to A:
`typical` (the mean of logarithms, with outliers beyond two standard deviations drawn in), `mean`, and `p95`
(of 40 tasks and more). Spans are compared by name, those of 1% of the wall time and more.

The intervals are 95 % CIs. They come from a bootstrap over blocks of tasks next to each other in time, so
that a busy minute counts as one event, however many tasks it slowed. Variation between whole runs is added:
as measured where a side has several runs, and at least 1%. A name is called `slower` or `faster` if its
change is 3% at least and stands out among all names (Benjamini and Hochberg, 4%): where nothing changed, one
comparison in twenty at most calls anything a change. `inconclusive` means that the interval reaches beyond a
factor of 1.3. The same runs give the same answer.

The difference of the wall times is explained by shares that add up: wall time is worker time over the workers
there were, and each part of worker time (tasks by number and by duration, what caches spared, retries,
scheduling overhead, idle, starting) counts by the mean number of workers of both sides. Figures of a group
are means over its runs, peaks the highest.

## Conditions

With `--fail-on`, the exit code is 1 if a condition holds, and a message names the condition:

| condition | fails if |
|---|---|
| `wall>5%` `worker>1h` | wall time, or worker time, rose by more |
| `duration>10%` `mean>10%` `p95>10%` | that of any task did; `duration:TASK>10%` of one task or span |
| `memory>20%` `cpu>10%` `read>1GB` `write>1GB` | peak memory, CPU time or I/O did; `memory:TASK>20%` |
| `failures>0` `retries>10` | more tasks failed or runs did not complete; more retried attempts |
| `hits<-5%` | the share of cache lookups that hit fell by more than 5 points |
| `cost>1.5` `cost>10%` | the cost rose by more |

With `%` a limit is a share of A, else a difference: `30s`, `1m 30s`, `500MB`, `3`. A condition on durations
fails only if the change stands out from noise and exceeds the limit; one on figures that a run has once
(wall, cost) takes noise into account where the sides have four runs together. With `--strict` every change
counts. A condition on an unknown figure neither fails nor passes, and a message says so.

`--format html` makes one page with both timelines on one scale, the changes with their intervals, and all
tables. Without `--output` it goes into a pipe; in a terminal it is written to `flightlog-comparison.html` in
the current folder, and with `--open` to a temporary file that the browser shows. See [the HTML
report](../html-report.md).

The JSON holds all figures: sides, `wall_s`, `explained`, `durations`, what appeared and vanished,
`resources`, `failures`, `cache`, `cost`, `environment`, and with `--fail-on` the `conditions`; `flightlog
schema compare` is its JSON Schema. In Python the same is `flightlog.compare(a, b)`.
"""

from __future__ import annotations

import os
from functools import partial

import typer

from flightlog.cli import options
from flightlog.cli.options import flag, option
from flightlog.cli.output import OpenPage, check_page, note, put_page, put_result
from flightlog.core.errors import UsageError

DOING = "comparing runs"


def compare(
    runs: list[str] | None = options.run_argument(
        "Runs before and after the change, or groups of runs such as demo:last5. Default: the last two "
        "runs of a project",
        "A B",
    ),
    fail_on: list[str] | None = option(
        "C", "Exit with code 1 if this condition holds, such as 'p95>10%'. Several conditions may follow."
    ),
    strict: bool = flag("--strict", "Let conditions also hold for changes within noise."),
    format_: options.AnyPageFormat = "text",
    output: options.OutputFile = None,
    open_: OpenPage = False,
    runs_dir: options.RunsDir = None,
) -> None:
    """Show what changed between two runs or groups of runs.

    Example: flightlog compare demo:last5 latest --fail-on "p95>10%" "failures>0"
    """
    from flightlog.analyze.compare.thresholds import check, parse_thresholds

    # `--fail-on` may be followed by several conditions: Typer takes the others for runs.
    named = [run for run in runs or [] if not _is_condition(run)]
    conditions = [*(fail_on or []), *filter(_is_condition, runs or [])]
    if conditions and not fail_on:
        raise UsageError(f"{conditions[0]!r} is a condition: write it after --fail-on")
    if len(named) > 2:
        raise UsageError(
            f"two sides are compared, and these are {len(named)}: {', '.join(named)}; join runs of one "
            "side with commas"
        )
    thresholds = parse_thresholds(conditions)
    check_page(format_, output, open_=open_)
    folder = options.readable_runs_folder(runs_dir)

    before, after = [*named, None, None][:2]
    if format_ == "html":
        from flightlog.show.html.compare_page import compare_html

        page, outcomes = compare_html(before, after, runs_dir=folder, thresholds=thresholds, strict=strict)
        put_page(page, "flightlog-comparison", output=output, open_=open_)
    else:
        from flightlog.analyze.compare.compare import compare as compare_sides
        from flightlog.analyze.compare.compare import comparison_bytes
        from flightlog.show.comparison import comparison_markdown, comparison_text

        comparison = compare_sides(before, after, runs_dir=folder)
        outcomes = check(comparison, thresholds, strict=strict)
        encode = partial(comparison_bytes, outcomes=outcomes if thresholds else None)
        others = {"md": partial(comparison_markdown, outcomes=outcomes)}
        text = partial(comparison_text, outcomes=outcomes)
        put_result(comparison, format_, text, encode=encode, others=others, output=output)
    for outcome in outcomes:
        if outcome.state != "passed":
            note(f"{outcome.state}: {outcome.condition}: {'; '.join(outcome.reasons)}")
    if any(outcome.state == "failed" for outcome in outcomes):
        raise typer.Exit(1)


def _is_condition(text: str) -> bool:
    """Whether it is no run: folders of runs may have any name."""
    return bool(set(text) & set("<>")) and not any(
        os.path.exists(os.path.expanduser(path))  # noqa: PTH110, PTH111 - Path raises for "~who>1"
        for path in (text, *text.split(","))
    )
