"""A run as it happens says what its report will say, however its lines come to be read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import msgspec
import pytest
from builders.examples import FEW
from builders.hostile_run import hostile_run
from builders.random_runs import Shape
from builders.runs import START, at, make_run
from builders.task_events import completed, failed, started, submitted
from hypothesis import given
from hypothesis import strategies as st

from flightlog.analyze.limits import LiveLimits
from flightlog.analyze.live.follow import GONE, FollowedRun
from flightlog.analyze.live.results import LiveState
from flightlog.analyze.report.report import Report, report_on
from flightlog.core.stats import distribution
from flightlog.core.time import SECOND, moment
from flightlog.demo.sweep import sweep_twice
from flightlog.events import (
    CostEstimate,
    Event,
    Failure,
    Metric,
    ResourceSample,
    SpanOpened,
    TaskRetried,
    UserEvent,
    WorkerLaunched,
    WorkerLost,
    WorkerReady,
)
from flightlog.events.devices import DeviceMemory
from flightlog.store import layout
from flightlog.store.documents import read_document, write_document
from flightlog.store.headline import headline_bytes, headline_of
from flightlog.store.run import Run
from flightlog.store.tables.run_tables import open_tables

GOLDEN = Path(__file__).parents[2] / "golden"
LATER = (moment(START) or 0) / SECOND + 300


def now_at(seconds: float) -> Callable[[], float]:
    return lambda: (moment(at(seconds)) or 0) / SECOND


def agree(state: LiveState, report: Report) -> None:
    """The numbers that both have are the same."""
    tasks, progress = report.tasks, state.progress
    assert (state.status, state.end_time or None) == (
        report.run.status,
        report.run.end_time or report.run.last_seen,
    )
    assert state.elapsed_s == pytest.approx(report.run.duration_s, abs=2e-6)
    for theirs, ours in (
        (tasks.submitted, progress.submitted),
        (tasks.completed, progress.completed),
        (tasks.failed, progress.failed),
        (tasks.cancelled, progress.cancelled),
        (tasks.running, progress.running),
        (tasks.pending, progress.waiting),
        (tasks.retried, progress.retried),
        (report.failures.count, state.failures_all),
        (report.cache.lookups, state.cache_lookups or 0),
        (report.cache.hits, state.cache_hits or 0),
        (report.workers.count, state.workers_all),
        (tasks.names, state.names_all),
        (report.spans.count, state.spans_all),
    ):
        assert theirs == ours
    counts = ("submitted", "completed", "failed", "cancelled", "retried", "running")
    assert {one.name: ([getattr(one, count) for count in counts], one.max_s) for one in state.names} == {
        name: ([getattr(one, count) for count in counts], one.duration_s.max)
        for name, one in tasks.by_name.items()
    }
    for one in state.names:
        known = tasks.by_name[one.name].duration_s
        assert (one.mean_s, one.p95_s) == (
            pytest.approx(known.mean, rel=1e-9),
            pytest.approx(known.p95, rel=1e-9),
        )
    assert [(one.task_id, one.duration_s) for one in state.slowest[:10]] == [
        (one.task_id, one.duration_s) for one in tasks.slowest
    ]
    going_on = [(one.task, one.task_id, one.since, one.elapsed_s, one.stuck) for one in state.doing]
    assert sorted(going_on) == sorted(
        (one.name, one.task_id, one.since, one.elapsed_s, one.stuck)
        for one in report.in_flight
        if one.kind == "task"
    )
    opened = [(one.name, one.since, one.elapsed_s, one.stuck) for one in state.open_spans]
    assert sorted(opened) == sorted(
        (one.name, one.since, one.elapsed_s, one.stuck) for one in report.in_flight if one.kind == "span"
    )


@pytest.mark.parametrize(
    "run",
    [
        "run-v1/run-20260520T035200Z-demo-a1b2c3d4",
        "run-v1/run-20260521T101500Z-sweep-0badcafe",
        "killed-for-memory",
        "devices/gpu-training",
    ],
)
def test_a_golden_run_is_what_its_report_says(run: str) -> None:
    state = FollowedRun(GOLDEN / run).update()
    agree(state, report_on(Run(GOLDEN / run), details=False))
    assert (state.reading, state.over) == (None, True)


def test_the_demo_is_what_its_report_says(tmp_path: Path) -> None:
    for done in sweep_twice(tmp_path / "runs", 6, workers=2):
        state, report = FollowedRun(done.path).update(), report_on(Run(done.path), details=False)
        agree(state, report)
        assert (state.cost, state.currency) == (report.cost.total, report.cost.currency)
        assert [one.retried for one in state.failures] == [True] * report.tasks.retried + [
            False
        ] * report.tasks.failed
        assert all(
            one.traceback and "Traceback" in one.traceback and "scenario_id=" in one.args
            for one in state.failures
        )
        assert state.metrics[0].count == report.run.metrics["attack_rate"].count


def test_a_hostile_run_is_what_its_report_says_and_stays_small(tmp_path: Path) -> None:
    path = hostile_run(tmp_path, name_bytes=1_000_000)
    state, report = FollowedRun(path).update(), report_on(Run(path), details=False)
    assert (state.progress.completed, state.progress.failed) == (report.tasks.completed, report.tasks.failed)
    assert state.failures_all == report.failures.count
    assert len(msgspec.json.encode(state)) < 2_000_000


@given(seed=st.integers(0, 2**32))
@FEW
def test_a_run_of_any_shape_is_what_its_report_says(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    shape = Shape(seed)
    path = make_run(tmp_path_factory.mktemp("shape"), shape.events(), **_ending(seed))
    agree(FollowedRun(path, now=lambda: LATER).update(), report_on(Run(path), details=False))


def _ending(seed: int) -> dict[str, object]:
    if seed % 3:
        return {}
    return {"status": "crashed", "end_time": None, "duration_s": None, "heartbeat": at(30)}


def _spread(
    path: Path, pieces: Sequence[tuple[str, Event]], cuts: set[int], look: Callable[[], object]
) -> None:
    """Write each writer's events in order into its files, and look at each of the cuts."""
    numbers: dict[tuple[str, str], int] = {}
    unwritten: dict[Path, bytes] = {}
    for place, (writer, event) in enumerate(pieces):
        stream, folder = type(event).stream, layout.writer_folder(path, writer)
        number = numbers[writer, stream] = numbers.get((writer, stream), -1) + 1
        event.writer, event.seq = writer, number
        file = layout.stream_file(folder, stream)
        unwritten[file] = unwritten.get(file, b"") + msgspec.json.encode(event) + b"\n"
        if place in cuts or place == len(pieces) - 1:
            for file, lines in unwritten.items():
                file.parent.mkdir(parents=True, exist_ok=True)
                with file.open("ab") as out:
                    out.write(lines)
            unwritten = {}
            look()


