"""Pages straight from runs: everything that they show is read, and put on the page."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from flightlog.analyze.charts.report_with_charts import look_at, timeline_of
from flightlog.analyze.compare.compare import compare_groups
from flightlog.analyze.compare.environment import environment_of
from flightlog.analyze.compare.run_groups import find_groups
from flightlog.analyze.compare.thresholds import check
from flightlog.core.errors import FlightlogError
from flightlog.show.html.compare_page import compare_page
from flightlog.show.html.report_page import report_page

if TYPE_CHECKING:
    from flightlog.analyze.charts.report_with_charts import Look
    from flightlog.analyze.compare.run_groups import Reference
    from flightlog.analyze.compare.thresholds import Outcome, Threshold
    from flightlog.analyze.diagnosis.results import RunDiagnosis
    from flightlog.analyze.distribution import Distribution
    from flightlog.events import CostRates
    from flightlog.store.run import Run

DIAGNOSED_BYTES = 4 << 30
"""Runs up to this size are diagnosed for the page; of a larger one it says how to do so."""


def report_html(
    run: Run,
    *,
    history: Mapping[str, Distribution] | None = None,
    rates: CostRates | None = None,
    ways: Mapping[str, str] | None = None,
) -> str:
    """The report of a run in any state as a page. `history` and `rates` are as `report_on` takes them.

    `ways` lead on to other pages, addresses by what they are called, where the page is served among others.
    """
    look = look_at(run, history=history, rates=rates)
    return report_page(look, diagnosis=diagnosis_of(run, look), environment=environment_of(run), ways=ways)


def diagnosis_of(run: Run, look: Look) -> RunDiagnosis | None:
    """Why it failed, where anything did and the run is not too large to ask on the way."""
    from flightlog.analyze.diagnosis.diagnose import diagnose

    report = look.report
    if not report.failures.count and report.run.status in {"completed", "running"}:
        return None
    if run.size_bytes() > DIAGNOSED_BYTES:
        return None
    try:
        return diagnose(run)
    except FlightlogError:  # the report stands without it, and says how to ask again
        return None


def compare_html(
    before: Reference | None = None,
    after: Reference | None = None,
    *,
    runs_dir: str | os.PathLike[str] | None = None,
    ways: Mapping[str, str] | None = None,
) -> str:
    """The comparison of two runs or groups of runs as a page; they are named as `flightlog.compare` takes
    them.

    `ways` are as in `report_html`.
    """
    return compare_and_check(before, after, runs_dir=runs_dir, ways=ways)[0]


def compare_and_check(
    before: Reference | None = None,
    after: Reference | None = None,
    *,
    runs_dir: str | os.PathLike[str] | None = None,
    thresholds: Sequence[Threshold] = (),
    strict: bool = False,
    ways: Mapping[str, str] | None = None,
) -> tuple[str, list[Outcome]]:
    """The same with conditions, and what became of them."""
    groups = find_groups(before, after, runs_dir=runs_dir)
    comparison = compare_groups(*groups)
    outcomes = check(comparison, thresholds, strict=strict)
    old, new = (timeline_of(group.runs[0]).timeline for group in groups)  # of a group, that of its newest run
    return compare_page(comparison, outcomes, before=old, after=new, ways=ways), outcomes
