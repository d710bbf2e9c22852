"""What a report does not say, or not for sure: runs that look like something they are not."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from builders.runs import at, make_run
from builders.task_events import completed, failed, span, started, submitted

from flightlog.analyze.findings import Finding
from flightlog.analyze.report.report import Report, report_bytes, report_on
from flightlog.events import (
    CacheLookup,
    Event,
    Metric,
    ResourceSample,
    TaskCancelled,
    WorkerReady,
    WorkerRemoved,
)
from flightlog.store.run import Run


def reported(tmp_path: Path, events: Iterable[Event], lasts: float = 10.0, **facts: Any) -> Report:
    path = make_run(tmp_path, events, **{"end_time": at(lasts), "duration_s": lasts, **facts})
    return report_on(Run(path), details=False)


def findings(report: Report) -> dict[str, Finding]:
    return {one.kind: one for one in report.findings}


def up(number: int, until: float = 10.0) -> list[Event]:
    events: list[Event] = []
    for n in range(1, number + 1):
        who: dict[str, Any] = {"worker": f"w{n}", "host": "n1", "pid": 100 + n}
        events += [
            WorkerReady(timestamp=at(0), **who),
            WorkerRemoved(timestamp=at(until), reason="done", **who),
        ]
    return events


def task(name: str, on: str, since: float, until: float, kind: str = "sim", **more: Any) -> list[Event]:
    return [
        submitted(name, 0.0, kind),
        started(name, since, on, task=kind, queue_s=since),
        completed(name, until, until - since, on, task=kind, queue_s=since, **more),
    ]


def sampled(scope: str, until: float = 10.0, **series: Any) -> list[Event]:
    """A sample per second of figures by a function of the time, or that stay."""
    return [
        ResourceSample(
            timestamp=at(n),
            scope=scope,
            host="n1",
            pid=1 if scope == "worker" else None,
            interval_s=1.0 if n else None,
            **{
                "cpu_percent": None,
                **{name: one(n) if callable(one) else one for name, one in series.items()},
            },
        )
        for n in range(int(until) + 1)
    ]


def cores(used: float) -> list[Event]:
    return sampled("worker", cpu_s=lambda n: n * used)


def test_names_that_were_not_recorded_do_not_keep_a_report_from_being_written(tmp_path: Path) -> None:
    path = make_run(tmp_path, [span("fit", 0, 10, "s")])
    line = {"timestamp": at(1), "writer": "w0000001"}
    for stream, event in (
        ("metrics", {"event": "metric", "value": 1.0, "step": 1}),
        ("cache", {"event": "cache_lookup", "key": "k", "result": "hit"}),
    ):
        field = "name" if stream == "metrics" else "task"
        (path / f"{stream}.jsonl").write_text(
            "".join(
                json.dumps({**line, **event, "seq": n, field: name}) + "\n"
                for n, name in enumerate((None, "known"))
            )
        )
    written = json.loads(report_bytes(report_on(Run(path))))
    assert list(written["run"]["metrics"]) == ["known"]
    assert (written["cache"]["hits"], list(written["cache"]["by_name"])) == (2, ["known"])


def train_after_preparing(lasts: float, used: float) -> list[Event]:
    """Six short tasks, and then the first of another name, which has no end."""
    events = up(2, lasts)
    for n in range(6):
        events += task(f"t{n}", "w1", n / 10, n / 10 + 0.1, "prepare")
    events += [submitted("t9", 1.0, "train"), started("t9", 1.0, task="train", queue_s=0.0)]
    return events + sampled("worker", lasts, cpu_s=lambda n: n * used)


@pytest.mark.parametrize(("lasts", "used"), [(4.0, 1.0), (20.0, 0.0), (1200.0, 1.0)])
def test_a_last_stage_of_its_own_name_is_not_stuck(tmp_path: Path, lasts: float, used: float) -> None:
    report = reported(tmp_path, train_after_preparing(lasts, used), lasts, status="crashed")
    assert not findings(report).keys() & {"hung_tasks", "stuck_tasks"}
    assert report.verdict.kind != "idle_workers"  # one task cannot be shared out


def test_a_task_is_compared_with_the_few_of_its_name(tmp_path: Path) -> None:
    events = up(1, 60)
    for n in range(3):
        events += task(f"t{n}", "w1", n, n + 1.0)
    events += [submitted("t9", 3.0), started("t9", 3.0, queue_s=0.0)]
    finding = findings(reported(tmp_path, events, 60.0, status="crashed"))["hung_tasks"]
    assert "no other task of its name took more than 1.0s" in finding.sentence


def test_a_task_that_may_be_stuck_only_may_be(tmp_path: Path) -> None:
    events = up(1, 60)
    for n in range(6):
        events += task(f"t{n}", "w1", n, n + 1.0)
    events += [submitted("t9", 6.0), started("t9", 6.0, queue_s=0.0)]
    assert findings(reported(tmp_path, events, 60.0))["stuck_tasks"].certainty == "likely"


def repeated(first: str, seconds: float, second: str = "solve") -> list[Event]:
    """Ten turns of a second, each of two spans."""
    return [
        event
        for n in range(10)
        for event in (span(first, n, seconds, f"a{n}"), span(second, n + seconds, 1 - seconds, f"b{n}"))
    ]


@pytest.mark.parametrize("name", ["apply load", "load_json", "download"])
@pytest.mark.parametrize("measured", [True, False])
def test_a_span_that_computes_loads_no_data_whatever_its_name(
    tmp_path: Path, name: str, measured: bool
) -> None:
    report = reported(tmp_path, [*repeated(name, 0.8), *(cores(1.0) if measured else [])])
    assert (report.verdict.kind, report.findings) == ("none", [])
    assert f"80% (8.0s) of the 10.0s was {name}" in report.verdict.sentence


@pytest.mark.parametrize(("pid", "kind"), [(1, "data_loading"), (7, "none"), (None, "none")])
def test_tasks_in_threads_of_the_program_have_its_cpu_time_and_others_have_not(
    tmp_path: Path, pid: int | None, kind: str
) -> None:
    """Tasks whose own CPU time was not measured, in the process that was sampled, in another one, or nobody
    knows where."""
    who: dict[str, Any] = {"worker": "w1", "host": "n1", "pid": pid}
    events: list[Event] = [WorkerReady(timestamp=at(0), **who)] if pid is not None else []
    for n in range(10):
        events += task(f"t{n}", "w1", n, n + 1.0, span_id=f"s{n}")
        events.append(span("read_chunk", n, 0.7, f"r{n}", f"s{n}"))
    if pid is not None:  # a cluster samples each of its workers, without CPU time
        events += [
            ResourceSample(timestamp=at(n), scope="worker", cpu_percent=0.0, rss_bytes=100, **who)
            for n in (1, 9)
        ]
    assert reported(tmp_path, [*events, *cores(0.1)]).verdict.kind == kind


def test_loading_ahead_saves_no_more_than_the_rest_takes(tmp_path: Path) -> None:
    report = reported(tmp_path, [*repeated("load", 0.9, "train"), *cores(0.1)])
    assert (report.verdict.kind, report.verdict.saves_s) == ("data_loading", pytest.approx(1.0))
    assert report.verdict.share == pytest.approx(0.9)


def test_loading_beside_work_on_another_thread_saves_what_it_takes_longer(tmp_path: Path) -> None:
    events = [
        span("main", 0, 10, "m"),
        span("load", 0, 8.0, "a", "m"),
        span("compute", 0, 7.9, "b", "m"),
        span("save", 8, 2, "c", "m"),
    ]
    report = reported(tmp_path, [*events, *cores(0.2)])
    assert report.verdict.kind != "data_loading"
    finding = findings(report)["data_loading"]
    assert (finding.saves_s, finding.limits) == (pytest.approx(0.1), pytest.approx(0.01))


@pytest.mark.parametrize(
    "name", ["pace to 1 Hz", "poll", "sleep", "wait for events", "idle", "listen", "serve"]
)
def test_what_waits_by_design_is_not_blamed(tmp_path: Path, name: str) -> None:
    report = reported(tmp_path, [*repeated(name, 0.8, "control"), *cores(0.2)])
    assert (report.verdict.kind, report.findings) == ("none", [])


def test_a_span_that_waits_is_no_time_to_save(tmp_path: Path) -> None:
    report = reported(tmp_path, [*repeated("barrier", 0.8), *cores(0.2)])
    assert (report.verdict.kind, report.verdict.certainty) == ("waiting_span", "likely")
    assert report.verdict.saves_s is None
    assert report.verdict.sentence.startswith("Probably limited most by waiting: 80%")


def series(name: str, values: Iterable[float | str], *, trial: int = 100, **more: Any) -> list[Event]:
    """Values of a metric; a text is no number. Its step begins anew with each trial."""
    return [
        Metric(
            timestamp=at(n / 20),
            name=name,
            value=None if isinstance(value, str) else value,
            nonfinite=value if isinstance(value, str) else None,
            step=n % trial,
            **more,
        )
        for n, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("loss_scale", [65536.0 * 2 ** (n // 10) for n in range(100)]),
        ("total_cost_usd", [0.001 * (n + 1) ** 2 for n in range(100)]),
        ("errors_total", [1.0 + n for n in range(100)]),
        ("lossless_frames", [1.0 + n for n in range(100)]),
    ],
)
def test_what_is_meant_to_grow_does_not_diverge(tmp_path: Path, name: str, values: list[float]) -> None:
    assert findings(reported(tmp_path, series(name, values))) == {}


def test_trials_that_begin_anew_are_not_one_that_diverges(tmp_path: Path) -> None:
    values = [(1.0 if trial < 4 else 300.0) / (n + 1) for trial in range(5) for n in range(20)]
    assert findings(reported(tmp_path, series("loss", values, trial=20))) == {}


def test_a_loss_that_grows_somewhat_is_told_and_is_not_the_verdict(tmp_path: Path) -> None:
    values = [1.0] * 60 + [1.0 + n for n in range(40)]
    report = reported(tmp_path, [*series("loss", values), *repeated("train", 0.8)])
    finding = findings(report)["diverging"]
    assert (finding.certainty, finding.evidence["step"]) == (
        "likely",
        59,
    )  # of the last fifth that was so low
    assert report.verdict.kind == "none"


def processes(bad: int) -> list[Event]:
    """Eight processes with a loss each, of which so many become NaN."""
    events: list[Event] = []
    for writer in range(8):
        values = [1 / (n + 1) for n in range(10)] + ["nan" if writer < bad else 0.05] * 10
        for seq, event in enumerate(series("loss", values)):
            event.writer, event.seq = f"w000000{writer}", seq
            events.append(event)
    return events


@pytest.mark.parametrize(("bad", "first"), [(1, False), (8, True)])
def test_one_process_of_many_that_diverged_is_not_the_run(tmp_path: Path, bad: int, first: bool) -> None:
    report = reported(tmp_path, processes(bad), numbered=False)
    finding = findings(report)["not_finite"]
    assert ("in 1 of 8 processes" in finding.sentence) is not first
    assert (finding.evidence["processes"], finding.evidence["all_processes"]) == (bad, 8)
    assert (report.verdict.kind == "not_finite") is first


def test_only_what_is_to_become_small_may_not_be_infinite(tmp_path: Path) -> None:
    for name in ("psnr", "loss"):
        events = series(name, [30.0 + n for n in range(6)] + ["inf"] * 4)
        assert ("not_finite" in findings(reported(tmp_path / name, events))) == (name == "loss")


def test_a_metric_that_was_never_a_number_is_not_the_run_while_another_is(tmp_path: Path) -> None:
    for name, others in (("alone", []), ("beside", series("loss", [1 / (n + 1) for n in range(5)]))):
        report = reported(tmp_path / name, [*series("val_f1", ["nan"] * 5), *others])
        assert "not_finite" in findings(report)
        assert (report.verdict.kind == "not_finite") == (name == "alone")


def looked_up(result: str, lookup_s: float, task_s: float, **more: Any) -> list[Event]:
    """Ten tasks that ask a cache first."""
    events = up(1, 20)
    for n in range(10):
        events += task(f"t{n}", "w1", 2.0 * n, 2.0 * n + task_s, "fit")
        events.append(
            CacheLookup(
                timestamp=at(2.0 * n),
                task="fit",
                task_id=f"t{n}",
                key=f"k{n}",
                result=result,
                duration_s=lookup_s,
                **more,
            )
        )
    return events


def test_a_first_run_of_a_cache_does_not_cost_more_than_it_saves(tmp_path: Path) -> None:
    events = looked_up("miss", 0.2, 1.0, reason="never seen")
    assert "costly_cache" not in findings(reported(tmp_path / "cold", events, 20.0))
    events.append(
        CacheLookup(timestamp=at(19), task="fit", key="k0", result="hit", duration_s=0.2, saved_s=1.0)
    )
    assert "costly_cache" not in findings(reported(tmp_path / "one hit", events, 20.0))
    cheap = looked_up("miss", 1.0, 0.2, reason="never seen")
    assert findings(reported(tmp_path / "cheap", cheap, 20.0))["costly_cache"].seconds == pytest.approx(10.0)


def test_fewer_workers_shorten_no_run(tmp_path: Path) -> None:
    report = reported(tmp_path / "one", [*up(4), *task("t0", "w1", 0, 10)])
    finding = findings(report)["idle_workers"]
    assert (report.verdict.kind, finding.saves_s) == ("none", None)
    assert finding.sentence.endswith("at the end of 1 batch; fewer workers would cost no time.")
    events = up(4)
    for n in range(5):
        events += task(f"t{n}", f"w{n % 4 + 1}", 5 * (n // 4), 5 * (n // 4) + 5)
    finding = findings(reported(tmp_path / "five", events))["idle_workers"]
    assert (finding.saves_s, finding.certainty) == (3.75, "likely")
    assert finding.sentence.endswith("; try smaller tasks.")


def cancelled(name: str, on: str, since: float, until: float) -> list[Event]:
    given_up = TaskCancelled(
        timestamp=at(until),
        task="sim",
        task_id=name,
        args={},
        worker=on,
        duration_s=until - since,
        cpu_s=None,
    )
    return [submitted(name), started(name, since, on, queue_s=since), given_up]


def test_what_was_cancelled_did_not_fail(tmp_path: Path) -> None:
    events = [*up(2), *task("t0", "w1", 0, 5), *task("t1", "w1", 5, 10), *cancelled("t9", "w2", 0, 10)]
    report = reported(tmp_path / "none failed", events)
    finding = findings(report)["cancelled_work"]
    assert (finding.seconds, finding.saves_s) == (10.0, None)
    assert finding.sentence == "10.0 worker-seconds, 50% of this run, went to 1 attempt that was cancelled."
    assert "failed_work" not in findings(report)
    assert report.verdict.kind == "none"
    events = [*up(2), *task("t0", "w1", 0, 5), submitted("t1"), started("t1", 5), failed("t1", 10, 5.0)]
    found = findings(reported(tmp_path / "one failed", [*events, *cancelled("t9", "w2", 0, 10)]))
    assert (found["failed_work"].seconds, found["cancelled_work"].seconds) == (5.0, 10.0)
    assert "went to 1 attempt that did not complete" in found["failed_work"].sentence


def shortage(own: int) -> list[Event]:
    """A host of 16 GB that swaps and is nearly full, with so much of it in use by the run."""
    return [
        span("fit", 0, 10, "s"),
        *sampled(
            "node",
            swap_used_bytes=lambda n: int(1e8 * n),
            memory_pressure_s=lambda n: 0.3 * n,
            memory_used_bytes=int(15.6e9),
            memory_total_bytes=int(16e9),
        ),
        *sampled("worker", rss_bytes=own),
    ]


@pytest.mark.parametrize(("own", "blamed"), [(int(1e8), False), (int(9e9), True)])
def test_memory_that_others_use_is_not_blamed_on_the_run(tmp_path: Path, own: int, blamed: bool) -> None:
    report = reported(tmp_path, shortage(own))
    found = findings(report)
    assert found.keys() == {"memory_pressure", "swapping"}
    for finding in found.values():
        assert ("; try lower concurrency" in finding.sentence) is blamed
        assert finding.sentence.startswith("Memory ran short" if blamed else "The host ran short of memory")
    assert (report.verdict.kind == "swapping") is blamed


def test_what_is_swapped_out_and_not_missed_is_no_loss(tmp_path: Path) -> None:
    events = sampled("node", swap_used_bytes=lambda n: int(1e8 * n), memory_pressure_s=0.0)
    assert findings(reported(tmp_path, [span("fit", 0, 10, "s"), *events])) == {}


def test_storage_of_which_nobody_knows_who_used_it_is_not_blamed_on_the_run(tmp_path: Path) -> None:
    events = [
        *sampled("node", io_pressure_s=lambda n: 0.5 * n),
        *sampled("worker", write_bytes=lambda n: int(6e6 * n), read_bytes=0),
    ]
    assert findings(reported(tmp_path, [span("fit", 0, 10, "s"), *events])) == {}


def growing(each: int, *, scope: str = "thread", result: int = 100, memory: int = 64 * 10**9) -> list[Event]:
    """Twenty tasks, each of which leaves so many bytes behind, on a machine with so much memory."""
    events = up(2)
    for n in range(20):
        events += task(
            f"t{n:02}",
            f"w{n % 2 + 1}",
            n // 2 + n % 2 / 100,
            n // 2 + 0.9,
            rss_before_bytes=60_000_000 + n * each,
            cpu_scope=scope,
            result_bytes=result,
        )
    return events + sampled("node", memory_used_bytes=2 * 10**9, memory_total_bytes=memory)


def test_results_that_the_program_keeps_are_no_leak(tmp_path: Path) -> None:
    assert "memory_growth" not in findings(reported(tmp_path, growing(10**7, result=10**7)))


def test_threads_that_leak_cannot_be_ended(tmp_path: Path) -> None:
    finding = findings(reported(tmp_path / "threads", growing(10**7)))["memory_growth"]
    assert finding.sentence.endswith("; try letting go of what a task no longer needs.")
    assert finding.certainty == "likely"
    finding = findings(reported(tmp_path / "processes", growing(10**7, scope="process")))["memory_growth"]
    assert finding.sentence.endswith(", or ending workers after some tasks.")


@pytest.mark.parametrize(("memory", "reaches"), [(8 * 10**9, True), (10**12, False)])
def test_memory_that_grows_and_never_reaches_the_limit_comes_after_what_costs_time(
    tmp_path: Path, memory: int, reaches: bool
) -> None:
    events = growing(10**7, memory=memory)
    report = reported(tmp_path / "alone", events)
    assert findings(report)["memory_growth"].evidence["reaches_limit"] is reaches
    assert report.verdict.kind == "memory_growth"
    events = [one for one in events if not isinstance(one, WorkerRemoved)] + up(2, 13.0)[1::2]
    events += task("t99", "w1", 10, 13, rss_before_bytes=260_000_000, cpu_scope="thread")
    slow = reported(tmp_path / "slow", events, 13.0).verdict.kind
    assert slow == ("memory_growth" if reaches else "stragglers")


def test_memory_grows_by_what_it_gains_in_the_time_between_its_sizes(tmp_path: Path) -> None:
    events = [span("fit", 0, 20, "s"), *sampled("worker", 20.0, rss_bytes=lambda n: 10**8 + n * 5 * 10**7)]
    finding = findings(reported(tmp_path, events, 20.0))["memory_growth"]
    assert finding.evidence["bytes_per_s"] == pytest.approx(5e7)


def simulated(slow: dict[str, Any], fast: dict[str, Any]) -> list[Event]:
    """Tasks of 0.9 s on one worker and of 0.3 s on the other, with these arguments."""
    events = up(2)
    for worker, took, args in (("w1", 0.9, slow), ("w2", 0.3, fast)):
        for n in range(int(9 / took)):
            name, since = f"{worker}-{n}", n * took
            events += [
                submitted(name, 0.0, **args),
                started(name, since, worker, queue_s=since),
                completed(name, since + took, took, worker, args=args, queue_s=since),
            ]
    return events


def test_workers_with_larger_calls_are_not_slow(tmp_path: Path) -> None:
    same = reported(tmp_path / "same", simulated({"n": 100}, {"n": 100}))
    assert findings(same)["slow_workers"].where == ["w1"]
    assert "slow_workers" not in findings(reported(tmp_path / "other", simulated({"n": 1000}, {"n": 100})))


def test_workers_are_compared_by_calls_of_the_same_arguments(tmp_path: Path) -> None:
    """One worker has mostly large calls, the other mostly small ones; each takes the same on both."""
    events = up(2, 20)
    for worker, large in (("w1", 8), ("w2", 2)):
        since = 0.0
        for n in range(10):
            size, took = (1000, 1.5) if n < large else (100, 0.3)
            args, name = {"n": size}, f"{worker}-{n}"
            events += [
                submitted(name, 0.0, **args),
                started(name, since, worker, queue_s=since),
                completed(name, since + took, took, worker, args=args, queue_s=since),
            ]
            since += took
    assert "slow_workers" not in findings(reported(tmp_path, events, 20.0))
