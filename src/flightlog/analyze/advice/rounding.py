"""Figures as people choose them: round counts and durations, and worker time in words."""

from __future__ import annotations

_DURATIONS = (
    1,
    2,
    5,
    10,
    15,
    20,
    30,
    45,
    60,
    120,
    300,
    600,
    900,
    1200,
    1800,
    2700,
    3600,
    5400,
    7200,
    10800,
    14400,
    21600,
    28800,
    43200,
    64800,
    86400,
)
_DAY = 86_400


def round_count(number: float) -> int:
    """The next of 1, 2, 5, 10, 20, 50, … that is not less."""
    step = 1
    while True:
        for times in (1, 2, 5):
            if times * step >= number:
                return times * step
        step *= 10


def round_duration(seconds: float) -> int:
    """The next duration, in seconds, that somebody would write by hand and that is not less; days beyond
    one.
    """
    for duration in _DURATIONS:
        if duration >= seconds:
            return duration
    return -(-int(-(-seconds // 1)) // _DAY) * _DAY


def manifest_duration(seconds: int) -> str:
    """Whole seconds as a manifest has them: `45s`, `90m`, `6h`, `3d`."""
    for unit, size in (("d", _DAY), ("h", 3600), ("m", 60)):
        if seconds % size == 0 and (seconds >= 2 * size or seconds == size):
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def worker_time(seconds: float) -> str:
    """`1.9 worker-hours`, `12 worker-minutes`."""
    for size, unit in ((3600.0, "worker-hours"), (60.0, "worker-minutes")):
        if seconds >= 2 * size:
            number = seconds / size
            return f"{number:,.0f} {unit}" if number >= 10 else f"{number:.1f} {unit}"
    return f"{seconds:.0f} worker-seconds" if seconds >= 10 else f"{seconds:.2g} worker-seconds"
