"""A run as a trace: every task and span is there, where and when it ran, and nothing overlaps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders.examples import FEW
from builders.runs import at, make_run, note_death
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from traces import Trace, overlaps, trace_of

from flightlog.core.errors import UsageError
from flightlog.events import (
    DeviceMemory,
    Event,
    Failure,
    Metric,
    ResourceSample,
    SpanEvent,
    SpanOpened,
    TaskCancelled,
    TaskCompleted,
    TaskFailed,
    TaskRetried,
    TaskStarted,
    TaskSubmitted,
    WorkerLost,
    WorkerReady,
)
from flightlog.export.base import ExportOptions
from flightlog.export.perfetto.exporter import exporter
from flightlog.store.run import Run

S = 1_000_000


def task(
    task_id: str,
    since: float,
    until: float,
    *,
    worker: str | None = "w1",
    name: str = "sim",
    attempt: int = 1,
) -> list[Event]:
    """The start and the end of an attempt, whose span has the id of the task."""
    ids = {"task": name, "task_id": task_id, "attempt": attempt, "span_id": f"{task_id}.{attempt}"}
    return [
        TaskStarted(timestamp=at(since), worker=worker, queue_s=None, **ids),
        TaskCompleted(timestamp=at(until), worker=worker, duration_s=until - since, args={"n": 1}, **ids),
    ]


def submitted(task_id: str, when: float, *depends_on: str) -> TaskSubmitted:
    return TaskSubmitted(
        timestamp=at(when), task="sim", task_id=task_id, args={}, depends_on=list(depends_on)
    )


def span(name: str, since: float, lasts: float, *, parent: str | None = None, thread: int = 1) -> SpanEvent:
    return SpanEvent(
        timestamp=at(since),
        name=name,
        duration_s=lasts,
        span_id=name,
        parent_id=parent,
        thread=thread,
        status="ok",
    )


def drawn(tmp_path: Path, events: list[Event], name: str = "trace.json", **info: object) -> Trace:
    return trace_of(make_run(tmp_path / "runs", events, **info), tmp_path / name)


def test_a_task_is_drawn_where_and_when_it_ran_with_what_is_known_of_it(tmp_path: Path) -> None:
    trace = drawn(
        tmp_path,
        [
            TaskFailed(
                timestamp=at(3),
                task="sim",
                task_id="t1",
                args={"seed": 4},
                worker="w1",
                duration_s=2.0,
                queue_s=0.5,
                cpu_s=1.5,
                error_type="ValueError",
                error_message="no",
                span_id="a1",
                parent_id="a0",
            )
        ],
    )
    [event] = trace.slices("task")
    assert trace.track(event) == "w1/tasks"
    assert {key: event[key] for key in ("name", "ts", "dur", "args", "cname")} == {
        "name": "sim",
        "ts": 1 * S,
        "dur": 2 * S,
        "cname": "terrible",
        "args": {
            "task_id": "t1",
            "attempt": 1,
            "state": "failed",
            "args": {"seed": 4},
            "queue_s": 0.5,
            "cpu_s": 1.5,
            "error": "ValueError",
            "message": "no",
            "span_id": "a1",
            "parent_id": "a0",
        },
    }
    assert trace.exported.counts == {
        "tasks": 1,
        "spans": 0,
        "waits": 0,
        "arrows": 0,
        "counter values": 2,
        "marks": 0,
    }
    assert trace.exported.notes == ()


def test_the_run_is_the_first_row_and_its_start_is_the_zero_of_time(tmp_path: Path) -> None:
    trace = drawn(tmp_path, task("t1", 1, 2))
    assert trace.drawn("run") == [("run/run", "demo", 0, 10 * S)]
    assert trace.about["start_time"] == "2026-05-20T03:52:00.000000Z"
    assert trace.about["run_id"] == "run-20260520T035200Z-demo-a1b2c3d4"


def test_what_was_recorded_before_the_runs_start_has_no_time_below_zero(tmp_path: Path) -> None:
    trace = drawn(tmp_path, task("t1", 1, 2), start_time=at(3))
    assert trace.about["trace_start_time"] == at(1)
    assert trace.drawn("task") == [("w1/tasks", "sim", 0, 1 * S)]
    assert trace.drawn("run") == [("run/run", "demo", 2 * S, 9 * S)]


def test_tasks_that_ran_at_once_on_a_worker_get_lanes_of_their_own(tmp_path: Path) -> None:
    events = [*task("t1", 1, 4), *task("t2", 2, 3), *task("t3", 5, 6), *task("t4", 2, 3, worker="w2")]
    assert drawn(tmp_path, events).drawn("task") == [
        ("w1/tasks", "sim", 1 * S, 4 * S),
        ("w1/tasks (2)", "sim", 2 * S, 3 * S),
        ("w2/tasks", "sim", 2 * S, 3 * S),
        ("w1/tasks", "sim", 5 * S, 6 * S),
    ]


def test_spans_of_a_task_are_drawn_inside_it_and_spans_at_once_beside(tmp_path: Path) -> None:
    events = [
        *task("t1", 1, 5),
        span("load", 1, 1, parent="t1.1"),
        span("step", 2, 2, parent="t1.1"),
        span("inner", 2.5, 1, parent="step"),
        span("beside", 3, 1.5, parent="t1.1", thread=2),
    ]
    assert drawn(tmp_path, events).drawn("span") == [
        ("w1/tasks", "load", 1 * S, 2 * S),
        ("w1/tasks", "step", 2 * S, 4 * S),
        ("w1/tasks", "inner", 2.5 * S, 3.5 * S),
        ("w1/spans", "beside", 3 * S, 4.5 * S),
    ]


def test_spans_without_a_task_are_drawn_by_process_and_thread(tmp_path: Path) -> None:
    events = [
        span("a", 1, 4),
        span("b", 2, 1, parent="a"),
        span("c", 2, 1, thread=7),
        span("d", 3.5, 9, parent="a"),
    ]
    assert drawn(tmp_path, events).drawn("span") == [
        ("process 1 on node-1/thread 1", "a", 1 * S, 5 * S),
        ("process 1 on node-1/thread 2", "c", 2 * S, 3 * S),
        ("process 1 on node-1/thread 1", "b", 2 * S, 3 * S),
        ("process 1 on node-1/thread 1 (2)", "d", 3.5 * S, 12.5 * S),
    ]


def test_what_had_not_ended_is_drawn_up_to_the_end_of_the_run_and_said(tmp_path: Path) -> None:
    events: list[Event] = [
        TaskStarted(timestamp=at(4), task="sim", task_id="t1", worker="w1", queue_s=None, span_id="a1"),
        SpanOpened(
            timestamp=at(5), name="hangs", tags={}, trace_id="", span_id="b", parent_id="a1", elapsed_s=2.0
        ),
        SpanOpened(
            timestamp=at(5), name="hangs", tags={}, trace_id="", span_id="b", parent_id="a1", elapsed_s=4.0
        ),
    ]
    trace = drawn(tmp_path, events)
    assert trace.drawn("task") == [("w1/tasks", "sim", 4 * S, 10 * S)]
    assert trace.drawn("span") == [("w1/tasks", "hangs", 5 * S, 10 * S)]
    assert [trace.slices(of)[0]["args"].get(key) for of, key in (("task", "state"), ("span", "status"))] == [
        "running",
        "open",
    ]
    assert trace.exported.notes == (
        "1 task had not ended, drawn up to the end of the run",
        "1 span had not ended, drawn up to the last sign of life of its process",
    )


def test_a_span_of_a_process_that_died_is_drawn_up_to_its_last_sign_of_life(tmp_path: Path) -> None:
    opened = SpanOpened(
        timestamp=at(2), name="hangs", tags={}, trace_id="", span_id="b", parent_id=None, elapsed_s=1.0
    )
    path = make_run(tmp_path / "runs", [opened])
    note_death(path, 6)
    assert [one[1:] for one in trace_of(path, tmp_path / "trace.json").drawn("span")] == [
        ("hangs", 2 * S, 6 * S)
    ]


def test_a_killed_run_ends_with_the_last_that_was_heard_of_it(tmp_path: Path) -> None:
    events: list[Event] = [
        TaskStarted(timestamp=at(1), task="sim", task_id="t1", worker="w1", queue_s=None),
        *task("t2", 2, 7, worker="w2"),
    ]
    trace = drawn(tmp_path, events, status="crashed", end_time=None, duration_s=None)
    assert trace.drawn("run") == [("run/run", "demo", 0, 7 * S)]
    assert ("w1/tasks", "sim", 1 * S, 7 * S) in trace.drawn("task")


def test_waiting_is_drawn_up_to_the_start_with_an_arrow_to_it(tmp_path: Path) -> None:
    trace = drawn(tmp_path, [submitted("t1", 0.5), *task("t1", 2, 3), submitted("t2", 1)])
    assert trace.drawn("waiting") == [
        ("waiting for a worker/waiting", "sim", 0.5 * S, 2 * S),
        ("waiting for a worker/waiting (2)", "sim", 1 * S, 10 * S),
    ]
    assert trace.arrows() == [("waited", "waiting t1#1", "task t1#1")]
    assert trace.curve("run", "waiting", "tasks") == [(0.5 * S, 1), (1 * S, 2), (2 * S, 1), (10 * S, 0)]


def test_a_task_cancelled_while_it_waited_is_drawn_as_waiting_alone(tmp_path: Path) -> None:
    cancelled = TaskCancelled(
        timestamp=at(4),
        task="sim",
        task_id="t1",
        args={},
        worker=None,
        duration_s=None,
        reason="no more needed",
    )
    trace = drawn(tmp_path, [submitted("t1", 1), cancelled])
    assert trace.drawn("waiting") == [("waiting for a worker/waiting", "sim", 1 * S, 4 * S)]
    assert (trace.drawn("task"), trace.arrows(), trace.exported.notes) == ([], [], ())


def test_more_waiting_tasks_than_lanes_are_counted_in_the_curve_and_said(tmp_path: Path) -> None:
    events: list[Event] = [submitted(f"t{n}", 1) for n in range(60)]
    trace = drawn(tmp_path, events)
    assert len(trace.drawn("waiting")) == 50
    assert trace.curve("run", "waiting", "tasks") == [(1 * S, 60), (10 * S, 0)]
    assert trace.exported.notes == (
        "10 waits not drawn, as more than 50 tasks waited at once: the curve of waiting tasks has all of "
        "them",
    )


def test_arrows_lead_from_what_a_task_depends_on_and_from_the_attempt_before(tmp_path: Path) -> None:
    first = TaskRetried(timestamp=at(2), task="sim", task_id="t1", reason="ValueError: no")
    start = TaskStarted(timestamp=at(1), task="sim", task_id="t1", worker="w1", queue_s=None)
    events = [
        start,
        first,
        *task("t1", 3, 4, attempt=2),
        *task("t2", 1, 2, worker="w2"),
        submitted("t3", 0.0, "t1", "t2"),
        span("at once", 5, 1, parent="t3.1"),
        *task("t3", 5, 6),
    ]
    assert drawn(tmp_path, events).arrows() == [
        ("retried", "task t1#1", "task t1#2"),
        ("waited", "waiting t3#1", "task t3#1"),
        ("depends on", "task t1#2", "task t3#1"),
        ("depends on", "task t2#1", "task t3#1"),
    ]


def test_an_arrow_that_would_lead_back_in_time_is_left_out_and_said(tmp_path: Path) -> None:
    trace = drawn(tmp_path, [*task("t1", 5, 6), submitted("t2", 2, "t1"), *task("t2", 2, 3)])
    assert trace.arrows() == []
    assert trace.exported.notes == ("1 arrow not drawn: by the clocks, they would lead back in time",)


def test_curves_show_what_ran_what_machines_used_and_what_was_measured(tmp_path: Path) -> None:
    common = {"host": "node-1", "cpu_percent": None}
    events: list[Event] = [
        *task("t1", 1, 3),
        *task("t2", 2, 4, worker="w2"),
        ResourceSample(timestamp=at(1), scope="node", host="node-1", cpu_percent=40.0, memory_used_bytes=10),
        ResourceSample(timestamp=at(2), scope="node", host="node-1", cpu_percent=None, memory_used_bytes=20),
        ResourceSample(timestamp=at(2), scope="worker", worker="w1", rss_bytes=7, **common),
        ResourceSample(timestamp=at(2), scope="gpu", gpu_index=1, gpu_percent=55.0, **common),
        ResourceSample(timestamp=at(2), scope="task", task_id="t1", rss_bytes=7, **common),
        Metric(timestamp=at(3), name="loss", value=0.25),
        Metric(timestamp=at(4), name="loss", value=None, nonfinite="nan"),
    ]
    trace = drawn(tmp_path, events)
    assert trace.curve("run", "running", "tasks") == [(1 * S, 1), (2 * S, 2), (3 * S, 1), (4 * S, 0)]
    assert trace.curve("host node-1", "CPU", "%") == [(1 * S, 40.0)]
    assert trace.curve("host node-1", "memory used", "bytes") == [(1 * S, 10), (2 * S, 20)]
    assert trace.curve("w1", "memory", "bytes") == [(2 * S, 7)]
    assert trace.curve("host node-1", "GPU 1", "%") == [(2 * S, 55.0)]
    assert trace.curve("run", "metric", "loss") == [(3 * S, 0.25)]
    assert trace.exported.counts["counter values"] == 10


def test_failures_and_workers_that_come_and_go_are_marks(tmp_path: Path) -> None:
    events: list[Event] = [
        WorkerReady(timestamp=at(1), worker="w1", host="node-2", pid=5),
        WorkerLost(timestamp=at(3), worker="w1", host="node-2", pid=5, reason="killed", signal="SIGKILL"),
        Failure(
            timestamp=at(2),
            scope="task",
            error_type="ValueError",
            message="no",
            traceback=None,
            fingerprint=None,
            task_id="t1",
        ),
    ]
    trace = drawn(tmp_path, events)
    found = [(trace.track(e), e["name"], e["ts"], e["args"]) for e in trace.events if e["ph"] == "i"]
    where = {"worker": "w1", "host": "node-2", "pid": 5}
    assert found == [
        ("run/failures", "ValueError", 2 * S, {"scope": "task", "message": "no", "task_id": "t1"}),
        ("run/workers", "ready w1", 1 * S, where),
        ("run/workers", "lost w1", 3 * S, {**where, "reason": "killed", "signal": "SIGKILL"}),
    ]


def test_a_worker_is_named_with_its_host_and_its_process_holds_its_spans(tmp_path: Path) -> None:
    events: list[Event] = [
        WorkerReady(timestamp=at(1), worker="w1", host="node-1", pid=1),
        *task("t1", 1, 3),
        span("outside", 4, 1),
    ]
    trace = drawn(tmp_path, events)
    assert trace.drawn("task") == [("w1 on node-1/tasks", "sim", 1 * S, 3 * S)]
    assert trace.drawn("span") == [("w1 on node-1/thread 1", "outside", 4 * S, 5 * S)]


def test_an_attempt_of_which_nobody_knows_the_worker_or_the_time(tmp_path: Path) -> None:
    unknown = TaskCompleted(timestamp=at(3), task="sim", task_id="t2", args={}, worker=None, duration_s=None)
    trace = drawn(tmp_path, [*task("t1", 1, 2, worker=None), unknown])
    assert trace.drawn("task") == [("no worker known/tasks", "sim", 1 * S, 2 * S)]
    assert trace.exported.notes == ("1 attempt not drawn: when they ran is unknown",)


def test_the_same_run_gives_the_same_bytes_zipped_or_not_by_the_name_of_the_file(tmp_path: Path) -> None:
    path = make_run(tmp_path / "runs", [*task("t1", 1, 2), submitted("t2", 1, "t1"), *task("t2", 2, 3)])
    one, other = (tmp_path / name for name in ("a.trace.json.gz", "b.trace.json.gz"))
    plain = trace_of(path, tmp_path / "c.json")
    assert trace_of(path, one).events == trace_of(path, other).events == plain.events
    assert one.read_bytes() == other.read_bytes()
    assert one.read_bytes()[:2] == b"\x1f\x8b"
    assert json.loads((tmp_path / "c.json").read_text())["displayTimeUnit"] == "ms"


def test_a_run_without_tasks_is_a_trace_of_the_run_alone(tmp_path: Path) -> None:
    trace = drawn(tmp_path, [])
    assert [event["ph"] for event in trace.events if event["ph"] != "M"] == ["X"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (ExportOptions(follow=True), "--follow"),
        (ExportOptions(tables=("tasks",)), "--table"),
        (ExportOptions(endpoint="http://x"), "--endpoint"),
    ],
)
def test_options_that_have_no_use_here_are_refused(
    tmp_path: Path, options: ExportOptions, named: str
) -> None:
    path = make_run(tmp_path / "runs", task("t1", 1, 2))
    with pytest.raises(UsageError, match=f"{named} does not go with --to perfetto"):
        exporter.export(Run(path), tmp_path / "trace.json", options)
    assert not (tmp_path / "trace.json").exists()


def test_device_memory_is_a_curve_of_each_rank(tmp_path: Path) -> None:
    event = DeviceMemory(
        timestamp=at(1),
        schema_version=3,
        session_id="s",
        timestamp_ns=1779249121_000000000,
        event_type="sample",
        collector="flightlog.cuda",
        sampling_interval_ms=100,
        pid=7,
        host="node-1",
        device_id=0,
        rank=2,
        allocator_allocated_bytes=10,
        allocator_reserved_bytes=20,
        allocator_active_bytes=None,
        allocator_inactive_bytes=None,
        allocator_change_bytes=0,
        device_used_bytes=30,
        device_free_bytes=None,
        device_total_bytes=None,
        context=None,
        metadata={},
    )
    trace = drawn(tmp_path, [event])
    assert trace.curve("host node-1", "rank 2 device 0 memory allocated", "bytes") == [(1 * S, 10)]
    assert trace.curve("host node-1", "rank 2 device 0 memory reserved", "bytes") == [(1 * S, 20)]


lives = st.lists(
    st.tuples(
        st.sampled_from(["w1", "w2", None]),
        st.integers(0, 3000),  # start, in milliseconds
        st.integers(0, 2000),  # duration
        st.lists(st.tuples(st.integers(0, 2500), st.integers(0, 900), st.integers(0, 4)), max_size=4),
    ),
    max_size=12,
)


@settings(FEW, suppress_health_check=list(HealthCheck))
@given(lives)
def test_every_task_and_span_is_there_at_its_time_and_nothing_overlaps(
    tmp_path_factory: pytest.TempPathFactory, found: list[tuple]
) -> None:
    folder = tmp_path_factory.mktemp("trace")
    events: list[Event] = []
    expected: list[tuple[str, int, int]] = []
    for n, (worker, since, lasts, spans) in enumerate(found):
        events += task(f"t{n}", since / 1000, (since + lasts) / 1000, worker=worker, name=f"task {n}")
        expected.append((f"task {n}", since * 1000, (since + lasts) * 1000))
        ids = [f"t{n}.1"]
        for k, (offset, inside, parent) in enumerate(spans):
            begin = since + offset
            ids.append(f"s{n}.{k}")
            events.append(
                span(ids[-1], begin / 1000, inside / 1000, parent=ids[parent % (len(ids) - 1)], thread=k % 2)
            )
            expected.append((ids[-1], begin * 1000, (begin + inside) * 1000))
    trace = trace_of(make_run(folder, events), folder / "trace.json")
    shown = [(e["name"], e["ts"], e["ts"] + e["dur"]) for of in ("task", "span") for e in trace.slices(of)]
    assert sorted(name for name, *_ in shown) == sorted(name for name, *_ in expected)
    wanted = {name: times for name, *times in expected}
    assert [
        one for one in shown if any(abs(a - b) > 1 for a, b in zip(one[1:], wanted[one[0]], strict=True))
    ] == []
    assert overlaps(trace) == []
