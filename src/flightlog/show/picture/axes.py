"""The axes of a figure: ranges, ticks, titles and grid, as the layout says."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from flightlog.show.picture.fonts import Lettering

_TICKS = 8
_NAMES_PX, _TICK_PX, _LETTER_PX = 150, 48, 7.4
"""What the names of rows, the text of a tick and a letter take, about."""


class Places(NamedTuple):
    """Where the categories of an axis lie; empty for an axis of numbers."""

    x: dict[str, int]
    y: dict[str, int]

    def on(self, side: str, values: list[Any]) -> list[Any]:
        """Values as numbers; None where there is nothing to draw."""
        known = self.x if side == "x" else self.y
        return [known.get(value) for value in values] if known else list(values)


def draw_axes(axes: Any, layout: dict[str, Any], lettering: Lettering, width_px: int) -> Places:
    """Set both axes up; before anything is drawn on them."""
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_facecolor("none")
    axes.set_axisbelow(True)
    places = Places(_categories(layout["xaxis"]), _categories(layout["yaxis"]))
    for side in ("x", "y"):
        _draw_axis(axes, side, layout[f"{side}axis"], lettering, max(width_px - _NAMES_PX, _TICK_PX))
    axes.set_autoscale_on(False)
    return places


def _categories(axis: dict[str, Any]) -> dict[str, int]:
    return {name: n for n, name in enumerate(axis["categoryarray"])} if axis.get("type") == "category" else {}


def _draw_axis(axes: Any, side: str, axis: dict[str, Any], lettering: Lettering, room_px: int) -> None:
    from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, MaxNLocator, NullLocator

    both = axes.xaxis if side == "x" else axes.yaxis
    ends = low, high = axis.get("range", (0, 1))
    if axis.get("type") == "log":
        (axes.set_xscale if side == "x" else axes.set_yscale)("log")
        low, high = 10.0**low, 10.0**high
    (axes.set_xlim if side == "x" else axes.set_ylim)(low, high)
    categories = list(_categories(axis))
    values = axis.get("tickvals", categories or None)
    if values is not None:
        texts = [lettering.text(str(text)) for text in axis.get("ticktext", values)]
        places = [categories.index(value) for value in values] if categories else list(values)
        if side == "x":
            across = [math.log10(place) for place in places] if axis.get("type") == "log" else places
            kept, texts = apart(across, texts, ends[0], ends[1], room_px)
            places = [places[across.index(place)] for place in kept]
        both.set_major_locator(FixedLocator(places))
        both.set_major_formatter(FixedFormatter(texts))
    else:
        suffix = lettering.text(axis.get("ticksuffix", ""))
        most = max(2, room_px // _TICK_PX) if side == "x" else _TICKS
        both.set_major_locator(
            MaxNLocator(nbins=min(most, int(axis.get("nticks", _TICKS))), steps=[1, 2, 5, 10])
        )
        both.set_major_formatter(FuncFormatter(lambda value, _: f"{_number(value)}{suffix}"))
    both.set_minor_locator(NullLocator())
    both.set_tick_params(length=0, pad=5, labelcolor=lettering.color)
    for label in both.get_ticklabels():
        label.set(**lettering.style())
    if axis.get("showgrid", True):
        both.grid(True, color=axis.get("gridcolor", "#e2e2e2"), linewidth=0.8)
    title = (axis.get("title") or {}).get("text")
    if title:
        both.set_label_text(lettering.text(title), **lettering.style(13))


def apart(
    places: list[float], texts: list[str], low: float, high: float, room_px: float
) -> tuple[list[float], list[str]]:
    """The ticks whose texts do not lie over those before, on an axis so long from `low` to `high`."""
    kept, free = [], -math.inf
    for place, text in zip(places, texts, strict=True):
        middle, half = (place - low) / ((high - low) or 1.0) * room_px, (_LETTER_PX * len(text) + 10) / 2
        if middle - half >= free:
            kept.append((place, text))
            free = middle + half
    return [place for place, _ in kept], [text for _, text in kept]


def _number(value: float) -> str:
    text = f"{value:,.10g}" if abs(value) < 1e15 else f"{value:.3g}"
    return "0" if text == "-0" else text
