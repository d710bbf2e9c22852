"""Figures of rows: parts of a whole (critical path, worker time, cost), the comparison of two runs, durations
by name, and spans as an icicle.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from flightlog.core.text import plural
from flightlog.core.units import format_percent
from flightlog.show.figures import style
from flightlog.show.figures.style import Scale, duration_text, name_text, plain
from flightlog.show.limits import FigureLimits
from flightlog.show.phrases import money_text
from flightlog.show.report_sections import PAID_FOR, TIME_PARTS, link_name

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from flightlog.analyze.charts.results import DurationSpread
    from flightlog.analyze.compare.results import Comparison
    from flightlog.analyze.cost.cost import CostSplit
    from flightlog.analyze.report.critical_path import CriticalPath
    from flightlog.analyze.report.spans import SpanNode, SpanTree
    from flightlog.analyze.report.time_shares import Shares, TimeSplit


_START_UP = "#bb8866"
_KINDS = {"wait": style.WARN, "startup": _START_UP, "program": style.QUIET}
_PARTS = {
    "Completed work": style.PALETTE[0],
    "Useful work": style.PALETTE[0],
    "In flight": "#0088ff",
    "Retried": style.WARN,
    "Failed work": style.BAD,
    "Transfer": style.PALETTE[2],
    "Scheduling overhead": style.WARN,
    "Worker start-up": _START_UP,
    "Idle": style.QUIET,
}
"""The colours of links of the critical path by kind, and of parts of time and cost by name."""


class BarRow(NamedTuple):
    """A bar with its text beside it; label, text and hover are safe."""

    label: str
    length: float
    color: str
    text: str
    hover: str
    base: float = 0.0


def _rows_figure(
    rows: Sequence[BarRow],
    title: str,
    scale: Scale,
    ends: Sequence[float],
    *,
    row_px: int = 28,
    nticks: int = 8,
) -> Figure:
    """A bar in each row, on an axis of amounts from one end to the other."""
    labels = style.unique_labels([row.label for row in rows])
    return style.make_figure(
        [
            style.bars(
                labels,
                scale.of(row.length for row in rows),
                {"color": [row.color for row in rows]},
                [row.hover for row in rows],
                text=[row.text for row in rows],
                textposition="outside",
                cliponaxis=False,
                **({"base": scale.of(row.base for row in rows)} if any(row.base for row in rows) else {}),
            )
        ],
        x=style.amount_axis(title, scale, ends, nticks=nticks),
        y=style.rows_axis(labels),
        plot_px=row_px * len(labels),
        bargap=0.25,
    )


def critical_figure(path: CriticalPath, *, colors: Mapping[str, str] | None = None) -> Figure | None:
    """What set the wall time, the longest parts first; None where the chain is empty."""
    parts = [part for part in path.parts if part.seconds > 0]
    if not parts:
        return None
    if colors is None:
        colors = style.colors_of(part.name for part in parts if part.kind in {"task", "span"})
    rows = []
    for part in parts[: FigureLimits.max_path_parts]:
        label = plain(link_name(part.kind, part.name[:200]), 44)
        took, share = duration_text(part.seconds), _percent(part.share)
        saves = f"<br>max. saving {duration_text(part.saves_s)}" if part.saves_s is not None else ""
        segments = plural(part.links, "segment")
        hover = f"<b>{label}</b><br>{took}, {share} of the wall time, in {segments}{saves}"
        color = _KINDS.get(part.kind) or colors.get(part.name, style.OTHER)
        rows.append(BarRow(label, part.seconds, color, f"{took} ({share})", hover))
    if rest := parts[FigureLimits.max_path_parts :]:
        label, seconds = f"{len(rest):,} shorter parts", sum(part.seconds for part in rest)
        text = f"{duration_text(seconds)} ({_percent(sum(part.share for part in rest))})"
        rows.append(BarRow(label, seconds, style.OTHER, text, f"{label}: {text}"))
    longest = max(row.length for row in rows)
    scale = style.time_scale(longest)
    title = f"time on the critical path, {scale.words}"
    return _rows_figure(rows, title, scale, [0, 1.22 * longest], row_px=26)


def cost_figure(split: CostSplit) -> Figure | None:
    """What the workers' time was paid for, one bar per part; None where it cost nothing."""
    rows = []
    for part, name in PAID_FOR.items():
        amount, label = getattr(split, part), name.lower()
        if amount > 0 and split.total > 0:
            share = format_percent(amount / split.total)
            text = plain(f"{money_text(amount, split.currency[:12])} ({share})")
            rows.append(BarRow(label, amount, _PARTS[name], text, f"{label}: {text}"))
    if not rows:
        return None
    money = Scale(1.0, "", plain(split.currency, 12))
    most = max(row.length for row in rows)
    return _rows_figure(rows, f"cost in {money.words}", money, [0, 1.25 * most], nticks=7)


