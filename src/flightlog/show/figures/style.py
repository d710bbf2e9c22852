"""What all figures have in common: colours, layout, the two themes, and their JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from flightlog.show.terminal import fit, wrap

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
"""Every one at 3:1 or more against white and against #111. The first eight can be told apart without red or
green."""
OTHER = "#8a8a8a"
"""For all that has no colour of its own."""
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
"""How wide the legend is taken to be."""
LINE_PX = 18
NOTE_COLUMNS = 100
"""Of a title or a note: about 600 pixels, which a cell of a notebook has."""

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


def color_of(name: str, colors: Mapping[str, str]) -> str:
    """The colour of a name; that of all others where it has none."""
    return colors.get(name, OTHER)


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
    """A figure of these traces on transparent ground, in the light theme. `title` and `notes` are safe texts
    by now.

    `plot_px` is how high the part between the axes is. Above it stand the title and the legend, for which
    Plotly makes room however often it wraps; below it the texts of the axis and the notes.
    """
    from plotly.graph_objects import Figure

    axis = {"automargin": True, "showline": False, "zeroline": False, "ticks": "", "showgrid": True}
    told = [[fit(line, NOTE_COLUMNS) for line in wrap(note, NOTE_COLUMNS)] for note in notes if note]
    names = [str(trace.get("name", "")) for trace in traces if legend and trace.get("showlegend", True)]
    rows = math.ceil(sum(7 * len(name) + 46 for name in names) / LEGEND_PX)
    heads = [fit(line, NOTE_COLUMNS) for line in wrap(title, NOTE_COLUMNS)] if title else []
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
    if heads:
        asked["title"] = {
            "text": "<br>".join(f"<b>{line}</b>" for line in heads),
            "x": 0,
            "xref": "paper",
            "xanchor": "left",
            "y": 1,
            "yref": "container",
            "yanchor": "top",
            "pad": {"t": 4},
            "font": {"size": 13},
        }
    if told:
        asked["annotations"] = [
            {
                "text": "<br>".join(f"<i>{'<br>'.join(lines)}</i>" for lines in told),
                "x": 0,
                "xref": "paper",
                "xanchor": "left",
                "y": 0,
                "yref": "paper",
                "yanchor": "top",
                "yshift": -under + 2,
                "align": "left",
                "showarrow": False,
            }
        ]
    asked.update(layout)
    figure = Figure({"data": [dict(trace) for trace in traces], "layout": asked})
    return with_theme(figure, "light")


def _near(axis: Mapping[str, Any]) -> dict[str, Any]:
    """The axis with its title close to its ticks, so that a legend has its place below."""
    title = axis.get("title")
    return {**axis, "title": {**title, "standoff": 6}} if title else dict(axis)


def with_theme(figure: Figure, theme: Theme) -> Figure:
    """The same figure, changed to the colours for a light or a dark page; its data stays as it is."""
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
