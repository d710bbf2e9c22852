"""The answer of a comparison in one sentence: how long, what changed, what is new."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flightlog.show.phrases import count_text
from flightlog.show.terminal import clean
from flightlog.units import format_duration, format_percent

if TYPE_CHECKING:
    from flightlog.analyze.bootstrap import Interval
    from flightlog.analyze.changes import Change, Comparison, DurationChange

ALIKE = 0.02
"""Wall times that differ by less are as good as the same."""
NAMED = 3


def answer_text(comparison: Comparison) -> str:
    """What changed, in a sentence that ends in a full stop; names of tasks stand in backticks."""
    head, parts = _wall(comparison.wall_s), _parts(comparison)
    if not parts:
        compared = [change for change in comparison.durations if change.verdict != "too few to tell"]
        if compared:
            tail = f"no change stands out from noise ({count_text(len(compared), 'name')} compared)"
        elif comparison.durations:
            tail = "there are too few tasks or runs to tell whether anything got slower or faster"
        else:
            tail = "they have no task or span in common"
        return f"{head}; {tail}."
    return f"{head}: {', '.join(parts)}."


def _wall(wall: Change) -> str:
    if wall.before is None or wall.after is None or wall.ratio is None:
        return "How long A or B took is unknown"
    times = f"({format_duration(wall.before)} → {format_duration(wall.after)})"
    noise = wall.interval
    if (
        noise is not None
        and noise.low is not None
        and noise.high is not None
        and noise.low <= 1 <= noise.high
    ):
        return f"B took about as long as A {times}, within what their runs differ by"
    if abs(wall.ratio - 1) < ALIKE:
        return f"B took about as long as A {times}"
    if wall.ratio >= 2:
        return f"B took {wall.ratio:.3g}x as long {times}"
    if wall.ratio > 1:
        return f"B took {format_percent(wall.ratio - 1)} longer {times}"
    return f"B took {format_percent(1 - wall.ratio)} less time {times}"


def _parts(comparison: Comparison) -> list[str]:
    changed = [change for change in comparison.durations if change.verdict in {"slower", "faster"}]
    if any(change.kind == "task" for change in comparison.durations):
        changed = [change for change in changed if change.kind == "task"]  # spans are what tasks consist of
    parts = [_said(change) for change in changed[:NAMED]]
    if len(changed) > NAMED:
        parts.append(f"{count_text(len(changed) - NAMED, 'more name')} changed")
    reason = _reason(comparison)
    if reason:
        parts.append(reason)
    new = [change for change in comparison.failures if change.state == "appeared"]
    if new:
        kinds = ", ".join(dict.fromkeys(change.error_type or "unknown error" for change in new[:NAMED]))
        parts.append(f"{count_text(sum(change.after for change in new), 'new failure')} ({kinds})")
    return parts


def _said(change: DurationChange) -> str:
    interval = change.mean if change.by == "mean" else change.typical
    assert interval is not None
    average = " on average" if change.by == "mean" else ""
    name = clean(change.name).replace("`", "'")
    other = ", with other arguments" if change.other_arguments else ""
    return f"`{name}` is {speed_text(interval)}{average}{other}"


def _reason(comparison: Comparison) -> str:
    """The largest share of the difference in wall time that tasks' durations do not tell, where it is a large one."""
    found, wall = comparison.explained, comparison.wall_s
    if found is None or not wall.before or abs(found.difference_s) < ALIKE * wall.before:
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
    """`1.14 (1.11 to 1.17)`; the ratio alone where its interval is unknown, nothing where there is no ratio."""
    if interval is None:
        return ""
    known = bounds and interval.low is not None
    between = f" ({_figure(interval.low)} to {_figure(interval.high)})" if known else ""
    return f"{_figure(interval.ratio)}{between}"


def _figure(value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:.2f}" if 0.1 <= value < 10 else f"{value:.3g}"
