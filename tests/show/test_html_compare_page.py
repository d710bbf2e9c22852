"""The page of a comparison, as a browser reads it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from builders.compared_durations import closed_run, task_events
from builders.html_pages import Page
from builders.runs import at

from flightlog.analyze.charts.report_with_charts import report_with_charts
from flightlog.analyze.compare.compare import compare, comparison_bytes
from flightlog.analyze.compare.results import Comparison
from flightlog.analyze.compare.thresholds import check, parse_thresholds
from flightlog.show.html.compare_page import compare_page
from flightlog.store.completing import open_run

LIBRARY = "window.Plotly = null;"


@pytest.fixture
def runs(tmp_path):
    paths = []
    for number, (factor, name) in enumerate([(1.0, "fit"), (1.5, "fit"), (1.0, "<b>other</b>")]):
        events = [e for i in range(20) for e in task_events(name, i, i, 0.2 * factor * (1 + i % 3 / 50))]
        paths.append(
            closed_run(
                tmp_path,
                events,
                token=f"a000000{number}",
                start_time=at(number),
                duration_s=20.0 * factor,
                end_time=at(number + 20 * factor),
            )
        )
    return paths


def page_of(before: Any, after: Any, *conditions: str) -> tuple[Page, Comparison]:
    comparison = compare(before, after)
    outcomes = check(comparison, parse_thresholds(conditions))
    timelines = [report_with_charts(open_run(path)).drawn.timeline for path in (before, after)]
    text = compare_page(comparison, outcomes, before=timelines[0], after=timelines[1], plotly_js=LIBRARY)
    return Page(text), comparison


def values(page: Page) -> dict[str, Any]:
    return {
        str(one.attributes["data-path"]): json.loads(str(one.attributes["data-value"]))
        for one in page.with_attribute("data-path")
    }


def test_the_answer_stands_first_and_its_figures_are_those_of_the_json(runs):
    page, comparison = page_of(runs[0], runs[1])
    assert page.all("h1")[0].text == "B took 50% longer (20.0s → 30.0s)"
    assert page.by_id("verdict").has_class("is-bad")
    [lead] = [one.text for one in page.all("p") if one.has_class("lead")]
    assert lead.startswith("fit is 1.50x slower (1.46 to 1.54)")
    found, document = values(page), json.loads(comparison_bytes(comparison))
    assert (found["wall_s.before"], found["wall_s.after"]) == (20.0, 30.0)
    for path, value in found.items():
        at_path: Any = document
        for step in path.split("."):
            at_path = at_path[step]
        assert value == at_path


def test_the_faster_one_is_good_and_the_same_is_neither(runs):
    faster, _ = page_of(runs[1], runs[0])
    assert faster.all("h1")[0].text == "B took 33% less time (30.0s → 20.0s)"
    assert faster.by_id("verdict").has_class("is-good")
    same, _ = page_of(runs[0], runs[2])
    assert same.by_id("verdict").has_class("is-plain")


def figure(page: Page, name: str) -> dict[str, Any]:
    return json.loads(page.by_id(f"{name}-data").text)


def test_both_timelines_have_one_scale_and_one_colour_a_name(runs):
    page, _ = page_of(runs[0], runs[1])
    drawn = [figure(page, name) for name in ("timeline_before", "timeline_after")]
    assert drawn[0]["layout"]["xaxis"]["range"] == drawn[1]["layout"]["xaxis"]["range"]
    assert drawn[0]["data"][0]["marker"]["color"] == drawn[1]["data"][0]["marker"]["color"]
    assert [one.attributes["data-figure"] for one in page.with_attribute("data-figure")] == [
        "timeline_before",
        "timeline_after",
        "ratios",
        "comparison",
    ]


def test_conditions_stand_above_all_else_that_differs(runs):
    page, _ = page_of(runs[0], runs[1], "wall>10%", "failures>0")
    assert "Of 2 conditions, 1 failed, 1 passed." in page.by_id("verdict").text
    sections = [one.attributes["id"] for one in page.all("section")]
    assert sections[:3] == ["verdict", "conditions", "timelines"]
    assert "wall>10%: failed" in page.by_id("conditions").text
    assert "failures>0: passed" in page.by_id("conditions").text


def test_names_are_texts(runs):
    page, _ = page_of(runs[0], runs[2])
    assert page.all("b") == []
    assert "<b>other</b>" in page.by_id("report").text
    assert "No task or span is in both." in page.by_id("absent").text
