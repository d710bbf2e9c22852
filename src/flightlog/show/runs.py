"""The list of runs as text."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from flightlog.core.units import format_count, format_duration
from flightlog.show.document import GAP, table_block, table_lines
from flightlog.show.terminal import Ink, clean, fit, width_of

if TYPE_CHECKING:
    from flightlog.store.catalogue import RunEntry


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
    table = table_block(
        entries,
        "run_id Run, status <Status, start_time:moment! <Started, duration Duration, tasks <Tasks, "
        "size_bytes Size",
        dispensable=_DISPENSABLE,
        status=_status,
        duration=run_duration,
        tasks=run_tasks,
    )
    table, room = table._replace(name_end=_NAME_END), sys.maxsize if width is None else width
    lines = table_lines(table, width=room + len(GAP), ink=Ink(color), indent="")
    if any(width_of(line) > room for line in lines[1:]):
        lines = [fit(name, room) for name in ("Run", *(clean(entry.run_id) for entry in entries))]
    return "\n".join(lines) + "\n"


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
