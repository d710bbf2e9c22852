"""The HTML of everything that displays itself: one door, which finds the writer of each kind when it is needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

MOST = 200_000
"""A display has so many characters at most."""

_WRITERS = {
    "flightlog.store.run.Run": "runs:run_html",
    "flightlog.record.run.LiveRun": "runs:recording_html",
    "flightlog.analyze.report.Report": "runs:report_html",
    "flightlog.analyze.summary.Summary": "runs:summary_html",
    "flightlog.store.query.Table": "tables:table_html",
    "flightlog.analyze.changes.Comparison": "answers:comparison_html",
    "flightlog.analyze.trends.Trend": "answers:trend_html",
    "flightlog.analyze.diagnosis.results.RunDiagnosis": "answers:diagnosis_html",
    "flightlog.session.session.Session": "sessions:session_html",
    "flightlog.session.futures.TaskFuture": "sessions:future_html",
    "flightlog.notebook.notes.Note": "notes:note_html",
}
"""Who writes what, by the name of the class; that of a base holds for what is made of it."""


def html_of(value: Any) -> str | None:
    """The display of a value, of at most `MOST` characters; None for what has none."""
    for kind in type(value).__mro__:
        writer = _WRITERS.get(f"{kind.__module__}.{kind.__qualname__}")
        if writer is not None:
            module, _, name = writer.partition(":")
            html: str = getattr(import_module(f"flightlog.notebook.{module}"), name)(value)
            if len(html) > MOST:
                raise ValueError(f"its display would have {len(html):,} characters")
            return html
    return None
