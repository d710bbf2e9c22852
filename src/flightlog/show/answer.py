"""The answer of a comparison in one sentence: how long, what changed, what is new."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flightlog.show.phrases import count_text
from flightlog.show.terminal import clean
from flightlog.units import format_duration, format_percent

if TYPE_CHECKING:
    from flightlog.analyze.bootstrap import Interval
    from flightlog.analyze.changes import Change, Comparison, DurationChange, Side

ALIKE = 0.02
"""Wall times that differ by less are as good as the same."""
NAMED = 3


def answer_text(comparison: Comparison) -> str:
    """What changed, in a sentence that ends in a full stop; names of tasks stand in backticks."""
    head, (reasons, others) = wall_text(comparison), _parts(comparison)
    if not reasons and not others:
        compared = [change for change in comparison.durations if change.verdict != "too few to tell"]
        if compared:
            tail = f"no change stands out from noise ({count_text(len(compared), 'name')} compared)"
        elif comparison.durations:
            tail = "there are too few tasks or runs to tell whether anything got slower or faster"
        elif _share_tasks(comparison):
            tail = "how long their tasks executed is not recorded"
        else:
            tail = "they have no task or span in common"
        return f"{head}; {tail}."
    said = f"{head}: {', '.join(reasons)}" if reasons else head
    return f"{said}{'; but ' if reasons else ', but '}{', '.join(others)}." if others else f"{said}."


def _share_tasks(comparison: Comparison) -> bool:
    """Whether both sides have completed tasks, and one side all names of the other: then they share some."""
    done = comparison.tasks["completed"]
    return bool(done.before and done.after) and not (comparison.appeared and comparison.vanished)


def wall_text(comparison: Comparison) -> str:
    """How long B took beside A, as the beginning of a sentence."""
    wall = comparison.wall_s
    if wall.before is None or wall.after is None or wall.ratio is None:
        return "How long A or B took is unknown"
    times, a, b = _times(wall.before, wall.after), _named(comparison.before), _named(comparison.after)
    if _is_noise(wall):
        return f"B{b} took about as long as A{a} {times}, within what their runs differ by"
    if abs(wall.ratio - 1) < ALIKE:
        return f"B{b} took about as long as A{a} {times}"
    if wall.ratio >= 2:
        return f"B{b} took {wall.ratio:.3g}x as long{f' as A{a}' if a else ''} {times}"
    than = f" than A{a}" if a else ""
    if wall.ratio > 1:
        return f"B{b} took {format_percent(wall.ratio - 1)} longer{than} {times}"
    return f"B{b} took {format_percent(1 - wall.ratio)} less time{than} {times}"


def _is_noise(wall: Change) -> bool:
    """Whether the runs of the sides, where there are several, differ as much by themselves."""
    found = wall.interval
    return (
        found is not None
        and found.low is not None
        and found.high is not None
        and found.low <= 1 <= found.high
    )


def _times(before: float, after: float) -> str:
    """`(2.4s → 1.4s)`; where both read the same, `(1.9s, -68.2 ms)`."""
    old, new = format_duration(before), format_duration(after)
    if old != new or before == after:
        return f"({old} → {new})"
    return f"({old}, {'+' if after > before else ''}{format_duration(after - before)})"


_ENDED = {"crashed": "crashed", "failed": "failed", "interrupted": "was interrupted", "running": "is running"}


def _named(side: Side) -> str:
    """How a single run that did not complete ended, to stand after its letter."""
    how = _ENDED.get(side.runs[0].status) if len(side.runs) == 1 else None
    return f", which {how}," if how else ""


def _parts(comparison: Comparison) -> tuple[list[str], list[str]]:
    """What goes with the change of the wall time, and what goes against it or is news of its own."""
    changed = [change for change in comparison.durations if change.verdict in {"slower", "faster"}]
    if any(change.kind == "task" for change in comparison.durations):
        changed = [change for change in changed if change.kind == "task"]  # spans are what tasks consist of
    against = {_against(comparison.wall_s)}
    parts = [_said(change) for change in changed[:NAMED] if change.verdict not in against]
    others = [_said(change) for change in changed[:NAMED] if change.verdict in against]
    reason = _reason(comparison)
    if reason:
        parts.append(reason)
    last = others or parts
    if len(changed) > NAMED:
        last.append(f"{count_text(len(changed) - NAMED, 'more name')} changed")
    new = [change for change in comparison.failures if change.state == "appeared"]
    if new:
        kinds = ", ".join(dict.fromkeys(change.error_type or "unknown error" for change in new[:NAMED]))
        last.append(f"{count_text(sum(change.after for change in new), 'new failure')} ({kinds})")
    return parts, others


def _against(wall: Change) -> str | None:
    """The verdict that does not go with how the wall time changed, where that changed at all."""
    if wall.ratio is None or abs(wall.ratio - 1) < ALIKE or _is_noise(wall):
        return None
    return "faster" if wall.ratio > 1 else "slower"


def _said(change: DurationChange) -> str:
    interval = change.mean if change.by == "mean" else change.typical
    assert interval is not None
    average = " on average" if change.by == "mean" else ""
    name = clean(change.name).replace("`", "'")
    other = ", with other arguments" if change.other_arguments else ""
    return f"`{name}` is {speed_text(interval)}{average}{other}"


def _reason(comparison: Comparison) -> str:
    """The largest share of the difference in wall time that tasks' durations do not tell, where it is a large
    one.
    """
    found, wall = comparison.explained, comparison.wall_s
    if found is None or not wall.before or abs(found.difference_s) < ALIKE * wall.before or _is_noise(wall):
        return ""
    for share in found.shares:
        helps = share.seconds * found.difference_s > 0 and abs(share.seconds) >= abs(found.difference_s) / 3
        if helps and not share.what.startswith("duration"):
            sign = "+" if share.seconds > 0 else ""
            return f"{sign}{format_duration(share.seconds)} by {share.what} ({share.detail})"
    return ""


def speed_text(interval: Interval) -> str:
    """`1.14x slower (1.11 to 1.17)`; of what got faster, the inverse."""
    slower = interval.ratio >= 1
    values = [interval.ratio, interval.low, interval.high]
    shown = (
        values
        if slower
        else [None if value is None else 1 / value for value in (values[0], values[2], values[1])]
    )
    word = "slower" if slower else "faster"
    between = f" ({_figure(shown[1])} to {_figure(shown[2])})" if shown[1] is not None else ""
    return f"{_figure(shown[0])}x {word}{between}"


def ratio_text(interval: Interval | None, *, bounds: bool = True) -> str:
    """`1.14 (1.11 to 1.17)`; the ratio alone where its interval is unknown, nothing where there is no
    ratio.
    """
    if interval is None:
        return ""
    known = bounds and interval.low is not None
    between = f" ({_figure(interval.low)} to {_figure(interval.high)})" if known else ""
    return f"{_figure(interval.ratio)}{between}"


def _figure(value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:.2f}" if 0.1 <= value < 10 else f"{value:.3g}"
