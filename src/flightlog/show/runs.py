"""A list of runs as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flightlog.show.phrases import moment_text
from flightlog.show.table import table
from flightlog.show.terminal import Ink
from flightlog.units import format_bytes, format_count, format_duration

if TYPE_CHECKING:
    from flightlog.store.catalogue import RunEntry


def runs_text(entries: Sequence[RunEntry], *, width: int = 100, color: bool = False) -> str:
    """A row a run, in the order given; ends in a newline, and is empty for no run."""
    if not entries:
        return ""
    rows = [
        (entry.run_id, entry.status, moment_text(entry.start_time),
         "" if entry.duration_s is None else format_duration(entry.duration_s), _tasks(entry),
         "" if entry.size_bytes is None else format_bytes(entry.size_bytes))
        for entry in entries
    ]  # fmt: skip
    head = ("Run", "Status", "Started", "Duration", "Tasks", "Size")
    # A run's name is what one copies from here, so it is never cut.
    lines = table(
        head, rows, width=max(width, 200), ink=Ink(color), left=("Status", "Started", "Tasks"), indent=""
    )  # fmt: skip
    return "\n".join(lines) + "\n"


def _tasks(entry: RunEntry) -> str:
    if not entry.tasks_submitted and not entry.tasks_completed and not entry.tasks_failed:
        return ""
    failed = f", {format_count(entry.tasks_failed)} failed" if entry.tasks_failed else ""
    return f"{format_count(entry.tasks_completed)} of {format_count(entry.tasks_submitted)}{failed}"
