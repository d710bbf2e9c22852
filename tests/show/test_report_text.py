"""Reports as a person reads them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from builders.runs import at, make_run

from flightlog.analyze.report.report import report_on
from flightlog.events import (
    ArtifactRecorded,
    CacheLookup,
    CostEstimate,
    Event,
    Failure,
    Metric,
    ResourceSample,
    SpanEvent,
    SpanOpened,
    TaskCompleted,
    TaskFailed,
    TaskStarted,
    TaskSubmitted,
    WorkerLost,
    WorkerReady,
)
from flightlog.show.report import report_text
from flightlog.store.completing import open_run


def report(path: Path, **options: object) -> str:
    return report_text(report_on(open_run(path), details=bool(options.get("parts"))), **options)  # type: ignore[arg-type]


def the_tutorials_run() -> list[Event]:
    events: list[Event] = []
    for n in range(8):
        key, worker, start = f"t{n}", f"worker-{n % 4 + 1}", 0.0 if n < 4 else 5.0
        args = {"scenario_id": n}
        lasted = 4.5 if n == 7 else 4.0
        events += [
            TaskSubmitted(timestamp=at(0), task="run_simulation", task_id=key, args=args),
            TaskStarted(
                timestamp=at(start), task="run_simulation", task_id=key, worker=worker, queue_s=start
            ),
            TaskCompleted(
                timestamp=at(start + lasted),
                task="run_simulation",
                task_id=key,
                args=args,
                worker=worker,
                duration_s=lasted,
                queue_s=start,
                cpu_s=lasted / 2,
                cpu_scope="thread",
            ),
            CacheLookup(
                timestamp=at(start),
                task="run_simulation",
                result="miss",
                key=key,
                reason="first run, no prior cache",
            ),
        ]
    events += [WorkerReady(timestamp=at(0), worker=f"worker-{n}", host="node-1", pid=n) for n in range(1, 5)]
    events.append(CostEstimate(timestamp=at(9), item="workers", amount=0.0, currency="USD", provider="local"))
    return events


TUTORIAL = """\
═══════════════════════════════════════════════
Run Report: run-20260520T035200Z-demo-a1b2c3d4
═══════════════════════════════════════════════
Target:    local (provider: local)
Started:   2026-05-20 03:52:00 UTC
Duration:  10.0s
Status:    completed

What set the wall time:
  - Limited most by dispatch latency; without it the run would be about 1.0s (10%) shorter. Try
    giving each task several pieces of work. 85% of the 10.0s was run_simulation, 10% waiting to
    start run_simulation, 5% the program after the last task; making run_simulation instant would
    save at most 8.5s.

What stands out:
  - 4.0 worker-seconds, 10% of this run, went to scheduling overhead, because dispatch latency was
    500 ms on average, and half of all tasks take 4.0s or less; try giving each task several pieces
    of work.
  - 2.0 worker-seconds, 5% of this run, went to workers waiting for the program, because no task ran
    or was queued (500 ms after the last task); try spans in the program, to see what it did, or
    starting workers later and ending them sooner.
  - 1.5 worker-seconds, 3.8% of this run, went to workers with nothing left to do while others
    finished tasks of ordinary length, because there was too little to share out at the end of 1
    batch; try smaller tasks.

Tasks:
  Submitted:     8
  Completed:     8
  Failed:        0
  Avg duration:  4.1s
  Max duration:  4.5s (run_simulation, scenario_id=7)
  Queued:        2.5s on average, 5.0s at most

Workers:
  Peak:             4
  Avg utilization:  81%
  Efficiency:       81%

Cache:
  Lookups:  8
  Hits:     0 (0%) — first run, no prior cache
  Misses:   8

Estimated Cost: $0.00 (local provider)

Where the time went: 40.0 worker-seconds of 4 workers
  Part                   Share   Time
  Completed work           81%  32.5s  ████████████████████
  Scheduling overhead      10%   4.0s  ██
  Idle                    8.8%   3.5s  ██
  Transfer             unknown
  Concurrency:  ███████████████████▅    ███████████████████▆▃▃   peak 4, mean 3.2

Critical path: what set the 10.0s of wall time
  What                             Segments    Time  Share  Max. saving
  run_simulation                          2    8.5s    85%       ≤ 8.5s
  waiting to start run_simulation         1    1.0s    10%
  program, after the last task            1  500 ms     5%

