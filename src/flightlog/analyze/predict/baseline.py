"""What a prediction is, and the baseline: quantiles of a task's recent attempts, whatever their arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from flightlog.analyze.limits import PredictLimits

LOW, MID, HIGH = 0.05, 0.5, 0.95
"""The quantiles that are learnt."""
Z90 = 1.6449
"""The 95 % point of the normal distribution: the ends of a 90 % interval."""

Method = Literal["boosting", "baseline"]
Quantity = Literal["duration_s", "peak_memory_bytes"]
QUANTITIES: tuple[Quantity, Quantity] = ("duration_s", "peak_memory_bytes")


class Estimate(Struct, frozen=True, kw_only=True):
    """One quantity of a task; in seconds or bytes."""

    expected: float
    """The median: half of such tasks stay below."""
    low: float
    high: float
    """Between them lie 90 % of such tasks."""
    method: Method
    reason: str
    """Why this method, with the numbers that decided."""
    examples: int
    """Attempts of that name that it was learnt from."""
    runs: int
    """Runs that they come from."""


class Prediction(Struct, frozen=True, kw_only=True):
    """What a task of that name with these arguments will likely take."""

    task: str
    args: dict[str, Any]
    project: str | None
    host: str | None
    confidence: float
    duration_s: Estimate | None
    """None where the history is too short; `notes` say so."""
    peak_memory_bytes: Estimate | None
    """The same; also where nobody measured memory."""
    trained_at: str
    """When the model was trained, UTC."""
    training_runs: int
    left_out: dict[str, int]
    """Attempts of the project, whatever their name, that were not learnt from, by reason."""
    notes: list[str]
    """What to keep in mind: little history, arguments beyond those seen, attempts that were left out."""


_T95 = (
    *(6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833),
    *(1.812, 1.796, 1.782, 1.771, 1.761, 1.753, 1.746, 1.740, 1.734),
)
"""The 95 % point of Student's t with 1, 2, … degrees of freedom."""


class Logs(NamedTuple):
    """Low, expected and high, as logarithms."""

    low: float
    mid: float
    high: float


def baseline(logs: Sequence[float]) -> Logs | None:
    """The interval and median of what follows these values, given as logarithms, the oldest first; None of
    too few.

    From `min_attempts_for_ranks` values on, ranks such that the next value of the same kind lies within in 90
    of 100 cases, whatever the distribution. Of fewer, all that were seen, widened to what a normal
    distribution of the logarithms would give.
    """
    recent = sorted(logs[-PredictLimits.max_recent_attempts :])
    n = len(recent)
    if n < PredictLimits.min_attempts:
        return None
    mid = (recent[(n - 1) // 2] + recent[n // 2]) / 2
    if n >= PredictLimits.min_attempts_for_ranks:
        outside = (n + 1) * (1 - PredictLimits.confidence) / 2
        low, high = _rank(recent, outside), _rank(recent, n + 1 - outside)
    else:
        half = _T95[n - 2] * stdev(recent) * math.sqrt(1 + 1 / n)
        low, high = min(recent[0], fmean(recent) - half), max(recent[-1], fmean(recent) + half)
    return Logs(low, mid, high)


def _rank(ordered: Sequence[float], rank: float) -> float:
    """The value of a rank counted from 1, in a straight line between two; the outermost beyond them."""
    place = min(max(rank, 1.0), float(len(ordered)))
    below = math.floor(place)
    above = min(below + 1, len(ordered))
    return ordered[below - 1] + (place - below) * (ordered[above - 1] - ordered[below - 1])