def _end(path: Path, **info: object) -> None:
    """Let a run that goes on have ended, or have been killed."""
    known = read_document(path / layout.RUN, layout.RunInfo).value
    assert known is not None
    write_document(path / layout.RUN, msgspec.structs.replace(known, host="node-1", **info))


_COMPLETED = {"status": "completed", "end_time": at(10), "duration_s": 10.0, "heartbeat": None}


def _shown(state: LiveState) -> LiveState:
    """The state without what is wrong with the files, and how often something was read."""
    return msgspec.structs.replace(state, changed=0, problems=[])


@given(seed=st.integers(0, 2**32), cuts=st.sets(st.integers(0, 200), max_size=8))
@FEW
def test_a_run_that_is_followed_to_its_end_in_any_pieces_and_order_is_what_its_report_says(
    tmp_path_factory: pytest.TempPathFactory, seed: int, cuts: set[int]
) -> None:
    """And what is shown of it when it is read as a whole, to the last field."""
    folder, dice, events = tmp_path_factory.mktemp("followed"), Random(seed), Shape(seed).events()
    events += [
        msgspec.structs.replace(event)
        for event in events
        if type(event).stream in {"tasks", "spans"} and dice.random() < 0.3
    ]
    pieces = [(dice.choice("abc"), event) for event in events]
    dice.shuffle(pieces)
    path = make_run(folder / "followed", **_RUNNING)
    follower = FollowedRun(path, now=lambda: LATER if (path / "over").exists() else now_at(9)())
    _spread(path, pieces, cuts, follower.update)
    (path / "over").touch()
    _end(path, **(_COMPLETED | _ending(seed)))
    followed = follower.update()
    agree(followed, report_on(Run(path), details=False))
    read = FollowedRun(make_run(folder / "read", events, **_ending(seed)), now=lambda: LATER).update()
    assert _shown(followed) == _shown(read)
    assert _shown(follower.update()) == _shown(followed)