By task:
  Name            Done  Mean   p50   p95   p99   Max  Total    CPU
  run_simulation     8  4.1s  4.0s  4.3s  4.5s  4.5s  32.5s  16.2s

Slowest:
  Task                           Duration  Worker
  run_simulation(scenario_id=7)      4.5s  worker-4
  run_simulation(scenario_id=0)      4.0s  worker-1
  run_simulation(scenario_id=1)      4.0s  worker-2

Recording:
  Completeness:  complete: 37 of 37 lines
  Overhead:      0.0s of CPU in the background (0% of one core); 0 B written
"""


def test_the_report_has_the_tutorials_shape(tmp_path: Path) -> None:
    path = make_run(tmp_path, the_tutorials_run(), target="local", provider="local")
    assert report(path) == TUTORIAL


EMPTY = """\
═══════════════════════════════════════════════
Run Report: run-20260520T035200Z-demo-a1b2c3d4
═══════════════════════════════════════════════
Target:    node-1 (host)
Started:   2026-05-20 03:52:00 UTC
Duration:  10.0s
Status:    completed

What set the wall time:
  - What limited this run is not known: no task and no span of it was recorded; pools and threads
    that the program starts by itself are not seen. Try `with flightlog.span(...)` around the steps
    of the program, or a session for its pool.

No tasks, workers, cache lookups, cost or GPU recorded.

Recording:
  Completeness:  0 lines; whether any were lost is unknown
"""


def test_an_empty_run_says_so_and_claims_nothing(tmp_path: Path) -> None:
    assert report(make_run(tmp_path)) == EMPTY


def a_crash() -> list[Event]:
    trace = (
        'Traceback (most recent call last):\n  File "model.py", line 7, in step\n    raise\n'
        "ValueError: bad seed"
    )
    failures: list[Event] = []
    for n in range(3):
        ids = {"task": "sim", "task_id": f"f{n}"}
        failures += [
            TaskSubmitted(timestamp=at(0), args={"seed": n}, **ids),
            TaskStarted(timestamp=at(n), worker="w1", queue_s=None, **ids),
            TaskFailed(
                timestamp=at(n + 1),
                args={"seed": n},
                worker="w1",
                duration_s=1.0,
                error_type="ValueError",
                error_message="bad seed",
                fingerprint="f1",
                **ids,
            ),
            Failure(
                timestamp=at(n + 1),
                scope="task",
                error_type="ValueError",
                message="bad seed",
                traceback=trace,
                fingerprint="f1",
                worker="w1",
                **ids,
            ),
        ]
    return [
        *failures,
        TaskSubmitted(timestamp=at(0), task="train", task_id="t", args={"rank": 0}),
        TaskStarted(timestamp=at(4), task="train", task_id="t", worker="w2", queue_s=4.0),
        TaskSubmitted(timestamp=at(0), task="train", task_id="u", args={}),
        WorkerLost(timestamp=at(6), worker="w1", host="node-1", pid=3, reason="killed"),
        SpanOpened(
            timestamp=at(5),
            name="load",
            tags={"shard": 3},
            trace_id="",
            span_id="s",
            parent_id=None,
            elapsed_s=1.0,
        ),
        SpanEvent(timestamp=at(4), name="train.step", span_id="a", duration_s=0.25, status="error"),
        ResourceSample(timestamp=at(0), scope="node", host="node-1", cpu_percent=None, cpus=8.0),
        ResourceSample(
            timestamp=at(0),
            scope="worker",
            host="node-1",
            pid=1,
            cpu_percent=None,
            read_bytes=0,
            write_bytes=0,
        ),
        ResourceSample(
            timestamp=at(5),
            scope="node",
            host="node-1",
            cpu_percent=42.0,
            interval_s=5.0,
            memory_used_bytes=3 << 30,
            memory_total_bytes=16 << 30,
        ),
        ResourceSample(
            timestamp=at(5),
            scope="worker",
            host="node-1",
            pid=1,
            cpu_percent=22.5,
            cpu_cores=1.8,
            interval_s=5.0,
            peak_rss_bytes=512 << 20,
            read_bytes=1 << 20,
            write_bytes=1 << 10,
        ),
        ResourceSample(
            timestamp=at(0), scope="cgroup", host="node-1", cpu_percent=None, oom_kills=0, throttled_s=0.0
        ),
        ResourceSample(
            timestamp=at(5), scope="cgroup", host="node-1", cpu_percent=None, oom_kills=1, throttled_s=2.0
        ),
        ArtifactRecorded(
            timestamp=at(5), name="out.csv", uri="/out.csv", kind="result", size_bytes=2048, sha256=None
        ),
        Metric(timestamp=at(5), name="loss", value=0.25),
    ]


CRASHED = """\
═══════════════════════════════════════════════
Run Report: run-20260520T035200Z-demo-a1b2c3d4
═══════════════════════════════════════════════
Target:    node-1 (host)
Started:   2026-05-20 03:52:00 UTC
Duration:  8.0s
Status:    crashed (last heartbeat 2026-05-20 03:52:08 UTC)

