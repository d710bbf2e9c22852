"""Comparisons, trends and diagnoses in a notebook: the answer first, and the rest to unfold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flightlog.notebook.elements import folded, fragment, headline, pre, prose, quiet, table, text, title
from flightlog.show.bounded import bounded
from flightlog.show.comparison import answer_text, comparison_text, percent_text, ratio_text
from flightlog.show.diagnosis import diagnosis_text
from flightlog.show.phrases import count_text, moment_text
from flightlog.show.trends import trend_text
from flightlog.units import format_count, format_duration

if TYPE_CHECKING:
    from flightlog.analyze.changes import Comparison
    from flightlog.analyze.diagnosis.results import RunDiagnosis
    from flightlog.analyze.trends import Trend

ROWS = 10


def comparison_html(comparison: Comparison) -> str:
    """What changed, in a sentence; why the wall time differs; the durations; everything, to unfold."""
    comparison = bounded(comparison)
    found = comparison.explained
    shares = [
        (share.what, _signed(share.seconds), share.detail) for share in (found.shares[:ROWS] if found else [])
    ]
    if found is not None and found.not_explained_s:
        shares.append(("not explained", _signed(found.not_explained_s), ""))
    durations = [
        (
            change.name,
            change.verdict,
            ratio_text(change.typical),
            *("" if side is None else format_count(side.count) for side in (change.before, change.after)),
            *("" if side is None else format_duration(side.p50_s) for side in (change.before, change.after)),
        )
        for change in comparison.durations[:ROWS]
    ]
    left = len(comparison.durations) - ROWS
    head = ("Name", "Verdict", "Typical ratio", "A", "B", "A p50", "B p50")
    return fragment(
        headline(prose(answer_text(comparison))),
        _wall(comparison),
        title("Why the wall time differs")
        + table(("Share", "Wall time", "From A to B"), shares, left=("From A to B",))
        if shares
        else "",
        title("Durations")
        + table(
            head,
            durations,
            left=("Verdict",),
            more=f"and {count_text(left, 'more name')}" if left > 0 else "",
        )
        if durations
        else "",
        folded("The whole comparison", pre(comparison_text(comparison, width=120))),
    )


def trend_html(trend: Trend) -> str:
    """The trend as its text says it."""
    return fragment(pre(trend_text(bounded(trend), width=100)))


def diagnosis_html(diagnosis: RunDiagnosis) -> str:
    """Why it failed, in a sentence; causes, evidence and what to do about them below."""
    return fragment(pre(diagnosis_text(bounded(diagnosis), width=110)))


def _wall(comparison: Comparison) -> str:
    sides = []
    for letter, side, wall in (
        ("A", comparison.before, comparison.wall_s.before),
        ("B", comparison.after, comparison.wall_s.after),
    ):
        run = side.runs[0] if side.runs else None
        which = text(side.asked if run is None or len(side.runs) > 1 else run.run_id, 120)
        when = (
            f", started {text(moment_text(run.start_time))}"
            if run is not None and len(side.runs) == 1
            else ""
        )
        sides.append(f"{letter}: {which}{when}, {format_duration(wall)}")
    ratio = comparison.wall_s.ratio
    moved = f" · wall time {percent_text(ratio)}" if ratio is not None else ""
    return quiet("<br>".join(sides) + moved)


def _signed(seconds: float) -> str:
    return f"+{format_duration(seconds)}" if seconds >= 0 else format_duration(seconds)