def shares_figure(shares: Shares) -> Figure | None:
    """Where the time went, in shares of it: all workers in the first row, then each; None where no time
    passed.
    """
    rows: list[tuple[str, TimeSplit]] = [
        (f"all {shares.workers:,} workers" if shares.workers > 1 else "whole run", shares.whole)
    ]
    most = FigureLimits.max_workers
    if shares.basis == "workers" and len(shares.by_worker) > 1:
        rows += [(name_text(name, 28), split) for name, split in list(shares.by_worker.items())[:most]]
    rows = [(label, split) for label, split in rows if split.total_s > 0]
    if not rows:
        return None
    labels = style.unique_labels([label for label, _ in rows])
    traces = []
    for part_of, title in TIME_PARTS.items():
        name, seconds = title.lower(), [getattr(split, f"{part_of}_s") or 0.0 for _, split in rows]
        if any(seconds):
            facts = [
                f"<b>{label}</b>: {name}<br>{duration_text(part)}, {_percent(part / split.total_s)}"
                for part, label, (_, split) in zip(seconds, labels, rows, strict=True)
            ]
            shares_of = [100 * part / split.total_s for part, (_, split) in zip(seconds, rows, strict=True)]
            traces.append(style.bars(labels, shares_of, {"color": _PARTS[title]}, facts, name=name))
    more = len(shares.by_worker) - most if shares.basis == "workers" else 0
    of = "worker time" if shares.basis == "workers" else "wall time"
    return style.make_figure(
        traces,
        x={"title": {"text": f"share of {of}"}, "ticksuffix": "%", "range": [0, 100.5], "fixedrange": True},
        y=style.rows_axis(labels),
        notes=[f"The {most} busiest of {len(shares.by_worker):,} workers."] if more > 0 else [],
        plot_px=max(20, min(28, 600 // len(labels))) * len(labels),
        barmode="stack",
        bargap=0.2,
        legend=True,
    )


def _percent(share: float) -> str:
    """A share for Plotly: `<0.1%` begins as a tag does."""
    return plain(format_percent(share))


_VERDICTS = {"slower": style.BAD, "faster": style.GOOD}
_SHAPES = {"slower": "triangle-right", "faster": "triangle-left"}


def comparison_figure(comparison: Comparison) -> Figure | None:
    """From the wall time before to the one after, one step per reason; None where one of them is unknown."""
    before, after = comparison.wall_s.before, comparison.wall_s.after
    if before is None or after is None:
        return None

    def row(label: str, length: float, color: str, sign: str = "", base: float = 0.0) -> BarRow:
        text = f"{sign}{duration_text(length)}"
        return BarRow(label, length, color, text, f"<b>{label}</b><br>{text}", base)

    rows, reached = [row("A, before", before, style.PALETTE[0])], before
    for what, seconds in _steps(comparison):
        color, sign = (style.BAD, "+") if seconds > 0 else (style.GOOD, "-")
        rows.append(row(plain(what, 40), abs(seconds), color, sign, min(reached, reached + seconds)))
        reached += seconds
    rows.append(row("B, after", after, style.PALETTE[0]))
    low, high = min(0.0, *(one.base for one in rows)), max(one.base + one.length for one in rows)
    scale = style.time_scale(high)
    room = [low, high + 0.16 * (high - low or 1.0)]
    return _rows_figure(rows, f"wall time, {scale.words}", scale, room)


def _steps(comparison: Comparison) -> list[tuple[str, float]]:
    explained = comparison.explained
    if explained is None:
        return []
    found = [(share.what, share.seconds) for share in explained.shares if share.seconds]
    rest = sum(seconds for _, seconds in found[FigureLimits.max_wall_shares :])
    steps = [*found[: FigureLimits.max_wall_shares], *([("smaller reasons", rest)] if rest else [])]
    if explained.not_explained_s:
        steps.append(("not explained", explained.not_explained_s))
    return steps


def ratios_figure(comparison: Comparison) -> Figure | None:
    """Ratio of each task's or span's duration after to before, with its 95 % CI; None where none is known."""
    rows = [
        change for change in comparison.durations if change.typical is not None and change.typical.ratio > 0
    ][: FigureLimits.max_compared_names]
    if not rows:
        return None
    labels = style.unique_labels(
        [name_text(change.name, 36) + (" (cached)" if change.cached else "") for change in rows]
    )
    traces: list[dict[str, Any]] = []
    ends = [1.0]
    for verdict in ("slower", "faster", ""):
        picked = [
            (label, change)
            for label, change in zip(labels, rows, strict=True)
            if (change.verdict if change.verdict in _VERDICTS else "") == verdict
        ]
        if not picked:
            continue
        found = [
            change.mean if change.by == "mean" and change.mean else change.typical for _, change in picked
        ]
        bounds = [
            (one.low or one.ratio, one.ratio, one.high or one.ratio) for one in found if one is not None
        ]
        ends += [value for one in bounds for value in one if value > 0]
        color = _VERDICTS.get(verdict, style.QUIET)
        error = {"type": "data", "symmetric": False, "thickness": 1.5, "width": 4, "color": color}
        error["array"] = [max(high - ratio, 0.0) for _, ratio, high in bounds]
        error["arrayminus"] = [max(ratio - low, 0.0) for low, ratio, _ in bounds]
        marker = {"symbol": _SHAPES.get(verdict, "circle"), "size": 10, "color": color}
        facts = [
            f"<b>{label}</b> {change.verdict}<br>{ratio:.3g} times, {low:.3g} to {high:.3g}"
            for (label, change), (low, ratio, high) in zip(picked, bounds, strict=True)
        ]
        ratios, names = [ratio for _, ratio, _ in bounds], [label for label, _ in picked]
        called = verdict or "no change, or inconclusive"
        traces.append(style.markers(ratios, names, marker, facts, name=called, error_x=error))
    return style.make_figure(
        traces,
        x=_ratio_axis(min(ends), max(ends)),
        y={**style.rows_axis(labels), "showgrid": True},
        plot_px=28 * len(labels),
        legend=True,
    )


def _ratio_axis(low: float, high: float) -> dict[str, Any]:
    steps = (
        *(power * step for power in (0.01, 0.1) for step in (1, 2, 5)),
        *(0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 3, 5, 10, 20, 50, 100, 1000),
    )
    low, high = min(low, 0.95) / 1.03, max(high, 1.05) * 1.03
    ticks = [step for step in steps if low <= step <= high]
    while len(ticks) > 9:
        at = ticks.index(1)
        ticks = ticks[at % 2 :: 2]
    return {
        "type": "log",
        "range": [math.log10(low), math.log10(high)],
        "tickvals": ticks,
        "ticktext": [f"{tick:g}×" for tick in ticks],  # noqa: RUF001 - the sign of multiplication
        "title": {"text": "duration after, in durations before (left of 1 is faster)"},
    }


_FULLEST_BIN = 0.8
"""Share of its row that the fullest bin takes."""
_MIN_DRAWN_S = 1e-9
_POINTS = (
    ("median_s", "median", "line-ns-open", 16),
    ("p95_s", "p95", "line-ns-open", 10),
    ("most_s", "longest", "diamond-open", 7),
)


def durations_figure(
    spreads: Sequence[DurationSpread], *, colors: Mapping[str, str] | None = None
) -> Figure | None:
    """A row for each name, in the order given, on an axis by powers; None where nothing took any time."""
    rows = [spread for spread in spreads if spread.count and spread.most_s > 0][: FigureLimits.max_durations]
    if not rows:
        return None
    colors = style.colors_of(spread.name for spread in spreads) if colors is None else colors
    paint = [colors.get(spread.name, style.OTHER) for spread in rows]
    traces: list[dict[str, Any]] = []
    for row, (spread, color) in enumerate(zip(rows, paint, strict=True)):
        if (shape := _shape(spread, row)) is not None:
            name = name_text(spread.name, 40)
            traces.append(style.filled(*shape, color, 0.45, width=1, showlegend=False, name=name))
    heights, facts = [row - 0.05 for row in range(len(rows))], [_spread_facts(spread) for spread in rows]
    for field, name, symbol, size in _POINTS:
        at = [max(getattr(spread, field), _MIN_DRAWN_S) for spread in rows]
        edge = {"width": 2.5 if field == "median_s" else 1.5, "color": paint}
        marker = {"symbol": symbol, "size": size, "color": paint, "line": edge}
        traces.append(style.markers(at, heights, marker, facts, name=name, showlegend=True))
    values = [max(value, _MIN_DRAWN_S) for s in rows for value in (s.least_s, s.median_s, s.most_s)]
    left_out = len([spread for spread in spreads if spread.count]) - len(rows)
    return style.make_figure(
        traces,
        x=style.duration_axis(values, "execution time (logarithmic)"),
        y={
            "range": [len(rows) - 0.35, -1.0],
            "tickvals": list(range(len(rows))),
            "fixedrange": True,
            "ticktext": [f"{name_text(spread.name, 28)} ({spread.count:,})" for spread in rows],
            "showgrid": True,
        },
        notes=[f"{left_out:,} more names are not drawn."] if left_out > 0 else [],
        plot_px=20 + 44 * len(rows),
        legend=True,
    )


def _shape(spread: DurationSpread, row: int) -> tuple[list[float], list[float]] | None:
    """The outline of the histogram over the row's base line; None where all took the same time."""
    full = max(spread.counts, default=0)
    if not full or len(spread.edges_s) != len(spread.counts) + 1 or spread.least_s == spread.most_s:
        return None
    positive = [edge for edge in spread.edges_s if edge > 0]
    floor = max(_MIN_DRAWN_S, positive[0] / 2 if positive else _MIN_DRAWN_S)
    x, y = [max(spread.edges_s[0], floor)], [float(row)]
    for number, count in enumerate(spread.counts):
        high = row - _FULLEST_BIN * count / full
        x += [max(spread.edges_s[number], floor), max(spread.edges_s[number + 1], floor)]
        y += [high, high]
    return [*x, x[-1]], [*y, float(row)]


def _spread_facts(spread: DurationSpread) -> str:
    return (
        f"<b>{name_text(spread.name, 40)}</b><br>{spread.count:,} tasks, {duration_text(spread.total_s)} in "
        f"all<br>median {duration_text(spread.median_s)}, p95 {duration_text(spread.p95_s)}<br>shortest "
        f"{duration_text(spread.least_s)}, longest {duration_text(spread.most_s)}"
    )


Key = tuple[str | None, tuple[str, ...]]


def spans_figure(tree: SpanTree, *, colors: Mapping[str, str] | None = None) -> Figure | None:
    """The tree from the top: all, tasks, then spans in them; None where no span took any time."""
    chosen = sorted(
        (node for node in tree.nodes if node.busy_s > 0 and len(node.path) <= FigureLimits.max_span_depth),
        key=lambda node: (-node.busy_s, len(node.path)),
    )[: FigureLimits.max_span_paths]
    if not chosen:
        return None
    nodes: dict[Key, SpanNode | None] = {(None, ()): None}
    for node in sorted(chosen, key=lambda node: len(node.path)):
        for depth in range(len(node.path)):
            nodes.setdefault((node.task, tuple(node.path[:depth])), None)
        nodes[node.task, tuple(node.path)] = node
    inside: dict[Key, float] = {}
    for key in sorted(nodes, key=lambda key: (-len(key[1]), key[0] is None)):
        found, within = nodes[key], inside.get(key, 0.0)
        inside[key] = max(within, found.busy_s) if found is not None else within
        above = _above(key)
        if above is not None:
            inside[above] = inside.get(above, 0.0) + inside[key]
    if colors is None:
        colors = style.colors_of(node.path[-1] for node in chosen)
    order = sorted(nodes, key=lambda key: (len(key[1]) + (key[0] is not None), -inside[key]))
    ids = {key: str(number) for number, key in enumerate(order)}
    whole = inside[None, ()]
    paint = [colors.get(key[1][-1], style.OTHER) if key[1] else style.OTHER for key in order]
    depth = max(len(key[1]) + (key[0] is not None) for key in order)
    left = len(tree.nodes) - len(chosen) + max(0, tree.paths - len(tree.nodes))
    return style.make_figure(
        [
            {
                "type": "icicle",
                "ids": [ids[key] for key in order],
                "labels": [_label(key) for key in order],
                "parents": ["" if (above := _above(key)) is None else ids[above] for key in order],
                "values": [inside[key] for key in order],
                "branchvalues": "total",
                "sort": True,
                "leaf": {"opacity": 1},
                "tiling": {"orientation": "v"},
                "textinfo": "label",
                "pathbar": {"visible": False},
                "marker": {"colors": paint, "line": {"width": 1, "color": "rgba(255,255,255,0.6)"}},
                "textfont": {"color": [style.ink_on(color) for color in paint]},
                "customdata": [_facts(key, nodes[key], inside[key], whole) for key in order],
                "hovertemplate": style.HOVER,
            }
        ],
        x={"visible": False},
        y={"visible": False},
        notes=[f"{plural(left, 'more path')} with less time not drawn."] if left > 0 else [],
        plot_px=min(600, 34 * (depth + 1)),
    )


def _above(key: Key) -> Key | None:
    task, path = key
    if path:
        return task, path[:-1]
    return None if task is None else (None, ())


def _label(key: Key) -> str:
    task, path = key
    if path:
        return name_text(path[-1], 40)
    return "all spans" if task is None else f"in task {name_text(task, 34)}"


def _facts(key: Key, node: SpanNode | None, seconds: float, whole: float) -> str:
    text = f"<b>{_label(key)}</b><br>{duration_text(seconds)}, {seconds / whole:.1%} of all"
    if node is None:
        return text
    errors = f", {plural(node.errors, 'error')}" if node.errors else ""
    still = f", {node.open:,} still open" if node.open else ""
    return (
        f"{text}<br>{plural(node.count, 'span')}{errors}{still}<br>{duration_text(node.self_s)} by itself, "
        f"{duration_text(node.wall_s)} of wall time"
    )
