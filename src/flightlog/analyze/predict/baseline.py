"""What a prediction is, and the baseline: quantiles of a task's recent attempts, whatever their arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from flightlog.analyze.limits import PredictLimits
from flightlog.core.stats import quantile, student_quantile

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
    if n >= PredictLimits.min_attempts_for_ranks:
        outside = max(0.0, ((n + 1) * (1 - PredictLimits.confidence) / 2 - 1) / (n - 1))
        low, high = quantile(recent, outside), quantile(recent, 1 - outside)
    else:
        half = student_quantile(0.95, n - 1) * stdev(recent) * math.sqrt(1 + 1 / n)
        low, high = min(recent[0], fmean(recent) - half), max(recent[-1], fmean(recent) + half)
    return Logs(low, quantile(recent, 0.5), high)