_BY_NAME = """
SELECT task, count(*) FILTER (depends_on IS NOT NULL), count(*) FILTER (state = 'completed'),
    count(*) FILTER (state = 'failed' AND NOT retried), count(*) FILTER (state = 'cancelled'),
    count(*) FILTER (state = 'running'), count(*) FILTER (retried),
    max(duration_s) FILTER (state = 'completed')
FROM attempts GROUP BY task
"""
_OVER = """
SELECT task_id, attempt, CASE WHEN retried AND state = 'failed' THEN 'retried' ELSE state END, worker
FROM attempts WHERE state NOT IN ('pending', 'running')
"""
_WAITING = """
SELECT count(DISTINCT task_id) FROM attempts WHERE state = 'pending' AND depends_on IS NOT NULL
    AND task_id NOT IN (SELECT task_id FROM attempts WHERE state <> 'pending')
"""


@given(seed=st.integers(0, 2**32), cuts=st.sets(st.integers(0, 200), max_size=8))
@FEW
def test_late_doubled_and_disordered_lines_count_as_in_the_tables_of_the_finished_run(
    tmp_path_factory: pytest.TempPathFactory, seed: int, cuts: set[int]
) -> None:
    path = make_run(tmp_path_factory.mktemp("followed"), **_RUNNING)
    dice, events = Random(seed), Shape(seed).events()
    events += [msgspec.structs.replace(event) for event in events if dice.random() < 0.3]
    pieces = [(dice.choice("abc"), event) for event in events if type(event).stream in {"tasks", "spans"}]
    dice.shuffle(pieces)
    follower = FollowedRun(path, now=now_at(9))
    _spread(path, pieces, cuts, follower.update)
    state = follower.update()
    with open_tables([Run(path)]) as tables:
        by_name = tables.execute(_BY_NAME).fetchall()
        over = tables.execute(_OVER).fetchall()
        waiting = tables.scalar(_WAITING)
        spans = tables.execute("SELECT name, count(*) FILTER (NOT open) FROM spans GROUP BY name").fetchall()
    assert sorted(by_name) == sorted(
        (
            one.name,
            one.submitted,
            one.completed,
            one.failed,
            one.cancelled,
            one.running,
            one.retried,
            one.max_s,
        )
        for one in state.names
    )
    assert follower._following is not None
    followed = follower._following.tables.execute(_OVER.replace("attempts", "attempt_intervals")).fetchall()
    assert sorted(over, key=str) == sorted(followed, key=str)
    assert sorted(spans) == sorted((one.name, one.ended) for one in state.spans)
    assert state.progress.waiting == waiting


def test_workers_have_ended_what_was_read_after_newer_attempts(tmp_path: Path) -> None:
    bars = LiveLimits.max_timeline_bars
    times = [*range(4 * bars, 8 * bars), *range(4 * bars)]
    path = make_run(tmp_path, [completed(f"t{n}", n / 100, 0.01, "w1") for n in times])
    state = FollowedRun(path, now=lambda: LATER).update()
    assert [(one.worker, one.ended) for one in state.workers] == [("w1", len(times))]


def test_a_worker_of_one_task_at_a_time_never_shows_two(tmp_path: Path) -> None:
    """The end of its last task is not written yet."""
    ended = [completed(f"t{n}", n, 1.0, worker) for n in range(1, 6) for worker in ("w1", "w2")]
    ended += [completed(f"u{n}", n, 1.0, "w2") for n in range(1, 6)]
    running = [started(f"x{n}", 6 + n, worker) for n in (0, 1) for worker in ("w1", "w2")]
    for n, event in enumerate([*ended, *running]):
        event.task_id += f"-{n}"
    state = FollowedRun(make_run(tmp_path, [*ended, *running], **_RUNNING), now=now_at(9)).update()
    assert [(one.worker, one.running, one.since_s) for one in state.workers] == [
        ("w1", 1, 2.0),
        ("w2", 2, 3.0),
    ]
    assert (state.progress.running, [one.running for one in state.names], len(state.doing)) == (3, [3], 3)


