"""What stands out, with its cost: each number can be added up by hand."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from builders.runs import at, make_run
from builders.task_events import completed, failed, span, started, submitted
from msgspec.structs import replace

from flightlog.analyze.findings import Finding
from flightlog.analyze.report.report import report_on
from flightlog.events import (
    CacheLookup,
    Event,
    Metric,
    ResourceSample,
    SpanEvent,
    TaskCancelled,
    TaskQueued,
    TaskRetried,
    TaskStarted,
    TaskSubmitted,
    WorkerLaunched,
    WorkerLost,
    WorkerReady,
    WorkerRemoved,
)
from flightlog.store.run import Run


def found(tmp_path: Path, events: Iterable[Event], **facts: Any) -> list[Finding]:
    return report_on(Run(make_run(tmp_path, events, **facts)), details=False).findings


def one(tmp_path: Path, kind: str, events: Iterable[Event], **facts: Any) -> Finding:
    [finding] = [finding for finding in found(tmp_path, events, **facts) if finding.kind == kind]
    return finding


def up(worker: str, since: float = 0.0, until: float = 10.0) -> list[Event]:
    who = {"worker": worker, "host": "n1", "pid": 1}
    return [
        WorkerReady(timestamp=at(since), **who),
        WorkerRemoved(timestamp=at(until), reason="done", **who),
    ]


def work(task_id: str, worker: str, since: float, until: float, **more: Any) -> list[Event]:
    """A task that was submitted at the start of the run, and ran from then to then."""
    return [
        submitted(task_id, 0.0, n=int(task_id[1:])),
        started(task_id, since, worker, queue_s=since),
        completed(task_id, until, until - since, worker, args={"n": int(task_id[1:])}, queue_s=since, **more),
    ]


def test_a_run_whose_workers_worked_has_no_findings(tmp_path: Path) -> None:
    events = [
        event for w in range(2) for n in range(10) for event in work(f"t{10 * w + n}", f"w{w}", n, n + 1)
    ]
    assert found(tmp_path, [*events, *up("w0"), *up("w1")]) == []


def test_idle_time_behind_a_task_far_over_its_median_is_a_stragglers(tmp_path: Path) -> None:
    events = [event for n in range(6) for event in work(f"t{n}", "w1", n * 0.5, n * 0.5 + 0.5)]
    events += [*work("t9", "w2", 0, 10), *up("w1"), *up("w2")]
    finding = one(tmp_path, "stragglers", events)
    assert finding == Finding(
        kind="stragglers",
        seconds=7.0,
        share=0.35,
        sentence=(
            "7.0 worker-seconds, 35% of this run, went to workers with nothing left to do while 1 slow task "
            "still ran, because sim(n=9) took 10.0s, 20.0 times the median of 500 ms; try starting the "
            "longest first, or splitting them."
        ),
        evidence={
            "tasks": 1,
            "workers_idle": 1,
            "worst_s": 10.0,
            "median_s": 0.5,
            "idle_behind_worst_s": 7.0,
        },
        where=["sim(n=9)"],
        limits=0.35,
        saves_s=8.0,  # seven tasks of half a second on two workers
    )


def test_idle_time_behind_ordinary_tasks_is_too_little_to_share_out(tmp_path: Path) -> None:
    events = [*work("t1", "w1", 0, 10), *up("w1"), *up("w2"), *up("w3")]
    finding = one(tmp_path, "idle_workers", events)
    assert (finding.seconds, finding.where) == (20.0, ["w2", "w3"])
    assert finding.evidence == {"batches": 1, "unused_workers": 2, "workers": 3}
    assert (
        "20.0 worker-seconds, 67% of this run, went to workers with nothing left to do (2 workers never"
        in (finding.sentence)
    )


def test_idle_time_is_blamed_on_what_ended_last_meanwhile(tmp_path: Path) -> None:
    """`w2` is idle until a second batch begins, behind `early`, however long `late` goes on."""
    events = [event for name in ("w1", "w2", "w3") for event in up(name)]
    for task_id, task, worker, since, until in (
        *(("t1", "early", "w1", 0, 5), ("t2", "short", "w2", 0, 2), ("t3", "late", "w3", 0, 10)),
        *(("t4", "next", "w1", 5, 10), ("t5", "next", "w2", 5, 10)),
    ):
        events += [submitted(task_id, since, task=task), started(task_id, since, worker, task=task)]
        events.append(completed(task_id, until, float(until - since), worker, task=task))
    finding = one(tmp_path, "idle_workers", events)
    assert (finding.seconds, finding.where) == (3.0, ["early"])
    assert finding.evidence == {"batches": 1, "unused_workers": 0, "workers": 3}


def test_workers_that_never_came_up_are_no_cold_starts(tmp_path: Path) -> None:
    events: list[Event] = [
        *(WorkerLaunched(timestamp=at(0), worker=name, host="n1", pid=1) for name in ("w1", "w2")),
        WorkerReady(timestamp=at(2), worker="w1", host="n1", pid=1),
        *work("t1", "w1", 2, 10),
    ]
    finding = one(tmp_path, "cold_starts", events)
    assert (finding.seconds, finding.where) == (2.0, ["w1"])
    assert (finding.evidence["startup_s"], finding.evidence["workers"]) == (2.0, 1)


def test_idle_time_with_nothing_running_is_the_programs(tmp_path: Path) -> None:
    events = [
        *work("t1", "w1", 0, 2),
        submitted("t2", 8.0),
        started("t2", 8.0, "w1", queue_s=0.0),
        completed("t2", 10, 2.0, "w1"),
        *up("w1"),
    ]
    finding = one(tmp_path, "program_alone", events)
    assert (finding.seconds, finding.share) == (6.0, 0.6)
    assert finding.evidence == {"program_s": {"between tasks": 6.0}, "spans_s": {}}
    assert finding.sentence.endswith("; try spans in the program, to see what it did.")


def waiting_for_program(tmp_path: Path, *more: Event) -> Finding:
    """Nothing runs between a task from 0 to 2 and one from 8 to 10."""
    tasks = [*work("t1", "w1", 0, 2), submitted("t2", 8.0), started("t2", 8.0, "w1", queue_s=0.0)]
    return one(tmp_path, "program_alone", [*tasks, completed("t2", 10, 2.0, "w1"), *up("w1"), *more])


def test_idle_time_with_nothing_running_is_that_of_the_spans_the_program_was_in(tmp_path: Path) -> None:
    finding = waiting_for_program(
        tmp_path,
        span("main", 0, 10, "s1"),
        span("fit", 1, 5, "s2", "s1"),
        span("read", 2.5, 1, "s3", "s2"),
        span("short", 6.5, 0.5, "s4", "s1"),
        span("simulate", 8.5, 1, "s5"),
    )
    assert finding.evidence["spans_s"] == {"fit": 3.0, "main": 1.5, "read": 1.0}
    assert finding.sentence.endswith(
        " went to the program outside of its tasks (6.0s between tasks), in fit (3.0s), main (1.5s), read "
        "(1.0s); try making fit shorter."
    )


def test_spans_side_by_side_are_counted_by_the_clock(tmp_path: Path) -> None:
    threads = [span("thread", 3, 2, f"t{n}", "s1") for n in range(4)]
    finding = waiting_for_program(tmp_path, span("pool", 2, 6, "s1"), *threads)
    assert finding.evidence["spans_s"] == {"pool": 4.0, "thread": 2.0}


def test_a_task_that_was_given_up_before_it_began_keeps_no_worker_from_waiting(tmp_path: Path) -> None:
    given_up = TaskCancelled(
        timestamp=at(1.5), task="sim", task_id="t3", args={}, worker=None, duration_s=None, cpu_s=None
    )
    finding = waiting_for_program(tmp_path, submitted("t3", 1.0), given_up, span("fit", 2, 6, "s1"))
    assert finding.evidence["spans_s"] == {"fit": 6.0}


def test_however_many_gaps_there_are_the_seconds_are_those_of_all(tmp_path: Path) -> None:
    tasks: list[Event] = []
    for n in range(2000):
        tasks += [submitted(f"t{n}", n / 200), started(f"t{n}", n / 200, "w1", queue_s=0.0)]
        tasks += [completed(f"t{n}", n / 200 + 0.001, 0.001, "w1")]
    finding = one(tmp_path, "program_alone", [*tasks, *up("w1"), span("fit", 0, 10, "s1")])
    assert finding.evidence["spans_s"] == {"fit": pytest.approx(8.0)}


def test_time_without_a_worker_is_no_waiting_for_the_program(tmp_path: Path) -> None:
    task = [submitted("t1"), started("t1", 0.0, "w1", queue_s=0.0), completed("t1", 1, 1.0, "w1")]
    spans = [span("merge", 1, 1, "s1"), span("plot", 2, 7, "s2")]
    finding = one(tmp_path, "program_alone", [*task, *up("w1", 0, 2), *spans])
    assert (finding.seconds, finding.evidence["spans_s"]) == (1.0, {"merge": 1.0})


def test_a_task_that_comes_while_another_runs_is_inside_of_what_the_program_is_in(tmp_path: Path) -> None:
    task = [submitted("t3", 1.9), started("t3", 1.9, "w2", queue_s=0.0), completed("t3", 3, 1.1, "w2")]
    finding = waiting_for_program(tmp_path, *task, span("main", 1.8, 6, "s1"))
    assert finding.evidence["spans_s"] == {"main": 4.8}
    assert finding.sentence.endswith("; try spans inside of main, to see what the program did there.")


def test_a_span_inside_of_a_task_that_outlives_it_is_not_the_programs(tmp_path: Path) -> None:
    task = [
        submitted("t1"),
        started("t1", 0.0, "w1", queue_s=0.0, span_id="a1"),
        completed("t1", 2, 2.0, "w1", span_id="a1"),
    ]
    spans = [span("solve", 1, 5, "s1", "a1"), span("step", 3, 2, "s2", "s1"), span("fit", 4, 4, "s3")]
    finding = one(tmp_path, "program_alone", [*task, *up("w1"), *spans])
    assert finding.evidence["spans_s"] == {"fit": 4.0}


def test_workers_wait_for_the_program_though_tasks_wait_for_others(tmp_path: Path) -> None:
    of_x, of_y = ({"worker": name, "host": "n1", "pid": 1, "component": name} for name in "xy")
    tasks = [
        TaskSubmitted(timestamp=at(0), task="sim", task_id=name, args={}, component=name) for name in "xy"
    ]
    events = [
        *tasks,
        started("x", 0.0, "x", queue_s=0.0),
        completed("x", 2, 2.0, "x"),
        started("y", 8.0, "y", queue_s=8.0),
        completed("y", 10, 2.0, "y"),
        WorkerReady(timestamp=at(0), **of_x),
        WorkerRemoved(timestamp=at(10), reason="done", **of_x),
        WorkerReady(timestamp=at(0), **of_y),
        WorkerRemoved(timestamp=at(10), reason="done", **of_y),
    ]
    finding = one(tmp_path, "program_alone", [*events, span("fit", 2, 6, "s1")])
    assert (finding.seconds, finding.evidence["spans_s"]) == (6.0, {"fit": 6.0})


@pytest.mark.parametrize(
    ("spans", "told"),
    [
        (
            [span("main", 0, 10, "s1")],
            "in main (6.0s); try spans inside of main, to see what the program did there.",
        ),
        ([span("fit", 2, 6, "s1")], "in fit (6.0s); try making fit shorter."),
        (
            [span(" ", 2, 6, "s1")],
            "in a span without a name (6.0s); try making a span without a name shorter.",
        ),
        (
            [span("fit; try harder", 2, 6, "s1")],
            "in fit, try harder (6.0s); try making fit, try harder shorter.",
        ),
        ([span("x" * 99, 2, 6, "s1")], f"in {'x' * 59}… (6.0s); try making {'x' * 59}… shorter."),
        (
            [span(f"case {n}", 2 + n / 2, 0.5, f"s{n}") for n in range(12)],
            "in spans of 12 names, none of them long; try fewer or shorter spans.",
        ),
        (
            [span("blink", 3, 0.3, "s1")],
            "(6.0s between tasks); try spans in the program, to see what it did.",
        ),
        (
            [span(f"thread {n}", 3, 0.5, f"s{n}") for n in range(20)],
            "(6.0s between tasks); try spans in the program, to see what it did.",
        ),
        ([span("blip", 3, 0.7, "s1")], "in blip (700 ms); try spans in the program, to see what it did."),
    ],
    ids=[
        "around tasks",
        "between tasks",
        "no name",
        "a name like advice",
        "a long name",
        "many names",
        "next to nothing",
        "side by side",
        "a small part",
    ],
)
def test_what_to_try_fits_what_the_program_did(tmp_path: Path, spans: list[Event], told: str) -> None:
    assert waiting_for_program(tmp_path, *spans).sentence.endswith(told)


def test_start_up_and_first_tasks_that_warm_up_are_cold_starts(tmp_path: Path) -> None:
    who = {"worker": "w1", "host": "n1", "pid": 1}
    events: list[Event] = [WorkerLaunched(timestamp=at(0), **who), *up("w1", 2.0)]
    events += work("t0", "w1", 2, 5)
    events += [event for n in range(5) for event in work(f"t{n + 1}", "w1", 5 + n, 6 + n)]
    finding = one(tmp_path, "cold_starts", events)
    assert finding.seconds == 4.0  # two of start-up, and two beyond the median of one second
    assert finding.evidence == {
        "startup_s": 2.0,
        "workers": 1,
        "slow_first_tasks": 1,
        "beyond_usual_s": 2.0,
        "queued_s": 0.0,
    }


def test_tasks_that_wait_until_a_worker_is_launched_wait_for_its_start_and_not_for_the_program(
    tmp_path: Path,
) -> None:
    who = {"worker": "w1", "host": "n1", "pid": 1}
    events: list[Event] = [WorkerLaunched(timestamp=at(6), **who), *up("w1", 6.1)]
    for n in range(4):
        events += work(f"t{n}", "w1", 6.2 + 0.95 * n, 7.15 + 0.95 * n)
    finding = one(tmp_path, "cold_starts", events)
    assert (finding.evidence["queued_s"], finding.saves_s) == (6.0, pytest.approx(6.1))
    assert "tasks waited 6.0s for the first of them to be launched" in finding.sentence
    assert kinds(found(tmp_path / "again", events)) & {"program_alone", "before_tasks"} == set()


def test_attempts_that_failed_or_were_retried_are_failed_work(tmp_path: Path) -> None:
    events = [
        submitted("t1"),
        started("t1", 0.0),
        TaskRetried(timestamp=at(2), task="sim", task_id="t1", reason="OSError: gone"),
        TaskStarted(timestamp=at(2), task="sim", task_id="t1", attempt=2, worker="w1", queue_s=None),
        failed("t1", 5, 3.0, attempt=2),
        *work("t2", "w1", 5, 10),
        *up("w1"),
    ]
    finding = one(tmp_path, "failed_work", events)
    assert (finding.seconds, finding.share) == (5.0, 0.5)
    assert finding.evidence == {
        "attempts": 2,
        "retried": 1,
        "retry_wait_s": 0.0,
        "cause": "ValueError: bad seed",
    }
    assert "went to 2 attempts that did not complete (1 of them retried), because of ValueError" in (
        finding.sentence
    )


@pytest.mark.parametrize(("reason", "kinds_found"), [("503", {"failed_work"}), ("Dask: reschedule", set())])
def test_what_dask_put_back_by_itself_is_no_failed_work(
    tmp_path: Path, reason: str, kinds_found: set[str]
) -> None:
    again: dict[str, Any] = {"task": "sim", "task_id": "t1"}
    events = [
        submitted("t1"),
        started("t1", 0.0),
        TaskRetried(timestamp=at(4), reason=reason, **again),
        TaskStarted(timestamp=at(4), attempt=2, worker="w1", queue_s=0.0, **again),
        completed("t1", 10, 6.0, attempt=2),
        *up("w1"),
    ]
    assert kinds(found(tmp_path, events)) == kinds_found


def test_free_workers_while_tasks_are_queued_are_the_price_of_handing_over(tmp_path: Path) -> None:
    events = [event for n in range(10) for event in work(f"t{n}", "w1", n + 0.5, n + 1)]
    finding = one(tmp_path, "handover", [*events, *up("w1")])
    assert (finding.seconds, finding.share) == (5.0, 0.5)
    assert finding.evidence == {"handover_s": 0.5, "attempts": 10, "median_task_s": 0.5}


def test_a_worker_is_not_blamed_for_tasks_of_another_component(tmp_path: Path) -> None:
    who = {"worker": "w1", "host": "n1", "pid": 1, "component": "cpu"}
    waiting: list[Event] = [
        TaskSubmitted(timestamp=at(0), task="train", task_id="g1", args={}, component="gpu"),
        TaskQueued(timestamp=at(0), task="train", task_id="g1", component="gpu"),
    ]
    report = report_on(Run(make_run(tmp_path, [*waiting, WorkerReady(timestamp=at(0), **who)])))
    assert report.time is not None
    assert (report.time.whole.scheduler_s, report.time.whole.idle_s) == (0.0, 10.0)


def test_kills_and_memory_errors_are_memory_pressure(tmp_path: Path) -> None:
    events: list[Event] = [
        started("t1", 0.0),
        failed("t1", 4, 4.0, error_type="MemoryError", error_message=""),
        *up("w1"),
        ResourceSample(timestamp=at(0), scope="cgroup", host="n1", cpu_percent=None, oom_kills=0),
        ResourceSample(timestamp=at(5), scope="cgroup", host="n1", cpu_percent=None, oom_kills=2),
        ResourceSample(
            timestamp=at(5),
            scope="node",
            host="n1",
            cpu_percent=None,
            memory_used_bytes=97,
            memory_total_bytes=100,
        ),
    ]
    finding = one(tmp_path, "memory_pressure", events)
    assert (finding.seconds, finding.where) == (4.0, ["n1"])
    assert finding.evidence == {"oom_kills": 2, "tasks_out_of_memory": 1, "host_peak_share": 0.97}


def test_a_memory_limit_that_was_nearly_reached_is_told_with_the_fullest_host(tmp_path: Path) -> None:
    events = [*work("t1", "w1", 0, 10), *up("w1")]
    for moment, host, used in ((1, "n1", 98), (2, "n2", 96), (3, "n1", 50)):
        where: dict[str, Any] = {"timestamp": at(moment), "host": host, "cpu_percent": None}
        memory: dict[str, Any] = {"memory_used_bytes": used, "memory_total_bytes": 100}
        events += [ResourceSample(scope=scope, **where, **memory) for scope in ("node", "cgroup")]
    finding = one(tmp_path, "memory_pressure", events)
    assert (finding.seconds, finding.where) == (None, ["n1", "n2"])
    assert finding.evidence == {"limit_peak_share": 0.98, "host_peak_share": 0.98}


def test_room_for_a_key_error_called_zoom(tmp_path: Path) -> None:
    events: list[Event] = [failed("t1", 4, 4.0, error_type="KeyError", error_message="'zoom'"), *up("w1")]
    assert "memory_pressure" not in {finding.kind for finding in found(tmp_path, events)}


def test_transfer_is_told_by_spans_inside_tasks(tmp_path: Path) -> None:
    events: list[Event] = [
        *work("t1", "w1", 0, 10, span_id="s1"),
        SpanEvent(timestamp=at(1), name="data.transfer", span_id="x", parent_id="s1", duration_s=3.0),
        SpanEvent(timestamp=at(3), name="serialize", span_id="y", parent_id="s1", duration_s=2.0),
        SpanEvent(timestamp=at(8), name="transferring", span_id="z", parent_id="s1", duration_s=1.0),
        *up("w1"),
    ]
    finding = one(tmp_path, "serialization", events)
    assert (finding.seconds, finding.share) == (4.0, 0.4)


def test_large_results_have_an_unknown_cost(tmp_path: Path) -> None:
    events = [event for n in range(4) for event in work(f"t{n}", "w1", n, n + 1, result_bytes=1 << 28)]
    finding = one(tmp_path, "serialization", [*events, *up("w1")])
    assert (finding.seconds, finding.share) == (None, None)
    assert (finding.evidence["task"], finding.evidence["result_bytes"]) == ("sim", 1 << 30)


def handed_over(call_bytes: int, serialize_s: float) -> list[Event]:
    """Eight tasks of 0.2 s, each of which waits for a free worker for 0.8 s."""
    return [
        *up("w1"),
        *(
            event
            for n in range(8)
            for event in work(f"t{n}", "w1", n + 0.8, n + 1.0, call_bytes=call_bytes, serialize_s=serialize_s)
        ),
    ]


def test_dispatch_latency_of_large_arguments_is_moving_data(tmp_path: Path) -> None:
    finding = one(tmp_path / "large", "serialization", handed_over(64_000_000, 0.1))
    assert finding.seconds == pytest.approx(8 * 0.8)  # in which the calls are read
    assert "because each sim moved 61.0 MiB of arguments; try passing less" in finding.sentence
    assert "handover" in kinds(found(tmp_path / "small", handed_over(2_000, 0.0001)))
    assert "handover" not in kinds(found(tmp_path / "again", handed_over(64_000_000, 0.1)))


@pytest.mark.parametrize(
    ("more", "kind"), [({}, "handover"), ({"session_serialize_s": 0.0}, "serialization")]
)
def test_results_that_stay_on_workers_are_not_moved_while_all_of_them_wait(
    tmp_path: Path, more: dict[str, Any], kind: str
) -> None:
    """Results of a watched client's tasks stay where they are; those of a session come to the program."""
    events = [event for on in range(20) for event in up(f"w{on}")]
    for on in range(20):
        for n in range(8):
            facts = {"result_bytes": 10_000_000, **more}
            events += work(f"t{8 * on + n}", f"w{on}", n + 0.8, n + 1.0, **facts)
    assert kinds(found(tmp_path, events)) & {"handover", "serialization"} == {kind}


