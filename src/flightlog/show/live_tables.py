"""What a live view shows in tables: a run's state in, rows of clean text out, each with what it is sorted
by.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from flightlog.show.terminal import clean, cut_middle, fit, width_of
from flightlog.units import format_bytes, format_count, format_duration, format_percent

if TYPE_CHECKING:
    from flightlog.analyze.live.results import (
        DeviceNow,
        Doing,
        Ended,
        Failed,
        HostNow,
        LiveState,
        LogLine,
        OpenSpan,
        SpanNow,
        TaskName,
        WorkerNow,
    )

LONGEST = 300
"""Columns of the longest text in a cell; a name may have millions of characters."""
NARROWEST = 12
"""A column that is cut to fit keeps so many columns."""


class Cell(Struct, frozen=True):
    """A text, and what it is sorted by; null for what is unknown, which always stands last."""

    text: str
    order: float | str | None


class Column(Struct, frozen=True):
    """A column's title, and whether it stands right, as numbers do, and is cut where there is no room."""

    title: str
    right: bool = False
    wide: bool = False
    end: int = 0
    """So many characters at the end of a text stay where it is cut."""

    def cut(self, text: str, size: int) -> str:
        """A text of this column in so many columns of a terminal."""
        return cut_middle(text, size, self.end)


WORKER = Column("Worker", wide=True, end=6)
"""Names of workers often differ in their ends alone: `node-1:4711/ThreadPoolExecutor-0_3`,
`tcp://10.0.0.1:40123`."""


class Row(Struct, frozen=True):
    """What is known of one thing. `key` is the same in every state; `about` is what the row was made of."""

    key: str
    cells: tuple[Cell, ...]
    about: Struct
    style: str = ""
    """Of `show.terminal.STYLES`, or nothing."""


