"""Runs, results and tables in a notebook, in blocks that are shown as HTML and as text.

A run is the verdict in a line, the counts, what stands out, the task names, and the report to unfold. Small
runs are reported on in full. A run of more than `large_stream_bytes` is shown by the summary that was kept of
it, or by its own counts, at once: its report may take seconds, and is asked for by name.

A table is its first rows and their number. That of a run of more than
`NotebookLimits.max_read_table_bytes` which was not compacted is not read for a display.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from flightlog.analyze.report.report import Report, kept_report
from flightlog.core.text import plural
from flightlog.core.units import format_bytes, format_count, format_duration
from flightlog.notebook.display import STATUS
from flightlog.notebook.limits import NotebookLimits
from flightlog.show.bounded import bounded
from flightlog.show.comparison import WHY, answer_text, comparison_sections
from flightlog.show.document import (
    GAP,
    Bar,
    BarPart,
    Block,
    Folded,
    Item,
    Items,
    Paragraph,
    Section,
    StatusLine,
    TableBlock,
    cell_text,
    rows_text,
)
from flightlog.show.phrases import moment_text
from flightlog.show.report import failures_section, findings_section, report_sections
from flightlog.show.report_sections import names_table
from flightlog.show.terminal import brief, clean, fit, width_of
from flightlog.store.limits import StoreLimits

if TYPE_CHECKING:
    from flightlog.analyze.compare.results import Comparison
    from flightlog.analyze.report.summary import Summary
    from flightlog.record.run import LiveRun
    from flightlog.store.run import Run
    from flightlog.store.tables.query import Table


Display = Sequence[Section | Block]


class CountsOnly(NamedTuple):
    """A large run without a cached summary: only its own counts are known."""

    run: Run


def read_run(
    run: Run | LiveRun, *, large_bytes: int = StoreLimits.large_stream_bytes
) -> Report | Summary | CountsOnly:
    """The display of a run as it is now: while it is recorded, by what has reached its files at most a second
    ago.
    """
    from flightlog.store.run import Run as Opened

    # What was opened an hour ago may have ended since.
    run = Opened(run.path, observer=run.observer if isinstance(run, Opened) else None)
    if run.size_bytes() <= large_bytes:
        from flightlog.analyze.report.report import report_on
        from flightlog.store.earlier_runs import EarlierRuns

        return report_on(run, history=EarlierRuns(run))
    kept = kept_report(run)
    return CountsOnly(run) if kept is None else kept


def run_display(read: Report | Summary | CountsOnly) -> Display:
    """A run: the verdict, how the tasks ended, what stands out, why some failed, the task names."""
    if isinstance(read, CountsOnly):
        return _counted(read.run)
    summary = bounded(read)
    run, tasks = summary.run, summary.tasks
    words = [run.status, run.project]
    if tasks.submitted or tasks.completed:
        words.append(plural(max(tasks.submitted, tasks.completed), "task"))
    words.append(f"{'for' if run.status == 'running' else 'in'} {format_duration(run.duration_s)}")
    if tasks.failed:
        words.append(f"{format_count(tasks.failed)} failed")
    ends = {"completed": tasks.completed, "failed": tasks.failed, "cancelled": tasks.cancelled}
    names = names_table(summary, NotebookLimits.max_listed_names)
    cut = [[brief(cell, NotebookLimits.max_name_chars) for cell in row] for row in names.rows]
    found: list[Section | Block] = [
        StatusLine(words, STATUS.get(run.status, "quiet")),
        *([Items([Item(run.error, style="bad")])] if run.error else []),
        count_bar({**ends, "running": tasks.running, "waiting": tasks.pending}, over=run.status != "running"),
        findings_section(summary) if isinstance(summary, Report) else Section("What stands out"),
        failures_section(summary, NotebookLimits.max_listed_causes),
        Section("Tasks", blocks=[TableBlock(names.head, cut, names.left, names.more)]),
    ]
    if isinstance(summary, Report):
        found.append(Folded("The whole report", report_sections(summary)))
    else:
        found.append(Paragraph("Findings are computed by `flightlog report`.", "aside"))
    where = run.target or run.host or "unknown"
    return [*found, _foot(run.run_id, run.start_time, where)]


def count_bar(counts: dict[str, int], *, over: bool = False, total: int | None = None) -> Bar:
    """How many tasks ended how, by status."""
    parts = []
    for status, number in counts.items():
        at_end = " at the end" if over and status in {"running", "waiting"} else ""
        parts.append(BarPart(f"{format_count(number)} {status}{at_end}", number, STATUS.get(status, "quiet")))
    return Bar(parts, total)


def _counted(run: Run) -> Display:
    """The run's own counts. For a killed run these are the last ones recorded: its streams are not read."""
    info, running = run.info, run.status == "running"
    told = running or info.end_time is not None
    least = "" if told else "at least "
    words = [run.status, info.project]
    tasks = max(info.tasks_submitted, info.tasks_completed)
    if tasks:
        words.append(f"{least}{plural(tasks, 'task')}")
    took = run.ending().duration_s if told else info.duration_s
    if told or took is not None:
        words.append(f"{'for' if running else 'in'} {least}{format_duration(took)}")
    left = max(0, info.tasks_submitted - info.tasks_completed - info.tasks_failed) if told else 0
    parts = [
        BarPart(f"{least}{format_count(info.tasks_completed)} completed", info.tasks_completed, "good"),
        BarPart(f"{least}{format_count(info.tasks_failed)} failed", info.tasks_failed, "bad"),
        BarPart(f"{format_count(left)} cancelled, running or waiting", left, "quiet"),
    ]
    size = format_bytes(run.size_bytes())
    return [
        StatusLine(words, STATUS.get(run.status, "quiet")),
        Bar(parts),
        Paragraph(f"{size} were recorded: `flightlog report` goes through all of it.", "aside"),
        _foot(run.run_id, info.start_time, info.host or "unknown"),
    ]


