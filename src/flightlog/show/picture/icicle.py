"""An icicle: what is inside something stands below it, as wide as its part."""

from __future__ import annotations

from typing import Any

from flightlog.show.picture.fonts import Lettering
from flightlog.show.picture.traces import color_of

_LETTER_PX = 7.2


def draw_icicle(axes: Any, trace: Any, lettering: Lettering, width_px: int) -> None:
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
        axes.add_patch(
            Rectangle(
                (left, depth),
                width,
                1,
                facecolor=color_of(color),
                edgecolor=axes.figure.get_facecolor(),
                linewidth=0.8,
            )
        )
        room = int((width * width_px - 8) / _LETTER_PX)
        text = lettering.text(label)
        if room >= 2:
            axes.text(
                left + 5 / width_px,
                depth + 0.5,
                text if len(text) <= room else f"{text[: room - 1]}…",
                va="center",
                **{**lettering.style(), "color": ink},
            )
    axes.set_xlim(0, 1)
    axes.set_ylim(max(depth for _, _, depth in spot.values()) + 1, 0)
    axes.set_axis_off()
