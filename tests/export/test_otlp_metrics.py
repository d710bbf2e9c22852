"""A run as metrics: counted by event time, bounded in labels, honest about what is not known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from builders.runs import at
from hypothesis import given
from hypothesis import strategies as st
from otlp_lives import START_NS, a_run, completed, ids, ns

from flightlog.events import Metric, ResourceSample, TaskCompleted
from flightlog.export.limits import ExportLimits
from flightlog.export.otlp.batches import OtlpReader
from flightlog.export.otlp.metrics import OTHER, TaskCounters
from flightlog.export.otlp.model import Histogram, Ids, Point
from flightlog.export.otlp.spans import AttemptSpans
from flightlog.store.layout import RunInfo
from flightlog.store.run import Run

COUNTS = ("submitted", "started", "completed", "failed", "canceled", "retried", "running")


def points_of(run: Run) -> list[Point]:
    batches = OtlpReader(run, environ={}).batches(run, last=True)
    return [item for batch in batches for item in batch.items if isinstance(item, Point)]


def last_counts(points: list[Point]) -> dict[str, Any]:
    found = {point.instrument.name: point.value for point in points}
    return {name: found[f"flightlog.tasks.{name}"] for name in COUNTS}


def test_counts_are_what_happened_and_nothing_runs_when_all_is_over(tmp_path: Path):
    assert last_counts(points_of(a_run(tmp_path))) == {
        "submitted": 4,
        "started": 4,
        "completed": 2,
        "failed": 1,
        "canceled": 1,
        "retried": 1,
        "running": 0,
    }


def test_counts_go_by_event_time_from_the_start_of_the_run(tmp_path: Path):
    points = points_of(a_run(tmp_path, [*completed("t1", 1, 1.0, 4.0), *completed("t2", 2, 2.0, 3.0)]))
    running = [point for point in points if point.instrument.name == "flightlog.tasks.running"]
    assert [(point.time_ns, point.value) for point in running] == [
        (ns(0.5), 0),
        (ns(1.5), 1),
        (ns(2), 2),
        (ns(3), 1),
        (ns(4), 0),
    ]
    assert {point.start_ns for point in running} == {START_NS}


def test_what_a_killed_run_left_in_flight_runs_no_more_when_the_run_is_over(tmp_path: Path):
    begun = completed("t1", 1, 1.0, 2.0)[:2]
    counts = last_counts(points_of(a_run(tmp_path, begun, status="crashed")))
    assert (counts["started"], counts["running"]) == (1, 0)


def lives() -> st.SearchStrategy[list[Any]]:
    """Events of a few tasks, in any order, with clocks that do not agree, some of them lost."""
    one = st.tuples(st.integers(0, 50), st.integers(-5, 50), st.sets(st.integers(0, 2)))
    return st.lists(one, max_size=8).flatmap(
        lambda tasks: st.permutations(
            [
                event
                for number, (start, duration, kept) in enumerate(tasks, 1)
                for which, event in enumerate(
                    completed(f"t{number}", number, 1.0 + start, 1.0 + start + abs(duration))
                )
                if which in kept
            ]
        )
    )


@given(lives(), st.integers(0, 60))
def test_in_whatever_order_events_come_running_is_never_negative_and_sums_never_fall(
    events: list[Any], flushed: int
):
    counters = TaskCounters(START_NS)
    tasks = AttemptSpans(Ids(RunInfo(run_id="r", project="p", status="completed", start_time="")), counters)
    points: list[Point] = []
    for number, event in enumerate(events):
        tasks.take(event, ("tasks", "w", number))
        if number % 3 == 2:
            points += counters.points(START_NS + flushed * 10**9)
    tasks.stop_counting(ns(200))
    points += counters.points(None)
    for name in COUNTS:
        series = [point for point in points if point.instrument.name == f"flightlog.tasks.{name}"]
        values = [point.value for point in series]
        times = [point.time_ns for point in series]
        assert times == sorted(set(times))
        assert min(values, default=0) >= 0
        if name == "running":
            assert values[-1:] in ([], [0])
        else:
            assert values == sorted(values)


def test_very_many_moments_become_longer_steps_and_the_counts_stay_right():
    counters = TaskCounters(START_NS)
    for second in range(3 * ExportLimits.max_count_moments):
        counters.count(0, ns(second))
    points = [
        point for point in counters.points(None) if point.instrument.name == "flightlog.tasks.submitted"
    ]
    assert ExportLimits.max_count_moments / 2 <= len(points) <= ExportLimits.max_count_moments
    assert points[-1].value == 3 * ExportLimits.max_count_moments


def test_durations_are_a_histogram_a_task_name(tmp_path: Path):
    run = a_run(tmp_path, [*completed("t1", 1, 1.0, 1.25), *completed("t2", 2, 2.0, 6.0)])
    (point,) = [point for point in points_of(run) if point.instrument.name == "flightlog.task.duration"]
    assert point.attributes == {"cicd.pipeline.task.name": "simulate"}
    assert isinstance(point.value, Histogram)
    filled = {
        bound: count for bound, count in zip(point.value.bounds, point.value.counts, strict=False) if count
    }
    assert filled == {0.25: 1, 5.0: 1}
    assert (point.value.count, point.value.total, point.value.least, point.value.most) == (2, 4.25, 0.25, 4.0)


def test_task_names_are_bounded_and_task_ids_are_no_label(tmp_path: Path):
    events = [
        TaskCompleted(
            timestamp=at(1),
            task=f"task {number}",
            task_id=f"id-{number}",
            args={},
            worker="w1",
            duration_s=0.1,
            **ids(number + 1),
        )
        for number in range(ExportLimits.max_task_names + 50)
    ]
    points = points_of(a_run(tmp_path, events))
    names = {point.attributes.get("cicd.pipeline.task.name") for point in points} - {None}
    assert len(names) == ExportLimits.max_task_names + 1
    assert OTHER in names
    assert not [
        point for point in points for value in point.attributes.values() if str(value).startswith("id-")
    ]


def test_every_node_and_gpu_is_a_series_of_its_own_and_tasks_are_none(tmp_path: Path):
    points = [point for point in points_of(a_run(tmp_path)) if point.time_ns == ns(1) and point.host]
    assert {
        (point.host, point.instrument.name, point.value, *point.attributes.items()) for point in points
    } == {
        ("node-1", "system.cpu.utilization", 0.5),
        ("node-1", "system.memory.usage", 1000, ("system.memory.state", "used")),
        ("node-1", "flightlog.node.network.io_rate", 20.0, ("network.io.direction", "receive")),
        ("node-2", "system.cpu.utilization", 0.25),
        *(
            (
                "node-1",
                name,
                value,
                ("hw.id", "GPU-1"),
                ("hw.name", "H200"),
                ("hw.type", "gpu"),
                ("flightlog.gpu.index", 0),
            )
            for name, value in (("hw.gpu.utilization", 0.8), ("hw.gpu.memory.usage", 5))
        ),
    }


def test_what_is_not_known_has_no_point(tmp_path: Path):
    sample = ResourceSample(timestamp=at(1), scope="node", host="node-1", cpu_percent=None)
    unknown = Metric(timestamp=at(1), name="loss", value=None, nonfinite="nan")
    assert points_of(a_run(tmp_path, [sample, unknown])) == []


def test_a_users_series_bears_its_name_as_far_as_metrics_may(tmp_path: Path):
    (point,) = [point for point in points_of(a_run(tmp_path)) if "loss" in point.instrument.name]
    assert (point.instrument.name, point.time_ns, point.value) == ("train_loss", ns(7), 0.25)
    assert point.attributes == {"flightlog.series": "train loss"}


def test_sums_of_machines_say_since_when_they_are_told_and_memory_is_a_share_too(tmp_path: Path):
    samples = [
        ResourceSample(
            timestamp=at(second),
            scope="worker",
            host="node-1",
            worker="w1",
            cpu_percent=None,
            cpu_s=second / 2,
        )
        for second in (1, 2)
    ]
    node = ResourceSample(
        timestamp=at(3),
        scope="node",
        host="node-1",
        cpu_percent=None,
        memory_used_bytes=250,
        memory_total_bytes=1000,
    )
    points = points_of(a_run(tmp_path, [*samples, node]))
    assert [(one.instrument.name, one.start_ns, one.time_ns, one.value) for one in points] == [
        ("process.cpu.time", ns(1), ns(1), 0.5),
        ("process.cpu.time", ns(1), ns(2), 1.0),
        ("system.memory.usage", ns(3), ns(3), 250),
        ("system.memory.limit", ns(3), ns(3), 1000),
        ("system.memory.utilization", None, ns(3), 0.25),
    ]


def test_an_attempt_that_is_begun_twice_runs_once(tmp_path: Path):
    submitted, started, ended = completed("t1", 1, 1.0, 4.0)
    again = completed("t1", 1, 2.0, 4.0)[1]
    counts = last_counts(points_of(a_run(tmp_path, [submitted, started, again, ended])))
    assert (counts["started"], counts["completed"], counts["running"]) == (2, 1, 0)
