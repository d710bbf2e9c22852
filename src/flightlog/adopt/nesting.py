"""Which interval lies inside which, where a recording has times and no parents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple


class Nested(NamedTuple):
    """One interval with the number it was given and that of the one around it, None for an outermost one."""

    number: int
    parent: int | None
    lane: str
    begin: int
    end: int
    record: Any


def nest(intervals: Iterable[tuple[str, int, int, Any]], first: int = 0) -> Iterator[Nested]:
    """Number the intervals in their order, and find the innermost earlier one that holds each of them whole.

    They come lane by lane, by begin, and of those that begin together the longest first. One that sticks out
    of another is not inside it. What has no length is inside others, and nothing in it. Holds as many as
    overlap.
    """
    around: list[tuple[int, int]] = []
    here: str | None = None
    for number, (lane, begin, end, record) in enumerate(intervals, first):
        if lane != here:
            here, around = lane, []
        if around and around[-1][0] <= begin:
            around = [one for one in around if one[0] > begin or (one[0] == begin == end)]
        parent = next((index for until, index in reversed(around) if until >= end), None)
        yield Nested(number, parent, lane, begin, end, record)
        if end > begin:
            around.append((end, number))
