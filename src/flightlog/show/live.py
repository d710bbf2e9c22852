"""The live view of a run as text: the lines at its head, its tables, one printed frame, and details of a
row.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Struct

from flightlog.analyze.live.results import OpenSpan
from flightlog.analyze.predict.eta import Eta
from flightlog.core.text import plural
from flightlog.core.units import format_count, format_duration, format_percent
from flightlog.session.progress import eta_text
from flightlog.show.document import GAP, TableBlock, aligned, column_widths, facts
from flightlog.show.limits import LiveTextLimits, TextLimits
from flightlog.show.phrases import figure_text, moment_text, money_text
from flightlog.show.plot import levels_line, spread, summed, unit_label
from flightlog.show.terminal import Ink, brief, clean, cut_middle, fit, width_of, wrap

if TYPE_CHECKING:
    from flightlog.analyze.charts.results import Chart
    from flightlog.analyze.live.results import DeviceNow, Failed, HostNow, LiveState, Progress, WorkerNow


class LiveCell(Struct, frozen=True):
    """A text and its sort key; None is unknown and sorts last."""

    text: str
    order: float | str | None


NOTHING = LiveCell("-", None)
"""What is unknown, or does not apply."""


class LiveColumn(Struct, frozen=True):
    """A column's title, whether it is right-aligned, and whether it is cut where there is no room."""

    title: str
    right: bool = False
    wide: bool = False
    end: int = 0
    """So many characters at the end of a text stay where it is cut."""
    field: str = ""
    """The field of the objects in the rows, or a name of `_COMPUTED`."""
    where: str = "everywhere"
    """Or `terminal` or `page`: a terminal is narrow, and on a page a column that changes all the time would
    be sent all the time.
    """

    def cut(self, text: str, size: int) -> str:
        """A text of this column at this width."""
        return cut_middle(text, size, self.end)


class LiveRow(Struct, frozen=True):
    """One row. `key` is the same in every state, and no other row has it; `about` is the object shown."""

    key: str
    cells: tuple[LiveCell, ...]
    about: Struct
    style: str = ""
    """Of `show.terminal.STYLES`, or nothing."""


class Pane(Struct, frozen=True, kw_only=True):
    """A table in a state; the order of its rows is the one that matters most."""

    table: LiveTable
    title: str
    columns: tuple[LiveColumn, ...]
    rows: tuple[LiveRow, ...]
    count: int = 0
    """How many there are, where the rows may be some of them."""

    @property
    def note(self) -> str:
        """Which rows these are, where there are more."""
        shown = len(self.rows)
        return f"the {shown:,} {self.table.which} of {format_count(self.count)}" if self.count > shown else ""

    def block(self, most: int) -> TableBlock:
        """The first rows, to be shown once."""
        left = max(self.count, len(self.rows)) - most
        return TableBlock(
            [column.title for column in self.columns],
            [["" if cell is NOTHING else cell.text for cell in row.cells] for row in self.rows[:most]],
            left=[column.title for column in self.columns if not column.right],
            more=f"and {format_count(left)} more" if left > 0 else "",
        )


