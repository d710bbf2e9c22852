"""Which attempts may run until when."""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

T = TypeVar("T")


class Deadlines(Generic[T]):
    """Things by number, each with a moment on the monotonic clock. One thread at a time.

    What was dropped is let go at once; only two numbers of it stay until its moment.
    """

    def __init__(self) -> None:
        self._moments: list[tuple[float, int]] = []
        self._things: dict[int, T] = {}

    def add(self, by: float, number: int, thing: T) -> None:
        """Something that has until then."""
        self._things[number] = thing
        heapq.heappush(self._moments, (by, number))

    def drop(self, number: int) -> None:
        """It is over, in time or not."""
        self._things.pop(number, None)

    def first(self) -> float | None:
        """The next moment at which something may be due."""
        return self._moments[0][0] if self._moments else None

    def take_due(self, now: float) -> list[T]:
        """What should have been over by now, once each."""
        due: list[T] = []
        while self._moments and self._moments[0][0] <= now:
            number = heapq.heappop(self._moments)[1]
            if number in self._things:
                due.append(self._things.pop(number))
        return due
