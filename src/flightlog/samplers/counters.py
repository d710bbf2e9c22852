"""Counters that only grow, turned into rates."""

from __future__ import annotations

from collections.abc import Mapping

CPU_INTERVAL_S = 0.05
"""A share of CPU time over less than this would be one tick more or less, and mean nothing."""


def growth(now: float | None, before: float | None) -> float | None:
    """How much a counter grew; None where a reading is missing, or where it went down: wrapped or reset."""
    if now is None or before is None or now < before:
        return None
    return now - before


def rate(now: float | None, before: float | None, interval_s: float | None) -> float | None:
    """Growth a second; None where the growth is unknown or no time passed."""
    grown = growth(now, before)
    if grown is None or interval_s is None or interval_s <= 0:
        return None
    return grown / interval_s


def long_enough(interval_s: float | None) -> float | None:
    """The interval, if the kernel's CPU ticks of 10 ms can tell a share of it; None if it is too short for
    that.
    """
    return interval_s if interval_s is not None and interval_s >= CPU_INTERVAL_S else None


def percent(part: float | None, whole: float | None) -> float | None:
    """A share in percent; None where either is unknown or there is nothing to have a share of."""
    if part is None or whole is None or whole <= 0:
        return None
    return 100.0 * part / whole


def rate_over(
    now: Mapping[str, int] | None, before: Mapping[str, int] | None, interval_s: float | None
) -> float | None:
    """Growth a second of the counters both readings hold, summed.

    A counter that came or went in between says nothing of the interval and is left out. One that went down
    makes the sum unknown, and so does having none in common.
    """
    if now is None or before is None or interval_s is None or interval_s <= 0:
        return None
    grown: list[int] = []
    for name, value in now.items():
        earlier = before.get(name)
        if earlier is None:
            continue
        if value < earlier:
            return None
        grown.append(value - earlier)
    return sum(grown) / interval_s if grown else None
