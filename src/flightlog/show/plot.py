"""Points in a terminal: eight to a character in Braille, or one in plain ASCII."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from msgspec import Struct

from flightlog.show.terminal import pad, width_of

_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""The bit of each dot of a Braille character, by column and by row from the top."""
_BRAILLE = 0x2800
_SMALLEST, _LARGEST = 1e-200, 1e300
"""Beyond these, the floor and the ceiling of floating-point numbers are too near to reckon with."""


class Signs(Struct, frozen=True):
    """What a plot is drawn with."""

    level: str
    axis: str
    tick: str
    corner: str
    floor: str
    mark: str
    above: str
    below: str


UNICODE = Signs("─", "│", "┤", "└", "─", "▲", "↑", "↓")
ASCII = Signs("-", "|", "+", "+", "-", "^", "^", "v")


class Line(Struct, frozen=True):
    """A horizontal line from one point to another, both counted."""

    first: int
    last: int
    value: float


def plot(
    values: Sequence[float],
    *,
    width: int,
    height: int,
    label: Callable[[float, float], str],
    lines: Sequence[Line] = (),
    marks: Sequence[int] = (),
    ascii_only: bool = False,
) -> list[str]:
    """Rows of text with a point for each value, from left to right in their order, evenly spaced.

    No row is wider than `width` columns, and `height` rows are for points. `label` writes a value on the
    axis, given the distance of two labels. `lines` stand behind the points; `marks` are numbers of points
    that get a sign and a number under the axis. Values far from all others are drawn as arrows at the edge.
    """
    signs = ASCII if ascii_only else UNICODE
    low, high = scale_of(values, [line.value for line in lines])
    ticks = {row: label(value, gap) for row, value, gap in _ticks(low, high, height)}
    margin = max(map(width_of, ticks.values()), default=0) + 2
    columns = max(width - margin, 1)
    grid = _Grid(columns, height, len(values), low, high, ascii_only)
    for line in lines:
        grid.draw(line, signs.level)
    for number, value in enumerate(values):
        grid.put(number, value, signs)
    rows = [
        f"{pad(ticks.get(row, ''), margin - 2, right=True)} "
        f"{signs.tick if row in ticks else signs.axis}{text}".rstrip()
        for row, text in enumerate(grid.rows())
    ]
    rows.append(f"{' ' * (margin - 1)}{signs.corner}{signs.floor * columns}")
    if marks:
        rows.append(
            f"{' ' * margin}{_marks([grid.column(at) for at in marks], columns, signs.mark)}".rstrip()
        )
    return rows


def scale_of(values: Sequence[float], levels: Sequence[float]) -> tuple[float, float]:
    """The range of a plot: all values, less those that lie far outside of most and of all levels.

    Where nine in ten are the same, the others are all there is to see, and none is left out.
    """
    ordered = sorted(max(-_LARGEST, min(_LARGEST, value)) for value in (*values, *levels))
    if not ordered:
        return 0.0, 1.0
    p05, p95 = ordered[int(0.05 * (len(ordered) - 1))], ordered[math.ceil(0.95 * (len(ordered) - 1))]
    reach = 1.5 * (p95 - p05) or math.inf
    least, most = min([p05, *levels]) - reach, max([p95, *levels]) + reach
    near = [value for value in ordered if least <= value <= most]
    low, high = near[0], near[-1]
    size = max(abs(low), abs(high))
    if high - low > max(size * 1e-9, _SMALLEST):
        return low, high
    around = size / 10 if size > _SMALLEST else 1.0
    return (max(0.0, low - around) if low >= 0 else low - around), high + around


def _ticks(low: float, high: float, height: int) -> list[tuple[int, float, float]]:
    """Rows with round values on them, the values, and the distance between two; about one in three rows."""
    span, most = high - low, max(2, height // 2 - 1)
    power = 10.0 ** math.floor(math.log10(span / most))
    gap = next(step * power for step in (1, 2, 5, 10) if span / (step * power) <= most)
    found: dict[int, tuple[int, float, float]] = {}
    for number in range(math.ceil(low / gap), math.floor(high / gap) + 1):
        row = height - 1 - round((number * gap - low) / span * (height - 1))
        found.setdefault(row, (row, number * gap, gap))
    return list(found.values())


class _Grid:
    """Characters, and the dots in them."""

    def __init__(
        self, columns: int, height: int, count: int, low: float, high: float, ascii_only: bool
    ) -> None:
        self._fine = (1, 1) if ascii_only else (2, 4)
        self._columns, self._height, self._count = columns, height, count
        self._low, self._high = low, high
        self._signs = [[" "] * columns for _ in range(height)]
        self._dots = [[0] * columns for _ in range(height)]

    def column(self, number: int) -> int:
        """The column of a point."""
        return self._x(number) // self._fine[0]

    def _x(self, number: int) -> int:
        cells = self._columns * self._fine[0]
        return (cells - 1) // 2 if self._count < 2 else round(number * (cells - 1) / (self._count - 1))

    def _y(self, value: float) -> int:
        cells = self._height * self._fine[1]
        return cells - 1 - round((value - self._low) / (self._high - self._low) * (cells - 1))

    def put(self, number: int, value: float, signs: Signs) -> None:
        """Draw a point, or an arrow where it lies outside."""
        x, column = self._x(number), self.column(number)
        if not self._low <= value <= self._high:
            row, sign = (0, signs.above) if value > self._high else (self._height - 1, signs.below)
            self._dots[row][column], self._signs[row][column] = -1, sign
            return
        wide, tall = self._fine
        y = self._y(value)
        if self._dots[y // tall][column] >= 0:
            self._dots[y // tall][column] |= _DOTS[x % wide][y % tall]

    def draw(self, line: Line, sign: str) -> None:
        """Draw a line where there are no points."""
        row = self._signs[self._y(line.value) // self._fine[1]]
        for column in range(self.column(line.first), self.column(line.last) + 1):
            row[column] = sign

    def rows(self) -> list[str]:
        """The text, from the top."""
        coarse = self._fine == (1, 1)
        return [
            "".join(
                sign if bits <= 0 else "*" if coarse else chr(_BRAILLE + bits)
                for bits, sign in zip(dots, signs, strict=True)
            )
            for dots, signs in zip(self._dots, self._signs, strict=True)
        ]


def _marks(columns: Sequence[int], width: int, sign: str) -> str:
    """A sign at each column, and after it its number where there is room; the latest goes first."""
    row = [" "] * width
    for number in range(len(columns), 0, -1):
        text, column = f"{sign}{number}", columns[number - 1]
        free = next((at for at in range(column, width) if row[at] != " "), width) - column
        if free > 0:
            text = text if len(text) <= free else sign
            row[column : column + len(text)] = text
    return "".join(row)
