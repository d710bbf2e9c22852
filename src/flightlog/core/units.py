"""Sizes, ages and shares as people write and read them.

Sizes: `K M G T P E` and `KiB … EiB` count in 1024s, as batch systems do (`--mem=16G`); `kB MB GB …` count in
1000s. What is unknown reads "unknown", never 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import wraps

from flightlog.core.errors import UsageError

_SIZE = re.compile(r"\s*(\d{1,24})(?:\.(\d{1,24}))?\s*([kmgtpe]?)(i?b|)\s*", re.IGNORECASE | re.ASCII)
_AGE_PART = re.compile(r"\s*(\d{1,15}(?:\.\d{1,15})?)\s*(ms|µs|us|[smhdw])", re.IGNORECASE | re.ASCII)
_SECONDS = {"w": 604_800.0, "d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0}
_SECONDS |= {"ms": 1e-3, "us": 1e-6, "µs": 1e-6}
_PREFIXES = ("", "K", "M", "G", "T", "P", "E")
_BEYOND = 1e9
"""Nobody has measured so many days or exbibytes: a file may still say so, and it reads as three digits and a
power."""


def parse_size(text: str) -> int:
    """Bytes: `"10GB"` is 10,000,000,000, `"512MiB"` and `"512M"` are 536,870,912, `"100"` is 100.

    A fraction of a byte is rounded to the nearest byte. Anything else is a `UsageError`.
    """
    found = _SIZE.fullmatch(text)
    if found is None:
        raise UsageError(
            f"size {text[:80]!r} is not understood: write bytes as '1048576', or with a unit as '512MiB' "
            "(or '512M', both in 1024s) or '10GB' (in 1000s)"
        )
    whole, fraction, prefix, suffix = found.group(1), found.group(2) or "", found.group(3), found.group(4)
    step = 1000 if suffix.lower() == "b" else 1024
    factor: int = step ** _PREFIXES.index(prefix.upper())
    scale: int = 10 ** len(fraction)
    return (2 * int(whole + fraction) * factor + scale) // (2 * scale)


def parse_age(text: str) -> float:
    """Seconds: `"45s"`, `"90m"`, `"12h"`, `"30d"`, `"1w"`, and sums from large to small such as `"1h 30m"`.

    A number without a unit is a `UsageError`, since 30 could be seconds or days.
    """
    total, position, last = 0.0, 0, math.inf
    end = len(text.rstrip())
    while position < end:
        part = _AGE_PART.match(text, position)
        unit = _SECONDS[part.group(2).lower()] if part else math.inf
        if part is None or unit >= last:
            break
        number = float(part.group(1))
        total += number * unit if unit >= 1 else number / round(1 / unit)  # 350 ms is 0.35 s to the last bit
        position, last = part.end(), unit
    if position < end or not end:
        raise UsageError(
            f"age {text[:80]!r} is not understood: write a number and a unit, as '45s', '90m', '12h', '30d' "
            "or '1w', or a sum of them as '1h 30m'"
        )
    return total


def _of_numbers(format_: Callable[[float], str]) -> Callable[[float | None], str]:
    """The function, for negative numbers too; what is no number, as a file may hold in its place, is
    unknown.
    """

    @wraps(format_)
    def formatted(value: float | None) -> str:
        try:
            if value is None or not math.isfinite(value):
                return "unknown"
        except (OverflowError, TypeError):  # a whole number beyond all floats, or no number
            return "unknown"
        return format_(value) if value >= 0 else f"-{format_(-value)}"

    return formatted


@_of_numbers
def format_bytes(n: float) -> str:
    """`"512 B"`, `"6.2 GiB"`; 1024s, so that `parse_size` reads it back."""
    if round(n) < 1024:
        return f"{round(n)} B"
    value, power = n / 1024, 1
    while round(value, 1) >= 1024 and power < len(_PREFIXES) - 1:
        value, power = value / 1024, power + 1
    return f"{value:.1f} {_PREFIXES[power]}iB" if value < _BEYOND else f"{value:.3g} {_PREFIXES[power]}iB"


@_of_numbers
def format_duration(seconds: float) -> str:
    """`"0.35 ms"`, `"4.2s"`, `"2m 05s"`, `"1h 02m"`, `"3d 04h"`; `parse_age` reads it back."""
    if seconds == 0:
        return "0.0s"
    if seconds < 9.995e-6:
        return f"{seconds * 1e6:.2f} µs"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 3_600:
        return f"{whole // 60}m {whole % 60:02d}s"
    minutes = round(seconds / 60)
    if minutes < 1_440:
        return f"{minutes // 60}h {minutes % 60:02d}m"
    if seconds >= _BEYOND * 86_400:
        return f"{seconds / 86_400:.3g}d"
    hours = round(seconds / 3_600)
    return f"{hours // 24}d {hours % 24:02d}h"


@_of_numbers
def format_count(n: float) -> str:
    """`"1,234,567"`; a number that is not whole keeps one decimal."""
    if n >= _BEYOND**2:
        return f"{n:.3g}"
    return f"{int(n):,}" if n == int(n) else f"{n:,.1f}"


@_of_numbers
def format_percent(fraction: float) -> str:
    """`"87%"` for 0.87. Close to 0 % and 100 % a decimal is kept, so that "0%" is nothing and "100%" is
    all.
    """
    percent = fraction * 100
    if 0 < percent < 0.05:
        return "<0.1%"
    if 99.95 <= percent < 100:
        return ">99.9%"
    if percent >= _BEYOND:
        return f"{percent:.3g}%"
    decimals = 1 if percent < 10 or 99 <= percent < 100 else 0
    text = f"{percent:.{decimals}f}"
    return f"{text.removesuffix('.0')}%"
