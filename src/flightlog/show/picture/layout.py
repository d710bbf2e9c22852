"""The layout of a picture: title, notes, legend, axes, ticks and fonts.

Texts are wrapped to the width of the picture, and the picture is as high as they need: nothing lies over
anything else.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

from flightlog.show.figures.style import plain_back
from flightlog.show.terminal import fit, width_of, wrap

EDGE_PX = 10
LINE_PX = 18
AXIS_PX = 50
LEAST_PLOT_PX = 20
_BOLD_PX, _LETTER_PX, _KEY_PX = 8.6, 7.6, 46
"""What a letter takes on average, and a key of the legend beside its letters."""


class SheetPlan(NamedTuple):
    """What stands around the plot, in lines that fit."""

    title: list[str]
    notes: list[str]
    legend: list[str]
    columns: int
    plot_px: float
    axis_px: float
    """What the texts of the axis at the bottom take."""

    @property
    def head_px(self) -> float:
        """What the title and the notes take."""
        lines = len(self.title) + len(self.notes)
        return LINE_PX * lines + EDGE_PX if lines else 0

    @property
    def foot_px(self) -> float:
        """What the legend takes."""
        return LINE_PX * math.ceil(len(self.legend) / self.columns) + EDGE_PX if self.legend else 0

    @property
    def height_px(self) -> int:
        """How high the picture is with a plot as high as the figure asks for."""
        return math.ceil(self.head_px + max(self.plot_px, LEAST_PLOT_PX) + self.axis_px + self.foot_px)

    @property
    def least_px(self) -> int:
        """How high it must be for anything to be seen of the plot."""
        return math.ceil(self.head_px + min(self.plot_px, 3 * LEAST_PLOT_PX) + self.axis_px + self.foot_px)

    def draw(self, sheet: Any, keys: list[Any], lettering: Lettering, width_px: int, height_px: int) -> None:
        """Write the texts onto the sheet, and leave the plot the place between them; `keys` are the
        legend's.
        """
        foot, head = self.foot_px / height_px, self.head_px / height_px
        sheet.get_layout_engine().set(rect=(0, foot, 1, max(1 - foot - head, 0.01)))
        for number, line in enumerate((*self.title, *self.notes)):
            sheet.text(
                EDGE_PX / width_px,
                1 - (0.6 * EDGE_PX + LINE_PX * number) / height_px,
                line,
                va="top",
                in_layout=False,
                fontweight="bold" if number < len(self.title) else "normal",
                **lettering.style(),
            )
        if keys:
            shown = sheet.legend(
                keys,
                self.legend,
                loc="lower left",
                frameon=False,
                ncols=self.columns,
                borderaxespad=0.2,
                handlelength=1.4,
                columnspacing=1.4,
                prop={"family": lettering.family, "size": lettering.style()["fontsize"]},
                labelcolor=lettering.color,
            )
            shown.set_in_layout(False)


def plan(traces: list[Any], layout: dict[str, Any], lettering: Lettering, width_px: int) -> SheetPlan:
    """What stands on a sheet so wide."""
    room = width_px - 2 * EDGE_PX
    title = lettering.text((layout.get("title") or {}).get("text", "").replace("<br>", " "))
    notes = [
        lettering.text(note.replace("<br>", " "))
        for annotation in layout.get("annotations", ())
        for note in annotation["text"].split("</i><br>")
    ]
    names = [lettering.text(trace["name"]) for trace in traces if in_legend(trace, layout)]
    widest = int((room - _KEY_PX) / _LETTER_PX)
    names = [fit(name, widest) for name in names]
    longest = max(map(width_of, names), default=1)
    fitting = int(room / (_LETTER_PX * longest + _KEY_PX))
    margin = layout["margin"]
    return SheetPlan(
        title=_lines([title] if title else [], int(room / _BOLD_PX)),
        notes=_lines(notes, int(room / _LETTER_PX)),
        legend=names,
        columns=max(1, min(fitting, len(names))),
        plot_px=layout["height"] - margin["t"] - margin["b"],
        axis_px=AXIS_PX if layout["xaxis"].get("visible", True) else EDGE_PX,
    )


def in_legend(trace: Any, layout: dict[str, Any]) -> bool:
    """Whether the legend has a line for a trace."""
    return bool(layout.get("showlegend") and trace.get("showlegend", True) and trace.get("name"))


def _lines(texts: list[str], columns: int) -> list[str]:
    return [fit(line, columns) for text in texts for line in wrap(text, columns)]


FAMILY = "DejaVu Sans"
_UNKNOWN = "\N{REPLACEMENT CHARACTER}"
_POINT_PX = 72 / 100


class Lettering:
    """Texts of a figure as they are seen, in one colour."""

    family = FAMILY

    def __init__(self, color: str) -> None:
        self.color = color

    def text(self, text: str) -> str:
        """A text of a figure without its markup; what the font lacks is a replacement character."""
        seen = plain_back(text)
        if seen.isascii():
            return seen
        known = _characters()
        return "".join(c if c == "\n" or ord(c) in known else _UNKNOWN for c in seen)

    def style(self, size_px: float = 12) -> dict[str, Any]:
        """What every text is drawn with."""
        return {"fontfamily": FAMILY, "fontsize": size_px * _POINT_PX, "color": self.color}


@cache
def _characters() -> frozenset[int]:
    from matplotlib.font_manager import findfont, get_font

    return frozenset(get_font(findfont(FAMILY)).get_charmap())


_TICKS = 8
_NAMES_PX, _TICK_PX, _TICK_LETTER_PX = 150, 48, 7.4
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
        middle, half = (place - low) / ((high - low) or 1.0) * room_px, (_TICK_LETTER_PX * len(text) + 10) / 2
        if middle - half >= free:
            kept.append((place, text))
            free = middle + half
    return [place for place, _ in kept], [text for _, text in kept]


def _number(value: float) -> str:
    text = f"{value:,.10g}" if abs(value) < 1e15 else f"{value:.3g}"
    return "0" if text == "-0" else text
