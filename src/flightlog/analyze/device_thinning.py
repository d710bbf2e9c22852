"""Series of any length in bounded memory: evenly thinned, or in groups that keep the highest."""

from __future__ import annotations

from typing import Generic, TypeVar

Row = TypeVar("Row")


class Thinned(Generic[Row]):
    """The rows of a series with the numbers 0, `stride`, 2 `stride`, …: all of them up to `most`, then ever
    fewer.
    """

    def __init__(self, most: int) -> None:
        self.rows: list[Row] = []
        self.stride, self.count = 1, 0
        self._most = most

    def add(self, row: Row) -> None:
        """Take the next row."""
        if self.count % self.stride == 0:
            if len(self.rows) == self._most:
                self.rows = self.rows[::2]
                self.stride *= 2
            if self.count % self.stride == 0:
                self.rows.append(row)
        self.count += 1


class Heights:
    """The highest values of groups of as many rows each, with the time of each group's first row.

    Groups are of one row up to `most` of them, then of 2, 4, …; at least half of `most` stay.
    """

    def __init__(self, most: int) -> None:
        self.groups: list[tuple[int, list[int | None]]] = []
        self.size = 1
        self._most, self._in_last = most, 0

    def add(self, time: int, values: tuple[int | None, ...]) -> None:
        """Take the next row."""
        if self.groups and self._in_last < self.size:
            _higher(self.groups[-1][1], values)
            self._in_last += 1
            return
        if len(self.groups) == self._most:
            pairs = zip(self.groups[::2], self.groups[1::2], strict=True)
            self.groups = [(at, _higher(left, right)) for (at, left), (_, right) in pairs]
            self.size *= 2
        self.groups.append((time, list(values)))
        self._in_last = 1


def _higher(into: list[int | None], values: tuple[int | None, ...] | list[int | None]) -> list[int | None]:
    for n, value in enumerate(values):
        have = into[n]
        if value is not None and (have is None or value > have):
            into[n] = value
    return into
