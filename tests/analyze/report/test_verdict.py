"""The first sentence of a report, on runs small enough to know what is true of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from builders.runs import at, make_run
from builders.task_events import completed, failed, span, started, submitted

from flightlog.analyze.findings import Finding
from flightlog.analyze.report.report import Report, report_on
from flightlog.events import (
    CacheLookup,
    Event,
    Failure,
    Metric,
    ResourceSample,
    TaskRetried,
    TaskSubmitted,
    WorkerLaunched,
    WorkerReady,
    WorkerRemoved,
)
from flightlog.store.run import Run


def report(tmp_path: Path, events: Iterable[Event], lasts: float = 10.0, **facts: Any) -> Report:
    path = make_run(tmp_path, events, end_time=at(lasts), duration_s=lasts, **facts)
    return report_on(Run(path), details=False)


def worker(name: str, *, launched: float = 0.0, ready: float = 0.0, until: float = 10.0) -> list[Event]:
    who: dict[str, Any] = {"worker": name, "host": "n1", "pid": 1}
    return [
        WorkerLaunched(timestamp=at(launched), **who),
        WorkerReady(timestamp=at(ready), launch_s=ready - launched, **who),
        WorkerRemoved(timestamp=at(until), reason="done", **who),
    ]


def task(name: str, on: str, since: float, until: float, *needs: str, **more: Any) -> list[Event]:
    """A task of that name, which is its span's, too."""
    kind = more.pop("task", "sim")
    wanted = TaskSubmitted(
        timestamp=at(more.pop("when", 0.0)), task=kind, task_id=name, args={}, depends_on=list(needs)
    )
    return [
        wanted,
        started(name, since, on, task=kind, span_id=name),
        completed(name, until, until - since, on, task=kind, span_id=name, **more),
    ]


def of_kind(found: Report, kind: str) -> Finding:
    [finding] = [one for one in found.findings if one.kind == kind]
    return finding


def cores(used: float) -> list[Event]:
    """The program's CPU time, as it was sampled at the start and at the end."""
    return [
        ResourceSample(timestamp=at(n), scope="worker", host="n1", pid=1, cpu_percent=None, cpu_s=n * used)
        for n in (0, 10)
    ]


def epochs(inner: str, seconds: float) -> list[Event]:
    """Ten epochs of one second, each of them with a span of that name and a step."""
    events: list[Event] = []
    for n in range(10):
        events += [
            span("epoch", n, 1.0, f"e{n}"),
            span(inner, n, seconds, f"i{n}", f"e{n}"),
            span("train.step", n + seconds, 1 - seconds, f"s{n}", f"e{n}"),
        ]
    return events


def test_loading_inside_epochs_is_found_however_deep_it_is(tmp_path: Path) -> None:
    found = report(tmp_path, [*epochs("data.load", 0.8), *cores(0.2)])
    assert (found.verdict.kind, found.verdict.saves_s) == ("data_loading", pytest.approx(2.0))
    assert (found.verdict.share, found.verdict.certainty) == (pytest.approx(0.8), "measured")
    assert found.verdict.sentence == (
        "Limited most by loading data: 80% (8.0s) of the 10.0s was data.load inside epoch, 10 times, which "
        "mostly waited (0.2 cores were in use)."
    )


def test_a_span_of_any_name_that_waits_is_found(tmp_path: Path) -> None:
    found = report(tmp_path, [*epochs("barrier", 0.6), *cores(0.2)])
    assert found.verdict.kind == "waiting_span"
    assert "60% (6.0s) of the 10.0s was barrier inside epoch" in found.verdict.sentence


@pytest.mark.parametrize(("name", "used"), [("assemble", 1.0), ("simulate", 0.0)])
def test_a_span_that_computes_or_is_what_the_program_is_for_is_named_and_not_blamed(
    tmp_path: Path, name: str, used: float
) -> None:
    verdict = report(tmp_path, [*epochs(name, 0.6), *cores(used)]).verdict
    assert verdict.kind == "none"
    assert verdict.sentence.startswith(f"Nothing stands out: 60% (6.0s) of the 10.0s was {name} inside epoch")


def test_spans_inside_of_tasks_on_workers_are_followed(tmp_path: Path) -> None:
    events = [*worker("w1"), *worker("w2")]
    for n in range(20):
        since = n // 2
        events += task(f"t{n}", f"w{n % 2 + 1}", since, since + 1.0, cpu_s=0.2, thread_cpu_s=0.2)
        events += [
            span("epoch", since, 1.0, f"e{n}", f"t{n}"),
            span("fetch", since, 0.75, f"f{n}", f"e{n}"),
        ]
    found = report(tmp_path, events)
    assert found.critical_path is not None
    assert [(place.names, place.seconds) for place in found.critical_path.inside] == [
        (["sim"], 10.0),
        (["sim", "epoch"], 10.0),
        (["sim", "epoch", "fetch"], 7.5),
    ]
    verdict = found.verdict
    assert (verdict.kind, verdict.saves_s) == ("data_loading", pytest.approx(2.5))
    assert "75% (7.5s) of the 10.0s was fetch inside epoch inside sim, 10 times" in verdict.sentence


def test_steps_inside_of_a_script_are_counted_once_and_followed(tmp_path: Path) -> None:
    events = [*worker("script"), *worker("one", launched=1, ready=1, until=4)]
    events += worker("two", launched=4, ready=4, until=10)
    events += task("s", "script", 0, 10, task="make")
    for name, since, until in (("one", 1, 4), ("two", 4, 10)):
        events += task(name, name, since, until, task=name, when=since, parent_id="s")
    found = report(tmp_path, events)
    assert found.time is not None
    assert found.time.whole.total_s == 9.0  # and not 19 in 10 seconds
    assert found.critical_path is not None
    assert [(place.names, place.seconds) for place in found.critical_path.inside] == [
        (["make"], 10.0),
        (["make", "two"], 6.0),
        (["make", "one"], 3.0),
    ]