class LiveTable(Struct, frozen=True, kw_only=True):
    """A table as it is declared: its rows in a state, and its columns."""

    name: str
    title: str
    heading: str = ""
    """The title on a page, where there is more room."""
    one: str
    """What a row is."""
    empty: str
    """The text without rows."""
    columns: str
    """A field and a title each, separated by commas; `>` marks right-aligned columns, `*` wide ones, `+`
    those on pages only, and `-` those in terminals only."""
    rows: Callable[[LiveState], Sequence[Any]] | None = None
    """Without it, what the state has under the name of the table."""
    key: Callable[[Any], str] = lambda one: str(one.name)
    style: Callable[[Any], str] = lambda _: ""
    count: Callable[[LiveState], int] | None = None
    """How many there are, of which the rows are `which`."""
    which: str = ""
    counted: bool = True
    """Whether a terminal has the count beside the title: that of names would look like one of tasks."""

    def columns_on(self, *, page: bool) -> tuple[LiveColumn, ...]:
        """The columns on a page, or in a terminal."""
        other = "terminal" if page else "page"
        return tuple(column for column in _columns(self.columns) if column.where != other)

    def pane(self, state: LiveState, *, page: bool = False) -> Pane:
        """The table of this state, for a terminal or for a page."""
        columns = self.columns_on(page=page)
        rows = getattr(state, self.name) if self.rows is None else self.rows(state)
        keys = _unlike([self.key(one)[: TextLimits.max_cell_width] for one in rows])
        count = self.count(state) if self.count is not None else 0
        title = self.heading or self.title if page else self.title
        if count and self.counted and not page:
            title += f" {format_count(count)}"
        made = []
        for key, one in zip(keys, rows, strict=True):
            cells = tuple(_cell(column.field, one, over=state.over, page=page) for column in columns)
            made.append(LiveRow(key, cells, one, self.style(one)))
        return Pane(table=self, title=title, columns=columns, rows=tuple(made), count=count)


@cache
def _columns(columns: str) -> tuple[LiveColumn, ...]:
    found = []
    for field, marks, name in re.findall(r"(\w+) ([>*+-]*)([^,]+)(?:, |$)", columns):
        where = "page" if "+" in marks else "terminal" if "-" in marks else "everywhere"
        end = LiveTextLimits.worker_name_end if name == "Worker" else 0
        found.append(
            LiveColumn(name, right=">" in marks, wide="*" in marks, end=end, field=field, where=where)
        )
    return tuple(found)


def _unlike(keys: Sequence[str]) -> list[str]:
    """The same, all different: long names that begin alike are cut to one, and a run may record a thing
    twice.
    """
    seen: Counter[str] = Counter()
    found = []
    for key in keys:
        seen[key] += 1
        found.append(key if seen[key] == 1 else f"{key} {seen[key]}")
    return found


def clock_text(timestamp: str) -> str:
    """`03:52:00` of a timestamp as Flightlog writes it; others as they are."""
    return timestamp[11:19] if len(timestamp) == 27 and timestamp[10] == "T" else brief(timestamp, 20)


def call_text(task: str, args: str) -> str:
    """`simulate(n=1)`; the arguments are a text already, empty where they are unknown."""
    return f"{brief(task, 120)}({brief(args, 160)})" if args else brief(task, 120)


def error_text(error: Failed) -> str:
    """`ValueError: no data`."""
    message = error.message[: TextLimits.max_cell_width]
    return brief(f"{error.error_type}: {message}" if error.error_type else message)


def _words(text: str) -> LiveCell:
    shown = brief(text)
    return LiveCell(shown or "-", shown.casefold() if text else None)


def _flag(words: str, on: bool | None) -> LiveCell:
    return LiveCell(words, 1) if on else LiveCell("", None)


def _ago(seconds: float, over: bool) -> LiveCell:
    """How long ago, or how long before the end; whole seconds are enough, and do not flicker."""
    if seconds < 2:
        return LiveCell("at end" if over else "now", seconds)
    whole = format_duration(float(int(seconds))).replace(".0s", "s")
    return LiveCell(f"{whole} {'before' if over else 'ago'}", seconds)


def _work(one: WorkerNow) -> LiveCell:
    more = f" and {one.running - 1} more" if one.running > 1 else ""
    return _words(f"{brief(one.task, 120)}{more}") if one.task else NOTHING


def _share(one: HostNow | DeviceNow) -> float | None:
    part, whole = one.memory_used_bytes, one.memory_total_bytes
    return None if part is None or not whole else part / whole


