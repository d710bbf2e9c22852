"""The sheet of a picture: the title and the notes at its head, the legend at its foot, the plot between them.

Texts are wrapped to the width of the picture, and the picture is as high as they need: nothing lies over
anything else.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from flightlog.show.picture.fonts import Lettering
from flightlog.show.terminal import fit, width_of, wrap

EDGE_PX = 10
LINE_PX = 18
AXIS_PX = 50
LEAST_PLOT_PX = 20
_BOLD_PX, _LETTER_PX, _KEY_PX = 8.6, 7.6, 46
"""What a letter takes on average, and a key of the legend beside its letters."""


class Plan(NamedTuple):
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


def plan(traces: list[Any], layout: dict[str, Any], lettering: Lettering, width_px: int) -> Plan:
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
    return Plan(
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
