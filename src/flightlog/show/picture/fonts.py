"""Lettering of pictures: the font that Matplotlib brings, and no character it cannot draw."""

from __future__ import annotations

from functools import cache
from typing import Any

from flightlog.show.figures.text import plain_back

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
