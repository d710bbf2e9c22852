"""A Plotly figure as PNG or SVG, drawn by Matplotlib, without a browser.

What is drawn is read from the Plotly figure, its traces and its layout, so the picture is the same figure.
Supported is only what our figures use: bars, lines and markers, heatmaps, icicles. Texts are wrapped to the
width of the picture, and its height follows from them: nothing overlaps.
"""

from __future__ import annotations

import io
import math
import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from flightlog.core.errors import MissingExtra, UsageError
from flightlog.core.text import cut
from flightlog.show.figures.style import DARK, EDGE, plain_back
from flightlog.show.limits import FigureLimits
from flightlog.show.terminal import fit, width_of, wrap

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MIN_WIDTH_PX = 300
"""Names of rows would take most of a narrower picture."""
MAX_SIDE_PX = 20_000
"""On a side, after scaling: beyond it no viewer opens a picture."""
_DPI = 100
_GROUNDS = {DARK["font.color"]: "#111111"}
_ONE_AT_A_TIME = threading.Lock()


def picture(
    figure: Figure,
    *,
    format: Literal["png", "svg"] = "png",  # noqa: A002 - the word for it
    width_px: int = FigureLimits.picture_width_px,
    height_px: int | None = None,
    scale: float = 2.0,
) -> bytes:
    """The picture's file. The same figure and the same Matplotlib give the same bytes.

    Without `height_px` it is as high as the figure, its legend and its texts need at this width. A PNG has
    `scale` pixels for each of them; an SVG has texts as outlines, so it needs no font. Uses no display and no
    state of `pyplot`; safe in any thread, one at a time. Raises `MissingExtra` where Matplotlib is not
    installed, `UsageError` for a size no picture has.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure as Sheet
    except ImportError as error:
        raise MissingExtra(
            f"pictures are drawn by Matplotlib, which is not installed ({error}): pip install "
            "flightlog[picture]"
        ) from error
    found = figure.to_dict()
    traces, layout = found["data"], found["layout"]
    ink = layout["font"]["color"]
    scale = scale if format == "png" else 1.0
    _check("width", width_px, MIN_WIDTH_PX, scale)
    planned = plan(traces, layout, width_px)
    full, least = max(planned.plot_px, MIN_PLOT_PX), min(planned.plot_px, 3 * MIN_PLOT_PX)
    height = planned.height_px(full) if height_px is None else height_px
    _check("height", height, planned.height_px(min(least, full)), scale)
    with _ONE_AT_A_TIME, _own_settings(ink), warnings.catch_warnings():
        # Too narrow for the names of its rows: drawn as it goes.
        warnings.filterwarnings("ignore", message="constrained_layout not applied")
        ground, size = _GROUNDS.get(ink, "#ffffff"), (width_px / _DPI, height / _DPI)
        sheet = Sheet(figsize=size, dpi=_DPI, facecolor=ground, layout="constrained")
        axes = sheet.add_subplot()
        if any(trace["type"] == "icicle" for trace in traces):
            draw_icicle(axes, traces[0], width_px)
            keys = []
        else:
            draw_axes(axes, layout, width_px)
            keys = draw_traces(sheet, axes, traces, layout)
        planned.draw(sheet, keys, width_px, height)
        out = io.BytesIO()
        if format == "png":
            FigureCanvasAgg(sheet)
            sheet.savefig(out, format="png", dpi=_DPI * scale, metadata={"Software": None})
        else:
            FigureCanvasSVG(sheet)
            sheet.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
        return out.getvalue()


def _check(name: str, side: int, least: int, scale: float) -> None:
    most = int(MAX_SIDE_PX / scale)
    if not least <= side <= most:
        raise UsageError(
            f"a {name} of {side:,} pixels is no size for this picture: name one from {least:,} to {most:,}"
        )


@contextmanager
def _own_settings(ink: str) -> Iterator[None]:
    """Matplotlib's defaults, whatever the user's settings, which are restored afterwards, and what every text
    is drawn with.
    """
    import matplotlib
    from matplotlib import style

    ours: Any = {  # Matplotlib has a type for each of hundreds of names
        "svg.hashsalt": "flightlog",
        "svg.fonttype": "path",
        "text.usetex": False,
        "text.parse_math": False,
        "figure.constrained_layout.h_pad": 0.06,
        "figure.constrained_layout.w_pad": 0.08,
        "font.family": FAMILY,
        **dict.fromkeys(_TEXT_SIZES, 12 * _POINT_PX),
        "axes.labelsize": 13 * _POINT_PX,
        **dict.fromkeys(_TEXT_COLORS, ink),
    }
    with style.context("default"), matplotlib.rc_context(ours):
        yield


_POINT_PX = 72 / 100
_TEXT_SIZES = ("font.size", "xtick.labelsize", "ytick.labelsize", "legend.fontsize")
_TEXT_COLORS = ("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor", "legend.labelcolor")
_SYMBOLS = {
    "x": "X",
    "circle": "o",
    "circle-open-dot": "o",
    "square": "s",
    "square-open": "s",
    "diamond": "D",
    "diamond-open": "D",
    "line-ns-open": "|",
    "triangle-up": "^",
    "triangle-left": "<",
    "triangle-right": ">",
}
_DASHES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
_RGBA = re.compile(r"rgba\((\d+),(\d+),(\d+),([\d.]+)\)")

Color = tuple[float, float, float, float]


def draw_traces(sheet: Any, axes: Any, traces: list[Any], layout: dict[str, Any]) -> list[Any]:
    """Draw all, in their order; the keys of those that the legend has."""
    stacked: dict[Any, float] | None = {} if layout.get("barmode") == "stack" else None
    keys: list[Any] = []
    for trace in traces:
        if trace["type"] == "bar":
            key = _bars(axes, trace, layout, stacked)
        elif trace["type"] == "heatmap":
            key = _heatmap(sheet, axes, trace, layout)
        else:
            key = _scatter(axes, trace, layout)
        if in_legend(trace, layout):
            keys.append(key)
    return keys


def color_of(text: str, opacity: float = 1.0) -> Color:
    """A colour as our figures write it, `#rrggbb` or `rgba(r,g,b,a)`."""
    found = _RGBA.fullmatch(text)
    if found:
        red, green, blue = (int(part) / 255 for part in found.groups()[:3])
        return red, green, blue, float(found[4]) * opacity
    red, green, blue = (int(text[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return red, green, blue, opacity


def _each(value: Any, count: int, default: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return list(value)
    return [default if value is None else value] * count


def _bars(axes: Any, trace: Any, layout: dict[str, Any], stacked: dict[Any, float] | None) -> Any:
    from matplotlib.collections import PolyCollection
    from matplotlib.patches import Patch

    rows, lengths = _on_axis(layout["yaxis"], trace["y"]), list(trace["x"])
    count = len(rows)
    bases = _each(trace.get("base"), count, 0.0)
    if stacked is not None:
        bases = [stacked.get(row, 0.0) for row in rows]
        for row, base, length in zip(rows, bases, lengths, strict=True):
            stacked[row] = base + length
    half = trace.get("width", 1 - layout.get("bargap", 0.2)) / 2
    colors, opacities = trace["marker"]["color"], trace["marker"].get("opacity")
    paint = list(map(color_of, _each(colors, count, ""), _each(opacities, count, 1.0)))
    corners = [
        [(base, row - half), (base + length, row - half), (base + length, row + half), (base, row + half)]
        for row, base, length in zip(rows, bases, lengths, strict=True)
    ]
    edge = trace["marker"].get("line") or {}
    widths = _each(edge.get("width"), count, 0)
    edges = [
        color_of(color) if color and width else fill
        for color, width, fill in zip(_each(edge.get("color"), count, ""), widths, paint, strict=True)
    ]
    # A bar thinner than a pixel is still there: its edge in its own colour makes it a quarter of one wide.
    lines = [max(0.2, width * _POINT_PX) for width in widths]
    axes.add_collection(
        PolyCollection(corners, facecolors=paint, edgecolors=edges, linewidths=lines), autolim=False
    )
    for text, row, base, length in zip(trace.get("text", ()), rows, bases, lengths, strict=False):
        axes.annotate(
            drawable(text),
            (base + length, row),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            annotation_clip=False,
        )
    outlines = [color for color in _each(edge.get("color"), 1, "") if color not in ("", EDGE)]
    return Patch(facecolor=color_of(next(iter(outlines), _each(colors, 1, "")[0])))


def _scatter(axes: Any, trace: Any, layout: dict[str, Any]) -> Any:
    x, y = (
        [math.nan if value is None else value for value in _on_axis(layout[f"{side}axis"], trace[side])]
        for side in ("x", "y")
    )
    drawn = [_line(axes, trace, x, y)] if "lines" in trace["mode"] else []
    drawn += [_markers(axes, trace, x, y)] if "markers" in trace["mode"] else []
    return drawn[0]


def _line(axes: Any, trace: Any, x: list[float], y: list[float]) -> Any:
    from matplotlib.patches import Patch

    line = trace["line"]
    if trace.get("fill") == "toself":
        for gap, points in groupby(zip(x, y, strict=True), lambda point: any(map(math.isnan, point))):
            corners = [] if gap else list(points)
            if len(corners) > 2:
                color = color_of(trace["fillcolor"])
                axes.fill(*zip(*corners, strict=True), color=color, linewidth=0, zorder=1.5)
        if not line.get("width"):
            return Patch(facecolor=color_of(trace["fillcolor"]))
    [drawn] = axes.plot(
        x,
        y,
        color=color_of(line["color"]),
        linewidth=line.get("width", 2) * _POINT_PX,
        linestyle=_DASHES[line.get("dash", "solid")],
        drawstyle="steps-post" if line.get("shape") == "hv" else "default",
    )
    return drawn


def _markers(axes: Any, trace: Any, x: list[float], y: list[float]) -> Any:
    marker = trace["marker"]
    symbol = marker.get("symbol", "circle")
    paint = [color_of(color, marker.get("opacity", 1.0)) for color in _each(marker["color"], len(x), "")]
    sizes = [each * _POINT_PX for each in _each(marker.get("size"), len(x), 6)]
    edge = marker.get("line") or {}
    errors = trace.get("error_x")
    if errors:
        axes.errorbar(
            x,
            y,
            xerr=[errors["arrayminus"], errors["array"]],
            fmt="none",
            ecolor=color_of(errors["color"]),
            elinewidth=errors["thickness"] * _POINT_PX,
            capsize=errors["width"] * _POINT_PX,
        )
    bare = symbol.startswith("line")
    open_ = "open" in symbol and not bare
    lined = _each(None if open_ else edge.get("color"), len(x), None)
    edges = [color_of(own) if own else fill for own, fill in zip(lined, paint, strict=True)]
    drawn = axes.scatter(
        x,
        y,
        s=[size**2 for size in sizes],
        marker=_SYMBOLS[symbol],
        zorder=3,
        facecolors="none" if open_ else paint,
        edgecolors=None if bare else edges,
        linewidths=(edge.get("width", 1.5 if open_ else 0.0)) * _POINT_PX,
    )
    if symbol.endswith("dot"):
        dots = [(size / 3) ** 2 for size in sizes]
        axes.scatter(x, y, s=dots, marker="o", facecolors=paint, edgecolors="none", zorder=3)
    return drawn


def _heatmap(sheet: Any, axes: Any, trace: Any, layout: dict[str, Any]) -> Any:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    steps = [(place, color_of(color)) for place, color in trace["colorscale"]]
    colors = LinearSegmentedColormap.from_list("flightlog", steps, N=4096)
    norm = Normalize(trace["zmin"], trace["zmax"])
    x = list(trace["x"])
    y = list(trace["y"])
    if _categories(layout["yaxis"]):
        y = [n - 0.5 for n in range(len(y) + 1)]
    values = [[math.nan if value is None else value for value in row] for row in trace["z"]]
    axes.pcolormesh(x, y, values, cmap=colors, norm=norm, shading="flat", rasterized=True, linewidth=0)
    if trace.get("ygap"):
        for row in y[1:-1]:
            axes.axhline(
                row, color=axes.figure.get_facecolor(), linewidth=trace["ygap"] * _POINT_PX, zorder=1
            )
    bar = trace.get("colorbar")
    if bar:
        made = sheet.colorbar(
            ScalarMappable(norm, colors), ax=axes, ticks=bar["tickvals"], fraction=0.03, pad=0.01
        )
        made.outline.set_visible(False)
        made.ax.set_yticklabels(map(drawable, bar["ticktext"]))
        made.ax.tick_params(length=0)
        made.set_label(drawable(bar["title"]["text"]), fontsize=12 * _POINT_PX)


_CELL_LETTER_PX = 7.2


def draw_icicle(axes: Any, trace: Any, width_px: int) -> None:
    """Draw the tree from the top; a text that has no room is cut, or left out."""
    from matplotlib.patches import Rectangle

    spot: dict[str, tuple[float, float, int]] = {}
    filled: dict[str, float] = {}
    for id_, parent, label, value, color, ink in zip(
        trace["ids"],
        trace["parents"],
        trace["labels"],
        trace["values"],
        trace["marker"]["colors"],
        trace["textfont"]["color"],
        strict=True,
    ):
        if not parent:
            left, width, depth = 0.0, 1.0, 0
            whole = value
        else:
            start, _, above = spot[parent]
            left, width, depth = filled.get(parent, start), value / whole if whole else 0.0, above + 1
            filled[parent] = left + width
        spot[id_] = left, width, depth
        paint = {"facecolor": color_of(color), "edgecolor": axes.figure.get_facecolor(), "linewidth": 0.8}
        axes.add_patch(Rectangle((left, depth), width, 1, **paint))
        room = int((width * width_px - 8) / _CELL_LETTER_PX)
        if room >= 2:
            axes.text(left + 5 / width_px, depth + 0.5, cut(drawable(label), room), va="center", color=ink)
    axes.set_xlim(0, 1)
    axes.set_ylim(max(depth for _, _, depth in spot.values()) + 1, 0)
    axes.set_axis_off()


EDGE_PX = 10
LINE_PX = 18
AXIS_PX = 50
MIN_PLOT_PX = 20
_BOLD_PX, _LEGEND_LETTER_PX, _KEY_PX = 8.6, 7.6, 46
"""Average width of a letter, and width of a legend key beside its text."""


class SheetPlan(NamedTuple):
    """The texts around the plot, in lines that fit."""

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
        """The height of the legend."""
        return LINE_PX * math.ceil(len(self.legend) / self.columns) + EDGE_PX if self.legend else 0

    def height_px(self, plot_px: float) -> int:
        """How high the picture is with a plot of this height."""
        return math.ceil(self.head_px + plot_px + self.axis_px + self.foot_px)

    def draw(self, sheet: Any, keys: list[Any], width_px: int, height_px: int) -> None:
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
            )
            shown.set_in_layout(False)


def plan(traces: list[Any], layout: dict[str, Any], width_px: int) -> SheetPlan:
    """The texts for a picture of this width."""
    room = width_px - 2 * EDGE_PX
    title = drawable((layout.get("title") or {}).get("text", "").replace("<br>", " "))
    notes = [
        drawable(note.replace("<br>", " "))
        for annotation in layout.get("annotations", ())
        for note in annotation["text"].split("</i><br>")
    ]
    names = [drawable(trace["name"]) for trace in traces if in_legend(trace, layout)]
    widest = int((room - _KEY_PX) / _LEGEND_LETTER_PX)
    names = [fit(name, widest) for name in names]
    longest = max(map(width_of, names), default=1)
    fitting = int(room / (_LEGEND_LETTER_PX * longest + _KEY_PX))
    margin = layout["margin"]
    return SheetPlan(
        title=_lines([title] if title else [], int(room / _BOLD_PX)),
        notes=_lines(notes, int(room / _LEGEND_LETTER_PX)),
        legend=names,
        columns=max(1, min(fitting, len(names))),
        plot_px=layout["height"] - margin["t"] - margin["b"],
        axis_px=AXIS_PX if layout["xaxis"].get("visible", True) else EDGE_PX,
    )


def in_legend(trace: Any, layout: dict[str, Any]) -> bool:
    """Whether a trace is in the legend."""
    return bool(layout.get("showlegend") and trace.get("showlegend", True) and trace.get("name"))


def _lines(texts: list[str], columns: int) -> list[str]:
    return [fit(line, columns) for text in texts for line in wrap(text, columns)]


FAMILY = "DejaVu Sans"
_UNKNOWN = "\N{REPLACEMENT CHARACTER}"


def drawable(text: str) -> str:
    """A text of a figure as it is seen, without its markup; what the font lacks is a replacement
    character.
    """
    seen = plain_back(text)
    if seen.isascii():
        return seen
    known = _characters()
    return "".join(c if c == "\n" or ord(c) in known else _UNKNOWN for c in seen)


@cache
def _characters() -> frozenset[int]:
    from matplotlib.font_manager import findfont, get_font

    return frozenset(get_font(findfont(FAMILY)).get_charmap())


_TICKS = 8
_NAMES_PX, _TICK_PX, _TICK_LETTER_PX = 150, 48, 7.4
"""What the names of rows, the text of a tick and a letter take, about."""


def _on_axis(axis: dict[str, Any], values: list[Any]) -> list[Any]:
    """Values as numbers: the places of categories, None for one that has none."""
    places = _categories(axis)
    return [places.get(value) for value in values] if places else list(values)


def draw_axes(axes: Any, layout: dict[str, Any], width_px: int) -> None:
    """Set both axes up; before anything is drawn on them."""
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_facecolor("none")
    axes.set_axisbelow(True)
    for side in ("x", "y"):
        _draw_axis(axes, side, layout[f"{side}axis"], max(width_px - _NAMES_PX, _TICK_PX))
    axes.set_autoscale_on(False)


def _categories(axis: dict[str, Any]) -> dict[str, int]:
    return {name: n for n, name in enumerate(axis["categoryarray"])} if axis.get("type") == "category" else {}


def _draw_axis(axes: Any, side: str, axis: dict[str, Any], room_px: int) -> None:
    from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, MaxNLocator, NullLocator

    both = getattr(axes, f"{side}axis")
    ends = low, high = axis.get("range", (0, 1))
    if axis.get("type") == "log":
        axes.set(**{f"{side}scale": "log"})
        low, high = 10.0**low, 10.0**high
    axes.set(**{f"{side}lim": (low, high)})
    categories = list(_categories(axis))
    values = axis.get("tickvals", categories or None)
    if values is not None:
        texts = [drawable(str(text)) for text in axis.get("ticktext", values)]
        places = [categories.index(value) for value in values] if categories else list(values)
        if side == "x":
            across = [math.log10(place) for place in places] if axis.get("type") == "log" else places
            kept, texts = ticks_with_room(across, texts, ends[0], ends[1], room_px)
            places = [places[across.index(place)] for place in kept]
        both.set_major_locator(FixedLocator(places))
        both.set_major_formatter(FixedFormatter(texts))
    else:
        suffix = drawable(axis.get("ticksuffix", ""))
        most = max(2, room_px // _TICK_PX) if side == "x" else _TICKS
        both.set_major_locator(
            MaxNLocator(nbins=min(most, int(axis.get("nticks", _TICKS))), steps=[1, 2, 5, 10])
        )
        both.set_major_formatter(FuncFormatter(lambda value, _: f"{_number(value)}{suffix}"))
    both.set_minor_locator(NullLocator())
    both.set_tick_params(length=0, pad=5)
    if axis.get("showgrid", True):
        both.grid(True, color=axis.get("gridcolor", "#e2e2e2"), linewidth=0.8)
    title = (axis.get("title") or {}).get("text")
    if title:
        both.set_label_text(drawable(title))


def ticks_with_room(
    places: list[float], texts: list[str], low: float, high: float, room_px: float
) -> tuple[list[float], list[str]]:
    """The ticks whose texts do not overlap, on an axis of this length from `low` to `high`."""
    kept, shown, free = list[float](), list[str](), -math.inf
    for place, text in zip(places, texts, strict=True):
        middle, half = (place - low) / ((high - low) or 1.0) * room_px, (_TICK_LETTER_PX * len(text) + 10) / 2
        if middle - half >= free:
            kept, shown, free = [*kept, place], [*shown, text], middle + half
    return kept, shown


def _number(value: float) -> str:
    text = f"{value:,.10g}" if abs(value) < 1e15 else f"{value:.3g}"
    return "0" if text == "-0" else text
