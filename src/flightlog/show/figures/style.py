"""What all Plotly figures share: colours, themes, layout, axes with units, and safe texts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from html import unescape
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from flightlog.core.units import format_bytes, format_count, format_duration, format_percent
from flightlog.show.limits import FigureLimits
from flightlog.show.phrases import moment_text
from flightlog.show.terminal import brief, fit, wrap

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

PALETTE = (
    "#0072b2",
    "#dd7700",
    "#5599aa",
    "#bb2266",
    "#4444ff",
    "#bb8866",
    "#0088ff",
    "#aa4411",
    "#00917a",
    "#8a8500",
    "#9955cc",
    "#607080",
)
"""Each has a contrast of at least 3:1 to white and to #111. The first eight can be distinguished without red
or green.
"""
OTHER = "#8a8a8a"
"""For all that has no colour of its own."""
EDGE = "rgba(255,255,255,0.8)"
"""Between neighbours of one colour."""
BAD = "#d62728"
WARN = "#c76a00"
GOOD = "#00917a"
QUIET = "#8a8a8a"

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
BUTTONS_LEFT_OUT = [
    "sendChartToCloud",
    "sendDataToCloud",
    "editInChartStudio",
    "select2d",
    "lasso2d",
    "autoScale2d",
]
"""Of the bar over a figure: those that would send the figure to a server, and those that do nothing here."""
CONFIG: dict[str, Any] = {
    "displaylogo": False,
    "responsive": True,
    "showLink": False,
    "showSendToCloud": False,
    "plotlyServerURL": "",
    "modeBarButtonsToRemove": BUTTONS_LEFT_OUT,
}
"""For `Plotly.newPlot` and `Figure.show`: no logo, no link, nothing that asks a server."""

AXIS_PX = 46
"""What the texts of the axis at the bottom take."""
LEGEND_PX = 900
"""Assumed width of the legend."""
LINE_PX = 18


Theme = Literal["light", "dark"]


def _theme(text: str, grid: str, line: str, box: str) -> dict[str, str]:
    axes = {
        f"{axis}.{part}": color
        for axis in ("xaxis", "yaxis")
        for part, color in (("gridcolor", grid), ("zerolinecolor", grid), ("linecolor", line))
    }
    return {
        "font.color": text,
        **axes,
        "hoverlabel.bgcolor": box,
        "hoverlabel.bordercolor": line,
        "hoverlabel.font.color": text,
    }


LIGHT = _theme("#222222", "#e2e2e2", "#8a8a8a", "#ffffff")
DARK = _theme("#e6e6e6", "#3a3a3a", "#8a8a8a", "#1e1e1e")
"""Attributes of the layout by their path, as `Plotly.relayout` takes them."""
_THEMES: dict[str, dict[str, str]] = {"light": LIGHT, "dark": DARK}


def colors_of(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name, by its place; the colours begin again where there are more names than colours.

    Figures that are given the same mapping draw a name in the same colour.
    """
    unique = dict.fromkeys(names)
    return {name: PALETTE[number % len(PALETTE)] for number, name in enumerate(unique)}


def faded(color: str, opacity: float) -> str:
    """A colour of the form `#rrggbb` that lets the background through."""
    red, green, blue = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:.3g})"


def ink_on(color: str) -> str:
    """White or nearly black, whichever is easier to read on a colour of the form `#rrggbb`; 4.5:1 or more on
    any.
    """
    parts = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return "#ffffff" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.179 else "#000000"


