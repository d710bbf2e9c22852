"""The list of runs as text."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from flightlog.core.units import format_bytes, format_count, format_duration
from flightlog.show.document import TableBlock, table_lines
from flightlog.show.phrases import moment_text
from flightlog.show.terminal import Ink, clean, cut_middle, fit, width_of

if TYPE_CHECKING:
    from flightlog.store.catalogue import RunEntry


_LEFT = ("Status", "Started", "Tasks")
_DISPENSABLE = ("Started", "Size", "Tasks", "Duration")
"""Columns in the order in which they are left out. The start of a run is also in its name."""
_NAME_END = 9
"""Characters at the end of a run's name, dash included, that identify it in every command."""


def runs_text(entries: Sequence[RunEntry], *, width: int | None = None, color: bool = False) -> str:
    """One row per run, in the given order; ends in a newline, empty without runs.

    No row is wider than `width` columns: columns are left out for that, then names of runs are cut in the
    middle. With None the width is unlimited.
    """
    if not entries:
        return ""
    columns = {
        "Run": [clean(entry.run_id) for entry in entries],
        "Status": [_status(entry) for entry in entries],
        "Started": [moment_text(entry.start_time) for entry in entries],
        "Duration": [run_duration(entry) for entry in entries],
        "Tasks": [run_tasks(entry) for entry in entries],
        "Size": ["" if e.size_bytes is None else format_bytes(e.size_bytes) for e in entries],
    }
    ink = Ink(color)
    if width is None:
        return "\n".join(_rows(columns, ink)) + "\n"
    for name in _DISPENSABLE:
        if _columns_of(columns) <= width:
            break
        del columns[name]
    room = width - (_columns_of(columns) - max(map(width_of, columns["Run"])))
    columns["Run"] = [cut_middle(name, max(room, _NAME_END + 1), _NAME_END) for name in columns["Run"]]
    if _columns_of(columns) > width:
        del columns["Status"]
        columns["Run"] = [fit(name, width) for name in columns["Run"]]
    return "\n".join(_rows(columns, ink)) + "\n"


def _rows(columns: dict[str, list[str]], ink: Ink) -> list[str]:
    rows = list(zip(*columns.values(), strict=True))
    return table_lines(TableBlock(tuple(columns), rows, _LEFT), width=sys.maxsize, ink=ink, indent="")


def _columns_of(columns: dict[str, list[str]]) -> int:
    return max(map(width_of, _rows(columns, Ink(False))))


def _status(entry: RunEntry) -> str:
    return f"{entry.status}, {format_count(entry.lines_lost)} lost" if entry.lines_lost else entry.status


def _at_least(entry: RunEntry) -> str:
    """The prefix of a killed run's numbers: its last events are not read for a list."""
    return "≥ " if entry.status == "crashed" and entry.end_time is None else ""


def run_duration(entry: RunEntry) -> str:
    """How long a run took; empty where that is unknown."""
    return "" if entry.duration_s is None else f"{_at_least(entry)}{format_duration(entry.duration_s)}"


def run_tasks(entry: RunEntry) -> str:
    """`11 of 12, 1 failed`; empty without tasks."""
    if not entry.tasks_submitted and not entry.tasks_completed and not entry.tasks_failed:
        return ""
    # The tasks of other processes are not counted yet.
    least = "≥ " if entry.to_complete else _at_least(entry)
    completed, submitted, failed = (
        f"{least}{format_count(number or 0)}"
        for number in (entry.tasks_completed, entry.tasks_submitted, entry.tasks_failed)
    )
    more = f", {failed} failed" if entry.tasks_failed else ""
    if not entry.tasks_submitted:  # another tool recorded it, which knows no submissions
        return f"{completed}{more}"
    return f"{completed} of {submitted}{more}"
