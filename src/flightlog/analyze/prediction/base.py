"""What a prediction is: an expected value, the interval around it, and the evidence for both."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

CONFIDENCE = 0.9
"""Intervals hold so many of the values that follow."""
LOW, MID, HIGH = 0.05, 0.5, 0.95
"""The quantiles that are learnt."""

Method = Literal["boosting", "baseline"]
Quantity = Literal["duration_s", "peak_memory_bytes"]


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