def test_two_workers_of_one_task_each_run_two_tasks(tmp_path: Path) -> None:
    """The next ones have begun before the ends of the last ones are read."""
    workers = ("w1", "w2")
    ended = [completed(f"{worker}-{n}", n, 1.0, worker) for n in range(1, 6) for worker in workers]
    running = [started(f"{worker}-{n}", n, worker) for n in (5.1, 6.1) for worker in workers]
    path = make_run(tmp_path, [*ended, *running], **_RUNNING)
    state = FollowedRun(path, now=now_at(7)).update()
    assert (state.progress.running, [one.running for one in state.names]) == (2, [2])
    assert sorted((one.worker, one.task_id) for one in state.doing) == [("w1", "w1-6.1"), ("w2", "w2-6.1")]


def test_a_task_that_begins_once_more_under_its_number_runs_once(tmp_path: Path) -> None:
    events = [submitted("t", 0), started("t", 1, "w1"), started("t", 4, "w2")]
    state = FollowedRun(make_run(tmp_path, events, **_RUNNING), now=now_at(9)).update()
    assert (state.progress.running, [(one.worker, one.elapsed_s) for one in state.doing]) == (
        1,
        [("w2", 5.0)],
    )


def test_lines_may_move_from_tail_to_file_and_into_the_file_of_the_run(tmp_path: Path) -> None:
    path = make_run(
        tmp_path, status="running", end_time=None, duration_s=None, host="elsewhere", heartbeat=at(20)
    )
    folder = layout.writer_folder(path, "w1")
    folder.mkdir(parents=True)
    lines: list[bytes] = []
    for number, event in enumerate(
        [submitted("t1", 0), started("t1", 1), completed("t1", 3, 2.0), submitted("t2", 3)]
    ):
        event.writer, event.seq = "w1", number
        lines.append(msgspec.json.encode(event) + b"\n")
    live = FollowedRun(path, now=now_at(20))

    def seen() -> tuple[int, int, int, int]:
        progress = live.update().progress
        return progress.submitted, progress.running, progress.completed, progress.waiting

    layout.tail_file(folder, "tasks", "a").write_bytes(lines[0] + lines[1] + b"\0" * 100)
    assert seen() == (1, 1, 0, 0)
    layout.stream_file(folder, "tasks").write_bytes(b"".join(lines[:3]))
    assert seen() == (1, 0, 1, 0)
    layout.stream_file(folder, "tasks").rename(layout.rotated_file(folder, "tasks", 1))
    layout.stream_file(path, "tasks").write_bytes(b"".join(lines))
    for part in list(folder.iterdir()):
        part.unlink()
    assert seen() == (2, 0, 1, 1)


_WRITER = """
import sys, threading
from pathlib import Path
from flightlog import Session

runs, wait = sys.argv[1], threading.Event()
(Path(runs) / "flightlog.yaml").write_text(
    "version: 1\\nproject: {name: live}\\n"
    "targets: {local: {provider: local, max_workers: 2, processes: false}}\\n"
)

def work(n):
    if n == 7:
        wait.wait()
    return n

with Session.from_yaml(Path(runs) / "flightlog.yaml", target="local", runs_dir=runs) as session:
    done = session.client.map(work, range(6))
    session.client.gather(done)
    print(session.path, flush=True)
    sys.stdin.readline()
    stays = session.client.map(work, [7, 8])
    session.client.gather(stays[1:])
    print("one hangs", flush=True)
    sys.stdin.readline()
"""


def test_a_run_is_followed_while_another_process_writes_it_and_after_that_was_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            path = Path(process.stdout.readline().strip())
            live = FollowedRun(path)
            first = live.update()
            assert (first.status, first.progress.submitted, first.progress.completed) == ("running", 6, 6)
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "one hangs\n"
            second = live.update()
            assert (second.progress.submitted, second.progress.completed, second.progress.running) == (
                8,
                7,
                1,
            )
            assert [(one.task, one.args) for one in second.doing] == [("work", "n=7")]
            assert second.changed > first.changed
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
    dead = live.update()
    assert (dead.status, dead.progress.running, [one.state for one in dead.workers]) == (
        "crashed",
        1,
        ["gone", "gone"],
    )
    agree(dead, report_on(Run(path), details=False))


