"""Axes that say their unit in words: time since the start, durations by powers, bytes, shares."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from flightlog.show.figures.text import plain
from flightlog.show.phrases import moment_text
from flightlog.units import format_bytes, format_count, format_duration, format_percent


class Scale(NamedTuple):
    """What values are multiplied by on an axis, and what the axis says after them."""

    factor: float
    suffix: str
    words: str

    def of(self, values: Iterable[float]) -> list[float]:
        """Values as the axis has them."""
        return [value * self.factor for value in values]


_TIMES = (
    (3 * 86_400.0, Scale(1 / 86_400, " d", "days")),
    (2 * 3_600.0, Scale(1 / 3_600, " h", "hours")),
    (120.0, Scale(1 / 60, " min", "minutes")),
    (1.0, Scale(1.0, " s", "seconds")),
    (1e-3, Scale(1e3, " ms", "milliseconds")),
)
_DECADES = (
    1e-9,
    1e-8,
    1e-7,
    1e-6,
    1e-5,
    1e-4,
    1e-3,
    1e-2,
    1e-1,
    1.0,
    10.0,
    60.0,
    600.0,
    3_600.0,
    36_000.0,
    86_400.0,
    864_000.0,
    8_640_000.0,
    86_400_000.0,
)
_FINE = (
    *(step * 10.0**power for power in range(-9, 0) for step in (1, 2, 5)),
    1.0,
    2.0,
    5.0,
    10.0,
    20.0,
    30.0,
    60.0,
    120.0,
    300.0,
    600.0,
    1_200.0,
    1_800.0,
    3_600.0,
    7_200.0,
    18_000.0,
    36_000.0,
    86_400.0,
    172_800.0,
    432_000.0,
)


_LONGEST_S = 1e10
"""Three centuries: what is longer comes from a clock that is off, and lies beyond the axis."""


def time_scale(length_s: float) -> Scale:
    """The unit of time in which a stretch so long has few digits; ticks stay right when one zooms in."""
    for least, scale in _TIMES:
        if length_s >= least:
            return scale
    return Scale(1e6, " µs", "microseconds") if 0 < length_s < 1e-3 else _TIMES[3][1]


def time_axis(length_s: float, since: str | None = None) -> tuple[Scale, dict[str, Any]]:
    """The scale and the axis of a run that took so long; it says when the run began, by the clock."""
    scale = time_scale(length_s)
    end = length_s * scale.factor
    start = plain(moment_text(since)) if since else "the start"
    return scale, {
        "title": {"text": f"time since {start}, {scale.words}"},
        "ticksuffix": scale.suffix,
        "separatethousands": True,
        "range": [-0.005 * end, 1.005 * end] if end > 0 else [0, 1],
        "rangemode": "nonnegative",
    }


def bytes_scale(most: float) -> Scale:
    """Bytes in the largest unit of which there is at least one."""
    power = min(max(int(math.log2(most) // 10), 0), 6) if most >= 1 else 0
    unit = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")[power]
    return Scale(1 / 1024**power, f" {unit}", unit)


def duration_ticks(least_s: float, most_s: float) -> tuple[list[float], list[str]]:
    """Round durations between two, on an axis by powers, and what they are called; at least one."""
    steps = _FINE if most_s < 200 * least_s else _DECADES
    found = [step for step in steps if least_s * 0.999 <= step <= most_s * 1.001]
    if not found and least_s > 0:
        found = [min(_FINE, key=lambda step: abs(math.log(step / math.sqrt(least_s * most_s))))]
    return found, [tick_text(step) for step in found]


def tick_text(seconds: float) -> str:
    """`10 ms`, `5 s`, `10 min`, `1 h`, `2 d`: a round duration, short."""
    for size, unit in (
        (86_400.0, "d"),
        (3_600.0, "h"),
        (60.0, "min"),
        (1.0, "s"),
        (1e-3, "ms"),
        (1e-6, "µs"),
        (1e-9, "ns"),
    ):
        if seconds >= size * 0.999999:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def duration_axis(values_s: Sequence[float], title: str) -> dict[str, Any]:
    """An axis by powers for durations; those that are 0 or unknown have no place on it."""
    known = [min(value, _LONGEST_S) for value in values_s if math.isfinite(value) and value > 0]
    least, most = (min(known), max(known)) if known else (0.1, 10.0)
    least, most = least / 1.15, most * 1.15
    ticks, texts = duration_ticks(least, most)
    least, most = (
        min(least, ticks[0] / 1.05),
        max(most, ticks[-1] * 1.05),
    )  # a tick outside of it would not be seen
    return {
        "type": "log",
        "title": {"text": title},
        "tickvals": ticks,
        "ticktext": texts,
        "range": [math.log10(least), math.log10(most)],
    }


def duration_text(seconds: float | None) -> str:
    """A duration in words, short however long it is: clocks may be off by centuries."""
    if seconds is not None and math.isfinite(seconds) and abs(seconds) >= _LONGEST_S:
        return f"{seconds / 31_557_600:.3g} years"
    return format_duration(seconds)


def clock_text(seconds: float) -> str:
    """A moment of the run, `0:05`, `12:40`, `1:02:03`, with milliseconds below ten minutes of them:
    `0:05.250`.
    """
    if not math.isfinite(seconds) or abs(seconds) >= _LONGEST_S:
        return duration_text(seconds)
    sign, seconds = ("-", -seconds) if seconds < 0 else ("", seconds)
    milli = round(seconds * 1000)
    hours, rest = divmod(milli // 1000, 3600)
    minutes, whole = divmod(rest, 60)
    part = f".{milli % 1000:03d}" if milli < 600_000 and milli % 1000 else ""
    return f"{sign}{hours}:{minutes:02d}:{whole:02d}{part}" if hours else f"{sign}{minutes}:{whole:02d}{part}"


def day_text(since: str, seconds: float) -> str:
    """A moment of a run that began at `since`, by the clock: `03:52:05 UTC`, a day after that with its date;
    else nothing.
    """
    try:
        moment = datetime.fromisoformat(since) + timedelta(seconds=seconds)
    except (ValueError, OverflowError):  # a clock that is off by centuries
        return ""
    return f"{moment:%H:%M:%S} UTC" if 0 <= seconds < 86_400 else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def value_text(value: float | None, unit: str) -> str:
    """A value of a chart in words: `6.2 GiB`, `87%`, `3.5 cores`."""
    if value is None or not math.isfinite(value):
        return "unknown"
    match unit:
        case "bytes":
            return format_bytes(value)
        case "share":
            return format_percent(value)
        case "percent":
            return f"{value:.3g}%"
        case "cores":
            return f"{value:.3g} {'core' if value == 1 else 'cores'}"
        case "watts":
            return f"{value:.4g} W"
        case "seconds":
            return duration_text(value)
        case _:
            return format_count(value)
