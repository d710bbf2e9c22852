"""Each rule of alerts, on runs that were really recorded, while they run and after."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders.device_sessions import event
from builders.runs import START, at, make_run
from builders.task_events import completed, started, submitted

import flightlog
from flightlog.analyze.alerts import RuleWatch
from flightlog.core.alerts import AlertRule, parse_rule
from flightlog.events import Metric, ResourceSample, TaskRetried
from flightlog.record.run import LiveRun
from flightlog.store import layout


def said(path: Path, *rules: str, now: Callable[[], float] = time.time) -> list[str]:
    """The messages of what these rules find in a run."""
    _, found, problems = RuleWatch(path, lambda: [*map(parse_rule, rules)], now=now).look()
    assert problems == []
    return [one.message for _, one in found]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[LiveRun]:
    """A run that is being recorded."""
    with flightlog.record("train", runs_dir=tmp_path, sample_interval_s=0.1) as run:
        yield run


def fail(run: LiveRun, name: str, error: Exception) -> None:
    with pytest.raises(type(error)), run.task(name):
        raise error


def test_metrics_are_seen_while_the_run_runs_and_after(tmp_path: Path) -> None:
    rules = ("loss is NaN", "loss is not finite", "loss > 5 for 2 steps", "loss > 5 for 3 steps", "acc < 0")
    with flightlog.record("train", runs_dir=tmp_path) as run:
        watch = RuleWatch(run.path, lambda: [*map(parse_rule, rules)])
        assert watch.look()[1] == []
        for step, value in enumerate([9.0, 1.0, 7.0, float("inf"), 1.0, float("nan")]):
            run.metric("loss", value, step=step)
        run.recorder.files.flush()
        found = [one.message for _, one in watch.look()[1]]
        assert found == [
            "loss is NaN at step 5",
            "loss is NaN at step 5",
            "loss > 5 for 2 steps: inf at step 3",
        ]
    assert [one.message for _, one in watch.look()[1]] == found
    assert said(run.path, *rules) == found


def test_values_in_a_row_are_those_of_one_process(tmp_path: Path) -> None:
    path = make_run(tmp_path, [Metric(name="loss", value=1.0, step=step) for step in range(2)])
    other = [Metric(name="loss", value=1.0, step=step, writer="w2", seq=step) for step in range(2)]
    with layout.stream_file(path, "metrics").open("ab") as out:
        for one in other:
            one.timestamp = START
            out.write(msgspec.json.encode(one) + b"\n")
    assert said(path, "loss < 2 for 2 steps") == ["loss < 2 for 2 steps: 1 at step 1"]
    assert said(path, "loss < 2 for 3 steps") == []


def test_failed_names_each_kind_of_failure_once_and_no_retried_one(tmp_path: Path) -> None:
    recording, began = flightlog.record("train", runs_dir=tmp_path), time.time()
    run = recording.__enter__()
    fail(run, "sim[1]", ValueError("no convergence"))
    fail(run, "sim[2]", ValueError("no convergence, again"))
    fail(run, "post", OSError("disk"))
    with run.task("flaky") as task:
        task.set_status("error", "returned")
        task_id = task.span_id
    run.emit(TaskRetried(task="flaky", task_id=task_id, reason="returned"))
    assert said(run.path, "failed", now=lambda: began) == []  # perhaps they are retried
    later = time.time() + 5
    run.recorder.files.flush()
    assert len(said(run.path, "failed", now=lambda: later)) == 2
    recording.__exit__(KeyError, KeyError("x"), None)
    found = said(run.path, "failed")
    assert found[0] == "the run failed: KeyError: 'x'"
    assert sorted(found[1:]) == [
        "post failed: OSError: disk (3 of 4 tasks failed)",
        "sim[2] failed: ValueError: no convergence, again (3 of 4 tasks failed)",
    ]
    assert said(run.path, "run failed") == found[:1]
    assert said(run.path, "tasks failed") == found[1:]


def test_a_failure_is_told_however_many_others_came_after_it(run: LiveRun) -> None:
    fail(run, "rare", OSError("disk"))
    for number in range(60):
        fail(run, f"sim[{number}]", ValueError("no convergence"))
    run.recorder.files.flush()
    later = time.time() + 5
    assert said(run.path, "tasks failed", now=lambda: later) == [
        "sim[59] failed: ValueError: no convergence (61 of 61 tasks failed so far)",
        "rare failed: OSError: disk (61 of 61 tasks failed so far)",
    ]


def test_finished_says_how_and_when(tmp_path: Path) -> None:
    with flightlog.record("train", runs_dir=tmp_path) as run:
        with run.task("sim"):
            pass
        assert said(run.path, "finished", "failed") == []
    [message] = said(run.path, "finished", "failed")
    assert message.startswith("the run completed after ")
    assert message.endswith("; 1 task, 0 failed")


def test_a_run_whose_process_is_gone_has_failed(tmp_path: Path) -> None:
    path = make_run(
        tmp_path, [submitted("1")], status="running", end_time=None, duration_s=None, heartbeat=at(9)
    )
    assert said(path, "run failed") == ["the run crashed: its process is gone"]


def test_a_run_of_another_host_may_live_though_it_is_not_heard_of(tmp_path: Path) -> None:
    facts: dict[str, Any] = {"status": "running", "end_time": None, "duration_s": None}
    path = make_run(tmp_path, [submitted("1")], heartbeat=at(9), **facts)
    start = datetime.fromisoformat(START).timestamp()
    now = start + 9 + 65
    rules = [*map(parse_rule, ("failed", "finished", "stuck"))]
    watch = RuleWatch(path, lambda: rules, now=lambda: now)
    state, found, _ = watch.look()
    assert not state.over
    assert [one.message for _, one in found] == [
        "the run may have crashed: no heartbeat of the run for 65 s",
        "no heartbeat of the run for 65 s",
    ]
    info = msgspec.json.decode((path / layout.RUN).read_bytes())
    (path / layout.RUN).write_bytes(msgspec.json.encode({**info, "heartbeat": at(70)}))
    assert watch.look()[1] == []  # its heartbeats were late
    now = start + 70 + 3601
    state, found, _ = watch.look()
    assert state.status == "crashed"
    assert [rule.text for rule, _ in found] == ["failed", "finished"]


def test_a_run_that_is_over_is_not_stuck(tmp_path: Path) -> None:
    events = [one for n in range(10) for one in (started(f"{n}", n), completed(f"{n}", n + 1, 1.0))]
    path = make_run(tmp_path, [*events, started("last", 10)], end_time=at(3000), duration_s=3000.0)
    assert said(path, "stuck") == []


def test_a_run_without_a_word_on_its_end_has_not_failed(tmp_path: Path) -> None:
    path = make_run(tmp_path, [submitted("1")])
    (path / layout.RUN).write_bytes(b"{")
    assert said(path, "failed") == []
    assert said(path, "finished")[0].startswith("the run is over")


def test_stuck_tasks_are_those_of_the_live_view(run: LiveRun) -> None:
    for _ in range(10):
        with run.task("sim"):
            pass
    with run.task("sim"):
        run.recorder.files.flush()
        assert said(run.path, "stuck") == []
        later = time.time() + 3600
        messages = said(run.path, "stuck", now=lambda: later)
    [message] = [one for one in messages if not one.startswith("no heartbeat of the run for ")]
    assert message.startswith("sim on ")
    assert " may be stuck: it runs for 1h 00m, p95 of its name is " in message


def test_full_memory_of_machines_limits_and_gpus_is_found(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"memory_used_bytes": 950, "memory_total_bytes": 1000}
    gpu: dict[str, Any] = {"gpu_memory_used_bytes": 92, "gpu_memory_total_bytes": 100}
    low = {**sizes, "memory_used_bytes": 10}
    events = [
        ResourceSample(scope="node", host="a", cpu_percent=None, timestamp=at(1), **sizes),
        ResourceSample(scope="node", host="a", cpu_percent=None, timestamp=at(2), **low),
        ResourceSample(scope="node", host="b", cpu_percent=None, timestamp=at(2), **low),
        ResourceSample(scope="cgroup", host="a", cpu_percent=None, timestamp=at(3), **sizes),
        ResourceSample(scope="gpu", host="a", cpu_percent=None, gpu_index=1, timestamp=at(3), **gpu),
    ]
    path = make_run(tmp_path, events)
    assert said(path, "memory > 90 %", "gpu memory > 90 %") == [
        "memory of a: 95% in use, 950 B of 1000 B",
        "memory of a, limit of the run: 95% in use, 950 B of 1000 B",
        "gpu memory of a, GPU 1: 92% in use, 92 B of 100 B",
    ]
    assert said(path, "memory > 95 %", "gpu memory > 92 %") == []
    assert said(path, "memory >= 95 %") == said(path, "memory > 90 %")


def test_memory_of_this_machine_is_sampled_by_a_run(run: LiveRun) -> None:
    deadline = time.monotonic() + 30
    while not (found := said(run.path, "memory > 0 %")) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert found[0].startswith("memory of ")


def test_a_query_finds_what_gives_a_row(run: LiveRun) -> None:
    rule = "SELECT name, count(*) AS n, NULL AS nothing FROM metrics GROUP BY name HAVING n > 1"
    run.metric("loss", 1.0)
    run.recorder.files.flush()
    assert said(run.path, rule) == []
    run.metric("loss", 2.0)
    run.recorder.files.flush()
    assert said(run.path, rule) == ["the query gives a row: name=loss, n=2, nothing=null"]
    rules: list[AlertRule] = [parse_rule("SELECT 1 FROM no_such_table"), parse_rule("loss > 1")]
    _, found, problems = RuleWatch(run.path, lambda: rules).look()
    assert [one.message for _, one in found] == ["loss > 1: 2"]
    assert problems[0].startswith("'SELECT 1 FROM no_such_table': there is no table no_such_table.")


def test_slower_than_usual_is_what_the_report_says(tmp_path: Path) -> None:
    def one(number: int, seconds: float) -> Path:
        events = [submitted("1"), started("1", 0.0), completed("1", 9.0, seconds)]
        start = f"2026-05-{number + 1:02d}T00:00:00.000000Z"
        path = make_run(
            tmp_path,
            events,
            token=f"{number:08x}",
            start_time=start,
            end_time=start,
            duration_s=seconds,
            command=["python", "sim.py"],
        )
        moved = path.with_name(f"run-202605{number + 1:02d}T000000Z-demo-{number:08x}")
        path.rename(moved)
        info = msgspec.json.decode((moved / layout.RUN).read_bytes())
        (moved / layout.RUN).write_bytes(msgspec.json.encode({**info, "run_id": moved.name}))
        return moved

    usual = [one(number, 10.0 + 0.01 * number) for number in range(8)]
    assert said(usual[-1], "slower than usual") == []
    [message] = said(one(9, 40.0), "slower than usual")
    assert message.startswith("the run was 4.0 times slower than 8 earlier runs with the same tasks")


def test_tracked_device_memory_counts_as_gpu_memory(tmp_path: Path) -> None:
    sample = event(1.0, host="a", device_id=0, device_used_bytes=99, device_total_bytes=100)
    assert said(make_run(tmp_path, [sample]), "gpu memory > 90 %") == [
        "gpu memory of a, device 0: 99% in use, 99 B of 100 B"
    ]
