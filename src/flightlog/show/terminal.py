"""Text that is safe in a terminal, its width, cutting, wrapping and colours."""

from __future__ import annotations

import unicodedata

from flightlog.show.limits import TextLimits

STYLES = {
    "title": "1",
    "head": "1",
    "label": "2",
    "good": "32",
    "bad": "31",
    "warn": "33",
    "quiet": "2",
    "name": "36",
}
"""What the styles are in the codes of ECMA-48: bold, faint, and three colours every palette has."""


_ASCII = str.maketrans(
    {chr(0x2800 + dots): "*" if dots.bit_count() == 1 else "#" for dots in range(1, 256)}
    | dict(zip("▁▂▃▄▅▆▇█░▒▓─═│┤└┴▲▼↑↓✕↺□◆·", ".:-=+*%#.-+-=|+++^v^v!~=#-", strict=True))
    | {"±": "+-", "→": "->", "≥": ">=", "≤": "<=", "…": "..."}
)
"""Braille, of which one dot is a point and several are an area; blocks, lines, arrows, marks and signs."""


def ascii_text(text: str) -> str:
    """The text in ASCII, as far as it is the package's own: plots, bars, signs and ellipses."""
    return text.translate(_ASCII)


_SHOWN = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Controls, formats (writing direction, zero width), surrogates, unassigned, line and paragraph
separators."""


def clean(text: str) -> str:
    """The text on one line, with every control and invisible character spelled out, as Python would."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_SHOWN.get(c) or (_spelled(c) if unicodedata.category(c) in _UNSEEN else c) for c in text)


def _spelled(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def width_of(text: str) -> int:
    """The width of clean text: wide characters take two columns, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(_columns(character) for character in text)


def _columns(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in {"Mn", "Me"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1


def fit(text: str, width: int) -> str:
    """Clean text cut to a width, with an ellipsis where it was cut."""
    if width_of(text) <= width:
        return text
    kept, used = [], 0
    for character in text:
        used += _columns(character)
        if used > width - 1:
            break
        kept.append(character)
    return "".join(kept) + "…"


def brief(text: str | None, width: int = TextLimits.max_cell_width) -> str:
    """Text on one line, cleaned and cut to a width; of a long text only the beginning is read."""
    return fit(clean((text or "")[: 4 * width]), width)


def cut_middle(text: str, width: int, keep: int) -> str:
    """Clean text cut to a width before its last `keep` characters, which are cut too
    where there is no room.
    """
    if width_of(text) <= width:
        return text
    end = text[len(text) - keep :]
    room = width - width_of(end)
    return fit(text, room) + end if room > 0 else fit(end, max(width, 1))


def wrap(text: str, width: int, *, first: str = "", rest: str = "") -> list[str]:
    """Clean text in lines of a width, broken between words only: a longer word stays whole."""
    lines, line = [], first
    for number, word in enumerate(text.split()):
        if number and width_of(line) + 1 + width_of(word) > width:
            lines.append(line)
            line = rest + word
        else:
            line += f" {word}" if number else word
    return [*lines, line]


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Clean text padded with blanks to a width, on the left if `right`."""
    blanks = " " * (width - width_of(text))
    return blanks + text if right else text + blanks


class Ink:
    """Colours text, or leaves it unchanged."""

    def __init__(self, color: bool) -> None:
        self._color = color

    def __call__(self, style: str, text: str) -> str:
        """The text in a style of `STYLES`; blank text and plain ink stay without codes."""
        if not self._color or not text.strip():
            return text
        return f"\x1b[{STYLES[style]}m{text}\x1b[0m"
