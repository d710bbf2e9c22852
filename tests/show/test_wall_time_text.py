"""What set the wall time, in a line that is the same wherever it stands."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.html_pages import Page
from builders.runs import at, make_run
from msgspec.structs import replace

from flightlog.analyze.charts.report_with_charts import ReportWithCharts, report_with_charts
from flightlog.events import (
    Event,
    ResourceSample,
    SpanEvent,
    SpanOpened,
    TaskCompleted,
    TaskFailed,
    TaskRetried,
    TaskSubmitted,
)
from flightlog.show.html.report_page import report_page
from flightlog.show.report import TITLE, report_markdown, report_text, wall_time_text
from flightlog.store.completing import open_run


@pytest.fixture
def look(tmp_path: Path) -> ReportWithCharts:
    events = [
        TaskCompleted(
            timestamp=at(2 + 2 * n),
            task="simulate",
            task_id=f"t{n}",
            args={},
            worker="w1",
            duration_s=1.5,
            queue_s=0.1,
        )
        for n in range(4)
    ]
    return report_with_charts(open_run(make_run(tmp_path, events)))


def test_the_line_is_the_same_in_text_markdown_and_page(look: ReportWithCharts) -> None:
    line = wall_time_text(look.report)
    assert line is not None
    words = line.replace("`", "").split()
    text = report_text(look.report).split(f"{TITLE}:\n  - ")[1].split("\n\n")[0]
    assert text.replace("`", "").split() == words
    markdown = report_markdown(look.report).split(f"## {TITLE}\n\n- ")[1].split("\n\n")[0]
    assert markdown.replace("\\", "").replace("`", "").split() == words
    verdict = Page(report_page(look, plotly_js="")).by_id("verdict").text
    assert f"{TITLE}: {' '.join(words)}" in " ".join(verdict.split())


def test_it_names_the_longest_parts_what_could_be_saved_and_what_to_try(look: ReportWithCharts) -> None:
    assert wall_time_text(look.report) == (
        "Limited most by the program outside of its tasks; without it the run would be about 3.2s (32%) "
        "shorter. Try spans in the program, to see what it did, or starting workers later and ending them "
        "sooner. "
        "60% of the 10.0s was simulate, 20% the program after the last task, 12% the program between "
        "tasks; making simulate instant would save at most 6.0s."
    )


def test_of_a_run_that_goes_on_it_says_so_far(look: ReportWithCharts) -> None:
    report = replace(look.report, run=replace(look.report.run, status="running"))
    assert " of the 10.0s so far was simulate, " in (wall_time_text(report) or "")


def test_what_came_before_a_task_of_which_no_wait_is_known_is_not_called_the_time_before_the_first(
    tmp_path: Path,
) -> None:
    events = [
        TaskCompleted(
            timestamp=at(4 * n),
            task="simulate",
            task_id=f"t{n}",
            args={},
            duration_s=2.0,
            worker=None,
            queue_s=None,
        )
        for n in (1, 2)
    ]
    line = wall_time_text(report_with_charts(open_run(make_run(tmp_path, events))).report)
    assert line is not None
    assert "60% of the 10.0s was the program before a task with an unknown dependency, " in line


def test_of_spans_alone_it_names_spans(tmp_path: Path) -> None:
    events = [SpanEvent(timestamp=at(1), name="load", span_id="1" * 16, trace_id="1" * 32, duration_s=8.0)]
    computed = [
        ResourceSample(timestamp=at(n), scope="worker", host="n1", pid=1, cpu_percent=None, cpu_s=n * 0.1)
        for n in (0, 10)
    ]
    line = wall_time_text(report_with_charts(open_run(make_run(tmp_path, [*events, *computed]))).report)
    assert line is not None
    assert line.startswith("Limited most by loading data: 80% (8.0s) of the 10.0s was load, 1 time, which ")
    assert line.endswith(" 80% of the 10.0s was load, 20% the program outside of spans.")


def test_of_tasks_with_spans_it_names_the_innermost_that_holds_most(tmp_path: Path) -> None:
    task = TaskCompleted(
        timestamp=at(9), task="fit", task_id="t1", args={}, worker="w1", duration_s=9.0, span_id="t1"
    )
    outer = SpanEvent(timestamp=at(0), name="solve", span_id="a", parent_id="t1", duration_s=9.0)
    inner = SpanEvent(timestamp=at(1), name="assemble", span_id="b", parent_id="a", duration_s=7.0)
    line = wall_time_text(report_with_charts(open_run(make_run(tmp_path, [task, outer, inner]))).report)
    assert line is not None
    assert line.endswith("; 70% was assemble inside solve inside fit.")


def test_where_no_part_is_long_it_says_that_there_are_many(tmp_path: Path) -> None:
    events = [
        TaskCompleted(
            timestamp=at((n + 1) / 10),
            task=f"t{n:02d}",
            task_id=f"t{n}",
            args={},
            worker="w1",
            duration_s=0.1,
        )
        for n in range(100)
    ]
    line = wall_time_text(report_with_charts(open_run(make_run(tmp_path, events))).report)
    assert line is not None
    assert line.endswith("Many short parts of the critical path made up the 10.0s: the longest was t00, 1%.")


@pytest.mark.parametrize("status", ["running", "crashed"])
def test_a_span_that_hangs_lasts_until_the_run_was_last_heard_of(tmp_path: Path, status: str) -> None:
    events = [
        SpanEvent(timestamp=at(0), name="load", span_id="1" * 16, trace_id="1" * 32, duration_s=2.0),
        SpanOpened(
            timestamp=at(2),
            name="hang",
            span_id="2" * 16,
            parent_id=None,
            trace_id="1" * 32,
            tags={},
            elapsed_s=0.5,
        ),
    ]
    path = make_run(tmp_path, events, status=status, end_time=None, duration_s=None, heartbeat=at(10))
    look = report_with_charts(open_run(path))
    assert "80% of the 10.0s" in (line := wall_time_text(look.report) or "")
    assert " was hang, 20% load" in line
    assert look.drawn.timeline is not None
    assert look.drawn.timeline.bars is not None
    assert sorted(look.drawn.timeline.bars.length_s) == [2.0, 8.0]


def test_a_span_in_a_task_that_is_over_ends_with_it_at_the_latest(tmp_path: Path) -> None:
    events = [
        TaskCompleted(
            timestamp=at(3), task="sim", task_id="t", args={}, worker="w1", duration_s=2.0, span_id="1" * 16
        ),
        SpanOpened(
            timestamp=at(1),
            name="lost",
            span_id="2" * 16,
            parent_id="1" * 16,
            trace_id="1" * 32,
            tags={},
            elapsed_s=0.5,
        ),
        SpanOpened(
            timestamp=at(1),
            name="deeper",
            span_id="3" * 16,
            parent_id="2" * 16,
            trace_id="1" * 32,
            tags={},
            elapsed_s=0.5,
        ),
    ]
    path = make_run(tmp_path, events, status="crashed", end_time=None, duration_s=None, heartbeat=at(10))
    found = report_with_charts(open_run(path)).drawn.timeline
    assert found is not None
    assert found.nested is not None
    assert found.nested.length_s == [2.0, 2.0]


def test_where_nothing_was_recorded_it_says_that_and_what_to_do(tmp_path: Path) -> None:
    line = wall_time_text(report_with_charts(open_run(make_run(tmp_path))).report)
    assert line is not None
    assert line.startswith("What limited this run is not known: no task and no span of it was recorded;")
    assert "Try `with flightlog.span(...)` around the steps of the program" in line


def test_it_names_what_tasks_failed_of_for_good_and_not_what_a_retry_mended(tmp_path: Path) -> None:
    events: list[Event] = []
    for n in range(4):
        ids = {"task": "sim", "task_id": f"t{n}"}
        gone = {"args": {}, "worker": "w1", "duration_s": 0.1, "error_message": "gone"}
        events += [
            TaskSubmitted(timestamp=at(0), args={}, **ids),
            TaskFailed(timestamp=at(n), error_type="ConnectionError", **gone, **ids),
            TaskRetried(timestamp=at(n), reason="ConnectionError: gone", **ids),
        ]
        end = {"timestamp": at(n + 1), "attempt": 2, "args": {}, "worker": "w1", "duration_s": 0.1, **ids}
        bad = {"error_type": "ValueError", "error_message": "bad seed"}
        events.append(TaskFailed(**end, **bad) if n == 3 else TaskCompleted(**end))
    line = wall_time_text(report_with_charts(open_run(make_run(tmp_path, events))).report)
    assert (line or "").startswith("1 of 4 tasks failed, because of ValueError: bad seed.")


@pytest.mark.parametrize("name", ["data_parallel.step", "io.write_checkpoint", "train"])
def test_not_every_span_is_loading_data(tmp_path: Path, name: str) -> None:
    events = [SpanEvent(timestamp=at(1), name=name, span_id="1" * 16, trace_id="1" * 32, duration_s=8.0)]
    line = wall_time_text(report_with_charts(open_run(make_run(tmp_path, events))).report)
    assert (line or "").startswith("Nothing stands out.")
