"""Rows in aligned columns."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from flightlog.show.terminal import Ink, clean, cut_middle, fit, pad, width_of

GAP = "  "


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: int,
    ink: Ink,
    left: Collection[str] = (),
    indent: str = "  ",
) -> list[str]:
    """Lines of a table. The first column is cut where lines would grow wider than `width`:
    at the end, or in the middle where names would look the same without their ends.

    It stands left, as do the columns named in `left`; numbers stand right. Columns in which no row says
    anything are left out.
    """
    said = [i for i in range(len(head)) if i == 0 or any(row[i] for row in rows)]
    titles = [head[i] for i in said]
    cells = [[clean(row[i]) for i in said] for row in rows]
    widths = [max(map(width_of, column)) for column in zip(titles, *cells, strict=True)]
    others = sum(widths[1:]) + len(GAP) * len(widths)
    widths[0] = max(min(widths[0], width - others), min(widths[0], 12))
    sides = [number > 0 and title not in left for number, title in enumerate(titles)]

    names = {row[0] for row in cells}
    alike = len({fit(name, widths[0]) for name in names}) < len(names)

    def line(texts: Sequence[str]) -> str:
        # Names that differ at their ends alone are cut in the middle.
        first = cut_middle(texts[0], widths[0], widths[0] // 2) if alike else fit(texts[0], widths[0])
        cut = [first, *texts[1:]]
        return GAP.join(pad(text, w, right=side) for text, w, side in zip(cut, widths, sides, strict=True))

    lines = [ink("label", line(titles).rstrip()), *(line(row) for row in cells)]
    return [f"{indent}{text}".rstrip() for text in lines]


def facts(pairs: Sequence[tuple[str, str]], *, ink: Ink, indent: str = "  ") -> list[str]:
    """Lines of labels and values, the values in one column. The values are taken as they are."""
    longest = max((width_of(label) for label, _ in pairs), default=0) + 1
    return [
        f"{indent}{ink('label', pad(label + ':', longest))}{GAP}{value}".rstrip() for label, value in pairs
    ]
