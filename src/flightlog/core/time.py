"""Moments as whole nanoseconds since 1970: exact, comparable, and the same sum in any order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

SECOND = 1_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_YEAR, LAST_YEAR = 1971, 2199
"""What lies outside of these years is noise, and no moment."""
LONGEST_S = 5e8
LONGEST = 1 << 59
"""Durations of `LONGEST_S` seconds, 15 years, or more are noise, and count as so many nanoseconds, 18 years.

So the end of what begins in the last year, and the time to there from two durations before the first, are in
64 bits.
"""


def moment(timestamp: str | None) -> int | None:
    """An ISO 8601 timestamp in nanoseconds since 1970; UTC where it names no zone, None where it is none."""
    if not timestamp:
        return None
    if len(timestamp) == 27 and timestamp[19] == "." and timestamp[26] == "Z":
        fraction = timestamp[20:26]
        if fraction.isascii() and fraction.isdigit():
            second = _whole(timestamp[:19])
            return None if second is None else second + int(fraction) * 1000
    return _whole(timestamp)


@lru_cache(maxsize=4096)
def _whole(timestamp: str) -> int | None:
    try:
        parsed = datetime.fromisoformat(timestamp)
    except ValueError:
        return None
    if not FIRST_YEAR <= parsed.year <= LAST_YEAR:
        return None
    zoned = parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    since = zoned - _EPOCH
    return (since.days * 86400 + since.seconds) * SECOND + since.microseconds * 1000


def timestamp_of(when: int) -> str:
    """The moment as every event writes it: UTC, microseconds, `Z`."""
    stamp = _EPOCH + timedelta(microseconds=when // 1000)
    return f"{stamp:%Y-%m-%dT%H:%M:%S}.{stamp.microsecond:06d}Z"


def nanoseconds(seconds: float) -> int:
    """A duration as whole nanoseconds; negative ones count as nothing, endless ones as very long."""
    if seconds <= 0:
        return 0
    return round(seconds * SECOND) if seconds < LONGEST_S else LONGEST


def seconds(duration: int) -> float:
    """A duration in seconds."""
    return duration / SECOND