def test_what_a_repeated_attempt_needs_is_on_the_path(tmp_path: Path) -> None:
    """Dask reschedules tasks of a shuffle: the second attempt depends on what the first one did."""
    events = [
        *task("load", "w1", 0, 4, task="load"),
        submitted("join", 0.0, "join"),
        started("join", 0.5, "w2", task="join"),
        TaskRetried(timestamp=at(1), task="join", task_id="join", reason="rescheduled"),
        started("join", 4.0, "w2", task="join", attempt=2),
        completed("join", 10, 6.0, "w2", task="join", attempt=2),
    ]
    events[3] = TaskSubmitted(timestamp=at(0), task="join", task_id="join", args={}, depends_on=["load"])
    path = report(tmp_path, events).critical_path
    assert path is not None
    assert {(part.kind, part.name): part.seconds for part in path.parts} == {
        ("task", "join"): 6.0,
        ("task", "load"): 4.0,
    }


def test_the_worker_that_a_lost_task_waits_for_follows_the_attempt_that_was_lost(tmp_path: Path) -> None:
    """A nanny that ends workers for memory starts others: nothing of that is the program's own time."""
    again: dict[str, Any] = {"task": "sim", "task_id": "t"}
    events = [
        *worker("w1", until=4),
        *task("t", "w1", 0, 4)[:2],
        TaskRetried(timestamp=at(4), reason="its worker w1 was lost: killed", **again),
        *worker("w2", launched=5, ready=6),
        started("t", 6.5, "w2", attempt=2),
        completed("t", 10, 3.5, "w2", attempt=2),
    ]
    path = report(tmp_path, events).critical_path
    assert path is not None
    assert {(part.kind, part.name): part.seconds for part in path.parts} == {
        ("task", "sim"): 7.5,
        ("wait", "sim"): 0.5,
        ("startup", "worker start-up"): 2.0,
    }


