"""The live view of a run as text: the lines at its head, its tables, one printed frame, and details of a
row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import Struct

from flightlog.analyze.predict.eta import Eta
from flightlog.core.text import plural
from flightlog.core.units import format_bytes, format_count, format_duration, format_percent
from flightlog.session.progress import eta_text
from flightlog.show.document import GAP
from flightlog.show.phrases import moment_text, money_text
from flightlog.show.plot import levels_line, spread, summed, unit_label
from flightlog.show.terminal import LONGEST, Ink, brief, clean, cut_middle, fit, pad, width_of, wrap

if TYPE_CHECKING:
    from flightlog.analyze.charts.results import Chart
    from flightlog.analyze.live.results import (
        DeviceNow,
        Doing,
        EndedTask,
        Failed,
        HostNow,
        LiveState,
        LiveTaskName,
        LogLine,
        OpenSpan,
        Progress,
        SpanNow,
        WorkerNow,
    )

NARROWEST = 12
"""Minimum width of a column that is cut."""


class Follower(Protocol):
    """Follows a run; `analyze.live.follow.FollowedRun` is one."""

    def update(self, limit_s: float | None = None) -> LiveState:
        """Read new events, for at most this many seconds, and return the state of the run."""
        ...


class LiveCell(Struct, frozen=True):
    """A text and its sort key; None is unknown and sorts last."""

    text: str
    order: float | str | None


class LiveColumn(Struct, frozen=True):
    """A column's title, whether it is right-aligned, and whether it is cut where there is no room."""

    title: str
    right: bool = False
    wide: bool = False
    end: int = 0
    """So many characters at the end of a text stay where it is cut."""

    def cut(self, text: str, size: int) -> str:
        """A text of this column at this width."""
        return cut_middle(text, size, self.end)


WORKER = LiveColumn("Worker", wide=True, end=6)
"""Names of workers often differ only at their ends: `node-1:4711/ThreadPoolExecutor-0_3`,
`tcp://10.0.0.1:40123`.
"""


def _columns(titles: str) -> tuple[LiveColumn, ...]:
    """Columns by their titles, separated by commas: `>` marks right-aligned ones, `*` wide ones."""
    return tuple(
        WORKER if title == "Worker" else LiveColumn(title.lstrip(">*"), title[0] == ">", title[0] == "*")
        for title in titles.split(", ")
    )


class LiveRow(Struct, frozen=True):
    """One row. `key` is the same in every state; `about` is the object shown."""

    key: str
    cells: tuple[LiveCell, ...]
    about: Struct
    style: str = ""
    """Of `show.terminal.STYLES`, or nothing."""


class Pane(Struct, frozen=True, kw_only=True):
    """A table of the live view; the order of its rows is the one that matters most."""

    name: str
    title: str
    columns: tuple[LiveColumn, ...]
    rows: tuple[LiveRow, ...]
    empty: str
    """The text without rows."""


def clock_text(timestamp: str) -> str:
    """`03:52:00` of a timestamp as Flightlog writes it; others as they are."""
    return timestamp[11:19] if len(timestamp) == 27 and timestamp[10] == "T" else brief(timestamp, 20)


def panes(state: LiveState) -> dict[str, Pane]:
    """The tables by name, in the order of the view."""
    made = (_names, _running, _workers, _hosts, _devices, _failures, _slowest, _spans, _log)
    return {pane.name: pane for pane in (make(state) for make in made)}


def arranged(pane: Pane, *, by: int | None = None, reverse: bool = False, having: str = "") -> list[LiveRow]:
    """The rows that have a text in them, upper or lower case, ordered by a column; unknown values last."""
    wanted = having.casefold()
    rows = [
        row for row in pane.rows if not wanted or any(wanted in cell.text.casefold() for cell in row.cells)
    ]
    if by is None:
        return rows[::-1] if reverse else rows
    unknown = [row for row in rows if row.cells[by].order is None]
    numbers: list[tuple[float, LiveRow]] = []
    texts: list[tuple[str, LiveRow]] = []
    for row in rows:
        order = row.cells[by].order
        if isinstance(order, str):
            texts.append((order, row))
        elif order is not None:
            numbers.append((order, row))
    numbers.sort(key=lambda one: one[0], reverse=reverse)
    texts.sort(key=lambda one: one[0], reverse=reverse)
    return [*(row for _, row in numbers), *(row for _, row in texts), *unknown]


