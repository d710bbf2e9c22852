"""Figures of parts of a whole: critical path, worker time, cost, and spans as an icicle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flightlog.core.text import plural
from flightlog.core.units import format_percent
from flightlog.show.figures.style import (
    BAD,
    HOVER,
    OTHER,
    PALETTE,
    QUIET,
    WARN,
    Scale,
    amount_axis,
    apart,
    bars,
    colors_of,
    duration_text,
    ink_on,
    make_figure,
    name_text,
    plain,
    time_scale,
)
from flightlog.show.phrases import money_text
from flightlog.show.report_sections import link_name

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from flightlog.analyze.cost.cost import CostSplit
    from flightlog.analyze.report.critical_path import CriticalPath
    from flightlog.analyze.report.spans import SpanNode, SpanTree
    from flightlog.analyze.report.time_shares import Shares, TimeSplit

LINKS = 12
WORKERS = 30
"""How many parts of the chain, and how many workers, have a row."""
_KINDS = {"wait": WARN, "startup": "#bb8866", "program": QUIET}
_TIME = (
    ("run_s", "completed work", PALETTE[0]),
    ("unfinished_s", "in flight", "#0088ff"),
    ("failed_s", "failed work", BAD),
    ("transfer_s", "transfer", PALETTE[2]),
    ("scheduler_s", "scheduling overhead", WARN),
    ("startup_s", "worker start-up", "#bb8866"),
    ("idle_s", "idle", QUIET),
)
_COST = (
    ("useful", "useful work", PALETTE[0]),
    ("unfinished", "in flight", "#0088ff"),
    ("retried", "retried", WARN),
    ("failed", "failed work", BAD),
    ("starting", "worker start-up", "#bb8866"),
    ("idle", "idle", QUIET),
)


def critical_figure(path: CriticalPath, *, colors: Mapping[str, str] | None = None) -> Figure | None:
    """What set the wall time, the longest parts first; None where the chain is empty."""
    parts = [part for part in path.parts if part.seconds > 0]
    if not parts:
        return None
    if colors is None:
        colors = colors_of(part.name for part in parts if part.kind in {"task", "span"})
    shown, rest = parts[:LINKS], parts[LINKS:]
    labels = [plain(link_name(part.kind, part.name[:200]), 44) for part in shown]
    lengths = [part.seconds for part in shown]
    paint = [_KINDS.get(part.kind) or colors.get(part.name, OTHER) for part in shown]
    facts = [
        f"<b>{label}</b><br>{duration_text(part.seconds)}, {_percent(part.share)} of the wall time, in "
        + plural(part.links, "segment")
        + (f"<br>max. saving {duration_text(part.saves_s)}" if part.saves_s is not None else "")
        for label, part in zip(labels, shown, strict=True)
    ]
    texts = [f"{duration_text(part.seconds)} ({_percent(part.share)})" for part in shown]
    if rest:
        labels.append(f"{len(rest):,} shorter parts")
        lengths.append(sum(part.seconds for part in rest))
        paint.append(OTHER)
        texts.append(f"{duration_text(lengths[-1])} ({_percent(sum(part.share for part in rest))})")
        facts.append(f"{labels[-1]}: {texts[-1]}")
    scale = time_scale(max(lengths))
    return make_figure(
        [row_bars(labels, scale.of(lengths), paint, facts, texts)],
        x=amount_axis(f"time on the critical path, {scale.words}", scale, [0, 1.22 * max(lengths)]),
        y=rows_axis(labels),
        plot_px=26 * len(labels),
        bargap=0.25,
    )


def cost_figure(split: CostSplit) -> Figure | None:
    """What the workers' time was paid for, a bar a part; None where it cost nothing."""
    found = [
        (label, getattr(split, field), color) for field, label, color in _COST if getattr(split, field) > 0
    ]
    if split.total <= 0 or not found:
        return None
    labels, amounts = [label for label, _, _ in found], [amount for _, amount, _ in found]
    texts = [
        plain(f"{money_text(amount, split.currency[:12])} ({format_percent(amount / split.total)})")
        for amount in amounts
    ]
    facts = [f"{label}: {text}" for label, text in zip(labels, texts, strict=True)]
    money = Scale(1.0, "", plain(split.currency, 12))
    return make_figure(
        [row_bars(labels, amounts, [color for _, _, color in found], facts, texts)],
        x=amount_axis(f"cost in {money.words}", money, [0, 1.25 * max(amounts)], nticks=7),
        y=rows_axis(labels),
        plot_px=28 * len(labels),
        bargap=0.25,
    )


