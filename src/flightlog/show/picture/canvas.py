"""A figure of `show/figures` to the bytes of a PNG or an SVG file.

What is drawn is read from the Plotly figure, its traces and its layout, so the picture is the same figure.
Only what our figures use is known here: bars, lines and markers, heatmaps, icicles.
"""

from __future__ import annotations

import io
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from flightlog.errors import MissingExtra, UsageError
from flightlog.show.figures.style import DARK
from flightlog.show.picture.axes import draw_axes
from flightlog.show.picture.fonts import Lettering
from flightlog.show.picture.icicle import draw_icicle
from flightlog.show.picture.sheet import plan
from flightlog.show.picture.traces import draw_traces

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

WIDTH_PX = 1200
NARROWEST_PX = 300
"""The names of rows alone take most of this."""
LARGEST_PX = 20_000
"""On a side, after scaling: beyond it no viewer opens a picture."""
_DPI = 100
_GROUNDS = {DARK["font.color"]: "#111111"}
_ONE_AT_A_TIME = threading.Lock()


def picture(
    figure: Figure,
    *,
    format: Literal["png", "svg"] = "png",  # noqa: A002 - the word for it
    width_px: int = WIDTH_PX,
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
    lettering = Lettering(layout["font"]["color"])
    scale = scale if format == "png" else 1.0
    _check("width", width_px, NARROWEST_PX, scale)
    planned = plan(traces, layout, lettering, width_px)
    height = planned.height_px if height_px is None else height_px
    _check("height", height, min(planned.least_px, planned.height_px), scale)
    with _ONE_AT_A_TIME, _own_settings(), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="constrained_layout not applied"
        )  # too narrow for the names of its rows: drawn as it goes
        ground = _GROUNDS.get(layout["font"]["color"], "#ffffff")
        sheet = Sheet(
            figsize=(width_px / _DPI, height / _DPI), dpi=_DPI, facecolor=ground, layout="constrained"
        )
        axes = sheet.add_subplot()
        if any(trace["type"] == "icicle" for trace in traces):
            draw_icicle(axes, traces[0], lettering, width_px)
            keys = []
        else:
            places = draw_axes(axes, layout, lettering, width_px)
            keys = draw_traces(sheet, axes, traces, layout, places, lettering)
        planned.draw(sheet, keys, lettering, width_px, height)
        out = io.BytesIO()
        if format == "png":
            FigureCanvasAgg(sheet)
            sheet.savefig(out, format="png", dpi=_DPI * scale, metadata={"Software": None})
        else:
            FigureCanvasSVG(sheet)
            sheet.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
        return out.getvalue()


def _check(name: str, side: int, least: int, scale: float) -> None:
    most = int(LARGEST_PX / scale)
    if not least <= side <= most:
        raise UsageError(
            f"a {name} of {side:,} pixels is no size for this picture: name one from {least:,} to {most:,}"
        )


@contextmanager
def _own_settings() -> Iterator[None]:
    """Matplotlib as it comes, whatever the user's settings, and put back after."""
    import matplotlib
    from matplotlib import style

    ours: Any = {  # Matplotlib has a type for each of hundreds of names
        "svg.hashsalt": "flightlog",
        "svg.fonttype": "path",
        "text.usetex": False,
        "text.parse_math": False,
        "figure.constrained_layout.h_pad": 0.06,
        "figure.constrained_layout.w_pad": 0.08,
    }
    with style.context("default"), matplotlib.rc_context(ours):
        yield
