"""A run at a moment, as text: the lines at the head of the live view, one whole frame, and all that is known
of one row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from flightlog.session.eta import Eta
from flightlog.session.progress import eta_text
from flightlog.show.live_tables import Pane, arranged, brief, panes, widths
from flightlog.show.phrases import count_text, moment_text, money_text
from flightlog.show.small_plots import levels_line, spread, summed, unit_label
from flightlog.show.table import GAP
from flightlog.show.terminal import Ink, clean, cut_middle, fit, pad, width_of, wrap
from flightlog.units import format_bytes, format_count, format_duration, format_percent

if TYPE_CHECKING:
    from flightlog.analyze.drawn.results import Chart
    from flightlog.analyze.live.results import LiveState, Progress

BAR, SPARK = (12, 20), (8, 12)
"""Columns of the progress bar, and of each of the lines that show how something went, in a narrow and in a
wide terminal."""
WIDE, WHOLE = 96, 1_000
NAME = 8
"""The last digits of a run's id, which name it where there is no room for more."""
ROWS = 10
"""Of each table in a frame that is printed."""
PROBLEMS = 3
LINES, LINE = 400, 2_000
"""Of a text that is opened: so many lines, each of so many characters at most."""


def head_lines(state: LiveState, *, width: int, ascii_only: bool = False, remark: str = "") -> list[str]:
    """Which run, how far it is, and how busy; then what is wrong, if anything is. No line is wider than
    `width`.

    What does not fit is left out, the least important first. `remark` stands behind the status, such as that
    the view is paused.
    """
    took = format_duration(state.elapsed_s)
    parts = [
        brief(state.run_id, 80),
        brief(state.status, 20),
        took if state.elapsed_s is not None else "",
        remark,
    ]
    if state.host:
        parts.append(f"on {brief(state.host, 40)}")
    if state.cost and state.currency:
        parts.append(money_text(state.cost, state.currency))
    if state.cache_lookups:
        parts.append(f"cache {format_percent((state.cache_hits or 0) / state.cache_lookups)} hits")
    between = " - " if ascii_only else " · "
    room = width - width_of(between) - width_of(parts[1])
    parts[0] = cut_middle(
        parts[0], max(room, NAME), NAME
    )  # the status stands beside it, however narrow it is
    lines = [
        _as_many(parts, between, width),
        _how_far(state, width, ascii_only),
    ]
    busy = _as_many(_busy_parts(state, SPARK[width >= WIDE], ascii_only), "  ", width)
    lines += [busy] if busy else []
    if state.error:
        lines.append(f"! {brief(state.error)}")
    problems = [one for one in state.problems if state.reading is None or not one.startswith("still reading")]
    lines += [f"! {brief(problem)}" for problem in problems[:PROBLEMS]]
    if len(problems) > PROBLEMS:
        lines.append(f"! … and {count_text(len(problems) - PROBLEMS, 'more problem')}")
    return [fit(line, width) for line in lines]


def _as_many(parts: Sequence[str], between: str, width: int) -> str:
    """As many of the parts on one line as there is room for; the first always."""
    said = [part for part in parts if part]
    line = said[0] if said else ""
    for part in said[1:]:
        if width_of(line) + len(between) + width_of(part) <= width:
            line += between + part
    return line


def _how_far(state: LiveState, width: int, ascii_only: bool) -> str:
    if state.reading is not None:  # shares of what is known so far would say nothing of the run
        bar = _bar(state.reading, BAR[width >= WIDE], ascii_only)
        return (
            f"{bar} {format_percent(state.reading)} of the run read: "
            f"{count_text(state.progress.submitted, 'task')} so far"
        )
    if state.progress.done is None and (state.spans_all or state.open_spans):
        return f"{count_text(state.spans_all, 'span')} ended, {format_count(len(state.open_spans))} open"
    return progress_line(state.progress, width, ascii_only)


def progress_line(progress: Progress, width: int, ascii_only: bool = False) -> str:
    """A bar with the counts in words, what matters most first, and how long it still takes where that is
    known.
    """
    if progress.done is None:
        return "no task has been submitted"
    columns, dot = BAR[width >= WIDE], " - " if ascii_only else " · "
    ended = progress.completed + progress.failed + progress.cancelled
    known = max(progress.submitted, ended + progress.running)  # submissions may not be recorded
    parts = [f"{format_count(ended)} of {format_count(known)} ({format_percent(progress.done)})"]
    if progress.failed:
        parts.append(f"{format_count(progress.failed)} failed")
    if progress.left_s is not None:
        low, high = (
            value if value is not None else progress.left_s
            for value in (progress.left_low_s, progress.left_high_s)
        )
        eta = Eta(expected=progress.left_s, low=low, high=high, at_least=progress.left_at_least)
        parts.append(eta_text(eta))
    for number, word in (
        (progress.running, "running"),
        (progress.waiting, "waiting"),
        (progress.cancelled, "cancelled"),
        (progress.retried, "retried"),
    ):
        if number:
            parts.append(f"{format_count(number)} {word}")
    if progress.per_s:
        rate = f"{progress.per_s:.3g}" if progress.per_s < 1000 else format_count(round(progress.per_s))
        parts.append(f"{rate} tasks/s")
    return f"{_bar(progress.done, columns, ascii_only)} {_as_many(parts, dot, width - columns - 3)}"


def _bar(share: float, columns: int, ascii_only: bool) -> str:
    full = round(min(max(share, 0.0), 1.0) * columns)
    signs = ("#", ".") if ascii_only else ("█", "░")
    return f"[{signs[0] * full}{signs[1] * (columns - full)}]"