def shares_figure(shares: Shares) -> Figure | None:
    """Where the time went, in shares of it: all workers in the first row, then each; None where no time
    passed.
    """
    rows: list[tuple[str, TimeSplit]] = [
        (f"all {shares.workers:,} workers" if shares.workers > 1 else "whole run", shares.whole)
    ]
    if shares.basis == "workers" and len(shares.by_worker) > 1:
        rows += [(name_text(name, 28), split) for name, split in list(shares.by_worker.items())[:WORKERS]]
    rows = [(label, split) for label, split in rows if split.total_s > 0]
    if not rows:
        return None
    labels = apart([label for label, _ in rows])
    traces = []
    for field, name, color in _TIME:
        seconds = [getattr(split, field) or 0.0 for _, split in rows]
        if any(seconds):
            facts = [
                f"<b>{label}</b>: {name}<br>{duration_text(part)}, {_percent(part / split.total_s)}"
                for part, label, (_, split) in zip(seconds, labels, rows, strict=True)
            ]
            shares_of = [100 * part / split.total_s for part, (_, split) in zip(seconds, rows, strict=True)]
            traces.append(bars(labels, shares_of, {"color": color}, facts, name=name))
    more = len(shares.by_worker) - WORKERS if shares.basis == "workers" else 0
    of = "worker time" if shares.basis == "workers" else "wall time"
    return make_figure(
        traces,
        x={"title": {"text": f"share of {of}"}, "ticksuffix": "%", "range": [0, 100.5], "fixedrange": True},
        y=rows_axis(labels),
        notes=[f"The {WORKERS} busiest of {len(shares.by_worker):,} workers."] if more > 0 else [],
        plot_px=max(20, min(28, 600 // len(labels))) * len(labels),
        barmode="stack",
        bargap=0.2,
        legend=True,
    )


def _percent(share: float) -> str:
    """A share for Plotly: `<0.1%` begins as a tag does."""
    return plain(format_percent(share))


def row_bars(
    labels: Sequence[str],
    values: Sequence[float],
    paint: Sequence[str],
    facts: Sequence[str],
    texts: Sequence[str],
    **more: Any,
) -> dict[str, Any]:
    """Bars with a colour and a text each."""
    beside = {"text": list(texts), "textposition": "outside", "cliponaxis": False}
    return bars(apart(labels), values, {"color": list(paint)}, facts, **beside, **more)


def rows_axis(labels: Sequence[str]) -> dict[str, Any]:
    """An axis of rows, the first at the top."""
    names = apart(labels)
    return {
        "type": "category",
        "categoryorder": "array",
        "categoryarray": names,
        "range": [len(names) - 0.5, -0.5],
        "fixedrange": True,
        "showgrid": False,
    }


SHOWN = 300
DEEPEST = 40
"""How many paths are drawn, the longest first, and how many names deep."""

Key = tuple[str | None, tuple[str, ...]]


def spans_figure(tree: SpanTree, *, colors: Mapping[str, str] | None = None) -> Figure | None:
    """The tree from the top: all, tasks, then spans in them; None where no span took any time."""
    chosen = sorted(
        (node for node in tree.nodes if node.busy_s > 0 and len(node.path) <= DEEPEST),
        key=lambda node: (-node.busy_s, len(node.path)),
    )[:SHOWN]
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
        colors = colors_of(node.path[-1] for node in chosen)
    order = sorted(nodes, key=lambda key: (len(key[1]) + (key[0] is not None), -inside[key]))
    ids = {key: str(number) for number, key in enumerate(order)}
    whole = inside[None, ()]
    paint = [colors.get(key[1][-1], OTHER) if key[1] else OTHER for key in order]
    depth = max(len(key[1]) + (key[0] is not None) for key in order)
    left = len(tree.nodes) - len(chosen) + max(0, tree.paths - len(tree.nodes))
    return make_figure(
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
                "textfont": {"color": [ink_on(color) for color in paint]},
                "customdata": [_facts(key, nodes[key], inside[key], whole) for key in order],
                "hovertemplate": HOVER,
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
