"""The way that runs of very many tasks are read: what it says is what going through the events says, byte for
byte."""

from __future__ import annotations

import math
import random
import shutil
from pathlib import Path
from tempfile import mkdtemp

from builders.drawn_runs import a_task, a_worker, events_of
from builders.large_runs import EVERY, METRICS, NONE, sealed, spans_of, with_usage
from builders.runs import at
from builders.task_events import completed, started, submitted
from hypothesis import given, settings
from hypothesis import strategies as st

from flightlog.analyze.report.large_run import LargeStreams
from flightlog.analyze.report.report import report_bytes, report_on
from flightlog.events import SpanOpened
from flightlog.store.run import Run
from flightlog.store.tables.run_tables import open_all


def read_in_columns(run: Run) -> set[str]:
    with open_all([run], only={"task_events", "span_events"}) as tables:
        return set(LargeStreams(run, tables, EVERY).scans)


def both_ways_agree(run: Run) -> None:
    assert report_bytes(report_on(run, large_bytes=EVERY)) == report_bytes(report_on(run, large_bytes=NONE))


span = st.tuples(
    st.integers(0, 50),
    st.none() | st.integers(0, 30),
    st.integers(-1, 8),
    st.sampled_from("abc"),
    st.sampled_from(METRICS),
    st.sampled_from(["ok", "ok", "error"]),
)


@settings(deadline=None, max_examples=6)
@given(
    st.lists(a_task(), min_size=1, max_size=9),
    st.lists(a_worker(), max_size=3),
    st.lists(span, max_size=8),
    st.integers(0, 1 << 30),
    st.sampled_from(["as they are", "one twice", "one without a number", "one still open"]),
)
def test_runs_of_any_shape_read_the_same_both_ways(
    tasks: list, crew: list, spans: list, seed: int, oddity: str
) -> None:
    folder = Path(mkdtemp(prefix="flightlog-test-"))
    events = [*with_usage(list(events_of(tasks, crew)), seed), *spans_of(spans)]
    if oddity == "one twice":
        events.append(random.Random(seed).choice(events))
        events = [
            type(event)(**{name: getattr(event, name) for name in event.__struct_fields__})
            for event in events
        ]
    elif oddity == "one still open":
        events.append(
            SpanOpened(
                timestamp=at(1), name="a", span_id="x99", elapsed_s=2.0, parent_id=None, tags={}, trace_id="t"
            )
        )
    try:
        run = sealed(
            folder, events, numbered=oddity != "one without a number", end_time=at(20), duration_s=20.0
        )
        both_ways_agree(run)
    finally:
        shutil.rmtree(folder)


def test_a_run_as_recorders_leave_it_is_read_in_columns(tmp_path: Path) -> None:
    events = [submitted("t1"), started("t1", 1.0, span_id="s1"), completed("t1", 2.0, 1.0, span_id="s1")]
    run = sealed(tmp_path, [*events, *spans_of([(10, 5, -1, "a", {}, "ok")])])
    assert read_in_columns(run) == {"tasks", "spans"}
    both_ways_agree(run)


def test_a_stream_that_tells_something_twice_is_gone_through_event_by_event(tmp_path: Path) -> None:
    twice = [completed("t1", 2.0, 1.0), completed("t1", 3.0, 2.0)]
    run = sealed(tmp_path, [submitted("t1"), started("t1", 1.0), *twice])
    assert read_in_columns(run) == set()
    report = report_on(run, large_bytes=EVERY)
    assert report.tasks.completed == 2
    both_ways_agree(run)


def test_memory_is_bounded_only_for_what_is_read_in_columns(tmp_path: Path) -> None:
    def limits(run: Run) -> tuple[str, str]:
        with open_all([run], only={"task_events", "span_events"}) as tables:
            asked = "SELECT current_setting('memory_limit')"
            [(before,)] = tables.connection.execute(asked).fetchall()
            LargeStreams(run, tables, EVERY)
            [(after,)] = tables.connection.execute(asked).fetchall()
            return before, after

    regular = sealed(tmp_path / "a", [submitted("t1"), completed("t1", 2.0, 1.0)])
    before, after = limits(regular)
    assert before != after
    twice = [completed("t1", 2.0, 1.0), completed("t1", 3.0, 2.0)]
    before, after = limits(sealed(tmp_path / "b", [*twice, *spans_of([(10, 5, -1, "a", {}, "ok")])]))
    assert before == after


def test_a_stream_that_was_changed_after_the_run_closed_is_gone_through_event_by_event(
    tmp_path: Path,
) -> None:
    run = sealed(tmp_path, [submitted("t1"), started("t1", 1.0), completed("t1", 2.0, 1.0)])
    with (run.path / "tasks.jsonl").open("ab") as file:
        file.write(b'{"event":"task_comp')
    assert read_in_columns(run) == set()
    assert report_on(run, large_bytes=EVERY).completeness.torn == 1


def test_sums_of_many_numbers_are_rounded_once(tmp_path: Path) -> None:
    dice = random.Random(7)
    lasted = [dice.random() * 10 ** dice.randrange(-6, 4) for _ in range(3000)]
    events = [
        event
        for n, duration in enumerate(lasted)
        for event in (submitted(f"t{n}"), completed(f"t{n}", 5.0, duration, span_id=f"s{n}"))
    ]
    report = report_on(sealed(tmp_path, events), large_bytes=EVERY)
    assert report.tasks.duration_s.total == math.fsum(lasted)