What set the wall time:
  - 3 of 5 tasks failed, because of ValueError: bad seed. Limited most by memory. Try lower
    concurrency, or more memory for each task. 50% of the 8.0s was train, 50% waiting to start
    train; making train instant would save at most 4.0s.

What stands out:
  - Memory ran short: the kernel killed 1 process for memory; try lower concurrency, or more memory
    for each task.
  - 3.0 worker-seconds, 30% of this run, went to scheduling overhead, because dispatch latency was
    750 ms on average; try looking at what the scheduler was doing then.
  - 3.0 worker-seconds, 30% of this run, went to 3 attempts that did not complete, because of
    ValueError: bad seed; try `flightlog report --failures` for the causes.
  - 2.0 worker-seconds, 20% of this run, went to waiting for the CPU quota, because it held this run
    back for 2.0s; try asking for more cores, or lower concurrency.

Tasks:
  Submitted:  5
  Completed:  0
  Failed:     3
  Running:    1
  Waiting:    1

Workers:
  Peak:             2
  Avg utilization:  70%
  Efficiency:       0%
  Lost:             1

Where the time went: 10.0 worker-seconds of 2 workers
  Part                   Share  Time
  In flight                40%  4.0s  ██████████
  Failed work              30%  3.0s  ███████
  Scheduling overhead      30%  3.0s  ███████
  Transfer             unknown
  Concurrency:  ██████████████████▅     ████████████████████████ peak 1, mean 0.9

Critical path: what set the 8.0s of wall time
  What                    Segments  Time  Share  Max. saving
  train                          1  4.0s    50%       ≤ 4.0s
  waiting to start train         1  4.0s    50%

In flight when the run ended:
  Task or span   Since                     For  Worker
  train(rank=0)  2026-05-20 03:52:04 UTC  4.0s  w2
  load(shard=3)  2026-05-20 03:52:05 UTC  3.0s

Failures: 3, 1 cause
  3x ValueError: bad seed
      sim(seed=0) on w1, 2026-05-20 03:52:01 UTC
      File "model.py", line 7, in step
  - To find out why: flightlog diagnose run-20260520T035200Z-demo-a1b2c3d4

By task:
  Name   Done  Failed
  sim       0       3
  train     0

Spans: 1, 250 ms busy in 250 ms of wall time; 1 more without an end
  Name        Count  Errors    Self   Total    Wall     p50     p95
  train.step      1       1  250 ms  250 ms  250 ms  250 ms  250 ms

Metrics:
  Name  Last   Min   Max  Values
  loss  0.25  0.25  0.25       1

Resources:
  Process CPU:     1.80 cores mean, 1.80 max
  Process memory:  512.0 MiB peak
  Storage:         1.0 MiB read, 1.0 KiB written
  Node CPU:        42% mean, 42% max of 8 cores
  Node memory:     3.0 GiB peak of 16.0 GiB
  Throttled:       2.0s by the CPU quota
  Out of memory:   1 process killed

Artifacts: 1, 2.0 KiB
  Name     Kind       Size
  out.csv  result  2.0 KiB

No cache lookups, cost or GPU recorded.

Recording:
  Completeness:  26 lines read; the run was not closed
  - 1 process did not close the record (w0000001): whether more was to come is unknown