def make_figure(
    traces: Sequence[Mapping[str, Any]],
    *,
    x: Mapping[str, Any],
    y: Mapping[str, Any],
    plot_px: float,
    title: str = "",
    notes: Sequence[str] = (),
    legend: bool = False,
    **layout: Any,
) -> Figure:
    """A figure of these traces on a transparent background, in the light theme.

    `title` and `notes` are safe texts. `plot_px` is the height between the axes. Above it are the title and
    the legend, for which Plotly makes room however often it wraps; below it the axis texts and the notes.
    """
    from plotly.graph_objects import Figure

    axis = {"automargin": True, "showline": False, "zeroline": False, "ticks": "", "showgrid": True}
    told = [_wrapped(note) for note in notes if note]
    names = [str(trace.get("name", "")) for trace in traces if legend and trace.get("showlegend", True)]
    rows = math.ceil(sum(7 * len(name) + 46 for name in names) / LEGEND_PX)
    heads = _wrapped(title) if title else []
    top = 10 + LINE_PX * len(heads) + 21 * rows
    under = AXIS_PX if x.get("visible", True) else 4
    bottom = under + LINE_PX * sum(map(len, told))
    asked = {
        "template": {},
        "height": round(top + plot_px + bottom),
        "autosize": True,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 12},
        "margin": {"l": 8, "r": 26, "t": top, "b": bottom},
        "hoverlabel": {"align": "left", "font": {"family": FONT, "size": 12}, "namelength": -1},
        "hovermode": "closest",
        "dragmode": "zoom",
        "xaxis": {**axis, **_near(x)},
        "yaxis": {**axis, "ticklabelstandoff": 4, **_near(y)},
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1,
            "yanchor": "bottom",
            "traceorder": "normal",
            "bgcolor": "rgba(0,0,0,0)",
            "tracegroupgap": 0,
        },
        "showlegend": legend,
        "modebar": {"remove": BUTTONS_LEFT_OUT},
    }
    at_left = {"x": 0, "xref": "paper", "xanchor": "left", "yanchor": "top"}
    if heads:
        text = "<br>".join(f"<b>{line}</b>" for line in heads)
        place = {**at_left, "y": 1, "yref": "container", "pad": {"t": 4}}
        asked["title"] = {"text": text, **place, "font": {"size": 13}}
    if told:
        text = "<br>".join(f"<i>{'<br>'.join(lines)}</i>" for lines in told)
        place = {**at_left, "y": 0, "yref": "paper", "yshift": -under + 2}
        asked["annotations"] = [{"text": text, **place, "align": "left", "showarrow": False}]
    asked.update(layout)
    figure = Figure({"data": [dict(trace) for trace in traces], "layout": asked})
    return with_theme(figure, "light")


def _wrapped(text: str) -> list[str]:
    """Lines of a title or a note; a word that is too long is cut."""
    columns = FigureLimits.note_width
    return [fit(line, columns) for line in wrap(text, columns)]


HOVER = "%{customdata}<extra></extra>"
"""Shows the text of each bar or point."""


def bars(
    labels: Sequence[str],
    lengths: Sequence[float],
    marker: Mapping[str, Any],
    hover: Sequence[str],
    **more: Any,
) -> dict[str, Any]:
    """Horizontal bars in the rows of these labels."""
    return {
        "type": "bar",
        "orientation": "h",
        "name": "",
        "y": list(labels),
        "x": list(lengths),
        "marker": dict(marker),
        "customdata": list(hover),
        "hovertemplate": HOVER,
        **more,
    }


def markers(
    x: Sequence[float | None],
    y: Sequence[Any],
    marker: Mapping[str, Any],
    hover: Sequence[str] = (),
    **more: Any,
) -> dict[str, Any]:
    """Points; without `hover` they say nothing by themselves."""
    said = {"customdata": list(hover), "hovertemplate": HOVER} if hover else {}
    return {
        "type": "scatter",
        "mode": "markers",
        "x": list(x),
        "y": list(y),
        "marker": dict(marker),
        **said,
        **more,
    }


def line(
    x: Sequence[float | None], y: Sequence[float | None], style: Mapping[str, Any], **more: Any
) -> dict[str, Any]:
    """A line that says nothing by itself; None is a gap in it."""
    drawn = {"type": "scatter", "mode": "lines", "x": list(x), "y": list(y), "line": dict(style)}
    return {**drawn, **({} if "hovertemplate" in more else {"hoverinfo": "skip"}), **more}


def filled(
    x: Sequence[float | None],
    y: Sequence[float | None],
    color: str,
    opacity: float,
    *,
    width: float = 0,
    **more: Any,
) -> dict[str, Any]:
    """What a line encloses, with an outline of this width."""
    outline = {"color": color, "width": width}
    return line(x, y, outline, fill="toself", fillcolor=faded(color, opacity), **more)


def amount_axis(title: str, scale: Scale, ends: Sequence[float], **more: Any) -> dict[str, Any]:
    """An axis of amounts in a unit, from one end to the other."""
    return {
        "title": {"text": title},
        "ticksuffix": scale.suffix,
        "nticks": 8,
        "range": [end * scale.factor for end in ends],
        **more,
    }


def rows_axis(labels: Sequence[str]) -> dict[str, Any]:
    """An axis of rows, the first at the top."""
    names = unique_labels(labels)
    return {
        "type": "category",
        "categoryorder": "array",
        "categoryarray": names,
        "range": [len(names) - 0.5, -0.5],
        "fixedrange": True,
        "showgrid": False,
    }