_COMPUTED: dict[str, Callable[[Any], LiveCell]] = {
    "call": lambda one: _words(
        call_text(one.name, one.tags) if isinstance(one, OpenSpan) else call_text(one.task, one.args)
    ),
    "stuck": lambda one: _flag("may be stuck", one.stuck),
    "runs_on": lambda one: _words("span" if isinstance(one, OpenSpan) else one.worker or ""),
    "work": _work,
    "share": lambda one: NOTHING if (part := _share(one)) is None else LiveCell(format_percent(part), part),
    "error": lambda one: _words(error_text(one)),
    "retried_later": lambda one: _flag("retried", one.retried),
    "value": lambda one: LiveCell("unknown" if one.value is None else f"{one.value:.6g}", one.value),
}


def _cell(field: str, one: Any, *, over: bool, page: bool) -> LiveCell:
    """The value of a field; how it is written follows from the field's name."""
    if field in _COMPUTED:
        return _COMPUTED[field](one)
    value = getattr(one, field, None)
    if value is None:
        return NOTHING
    if field == "seen_s":
        return _ago(value, over)
    if field == "at":
        return LiveCell(clock_text(value), value[:40])
    if isinstance(value, str):
        return _words(value)
    if page and field in {"elapsed_s", "since_s"} and value >= 1:
        value = float(int(value))  # clocks tick by the second: all else would be sent again and again
    return LiveCell(fit(f"{value:.1f}" if field == "cpu_cores" else figure_text(field, value), 16), value)


def _when_full(one: HostNow | DeviceNow) -> str:
    return "warn" if (_share(one) or 0.0) >= 0.95 else ""


TABLES = {
    table.name: table
    for table in (
        LiveTable(
            name="tasks",
            title="Tasks",
            heading="Tasks by name",
            one="Tasks of one name",
            empty="No task has been submitted.",
            columns="name *Task, submitted >Submitted, completed >Completed, failed >Failed, "
            "running >Running, retried >+Retried, mean_s >Mean, p95_s >+p95, max_s >Max, total_s >+Total",
            rows=lambda state: state.names,
            style=lambda one: "bad" if one.failed else "",
            count=lambda state: state.names_all,
            which="with most tasks",
            counted=False,
        ),
        LiveTable(
            name="running",
            title="Running",
            one="A task or span that runs",
            empty="No task is running.",
            columns="call *Task, elapsed_s >For, usual_s >p95, stuck Stuck, runs_on *Worker, attempt >Try",
            rows=lambda state: [*state.doing, *state.open_spans],
            key=lambda one: (
                f"span {one.span_id}" if isinstance(one, OpenSpan) else f"{one.task_id} {one.attempt}"
            ),
            style=lambda one: "warn" if one.stuck else "",
            count=lambda state: state.progress.running + len(state.open_spans),
            which="that run longest",
        ),
        LiveTable(
            name="workers",
            title="Workers",
            one="A worker",
            empty="No worker is known.",
            columns="worker *Worker, host +Machine, state State, work *Task, since_s >For, ended >Ended, "
            "failed >Failed, cpu_cores >Cores, memory_bytes >Memory, seen_s >-Seen",
            key=lambda one: one.worker,
            style=lambda one: {"lost": "bad", "gone": "quiet"}.get(one.state, ""),
            count=lambda state: state.workers_all,
            which="busy or last seen",
        ),
        LiveTable(
            name="resources",
            title="Machines",
            one="A machine",
            empty="No machine has been sampled.",
            columns="host *Machine, cpu_percent >CPU, memory_used_bytes >Memory, memory_total_bytes >Of, "
            "share >Share, seen_s >-Seen",
            rows=lambda state: state.hosts,
            key=lambda one: one.host,
            style=_when_full,
        ),
        LiveTable(
            name="gpu",
            title="GPU",
            one="A GPU",
            empty="No GPU has been sampled.",
            columns="label *Device, host *Machine, memory_used_bytes >Memory, memory_total_bytes >Of, "
            "share >Share, percent >Busy, scope Counts, seen_s >-Seen",
            rows=lambda state: state.devices,
            key=lambda one: f"{one.host} {one.label} {one.scope}",
            style=_when_full,
        ),
        LiveTable(
            name="failures",
            title="Failures",
            one="A failure",
            empty="Nothing has failed.",
            columns="at At (UTC), call *Task, error *Error, retried_later Then, worker *Worker",
            key=lambda one: f"{one.at} {one.task_id} {one.attempt}",
            style=lambda one: "warn" if one.retried else "bad",
            count=lambda state: max(state.failures_all, len(state.failures)),
            which="newest",
        ),
        LiveTable(
            name="slowest",
            title="Slowest",
            heading="Slowest tasks",
            one="A task that ended",
            empty="No task has ended.",
            columns="call *Task, duration_s >Took, queue_s >Queued, state Ended as, worker *Worker, "
            "at At (UTC)",
            key=lambda one: f"{one.task_id} {one.attempt}",
            style=lambda one: "bad" if one.state == "failed" else "",
        ),
        LiveTable(
            name="spans",
            title="Spans",
            heading="Spans by name",
            one="Spans of one name",
            empty="No span has ended.",
            columns="name *Span, ended >Ended, errors >Errors, open >Open, mean_s >Mean, max_s >Max, "
            "total_s >Total",
            style=lambda one: "bad" if one.errors else "",
        ),
        LiveTable(
            name="log",
            title="Log",
            one="An event",
            empty="Nothing has been recorded.",
            columns="at At (UTC), kind Event, text *What",
            key=lambda one: f"{one.at} {one.kind} {one.text}",
            style=lambda one: {"warning": "warn", "error": "bad"}.get(one.level, ""),
        ),
        LiveTable(
            name="metrics",
            title="Metrics",
            one="A metric",
            empty="No metric has been recorded.",
            columns="name *Series, value >Last value, step >Step, count >Values, at At (UTC)",
        ),
    )
}
"""All tables, in the order of the view. A terminal shows all but the metrics."""
IN_TERMINAL = tuple(name for name in TABLES if name != "metrics")