"""


def test_a_crashed_run_shows_what_was_in_flight_and_why_tasks_failed(tmp_path: Path) -> None:
    path = make_run(
        tmp_path, a_crash(), status="crashed", end_time=None, duration_s=None, heartbeat=at(8), recorder=False
    )
    assert report(path) == CRASHED


def test_an_array_that_is_not_heard_of_may_wait_in_the_queue(tmp_path: Path) -> None:
    path = make_run(
        tmp_path,
        status="running",
        end_time=None,
        heartbeat=at(8),
        host="slurm:flight",
        pid=0,
        tags={"slurm_array_job_id": "1234"},
    )
    status = next(line for line in report(path).splitlines() if line.startswith("Status:"))
    assert status == (
        "Status:    crashed (last heartbeat 2026-05-20 03:52:08 UTC, or elements still wait in the queue: "
        "squeue --job 1234)"
    )
    page = (Path(__file__).parents[2] / "docs" / "engines" / "slurm.md").read_text(encoding="utf-8")
    assert status in page


def test_the_page_on_hung_runs_shows_what_a_report_shows(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "a-run-hung.md").read_text(encoding="utf-8")
    status, in_flight = page.partition("```text\n")[2].partition("\n```")[0].split("\n\n")
    start, later = "2026-05-20T01:40:03.000000Z", "2026-05-20T01:40:05.000000Z"
    task = {"timestamp": start, "task": "run_simulation", "task_id": "a"}
    span = {"trace_id": "", "elapsed_s": 1.0}
    hung = [
        TaskSubmitted(args={"seed": 20282}, **task),
        TaskStarted(worker="node-7:4711", queue_s=0.0, **task),
        SpanOpened(
            timestamp=start, name="solver.solve", tags={"tol": 1e-6}, span_id="s", parent_id=None, **span
        ),
        SpanOpened(
            timestamp=later, name="solver.iterate", tags={"step": 7}, span_id="t", parent_id="s", **span
        ),
    ]
    last = "2026-05-20T03:54:14.000000Z"
    text = report(
        make_run(
            tmp_path, hung, status="crashed", start_time=start, end_time=None, duration_s=None, heartbeat=last
        )
    )
    assert f"\n{status}\n\n" in text
    assert f"\n\n{in_flight}\n\n" in text


def test_colour_adds_codes_and_nothing_else(tmp_path: Path) -> None:
    path = make_run(tmp_path, a_crash())
    painted = report(path, color=True)
    assert "\x1b[" in painted
    assert re.sub(r"\x1b\[\d*m", "", painted) == report(path)


@pytest.mark.parametrize("color", [False, True])
def test_nothing_that_a_run_recorded_reaches_the_terminal_as_a_code(tmp_path: Path, color: bool) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J[red]x[/red]\u202e\r\n東京"
    path = make_run(
        tmp_path,
        [
            TaskSubmitted(timestamp=at(0), task=evil, task_id="a", args={evil: evil}),
            TaskStarted(timestamp=at(0), task=evil, task_id="a", worker=evil, queue_s=0.0),
            TaskFailed(
                timestamp=at(1),
                task=evil,
                task_id="b",
                args={evil: evil},
                worker=evil,
                duration_s=1.0,
                error_type=evil,
                error_message=evil,
            ),
            *(
                TaskCompleted(
                    timestamp=at(1),
                    task=evil,
                    task_id=f"c{n}",
                    args={evil: evil},
                    worker=evil,
                    duration_s=1.0,
                )
                for n in range(7)
            ),
            SpanEvent(timestamp=at(1), name=evil, span_id=evil, duration_s=1.0),
            SpanOpened(
                timestamp=at(1),
                name=evil,
                tags={evil: evil},
                trace_id="",
                span_id="s",
                parent_id=None,
                elapsed_s=1.0,
            ),
            CacheLookup(timestamp=at(1), task=evil, result="miss", key=evil, reason=evil),
            Failure(
                timestamp=at(1), scope="run", error_type=evil, message=evil, traceback=evil, fingerprint=evil
            ),
            ArtifactRecorded(timestamp=at(1), name=evil, uri=evil, kind=evil, size_bytes=1, sha256=None),
            CostEstimate(timestamp=at(1), item=evil, amount=1.0, currency=evil, provider=evil),
            Metric(timestamp=at(1), name=evil, value=1.0),
        ],
        target=evil,
        provider=evil,
        error=evil,
        signal=evil,
    )
    text = re.sub(r"\x1b\[\d+m", "", report(path, color=color)) if color else report(path)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)
    assert "[red]x[/red]" in text


def test_no_line_of_a_table_is_wider_than_asked_where_names_can_be_cut(tmp_path: Path) -> None:
    path = make_run(
        tmp_path,
        [
            TaskCompleted(
                timestamp=at(1),
                task="a" * 200,
                task_id=str(n),
                args={"x": "y" * 200},
                worker="w1",
                duration_s=1.0,
            )
            for n in range(7)
        ],
    )
    assert max(map(len, report(path, width=80).splitlines())) <= 80


def test_a_lost_line_is_said_in_numbers(tmp_path: Path) -> None:
    path = make_run(tmp_path, the_tutorials_run())
    tasks = path / "tasks.jsonl"
    tasks.write_bytes(b"".join(tasks.read_bytes().splitlines(keepends=True)[1:]))
    assert "Completeness:  36 of 37 lines, 1 lost\n" in report(path)
    assert "  - tasks: 1 line of writer w0000001 lost: no. 0\n" in report(path)


def test_a_run_that_died_before_its_first_line_is_not_called_complete(tmp_path: Path) -> None:
    path = make_run(tmp_path, status="crashed", end_time=None, duration_s=None, heartbeat=at(0))
    assert report(path).endswith("  Completeness:  0 lines read; the run was not closed\n")


def test_remarks_on_the_recording_are_wrapped_and_never_cut(tmp_path: Path) -> None:
    path = make_run(tmp_path, a_crash(), recorder=False)
    assert report(path, width=60).endswith(
        "  - 1 process did not close the record (w0000001): whether\n    more was to come is unknown\n"
    )


@pytest.mark.parametrize(
    ("facts", "shown"),
    [
        ({"signal": "SIGPIPE", "error": "SIGPIPE"}, "Status:    failed (SIGPIPE)\n\n"),
        ({"exit_code": 3, "error": "exit code 3"}, "Status:    failed (exit code 3)\n\n"),
        (
            {"exit_code": 127, "error": "x: command not found"},
            "Status:    failed (exit code 127)\nError:     x: command not found\n\n",
        ),
        ({"error": "ValueError: bad seed"}, "Status:    failed\nError:     ValueError: bad seed\n\n"),
    ],
)
def test_the_error_is_shown_where_it_adds_to_the_status(
    tmp_path: Path, facts: dict[str, object], shown: str
) -> None:
    assert shown in report(make_run(tmp_path, status="failed", **facts))


def test_a_run_of_less_than_a_second_has_no_share_of_a_core(tmp_path: Path) -> None:
    short = make_run(tmp_path, the_tutorials_run(), token="b2b2b2b2", duration_s=0.9)
    assert "  Overhead:      0.0s of CPU in the background; 0 B written\n" in report(short)


def test_a_cache_that_was_off_is_no_cache_that_missed(tmp_path: Path) -> None:
    bypassed = CacheLookup(timestamp=at(1), task="sim", result="bypass", key=None, reason="disabled")
    assert "\nCache: bypassed 1 (the cache was off)\n" in report(make_run(tmp_path, [bypassed]))


def test_misses_for_several_reasons_get_no_remark(tmp_path: Path) -> None:
    misses = [
        CacheLookup(timestamp=at(1), task="s", result="miss", key=None, reason=why) for why in ("new", "old")
    ]
    assert "  Hits:     0 (0%)\n" in report(make_run(tmp_path, misses))


def test_a_first_run_is_said_to_have_no_prior_cache(tmp_path: Path) -> None:
    misses = [
        CacheLookup(timestamp=at(1), task="s", result="miss", key=None, reason=why)
        for why in ("never seen", "arguments changed")
    ]
    assert "  Hits:     0 (0%) — first run, no prior cache\n" in report(make_run(tmp_path, misses))
    assert "no prior cache" not in report(make_run(tmp_path / "later", misses[1:]))


def test_long_lists_say_how_much_they_leave_out(tmp_path: Path) -> None:
    spans = [SpanEvent(timestamp=at(1), name=f"step-{n}", span_id=str(n), duration_s=1.0) for n in range(12)]
    assert "  … and 7 more names\n" in report(make_run(tmp_path, spans))