def test_a_long_reading_says_how_far_it_is_and_ends_like_a_short_one(tmp_path: Path) -> None:
    events = [each for n in range(2_000) for each in (submitted(f"t{n}"), completed(f"t{n}", 1, 1.0))]
    path = make_run(tmp_path, events, **_RUNNING)
    ticks = iter(range(10**6))
    live = FollowedRun(path, now=now_at(9), clock=lambda: float(next(ticks)))
    states = [live.update(limit_s=0.5)]
    while states[-1].reading is not None:
        states.append(live.update(limit_s=0.5))
    assert [state.progress.completed for state in states[:4]] == [500, 1_000, 1_500, 2_000]
    assert states[0].problems[0].startswith("still reading: ")
    assert all(0 < (state.reading or 0) < 1 for state in states[:-1])
    whole = FollowedRun(path, now=now_at(9)).update()
    assert msgspec.structs.replace(states[-1], changed=0) == msgspec.structs.replace(whole, changed=0)


def test_the_counts_of_a_run_that_is_over_are_right_before_it_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LiveLimits, "max_bytes_at_once", 0)
    events: list[Event] = [
        each for n in range(2_000) for each in (submitted(f"t{n}"), completed(f"t{n}", 1, 1.0))
    ]
    path = make_run(tmp_path, [*events, failed("x", 2, 1.0), submitted("y")])
    (path / layout.SUMMARY).write_bytes(headline_bytes(headline_of(Run(path))))
    ticks = iter(range(10**6))
    live = FollowedRun(path, now=lambda: LATER, clock=lambda: float(next(ticks)))
    first = live.update(limit_s=0.5)
    assert (first.reading is not None, first.problems[0][:15]) == (True, "still reading: ")
    while (last := live.update(limit_s=0.5)).reading is not None:
        pass
    for field in ("progress", "cache_hits", "cache_lookups"):
        assert getattr(first, field) == getattr(last, field)
    assert len(last.slowest) == LiveLimits.max_slowest_tasks


def test_nothing_is_read_again_of_a_run_that_is_over(tmp_path: Path) -> None:
    live = FollowedRun(make_run(tmp_path, [submitted("a")], numbered=False), now=lambda: LATER)
    first, second = live.update(), live.update()
    assert (first.progress.submitted, second.progress.submitted) == (1, 1)
    assert msgspec.structs.replace(first) == second


def _two_at_once(*running: Event) -> list[Event]:
    """Eight of twelve tasks, two and two together, two seconds each; and what runs since."""
    events: list[Event] = [submitted(f"t{n}") for n in range(12)]
    for n in range(8):
        begins, worker = n // 2 * 2, f"w{n % 2}"
        events += [started(f"t{n}", begins, worker), completed(f"t{n}", begins + 2, 2.0, worker)]
    return [*events, *running]


def test_how_long_is_left_follows_from_what_tasks_took_and_how_many_run_at_once(tmp_path: Path) -> None:
    events = _two_at_once(started("t8", 8, "w0"), started("t9", 8, "w1"))
    progress = FollowedRun(make_run(tmp_path, events, **_RUNNING), now=now_at(9)).update().progress
    # Two have one of their two seconds left, and two wait: three seconds, and no task differs from another.
    assert (progress.left_s, progress.waiting, progress.done) == (pytest.approx(3.0, rel=0.2), 2, 8 / 12)
    assert progress.left_low_s is not None
    assert progress.left_high_s is not None
    assert progress.left_low_s <= 3.0 <= progress.left_high_s
    assert progress.per_s == pytest.approx(8 / 9)


def test_how_long_is_left_does_not_jump_where_a_worker_is_between_two_tasks(tmp_path: Path) -> None:
    said = []
    for count in range(4):
        running = [started(f"t{n}", 8, "w0") for n in range(8, 8 + count)]
        path = make_run(tmp_path / str(count), _two_at_once(*running), **_RUNNING)
        said.append(FollowedRun(path, now=now_at(9)).update().progress.left_s or 0.0)
    # Five to eight seconds of work are left, and two workers or so are at it.
    assert said == [pytest.approx(each, rel=0.35) for each in (4.0, 3.5, 3.0, 2.5)]


_RUNNING = {
    "status": "running",
    "end_time": None,
    "duration_s": None,
    "host": "elsewhere",
    "heartbeat": at(9),
}


