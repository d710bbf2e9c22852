"""Values of a run in words: counts, arguments, calls, times, money. Text that a run recorded is cleaned."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from flightlog.core.text import first_line, last_line
from flightlog.core.units import format_bytes, format_count, format_duration, format_percent
from flightlog.show.terminal import clean, fit

T = TypeVar("T")
_SIGNS = {"USD": "$", "EUR": "€", "GBP": "£", "JPY": "¥"}
_WHOLE = frozenset({"JPY", "KRW"})
"""Currencies without hundredths."""


def args_text(args: Mapping[str, Any] | None, width: int = 60) -> str:
    """`scenario_id=47, name=base`, cut to this width; empty without arguments."""
    if not args:
        return ""
    return fit(clean(", ".join(f"{name}={_value(value)}" for name, value in args.items())), width)


def _value(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def call_text(task: str, args: Mapping[str, Any] | None, width: int = 60) -> str:
    """`run_simulation(scenario_id=47)`; the name alone where the arguments are unknown."""
    if args is None:
        return fit(clean(task), width)
    return fit(f"{clean(task)}({args_text(args, width)})", width)


def moment_text(timestamp: str | None) -> str:
    """`2026-05-20 03:52:00 UTC` of a timestamp as Flightlog writes it; others as they are."""
    if not timestamp:
        return "unknown"
    if len(timestamp) == 27 and timestamp[10] == "T" and timestamp.endswith("Z"):
        return clean(f"{timestamp[:10]} {timestamp[11:19]} UTC")
    return clean(timestamp)


def percent_text(percent: float | None) -> str:
    """`42%` of 42; "unknown" of None."""
    return "unknown" if percent is None else format_percent(percent / 100)


def money_text(amount: float | None, currency: str | None) -> str:
    """`$12.30`, `4.00 CHF`, `-$0.02`, `¥1,200`; small amounts keep their digits, an unknown one is
    "unknown".
    """
    if amount is None or not math.isfinite(amount):
        return "unknown"
    if amount < 0:
        return f"-{money_text(-amount, currency)}"
    if amount >= 1e15:  # no bill is that long, but a rate may be mistyped
        return _with_currency(f"{amount:.3g}", currency)
    whole = currency in _WHOLE and (amount == 0 or amount >= 1)
    text = (
        f"{amount:,.0f}" if whole else f"{amount:,.2f}" if amount == 0 or amount >= 0.01 else _small(amount)
    )
    return _with_currency(text, currency)


def _with_currency(text: str, currency: str | None) -> str:
    sign = _SIGNS.get(currency or "")
    return f"{sign}{text}" if sign else f"{text} {clean(currency or '')}".rstrip()


def free_text(provider: str, currency: str | None) -> str:
    """`$0.00 (local provider)`: what costs nothing; in dollars where no currency is named."""
    return f"{money_text(0.0, currency or 'USD')} ({clean(provider)} provider)"


def _small(amount: float) -> str:
    """Two digits, written out where that is no more than a few zeros."""
    return f"{amount:.{1 - math.floor(math.log10(amount))}f}" if amount >= 1e-6 else f"{amount:.2g}"


def known(value: T | None, text: Callable[[T], str]) -> str:
    """A value in words; nothing where it is unknown."""
    return "" if value is None else text(value)


def figure_text(field: str, value: float | str) -> str:
    """A value in words; for numbers, how follows from the path of the field: `queue_s.mean`, `rss_bytes`,
    `share`; others are counts. It may also be `moment`, or how Python formats numbers, `.2g`.
    """
    if isinstance(value, str):
        return moment_text(value) if field == "moment" else value
    if field == "g" or field.startswith("."):
        return format(value, field)
    if field.endswith("share"):
        return format_percent(value)
    parts = field.split(".")
    if any(part.endswith("_s") for part in parts):
        return format_duration(value)
    if any(part.endswith("_bytes") for part in parts):
        return format_bytes(value)
    if field.endswith("_w"):
        return f"{value:,.0f} W"
    return f"{value:.0f}%" if field.endswith("percent") else format_count(value)


def known_duration(seconds: float | None) -> str:
    """A duration; nothing where it is unknown."""
    return known(seconds, format_duration)


def some_of(names: Sequence[str], most: int) -> str:
    """`a, b and 3 more`: the first of these, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def counts_text(found: Mapping[str, int], most: int) -> str:
    """`w1 (6), w2 (5) and 3 more`; nothing where there is none."""
    return some_of([f"{clean(name)} ({format_count(number)})" for name, number in found.items()], most)


def capitalized(text: str) -> str:
    """The text with its first letter in upper case, the rest unchanged."""
    return text[:1].upper() + text[1:]


def error_text(kind: str, message: str | None) -> str:
    """`ValueError: no data`, of a message its first line; not clean."""
    return f"{kind}: {first_line(message)}" if message else kind


def innermost(traceback: str | None) -> str:
    """Where a Python traceback ends, `File "model.py", line 7, in step`; its last line where it has no such
    line.
    """
    places = [line.strip() for line in (traceback or "").splitlines() if line.strip().startswith("File ")]
    return places[-1] if places else last_line(traceback)


def doing_title(*, over: bool) -> str:
    """The word for tasks without an end, in a running run and in one that is over."""
    return "Running at the end" if over else "Running now"