def widths(pane: Pane, rows: Sequence[LiveRow], room: int, gap: int) -> list[int]:
    """The widths of the columns, `room` in total; wide columns are cut to share the rest."""
    needed = [
        max([width_of(column.title), *(width_of(row.cells[at].text) for row in rows)])
        for at, column in enumerate(pane.columns)
    ]
    wide = [at for at, column in enumerate(pane.columns) if column.wide]
    left = room - gap * len(needed) - sum(size for at, size in enumerate(needed) if at not in wide)
    for place, at in enumerate(sorted(wide, key=lambda at: needed[at])):
        needed[at] = min(needed[at], max(NARROWEST, left // (len(wide) - place)))
        left -= needed[at]
    return needed


def _words(text: str | None) -> LiveCell:
    shown = brief(text)
    return LiveCell(shown or "-", shown.casefold() if text else None)


def _number(number: float | None, write: Callable[[float | None], str] = format_count) -> LiveCell:
    return LiveCell("-" if number is None else fit(write(number), 16), number)


def _call(task: str, args: str) -> LiveCell:
    """`simulate(n=1)`; the arguments are a text already."""
    shown = brief(task, 120)
    inside = brief(args, 160)
    return LiveCell(f"{shown}({inside})" if inside else shown, f"{shown}({inside})".casefold())


def _when(timestamp: str) -> LiveCell:
    return LiveCell(clock_text(timestamp), timestamp[:40])


def _ago(seconds: float | None, over: bool) -> LiveCell:
    """How long ago, or how long before the end; whole seconds are enough, and do not flicker."""
    if seconds is None:
        return LiveCell("-", None)
    if seconds < 2:
        return LiveCell("at end" if over else "now", seconds)
    whole = format_duration(float(int(seconds))).replace(".0s", "s")
    return LiveCell(f"{whole} {'before' if over else 'ago'}", seconds)


def _names(state: LiveState) -> Pane:
    def row(one: LiveTaskName) -> LiveRow:
        cells = (
            _words(one.name),
            _number(one.submitted),
            _number(one.completed),
            _number(one.failed),
            _number(one.running),
            _number(one.mean_s, format_duration),
            _number(one.max_s, format_duration),
        )
        return LiveRow(one.name[:LONGEST], cells, one, "bad" if one.failed else "")

    return Pane(
        name="tasks",
        title="Tasks",
        columns=_columns("*Task, >Submitted, >Completed, >Failed, >Running, >Mean, >Max"),
        rows=tuple(map(row, state.names)),
        empty="No task has been submitted.",
    )


def _running(state: LiveState) -> Pane:
    def row(one: Doing) -> LiveRow:
        cells = (
            _call(one.task, one.args),
            _number(one.elapsed_s, format_duration),
            _number(one.usual_s, format_duration),
            LiveCell("may be stuck" if one.stuck else "", 1 if one.stuck else 0),
            _words(one.worker),
            _number(one.attempt),
        )
        return LiveRow(f"{one.task_id[:LONGEST]} {one.attempt}", cells, one, "warn" if one.stuck else "")

    return Pane(
        name="running",
        title=_counted("Running", state.progress.running + len(state.open_spans)),
        columns=_columns("*Task, >For, >p95, Stuck, Worker, >Try"),
        rows=(*map(row, state.doing), *map(_open_span, state.open_spans)),
        empty="No task is running.",
    )


def _open_span(one: OpenSpan) -> LiveRow:
    cells = (
        _call(one.name, one.tags),
        _number(one.elapsed_s, format_duration),
        _number(one.usual_s, format_duration),
        LiveCell("may be stuck" if one.stuck else "", 1 if one.stuck else 0),
        LiveCell("span", "span"),
        LiveCell("-", None),
    )
    return LiveRow(f"span {one.span_id[:LONGEST]}", cells, one, "warn" if one.stuck else "")


def _workers(state: LiveState) -> Pane:
    def row(one: WorkerNow) -> LiveRow:
        cells = (
            _words(one.worker),
            _words(one.state),
            _words(one.task),
            _number(one.since_s, format_duration),
            _number(one.ended),
            _number(one.failed),
            _number(one.cpu_cores, lambda cores: f"{cores:.1f}"),
            _number(one.memory_bytes, format_bytes),
            _ago(one.seen_s, state.over),
        )
        return LiveRow(one.worker[:LONGEST], cells, one, {"lost": "bad", "gone": "quiet"}.get(one.state, ""))

    return Pane(
        name="workers",
        title=_counted("Workers", state.workers_all),
        columns=_columns("Worker, State, *Task, >For, >Ended, >Failed, >Cores, >Memory, >Seen"),
        rows=tuple(map(row, state.workers)),
        empty="No worker is known.",
    )


def _hosts(state: LiveState) -> Pane:
    def row(one: HostNow) -> LiveRow:
        share = _share(one.memory_used_bytes, one.memory_total_bytes)
        cells = (
            _words(one.host),
            _number(one.cpu_percent, lambda percent: f"{percent:.0f}%"),
            _number(one.memory_used_bytes, format_bytes),
            _number(one.memory_total_bytes, format_bytes),
            _number(share, format_percent),
            _ago(one.seen_s, state.over),
        )
        return LiveRow(one.host[:LONGEST], cells, one, "warn" if share is not None and share >= 0.95 else "")

    return Pane(
        name="resources",
        title="Machines",
        columns=_columns("*Machine, >CPU, >Memory, >Of, >Share, >Seen"),
        rows=tuple(map(row, state.hosts)),
        empty="No machine has been sampled.",
    )


def _devices(state: LiveState) -> Pane:
    def row(one: DeviceNow) -> LiveRow:
        share = _share(one.memory_used_bytes, one.memory_total_bytes)
        cells = (
            _words(one.label),
            _words(one.host),
            _number(one.memory_used_bytes, format_bytes),
            _number(one.memory_total_bytes, format_bytes),
            _number(share, format_percent),
            _number(one.percent, lambda percent: f"{percent:.0f}%"),
            _words(one.scope),
            _ago(one.seen_s, state.over),
        )
        return LiveRow(
            brief(f"{one.host} {one.label} {one.scope}"),
            cells,
            one,
            "warn" if share is not None and share >= 0.95 else "",
        )

    return Pane(
        name="gpu",
        title="GPU",
        columns=_columns("*Device, *Machine, >Memory, >Of, >Share, >Busy, Counts, >Seen"),
        rows=tuple(map(row, state.devices)),
        empty="No GPU has been sampled.",
    )


def _failures(state: LiveState) -> Pane:
    def row(number: int, one: Failed) -> LiveRow:
        error = f"{one.error_type}: {one.message[:LONGEST]}" if one.error_type else one.message[:LONGEST]
        cells = (
            _when(one.at),
            _call(one.task, one.args),
            _words(error),
            LiveCell("retried" if one.retried else "", 1 if one.retried else 0),
            _words(one.worker),
        )
        key = f"{one.at} {one.task_id or number} {one.attempt}"
        return LiveRow(key[:LONGEST], cells, one, "warn" if one.retried else "bad")

    return Pane(
        name="failures",
        title=_counted("Failures", max(state.failures_all, len(state.failures))),
        columns=_columns("At (UTC), *Task, *Error, Then, Worker"),
        rows=tuple(row(number, one) for number, one in enumerate(state.failures)),
        empty="Nothing has failed.",
    )


def _slowest(state: LiveState) -> Pane:
    def row(one: EndedTask) -> LiveRow:
        cells = (
            _call(one.task, one.args),
            _number(one.duration_s, format_duration),
            _number(one.queue_s, format_duration),
            _words(one.state),
            _words(one.worker),
            _when(one.at),
        )
        return LiveRow(
            f"{one.task_id[:LONGEST]} {one.attempt}", cells, one, "bad" if one.state == "failed" else ""
        )

    return Pane(
        name="slowest",
        title="Slowest",
        columns=_columns("*Task, >Took, >Queued, Ended as, Worker, At (UTC)"),
        rows=tuple(map(row, state.slowest)),
        empty="No task has ended.",
    )


def _spans(state: LiveState) -> Pane:
    def row(one: SpanNow) -> LiveRow:
        cells = (
            _words(one.name),
            _number(one.ended),
            _number(one.errors),
            _number(one.open),
            _number(one.mean_s, format_duration),
            _number(one.max_s, format_duration),
            _number(one.total_s, format_duration),
        )
        return LiveRow(one.name[:LONGEST], cells, one, "bad" if one.errors else "")

    return Pane(
        name="spans",
        title="Spans",
        columns=_columns("*Span, >Ended, >Errors, >Open, >Mean, >Max, >Total"),
        rows=tuple(map(row, state.spans)),
        empty="No span has ended.",
    )


def _log(state: LiveState) -> Pane:
    def row(number: int, one: LogLine) -> LiveRow:
        style = {"warning": "warn", "error": "bad"}.get(one.level, "")
        return LiveRow(str(number), (_when(one.at), _words(one.kind), _words(one.text)), one, style)

    return Pane(
        name="log",
        title="Log",
        columns=_columns("At (UTC), Event, *What"),
        rows=tuple(row(number, one) for number, one in enumerate(state.log)),
        empty="Nothing has been recorded.",
    )


def _counted(title: str, number: int) -> str:
    return f"{title} {format_count(number)}" if number else title


def _share(part: int | None, whole: int | None) -> float | None:
    return None if part is None or not whole else part / whole


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
"""Maximum lines of an opened text, and characters of each."""


def head_lines(state: LiveState, *, width: int, ascii_only: bool = False, remark: str = "") -> list[str]:
    """The run, its progress and load; then problems, if any. No line is wider than `width`.

    What does not fit is left out, least important first. `remark` follows the status, such as that the view
    is paused.
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
    # The status stands beside it, however narrow it is.
    parts[0] = cut_middle(parts[0], max(room, NAME), NAME)
    lines = [_as_many(parts, between, width), _how_far(state, width, ascii_only)]
    busy = _as_many(_busy_parts(state, SPARK[width >= WIDE], ascii_only), "  ", width)
    lines += [busy] if busy else []
    if state.error:
        lines.append(f"! {brief(state.error)}")
    problems = [one for one in state.problems if state.reading is None or not one.startswith("still reading")]
    lines += [f"! {brief(problem)}" for problem in problems[:PROBLEMS]]
    if len(problems) > PROBLEMS:
        lines.append(f"! … and {plural(len(problems) - PROBLEMS, 'more problem')}")
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
            f"{plural(state.progress.submitted, 'task')} so far"
        )
    if state.progress.done is None and (state.spans_all or state.open_spans):
        return f"{plural(state.spans_all, 'span')} ended, {format_count(len(state.open_spans))} open"
    return progress_line(state.progress, width, ascii_only)


def progress_line(progress: Progress, width: int, ascii_only: bool = False) -> str:
    """A progress bar with counts, most important first, and the estimated remaining time."""
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
        ("concurrency", state.concurrency),
        ("CPU", state.cpu),
        ("memory", state.memory),
        ("GPU memory", state.device_memory),
    ]
    parts = []
    for title, chart in charts:
        found = latest_of(chart, only="running" if title == "concurrency" else None)
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
    # Not all lines are there to be added up.
    more = "at least " if chart.notes and chart.unit == "bytes" else ""
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
    "usual_s": "p95",
    "stuck": "May be stuck",
    "duration_s": "Took",
    "queue_s": "Queued",
    "error_type": "Error",
    "retried": "Retried",
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
    "p95_s": "p95",
    "total_s": "Together",
    "span_id": "Id",
    "tags": "Tags",
    "errors": "Errors",
    "open": "Open",
}
_LONG = ("message", "text", "traceback")


def details_lines(about: Struct) -> list[str]:
    """All facts of a row, one per line, then its texts in full; everything is cleaned.

    Unknown values are shown as unknown. A text of more than `LINES` lines is cut, with a note.
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
