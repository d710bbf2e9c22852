"""Sections of a report in full, and the report as Markdown."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.runs import at, make_run

from flightlog.analyze.report.metrics import SeriesStats
from flightlog.analyze.report.report import Report, report_on
from flightlog.cli.main import main
from flightlog.events import (
    Event,
    Failure,
    Metric,
    SpanEvent,
    TaskCompleted,
    TaskFailed,
    TaskStarted,
    TaskSubmitted,
    WorkerLaunched,
    WorkerReady,
)
from flightlog.show.document import escaped
from flightlog.show.report import report_markdown, report_text
from flightlog.show.report_sections import sparkline
from flightlog.store.run import Run


def some_events() -> list[Event]:
    trace = (
        'Traceback (most recent call last):\n  File "a.py", line 1, in run\n  File "b.py", line 7, in '
        "step\nValueError: bad"
    )
    events: list[Event] = [
        WorkerLaunched(timestamp=at(0), worker="w1", host="n1", pid=1),
        WorkerReady(timestamp=at(1), worker="w1", host="n1", pid=1),
    ]
    for n in range(6):
        ids = {"task": "sim", "task_id": f"t{n}", "span_id": f"s{n}"}
        events += [
            TaskSubmitted(timestamp=at(0), args={"seed": n}, **ids),
            TaskStarted(timestamp=at(1 + n), worker="w1", queue_s=1.0 + n, **ids),
            TaskCompleted(timestamp=at(2 + n), args={"seed": n}, worker="w1", duration_s=1.0, **ids),
            SpanEvent(timestamp=at(1 + n), name="solve", span_id=f"a{n}", parent_id=f"s{n}", duration_s=0.75),
            SpanEvent(timestamp=at(1 + n), name="step", span_id=f"b{n}", parent_id=f"a{n}", duration_s=0.5),
        ]
    who = {"task": "sim", "task_id": "t9", "worker": "w1"}
    return [
        *events,
        TaskStarted(timestamp=at(7), queue_s=None, **who),
        TaskFailed(
            timestamp=at(8),
            args={"seed": 9},
            duration_s=1.0,
            error_type="ValueError",
            error_message="bad",
            fingerprint="f1",
            **who,
        ),
        Failure(
            timestamp=at(8),
            scope="task",
            error_type="ValueError",
            message="bad",
            traceback=trace,
            fingerprint="f1",
            attempt=1,
            **who,
        ),
    ]


@pytest.fixture
def report(tmp_path: Path) -> Report:
    return report_on(Run(make_run(tmp_path, some_events())))


def section(text: str, title: str) -> str:
    return title + text.partition(f"\n\n{title}")[2].partition("\n\n")[0].rstrip("\n")


def test_all_tasks_have_their_spread_and_the_slowest_of_each_name(report: Report) -> None:
    text = report_text(report, parts=["tasks"])
    assert section(text, "By task:") == (
        "By task:\n"
        "  Name  Done  Failed  Mean   p50   p95   p99   Max  Total\n"
        "  sim      6       1  1.0s  1.0s  1.0s  1.0s  1.0s   6.0s"
    )
    assert section(text, "Slowest of each name:") == (
        "Slowest of each name:\n"
        "  Task         Duration  Worker\n"
        "  sim(seed=0)      1.0s  w1\n"
        "  sim(seed=1)      1.0s  w1\n"
        "  sim(seed=2)      1.0s  w1"
    )
    assert "Recording" not in text


def test_all_spans_stand_as_a_tree(report: Report) -> None:
    assert section(report_text(report, parts=["spans"]), "Spans:") == (
        "Spans: 12, 4.5s busy in 4.5s of wall time\n"
        "  Name         Count  Wall  Self  Busy  Total\n"
        "  in task sim\n"
        "    solve          6  4.5s  1.5s  4.5s   4.5s\n"
        "      step         6  3.0s  3.0s  3.0s   3.0s"
    )


def test_all_workers_have_their_own_split(report: Report) -> None:
    assert section(report_text(report, parts=["workers"]), "Workers:") == (
        "Workers: peak 1, 78% utilization, 67% efficiency\n"
        "  Worker  Tasks   Time  Done  Failed  Start-up  Idle\n"
        "  w1          7  10.0s   60%     10%       10%   20%"
    )


def test_all_failures_tell_when_where_of_what_and_at_which_attempt(report: Report) -> None:
    assert section(report_text(report, parts=["failures"]), "Failures:") == (
        "Failures: 1, 1 cause\n"
        "  1x ValueError: bad\n"
        "      When: first 2026-05-20 03:52:08 UTC, last 2026-05-20 03:52:08 UTC\n"
        "      Tasks: sim (1)\n"
        "      Workers: w1 (1)\n"
        "      Attempts: attempt 1 (1)\n"
        "      Such as: sim(seed=9)\n"
        "      Fingerprint: f1\n"
        '      File "a.py", line 1, in run\n'
        '      File "b.py", line 7, in step\n'
        "  - To find out why: flightlog diagnose run-20260520T035200Z-demo-a1b2c3d4"
    )


def test_a_metric_that_became_nan_has_no_last_number_and_one_that_always_was_is_there(tmp_path: Path) -> None:
    loss = [0.5, 0.248, *([None] * 3)]
    events: list[Event] = [
        Metric(timestamp=at(n), name=name, value=value, step=n, nonfinite=None if value else "nan")
        for name, values in (("loss", loss), ("gradient", [None] * 5), ("rate", [0.1] * 5))
        for n, value in enumerate(values)
    ]
    report = report_on(Run(make_run(tmp_path, events)))
    assert report.run.metrics["loss"] == SeriesStats(
        count=2, sum=0.748, mean=0.374, min=0.248, max=0.5, last=None, nonfinite=3, last_nonfinite="nan"
    )
    assert section(report_text(report), "Metrics:").splitlines() == [
        "Metrics:",
        "  Name      Last    Min  Max  Values  NaN or infinite",
        "  gradient   NaN                   0                5",
        "  loss       NaN  0.248  0.5       2                3",
        "  rate       0.1    0.1  0.1       5",
    ]


def test_a_calibration_tells_of_the_phases_that_were_recorded(tmp_path: Path) -> None:
    turns = [
        span
        for n in range(6)
        for span in (
            SpanEvent(
                timestamp=at(n), name="algorithm.ask", span_id=f"a{n}", parent_id=f"i{n}", duration_s=0.25
            ),
            SpanEvent(timestamp=at(n), name="calibration.iteration", span_id=f"i{n}", duration_s=1.0),
        )
    ]
    text = report_text(report_on(Run(make_run(tmp_path, turns))))
    lines = section(text, "Calibration: no loss recorded, 6 iterations").splitlines()
    assert (lines[1], lines[-1]) == ("  Time:  ask 25%, other 75%", "  … after 1 earlier iteration")


def test_markdown_has_the_same_sections(report: Report) -> None:
    text = report_markdown(report)
    assert text.startswith(
        "# Run Report: run-20260520T035200Z-demo-a1b2c3d4\n\n## Run\n\n- Target: node-1 (host)\n"
    )
    headings = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    assert headings == [
        "Run",
        "What set the wall time",
        "What stands out",
        "Tasks",
        "Workers",
        "Where the time went",
        "Critical path",
        "Failures",
        "By task",
        "Slowest",
        "Spans",
        "Recording",
    ]
    assert "| Name | Done | Failed | Mean | p50 | p95 | p99 | Max | Total |\n| --- | ---: |" in text
    assert "- 1x ValueError: bad\n  sim(seed=9) on w1, 2026-05-20 03:52:08 UTC  \n" in text


def test_nothing_that_a_run_recorded_is_read_as_markdown(tmp_path: Path) -> None:
    evil = "<img src=x>|*b*`c`\n# h [l](u)"
    path = make_run(
        tmp_path,
        [TaskCompleted(timestamp=at(1), task=evil, task_id="t", args={}, worker=evil, duration_s=1.0)],
    )
    text = report_markdown(report_on(Run(path)), parts=["tasks", "workers"])
    assert escaped(evil) == r"\<img src=x\>\|\*b\*\`c\`\\n\# h \[l\](u)"
    assert evil.partition("\n")[0] not in text
    assert f"| {escaped(evil)} |" in text


def test_a_sparkline_is_as_high_as_its_values(report: Report) -> None:
    assert sparkline([0, 1, 2, 4, 8], 10) == " ▂▃▅█"
    assert sparkline([1, 1, 3, 3], 2) == "▃█"
    assert sparkline([], 5) == ""
    assert sparkline([0.0, 0.0], 5) == "  "


def test_the_command_shows_sections_and_formats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make_run(tmp_path, some_events())
    report = report_on(Run(path))
    assert main(["report", str(path), "--tasks", "--failures"]) == 0
    assert capsys.readouterr().out == report_text(report, parts=["tasks", "failures"])
    assert main(["report", str(path), "--format", "md", "--spans"]) == 0
    assert capsys.readouterr().out == report_markdown(report, parts=["spans"])
    assert main(["report", str(path), "--format", "json", "--spans"]) == 2
    assert capsys.readouterr().err == "flightlog: the JSON holds all sections: leave out --spans\n"
    assert main(["report", str(path), "--compare", "a", "b"]) == 2
    assert capsys.readouterr().err == (
        "flightlog: --compare names both runs: leave out other runs and sections\n"
    )
