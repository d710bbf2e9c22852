"""What should be drawn of a run, found by going through its lines; and ways to draw a run that look for
it."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

from builders import slow_report

from flightlog.analyze.charts.report_with_charts import charts_of, timeline_of
from flightlog.analyze.charts.results import RunCharts, Timeline
from flightlog.analyze.limits import ChartLimits
from flightlog.analyze.report.report import report_and
from flightlog.store.run import Run

S = 1_000_000_000


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


def pieces(path: Path) -> list[dict[str, Any]]:
    """The attempts whose time is known, in nanoseconds after the start, cut off at the start and the end of
    the run.

    From `free` on their row is free: what measured no duration may overlap the next one by a thousandth of
    the run.
    """
    start, until = slow_report.window(path)
    found = []
    for one in slow_report.attempts(path):
        if one["began"] is None:
            continue
        since, to = (min(max(one[which], start), until) - start for which in ("began", "stopped"))
        vague = one["duration_s"] is None and one["state"] != "running"
        found.append(
            {
                **one,
                "since": since,
                "until": to,
                "free": max(since, to - (until - start) // 1000) if vague else to,
                "drawn_as": "retried" if one["state"] == "failed" and one["retried"] else one["state"],
            }
        )
    return found


def within(piece: dict[str, Any], since: int, until: int) -> int:
    """For how many nanoseconds it ran between two moments."""
    return max(0, min(piece["until"], until) - max(piece["since"], since))


def under_way(piece: dict[str, Any], since: int, until: int, length_s: float) -> bool:
    """Whether it ran between two moments; one that took no time did at its moment, which is before the very
    end."""
    if piece["since"] == piece["until"]:
        return since <= min(piece["since"], round(length_s * S) - 1) < until
    return within(piece, since, until) > 0


def most_at_once(of: list[dict[str, Any]]) -> int:
    """How many ran side by side at most."""
    return max(
        (
            sum(other["since"] <= one["since"] < max(other["free"], other["since"] + 1) for other in of)
            for one in of
        ),
        default=0,
    )
