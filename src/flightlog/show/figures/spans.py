"""Spans inside spans as an icicle: each as wide as the time it and all inside it took."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from flightlog.show.figures.axes import duration_text
from flightlog.show.figures.style import OTHER, colors_of, ink_on, make_figure
from flightlog.show.figures.text import name_text
from flightlog.show.phrases import count_text

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from flightlog.analyze.tree import SpanNode, SpanTree

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
                "parents": ["" if _above(key) is None else ids[_above(key)] for key in order],  # type: ignore[index]
                "values": [inside[key] for key in order],
                "branchvalues": "total",
                "sort": True,
                "leaf": {"opacity": 1},
                "tiling": {"orientation": "v"},
                "textinfo": "label",
                "pathbar": {"visible": False},
                "marker": {
                    "colors": paint,
                    "line": {"width": 1, "color": "rgba(255,255,255,0.6)"},
                },
                "textfont": {"color": [ink_on(color) for color in paint]},
                "customdata": [_facts(key, nodes[key], inside[key], whole) for key in order],
                "hovertemplate": "%{customdata}<extra></extra>",
            }
        ],
        x={"visible": False},
        y={"visible": False},
        notes=[f"{count_text(left, 'more path')} with less time not drawn."] if left > 0 else [],
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
    errors = f", {count_text(node.errors, 'error')}" if node.errors else ""
    still = f", {node.open:,} still open" if node.open else ""
    return (
        f"{text}<br>{count_text(node.count, 'span')}{errors}{still}<br>{duration_text(node.self_s)} by "
        "itself, "
        f"{duration_text(node.wall_s)} on the clock"
    )