def test_start_up_is_worth_what_a_run_without_it_would_save(tmp_path: Path) -> None:
    events = [*worker("w1", ready=4), *worker("w2", ready=4)]
    for n in range(12):
        events += task(f"t{n}", f"w{n % 2 + 1}", 4 + n // 2, 5 + n // 2)
    verdict = report(tmp_path, events).verdict
    assert (verdict.kind, verdict.saves_s) == ("cold_starts", 4.0)
    assert verdict.sentence == (
        "Limited most by worker start-up; without it the run would be about 4.0s (40%) shorter."
    )


@pytest.mark.parametrize(
    ("lengths", "kind"),
    [
        ([3.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], "cold_starts"),
        ([3.0, 2.5, 2.0, 0.5, 0.5, 0.5, 0.5, 0.5], "none"),
    ],
    ids=["warm-up", "longest first"],
)
def test_long_first_tasks_are_warm_up_unless_the_longest_come_first(
    tmp_path: Path, lengths: list[float], kind: str
) -> None:
    events = worker("w1")
    since = 0.0
    for n, length in enumerate(lengths):
        events += task(f"t{n}", "w1", since, since + length)
        since += length
    assert report(tmp_path, events).verdict.kind == kind


def test_a_chain_is_worth_what_running_side_by_side_would_save(tmp_path: Path) -> None:
    events = [event for n in range(4) for event in worker(f"w{n}")]
    for n in range(10):
        events += task(f"t{n}", f"w{n % 4}", n, n + 1.0, *([f"t{n - 1}"] if n else []))
    verdict = report(tmp_path, events).verdict
    assert (verdict.kind, verdict.saves_s) == ("dependency_chain", 7.0)  # ten seconds on four workers: three


def test_the_cause_of_failed_work_is_the_one_that_cost_most(tmp_path: Path) -> None:
    """Many tasks failed at once of a bad value, and one was lost with its host after 8 s."""
    events = [*worker("w1"), *worker("w2")]
    for n in range(10):
        events += [submitted(f"t{n}"), started(f"t{n}", n / 10, "w1"), failed(f"t{n}", n / 10 + 0.1, 0.1)]
        events.append(failure(f"t{n}", "ValueError", "bad 7"))
    events += [submitted("t99"), started("t99", 1.0, "w2")]
    events.append(failed("t99", 9.0, 8.0, "w2", error_type="WorkerLost", error_message="n2 is gone"))
    events.append(failure("t99", "WorkerLost", "n2 is gone"))
    finding = of_kind(report(tmp_path, events), "failed_work")
    assert finding.evidence["cause"] == "WorkerLost: n2 is gone"


@pytest.mark.parametrize("noted", [False, True])
def test_an_attempt_that_died_with_its_host_is_failed_work_of_that_cause_and_no_slow_task(
    tmp_path: Path, noted: bool
) -> None:
    """It was retried elsewhere, as Dask does, and has no end of its own; some tasks failed of a bad value."""
    events = [*worker("w1", until=40), *worker("w2", until=31)]
    for n in range(10):
        events += [submitted(f"t{n}"), started(f"t{n}", n, "w1"), completed(f"t{n}", n + 0.9, 0.9, "w1")]
    for n in range(10, 17):
        events += [submitted(f"t{n}"), started(f"t{n}", n, "w1"), failed(f"t{n}", n + 0.1, 0.1, "w1")]
        events.append(failure(f"t{n}", "ValueError", "bad 7"))
    why = "its worker w2 was lost: Dask: worker-remove-comm-fail"
    events += [submitted("t99"), started("t99", 1.0, "w2")]
    events.append(TaskRetried(timestamp=at(31.1), task="sim", task_id="t99", attempt=1, reason=why))
    events += [failure("t99", "WorkerLost", "Dask: worker-remove-comm-fail")] * noted
    events += [started("t99", 31.2, "w1", attempt=2), completed("t99", 32.1, 0.9, "w1", attempt=2)]
    found = report(tmp_path, events, 40.0)
    assert found.verdict.kind == "failed_work"
    assert why in found.verdict.sentence
    assert "bad 7" not in found.verdict.sentence
    assert "stragglers" not in {one.kind for one in found.findings}
    assert max(one.duration_s for one in found.tasks.slowest) == 0.9
    assert all("30" not in one.sentence for one in found.findings if one.kind != "failed_work")


def test_the_cause_of_attempts_that_a_session_retried_is_why_it_did(tmp_path: Path) -> None:
    """They have no end of their own, and so no error; the task completed in the end."""
    events = [*worker("w1"), submitted("t0")]
    for n in range(8):
        events.append(started("t0", n, "w1", attempt=n + 1))
        why = "OSError: no route" if n else "ValueError: bad 7"
        events.append(TaskRetried(timestamp=at(n + 0.9), task="sim", task_id="t0", attempt=n + 1, reason=why))
        events.append(failure("t0", *why.split(": ")))
    events += [started("t0", 9.0, "w1", attempt=9), completed("t0", 9.5, 0.5, "w1", attempt=9)]
    found = report(tmp_path, events)
    assert of_kind(found, "failed_work").evidence["cause"] == "OSError: no route"
    assert "8 attempts that did not complete (8 of them retried)" in of_kind(found, "failed_work").sentence
    assert found.verdict.sentence.startswith("Limited most by failed work (OSError: no route); without it")


def failure(task_id: str, kind: str, text: str) -> Event:
    return Failure(
        timestamp=at(9),
        scope="task",
        error_type=kind,
        message=text,
        traceback=None,
        fingerprint=kind,
        task="sim",
        task_id=task_id,
    )


def in_turn(workers: int, *, hold: float, own: bool, cpu_s: float = 0.01) -> list[Event]:
    """Tasks on several workers that begin at once; each holds a lock for so long, or one of its `own`."""
    events = [event for n in range(workers) for event in worker(f"w{n}")]
    free = 0.0
    at_worker = [0.0] * workers
    for n in range(20):
        on = at_worker.index(min(at_worker))
        since = at_worker[on]
        until = since + hold if own else max(since, free) + hold
        free = at_worker[on] = until
        events += task(f"t{n}", f"w{on}", since, until, cpu_s=cpu_s, thread_cpu_s=cpu_s, cpu_wait_s=0.0)
    return events


@pytest.mark.parametrize("cpu_s", [0.01, 0.5], ids=["waits while it holds it", "computes while it holds it"])
def test_tasks_that_take_turns_at_a_lock_are_found(tmp_path: Path, cpu_s: float) -> None:
    found = report(tmp_path, in_turn(4, hold=0.5, own=False, cpu_s=cpu_s))
    assert (found.verdict.kind, found.verdict.certainty) == ("taking_turns", "likely")
    assert found.verdict.sentence.startswith("Probably limited most by tasks that take turns")
    assert found.verdict.saves_s == pytest.approx(7.5)  # twenty half seconds on four workers


def test_tasks_that_compute_side_by_side_take_no_turns(tmp_path: Path) -> None:
    assert report(tmp_path, in_turn(4, hold=2.0, own=True, cpu_s=2.0)).verdict.kind == "none"


def test_one_that_has_nothing_to_do_does_not_tell_how_long_tasks_take_alone(tmp_path: Path) -> None:
    """Two workers, each of whose tasks of a second computes for half of it; they began at different times."""
    events = [*worker("w0"), *worker("w1")]
    used: dict[str, Any] = {"cpu_s": 0.5, "thread_cpu_s": 0.5, "cpu_wait_s": 0.0}
    for n in range(18):
        events += task(f"t{n}", f"w{n % 2}", n / 2, n / 2 + 1, **used)
    events += task("t18", "w0", 9.0, 9.01, **used | {"cpu_s": 0.01, "thread_cpu_s": 0.01})
    assert "taking_turns" not in {one.kind for one in report(tmp_path, events).findings}


def test_tasks_that_sleep_side_by_side_take_no_turns(tmp_path: Path) -> None:
    found = report(tmp_path, in_turn(4, hold=2.0, own=True))
    assert found.verdict.kind == "none"
    assert "waited for something unknown" in found.verdict.sentence


def test_tasks_of_workers_that_are_a_moment_apart_take_no_turns(tmp_path: Path) -> None:
    """Each second two of them end, a moment apart; the first of each worker had little to do."""
    events = [*worker("w1"), *worker("w2")]
    for n, name in enumerate(("w1", "w2")):
        since = 0.06 * n
        for turn, lasts in enumerate([0.06, *[1.0] * 9]):
            used = {"thread_cpu_s": 0.001, "cpu_wait_s": 0.0, "cpu_scope": "process"}
            events += task(f"t{2 * turn + n}", name, since, since + lasts, **used)
            since += lasts
    assert report(tmp_path, events).verdict.kind == "none"


def samples(scope: str, **series: list[Any]) -> list[Event]:
    """A sample per second of each of these figures."""
    number = len(next(iter(series.values())))
    return [
        ResourceSample(
            timestamp=at(n),
            scope=scope,
            host="n1",
            pid=1 if scope == "worker" else None,
            cpu_percent=None,
            interval_s=1.0,
            **{name: values[n] for name, values in series.items()},
        )
        for n in range(number)
    ]


def alone(seconds: float = 10.0) -> list[Event]:
    return [span("fit", 0, seconds, "s1")]


@pytest.mark.parametrize("command", [False, True], ids=["spans", "command"])
def test_a_program_without_tasks_that_waits_for_a_cpu_is_on_a_busy_machine(
    tmp_path: Path, command: bool
) -> None:
    events = task("t1", "n1:1", 0, 10, task="python") if command else alone()
    events += samples(
        "worker",
        cpu_s=[n * 0.5 for n in range(11)],
        cpu_cores=[0.5] * 11,
        cpu_wait_s=[n * 0.5 for n in range(11)],
    )
    for event in samples("node", cpus=[2.0] * 11):
        assert isinstance(event, ResourceSample)
        event.cpu_percent = 100.0
        events.append(event)
    verdict = report(tmp_path, events, provider="command" if command else None).verdict
    assert (verdict.kind, verdict.saves_s) == ("busy_machine", 5.0)
    assert verdict.sentence.startswith("Limited most by other programs on this machine; without it")


@pytest.mark.parametrize(
    ("others", "processes", "kind", "told"),
    [
        (0.0, 9, "oversubscription", "Limited most by CPU oversubscription, 75% of the wall time."),
        (0.0, 13, "oversubscription", "Limited most by CPU oversubscription, 75% of the wall time."),
        (
            1.5,
            3,
            "busy_machine",
            "Limited most by other programs on this machine; without it the run would be",
        ),
        (0.0, 3, "cpu_wait", "Limited most by too few cores, 75% of the wall time."),
    ],
)
def test_processes_that_a_program_without_tasks_started_wait_for_a_cpu(
    tmp_path: Path, others: float, processes: int, kind: str, told: str
) -> None:
    """Two processes and a helper fit two cores; eight do not. Where twelve are active as eight would be, they
    wait for something else, too: fewer of them would take longer.
    """
    own = 2.0 - others
    events = [
        *alone(),
        *samples(
            "worker",
            cpu_s=[n * own for n in range(11)],
            cpu_cores=[own] * 11,
            cpu_wait_s=[0.0] * 11,
            children_cpu_wait_s=[None, *(3 * n * own for n in range(1, 11))],
            processes=[processes] * 11,
        ),
    ]
    for event in samples("node", cpus=[2.0] * 11):
        assert isinstance(event, ResourceSample)
        event.cpu_percent = 100.0
        events.append(event)
    found = report(tmp_path, events)
    assert found.verdict.kind == kind
    assert found.verdict.sentence.startswith(told)
    [finding] = [one for one in found.findings if one.kind == kind]
    assert "went to processes that the program started waiting for a CPU" in finding.sentence
    if kind == "oversubscription":
        fewer = "2 processes: they finish as soon" if processes == 9 else "more cores."
        assert f"because 8 processes shared 2 cores; try {fewer}" in finding.sentence


def test_processes_that_wait_side_by_side_hold_a_program_up_by_what_one_of_them_waits(tmp_path: Path) -> None:
    """Three waited 0.8 s each of 10 s."""
    events = [
        *alone(),
        *samples(
            "worker",
            cpu_s=[0.33 * n for n in range(11)],
            cpu_cores=[0.33] * 11,
            cpu_wait_s=[0.0] * 11,
            children_cpu_wait_s=[None, *(0.24 * n for n in range(1, 11))],
            processes=[4] * 11,
        ),
    ]
    for event in samples("node", cpus=[2.0] * 11):
        assert isinstance(event, ResourceSample)
        event.cpu_percent = 70.0
        events.append(event)
    found = report(tmp_path, events)
    [finding] = [one for one in found.findings if one.kind == "busy_machine"]
    assert finding.saves_s == pytest.approx(0.8)
    assert found.verdict.kind == "none"


@pytest.mark.parametrize(
    ("kind", "values", "own"),
    [("io_wait", [n * 0.5 for n in range(11)], 200e6), (None, [n * 0.5 for n in range(11)], 1e6)],
)
def test_waiting_for_storage_is_the_runs_if_it_moved_what_was_moved(
    tmp_path: Path, kind: str | None, values: list[float], own: float
) -> None:
    events = alone() + samples("node", io_pressure_s=values, disk_write_bytes_per_s=[20e6] * 11)
    events += samples(
        "worker", cpu_s=[0.0] * 11, write_bytes=[int(own * n / 10) for n in range(11)], read_bytes=[0] * 11
    )
    found = {one.kind for one in report(tmp_path, events).findings}
    assert ("io_wait" in found) == (kind == "io_wait")


def test_memory_that_is_swapped_out_is_told_with_the_time_it_took(tmp_path: Path) -> None:
    events = alone() + samples(
        "node",
        swap_used_bytes=[int(n * 100e6) for n in range(11)],
        memory_pressure_s=[n * 0.4 for n in range(11)],
        memory_used_bytes=[int(8e9)] * 11,
    )
    events += samples("worker", rss_bytes=[int(5e9)] * 11)
    verdict = report(tmp_path, events).verdict
    assert (verdict.kind, verdict.share) == ("swapping", pytest.approx(0.4))


@pytest.mark.parametrize(
    ("sizes", "kind"),
    [
        ([100e6 + n * 50e6 for n in range(20)], "memory_growth"),
        ([100e6 + min(n, 3) * 200e6 for n in range(20)], "none"),
    ],
    ids=["all the time", "at the beginning"],
)
def test_a_program_whose_memory_grows_all_the_time_leaks(
    tmp_path: Path, sizes: list[float], kind: str
) -> None:
    events = alone(20.0) + samples("worker", rss_bytes=[int(size) for size in sizes])
    events += samples("node", memory_used_bytes=[int(2e9)], memory_total_bytes=[int(64e9)])
    assert report(tmp_path, events, 20.0).verdict.kind == kind


def test_a_loss_that_grows_to_the_end_diverges_and_one_that_falls_does_not(tmp_path: Path) -> None:
    for name, values in (
        ("up", [1.0] * 30 + [1.5**n for n in range(20)]),
        ("down", [1 / n for n in range(1, 50)]),
    ):
        events = [
            Metric(timestamp=at(n / 10), name="loss", value=value, step=n) for n, value in enumerate(values)
        ]
        verdict = report(tmp_path / name, [*alone(), *events]).verdict
        assert (verdict.kind == "diverging") == (name == "up")


def test_a_task_without_an_end_is_stuck_though_none_of_its_kind_is_known(tmp_path: Path) -> None:
    events = [*worker("w1", until=600), *worker("w2", until=600)]
    for n in range(8):
        events += task(f"t{n}", "w1", n * 0.2, n * 0.2 + 0.2)
    events += [submitted("h", 0.0, "hangs"), started("h", 0.0, "w2", task="hangs")]
    events += [
        ResourceSample(timestamp=at(n), scope="worker", host="n1", pid=1, cpu_percent=None, cpu_s=2 + n / 100)
        for n in (2, 590)
    ]
    found = report(tmp_path, events, 600.0, status="crashed")
    assert (found.verdict.kind, found.verdict.certainty) == ("hung_tasks", "likely")
    sentence = of_kind(found, "hung_tasks").sentence
    assert (
        "hangs has had no end for 10m 00s, nothing else ended in the last 9m 58s, and its worker" in sentence
    )


def test_memory_that_ran_short_because_it_grew_is_told_as_its_growth(tmp_path: Path) -> None:
    events = worker("w1")
    for n in range(10):
        events += task(f"t{n}", "w1", n, n + 1.0, rss_before_bytes=int(100e6 + n * 100e6))
    events += samples("cgroup", oom_kills=[0, 1])
    found = report(tmp_path, events)
    assert {"memory_pressure", "memory_growth"} <= {one.kind for one in found.findings}
    assert found.verdict.kind == "memory_growth"


def test_workers_whose_memory_grows_with_each_task_are_told_where_nothing_costs_time(tmp_path: Path) -> None:
    events = worker("w1")
    for n in range(10):
        events += task(f"t{n}", "w1", n, n + 1.0, rss_before_bytes=(50 + 40 * n) << 20)
    verdict = report(tmp_path, events).verdict
    assert verdict.kind == "memory_growth"
    assert "40.0 MiB" in verdict.sentence


def test_a_run_of_which_nothing_was_recorded_says_why_and_what_to_do(tmp_path: Path) -> None:
    """A pool of processes, joblib or `multiprocessing.Pool` inside of `flightlog.record`."""
    events = samples("worker", cpu_cores=[1.8] * 11, cpu_s=[n * 1.8 for n in range(11)])
    verdict = report(tmp_path, events).verdict
    assert (verdict.kind, verdict.sentence) == (
        "nothing_recorded",
        "What limited this run is not known: no task and no span of it was recorded; pools and threads that "
        "the program starts by itself are not seen. It used 1.8 cores on average.",
    )
    assert verdict.advice is not None
    assert verdict.advice.startswith("`with flightlog.span(...)` around the steps of the program")


def test_a_loss_of_a_few_percent_is_not_what_limited_the_run(tmp_path: Path) -> None:
    """Workers that were there after 0.4 of 10 s: 4 % of the time, and a finding all the same."""
    events = [*worker("w1", ready=0.4), *worker("w2", ready=0.4)]
    for n in range(12):
        events += task(f"t{n}", f"w{n % 2 + 1}", 0.4 + n // 2 * 1.6, 0.4 + (n // 2 + 1) * 1.6)
    found = report(tmp_path, events)
    assert of_kind(found, "cold_starts").share == pytest.approx(0.04)
    assert (found.verdict.kind, found.verdict.advice) == ("none", None)


def test_a_cache_that_takes_longer_than_it_saves_is_told(tmp_path: Path) -> None:
    lookup: dict[str, Any] = {"task": "square", "result": "hit", "duration_s": 0.5, "saved_s": 0.01}
    events = [*worker("w1"), *task("t0", "w1", 0, 10)]
    events += [CacheLookup(timestamp=at(n), key=str(n), **lookup) for n in range(8)]
    finding = of_kind(report(tmp_path, events), "costly_cache")
    assert finding.seconds == pytest.approx(3.92)


def test_a_program_that_waits_for_each_result_keeps_workers_idle(tmp_path: Path) -> None:
    events = [event for n in range(4) for event in worker(f"w{n}")]
    for n in range(10):
        events += task(f"t{n}", f"w{n % 4}", n, n + 1.0, when=float(n))
    verdict = report(tmp_path, events).verdict
    assert (verdict.kind, verdict.saves_s) == ("one_at_a_time", 7.0)


def test_a_span_that_waits_for_a_cpu_is_held_up_by_others_and_waits_for_nothing_itself(
    tmp_path: Path,
) -> None:
    waited = [n * 0.7 for n in range(11)]
    events = epochs("assemble", 0.8) + samples(
        "worker", cpu_s=[n * 0.3 for n in range(11)], cpu_wait_s=waited
    )
    assert {one.kind for one in report(tmp_path, events).findings} == {"cpu_wait"}


def test_a_program_that_does_something_else_before_its_first_task_is_told(tmp_path: Path) -> None:
    events = [span("prepare", 0, 6, "p"), *worker("w1", launched=6, ready=6)]
    for n in range(4):
        events += task(f"t{n}", "w1", 6 + n, 7 + n, when=6.0)
    verdict = report(tmp_path, events).verdict
    assert (verdict.kind, verdict.saves_s) == ("before_tasks", 6.0)


def test_several_workers_that_start_for_the_first_tasks_do_not_hide_what_was_before(tmp_path: Path) -> None:
    events = [*worker("w1", launched=6, ready=6), *worker("w2", launched=6.1, ready=6.2)]
    events += [*task("t0", "w1", 6, 9, when=6.0), *task("t1", "w2", 6.2, 10, when=6.0)]
    verdict = report(tmp_path, events).verdict
    assert (verdict.kind, verdict.saves_s) == ("before_tasks", 6.0)


def test_an_engine_that_starts_and_ends_slowly_is_not_the_programs_own_time(tmp_path: Path) -> None:
    """A cluster whose workers are there after three seconds, and which takes a second to close."""
    events = [*worker("w1", launched=3, ready=3, until=9), *worker("w2", launched=3, ready=3, until=9)]
    for n in range(12):
        events += task(f"t{n}", f"w{n % 2 + 1}", 3.1 + n // 2 * 0.98, 3.1 + (n // 2 + 1) * 0.98, when=3.1)
    assert report(tmp_path, events).verdict.kind == "none"


@pytest.mark.parametrize(
    ("engine", "kind", "saves_s"), [((3.0, 1.5), "none", None), ((0.5, 0.2), "program_alone", 3.9)]
)
def test_what_a_session_took_to_start_and_end_its_engine_is_not_the_programs_own_time(
    tmp_path: Path, engine: tuple[float, float], kind: str, saves_s: float | None
) -> None:
    """An engine that launches workers for the first task, and whose workers go long after the last one."""
    events = [*worker("w1", launched=3, ready=3), *worker("w2", launched=3, ready=3)]
    for n in range(12):
        events += task(f"t{n}", f"w{n % 2 + 1}", 3 + n // 2 * 0.9, 3 + (n // 2 + 1) * 0.9, when=3.0)
    start, end = engine
    verdict = report(tmp_path, events, engine_start_s=start, engine_end_s=end).verdict
    assert (verdict.kind, verdict.saves_s) == (kind, None if saves_s is None else pytest.approx(saves_s))


def test_tasks_that_need_one_that_failed_are_told_after_it(tmp_path: Path) -> None:
    events = [*worker("w1"), submitted("t0"), started("t0", 0, "w1"), failed("t0", 1, 1.0)]
    for n in range(1, 6):
        lost = {"error_type": "DependencyFailed", "error_message": "t0, which it depends on, failed"}
        events += [submitted(f"t{n}"), failed(f"t{n}", 1, None, None, **lost)]
    events.append(failure("t0", "ValueError", "bad seed"))
    found = report(tmp_path, events)
    assert found.verdict.failed == (
        "1 of 6 tasks failed, because of ValueError: bad seed, and 5 tasks that depend on them with it."
    )


def test_of_two_causes_the_one_is_named_that_others_depend_on(tmp_path: Path) -> None:
    bad = {"error_type": "OSError", "error_message": "no file"}
    events = [*worker("w1"), *(submitted(f"t{n}") for n in range(4))]
    events += [
        started("t0", 0, "w1"),
        failed("t0", 1, 1.0),
        started("t1", 1, "w1"),
        failed("t1", 2, 1.0, **bad),
    ]
    said = "sim (t1), which sim depends on, failed: OSError: no file"
    lost = {"error_type": "DependencyFailed", "error_message": said}
    events += [failed(f"t{n}", 2, None, None, **lost) for n in (2, 3)]
    found = report(tmp_path, events)
    assert found.verdict.failed == (
        "2 of 4 tasks failed, because of OSError: no file and others, and 2 tasks that depend on them with "
        "it."
    )


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("OSError: no file", "OSError: no file."),
        (f"OSError: {'no file ' * 20}", f"OSError: {('no file ' * 20)[:110]}…"),
        (
            "OutOfMemoryError: out of memory. Tried to allocate 11.00 GiB, of which the device has 7 GiB. "
            "Including non-PyTorch memory, this process has 132 GiB in use.",
            "OutOfMemoryError: out of memory. Tried to allocate 11.00 GiB, of which the device has 7 GiB.",
        ),
    ],
)
def test_a_long_error_is_told_to_the_end_of_a_sentence_or_cut(tmp_path: Path, error: str, told: str) -> None:
    verdict = report(tmp_path, alone(), status="failed", error=error).verdict
    assert verdict.failed == f"The run failed, because of {told}"


def test_threads_of_a_program_that_wait_for_the_interpreter_are_found_by_samples(tmp_path: Path) -> None:
    events = [span("burn", 0, 10, f"s{n}") for n in range(4)]
    events += samples("worker", cpu_s=[float(n) for n in range(11)], interpreter_wait_s=[0.01] * 11)
    events += samples("worker", worker=["inproc://1"] * 11, cpu_cores=[1.0] * 11)  # told by Dask, too
    verdict = report(tmp_path, events).verdict
    assert (verdict.kind, verdict.certainty, verdict.saves_s) == ("interpreter_lock", "likely", 7.5)


@pytest.mark.parametrize(("wait_s", "kind"), [(0.01, "interpreter_lock"), (0.0001, "none")])
def test_threads_of_a_process_elsewhere_that_wait_for_the_interpreter_are_found_by_its_samples(
    tmp_path: Path, wait_s: float, kind: str
) -> None:
    """Four threads of one worker of Dask, whose tasks have no CPU time; the client's process is idle."""
    events = worker("tcp://1")
    for n in range(4):
        events += task(f"t{n}", "tcp://1", 0, 10)
    events += samples("worker", cpu_s=[0.0] * 11, cpu_cores=[0.0] * 11, interpreter_wait_s=[0.0001] * 11)
    for event in events[-11:]:
        assert isinstance(event, ResourceSample)
        event.pid = 2
    events += samples("worker", worker=["tcp://1"] * 11, cpu_cores=[1.0] * 11)
    waits = samples("worker_process", worker=["tcp://1"] * 11, interpreter_wait_s=[wait_s] * 11)
    for event in waits:
        assert isinstance(event, ResourceSample)
        event.pid = 1
    assert report(tmp_path, [*events, *waits]).verdict.kind == kind


@pytest.mark.parametrize(("used", "kind"), [(1.0, "interpreter_lock"), (3.0, "none")])
def test_threads_that_run_now_and_then_are_judged_by_the_cores_that_they_use_meanwhile(
    tmp_path: Path, used: float, kind: str
) -> None:
    """Four threads of a worker of Dask that run for two seconds at the beginning and at the end."""
    events = worker("tcp://1")
    for n in range(4):
        events += task(f"t{n}", "tcp://1", 0, 2) + task(f"u{n}", "tcp://1", 8, 10, when=8.0)
    cores = [used if n in {1, 2, 9, 10} else 0.0 for n in range(11)]
    events += samples("worker", worker=["tcp://1"] * 11, cpu_cores=cores)
    waits = [0.01 if busy else None for busy in cores]
    events += samples("worker", worker=["tcp://1"] * 11, interpreter_wait_s=waits)
    found = {one.kind for one in report(tmp_path, events).findings}
    assert found & {"interpreter_lock"} == {kind} - {"none"}


def test_each_of_several_hosts_has_cores_for_its_own_threads(tmp_path: Path) -> None:
    """A worker on each of four hosts, whose four threads use one of the four cores there."""
    events: list[Event] = []
    for on in range(4):
        host, name = f"n{on}", f"tcp://{on}"
        there = [*worker(name), *samples("worker", worker=[name] * 11, cpu_cores=[1.0] * 11, cpus=[4.0] * 11)]
        there += samples("worker_process", worker=[name] * 11, interpreter_wait_s=[0.01] * 11)
        for event in there:
            assert isinstance(event, (ResourceSample, WorkerLaunched, WorkerReady, WorkerRemoved))
            event.host, event.pid = host, 1
        events += there
        for n in range(4):
            events += task(f"t{on}-{n}", name, 0, 10)
    verdict = report(tmp_path, events).verdict
    assert (verdict.kind, verdict.saves_s) == ("interpreter_lock", 7.5)


@pytest.mark.parametrize(
    ("waits", "kind"), [({"lock_wait_s": 0.6}, "lock_waits"), ({"sleep_s": 0.6}, "none"), ({}, "none")]
)
def test_tasks_that_were_seen_waiting_for_locks_are_told_from_those_that_sleep(
    tmp_path: Path, waits: dict[str, float], kind: str
) -> None:
    events = [*worker("w1"), *worker("w2")]
    for n in range(20):
        since = n // 2
        events += task(
            f"t{n}", f"w{n % 2 + 1}", since, since + 1.0, cpu_s=0.1, thread_cpu_s=0.1, cpu_wait_s=0.0, **waits
        )
    verdict = report(tmp_path, events).verdict
    assert verdict.kind == kind
    if kind == "none":
        assert ("most of the rest asleep" in verdict.sentence) == bool(waits)
    else:
        assert verdict.saves_s == pytest.approx(6.0)


def test_a_worker_that_is_launched_for_a_task_follows_what_the_program_waited_for(tmp_path: Path) -> None:
    """The second batch needs a second worker, whose start-up has a reason of its own: the first batch."""
    events = [*worker("w1"), *worker("w2", launched=5, ready=6)]
    for n in range(5):
        events += task(f"t{n}", "w1", n, n + 1.0)
    events += [*task("t5", "w1", 5, 9, when=5.0), *task("t6", "w2", 6, 10, when=5.0)]
    path = report(tmp_path, events).critical_path
    assert path is not None
    assert {(part.kind, part.name): part.seconds for part in path.parts} == {
        ("task", "sim"): 9.0,
        ("startup", "worker start-up"): 1.0,
    }


def test_a_run_whose_tasks_are_missing_says_so_and_nothing_else(tmp_path: Path) -> None:
    verdict = report(tmp_path, alone(), tasks_submitted=24, tasks_completed=24).verdict
    assert verdict.kind == "unknown"
    assert verdict.sentence == (
        "What limited this run is not known: 24 tasks that it counted are in none of its files."
    )


def test_what_workers_did_is_unknown_where_their_tasks_are_missing(tmp_path: Path) -> None:
    found = report(tmp_path, [*worker("w1"), *worker("w2")], tasks_submitted=24, tasks_completed=24)
    assert (found.time, found.workers.utilization, found.workers.efficiency) == (None, None, None)
    assert (found.findings, found.workers.peak) == ([], 2)


def test_a_program_that_computes_between_its_tasks_is_limited_by_that(tmp_path: Path) -> None:
    events = [event for n in range(4) for event in worker(f"w{n}", until=50)]
    for n in range(10):
        events += task(f"t{n}", f"w{n % 4}", 5 * n + 4.0, 5 * n + 5.0, when=5 * n + 4.0)
    found = report(tmp_path, events, 50.0)
    assert found.verdict.kind == "program_alone"
    assert "one_at_a_time" not in {one.kind for one in found.findings}


def test_what_a_program_does_between_its_tasks_remains_when_it_waits_for_none(tmp_path: Path) -> None:
    events = [event for n in range(4) for event in worker(f"w{n}")]
    for n in range(8):
        events += task(f"t{n}", f"w{n % 4}", n * 1.25 + 0.25, (n + 1) * 1.25, when=n * 1.25 + 0.25)
    finding = of_kind(report(tmp_path, events), "one_at_a_time")
    assert (finding.saves_s, finding.certainty) == (pytest.approx(7.0), "likely")  # 8 times 0.25 s, and 1 s


def cpu_samples(own: list[float], busy: list[float]) -> list[Event]:
    """Two cores, of which the run used so many in each second, and all programs so many percent."""
    events: list[Event] = []
    for n, (cores, percent) in enumerate(zip([0.0, *own], [0.0, *busy], strict=True)):
        of: dict[str, Any] = {"timestamp": at(n), "host": "n1", "interval_s": 1.0 if n else None, "cpus": 2.0}
        events += [
            ResourceSample(scope="node", cpu_percent=percent if n else None, **of),
            ResourceSample(scope="worker", pid=1, cpu_percent=None, cpu_cores=cores if n else None, **of),
        ]
    return events


def test_a_loss_of_a_few_workers_seconds_is_weighed_by_the_wall_time(tmp_path: Path) -> None:
    """Eight workers on two cores for 4 s, and 36 s of the program after that."""
    events: list[Event] = []
    for n in range(8):
        used = {"cpu_s": 1.0, "cpu_scope": "process", "thread_cpu_s": 1.0, "cpu_wait_s": 3.0}
        events += [*worker(f"w{n}", until=4), *task(f"t{n}", f"w{n}", 0, 4, **used)]
    events += cpu_samples([2.0] * 4 + [0.0] * 36, [100.0] * 4 + [0.0] * 36)
    found = report(tmp_path, events, 40.0)
    finding = of_kind(found, "oversubscription")
    assert (finding.share, finding.limits) == (pytest.approx(0.75), pytest.approx(0.075))
    assert found.verdict.kind == "none"
    assert (
        "tasks spent 25% of their time on a CPU, most of the rest waiting for a CPU" in found.verdict.sentence
    )


def test_other_programs_are_not_blamed_for_what_they_do_after_the_last_task(tmp_path: Path) -> None:
    events: list[Event] = []
    for n in range(4):
        used = {"cpu_s": 5.0, "cpu_scope": "process", "thread_cpu_s": 5.0, "cpu_wait_s": 5.0}
        events += [*worker(f"w{n}"), *task(f"t{n}", f"w{n}", 0, 10, **used)]
    events += cpu_samples([2.0] * 10 + [0.0] * 10, [100.0] * 10 + [75.0] * 10)
    kinds = {one.kind for one in report(tmp_path, events, 20.0).findings}
    assert "oversubscription" in kinds
    assert "busy_machine" not in kinds


def test_dispatch_latency_on_a_busy_machine_is_told_as_that(tmp_path: Path) -> None:
    """Tasks that take five times their CPU time, and between them as much latency."""
    events = [*worker("w1")]
    for n in range(10):
        used = {"cpu_s": 0.1, "cpu_scope": "process", "thread_cpu_s": 0.1, "cpu_wait_s": 0.4}
        events += task(f"t{n}", "w1", n + 0.5, n + 1.0, **used)
    idle = report(tmp_path / "idle", events).verdict
    busy = report(tmp_path / "busy", [*events, *cpu_samples([0.5] * 10, [100.0] * 10)]).verdict
    assert (idle.kind, busy.kind) == ("handover", "busy_machine")


def test_time_after_the_last_task_is_not_ended_by_submitting_sooner(tmp_path: Path) -> None:
    events = [*worker("w1"), *task("t0", "w1", 0.1, 4, queue_s=0.1), *task("t1", "w1", 4, 5)]
    verdict = report(tmp_path, events).verdict
    assert (verdict.kind, verdict.sentence) == (
        "program_alone",
        "Limited most by the program outside of its tasks; without it the run would be about 5.0s (50%) "
        "shorter.",
    )
    assert verdict.advice == (
        "spans in the program, to see what it did, or starting workers later and ending them sooner."
    )


def test_tasks_whose_children_compute_are_not_said_to_wait_for_something_unknown(tmp_path: Path) -> None:
    events = [*worker("w1")]
    for n in range(10):
        used = {"cpu_s": 0.001, "cpu_scope": "thread", "thread_cpu_s": 0.001, "cpu_wait_s": 0.0}
        events += task(f"t{n}", "w1", n, n + 1.0, **used)
    assert "on a CPU, and waited for something unknown" in report(tmp_path / "alone", events).verdict.sentence
    verdict = report(tmp_path / "children", [*events, *cores(0.9)]).verdict
    assert "the run, with all processes that it started, used 0.9 cores on average" in verdict.sentence
    assert "on a CPU" not in verdict.sentence
