"""Limits, waits and thresholds of `export/`: each stands in one place, with what it is for."""

from __future__ import annotations


class ExportLimits:
    """Sizes of what is written or sent at once, and how long to wait."""


class PrometheusLimits:
    """What is served to Prometheus, and to how many clients."""