def test_a_task_that_hangs_is_told_from_those_that_ended_and_from_earlier_runs(tmp_path: Path) -> None:
    events = [completed(f"t{n}", n, 1.0) for n in range(1, 6)]
    events += [submitted("x", seed=7), started("x", 1), started("new", 1, "w2", "fit")]
    path = make_run(tmp_path, events, **_RUNNING)
    state = FollowedRun(path, now=now_at(9), history={"fit": distribution([1.0] * 9)}).update()
    assert [(one.task, one.args, one.elapsed_s, one.usual_s, one.stuck) for one in state.doing] == [
        ("fit", "", 8.0, 1.0, True),
        ("sim", "seed=7", 8.0, 1.0, True),
    ]
    assert [(one.worker, one.state, one.task, one.since_s) for one in state.workers] == [
        ("w1", "busy", "sim", 8.0),
        ("w2", "busy", "fit", 8.0),
    ]


def test_an_attempt_that_is_tried_again_is_no_longer_running_and_keeps_its_arguments(tmp_path: Path) -> None:
    again = TaskRetried(timestamp=at(3), task="sim", task_id="t", reason="OSError: gone")
    told = Failure(
        timestamp=at(3),
        scope="task",
        task="sim",
        task_id="t",
        attempt=1,
        error_type="OSError",
        message="gone",
        traceback="Traceback …",
        fingerprint="f",
        worker="w1",
    )
    events = [submitted("t", 0, seed=1), started("t", 1), again, told, started("t", 5, attempt=2)]
    state = FollowedRun(make_run(tmp_path, events, **_RUNNING), now=now_at(9)).update()
    assert (state.progress.running, state.progress.retried, state.progress.failed) == (1, 1, 0)
    assert [(one.attempt, one.args, one.elapsed_s) for one in state.doing] == [(2, "seed=1", 4.0)]
    assert [(one.error_type, one.args, one.retried, one.traceback) for one in state.failures] == [
        ("OSError", "seed=1", True, "Traceback …")
    ]
    assert state.timeline is not None
    assert state.timeline.bars is not None
    assert list(
        zip(state.timeline.bars.state, state.timeline.bars.start_s, state.timeline.bars.length_s, strict=True)
    ) == [
        ("retried", 0.0, 2.0),
        ("running", 4.0, 4.0),
    ]
    assert [(mark.kind, mark.at_s, mark.text) for mark in state.timeline.marks] == [
        ("retried", 2.0, "OSError: gone")
    ]


def test_the_log_tells_what_a_person_would_want_to_know_and_not_every_task(tmp_path: Path) -> None:
    events: list[Event] = [
        submitted("t"),
        started("t", 1),
        completed("t", 2, 1.0),
        WorkerLaunched(timestamp=at(0.1), worker="w1", host="node-1", pid=1),
        WorkerReady(timestamp=at(0.5), worker="w1", host="node-1", pid=1, launch_s=0.4),
        failed("u", 3, 1.0),
        TaskRetried(timestamp=at(3.1), task="sim", task_id="u", reason="ValueError: bad seed", delay_s=2.0),
        UserEvent(timestamp=at(4), name="epoch", fields={"n": 3}),
        WorkerLost(timestamp=at(5), worker="w1", host="node-1", pid=1, reason="killed by signal 9"),
    ]
    state = FollowedRun(make_run(tmp_path, events), now=lambda: LATER).update()
    assert [(line.level, line.text) for line in state.log] == [
        ("info", "the run completed"),
        ("error", "worker w1 was lost: killed by signal 9"),
        ("info", "epoch: n=3"),
        ("warning", "sim u is retried in 2.0s: ValueError: bad seed"),
        ("error", "sim u failed: ValueError: bad seed"),
        ("info", "worker w1 is ready after 400 ms"),
        ("info", "worker w1 was launched on node-1"),
        ("info", "the run began"),
    ]
    assert [(one.worker, one.state) for one in state.workers] == [("w1", "lost")]


