"""Where the time went, in words: the split of worker time, how many tasks ran at once, the critical path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flightlog.analyze.chain import Kind
from flightlog.show.document import Facts, Section, Table
from flightlog.show.phrases import count_text
from flightlog.show.terminal import clean
from flightlog.units import format_count, format_duration, format_percent

if TYPE_CHECKING:
    from flightlog.analyze.critical import CriticalPath
    from flightlog.analyze.report import Report
    from flightlog.analyze.shares import Shares

_PARTS = {
    "run": "Completed work",
    "unfinished": "In flight",
    "failed": "Failed work",
    "transfer": "Transfer",
    "scheduler": "Scheduler",
    "startup": "Start-up",
    "idle": "Idle",
}
_BLOCKS = "▁▂▃▄▅▆▇█"
BAR = 24
"""Columns of a whole bar."""
STEPS = 48
"""Columns of the line that shows how many ran at once; fewer where there is less room."""


def time_sections(report: Report, width: int, *, links: int = 4) -> list[Section]:
    """The split and the critical path, each where it is known."""
    found = [_split(report.time, report, width)] if report.time is not None else []
    return [*found, *([critical_section(report.critical_path, links)] if report.critical_path else [])]


def _split(time: Shares, report: Report, width: int) -> Section:
    whole = time.whole
    parts = [(name, getattr(whole, f"{part}_s")) for part, name in _PARTS.items()]
    rows = [
        (name, format_percent(lasted / whole.total_s), format_duration(lasted), bar(lasted / whole.total_s))
        for name, lasted in sorted(parts, key=lambda part: -(part[1] or 0.0))
        if lasted and whole.total_s
    ]
    if whole.transfer_s is None and time.basis == "workers":
        rows.append(("Transfer", "unknown", "", ""))
    of = f"{worker_time(whole.total_s)} of {count_text(time.workers, 'worker')}"
    if time.basis == "wall":
        of = f"{format_duration(whole.total_s)} on the clock, for no worker is known"
    pairs = []
    if report.concurrency is not None:
        at_once = report.concurrency
        most = f"{format_count(at_once.peak)} at most, {at_once.mean:.1f} on average"
        pairs.append(("Tasks at once", f"{sparkline(at_once.running, min(STEPS, width - 52))} {most}"))
    if time.without_worker:
        pairs.append(("Not counted", f"{count_text(time.without_worker, 'attempt')} on unknown workers"))
    table = [Table(("Part", "Share", "Time", ""), rows, left=("",))] if rows else []
    return Section("Where the time went", of, [*table, *([Facts(pairs)] if pairs else [])])


def critical_section(path: CriticalPath, rows: int) -> Section:
    """The critical path by name; the longest parts, so many of them."""
    shown = path.parts[:rows]
    table = Table(
        ("What", "Links", "Time", "Share", "Saves if instant"),
        [
            (
                link_name(part.kind, part.name),
                format_count(part.links),
                format_duration(part.seconds),
                format_percent(part.share),
                "" if part.saves_s is None else f"≤ {format_duration(part.saves_s)}",
            )
            for part in shown
        ],
        more=f"and {count_text(len(path.parts) - len(shown), 'shorter part')}"
        if len(path.parts) > len(shown)
        else "",
    )
    return Section("Critical path", f"what set the {format_duration(path.wall_s)} of wall time", [table])


def link_name(kind: Kind, name: str) -> str:
    """What a link of the chain is: `simulate`, `waiting to start simulate`, `program, after the last
    task`.
    """
    shown = clean(name)
    return {"wait": f"waiting to start {shown}", "program": f"program, {shown}"}.get(kind, shown)


def worker_time(lasted: float) -> str:
    """`1.9 worker-hours`."""
    if lasted >= 3600:
        return f"{lasted / 3600:,.1f} worker-hours"
    return f"{lasted / 60:,.1f} worker-minutes" if lasted >= 120 else f"{lasted:,.1f} worker-seconds"


def bar(share: float) -> str:
    """A bar as long as the share, in whole columns; nothing below half a column."""
    return "█" * round(share * BAR)


def sparkline(values: Sequence[float], columns: int) -> str:
    """Values as one line of blocks, the highest full; an empty place is nothing at all."""
    if len(values) > columns:
        edges = [len(values) * n // columns for n in range(columns + 1)]
        values = [
            sum(values[a:b]) / (b - a)
            for a, b in zip(edges, edges[1:], strict=False)  # noqa: RUF007
        ]
    highest = max(values, default=0.0)
    if highest <= 0:
        return " " * len(values)
    return "".join(" " if value <= 0 else _BLOCKS[min(7, int(value / highest * 8))] for value in values)
