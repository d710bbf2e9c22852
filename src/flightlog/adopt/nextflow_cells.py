"""The cells of Nextflow's trace files: durations, sizes, times and shares, readable or raw; None is
unknown.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable

from flightlog.adopt.times import moment_ns

_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_PARTS = re.compile(
    r"(\d{1,15}(?:\.\d{1,15})?)\s*(ms|s|m|h|d)(?:illis|ec|econds?|econd|in|inutes?|ours?|our|ays?|ay)?(?![a-z])"
)
_WHOLE = re.compile(r"[0-9]{1,18}")
_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,15})?")
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)\s*([KMGTPEZ]?)i?B", re.IGNORECASE)


def seconds_of(value: str | None) -> float | None:
    """Seconds of `1m 3s`, `350ms` or `2d 4h`; a number alone is milliseconds, as in raw files."""
    if value is None:
        return None
    if _NUMBER.fullmatch(value):
        return float(value) / 1000
    parts = _PARTS.findall(value)
    if not parts or _PARTS.sub("", value).strip():
        return None
    return float(sum(round(float(number) * _UNITS[unit] * 1000) for number, unit in parts)) / 1000


def bytes_of(value: str | None) -> int | None:
    """Bytes of `1.2 GB`, which Nextflow counts in 1024s; a number alone is bytes, as in raw files."""
    if value is None:
        return None
    if _WHOLE.fullmatch(value):
        return int(value)
    found = _SIZE.fullmatch(value)
    return (
        None if found is None else round(float(found[1]) * 1024 ** " KMGTPEZ".index(found[2].upper() or " "))
    )


def time_of(value: str | None) -> int | None:
    """Unix nanoseconds of `2026-05-20 03:52:00.123`, taken as UTC; a number alone is milliseconds of Unix
    time.
    """
    if value is None:
        return None
    if _WHOLE.fullmatch(value):
        return int(value) * 1_000_000 if int(value) < 10**14 else None
    return moment_ns(value)


def share_of(value: str | None) -> float | None:
    """`95.2` of `95.2%`."""
    bare = None if value is None else value.removesuffix("%")
    return float(bare) if bare is not None and _NUMBER.fullmatch(bare) else None


def whole_of(value: str | None) -> int | None:
    """A whole number."""
    return int(value) if value is not None and _WHOLE.fullmatch(value) else None


def signal_of(exit_code: int | None) -> str | None:
    """The signal of an exit code above 128, as shells have it."""
    names: Callable[[int], signal.Signals] = signal.Signals
    try:
        return names(exit_code - 128).name if exit_code is not None and 128 < exit_code < 193 else None
    except ValueError:
        return None
