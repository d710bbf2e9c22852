"""What is drawn of a run, with limits of the test's own."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

from flightlog.analyze.charts.report_with_charts import charts_of, timeline_of
from flightlog.analyze.charts.results import RunCharts, Timeline
from flightlog.analyze.limits import ChartLimits
from flightlog.analyze.report.report import report_and
from flightlog.store.run import Run


def drawn(path: Path, **limits: int) -> RunCharts:
    """What is drawn of a run; `limits` replace those of `ChartLimits`."""
    with patch.multiple(ChartLimits, **limits) if limits else nullcontext():
        return report_and(Run(path), charts_of, details=False)[1]


def timeline(path: Path, **limits: int) -> Timeline:
    """The timeline of a run of which something is drawn; `limits` replace those of `ChartLimits`."""
    with patch.multiple(ChartLimits, **limits) if limits else nullcontext():
        found = timeline_of(Run(path)).timeline
    assert found is not None
    return found