def panes(state: LiveState) -> dict[str, Pane]:
    """The tables of a terminal by name, in the order of the view."""
    return {name: TABLES[name].pane(state) for name in IN_TERMINAL}


def arranged(pane: Pane, *, by: int | None = None, reverse: bool = False, having: str = "") -> list[LiveRow]:
    """The rows that have a text in them, upper or lower case, ordered by a column; unknown values last."""
    wanted = having.casefold()
    rows = [
        row for row in pane.rows if not wanted or any(wanted in cell.text.casefold() for cell in row.cells)
    ]
    if by is None:
        return rows[::-1] if reverse else rows
    known = [row for row in rows if row.cells[by].order is not None]
    known.sort(key=lambda row: cast("Any", row.cells[by].order), reverse=reverse)  # of one kind in a column
    return [*known, *(row for row in rows if row.cells[by].order is None)]


def widths(pane: Pane, rows: Sequence[LiveRow], room: int, gap: int) -> list[int]:
    """The widths of the columns, `room` in total; wide columns are cut to share the rest."""
    needed = [
        max([width_of(column.title), *(width_of(row.cells[at].text) for row in rows)])
        for at, column in enumerate(pane.columns)
    ]
    least = [
        LiveTextLimits.min_column_width if column.wide else size
        for column, size in zip(pane.columns, needed, strict=True)
    ]
    return column_widths(needed, least, room - gap * len(needed))


BAR, SPARK = (12, 20), (8, 12)
"""Columns of the progress bar, and of each of the lines that show how something went, in a narrow and in a
wide terminal."""