def lookup(result: Any, key: str, **more: Any) -> Event:
    return CacheLookup(timestamp=at(1), task="solve", result=result, key=key, **more)


def test_misses_on_what_had_been_computed_cost_what_hits_save(tmp_path: Path) -> None:
    events = [
        *work("t1", "w1", 0, 10),
        *up("w1"),
        lookup("hit", "a", saved_s=1.0),
        lookup("hit", "b", saved_s=3.0),
        lookup("miss", "c", reason="code changed"),
        lookup("miss", "d", reason="never seen"),
        lookup("miss", "d", reason="never seen"),
        lookup("miss", "e", reason="arguments changed"),
    ]
    finding = one(tmp_path, "cache_misses", events)
    assert (finding.seconds, finding.share) == (
        4.0,
        0.4,
    )  # one for the code, one asked for twice, at two seconds
    assert finding.evidence == {
        "function": "solve",
        "needless_misses": 2,
        "asked_again": 1,
        "misses": 4,
        "each_s": 2.0,
        "reason": "code changed",
    }


def test_needless_misses_cost_what_computing_took(tmp_path: Path) -> None:
    events = [*work("t1", "w1", 0, 10), *up("w1"), lookup("miss", "k", reason="never seen", computed_s=5.0)]
    events += [lookup("miss", f"k{n}", reason="expired", computed_s=n / 10) for n in range(5, 10)]
    finding = one(tmp_path, "cache_misses", events)
    assert (finding.seconds, finding.evidence["each_s"]) == (pytest.approx(3.5), pytest.approx(0.7))


