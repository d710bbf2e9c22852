"""What set the wall time, in a line: the critical path, and what to try first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flightlog.show.document import Remarks, Section
from flightlog.show.terminal import clean, fit
from flightlog.show.time import link_name
from flightlog.units import format_duration, format_percent

if TYPE_CHECKING:
    from flightlog.analyze.critical import Part
    from flightlog.analyze.report import Report

TITLE = "What set the wall time"
PARTS = 3
"""So many parts of the chain are named, the longest."""
LEAST_SHARE = 0.03
"""Shorter ones are not."""
NAME = 60
"""Columns of a name."""
_LIMITS = {
    "cache_misses": "needless cache misses",
    "cold_starts": "workers that start",
    "device_memory": "memory of a device",
    "failed_work": "failed work",
    "handover": "handing tasks over",
    "memory_pressure": "memory",
    "oversubscription": "too much at once",
    "program_alone": "the program outside of its tasks",
    "serialization": "moving data",
    "stragglers": "a few long tasks",
    "stuck_tasks": "a task that may be stuck",
    "throttling": "the CPU quota",
}
"""What a finding is about, by its kind; others are called by it."""


def wall_time_section(report: Report) -> Section:
    """The line as a section; it says nothing where no chain is known."""
    line = wall_time_text(report)
    return Section(TITLE, "", [Remarks([line])] if line else [])


def wall_time_text(report: Report) -> str | None:
    """What the wall time consisted of, how much could be saved at most, and what to try; None where no chain
    is known.

    `85% of the 10.0s was run_simulation, 10% waiting to start run_simulation; were run_simulation instant,
    the run would be
    8.5s shorter at most. Limited most by handing tasks over: try giving each task several pieces of work.`
    """
    path = report.critical_path
    parts = [part for part in path.parts if part.seconds > 0] if path is not None else []
    if path is None or not parts:
        return None
    told = [part for part in parts[:PARTS] if part.share >= LEAST_SHARE]
    so_far = " so far" if report.run.status == "running" else ""
    took = path.wall_s if report.run.duration_s is None else report.run.duration_s
    whole = f" of the {format_duration(took)}{so_far} was"
    if not told:
        longest = f"the longest was {_name(parts[0])}, {format_percent(parts[0].share)}"
        return (
            f"Many short parts of the critical path made up the {format_duration(took)}{so_far}: "
            f"{longest}. {_limited(report)}"
        ).rstrip()
    said = ", ".join(
        f"{format_percent(part.share)}{'' if number else whole} {_name(part)}"
        for number, part in enumerate(told)
    )
    saved = next((part for part in told if part.saves_s), None)
    if saved is not None and saved.saves_s is not None:
        said += (
            f"; were {_name(saved)} instant, the run would be {format_duration(saved.saves_s)} shorter "
            "at most"
        )
    return f"{said}. {_limited(report)}".rstrip()


def _name(part: Part) -> str:
    """As the critical path names it, but for the program: its comma would be one of the list's."""
    name = part.name[: 4 * NAME]
    shown = f"the program {clean(name)}" if part.kind == "program" else link_name(part.kind, name)
    return fit(shown, NAME)


def _limited(report: Report) -> str:
    """What cost most, and what it says to try; that nothing stands out, where nothing does."""
    for finding in report.findings:
        _, found, advice = finding.sentence.rpartition("; try ")
        if found:
            return (
                f"Limited most by {_LIMITS.get(finding.kind, finding.kind.replace('_', ' '))}: try {advice}"
            )
    return "" if report.findings or report.time is None else "Nothing else stands out."