def _foot(run_id: str, start_time: str | None, where: str) -> Paragraph:
    """Which run it is."""
    started = moment_text(start_time)
    return Paragraph(f"{brief(run_id, 120)} · started {started} · on {brief(where, 80)}", "aside")


def comparison_display(comparison: Comparison) -> Display:
    """What changed, in a sentence; the runs, why the wall time differs, the durations; the rest unfolds."""
    comparison = bounded(comparison)
    sections = comparison_sections(comparison, ())
    first = ("Runs", WHY, "Durations")
    return [
        Paragraph(answer_text(comparison), "headline"),
        *(section for section in sections if section.title in first),
        Folded("The whole comparison", [section for section in sections if section.title not in first]),
    ]


RUN = "run_id"
_TABLE = re.compile(r"FROM \w+")
"""A table itself, and not a question."""


class FirstRows(NamedTuple):
    """The first rows of a table, without empty columns."""

    columns: list[str]
    rows: list[list[Any]]
    notes: list[str]
    """The number of rows, and what is left out."""


class TableNotRead(NamedTuple):
    """A table too large for a display."""

    query: str
    size: int


def read_table(
    answer: Table, *, large_bytes: int = NotebookLimits.max_read_table_bytes
) -> FirstRows | TableNotRead:
    """The first rows, and the count of all."""
    lines = answer.lines_bytes()
    if lines > large_bytes:
        return TableNotRead(answer.query, lines)
    found = answer.peek(NotebookLimits.max_table_rows)
    shown = [n for n, _ in enumerate(found.columns) if any(row[n] is not None for row in found.rows)]
    empty = len(found.columns) - len(shown)
    if _TABLE.fullmatch(answer.query) and len({run.run_id for run in answer.runs}) == 1:
        shown = [n for n in shown if found.columns[n] != RUN]  # the same in every row, unasked for
    notes = [plural(found.total, "row")]
    if found.total > len(found.rows):
        notes[0] += f", of which the first {format_count(len(found.rows))}"
    if empty and found.rows:
        notes.append(f"{plural(empty, 'column')} without a value in these left out")
    rows = [[row[n] for n in shown] for row in found.rows]
    return FirstRows([found.columns[n] for n in shown], rows, notes)


def table_display(read: FirstRows | TableNotRead) -> list[Block]:
    """The first rows, each cell cut."""
    if isinstance(read, TableNotRead):
        size = format_bytes(read.size)
        return [
            Paragraph(f"`{read.query[:300]}`"),
            Paragraph(
                f"{size} of lines stand behind it, which a display does not go through: `.df()` and "
                "`.rows()` do, and after `flightlog compact` it takes a moment.",
                "aside",
            ),
        ]
    head = read.columns[: NotebookLimits.max_table_columns]
    left = [
        name for n, name in enumerate(head) if any(isinstance(row[n], str | datetime) for row in read.rows)
    ]
    rows = [[_cell(value) for value in row[: NotebookLimits.max_table_columns]] for row in read.rows]
    notes = "; ".join([*read.notes, *_wide(len(read.columns) - NotebookLimits.max_table_columns)])
    return [
        *([TableBlock(head, rows, left)] if head else []),
        Paragraph(f"{notes} · `.df()` returns all rows as a pandas DataFrame", "aside"),
    ]


def table_plain(read: FirstRows | TableNotRead, *, width: int) -> str:
    """The first rows in as many columns as fit, each cell cut."""
    if isinstance(read, TableNotRead):
        query, size = clean(read.query[:300]), format_bytes(read.size)
        return f"{query}\n{size} of lines stand behind it: .df() and .rows() go through them."
    rows = [[_short(value) for value in row] for row in read.rows]
    heads = [fit(clean(name), NotebookLimits.max_text_cell_chars) for name in read.columns]
    texts = [[cell_text(value) for value in row] for row in rows]
    widths = [max(map(width_of, column)) + len(GAP) for column in zip(heads, *texts, strict=True)]
    fits = max(sum(end <= width + len(GAP) for end in accumulate(widths)), 1)
    notes = [*read.notes, *_wide(len(heads) - fits)]
    body = rows_text(heads[:fits], [row[:fits] for row in rows]) if heads else ""
    return f"{body}{'; '.join(notes)}"


def _wide(columns: int) -> list[str]:
    return [f"{plural(columns, 'more column')} to the right"] if columns > 0 else []


def _short(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | datetime):
        return value
    most = NotebookLimits.max_text_cell_chars
    return fit(cell_text(value[: 4 * most] if isinstance(value, str) else value), most)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="milliseconds")
    return str(value)[: 4 * NotebookLimits.max_cell_chars]
