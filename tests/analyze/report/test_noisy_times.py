"""Dates and durations that no run has, by clocks and numbers that are wrong: counted as far as they can be,
and never the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders.runs import at, make_run
from builders.task_events import submitted
from hypothesis import given
from hypothesis import strategies as st

from flightlog.analyze.charts.report_with_charts import report_with_charts
from flightlog.analyze.report.report import report_bytes, report_on
from flightlog.core.time import FIRST_YEAR, LAST_YEAR, LONGEST, moment, nanoseconds
from flightlog.events import Event, SpanEvent, TaskCompleted, TaskStarted, WorkerLost, WorkerReady
from flightlog.store.integrity import write_checksums
from flightlog.store.limits import StoreLimits
from flightlog.store.run import Run
from flightlog.store.tables.connection import private_connection
from flightlog.store.tables.intervals import MACROS
from flightlog.store.tables.run_tables import open_tables

LATEST = "2199-12-31T23:59:59.999999Z"
NEVER = "9999-12-31T23:59:59.999999Z"


def span(when: str, span_id: str, parent_id: str, duration_s: float, name: str = "step") -> SpanEvent:
    return SpanEvent(timestamp=when, name=name, span_id=span_id, parent_id=parent_id, duration_s=duration_s)


def noise(when: str, seconds: float) -> list[Event]:
    """A run of all that has moments and durations, which are these."""
    ended: dict[str, Any] = {"task": "sim", "args": {}, "duration_s": seconds, "queue_s": seconds}
    return [
        span(when, "1", "0", seconds),
        span(when, "2", "1", seconds),
        span(at(1), "3", "1", seconds),
        submitted("b"),
        TaskCompleted(timestamp=when, task_id="a", worker="w1", **ended),
        TaskStarted(timestamp=at(1), task="sim", task_id="b", worker="w1", queue_s=seconds),
        TaskCompleted(timestamp=at(4), task_id="c", worker="w2", **ended),
        submitted("d"),
        WorkerReady(timestamp=when, worker="w1", host=None, pid=None, launch_s=seconds),
        WorkerLost(timestamp=when, worker="w3", host=None, pid=None, reason="walltime"),
    ]


@pytest.mark.parametrize(
    ("when", "seconds", "info"),
    [
        (LATEST, 1e300, {"start_time": "1971-01-01T00:00:00Z", "end_time": LATEST}),
        (LATEST, 4.9e8, {"end_time": None}),
        (NEVER, 1.9e9, {}),
        ("1971-01-01T00:00:00.000000Z", 1e300, {"start_time": "garbage", "end_time": None}),
    ],
)
def test_a_run_of_noise_is_reported_and_drawn_alike_wherever_its_rows_wait(
    tmp_path: Path, when: str, seconds: float, info: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_run(tmp_path, noise(when, seconds), **info)
    write_checksums(path)
    found = report_with_charts(Run(path))
    monkeypatch.setattr(StoreLimits, "large_stream_bytes", 0)
    on_disk = report_with_charts(Run(path))
    assert (found.report.spans.count, found.report.tasks.completed) == (3, 2)
    assert report_bytes(on_disk.report) == report_bytes(found.report)
    assert msgspec.json.encode(on_disk.drawn) == msgspec.json.encode(found.drawn)


def test_the_own_time_of_spans_with_noise_is_their_duration_less_what_is_known_to_be_inside(
    tmp_path: Path,
) -> None:
    events = [
        span(LATEST, "1", "0", 1e300),
        span(LATEST, "2", "1", 30.0),
        span(NEVER, "3", "0", 5.0),
        span(NEVER, "4", "3", 2.0),
        span(at(1), "5", "0", 4.0),
        span(at(2), "6", "5", 1.0),
        span(NEVER, "7", "5", 2.0),
    ]
    with open_tables([Run(make_run(tmp_path, events))]) as connection:
        rows = connection.execute("SELECT span_id, duration_s, self_s FROM spans ORDER BY span_id").fetchall()
    assert rows == [
        ("1", 1e300, 1e300),
        ("2", 30.0, 30.0),
        ("3", 5.0, 5.0),
        ("4", 2.0, 2.0),
        ("5", 4.0, 3.0),
        ("6", 1.0, 1.0),
        ("7", 2.0, 2.0),
    ]


def test_a_loop_counts_the_iterations_whose_clock_was_wrong(tmp_path: Path) -> None:
    turns = [span(at(1), "1", "0", 2.0), span(at(4), "2", "0", 2.0), span(NEVER, "3", "0", 2.0)]
    for turn in turns:
        turn.name = "calibration.iteration"
    [loop] = report_on(Run(make_run(tmp_path / "one", turns))).calibration
    assert (loop.iterations, loop.iterations_s, loop.duration_s) == (3, 6.0, 5.0)
    [loop] = report_on(Run(make_run(tmp_path / "two", turns[2:]))).calibration
    assert (loop.iterations, loop.duration_s) == (1, 2.0)


def test_moments_and_durations_are_so_bounded_that_no_difference_of_theirs_leaves_64_bits() -> None:
    first, last = moment(f"{FIRST_YEAR}-01-01T00:00:00Z"), moment(LATEST)
    assert first is not None
    assert last is not None
    assert (moment(f"{FIRST_YEAR - 1}-12-31T23:59:59Z"), moment(f"{LAST_YEAR + 1}-01-01T00:00:00Z")) == (
        None,
        None,
    )
    assert (last + LONGEST) - (first - 2 * LONGEST) < 1 << 63


def test_durations_are_the_same_in_sql() -> None:
    with private_connection({}) as connection:
        connection.execute(MACROS)

        @given(st.one_of(st.floats(allow_nan=False), st.floats(4e8, 6e8), st.floats(0, 1e6)))
        def are_the_same(seconds: float) -> None:
            said = connection.execute("SELECT in_ns($1::DOUBLE)", [seconds]).fetchone()
            assert said == (nanoseconds(seconds),)

        are_the_same()
