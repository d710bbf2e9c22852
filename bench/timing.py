"""How things are timed here: interleaved, median of several, because machines are noisy."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import TypeVar

T = TypeVar("T")


def interleaved(cases: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Run every case once a round, in turn; the median of each. A case gives its own measurement."""
    return {name: statistics.median(values) for name, values in by_round(cases, rounds).items()}


def by_round(cases: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Run every case once a round, in turn; what each gave, by round."""
    found: dict[str, list[T]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            found[name].append(case())
    return found
