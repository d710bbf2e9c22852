"""How many durations there were, how long on average and at most."""

from __future__ import annotations

from flightlog.units import format_count, format_duration


class Spread:
    """Durations in seconds, added up."""

    def __init__(self) -> None:
        self.count = 0
        self.total_s = self.longest_s = 0.0

    def add(self, seconds: float) -> None:
        """One more."""
        self.count += 1
        self.total_s += seconds
        self.longest_s = max(self.longest_s, seconds)

    def text(self) -> str:
        """`24 of them, 254 ms on average, 439 ms at most, 6.09 s in all`; nothing where there are none."""
        if not self.count:
            return ""
        return (
            f"{format_count(self.count)} of them, {format_duration(self.total_s / self.count)} on average, "
            f"{format_duration(self.longest_s)} at most, {format_duration(self.total_s)} in all"
        )
