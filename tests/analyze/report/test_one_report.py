"""A report is the same however its lines stand: in any order, split over files, as lines or as Parquet, and
wherever rows wait while they are counted."""

from __future__ import annotations

import math
import random
import shutil
from pathlib import Path
from tempfile import mkdtemp

import pytest
from builders.drawn_runs import a_task, a_worker, events_of
from builders.examples import FEW
from builders.large_runs import METRICS, sealed, spans_of, with_usage
from builders.runs import at, make_run
from builders.task_events import completed, failed, started, submitted
from hypothesis import given
from hypothesis import strategies as st

from flightlog.analyze.report.report import report_bytes, report_on
from flightlog.events import SpanEvent, SpanOpened, TaskSubmitted
from flightlog.store.integrity import write_checksums
from flightlog.store.limits import StoreLimits
from flightlog.store.run import Run
from flightlog.store.tables.parquet import snapshot_run
from flightlog.store.tables.sources import Sources

ON_DISK = 0

span = st.tuples(
    st.integers(0, 50),
    st.none() | st.integers(0, 30),
    st.integers(-1, 8),
    st.sampled_from("abc"),
    st.sampled_from(METRICS),
    st.sampled_from(["ok", "ok", "error"]),
)


def report_with_rows_on_disk(run: Run) -> bytes:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StoreLimits, "large_stream_bytes", ON_DISK)
        patch.setattr(
            Sources, "sampled_fields", lambda *_: set()
        )  # what no piece shows is kept as one column
        return report_bytes(report_on(run))


def shuffle_lines(run: Path, seed: int) -> None:
    for name in ("tasks.jsonl", "spans.jsonl", "workers.jsonl"):
        file = run / name
        if file.exists():
            lines = file.read_bytes().splitlines(keepends=True)
            random.Random(seed).shuffle(lines)
            file.write_bytes(b"".join(lines))
    write_checksums(run)


@FEW
@given(
    st.lists(a_task(), min_size=1, max_size=9),
    st.lists(a_worker(), max_size=3),
    st.lists(span, max_size=8),
    st.integers(0, 1 << 30),
    st.sampled_from(["as they are", "one twice", "one without a number", "one still open"]),
)
def test_runs_of_any_shape_have_one_report(
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
        whole = report_bytes(report_on(run))
        assert report_with_rows_on_disk(run) == whole
        shuffle_lines(run.path, seed)
        assert report_bytes(report_on(Run(run.path))) == whole
        snapshot_run(Run(run.path))
        assert report_bytes(report_on(Run(run.path))) == whole
        assert report_with_rows_on_disk(Run(run.path)) == whole
    finally:
        shutil.rmtree(folder)


def test_an_attempt_that_is_told_twice_counts_once_as_it_was_told_last(tmp_path: Path) -> None:
    twice = [completed("t1", 2.0, 1.0), completed("t1", 3.0, 2.0)]
    report = report_on(sealed(tmp_path, [submitted("t1"), started("t1", 1.0), *twice]))
    assert (report.tasks.completed, report.tasks.duration_s.total) == (1, 2.0)


@pytest.mark.parametrize("order", [1, -1])
def test_of_lines_with_one_time_the_one_with_the_higher_number_counts(tmp_path: Path, order: int) -> None:
    run = sealed(
        tmp_path,
        [
            failed("t1", 2.0, 1.0),
            completed("t1", 2.0, 3.0),
            *(
                SpanEvent(timestamp=at(1), name="a", span_id="s1", duration_s=n, status="ok")
                for n in (1.0, 2.0)
            ),
        ],
    )
    for name in ("tasks.jsonl", "spans.jsonl"):
        file = run.path / name
        file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[::order]))
    write_checksums(run.path)
    report = report_on(Run(run.path))
    assert (report.tasks.completed, report.tasks.failed, report.spans.wall_s) == (1, 0, 2.0)


def test_a_submission_without_a_time_is_one_too(tmp_path: Path) -> None:
    events = [TaskSubmitted(task="sim", task_id=name, args={}) for name in "ab"]
    run = Run(make_run(tmp_path, [*events, completed("b", 2.0, 1.0)]))
    for event in (report_on(run), (snapshot_run(run), report_on(Run(run.path)))[1]):
        assert (event.tasks.submitted, event.tasks.pending, event.tasks.completed) == (2, 1, 1)


def test_spans_that_last_for_ever_and_negative_durations_are_added_up(tmp_path: Path) -> None:
    spans = [
        SpanEvent(timestamp=at(1), name="a", span_id=f"s{n}", duration_s=4e8, status="ok") for n in range(30)
    ]
    report = report_on(sealed(tmp_path, [*spans, completed("t1", 5.0, -3.0)]))
    assert report.spans.busy_s == 1.2e10
    assert (report.tasks.duration_s.total, report.tasks.duration_s.mean) == (-3.0, -3.0)


def test_the_last_value_of_a_metric_is_that_of_the_attempt_that_ended_last(tmp_path: Path) -> None:
    first = completed("t1", 1.0, 0.5)
    last = completed("t2", 9.0, None)
    first.metrics, last.metrics = {"m": 1}, {"m": 2}
    assert report_on(sealed(tmp_path, [last, first])).tasks.by_name["sim"].metrics["m"].last == 2.0


def test_a_stream_that_was_changed_after_the_run_closed_is_known_to_be_torn(tmp_path: Path) -> None:
    run = sealed(tmp_path, [submitted("t1"), started("t1", 1.0), completed("t1", 2.0, 1.0)])
    with (run.path / "tasks.jsonl").open("ab") as file:
        file.write(b'{"event":"task_comp')
    report = report_on(run)
    assert (report.completeness.torn, report.tasks.completed) == (1, 1)


def test_sums_of_many_durations_are_right_to_a_billionth(tmp_path: Path) -> None:
    dice = random.Random(7)
    lasted = [dice.random() * 10 ** dice.randrange(-6, 4) for _ in range(3000)]
    events = [
        event
        for n, duration in enumerate(lasted)
        for event in (submitted(f"t{n}"), completed(f"t{n}", 5.0, duration, span_id=f"s{n}"))
    ]
    report = report_on(sealed(tmp_path, events))
    assert report.tasks.duration_s.total == pytest.approx(math.fsum(lasted), rel=1e-9)
