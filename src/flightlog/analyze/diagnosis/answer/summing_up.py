"""The answer of a diagnosis in a sentence or two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flightlog.analyze.diagnosis.answer.unfailed import UNFAILED
from flightlog.analyze.diagnosis.results import Cause

if TYPE_CHECKING:
    from flightlog.analyze.diagnosis.record.groups import Counts

_ENDED = {
    "completed": "The run completed",
    "running": "The run is running",
    "failed": "The run failed",
    "interrupted": "The run was interrupted",
    "crashed": "The run crashed",
    "unknown": "How the run ended is unknown",
}
_ADVERBS = {"possible": "possibly", "a guess": "at a guess"}


def answer(
    status: str,
    causes: Sequence[Cause],
    counts: Counts,
    completed: int,
    cancelled: int,
    *,
    incomplete: bool = False,
) -> str:
    """What happened and most likely why; ends in a full stop. `incomplete` says that lines of the record are lost."""
    begun = _ENDED.get(status, f"The run is {status}")
    done = f" ({_count(completed, 'task')} completed)" if completed else ""
    left = (
        f"; {_count(cancelled, 'task')} {'was' if cancelled == 1 else 'were'} cancelled" if cancelled else ""
    )
    if not causes:
        if status in {"completed", "running"} and incomplete:
            return f"{begun}; the record is incomplete, and no failure is in it{done}{left}."
        if status in {"completed", "running"}:
            return f"{begun} without failures{done}{left}."
        return f"{begun}, and the record holds no failure{done}{left}: why is unknown."
    first = causes[0]
    parts = []
    if counts.tasks_failed:
        parts.append(f"{_count(counts.tasks_failed, 'task')} failed")
    if counts.recovered:
        parts.append(f"{_count(counts.recovered, 'task')} failed first and completed when retried")
    if first.scope in UNFAILED and not parts:
        parts.append("nothing failed, but something went wrong")
    head = f"{begun}{': ' + ', '.join(parts) if parts else ''}"
    why = (
        f"why is unknown: {first.headline}"
        if first.failure_class == "unknown"
        else f"{_ADVERBS.get(first.certainty, first.certainty)} {first.failure_class}: {first.headline}"
    ).rstrip(".")
    explained = first.explains.count
    more = f"; that explains {_count(explained, 'other end', 'other ends')}" if explained > 1 else ""
    others = f" {_count(len(causes) - 1, 'other cause')} below." if len(causes) > 1 else ""
    return f"{head}. {why[:1].upper()}{why[1:]}{more}.{others}"


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