def head_lines(state: LiveState, *, width: int, remark: str = "") -> list[str]:
    """The run, its progress and load; then problems, if any. No line is wider than `width`.

    What does not fit is left out, least important first. `remark` follows the status, such as that the view
    is paused.
    """
    took = "" if state.elapsed_s is None else format_duration(state.elapsed_s)
    parts = [brief(state.run_id, 80), brief(state.status, 20), took, remark]
    if state.host:
        parts.append(f"on {brief(state.host, 40)}")
    if state.cost and state.currency:
        parts.append(money_text(state.cost, state.currency))
    if state.cache_lookups:
        parts.append(f"cache {format_percent((state.cache_hits or 0) / state.cache_lookups)} hits")
    room = width - 3 - width_of(parts[1])
    # The status stands beside it, however narrow it is.
    parts[0] = cut_middle(parts[0], max(room, LiveTextLimits.run_name_width), LiveTextLimits.run_name_width)
    lines = [_as_many(parts, " · ", width), _how_far(state, width)]
    busy = _as_many(_busy_parts(state, SPARK[width >= LiveTextLimits.wide_terminal]), "  ", width)
    lines += [busy] if busy else []
    if state.error:
        lines.append(f"! {brief(state.error)}")
    problems = [one for one in state.problems if state.reading is None or not one.startswith("still reading")]
    lines += [f"! {brief(problem)}" for problem in problems[: LiveTextLimits.max_problems]]
    if len(problems) > LiveTextLimits.max_problems:
        lines.append(f"! … and {plural(len(problems) - LiveTextLimits.max_problems, 'more problem')}")
    return [fit(line, width) for line in lines]


def _as_many(parts: Sequence[str], between: str, width: int) -> str:
    """As many of the parts on one line as there is room for; the first always."""
    said = [part for part in parts if part]
    line = said[0] if said else ""
    for part in said[1:]:
        if width_of(line) + len(between) + width_of(part) <= width:
            line += between + part
    return line


def _how_far(state: LiveState, width: int) -> str:
    if state.reading is not None:  # shares of what is known so far would say nothing of the run
        bar = _bar(state.reading, BAR[width >= LiveTextLimits.wide_terminal])
        return (
            f"{bar} {format_percent(state.reading)} of the run read: "
            f"{plural(state.progress.submitted, 'task')} so far"
        )
    if state.progress.done is None and (state.spans_all or state.open_spans):
        return f"{plural(state.spans_all, 'span')} ended, {format_count(len(state.open_spans))} open"
    return progress_line(state.progress, width)


def progress_line(progress: Progress, width: int) -> str:
    """A progress bar with counts, most important first, and the estimated remaining time."""
    if progress.done is None:
        return "no task has been submitted"
    columns = BAR[width >= LiveTextLimits.wide_terminal]
    ended, known = format_count(progress.ended), format_count(progress.known)
    parts = [f"{ended} of {known} ({format_percent(progress.done)})"]
    if progress.failed:
        parts.append(f"{format_count(progress.failed)} failed")
    parts.append(left_text(progress))
    counts = ((getattr(progress, word), word) for word in ("running", "waiting", "cancelled", "retried"))
    parts += [f"{format_count(number)} {word}" for number, word in counts if number]
    if progress.per_s:
        rate = f"{progress.per_s:.3g}" if progress.per_s < 1000 else format_count(round(progress.per_s))
        parts.append(f"{rate} tasks/s")
    return f"{_bar(progress.done, columns)} {_as_many(parts, ' · ', width - columns - 3)}"


def left_text(progress: Progress) -> str:
    """`about 7 s left`; empty where that is unknown."""
    if progress.left_s is None:
        return ""
    low, high = (
        progress.left_s if end is None else end for end in (progress.left_low_s, progress.left_high_s)
    )
    return eta_text(Eta(expected=progress.left_s, low=low, high=high, at_least=progress.left_at_least))


def _bar(share: float, columns: int) -> str:
    full = round(min(max(share, 0.0), 1.0) * columns)
    return f"[{'█' * full}{'░' * (columns - full)}]"


def _busy_parts(state: LiveState, columns: int) -> list[str]:
    found = {
        "concurrency": latest_of(state.concurrency, only="running"),
        "CPU": latest_of(state.cpu),
        "memory": latest_of(state.memory),
        "GPU memory": latest_of(state.device_memory),
    }
    return [
        f"{title} {levels_line([value or 0.0 for value in spread(latest[0], columns)]).lstrip()} {latest[1]}"
        for title, latest in found.items()
        if latest is not None
    ]


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


