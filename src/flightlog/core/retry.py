"""Waiting between attempts at something that failed: each time twice as long, up to a limit."""

from __future__ import annotations

import random
from collections.abc import Iterator


def delay_s(failures: int, first_s: float, longest_s: float) -> float:
    """Seconds to wait after so many failures in a row, the first included."""
    return min(first_s * 2.0 ** min(max(failures, 1) - 1, 62), longest_s)


def delays_s(first_s: float, longest_s: float, jitter: float = 0.0) -> Iterator[float]:
    """The seconds to wait after the first, second, third … failure, without end.

    `jitter` of 0.5 spreads each by up to half of it, up and down, so that processes which failed together do
    not try again together.
    """
    spread = random.Random()  # the program's own random numbers stay as they are
    failures = 0
    while True:
        failures += 1
        yield delay_s(failures, first_s, longest_s) * spread.uniform(1.0 - jitter, 1.0 + jitter)