def _near(axis: Mapping[str, Any]) -> dict[str, Any]:
    """The axis with its title close to its ticks, so that a legend has its place below."""
    title = axis.get("title")
    return {**axis, "title": {**title, "standoff": 6}} if title else dict(axis)


def with_theme(figure: Figure, theme: Theme) -> Figure:
    """The same figure in the colours of a light or dark page; its data is unchanged."""
    for path, color in _THEMES[theme].items():
        figure.layout[path] = color
    return figure


def figure_json(figure: Figure) -> str:
    """The figure as JSON for `Plotly.newPlot`, safe inside of a `<script type="application/json">` element.

    Numbers are rounded to seven digits, which is finer than can be seen; NaN and infinities are null.
    """
    found = {"data": figure.to_plotly_json()["data"], "layout": figure.layout.to_plotly_json()}
    text = msgspec.json.encode(_rounded(found)).decode()
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        short = float(f"{value:.7g}")
        return int(short) if short == int(short) and abs(short) < 1e15 else short
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return value


NAMELESS = "(no name)"
_READ_AHEAD = 4
"""Characters read per column: a name may be megabytes long."""
_MARKUP = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "$": "&#36;"})


def plain(text: str, limit: int = FigureLimits.max_name_width) -> str:
    """The text for Plotly: on one line, at most `limit` columns wide, controls spelled out, markup shown as
    written.

    Plotly reads `<b>`, `<a href>`, entities and, where MathJax is at hand, `$…$` in every text; after this it
    finds none. For a text in a figure only: a picture or a page of another kind wants `plain_back` or its own
    escapes.
    """
    return brief(text, limit).translate(_MARKUP)


def name_text(text: str, limit: int = FigureLimits.max_name_width) -> str:
    """A name for Plotly, as `plain` gives it; one that is nothing but blanks is `(no name)`."""
    return plain(text, limit) if text[: limit * _READ_AHEAD].strip() else NAMELESS


def unique_labels(labels: Sequence[str]) -> list[str]:
    """The same labels, each different from all before: an axis tells rows apart by them."""
    found: dict[str, None] = {}
    for label in labels:
        number, name = 1, label
        while name in found:
            number += 1
            name = f"{label} ·{number}"
        found[name] = None
    return list(found)


def plain_back(text: str) -> str:
    """A text of a figure as Plotly displays it: without tags, and entities as characters."""
    return unescape(re.sub("</?[bi]>", "", text.replace("<br>", "\n")))


class Scale(NamedTuple):
    """The factor for values on an axis, and the axis's unit."""

    factor: float
    suffix: str
    words: str

    def of(self, values: Iterable[float]) -> list[float]:
        """Values as the axis has them."""
        return [value * self.factor for value in values]


_TIMES = (
    (3 * 86_400.0, Scale(1 / 86_400, " d", "days")),
    (2 * 3_600.0, Scale(1 / 3_600, " h", "hours")),
    (120.0, Scale(1 / 60, " min", "minutes")),
    (1.0, Scale(1.0, " s", "seconds")),
    (1e-3, Scale(1e3, " ms", "milliseconds")),
)
_DECADES = (
    *(10.0**power for power in range(-9, 2)),
    *(60.0 * step for step in (1, 10)),
    *(3_600.0 * step for step in (1, 10)),
    *(86_400.0 * step for step in (1, 10, 100, 1_000)),
)
_FINE = (
    *(step * 10.0**power for power in range(-9, 0) for step in (1, 2, 5)),
    *(unit * step for unit in (1.0, 60.0) for step in (1, 2, 5, 10, 20, 30)),
    *(3_600.0 * step for step in (1, 2, 5, 10)),
    *(86_400.0 * step for step in (1, 2, 5)),
)


def time_scale(length_s: float) -> Scale:
    """The unit of time in which this duration has few digits; ticks stay right when zoomed."""
    for least, scale in _TIMES:
        if length_s >= least:
            return scale
    return Scale(1e6, " µs", "microseconds") if 0 < length_s < 1e-3 else _TIMES[3][1]


def time_axis(length_s: float, since: str | None = None) -> tuple[Scale, dict[str, Any]]:
    """The scale and the axis of a run of this duration, with its start time."""
    scale = time_scale(length_s)
    end = length_s * scale.factor
    start = plain(moment_text(since)) if since else "the start"
    return scale, {
        "title": {"text": f"time since {start}, {scale.words}"},
        "ticksuffix": scale.suffix,
        "separatethousands": True,
        "range": [-0.005 * end, 1.005 * end] if end > 0 else [0, 1],
        "rangemode": "nonnegative",
    }