def live_text(state: LiveState, *, width: int, color: bool = False) -> str:
    """One frame as text, ending in a newline: the head, then every table that has rows, the first of each."""
    ink = Ink(color)
    first, *rest = head_lines(state, width=LiveTextLimits.unwrapped_width)
    lines = [ink("title", fit(first, width))]
    for long in rest:
        wrapped = [fit(line, width) for line in wrap(long, width, rest="  ")]
        lines += [ink("bad", line) for line in wrapped] if long.startswith("! ") else wrapped
    for name, pane in panes(state).items():
        if pane.rows and name != "log":
            lines += ["", ink("head", f"{pane.title}:"), *_table_lines(pane, width, ink)]
    return "\n".join(lines) + "\n"


def _table_lines(pane: Pane, width: int, ink: Ink) -> list[str]:
    rows = arranged(pane)[: LiveTextLimits.max_printed_rows]
    sizes, columns = widths(pane, rows, width - 2, len(GAP)), pane.columns
    cells = [
        [column.cut(cell.text, size) for cell, size, column in zip(row.cells, sizes, columns, strict=True)]
        for row in rows
    ]
    texts = aligned([[column.title for column in columns], *cells], sizes, [one.right for one in columns])
    styles = ["label", *(row.style for row in rows)]
    lines = [f"  {ink(style, text) if style else text}" for style, text in zip(styles, texts, strict=True)]
    left = len(pane.rows) - len(rows)
    return [*lines, f"  … and {format_count(left)} more"] if left > 0 else lines


_LABELS = {
    "task_id": "Id",
    "span_id": "Id",
    "args": "Arguments",
    "host": "Machine",
    "elapsed_s": "Running for",
    "since_s": "At it for",
    "usual_s": "p95",
    "p95_s": "p95",
    "stuck": "May be stuck",
    "duration_s": "Took",
    "queue_s": "Queued",
    "error_type": "Error",
    "cpu_cores": "Cores",
    "cpu_percent": "CPU",
    "percent": "Busy",
    "scope": "Counts",
    "label": "Device",
    "kind": "Event",
}
"""What fields are called; others by their own names."""
_LONG = ("message", "text", "traceback")


def details_lines(about: Struct) -> list[str]:
    """All facts of a row, one per line, then its texts in full; everything is cleaned.

    Unknown values are shown as unknown. A text of more than `LINES` lines is cut, with a note.
    """
    fields: Mapping[str, object] = {"name": None, **msgspec.structs.asdict(about)}
    pairs = [
        (_label(name), _value(name, value))
        for name, value in fields.items()
        if name not in _LONG and hasattr(about, name)
    ]
    lines = facts(pairs, ink=Ink(False), indent="")
    for name in _LONG:
        text = fields.get(name)
        if isinstance(text, str) and text:
            lines += ["", *_text_lines(text)]
    return lines


def _label(field: str) -> str:
    words = field.removesuffix("_s").removesuffix("_bytes").replace("_", " ")
    return _LABELS.get(field, words.capitalize())


def _text_lines(text: str) -> list[str]:
    most, longest = LiveTextLimits.max_text_lines, LiveTextLimits.max_line_length
    kept = text[: most * longest].splitlines()
    lines = [clean(line[:longest]) + "…" * (len(line) > longest) for line in kept[:most]]
    cut = len(kept) > most or len(text) > most * longest
    return [*lines, "… the rest is in the run's files"] if cut else lines


def _value(name: str, value: object) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        text = f"{value:.1f}" if name == "cpu_cores" else figure_text(name, value)
        return text + (" ago" if name == "seen_s" else "")
    if name in {"at", "since"}:
        return moment_text(str(value)[:40])
    return brief(str(value), LiveTextLimits.max_line_length) or "none"
