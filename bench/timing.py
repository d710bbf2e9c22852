"""How things are timed here: interleaved, median of several, because machines are noisy."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping


def interleaved(cases: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Run every case once a round, in turn; the median of each. A case gives its own measurement."""
    found: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            found[name].append(case())
    return {name: statistics.median(values) for name, values in found.items()}
