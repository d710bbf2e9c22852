"""A large run is shown before it was read: how far the reading is, and nothing that only the whole could
tell."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import msgspec
from builders.runs import START, at, make_run
from builders.task_events import completed, started, submitted

from flightlog.analyze.live.follow import FollowedRun
from flightlog.analyze.live.results import LiveState
from flightlog.core.time import SECOND, moment
from flightlog.events import Event, WorkerReady
from flightlog.show.live import head_lines
from flightlog.store import layout
from flightlog.store.documents import read_document, write_document
from flightlog.store.layout import RunInfo

RUNNING = {"status": "running", "end_time": None, "duration_s": None, "host": "elsewhere", "heartbeat": at(9)}


def now() -> float:
    return (moment(at(9)) or 0) / SECOND


def ticking() -> Callable[[], float]:
    """A clock on which every look at it takes a second."""
    ticks = count()
    return lambda: float(next(ticks))


def read_on(live: FollowedRun) -> list[LiveState]:
    states = [live.update(limit_s=0.5)]
    while states[-1].reading is not None:
        states.append(live.update(limit_s=0.5))
    return states


def many(tasks: int) -> list[Event]:
    events: list[Event] = [WorkerReady(timestamp=START, worker="w1", host="n", pid=1, launch_s=0.1)]
    for n in range(tasks):
        events += [submitted(f"t{n}"), started(f"t{n}", 1), completed(f"t{n}", 2, 1.0)]
    return [*events, submitted("x"), started("x", 2), submitted("y")]


def test_a_running_run_that_is_not_read_yet_has_counts_so_far_and_no_shares_times_or_tasks_that_hang(
    tmp_path: Path,
) -> None:
    path = make_run(tmp_path, many(1_000), **RUNNING)
    *partly, whole = read_on(FollowedRun(path, now=now, clock=ticking()))
    assert len(partly) > 2
    counts = [state.progress.completed for state in (*partly, whole)]
    assert (counts, counts[-1]) == (sorted(counts), 1_000)
    for state in partly:
        progress = state.progress
        assert (progress.done, progress.left_s, progress.per_s) == (None, None, None)
        assert (state.doing, state.open_spans, state.workers) == ([], [], [])
        assert state.problems == [f"still reading: {state.reading:.0%}"]
        assert f"{progress.submitted:,} tasks so far" in "\n".join(head_lines(state, width=100))
    assert whole.progress.done == 1_000 / 1_002
    assert ([one.task_id for one in whole.doing], len(whole.workers), whole.problems) == (["x"], 1, [])


def test_what_comes_later_than_the_first_reading_hides_nothing_of_what_is_known(tmp_path: Path) -> None:
    path = make_run(tmp_path, many(5), **RUNNING)
    live = FollowedRun(path, now=now, clock=ticking())
    assert read_on(live)[-1].progress.done == 5 / 7
    folder = layout.writer_folder(path, "late")
    folder.mkdir(parents=True)
    with layout.stream_file(folder, "tasks").open("wb") as file:
        for number in range(3_000):
            event = submitted(f"late{number}")
            event.writer, event.seq = "late", number
            file.write(msgspec.json.encode(event) + b"\n")
    behind = live.update(limit_s=0.5)
    assert behind.reading is not None
    assert (behind.progress.done is not None, [one.task_id for one in behind.doing]) == (True, ["x"])


def test_the_last_look_at_a_large_run_that_ended_is_taken_in_pieces_too(tmp_path: Path) -> None:
    events = [submitted(f"t{n}", 0.0, text="x" * 4_000) for n in range(1_000)]
    path = make_run(tmp_path, events, **RUNNING)
    live = FollowedRun(path, now=now, clock=ticking())
    read_on(live)
    info = read_document(path / layout.RUN, RunInfo).value
    assert info is not None
    info.status, info.end_time, info.duration_s = "completed", at(9), 9.0
    write_document(path / layout.RUN, info)
    states = read_on(live)
    assert len(states) > 2
    assert [state.progress.submitted for state in states] == [1_000] * len(states)