def _busy_parts(state: LiveState, columns: int, ascii_only: bool) -> list[str]:
    charts: list[tuple[str, Chart | None]] = [
        ("at once", state.concurrency),
        ("CPU", state.cpu),
        ("memory", state.memory),
        ("GPU memory", state.device_memory),
    ]
    parts = []
    for title, chart in charts:
        found = latest_of(chart, only="running" if title == "at once" else None)
        if found is not None:
            values, words = found
            line = levels_line([value or 0.0 for value in spread(values, columns)], ascii_only=ascii_only)
            parts.append(f"{title} {line.lstrip()} {words}")
    return parts


def latest_of(
    chart: Chart | None, *, only: str | None = None, cells: int = 60
) -> tuple[list[float | None], str] | None:
    """A chart's lines added up, or `only` the one with this label, and the last value in words. None where
    all is unknown.
    """
    if chart is None:
        return None
    lines = [series for series in chart.series if only in {None, series.label}]
    values = summed(msgspec.structs.replace(chart, series=lines), cells)
    last = next((value for value in reversed(values) if value is not None), None)
    if last is None:
        return None
    more = (
        "at least " if chart.notes and chart.unit == "bytes" else ""
    )  # not all lines are there to be added up
    unit = " cores" if chart.unit == "cores" else ""
    return values, f"{more}{unit_label(chart)(last)}{unit}"


def live_text(state: LiveState, *, width: int, color: bool = False, ascii_only: bool = False) -> str:
    """One frame as text, ending in a newline: the head, then every table that has rows, the first of each."""
    ink = Ink(color)
    first, *rest = head_lines(state, width=WHOLE, ascii_only=ascii_only)
    lines = [ink("title", fit(first, width))]
    for long in rest:
        wrapped = [fit(line, width) for line in wrap(long, width, rest="  ")]
        lines += [ink("bad", line) for line in wrapped] if long.startswith("! ") else wrapped
    for name, pane in panes(state).items():
        if pane.rows and name != "log":
            lines += ["", ink("head", f"{pane.title}:"), *_table_lines(pane, width, ink)]
    return "\n".join(lines) + "\n"


def _table_lines(pane: Pane, width: int, ink: Ink) -> list[str]:
    rows = arranged(pane)[:ROWS]
    sizes = widths(pane, rows, width - 2, len(GAP))

    def line(texts: list[str]) -> str:
        cells = (
            pad(column.cut(text, size), size, right=column.right)
            for text, size, column in zip(texts, sizes, pane.columns, strict=True)
        )
        return f"  {GAP.join(cells)}".rstrip()

    lines = [ink("label", line([column.title for column in pane.columns]))]
    for row in rows:
        text = line([cell.text for cell in row.cells])
        lines.append(ink(row.style, text) if row.style else text)
    if len(pane.rows) > len(rows):
        lines.append(f"  … and {format_count(len(pane.rows) - len(rows))} more")
    return lines


_LABELS = {
    "task": "Task",
    "name": "Task",
    "task_id": "Id",
    "args": "Arguments",
    "attempt": "Attempt",
    "worker": "Worker",
    "host": "Machine",
    "state": "State",
    "at": "At",
    "since": "Since",
    "since_s": "At it for",
    "elapsed_s": "Running for",
    "usual_s": "Usually at most",
    "stuck": "May be stuck",
    "duration_s": "Took",
    "queue_s": "Queued",
    "error_type": "Error",
    "retried": "Tried again",
    "fingerprint": "Fingerprint",
    "submitted": "Submitted",
    "completed": "Completed",
    "failed": "Failed",
    "running": "Running",
    "mean_s": "Mean",
    "max_s": "Max",
    "ended": "Ended",
    "cpu_cores": "Cores",
    "memory_bytes": "Memory",
    "seen_s": "Seen",
    "cpu_percent": "CPU",
    "memory_used_bytes": "Memory",
    "memory_total_bytes": "Of",
    "percent": "Busy",
    "scope": "Counts",
    "label": "Device",
    "kind": "Event",
    "level": "Level",
    "cancelled": "Cancelled",
    "p95_s": "95th percentile",
    "total_s": "Together",
    "span_id": "Id",
    "tags": "Tags",
    "errors": "Errors",
    "open": "Open",
}
_LONG = ("message", "text", "traceback")


def details_lines(about: Struct) -> list[str]:
    """All that is known of a row, a fact a line, then its texts in full, line by line; everything is clean.

    What is unknown is said to be. A text of more than `LINES` lines ends where it is cut, and says so.
    """
    fields: Mapping[str, object] = msgspec.structs.asdict(about)
    facts = [
        (_LABELS.get(name, name), _value(name, value)) for name, value in fields.items() if name not in _LONG
    ]
    longest = max((len(label) for label, _ in facts), default=0) + 1
    lines = [f"{pad(f'{label}:', longest)}  {value}" for label, value in facts]
    for name in _LONG:
        text = fields.get(name)
        if isinstance(text, str) and text:
            lines += ["", *_text_lines(text)]
    return lines


def _text_lines(text: str) -> list[str]:
    kept = text[: LINES * LINE].splitlines()
    lines = [clean(line[:LINE]) + ("…" if len(line) > LINE else "") for line in kept[:LINES]]
    cut = len(kept) > LINES or len(text) > LINES * LINE
    return [*lines, "… the rest is in the run's files"] if cut else lines


def _value(name: str, value: object) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        if name.endswith("_s"):
            return format_duration(value) + (" ago" if name == "seen_s" else "")
        if name.endswith("_bytes"):
            return format_bytes(value)
        return f"{value:.0f}%" if name in {"percent", "cpu_percent"} else format_count(value)
    if name in {"at", "since"}:
        return moment_text(str(value)[:40])
    return brief(str(value), LINE) or "none"