def test_needless_misses_without_a_known_cost_cost_what_their_tasks_took(tmp_path: Path) -> None:
    """Not those of a task with several lookups, of which it is not known which took how long."""
    events = [*work("t1", "w1", 0, 3), *work("t2", "w1", 3, 8), *work("t3", "w1", 8, 10), *up("w1")]
    events += [lookup("miss", "a", reason="expired", task_id="t1"), lookup("miss", "b", reason="expired")]
    events += [lookup("miss", key, reason="never seen", task_id="t2") for key in "cd"]
    finding = one(tmp_path, "cache_misses", events)
    assert (finding.seconds, finding.evidence["each_s"], finding.where) == (6.0, 3.0, ["solve"])


def test_misses_on_what_is_new_are_work_and_no_finding(tmp_path: Path) -> None:
    events = [*work("t1", "w1", 0, 10), *up("w1"), lookup("hit", "a", saved_s=9.0)]
    events += [lookup("miss", f"k{n}", reason="never seen") for n in range(50)]
    assert found(tmp_path, events) == []


def sampled(cores: float, own: float, *, cpus: float = 4.0, wait_s: float | None = None) -> list[Event]:
    """A machine of so many cores of which so many were in use, `own` of them by the run."""
    return [
        event
        for n in (0, 5, 9)
        for event in (
            ResourceSample(
                timestamp=at(n),
                scope="node",
                host="n1",
                cpu_percent=100 * cores / cpus if n else None,
                interval_s=5.0,
                cpus=cpus,
            ),
            ResourceSample(
                timestamp=at(n),
                scope="worker",
                host="n1",
                pid=1,
                cpu_percent=None,
                cpu_cores=own if n else None,
                interval_s=5.0,
                interpreter_wait_s=wait_s,
            ),
        )
    ]


