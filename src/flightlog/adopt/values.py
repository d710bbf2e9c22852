"""Values in other tools' files: times, numbers, texts and ids, checked; None is unknown."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from flightlog.core.time import timestamp_of
from flightlog.core.units import format_count, format_duration

_LATEST = 253_402_300_799_999_999_999
"""The last nanosecond of the year 9999: no timestamp is later."""

_LONGEST_S = 1e10


def stamp(ns: int) -> str:
    """Unix nanoseconds as the timestamp of an event, cut to microseconds."""
    return timestamp_of(min(max(ns, 0), _LATEST))


def whole_ns(seconds: float) -> int:
    """Seconds in nanoseconds, rounded to the microseconds that a float of Unix time can resolve."""
    return round(seconds * 1_000_000) * 1000


def moment_ns(value: Any) -> int | None:
    """Unix nanoseconds of a number of seconds or an ISO 8601 text (UTC by default).

    None for anything else, and for times before 1970 or after the year 9999.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        if not math.isfinite(value) or not 0 <= value < _LATEST / 1e9:
            return None
        return whole_ns(value)
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value.strip())
    except ValueError:
        return None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    since = found - datetime(1970, 1, 1, tzinfo=UTC)
    ns = (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1000
    return ns if ns >= 0 else None


def number(value: Any) -> float | None:
    """A finite number of at least 0; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) and found >= 0 else None


def seconds(value: Any, in_one: float = 1.0) -> float | None:
    """A duration in seconds, from a number of units of which `in_one` make a second; None beyond 300
    years.
    """
    found = number(value)
    return None if found is None or found / in_one > _LONGEST_S else found / in_one


def whole(value: Any) -> int | None:
    """A whole number of at least 0 that fits 63 bits; None for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value if 0 <= value < 2**63 else None
    found = number(value)
    return int(found) if found is not None and found.is_integer() and found < 2**63 else None


def text(value: Any) -> str | None:
    """A text that is not empty; None for anything else."""
    return value if isinstance(value, str) and value else None


def hex_id(value: Any, digits: int) -> str | None:
    """A W3C id of so many hex digits, without prefix, zeros included; None for 0 and for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = f"{value:x}"
    if not isinstance(value, str):
        return None
    bare = value.lower().removeprefix("0x")
    try:
        known = int(bare, 16)
    except ValueError:
        return None
    return f"{known:0{digits}x}" if 0 < known < 16**digits and "_" not in bare else None


class DurationTotals:
    """Count, total and maximum of durations in seconds."""

    def __init__(self) -> None:
        self.count = 0
        self.total_s = self.longest_s = 0.0

    def add(self, seconds: float) -> None:
        """Add one."""
        self.count += 1
        self.total_s += seconds
        self.longest_s = max(self.longest_s, seconds)

    def note(self, whose: str) -> str | None:
        """A sentence on durations that include waiting; `whose` says which they are and from when they
        count. None where there are none.
        """
        if not self.count:
            return None
        return (
            f"{whose}, so they include waiting: {format_count(self.count)} of them, "
            f"{format_duration(self.total_s / self.count)} on average, {format_duration(self.longest_s)} at "
            f"most, {format_duration(self.total_s)} in all. They are recorded as the tasks' metric elapsed_s"
            "; how long tasks executed, and on which worker, is not recorded."
        )
