"""A trend as text (the answer, a plot, the levels, the newest runs) or as CSV."""

from __future__ import annotations

import csv
import io
from functools import partial

from flightlog.analyze.history.trends import LevelChange, Trend, TrendPoint, parse_metric
from flightlog.analyze.limits import HistoryLimits
from flightlog.core.text import plural
from flightlog.core.units import format_percent
from flightlog.show.document import Paragraph, Section, Verbatim, document_text, table_section
from flightlog.show.figures.lines import number_text, trend_scale, trend_value
from flightlog.show.limits import TextLimits
from flightlog.show.phrases import known, moment_text
from flightlog.show.plot import LevelLine, plot, scale_of
from flightlog.show.terminal import Ink, clean, wrap

_TITLES = {
    "wall": "Wall time",
    "duration": "Mean duration",
    "p95": "p95 duration",
    "memory": "Peak memory",
    "hits": "Cache hit rate",
    "cost": "Cost",
    "failures": "Failures",
}
_WORDS = {
    "seconds": ("slower", "faster"),
    "bytes": ("more memory", "less memory"),
    "money": ("dearer", "cheaper"),
    "share": ("percentage points more", "percentage points less"),
    "count": ("more per run", "fewer per run"),
}
"""What a larger and a smaller figure is called."""


def trend_text(trend: Trend, *, width: int = 100, color: bool = False) -> str:
    """The text for a terminal of `width` columns; ends in a newline."""
    if trend.points:
        plotted = [f"  {row}" for row in _plot(trend, width - 2)]
        answer = [Verbatim("\n".join([*_answer(trend, width, Ink(color)), "", *plotted]))]
        sections = [Section("", blocks=answer), _levels(trend), _newest(trend)]
    else:
        sections = [Section("", blocks=[Paragraph(text) for text in trend_answer(trend)])]
    sections.append(Section("", blocks=[Paragraph(left_out_text(trend))]))
    return document_text(sections, width=width, color=color, mark="", title=trend_title(trend))


def trend_title(trend: Trend) -> str:
    """The metric and the runs in one line; cleaned."""
    metric = parse_metric(trend.metric)
    what = _TITLES[metric.kind] + (f" of {metric.task}" if metric.task is not None else "")
    runs = plural(len(trend.points), "run")
    days = [point.start_time[:10] for point in trend.points if point.start_time]
    when = f" · {days[0]}" if days else ""
    when += f" to {days[-1]}" if days and days[-1] != days[0] else ""
    return clean(f"{what} · project {trend.project} · {runs}{when}")


def trend_answer(trend: Trend) -> list[str]:
    """The answer in clean paragraphs: each step, newest first, or that there is none."""
    if not trend.points:
        return ["No run has this figure." if trend.left_out else "No run started since then."]
    return [line.strip() for line in _answer(trend, 1_000_000, Ink(False))]


