"""The small plots of a report in a terminal: tasks at once, CPU and memory over time, and how long tasks
took.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from flightlog.show.live_tables import brief
from flightlog.show.phrases import count_text
from flightlog.show.small_plots import half, levels_line, plot_over_time, side_by_side, summed, unit_label
from flightlog.show.terminal import fit, pad, width_of
from flightlog.units import format_bytes, format_count, format_duration, format_percent

if TYPE_CHECKING:
    from flightlog.analyze.drawn.results import Chart
    from flightlog.analyze.glance import Durations, Glance
    from flightlog.analyze.report import Report

FEWEST = 3
"""Points that make a line worth drawing."""
NAME = 16
"""Columns of a task's name beside its histogram."""


def report_plots(report: Report, glance: Glance, *, width: int, ascii_only: bool = False) -> list[str]:
    """Lines, none wider than `width`; at most fourteen, and none where there is nothing to draw."""
    each = half(width)
    return side_by_side(
        [
            _at_once(report, each, ascii_only),
            _durations(glance.durations, each, ascii_only),
            _cpu(report, glance.cpu, each, ascii_only),
            _memory(report, glance.memory, each, ascii_only),
        ],
        width=width,
    )


def _at_once(report: Report, width: int, ascii_only: bool) -> list[str]:
    found = report.concurrency
    if found is None:
        return []
    figures = f"mean {found.mean:.1f}, peak {format_count(found.peak)}"
    highest = max(found.running, default=0.0)
    return plot_over_time(
        _fitting(width, f"Tasks at once: {figures}", f"At once: {figures}"),
        found.running,
        top=math.ceil(highest) if highest > 1 else None,
        length_s=found.bucket_s * len(found.running),
        label=lambda value: format_count(round(value, 1)),
        width=width,
        ascii_only=ascii_only,
    )


def _cpu(report: Report, chart: Chart | None, width: int, ascii_only: bool) -> list[str]:
    node = report.resources.node
    if chart is None or node is None or not _worth(chart):
        return []
    mean, most = (_percent(value) for value in (node.cpu_percent.mean, node.cpu_percent.max))
    figures = f"mean {mean}, peak {most}"
    title = _fitting(width, f"CPU{_of(chart)}: {figures}", f"CPU: {figures}")
    return _machines(title, chart, summed(chart, 2 * width), 100.0, width, ascii_only)


def _memory(report: Report, chart: Chart | None, width: int, ascii_only: bool) -> list[str]:
    """Of one machine with the figures of the report; of several, which it has no sum of, with that of the
    plot.
    """
    node = report.resources.node
    if chart is None or node is None or not _worth(chart):
        return []
    values = summed(chart, 2 * width)
    top = max(value for value in values if value is not None)
    if len(chart.series) == 1:
        of = f" of {format_bytes(node.memory_total_bytes)}" if node.memory_total_bytes else ""
        top = max(top, node.memory_peak_bytes or 0)
        peak = f"Memory: peak {format_bytes(node.memory_peak_bytes)}"
        title = _fitting(width, f"{peak}{of}", peak)
    else:
        peak = f"peak {format_bytes(top)} in all"
        title = _fitting(width, f"Memory{_of(chart)}: {peak}", f"Memory: {peak}")
    return _machines(title, chart, values, top, width, ascii_only)


def _fitting(width: int, *titles: str) -> str:
    """The first title there is room for, or the last one cut."""
    return next((title for title in titles if width_of(title) <= width), fit(titles[-1], width))


def _worth(chart: Chart) -> bool:
    return max(len(series.at_s) for series in chart.series) >= FEWEST


def _of(chart: Chart) -> str:
    return f" of {count_text(len(chart.series), 'machine')}" if len(chart.series) > 1 else ""


def _percent(value: float | None) -> str:
    return "unknown" if value is None else format_percent(value / 100)


def _machines(
    title: str, chart: Chart, values: Sequence[float | None], top: float, width: int, ascii_only: bool
) -> list[str]:
    return plot_over_time(
        title,
        values,
        length_s=chart.length_s,
        label=unit_label(chart),
        width=width,
        top=top,
        ascii_only=ascii_only,
    )


def _durations(durations: Durations | None, width: int, ascii_only: bool) -> list[str]:
    """A line for each name: how many took how long, the durations growing by a factor from left to right."""
    if durations is None or sum(map(sum, durations.counts.values())) < FEWEST:
        return []
    names = {name: brief(name, min(NAME, width // 3)) for name in durations.counts}
    margin = max(map(width_of, names.values())) + 1
    bins = len(durations.edges_s) - 1
    room = max(1, width - margin - 2)
    columns = max(1, room // bins) * bins if bins <= room else room
    lines = []
    for name, counts in durations.counts.items():
        line = levels_line(_stretched(counts, columns), ascii_only=ascii_only)
        lines.append(f"{pad(names[name], margin)} {line}".rstrip())
    low, high = (format_duration(edge) for edge in (durations.edges_s[0], durations.edges_s[-1]))
    dash = "-" if ascii_only else "─"
    floor = dash * max(1, columns - width_of(low) - width_of(high) - 2)
    axis = f"{' ' * margin} {low} {floor} {high}"
    title = _fitting(width, "How long tasks took (logarithmic)", "How long tasks took")
    return [title, *(fit(line, width) for line in [*lines, axis])]


def _stretched(counts: Sequence[int], columns: int) -> list[float]:
    """A count for each column: each several times over where there are fewer, sums of neighbours where there
    are more.
    """
    if columns >= len(counts):
        return [float(count) for count in counts for _ in range(columns // len(counts))]
    found = [0.0] * columns
    for number, count in enumerate(counts):
        found[number * columns // len(counts)] += count
    return found
