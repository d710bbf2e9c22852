"""Limits, waits and thresholds of `analyze/`: each stands in one place, with what it is for."""

from __future__ import annotations


class AdviceLimits:
    """What `advise` reads of earlier runs, and when a setting is worth a recommendation."""


class ChartLimits:
    """How many bars, lines and points a chart has."""


class CompareLimits:
    """What is compared, and when a difference counts as one."""


class CostLimits:
    """What is priced."""


class DeviceLimits:
    """What is read of device memory, and when something there stands out."""


class DiagnosisLimits:
    """How much text and how many causes a diagnosis takes in, and when it is sure."""


class FindingLimits:
    """Below these, something is not worth a sentence."""


class HistoryLimits:
    """Which earlier runs are read, and when their durations have changed."""


class LiveLimits:
    """What is kept and shown of a run while it is followed."""


class PredictLimits:
    """What estimates are made from."""


class ReportLimits:
    """What a report lists, and how much of it."""
