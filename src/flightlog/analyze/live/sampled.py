"""Values measured again and again, of the last minutes: the mean, or the most, of each second."""

from __future__ import annotations

from typing import Literal

from flightlog.analyze.live.levels import KEPT, POINTS, WIDTH
from flightlog.analyze.moments import SECOND

KEPT_S = KEPT * WIDTH // SECOND
GAP_S = 15
"""A line is not drawn across a gap that is longer."""


class Sampled:
    """One series. Takes values in any order."""

    __slots__ = ("_of", "_seconds", "limit")

    def __init__(self, of: Literal["mean", "most"]) -> None:
        self.limit = 1 << 62
        self._of = of
        self._seconds: dict[int, tuple[float, int, float]] = {}

    def add(self, at: int | None, value: float | None) -> None:
        """Take a value; one that is unknown, or of an unknown moment, is left out."""
        if at is None or value is None:
            return
        second = at // SECOND
        known = self._seconds.get(second)
        if known is not None:
            self._seconds[second] = (known[0] + value, known[1] + 1, max(known[2], value))
            return
        self._seconds[second] = (value, 1, value)
        if len(self._seconds) > 2 * KEPT_S:
            ordered = sorted(self._seconds)
            newest = min(ordered[-1], self.limit // SECOND)
            kept = {one: self._seconds[one] for one in ordered if one >= newest - KEPT_S}
            self._seconds = dict(list(kept.items())[: 2 * KEPT_S - 1])

    def points(self, since: int, until: int) -> tuple[list[float], list[float | None]]:
        """Seconds after `since` and values; null in the middle of a gap."""
        first, last = since // SECOND, max(since, until) // SECOND
        step = -(-(last - first + 1) // POINTS)
        groups: dict[int, list[tuple[float, int, float]]] = {}
        for second, found in self._seconds.items():
            if first <= second <= last:
                groups.setdefault((second - first) // step, []).append(found)
        at: list[float] = []
        value: list[float | None] = []
        for group in sorted(groups):
            found_at = float(group * step)
            if at and found_at - at[-1] > max(GAP_S, 3 * step):
                at.append((at[-1] + found_at) / 2)
                value.append(None)
            at.append(found_at)
            parts = groups[group]
            if self._of == "most":
                value.append(max(most for _, _, most in parts))
            else:
                value.append(
                    round(sum(total for total, _, _ in parts) / sum(count for _, count, _ in parts), 3)
                )
        return at, value