class Pane(Struct, frozen=True, kw_only=True):
    """A table of the live view; the order of its rows is the one that matters most."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    empty: str
    """What is said where there are no rows."""


def brief(text: str | None, width: int = LONGEST) -> str:
    """Clean text on one line, cut; made of the beginning alone, however long the text is."""
    return fit(clean((text or "")[: 4 * width]), width)


def clock_text(timestamp: str) -> str:
    """`03:52:00` of a timestamp as Flightlog writes it; others as they are."""
    return timestamp[11:19] if len(timestamp) == 27 and timestamp[10] == "T" else brief(timestamp, 20)


def panes(state: LiveState) -> dict[str, Pane]:
    """The tables by name, in the order of the view."""
    made = (_names, _running, _workers, _hosts, _devices, _failures, _slowest, _spans, _log)
    return {pane.name: pane for pane in (make(state) for make in made)}


def arranged(pane: Pane, *, by: int | None = None, reverse: bool = False, having: str = "") -> list[Row]:
    """The rows that have a text in them, upper or lower case, ordered by a column; unknown values last."""
    wanted = having.casefold()
    rows = [
        row for row in pane.rows if not wanted or any(wanted in cell.text.casefold() for cell in row.cells)
    ]
    if by is None:
        return rows[::-1] if reverse else rows
    unknown = [row for row in rows if row.cells[by].order is None]
    numbers: list[tuple[float, Row]] = []
    texts: list[tuple[str, Row]] = []
    for row in rows:
        order = row.cells[by].order
        if isinstance(order, str):
            texts.append((order, row))
        elif order is not None:
            numbers.append((order, row))
    numbers.sort(key=lambda one: one[0], reverse=reverse)
    texts.sort(key=lambda one: one[0], reverse=reverse)
    return [*(row for _, row in numbers), *(row for _, row in texts), *unknown]


def widths(pane: Pane, rows: Sequence[Row], room: int, gap: int) -> list[int]:
    """Columns for each column of a table, of `room` in all; the wide ones are cut, where need be, to share
    what is left.
    """
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


def _words(text: str | None) -> Cell:
    shown = brief(text)
    return Cell(shown or "-", shown.casefold() if text else None)


def _number(number: float | None, write: Callable[[float | None], str] = format_count) -> Cell:
    return Cell("-" if number is None else fit(write(number), 16), number)


def _call(task: str, args: str) -> Cell:
    """`simulate(n=1)`; the arguments are a text already."""
    shown = brief(task, 120)
    inside = brief(args, 160)
    return Cell(f"{shown}({inside})" if inside else shown, f"{shown}({inside})".casefold())


def _when(timestamp: str) -> Cell:
    return Cell(clock_text(timestamp), timestamp[:40])


def _ago(seconds: float | None, over: bool) -> Cell:
    """How long ago, or how long before the end; whole seconds are enough, and do not flicker."""
    if seconds is None:
        return Cell("-", None)
    if seconds < 2:
        return Cell("at end" if over else "now", seconds)
    whole = format_duration(float(int(seconds))).replace(".0s", "s")
    return Cell(f"{whole} {'before' if over else 'ago'}", seconds)


def _names(state: LiveState) -> Pane:
    def row(one: TaskName) -> Row:
        cells = (
            _words(one.name),
            _number(one.submitted),
            _number(one.completed),
            _number(one.failed),
            _number(one.running),
            _number(one.mean_s, format_duration),
            _number(one.max_s, format_duration),
        )
        return Row(one.name[:LONGEST], cells, one, "bad" if one.failed else "")

    titles = ("Submitted", "Completed", "Failed", "Running", "Mean", "Max")
    return Pane(
        name="tasks",
        title="Tasks",
        columns=(Column("Task", wide=True), *(Column(title, right=True) for title in titles)),
        rows=tuple(map(row, state.names)),
        empty="No task has been submitted.",
    )


def _running(state: LiveState) -> Pane:
    def row(one: Doing) -> Row:
        cells = (
            _call(one.task, one.args),
            _number(one.elapsed_s, format_duration),
            _number(one.usual_s, format_duration),
            Cell("may be stuck" if one.stuck else "", 1 if one.stuck else 0),
            _words(one.worker),
            _number(one.attempt),
        )
        return Row(f"{one.task_id[:LONGEST]} {one.attempt}", cells, one, "warn" if one.stuck else "")

    return Pane(
        name="running",
        title=_counted("Running", state.progress.running + len(state.open_spans)),
        columns=(
            Column("Task", wide=True),
            Column("For", right=True),
            Column("Usual", right=True),
            Column("Stuck"),
            WORKER,
            Column("Try", right=True),
        ),
        rows=(*map(row, state.doing), *map(_open_span, state.open_spans)),
        empty="No task is running.",
    )


def _open_span(one: OpenSpan) -> Row:
    cells = (
        _call(one.name, one.tags),
        _number(one.elapsed_s, format_duration),
        _number(one.usual_s, format_duration),
        Cell("may be stuck" if one.stuck else "", 1 if one.stuck else 0),
        Cell("span", "span"),
        Cell("-", None),
    )
    return Row(f"span {one.span_id[:LONGEST]}", cells, one, "warn" if one.stuck else "")


def _workers(state: LiveState) -> Pane:
    def row(one: WorkerNow) -> Row:
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
        return Row(one.worker[:LONGEST], cells, one, {"lost": "bad", "gone": "quiet"}.get(one.state, ""))

    numbers = ("For", "Ended", "Failed", "Cores", "Memory", "Seen")
    return Pane(
        name="workers",
        title=_counted("Workers", state.workers_all),
        columns=(
            WORKER,
            Column("State"),
            Column("Task", wide=True),
            *(Column(title, right=True) for title in numbers),
        ),
        rows=tuple(map(row, state.workers)),
        empty="No worker is known.",
    )


def _hosts(state: LiveState) -> Pane:
    def row(one: HostNow) -> Row:
        share = _share(one.memory_used_bytes, one.memory_total_bytes)
        cells = (
            _words(one.host),
            _number(one.cpu_percent, lambda percent: f"{percent:.0f}%"),
            _number(one.memory_used_bytes, format_bytes),
            _number(one.memory_total_bytes, format_bytes),
            _number(share, format_percent),
            _ago(one.seen_s, state.over),
        )
        return Row(one.host[:LONGEST], cells, one, "warn" if share is not None and share >= 0.95 else "")

    titles = ("CPU", "Memory", "Of", "Share", "Seen")
    return Pane(
        name="resources",
        title="Machines",
        columns=(Column("Machine", wide=True), *(Column(title, right=True) for title in titles)),
        rows=tuple(map(row, state.hosts)),
        empty="No machine has been sampled.",
    )


def _devices(state: LiveState) -> Pane:
    def row(one: DeviceNow) -> Row:
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
        return Row(
            brief(f"{one.host} {one.label} {one.scope}"),
            cells,
            one,
            "warn" if share is not None and share >= 0.95 else "",
        )

    titles = ("Memory", "Of", "Share", "Busy")
    return Pane(
        name="gpu",
        title="GPU",
        columns=(
            Column("Device", wide=True),
            Column("Machine", wide=True),
            *(Column(title, right=True) for title in titles),
            Column("Counts"),
            Column("Seen", right=True),
        ),
        rows=tuple(map(row, state.devices)),
        empty="No GPU has been sampled.",
    )


def _failures(state: LiveState) -> Pane:
    def row(number: int, one: Failed) -> Row:
        error = f"{one.error_type}: {one.message[:LONGEST]}" if one.error_type else one.message[:LONGEST]
        cells = (
            _when(one.at),
            _call(one.task, one.args),
            _words(error),
            Cell("tried again" if one.retried else "", 1 if one.retried else 0),
            _words(one.worker),
        )
        key = f"{one.at} {one.task_id or number} {one.attempt}"
        return Row(key[:LONGEST], cells, one, "warn" if one.retried else "bad")

    return Pane(
        name="failures",
        title=_counted("Failures", max(state.failures_all, len(state.failures))),
        columns=(
            Column("At (UTC)"),
            Column("Task", wide=True),
            Column("Error", wide=True),
            Column("Then"),
            WORKER,
        ),
        rows=tuple(row(number, one) for number, one in enumerate(state.failures)),
        empty="Nothing has failed.",
    )


def _slowest(state: LiveState) -> Pane:
    def row(one: Ended) -> Row:
        cells = (
            _call(one.task, one.args),
            _number(one.duration_s, format_duration),
            _number(one.queue_s, format_duration),
            _words(one.state),
            _words(one.worker),
            _when(one.at),
        )
        return Row(
            f"{one.task_id[:LONGEST]} {one.attempt}", cells, one, "bad" if one.state == "failed" else ""
        )

    return Pane(
        name="slowest",
        title="Slowest",
        columns=(
            Column("Task", wide=True),
            Column("Took", right=True),
            Column("Queued", right=True),
            Column("Ended as"),
            WORKER,
            Column("At (UTC)"),
        ),
        rows=tuple(map(row, state.slowest)),
        empty="No task has ended.",
    )


def _spans(state: LiveState) -> Pane:
    def row(one: SpanNow) -> Row:
        cells = (
            _words(one.name),
            _number(one.ended),
            _number(one.errors),
            _number(one.open),
            _number(one.mean_s, format_duration),
            _number(one.max_s, format_duration),
            _number(one.total_s, format_duration),
        )
        return Row(one.name[:LONGEST], cells, one, "bad" if one.errors else "")

    titles = ("Ended", "Errors", "Open", "Mean", "Max", "Total")
    return Pane(
        name="spans",
        title="Spans",
        columns=(Column("Span", wide=True), *(Column(title, right=True) for title in titles)),
        rows=tuple(map(row, state.spans)),
        empty="No span has ended.",
    )


def _log(state: LiveState) -> Pane:
    def row(number: int, one: LogLine) -> Row:
        style = {"warning": "warn", "error": "bad"}.get(one.level, "")
        return Row(str(number), (_when(one.at), _words(one.kind), _words(one.text)), one, style)

    return Pane(
        name="log",
        title="Log",
        columns=(Column("At (UTC)"), Column("Event"), Column("What", wide=True)),
        rows=tuple(row(number, one) for number, one in enumerate(state.log)),
        empty="Nothing has been recorded.",
    )


def _counted(title: str, number: int) -> str:
    return f"{title} {format_count(number)}" if number else title


def _share(part: int | None, whole: int | None) -> float | None:
    return None if part is None or not whole else part / whole