def cpu_tasks(workers: int, on_cpu: float, waited: float, **more: Any) -> list[Event]:
    """A task of 8 s on each worker, on a CPU for so long, and waiting for one for so long."""
    events = [event for n in range(workers) for event in up(f"w{n}")]
    for n in range(workers):
        events += work(f"t{n}", f"w{n}", 0, 8, cpu_s=on_cpu, thread_cpu_s=on_cpu, cpu_wait_s=waited, **more)
    return events


def kinds(findings: Iterable[Finding]) -> set[str]:
    return {finding.kind for finding in findings}


CPU_KINDS = {"oversubscription", "busy_machine", "interpreter_lock"}


def test_more_workers_than_cores_that_wait_for_one_are_oversubscription(tmp_path: Path) -> None:
    events = [*cpu_tasks(8, 2.0, 6.0, cpu_scope="process"), *sampled(2.0, 2.0, cpus=2.0)]
    finding = one(tmp_path, "oversubscription", events)
    assert (finding.seconds, finding.evidence["slowdown"]) == (48.0, 4.0)
    assert "because 8 workers shared 2 cores; try 2 workers" in finding.sentence


def test_tasks_that_wait_for_a_cpu_that_others_use_are_on_a_busy_machine(tmp_path: Path) -> None:
    events = [*cpu_tasks(2, 2.0, 6.0, cpu_scope="process"), *sampled(2.0, 0.5, cpus=2.0)]
    finding = one(tmp_path, "busy_machine", events)
    assert finding.seconds == 12.0
    assert "they used 1.5 of 2 cores, this run 0.5; try again when it is idle" in finding.sentence