def test_machines_and_devices_are_known_by_their_last_sample_and_drawn_over_time(tmp_path: Path) -> None:
    def sample(when: float, **fields: object) -> Event:
        return ResourceSample(
            timestamp=at(when), **{"scope": "node", "host": "n1", "cpu_percent": None, **fields}
        )

    def device(when: float, allocated: int) -> Event:
        return DeviceMemory(
            timestamp=at(when),
            schema_version=3,
            session_id="s",
            timestamp_ns=0,
            event_type="sample",
            collector="c",
            sampling_interval_ms=100,
            pid=1,
            host="n1",
            device_id=0,
            allocator_allocated_bytes=allocated,
            allocator_reserved_bytes=allocated,
            allocator_active_bytes=None,
            allocator_inactive_bytes=None,
            allocator_change_bytes=0,
            device_used_bytes=900,
            device_free_bytes=None,
            device_total_bytes=1_000,
            context=None,
            metadata={},
            rank=2,
        )

    events = [
        sample(2, cpu_percent=80.0, memory_used_bytes=30, memory_total_bytes=100),
        sample(1, cpu_percent=40.0, memory_used_bytes=50, memory_total_bytes=100),
        sample(
            3, scope="gpu", gpu_index=1, gpu_memory_used_bytes=7, gpu_memory_total_bytes=10, gpu_percent=5.0
        ),
        device(1, 500),
        device(1.5, 300),
        device(4, 100),
    ]
    state = FollowedRun(make_run(tmp_path, events), now=lambda: LATER).update()
    assert [(one.host, one.cpu_percent, one.memory_used_bytes, one.seen_s) for one in state.hosts] == [
        ("n1", 80.0, 30, 8.0)
    ]
    assert [
        (one.label, one.memory_used_bytes, one.memory_total_bytes, one.percent, one.scope)
        for one in state.devices
    ] == [
        ("GPU 1", 7, 10, 5.0, "device"),
        ("rank 2, device 0", 100, 1_000, None, "allocator"),
    ]
    assert state.cpu is not None
    assert state.memory is not None
    assert state.device_memory is not None
    assert [(line.label, line.at_s, line.value) for line in state.cpu.series] == [
        ("n1", [1.0, 2.0], [40.0, 80.0])
    ]
    assert [(line.limit, line.value) for line in state.memory.series] == [(100.0, [50, 30])]
    assert [(line.label, line.at_s, line.value) for line in state.device_memory.series] == [
        ("rank 2, device 0", [1.0, 4.0], [500, 100])
    ]


def test_open_spans_metrics_and_cost_are_known_while_the_run_goes_on(tmp_path: Path) -> None:
    events: list[Event] = [
        SpanOpened(
            timestamp=at(1),
            name="train",
            tags={"epoch": 3},
            trace_id="",
            span_id="s",
            parent_id=None,
            elapsed_s=1.0,
        ),
        Metric(timestamp=at(3), name="loss", value=0.2, step=2),
        Metric(timestamp=at(2), name="loss", value=0.5, step=1),
        CostEstimate(timestamp=at(2), item="storage", amount=1.5, currency="EUR"),
    ]
    state = FollowedRun(make_run(tmp_path, events, **_RUNNING), now=now_at(9)).update()
    assert [(one.name, one.tags, one.elapsed_s, one.stuck) for one in state.open_spans] == [
        ("train", "epoch=3", 8.0, None)
    ]
    assert [(one.name, one.ended, one.open) for one in state.spans] == [("train", 0, 1)]
    assert [(one.name, one.value, one.step, one.count) for one in state.metrics] == [("loss", 0.2, 2, 2)]
    assert (state.cost, state.currency) == (1.5, "EUR")


def test_a_run_that_was_not_heard_of_for_long_says_so(tmp_path: Path) -> None:
    path = make_run(tmp_path, **_RUNNING)
    assert FollowedRun(path, now=now_at(54)).update().problems == ["no heartbeat of the run for 45 s"]
    assert FollowedRun(path, now=now_at(10)).update().problems == []


def test_a_folder_that_has_gone_leaves_what_was_read(tmp_path: Path) -> None:
    path = make_run(tmp_path, [submitted("a")], **_RUNNING)
    live = FollowedRun(path, now=now_at(10))
    assert live.update().progress.submitted == 1
    path.rename(tmp_path / "elsewhere")
    state = live.update()
    assert (state.progress.submitted, state.problems) == (1, [GONE])


def test_an_empty_run_has_no_progress_and_no_pictures(tmp_path: Path) -> None:
    state = FollowedRun(make_run(tmp_path), now=lambda: LATER).update()
    assert (state.progress.done, state.progress.left_s, state.timeline, state.concurrency, state.cpu) == (
        None,
    ) * 5
    assert (state.cache_hits, state.names, state.workers, len(state.log)) == (None, [], [], 2)
