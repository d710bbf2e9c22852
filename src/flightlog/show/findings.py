"""What stands out in a run, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flightlog.show.document import Remarks, Section
from flightlog.show.phrases import count_text
from flightlog.units import format_percent

if TYPE_CHECKING:
    from flightlog.analyze.report import Report

SHOWN = 4


def findings_section(report: Report, shown: int = SHOWN) -> Section:
    """The findings, the costliest first; one line for a run in which nothing stands out."""
    title = "What stands out"
    if not report.findings:
        if report.time is None or not report.time.whole.total_s:
            return Section(title)
        share = format_percent(report.time.whole.run_s / report.time.whole.total_s)
        of = "worker time" if report.time.basis == "workers" else "the wall time"
        return Section(title, f"nothing; {share} of {of} went to work that completed")
    left = len(report.findings) - shown
    more = f"and {count_text(left, 'smaller finding')} (--format json has all)" if left > 0 else ""
    sentences = [one.sentence[:1].upper() + one.sentence[1:] for one in report.findings[:shown]]
    return Section(title, "", [Remarks(sentences, more)])