def bytes_scale(most: float) -> Scale:
    """Bytes in the largest unit of which there is at least one."""
    power = min(max(int(math.log2(most) // 10), 0), 6) if most >= 1 else 0
    unit = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")[power]
    return Scale(1 / 1024**power, f" {unit}", unit)


def duration_ticks(least_s: float, most_s: float) -> tuple[list[float], list[str]]:
    """Round durations between two, on an axis by powers, and what they are called; at least one."""
    steps = _FINE if most_s < 200 * least_s else _DECADES
    found = [step for step in steps if least_s * 0.999 <= step <= most_s * 1.001]
    if not found and least_s > 0:
        found = [min(_FINE, key=lambda step: abs(math.log(step / math.sqrt(least_s * most_s))))]
    return found, [tick_text(step) for step in found]


_TICK_UNITS = {86_400.0: "d", 3_600.0: "h", 60.0: "min", 1.0: "s", 1e-3: "ms", 1e-6: "µs", 1e-9: "ns"}


def tick_text(seconds: float) -> str:
    """`10 ms`, `5 s`, `10 min`, `1 h`, `2 d`: a round duration, short."""
    for size, unit in _TICK_UNITS.items():
        if seconds >= size * 0.999999:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def duration_axis(values_s: Sequence[float], title: str) -> dict[str, Any]:
    """An axis by powers for durations; those that are 0 or unknown have no place on it."""
    known = [
        min(value, FigureLimits.max_duration_s) for value in values_s if math.isfinite(value) and value > 0
    ]
    least, most = (min(known), max(known)) if known else (0.1, 10.0)
    least, most = least / 1.15, most * 1.15
    ticks, texts = duration_ticks(least, most)
    least, most = min(least, ticks[0] / 1.05), max(most, ticks[-1] * 1.05)  # all ticks are to be seen
    return {
        "type": "log",
        "title": {"text": title},
        "tickvals": ticks,
        "ticktext": texts,
        "range": [math.log10(least), math.log10(most)],
    }


def duration_text(seconds: float | None) -> str:
    """A duration in words, short however long it is: clocks may be off by centuries."""
    if seconds is not None and math.isfinite(seconds) and abs(seconds) >= FigureLimits.max_duration_s:
        return f"{seconds / 31_557_600:.3g} years"
    return format_duration(seconds)


def clock_text(seconds: float) -> str:
    """A moment of the run, `0:05`, `12:40`, `1:02:03`, with milliseconds below ten minutes of them:
    `0:05.250`.
    """
    if not math.isfinite(seconds) or abs(seconds) >= FigureLimits.max_duration_s:
        return duration_text(seconds)
    sign, seconds = ("-", -seconds) if seconds < 0 else ("", seconds)
    milli = round(seconds * 1000)
    hours, rest = divmod(milli // 1000, 3600)
    minutes, whole = divmod(rest, 60)
    part = f".{milli % 1000:03d}" if milli < 600_000 and milli % 1000 else ""
    return f"{sign}{hours}:{minutes:02d}:{whole:02d}{part}" if hours else f"{sign}{minutes}:{whole:02d}{part}"


def day_text(since: str, seconds: float) -> str:
    """The time of day at an offset in a run that started at `since`: `03:52:05 UTC`, with the date after the
    first day; else empty.
    """
    try:
        moment = datetime.fromisoformat(since) + timedelta(seconds=seconds)
    except (ValueError, OverflowError):  # a clock that is off by centuries
        return ""
    return f"{moment:%H:%M:%S} UTC" if 0 <= seconds < 86_400 else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def value_text(value: float | None, unit: str) -> str:
    """A value of a chart in words: `6.2 GiB`, `87%`, `3.5 cores`."""
    if value is None or not math.isfinite(value):
        return "unknown"
    show: dict[str, Callable[[float], str]] = {
        "bytes": format_bytes,
        "share": format_percent,
        "percent": lambda value: f"{value:.3g}%",
        "cores": lambda value: f"{value:.3g} {'core' if value == 1 else 'cores'}",
        "watts": lambda value: f"{value:.4g} W",
        "seconds": duration_text,
    }
    return show.get(unit, format_count)(value)
