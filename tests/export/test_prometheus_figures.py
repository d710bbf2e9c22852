"""What Prometheus is given of one run, against what the summary says of it."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from builders.examples import FEW
from builders.runs import at, make_run
from hypothesis import given
from hypothesis import strategies as st

import flightlog
from flightlog.analyze.report.summary import summarize
from flightlog.events import (
    CacheLookup,
    CostEstimate,
    CostRates,
    Event,
    Failure,
    ResourceSample,
    TaskCancelled,
    TaskCompleted,
    TaskFailed,
    TaskRetried,
    TaskStarted,
    TaskSubmitted,
    WorkerLaunched,
    WorkerLost,
    WorkerReady,
    WorkerRemoved,
)
from flightlog.export.limits import PrometheusLimits
from flightlog.export.prometheus.run_metrics import (
    BUCKETS_S,
    OTHER,
    RunMetrics,
    RunWatch,
    StableLabels,
    families,
    label,
)
from flightlog.store import layout
from flightlog.store.headline import headline_bytes, headline_of
from flightlog.store.liveness import Observer, here
from flightlog.store.run import Run

NOW = Observer(now=1_800_000_000.0, host="elsewhere")
ENDS = {"completed": TaskCompleted, "failed": TaskFailed, "cancelled": TaskCancelled}


def of(found: RunMetrics, *names: str) -> tuple:
    """The values of metrics that have no labels of their own."""
    return tuple(found.values[name] for name in names)


def by_label(found: RunMetrics, name: str) -> dict[str, float]:
    """The values of a metric by its only label."""
    return {labels[0]: value for labels, value in found.values[name].items()}


def submitted(task_id: str, **fields) -> TaskSubmitted:
    return TaskSubmitted(**{"task": "simulate", "task_id": task_id, "args": {}, **fields})


def started(task_id: str, attempt: int = 1) -> TaskStarted:
    return TaskStarted(task="simulate", task_id=task_id, attempt=attempt, worker="w", queue_s=None)


def ended(
    kind: str, task_id: str, attempt: int = 1, *, task: str = "simulate", duration_s: float | None = 1.0
):
    more = {"error_type": "ValueError", "error_message": "no"} if kind == "failed" else {}
    return ENDS[kind](
        task=task, task_id=task_id, attempt=attempt, args={}, worker="w", duration_s=duration_s, **more
    )


def retried(task_id: str, attempt: int = 1) -> TaskRetried:
    return TaskRetried(task="simulate", task_id=task_id, attempt=attempt, reason="ValueError")


@st.composite
def lives(draw) -> list[Event]:
    """Events of tasks that end in every way, some of them retried, in any order."""
    events: list[Event] = []
    for number in range(draw(st.integers(0, 6))):
        task_id, tries = f"t{number}", draw(st.integers(1, 3))
        events.append(submitted(task_id))
        for attempt in range(1, tries):
            events += [
                started(task_id, attempt),
                ended("failed", task_id, attempt),
                retried(task_id, attempt),
            ]
        last = draw(st.sampled_from([None, "pending", "running", *ENDS]))
        if last == "pending" or last is None:
            continue
        events.append(started(task_id, tries))
        if last != "running":
            events.append(ended(last, task_id, tries))
    return draw(st.permutations(events))


@FEW
@given(lives())
def test_tasks_are_where_the_summary_says_they_are(events: list[Event]) -> None:
    with TemporaryDirectory(prefix="flightlog-test-") as folder:
        path = make_run(Path(folder), events)
        found, summary = RunWatch(path).look(NOW), summarize(Run(path)).tasks
    assert by_label(found, "tasks") == {
        "pending": summary.pending,
        "running": summary.running,
        "completed": summary.completed,
        "failed": summary.failed,
        "cancelled": summary.cancelled,
    }
    assert of(found, "tasks_submitted", "tasks_retried") == (summary.submitted, summary.retried)


@FEW
@given(st.lists(st.floats(0, 1e6), max_size=20))
def test_a_histogram_counts_each_duration_once(values: list[float]) -> None:
    events = [ended("completed", f"t{number}", duration_s=value) for number, value in enumerate(values)]
    with TemporaryDirectory(prefix="flightlog-test-") as folder:
        found = RunWatch(make_run(Path(folder), events)).look(NOW).durations
    assert list(found) == ["simulate"] * bool(values)
    for histogram in found.values():
        *at_most, count = histogram.at_most
        assert at_most == [sum(value <= bound for value in values) for bound in BUCKETS_S]
        assert (count, histogram.sum_s) == (len(values), pytest.approx(sum(values)))


def test_what_is_no_time_is_in_no_bucket(tmp_path: Path) -> None:
    events = [ended("completed", "a", duration_s=None), ended("completed", "b", duration_s=-1.0)]
    assert RunWatch(make_run(tmp_path, events)).look(NOW).durations == {}


def test_an_attempt_that_is_told_twice_counts_once(tmp_path: Path) -> None:
    told = [submitted("1"), started("1"), ended("completed", "1"), ended("completed", "1")]
    found = RunWatch(make_run(tmp_path, told)).look(NOW)
    assert of(found, "tasks_submitted", "tasks_started", "tasks_completed") == (1, 1, 1)
    assert found.durations["simulate"].at_most[-1] == 1


@given(st.lists(st.lists(st.sampled_from("abcdefgh"), unique=True), max_size=9))
def test_a_label_is_kept_by_whom_it_was_given_to_and_all_others_share_one(looks: list[list[str]]) -> None:
    labels = StableLabels(3)
    seen: list[str] = []
    for keys in looks:
        seen += [key for key in keys if key not in seen]
        found = labels.summed([((key,), [1, 2]) for key in keys])
        wanted = {(key,): [1, 2] for key in sorted(keys) if key in seen[:3]}
        others = sum(key not in seen[:3] for key in keys)
        wanted |= {(OTHER,): [others, 2 * others]} if others else {}
        assert list(found.items()) == list(wanted.items())


def test_the_most_frequent_names_have_a_label_and_keep_it(tmp_path: Path) -> None:
    most = PrometheusLimits.max_task_names
    with flightlog.record("demo", runs_dir=tmp_path, sample_interval_s=None) as run:
        for number in range(most + 1):
            for _ in range(1 if number == 0 else 2):
                with run.task(f"task {number}"):
                    pass
        watch = RunWatch(run.path)
        before = watch.look(here()).durations
        assert ("task 0" in before, before["other"].at_most[-1], len(before)) == (False, 1, most + 1)
        for _ in range(9):
            with run.task("task 0"):
                pass
        after = watch.look(here()).durations
        assert (list(after), after["other"].at_most[-1]) == (list(before), 10)


def test_a_label_is_bounded_and_is_text() -> None:
    assert (label(None), label("x" * 1000), label("a\ud800b")) == ("", "x" * 100, "a?b")


def test_a_run_is_counted_as_its_report_counts_it(tmp_path: Path) -> None:
    events = [
        submitted("1"),
        started("1"),
        ended("completed", "1", duration_s=2.5),
        submitted("2"),
        started("2"),
        ended("failed", "2"),
        retried("2"),
        started("2", 2),
        ended("completed", "2", 2, duration_s=0.05),
        submitted("3"),
        started("3"),
        ended("failed", "3"),
        submitted("4"),
        ended("cancelled", "4", duration_s=None),
        submitted("5"),
        submitted("6"),
        started("6"),
        WorkerReady(worker="w", host="node-1", pid=1, timestamp=at(1)),
        WorkerReady(worker="x", host="node-1", pid=2, timestamp=at(1)),
        WorkerReady(worker="y", host="node-1", pid=3, timestamp=at(1)),
        WorkerLost(worker="x", host="node-1", pid=2, reason="killed", timestamp=at(2)),
        WorkerRemoved(worker="y", host="node-1", pid=3, reason="done", timestamp=at(2)),
        CacheLookup(task="f", result="hit", key="k", saved_s=3.0),
        CacheLookup(task="f", result="miss", key="k"),
        CacheLookup(task="f", result="bypass", key=None),
        Failure(
            scope="task", error_type="ValueError", message="no", traceback=None, fingerprint=None, task_id="3"
        ),
        CostEstimate(item="workers", amount=1.0, currency="EUR", timestamp=at(1)),
        CostEstimate(item="workers", amount=2.0, currency="EUR", timestamp=at(2)),
        CostEstimate(item="storage", amount=0.5, currency="EUR", timestamp=at(1)),
    ]
    path = make_run(tmp_path, events)
    found, summary = RunWatch(path).look(NOW), summarize(Run(path))
    assert of(found, "tasks_submitted", "tasks_started", "tasks_completed") == (6, 5, 2)
    assert of(found, "tasks_failed", "tasks_retried", "tasks_cancelled") == (2, 1, 1)
    tasks = summary.tasks
    assert by_label(found, "tasks") == {
        "pending": tasks.pending,
        "running": tasks.running,
        "completed": tasks.completed,
        "failed": tasks.failed,
        "cancelled": tasks.cancelled,
    }
    assert found.durations["simulate"].at_most[-1] == tasks.duration_s.count
    assert found.durations["simulate"].sum_s == pytest.approx(2.55)
    assert of(found, "workers_seen", "workers_lost", "workers") == (summary.workers.count, 1, 0)
    assert by_label(found, "cache_lookups") == {"hit": 1, "miss": 1, "bypass": 1}
    assert of(found, "cache_saved_seconds") == (3.0,)
    assert by_label(found, "cost") == {"EUR": summary.cost.total}
    assert found.values["failures"] == {("task", "ValueError"): 1}
    assert (found.status, *of(found, "run_duration_seconds", "run_problems")) == ("completed", 10.0, 0)


def test_the_cost_of_a_run_that_is_over_is_its_reports(tmp_path: Path) -> None:
    """By rates and the time of workers, and not what was estimated on the way."""
    events = [
        CostEstimate(item="workers", amount=1.0, currency="USD"),
        CostRates(currency="USD", per_worker_hour=3600.0, source="test"),
        WorkerLaunched(worker="w1", host="n", pid=1, timestamp=at(0)),
        WorkerRemoved(worker="w1", host="n", pid=1, reason=None, timestamp=at(7)),
    ]
    path = make_run(tmp_path, events)
    (path / "summary.json").write_bytes(headline_bytes(headline_of(Run(path))))
    found = by_label(RunWatch(path).look(NOW), "cost")
    assert found == {"USD": summarize(Run(path)).cost.total} == {"USD": 7.0}


def test_a_look_reads_only_what_is_new(tmp_path: Path) -> None:
    with flightlog.record("demo", runs_dir=tmp_path, sample_interval_s=None) as run:
        watch = RunWatch(run.path)
        for number in range(3):
            with run.task("simulate"):
                pass
            found = watch.look(here())
            assert (by_label(found, "tasks")["completed"], *of(found, "workers")) == (number + 1, 1)
        assert watch._reader is not None
        taken = watch._reader.count
        watch.look(here())
        assert watch._reader.count == taken
        with run.task("simulate"):
            inside = watch.look(here())
            assert (by_label(inside, "tasks")["running"], inside.status) == (1, "running")
            assert of(inside, "run_end_time_seconds") == (None,)
    over = watch.look(here())
    assert (by_label(over, "tasks")["completed"], over.status, *of(over, "workers")) == (4, "completed", 0)
    assert over == watch.look(here())


def test_lines_without_a_number_count_once_the_run_is_over(tmp_path: Path) -> None:
    path = make_run(tmp_path, [submitted("1"), submitted("2")], numbered=False)
    watch = RunWatch(path)
    assert [watch.look(NOW).values["tasks_submitted"] for _ in range(3)] == [2, 2, 2]


def test_the_newest_sample_of_each_place_is_given_in_base_units(tmp_path: Path) -> None:
    def node(seconds: float, percent: float | None) -> ResourceSample:
        return ResourceSample(
            scope="node", host="n1", cpu_percent=percent, memory_used_bytes=10, timestamp=at(seconds)
        )

    gpu = ResourceSample(
        scope="gpu",
        host="n1",
        cpu_percent=None,
        gpu_index=1,
        gpu_name="H200",
        gpu_percent=50.0,
        gpu_power_w=300.0,
        timestamp=at(1),
    )
    part = ResourceSample(
        scope="gpu",
        host="n1",
        cpu_percent=None,
        gpu_index=1,
        gpu_mig="MIG-1",
        gpu_percent=25.0,
        timestamp=at(1),
    )
    path = make_run(tmp_path, [node(2, 25.0), node(1, 99.0), gpu, part])
    found = RunWatch(path).look(NOW).values
    sampled = {name: value for name, value in found.items() if name.startswith(("node_", "gpu_"))}
    assert sampled == {
        "node_cpu_ratio": {("n1",): 0.25},
        "node_memory_used_bytes": {("n1",): 10},
        "gpu_utilization_ratio": {("n1", "1", "H200"): 0.5, ("n1", "1/MIG-1", ""): 0.25},
        "gpu_power_watts": {("n1", "1", "H200"): 300.0},
    }


def test_whatever_a_run_holds_its_labels_are_bounded(tmp_path: Path) -> None:
    events: list[Event] = []
    for number in range(200):
        events.append(ended("completed", f"t{number}", task=f"task {number}"))
        events.append(
            Failure(scope="task", error_type=f"E{number}", message=None, traceback=None, fingerprint=None)
        )
        events.append(ResourceSample(scope="node", host=f"n{number}", cpu_percent=1.0))
    found = RunWatch(make_run(tmp_path, events)).look(NOW)
    labels = (found.durations, found.values["failures"], found.values["node_cpu_ratio"])
    assert tuple(map(len, labels)) == (
        PrometheusLimits.max_task_names + 1,
        PrometheusLimits.max_failure_kinds + 1,
        PrometheusLimits.max_machines,
    )
    assert sum(one.at_most[-1] for one in found.durations.values()) == 200
    assert sum(found.values["failures"].values()) == 200


def test_damage_is_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    path = make_run(tmp_path, [submitted("1")])
    with (path / "tasks.jsonl").open("ab") as out:
        out.write(b"not an event\n\xff\xfe\n")
    (path / "recorder.json").write_text("{")
    found = RunWatch(path).look(NOW)
    assert of(found, "tasks_submitted", "run_problems") == (1, 3)


def test_what_a_killed_recorder_cost_is_absent_and_not_0(tmp_path: Path) -> None:
    path = make_run(tmp_path, [submitted("1")])
    note = json.loads((path / layout.RECORDER).read_text())
    for cost, expected in ((0.25, 0.25), (None, None)):
        note["writers"][0]["background_cpu_s"] = cost
        (path / layout.RECORDER).write_text(json.dumps(note))
        found = RunWatch(path).look(NOW)
        shown = [
            sample.value
            for family in families([found])
            for sample in family.samples
            if sample.name == "flightlog_recorder_cpu_seconds_total"
        ]
        assert (*of(found, "recorder_cpu_seconds"), shown) == (
            expected,
            [] if expected is None else [expected],
        )
