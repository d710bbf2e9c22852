"""The comparison of two runs or groups of runs as an HTML page."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

from flightlog.analyze.charts.report_with_charts import timeline_of
from flightlog.analyze.compare.compare import compare_groups
from flightlog.analyze.compare.run_groups import find_groups
from flightlog.analyze.compare.thresholds import check
from flightlog.core.text import plural
from flightlog.core.units import format_count, format_duration
from flightlog.show.bounded import bounded
from flightlog.show.comparison import (
    WHY,
    answer_text,
    comparison_sections,
    main_shares,
    opposite,
    percent_text,
    signed_duration,
    wall_text,
)
from flightlog.show.figures import rows, style
from flightlog.show.figures.timeline import span_names
from flightlog.show.html import page
from flightlog.show.html.elements import Child, Element, coded, said, tag
from flightlog.show.html.page import PagePart, take_section
from flightlog.show.html.report_page import timeline_plot
from flightlog.show.limits import HtmlLimits
from flightlog.show.phrases import known, money_text

if TYPE_CHECKING:
    from flightlog.analyze.charts.results import Timeline
    from flightlog.analyze.compare.results import Change, Comparison, Side
    from flightlog.analyze.compare.run_groups import Reference
    from flightlog.analyze.compare.thresholds import Threshold, ThresholdOutcome


def compare_html(
    before: Reference | None = None,
    after: Reference | None = None,
    *,
    runs_dir: str | os.PathLike[str] | None = None,
    thresholds: Sequence[Threshold] = (),
    strict: bool = False,
    ways: Mapping[str, str] | None = None,
) -> tuple[str, list[ThresholdOutcome]]:
    """The comparison of two runs or groups of runs as a page, and what became of the conditions. Runs are
    named as for `flightlog.compare`; `ways` are as in `report_html`.
    """
    groups = find_groups(before, after, runs_dir=runs_dir)
    comparison = compare_groups(*groups)
    outcomes = check(comparison, thresholds, strict=strict)
    old, new = (timeline_of(group.runs[0]).timeline for group in groups)  # of a group, that of its newest run
    return compare_page(comparison, outcomes, before=old, after=new, ways=ways), outcomes


def compare_page(
    comparison: Comparison,
    outcomes: Sequence[ThresholdOutcome] = (),
    *,
    before: Timeline | None = None,
    after: Timeline | None = None,
    plotly_js: str | None = None,
    ways: Mapping[str, str] | None = None,
) -> str:
    """The page, ending in a newline. `outcomes` are those of conditions; the timelines are of one run of each
    side.

    Numbers carry `data-path` and `data-value`: their path and value in `compare --format json`.
    """
    comparison, outcomes = bounded(comparison), bounded(list(outcomes))
    named = {section.title: section for section in comparison_sections(comparison, outcomes)}
    ratios = page.plot(
        "ratios",
        rows.ratios_figure(comparison),
        "Duration of each task or span in B divided by its duration in A. The line through a point is the "
        "95 % CI; where it crosses 1, the change may be noise.",
    )
    steps = page.plot(
        "comparison",
        rows.comparison_figure(comparison),
        "From the wall time of A to that of B, one step per reason; the steps add up.",
    )
    changed = [*ratios, *take_section(named, "Durations")]
    parts = [
        PagePart("conditions", "Conditions", take_section(named, "Conditions")),
        _timelines(comparison, bounded(before), bounded(after)),
        PagePart("changes", "What got slower or faster", changed, "No task or span is in both."),
        PagePart("why", WHY, [*steps, *take_section(named, WHY)], "Nothing was recorded to explain it with."),
        *page.other_parts(named),
    ]
    subtitle = f"from {_name(comparison.before)} to {_name(comparison.after)}"
    verdict = _verdict(comparison, outcomes)
    return page.page_html("What changed", subtitle, verdict, parts, plotly_js=plotly_js, ways=ways)


def _name(side: Side) -> str:
    if len(side.runs) == 1:
        return said(side.runs[0].run_id, 100)
    return f"{said(side.asked, 100)} ({plural(len(side.runs), 'run')})"


def _verdict(comparison: Comparison, outcomes: Sequence[ThresholdOutcome]) -> Element:
    failed = sum(outcome.state == "failed" for outcome in outcomes)
    moved = {None: "plain", "faster": "bad", "slower": "good"}[opposite(comparison.wall_s)]
    headline = wall_text(comparison)
    rest = answer_text(comparison).removeprefix(headline).lstrip(":;, ")
    return page.verdict_section(
        "bad" if failed else moved,
        said(headline, 300),
        tag("p", coded(rest[:1].upper() + rest[1:]), class_="lead") if rest.strip(".") else None,
        _checked(outcomes),
        tag("dl", _tiles(comparison), class_="tiles wide"),
        page.advice_list(_reasons(comparison), ("What explains it", "From A to B")),
    )


def _checked(outcomes: Sequence[ThresholdOutcome]) -> Element | None:
    """How many conditions failed, passed, and cannot be checked; empty without conditions."""
    words = {"failed": "failed", "passed": "passed", "unknown": "inconclusive"}
    counts = {word: sum(one.state == state for one in outcomes) for state, word in words.items()}
    there = {word: count for word, count in counts.items() if count}
    if not there:
        return None
    style = "bad" if counts["failed"] else "good" if there.keys() == {"passed"} else "warn"
    if len(outcomes) == 1:
        return tag("p", f"The condition {next(iter(there))}.", class_=style)
    counted = ", ".join(f"{count} {word}" for word, count in there.items())
    return tag("p", f"Of {len(outcomes)} conditions, {counted}.", class_=style)


def _tiles(comparison: Comparison) -> list[Element]:
    """One tile a figure: A, an arrow, B, and below how much that is."""
    shown: list[tuple[str, str, Change, Callable[[float | None], str]]] = [
        ("Wall time", "wall_s", comparison.wall_s, format_duration),
        ("Tasks completed", "tasks.completed", comparison.tasks["completed"], format_count),
        ("Tasks failed", "tasks.failed", comparison.tasks["failed"], format_count),
    ]
    if comparison.cost.before or comparison.cost.after:
        money = partial(money_text, currency=comparison.currency)
        shown.append(("Cost", "cost", comparison.cost, money))
    tiles = []
    for label, path, change, show in shown:
        before = page.number(f"{path}.before", change.before, said(show(change.before), 40))
        after = page.number(f"{path}.after", change.after, said(show(change.after), 40))
        tiles.append(page.tile(label, [before, " → ", after], known(change.ratio, percent_text)))
    return tiles


def _reasons(comparison: Comparison) -> list[tuple[Child, Child]]:
    found = comparison.explained
    if found is None:
        return []
    return [
        (
            tag("p", tag("strong", signed_duration(share.seconds)), f" {said(share.what, 80)}"),
            tag("p", said(share.detail, 400)) if share.detail else None,
        )
        for share in main_shares(found)[: HtmlLimits.max_reasons]
        if share.seconds
    ]


def _timelines(comparison: Comparison, before: Timeline | None, after: Timeline | None) -> PagePart:
    """Both on one scale and in the same colours; side by side where there is room."""
    there = [timeline for timeline in (before, after) if timeline is not None]
    if not there:
        return PagePart("timelines", "Timelines", [], "Neither side has a task with a start.")
    colors = style.colors_of(
        [name for timeline in there for name in timeline.names]
        + [name for timeline in there for name in span_names(timeline)]
    )
    length_s = max(timeline.length_s for timeline in there)
    counted = comparison.tasks["submitted"], comparison.tasks["completed"]
    of: Literal["tasks", "spans"] = "tasks" if any(one.before or one.after for one in counted) else "spans"
    sides = []
    for letter, identity, side, timeline in (
        ("A", "timeline_before", comparison.before, before),
        ("B", "timeline_after", comparison.after, after),
    ):
        head, runs = tag("h3", f"{letter}: {said(side.runs[0].run_id, 100)}"), plural(len(side.runs), "run")
        newest = tag("p", f"The newest of {runs}.", class_="note") if len(side.runs) > 1 else None
        drawn = timeline_plot(identity, timeline, colors, of=of, length_s=length_s)
        sides.append(tag("div", head, newest, drawn or tag("p", "No task with a start.", class_="note")))
    same = "Both are drawn on the same time scale, and a task has the same colour in both."
    content = [tag("p", same, class_="note"), tag("div", sides, class_="pair")]
    return PagePart("timelines", "Timelines", content)