@pytest.mark.parametrize(("pids", "kind"), [((99, 1), "busy_machine"), ((98, 99), "cpu_wait")])
def test_what_workers_outside_of_the_programs_processes_use_is_the_runs(
    tmp_path: Path, pids: tuple[int, int], kind: str
) -> None:
    """Process 1 is a worker. Of others it is not known whether one of them holds the other."""
    samples = [*sampled(2.0, 0.1, cpus=2.0), *sampled(2.0, 0.4, cpus=2.0)]
    for n, event in enumerate(samples):
        if isinstance(event, ResourceSample) and event.scope == "worker":
            event.pid = pids[n // 6]
    events = [*cpu_tasks(2, 2.0, 6.0, cpu_scope="process"), *samples]
    finding = one(tmp_path, kind, events)
    assert ("they used 1.5 of 2 cores, this run 0.5;" in finding.sentence) == (kind == "busy_machine")


@pytest.mark.parametrize(("others", "kind"), [(0.4, "busy_machine"), (0.0, "cpu_wait")])
def test_no_more_workers_than_cores_are_no_oversubscription(tmp_path: Path, others: float, kind: str) -> None:
    events = [*cpu_tasks(2, 6.4, 1.6, cpu_scope="process"), *sampled(1.6 + others, 1.6, cpus=2.0)]
    assert kinds(found(tmp_path, events)) & {*CPU_KINDS, "cpu_wait"} == {kind}


def test_programs_on_cores_that_the_run_may_not_use_are_not_to_blame(tmp_path: Path) -> None:
    """Two workers and a busy program on two cores of a large machine, all of which others use."""
    events = [*cpu_tasks(2, 5.4, 2.6, cpu_scope="process"), *sampled(64.0, 2.0, cpus=64.0)]
    for event in events:
        if isinstance(event, ResourceSample) and event.scope == "worker":
            event.cpus = 2.0
    assert kinds(found(tmp_path, events)) & {*CPU_KINDS, "cpu_wait"} == {"cpu_wait"}


@pytest.mark.parametrize("scope", ["thread", "process"])
def test_tasks_that_sleep_wait_for_no_cpu_however_busy_the_machine_is(tmp_path: Path, scope: str) -> None:
    events = [*cpu_tasks(4, 0.01, 0.02, cpu_scope=scope), *sampled(4.0, 0.1, wait_s=0.0001)]
    assert not kinds(found(tmp_path, events)) & CPU_KINDS


def test_threads_that_wait_for_the_interpreter_are_held_up_by_its_lock(tmp_path: Path) -> None:
    events = [*cpu_tasks(4, 2.0, 0.0, cpu_scope="thread"), *sampled(1.1, 1.0, wait_s=0.015)]
    finding = one(tmp_path, "interpreter_lock", events)
    assert finding.seconds == 24.0
    assert "4.0 concurrent tasks used 1.0 of 4 cores" in finding.sentence
    assert "try processes in place of threads" in finding.sentence


def test_each_of_two_processes_with_threads_has_an_interpreter_lock_of_its_own(tmp_path: Path) -> None:
    tasks, samples = cpu_tasks(4, 4.0, 0.0, cpu_scope="thread"), sampled(2.0, 1.0, wait_s=0.015)
    for event in tasks:
        if isinstance(event, WorkerReady | WorkerRemoved) and event.worker in {"w2", "w3"}:
            event.pid = 2
    others = [replace(event, pid=2) for event in samples if event.scope == "worker"]
    finding = one(tmp_path, "interpreter_lock", [*tasks, *samples, *others])
    assert (finding.seconds, finding.saves_s, finding.certainty) == (16.0, 4.0, "measured")
    assert "2.0 concurrent tasks used 1.0 of 4 cores" in finding.sentence


@pytest.mark.parametrize(("on_cpu", "wait_s"), [(2.0, 0.0001), (7.5, 0.015), (0.1, 0.015)])
def test_threads_that_wait_for_other_things_or_compute_outside_of_it_are_not(
    tmp_path: Path, on_cpu: float, wait_s: float
) -> None:
    events = [*cpu_tasks(4, on_cpu, 0.0, cpu_scope="thread"), *sampled(3.0, 3.0, wait_s=wait_s)]
    assert not kinds(found(tmp_path, events)) & CPU_KINDS


def test_a_chain_of_tasks_is_told_from_tasks_that_run_beside_each_other(tmp_path: Path) -> None:
    def runs(last: Iterable[str]) -> list[Event]:
        events = [event for n in range(4) for event in up(f"w{n}")]
        for n, needed in enumerate(last):
            task_id, when = f"t{n}", {"t": n * 1.0} if needed else {"t": 0.0}
            events.append(
                TaskSubmitted(
                    timestamp=at(0),
                    task="sim",
                    task_id=task_id,
                    args={},
                    depends_on=[needed] if needed else [],
                )
            )
            events.append(completed(task_id, when["t"] + 1.0, 1.0, f"w{n % 4}", queue_s=when["t"]))
        return events

    chain = one(tmp_path / "chain", "dependency_chain", runs(["", *(f"t{n}" for n in range(8))]))
    assert (chain.evidence["tasks"], chain.evidence["chain_s"], chain.evidence["running"]) == (8, 8.0, 1.0)
    assert "dependency_chain" not in kinds(found(tmp_path / "beside", runs([""] * 8)))


def test_chains_that_wait_for_their_one_worker_are_no_reason_to_wait(tmp_path: Path) -> None:
    events: list[Event] = up("w1")
    for chain in range(4):
        for step in range(4):
            when, needs = chain * 2.0 + step * 0.5, [f"t{chain}-{step - 1}"] if step else []
            task_id = f"t{chain}-{step}"
            events.append(
                TaskSubmitted(timestamp=at(0), task="sim", task_id=task_id, args={}, depends_on=needs)
            )
            events.append(completed(task_id, when + 0.5, 0.5, "w1", queue_s=None if step else when))
    assert "dependency_chain" not in kinds(found(tmp_path, events))


def test_larger_tasks_on_workers_of_later_are_no_slow_workers(tmp_path: Path) -> None:
    events: list[Event] = [*up("w1", 0, 3), *up("w2", 3, 10)]
    for n in range(6):
        events += [*work(f"t{n}", "w1", n * 0.4, n * 0.4 + 0.3), *work(f"t{n + 10}", "w2", 3 + n, 3.9 + n)]
    assert "slow_workers" not in kinds(found(tmp_path, events))


def test_tasks_that_take_no_time_elsewhere_make_no_worker_slow(tmp_path: Path) -> None:
    events: list[Event] = [*up("w1"), *up("w2")]
    for n in range(6):
        events += [*work(f"t{n}", "w1", n, n), *work(f"t{n + 10}", "w2", n, n + 0.9)]
    assert "slow_workers" not in kinds(found(tmp_path, events))


def test_what_small_calls_import_is_start_up_and_no_latency(tmp_path: Path) -> None:
    events = handed_over(700, 0.8)
    assert "handover" not in kinds(found(tmp_path / "found", events))
    finding = one(tmp_path / "one", "cold_starts", events)
    assert "importing what tasks need took 6.4s" in finding.sentence


def test_a_machine_on_which_the_tasks_did_not_run_is_not_blamed(tmp_path: Path) -> None:
    samples = [replace(sample, host="driver") for sample in sampled(2.0, 0.1, cpus=2.0)]
    events = [*cpu_tasks(2, 2.0, 6.0, cpu_scope="process"), *samples]
    assert kinds(found(tmp_path, events)) & {*CPU_KINDS, "cpu_wait"} == {"cpu_wait"}


def test_workers_that_are_slower_than_the_others_are_named(tmp_path: Path) -> None:
    events = [event for n in range(4) for event in up(f"w{n}")]
    for number in range(40):
        worker, turn = number % 4, number // 4
        took = 0.9 if worker == 3 else 0.3
        events += work(f"t{number}", f"w{worker}", turn * 0.95, turn * 0.95 + took)
    finding = one(tmp_path, "slow_workers", events)
    assert finding.where == ["w3"]
    assert "sim took 3.0 times as long on w3 as on the others (300 ms)" in finding.sentence


def test_every_other_worker_may_be_slow(tmp_path: Path) -> None:
    events = [event for n in range(4) for event in up(f"w{n}")]
    for worker in range(4):
        took = 0.9 if worker % 2 else 0.15
        for turn in range(int(9.9 // took)):
            events += work(f"t{100 * worker + turn}", f"w{worker}", turn * took, (turn + 1) * took)
    finding = one(tmp_path, "slow_workers", events)
    assert finding.where == ["w1", "w3"]
    assert "sim took 6.0 times as long on w1, w3 as on the others (150 ms)" in finding.sentence


def test_chance_makes_no_worker_slow(tmp_path: Path) -> None:
    dice, events = Random(7), [event for n in range(8) for event in up(f"w{n}")]
    for number in range(80):
        worker, turn = number % 8, number // 8
        events += work(f"t{number}", f"w{worker}", turn, turn + dice.uniform(0.1, 0.95))
    assert "slow_workers" not in kinds(found(tmp_path, events))


@pytest.mark.parametrize(("each", "grows"), [(40 << 20, True), (0, False), (1 << 20, False)])
def test_memory_that_is_left_from_task_to_task_grows(tmp_path: Path, each: int, grows: bool) -> None:
    events = up("w1")
    for n in range(10):
        events += work(f"t{n}", "w1", n, n + 0.9, rss_before_bytes=(50 << 20) + n * each)
    findings = {finding.kind: finding for finding in found(tmp_path, events)}
    assert ("memory_growth" in findings) is grows
    if grows:
        assert (
            "by 40.0 MiB on 1 worker: w1 went from 90.0 MiB to 410.0 MiB"
            in findings["memory_growth"].sentence
        )


def test_tasks_of_growing_size_leave_nothing_behind(tmp_path: Path) -> None:
    events = up("w1")
    for n in range(10):
        peak = {"peak_rss_bytes": (50 + 40 * n) << 20, "rss_scope": "process"}
        events += work(f"t{n}", "w1", n, n + 0.9, rss_before_bytes=50 << 20, **peak)
    assert "memory_growth" not in kinds(found(tmp_path, events))


def losses(values: Iterable[float | None]) -> list[Event]:
    return [
        Metric(
            timestamp=at(n / 10), name="loss", value=value, step=n, nonfinite="nan" if value is None else None
        )
        for n, value in enumerate(values)
    ]


def test_a_metric_that_becomes_nan_and_stays_it_diverged(tmp_path: Path) -> None:
    finding = one(tmp_path, "not_finite", losses([0.5] * 20 + [None] * 30))
    assert finding.sentence.startswith("loss has been NaN from step 20 on, because the computation diverged")


def test_one_trial_of_many_that_diverged_is_not_the_run(tmp_path: Path) -> None:
    assert found(tmp_path, losses([0.5] * 90 + [None] * 8)) == []


def test_a_metric_that_is_a_number_again_did_not(tmp_path: Path) -> None:
    assert found(tmp_path, losses([0.5, None, None, None, 0.4])) == []


def hung(tmp_path: Path, elapsed: float, **facts: Any) -> list[Finding]:
    events = [event for n in range(5) for event in work(f"t{n}", "w1", n * 0.1, n * 0.1 + 0.1)]
    events += [submitted("t9", 0.5, n=9), started("t9", 0.5, "w1", queue_s=0.0)]
    ends = {"end_time": at(0.5 + elapsed), "duration_s": 0.5 + elapsed}
    return found(tmp_path, events, **ends, **facts)


def test_a_task_in_flight_far_beyond_its_kind_may_be_stuck(tmp_path: Path) -> None:
    [finding] = [one for one in hung(tmp_path, 60.0) if one.kind == "stuck_tasks"]
    assert (finding.seconds, finding.where) == (60.0, ["sim(n=9)"])
    assert "because sim(n=9) had been running on w1 for 1m 00s, 600 times the median;" in finding.sentence


def test_a_task_in_flight_as_long_as_its_kind_is_not_stuck(tmp_path: Path) -> None:
    assert [one for one in hung(tmp_path, 0.2) if one.kind == "stuck_tasks"] == []


def test_the_costliest_stands_first_and_what_cannot_be_priced_before_it(tmp_path: Path) -> None:
    events = [failed("t9", 9, 2.0), *up("w1")]
    for n in range(7):
        events += work(f"t{n}", "w1", n, n + 0.8, rss_before_bytes=(50 + 40 * n) << 20)
    costs = [finding.seconds for finding in found(tmp_path, events)]
    assert costs[0] is None
    assert costs[1:] == sorted(costs[1:], reverse=True)
    assert len(costs) > 2


def crowded(**more: Any) -> list[Event]:
    """Eight workers on two cores with tasks of 8 s, of which 1.6 s are on a CPU and 1.2 s waiting for one."""
    return [*cpu_tasks(8, 1.6, 1.2, cpu_scope="process", **more), *sampled(2.0, 1.9, cpus=2.0)]


@pytest.mark.parametrize("more", [{}, {"io_wait_s": 5.2}])
def test_fewer_workers_are_not_advised_for_tasks_that_mostly_wait_for_something_else(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    finding = one(tmp_path, "oversubscription", crowded(**more))
    assert finding.sentence.endswith("because 8 workers shared 2 cores; try more cores.")


def quota(cores: float, **more: list[float]) -> list[Event]:
    """Samples of a control group with a CPU quota, at 0, 5 and 9 s."""
    return [
        ResourceSample(
            timestamp=at(moment),
            scope="cgroup",
            host="n1",
            cpu_percent=None,
            cpus=cores,
            interval_s=5.0,
            **{name: values[n] for name, values in more.items()},
        )
        for n, moment in enumerate((0, 5, 9))
    ]


def test_as_many_workers_are_advised_as_the_quota_has_cores(tmp_path: Path) -> None:
    events = [*cpu_tasks(8, 2.0, 6.0, cpu_scope="process"), *sampled(3.0, 3.0, cpus=64.0), *quota(3.0)]
    finding = one(tmp_path, "oversubscription", events)
    assert "because 8 workers shared 3 cores; try 3 workers" in finding.sentence


def test_processes_are_not_advised_where_there_is_one_core_to_use(tmp_path: Path) -> None:
    events = [*cpu_tasks(4, 2.0, 0.0, cpu_scope="thread"), *sampled(1.1, 1.0, wait_s=0.015)]
    assert "interpreter_lock" not in kinds(found(tmp_path, [*events, *quota(1.0)]))


def test_threads_that_sleep_are_not_held_up_by_the_interpreters_lock_meanwhile(tmp_path: Path) -> None:
    waits = {"sleep_s": 3.0, "io_wait_s": 0.5, "lock_wait_s": 2.5}
    events = [*cpu_tasks(4, 2.0, 0.0, cpu_scope="thread", **waits), *sampled(1.1, 1.0, wait_s=0.015)]
    finding = one(tmp_path, "interpreter_lock", events)
    assert (finding.seconds, finding.saves_s) == (10.0, 2.5)


@pytest.mark.parametrize(("percent", "share"), [(None, 1.0), (40.0, 0.4)])
def test_throttled_time_of_more_cpus_than_workers_is_at_most_all_of_the_run(
    tmp_path: Path, percent: float | None, share: float
) -> None:
    more: dict[str, Any] = {} if percent is None else {"throttled_percent": [None, percent, percent]}
    events = [*up("w1"), *work("t1", "w1", 0, 10), *quota(2.0, throttled_s=[0.0, 30.0, 60.0], **more)]
    finding = one(tmp_path, "throttling", events)
    assert (finding.seconds, finding.limits) == (10 * share, pytest.approx(share))
    assert finding.evidence["throttled_s"] == 60.0


def retried(delay: float) -> list[Event]:
    """A task that failed at 6 s, and began again after that delay."""
    return [
        submitted("t9"),
        started("t9", 5.9),
        TaskRetried(timestamp=at(6), task="sim", task_id="t9", reason="503", delay_s=delay),
        TaskStarted(timestamp=at(6 + delay), task="sim", task_id="t9", attempt=2, worker="w1", queue_s=0.0),
        completed("t9", 6.1 + delay, 0.1, attempt=2, queue_s=0.0),
    ]


def test_ending_dispatch_latency_does_not_end_the_delay_of_a_retry(tmp_path: Path) -> None:
    events = [event for n in range(50) for event in work(f"t{n + 10}", "w1", n * 0.1 + 0.02, n * 0.1 + 0.1)]
    finding = one(tmp_path, "handover", [*events, *retried(3.0), *up("w1")])
    assert finding.saves_s is not None
    assert finding.saves_s <= finding.seconds == pytest.approx(1.9, abs=0.01)


def test_delays_before_retries_are_failed_work_and_not_the_programs_time(tmp_path: Path) -> None:
    events = [*up("w1"), *up("w2"), *work("t1", "w1", 0, 1), *work("t2", "w2", 0, 1)]
    for n, worker in ((3, "w1"), (4, "w2")):
        of: dict[str, Any] = {"task": "sim", "task_id": f"t{n}"}
        again = {"attempt": 2, "queue_s": 0.0}
        events += [
            submitted(f"t{n}"),
            started(f"t{n}", 1, worker, queue_s=1.0),
            TaskRetried(timestamp=at(1.01), reason="503", delay_s=6.0, **of),
            TaskStarted(timestamp=at(7), worker=worker, **of, **again),
            completed(f"t{n}", 10, 3.0, worker, **again),
        ]
    findings = found(tmp_path, events)
    assert kinds(findings) == {"failed_work"}
    [finding] = findings
    assert finding.seconds == pytest.approx(2 * 6.0)
    assert finding.evidence["retry_wait_s"] == pytest.approx(2 * 5.99)
    assert finding.saves_s == pytest.approx(6.0)
    assert "(2 of them retried) and to the delays before the next ones" in finding.sentence
    assert "try shorter delays before retries, or `flightlog report --failures`" in finding.sentence


def test_workers_that_never_became_ready_are_no_start_up(tmp_path: Path) -> None:
    events: list[Event] = []
    for n in range(2):
        who: dict[str, Any] = {"worker": f"w{n}", "host": "n1", "pid": n}
        events += [
            WorkerLaunched(timestamp=at(0), **who),
            WorkerLost(timestamp=at(9), reason="exit code 1", **who),
        ]
    lost = {"error_type": "WorkerLost", "error_message": "exit code 1"}
    events += [submitted("t1"), failed("t1", 9, None, None, **lost)]
    report = report_on(Run(make_run(tmp_path, events)), details=False)
    assert "cold_starts" not in kinds(report.findings)
    assert (report.verdict.kind, report.verdict.sentence) == (
        "unknown",
        "What limited this run is not known: no task of it completed.",
    )