def trend_csv(trend: Trend) -> str:
    """CSV with one row per run, oldest first, under a header; the level is a number from 0."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(["run_id", "start_time", "status", "git_commit", "metric", "value", "unit", "level"])
    unit = trend.currency if trend.unit == "money" else trend.unit
    for p in trend.points:
        rows.writerow([p.run_id, p.start_time, p.status, p.git_commit, trend.metric, p.value, unit, p.level])
    return out.getvalue()


def _answer(trend: Trend, width: int, ink: Ink) -> list[str]:
    found = [point for point in trend.points if point.outlier]
    named = ", ".join(
        f"{clean(point.run_id)} ({trend_value(trend, point.value)}, typically "
        f"{trend_value(trend, trend.levels[point.level].typical)})"
        for point in found[-TextLimits.max_outliers :]
    )
    left = len(found) - TextLimits.max_outliers
    more = f", and {left} earlier" if left > 0 else ""
    said = wrap(f"{plural(len(found), 'outlier')}: {named}{more}.", width, first="  ", rest="  ")
    return [*_steps(trend, width, ink), *(said if found else [])]


def _steps(trend: Trend, width: int, ink: Ink) -> list[str]:
    show = partial(trend_value, trend)
    if trend.changes:
        shown = list(enumerate(trend.changes, 1))[-TextLimits.max_steps :]
        lines = [
            line for number, change in reversed(shown) for line in _step(trend, number, change, width, ink)
        ]
        more = len(trend.changes) - len(shown)
        return [*lines, f"  {plural(more, 'earlier step')}: see the levels below."] if more else lines
    level = trend.levels[0]
    usual = f"{'Typically' if _is_relative(trend) else 'On average'} {show(level.typical)}"
    spread = f"p5 to p95: {show(level.p05)} to {show(level.p95)}" if level.p05 < level.p95 else ""
    if not trend.enough:
        least = (
            f"Not enough runs to detect a step: {level.runs} of at least {HistoryLimits.min_values_for_step}."
        )
        return wrap(f"{usual}. {least}", width, first="  ", rest="  ")
    steady = f"{usual}{', ' if spread else ''}{spread}."
    if trend.drift is not None:
        moved = f"No step, but a slow drift: {_by(trend, trend.drift)} from the first run to the last."
        return wrap(f"{moved} {steady}", width, first="  ", rest="  ")
    return wrap(f"No step in {plural(level.runs, 'run')}. {steady}", width, first="  ", rest="  ")


def _step(trend: Trend, number: int, change: LevelChange, width: int, ink: Ink) -> list[str]:
    show = partial(trend_value, trend)
    by = _by(trend, change.change) if change.change is not None else "another level"
    commit = f"commit {_commit(change)}, " if change.git_commit else ""
    where = f"since {clean(change.run_id)} ({commit}{_minute(change.start_time)} UTC)"
    label = f"  {number}. " if len(trend.changes) > 1 else "  "
    blanks = " " * len(label)
    worse = change.after > change.before if trend.unit != "share" else change.after < change.before
    answer = wrap(
        f"{by} {where}: {show(change.before)} → {show(change.after)}", width, first=label, rest=blanks
    )
    sure = []
    if change.low is not None and change.high is not None:
        sure.append(f"95 % CI: {_between(trend, change.low, change.high)}")
    sure.append(f"by chance in {_odds(change.chance)}")
    margin = max(change.at - change.earliest, change.latest - change.at)
    if margin:
        sure.append(f"it may have begun {plural(margin, 'run')} away")
    return [
        *(ink("bad" if worse else "good", line) for line in answer),
        *wrap("; ".join(sure) + ".", width, first=blanks, rest=blanks),
        *wrap(_cause(change), width, first=blanks, rest=blanks),
    ]


def _cause(change: LevelChange) -> str:
    """What is new in the run where a step began."""
    if not change.differences:
        return "Same commit, manifest, host, Python and target as the run before."
    found = [f"{d.what} {_short(d.what, d.before)} → {_short(d.what, d.after)}" for d in change.differences]
    return f"New against the run before: {', '.join(found)}."


def _short(what: str, value: str | None) -> str:
    if value is None:
        return "unknown"
    return clean(value[:10] if what in {"commit", "manifest"} else value)


def _commit(of: LevelChange | TrendPoint) -> str:
    """`54c56c9a9c`, with a plus where files had been changed since."""
    if of.git_commit is None:
        return ""
    return f"{clean(of.git_commit[:10])}{'+' if of.git_dirty else ''}"


def _minute(timestamp: str | None) -> str:
    """`2026-05-20 03:52`."""
    return moment_text(timestamp)[:16] if timestamp else "unknown"


def _by(trend: Trend, change: float) -> str:
    """`18% slower`."""
    more, less = _WORDS[trend.unit]
    return f"{_size(trend, abs(change))} {more if change >= 0 else less}"


def _between(trend: Trend, low: float, high: float) -> str:
    """`14% to 23% slower`; bounds of both signs each with its word."""
    if low < 0 < high:
        return f"{_by(trend, low)} to {_by(trend, high)}"
    near, far = sorted((abs(low), abs(high)))
    more, less = _WORDS[trend.unit]
    return f"{_size(trend, near)} to {_size(trend, far)} {more if high > 0 else less}"


def _size(trend: Trend, size: float) -> str:
    """How much more or less: `18%`, `25 times`, or the number itself."""
    if trend.unit == "count":
        return number_text(size)
    if trend.unit == "share":
        return number_text(size * 100)
    return format_percent(size) if size < 10 else f"{size + 1:.3g} times"


def _odds(chance: float) -> str:
    if chance < 1e-6:
        return "less than 1 of 1,000,000 histories"
    return f"1 of {round(1 / chance):,} histories"


def _plot(trend: Trend, width: int) -> list[str]:
    values = [point.value for point in trend.points]
    levels = [level.typical for level in trend.levels]
    low, high = scale_of(values, levels)
    factor, suffix, unit = trend_scale(trend, high)
    lines = [
        LevelLine(level.first, level.first + level.runs - 1, level.typical * factor)
        for level in trend.levels
        if trend.drift is None
    ]
    rows = plot(
        [value * factor for value in values],
        width=width,
        height=TextLimits.trend_plot_height,
        unit=f" {unit}" if trend.unit == "money" and unit else suffix,
        lines=lines,
        marks=[change.at for change in trend.changes],
    )
    outside = [value for value in values if not low <= value <= high]
    if outside:
        far = trend_value(trend, max(outside, key=lambda value: abs(value - high)))
        rows.append(f"Off the scale: {plural(len(outside), 'run')}, up to {far}.")
    return rows


def _levels(trend: Trend) -> Section:
    show = partial(trend_value, trend)
    points, changes = trend.points, [None, *trend.changes]
    typical = "Median" if _is_relative(trend) else "Mean"
    return table_section(
        "Levels",
        enumerate(trend.levels) if trend.changes else (),
        f"run From run, started <Started, commit <Commit, runs Runs, typical {typical}, range p5 to p95, "
        "change Change, step Step",
        dispensable=("Started", "p5 to p95", "Commit"),
        run=lambda item: points[item[1].first].run_id,
        started=lambda item: _minute(points[item[1].first].start_time),
        commit=lambda item: _commit(points[item[1].first]),
        typical=lambda item: show(item[1].typical),
        range=lambda item: f"{show(item[1].p05)} to {show(item[1].p95)}",
        change=lambda item: known((change := changes[item[0]]) and change.change, partial(_signed, trend)),
        step=lambda item: str(item[0] or ""),
    )


def _newest(trend: Trend) -> Section:
    return table_section(
        "Newest runs",
        trend.points[: -TextLimits.max_newest_runs - 1 : -1],
        "run_id Run, started <Started, commit <Commit, value Value, off To its level",
        dispensable=("Started", "Commit"),
        started=lambda point: _minute(point.start_time),
        commit=_commit,
        value=lambda point: trend_value(trend, point.value),
        off=partial(_off, trend),
    )


def _off(trend: Trend, point: TrendPoint) -> str:
    """How far a run is off its level; nothing where there is none to speak of."""
    usual, relative = trend.levels[point.level].typical, _is_relative(trend)
    if trend.drift is not None or (relative and usual <= 0):
        return ""
    return _signed(trend, point.value / usual - 1.0 if relative else point.value - usual)


def _is_relative(trend: Trend) -> bool:
    """Whether changes are shares of the value; of shares and counts they are differences."""
    return trend.unit not in {"share", "count"}


def _signed(trend: Trend, change: float) -> str:
    if _is_relative(trend) and abs(change) < 0.0005:
        change = 0.0
    sign = "+" if change > 0 else "-" if change < 0 else "±"
    points = " points" if trend.unit == "share" else ""
    if _is_relative(trend) and change >= 10:
        return _size(trend, change)
    return f"{sign}{_size(trend, abs(change))}{points}"


def left_out_text(trend: Trend) -> str:
    """Which runs are left out, in a sentence; empty where none is."""
    if not trend.left_out:
        return ""
    found = ", ".join(f"{number:,} {clean(reason)}" for reason, number in sorted(trend.left_out.items()))
    why = (
        " A run has none if it was killed, or its files cannot be read."
        if "without a summary" in trend.left_out
        else ""
    )
    return f"Runs left out: {found}.{why}"
