"""A run that is being written says what is wrong with its recording, as the report will."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from builders.runs import START, at, make_run
from builders.task_events import completed, started, submitted

from flightlog.analyze.limits import LiveLimits
from flightlog.analyze.live.follow import FollowedRun, with_headline
from flightlog.analyze.report.report import report_on
from flightlog.core.time import SECOND, moment
from flightlog.events import Event, Metric, ResourceSample, SpanOpened
from flightlog.export.prometheus.run_metrics import RunWatch
from flightlog.show.live import head_lines
from flightlog.store import layout
from flightlog.store.documents import write_document
from flightlog.store.layout import WriterInfo
from flightlog.store.limits import StoreLimits
from flightlog.store.liveness import Observer
from flightlog.store.run import Run

RUNNING = {"status": "running", "end_time": None, "duration_s": None, "host": "elsewhere", "heartbeat": at(9)}


def now() -> float:
    return (moment(at(9)) or 0) / SECOND


def numbered(*events: Event, writer: str = "w1", since: int = 0) -> list[bytes]:
    lines = []
    for number, event in enumerate(events, since):
        event.writer, event.seq = writer, number
        lines.append(msgspec.json.encode(event) + b"\n")
    return lines


def append(file: Path, *lines: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as out:
        out.writelines(lines)


@pytest.fixture
def running(tmp_path: Path) -> Path:
    return make_run(tmp_path, **RUNNING)


def tasks_of(run: Path) -> Path:
    return layout.stream_file(layout.writer_folder(run, "w1"), "tasks")


def but_unclosed(problems: list[str]) -> list[str]:
    """Without the sentence on writers that are open, which of a run that goes on says nothing."""
    return [one for one in problems if "(w1)" not in one]


def test_lines_that_cannot_be_read_are_counted_once_however_often_one_looks(running: Path) -> None:
    lines = numbered(*(submitted(f"t{n}") for n in range(4)))
    append(
        tasks_of(running),
        lines[0],
        b"garbage\n",
        b"[1, 2]\n",
        *lines[1:],
        b"x" * (StoreLimits.max_line_bytes + (2 << 20)),
        b"\n",
    )
    tail = layout.tail_file(layout.writer_folder(running, "w1"), "tasks", "a")
    append(tail, b"garbage, too\n", b"\0" * 100)
    live = FollowedRun(running, now=now)
    looks = [live.update() for _ in range(3)]
    said = [
        "tasks: 3 lines without an event",
        "tasks: 1 line too long to be an event: line 7 of tasks.jsonl has 18.0 MiB",
    ]
    assert [one.problems for one in looks] == [said] * 3
    assert looks[-1].progress.submitted == 4
    assert but_unclosed(list(Run(running).completeness().problems)) == said


def test_a_line_that_stays_cut_off_is_told_and_one_that_is_just_written_is_not(running: Path) -> None:
    first, second = numbered(submitted("a"), submitted("b"))
    append(tasks_of(running), first, second[:20])
    live = FollowedRun(running, now=now)
    assert live.update().problems == []
    assert live.update().problems == ["tasks: 1 line cut off in the middle"]
    append(tasks_of(running), second[20:])
    assert live.update().problems == []
    assert live.update().progress.submitted == 2


def test_lines_that_are_missing_are_told_when_they_do_not_come(running: Path) -> None:
    lines = numbered(*(submitted(f"t{n}") for n in range(6)))
    append(tasks_of(running), lines[0], lines[3])
    live = FollowedRun(running, now=now)
    assert live.update().problems == []
    append(tasks_of(running), lines[1], lines[5])
    assert live.update().problems == ["tasks: 1 line of writer w1 lost: no. 2"]
    assert live.update().problems == ["tasks: 2 lines of writer w1 lost: no. 2, 4"]
    assert but_unclosed(list(Run(running).completeness().problems)) == live.update().problems


def test_a_stream_of_which_nothing_is_there_is_told(running: Path) -> None:
    info = WriterInfo(
        writer="w1", host="elsewhere", pid=1, started=START, heartbeat=at(9), lines={"cache": 3}
    )
    folder = layout.writer_folder(running, "w1")
    folder.mkdir(parents=True)
    write_document(folder / layout.WRITER, info)
    live = FollowedRun(running, now=now)
    live.update()
    assert live.update().problems == ["cache: 3 lines of writer w1 lost: no. 0 to 2"]
    assert but_unclosed(list(Run(running).completeness().problems)) == live.update().problems


def test_a_file_that_became_shorter_is_told_and_what_it_held_still_counts(running: Path) -> None:
    lines = numbered(*(submitted(f"t{n}") for n in range(8)))
    append(tasks_of(running), *lines[:6])
    live = FollowedRun(running, now=now)
    assert live.update().progress.submitted == 6
    with tasks_of(running).open("r+b") as file:
        file.truncate(len(lines[0]))
    append(tasks_of(running), lines[6], lines[7])
    state = live.update()
    assert state.progress.submitted == 8
    assert state.problems == [
        f"{tasks_of(running).relative_to(running)} became shorter while it was read; what it held before "
        "still counts"
    ]


def test_a_run_that_was_killed_says_what_its_report_says(tmp_path: Path) -> None:
    ended = {"status": "crashed", "end_time": None, "duration_s": None, "heartbeat": at(9)}
    path = make_run(tmp_path, **ended)
    lines = numbered(submitted("a"), submitted("b"), completed("a", 1, 1.0), completed("b", 2, 1.0))
    append(tasks_of(path), lines[0], b"garbage\n", lines[2], lines[3][:30])
    said = FollowedRun(path, now=now).update().problems
    assert said == list(Run(path).completeness().problems)
    assert [one.partition(": ")[0] for one in said[:3]] == ["tasks"] * 3
    assert ("(w1)" in said[3], len(said)) == (True, 4)


def test_of_very_many_problems_the_number_is_told(running: Path) -> None:
    for number in range(LiveLimits.max_listed_problems + 5):
        append(layout.stream_file(running, f"user.s{number}"), b"garbage\n")
    problems = FollowedRun(running, now=now).update().problems
    assert (len(problems), problems[-1]) == (LiveLimits.max_listed_problems + 1, "… and 5 more problems")


def test_the_live_view_shows_three_problems_and_how_many_more_there_are(running: Path) -> None:
    for number in range(5):
        append(layout.stream_file(running, f"user.s{number}"), b"garbage\n")
    head = head_lines(FollowedRun(running, now=now).update(), width=100)
    assert [line for line in head if line.startswith("! ")] == [
        "! user.s0: 1 line without an event",
        "! user.s1: 1 line without an event",
        "! user.s2: 1 line without an event",
        "! … and 2 more problems",
    ]


def test_what_a_dead_process_left_open_lasted_to_its_last_sign_of_life(tmp_path: Path) -> None:
    run = make_run(tmp_path, **{**RUNNING, "heartbeat": at(3000)})
    for writer, heartbeat in (("w1", at(3000)), ("w2", at(500))):
        info = WriterInfo(writer=writer, pid=77, host="elsewhere", heartbeat=heartbeat)
        layout.writer_folder(run, writer).mkdir(parents=True)
        write_document(layout.writer_folder(run, writer) / layout.WRITER, info)
    folder = layout.writer_folder(run, "w2")
    opened = SpanOpened(
        timestamp=at(1), name="outer", span_id="s1", elapsed_s=1.0, tags={}, trace_id="1" * 32, parent_id=None
    )
    append(layout.stream_file(folder, "spans"), *numbered(opened, writer="w2"))
    append(layout.stream_file(folder, "tasks"), *numbered(submitted("t"), started("t", 2.0), writer="w2"))
    looked = (moment(at(3000)) or 0) / SECOND
    state = FollowedRun(run, now=lambda: looked).update()
    ages = {"outer": 499.0, "sim": 498.0}
    assert {one.name: one.elapsed_s for one in state.open_spans} == {"outer": ages["outer"]}
    assert {one.task: one.elapsed_s for one in state.doing} == {"sim": ages["sim"]}
    found = report_on(Run(run, observer=Observer(now=looked, host="here")))
    assert {one.name: one.elapsed_s for one in found.in_flight} == ages


def test_a_line_without_a_time_is_not_taken_for_the_latest(running: Path) -> None:
    samples = [
        ResourceSample(timestamp=stamp, scope="node", host="n1", cpu_percent=percent)
        for stamp, percent in (("yesterday", 10.0), (at(5), 50.0))
    ]
    values = [
        Metric(timestamp=stamp, name="loss", value=value) for stamp, value in (("never", 9.0), (at(5), 0.5))
    ]
    folder = layout.writer_folder(running, "w1")
    append(layout.stream_file(folder, "resources"), *numbered(*samples[::-1]))
    append(layout.stream_file(folder, "metrics"), *numbered(*values[::-1]))
    state = FollowedRun(running, now=now).update()
    assert [one.value for one in state.metrics] == [0.5]
    found = RunWatch(running).look(Observer(now=now(), host="here"))
    assert found.values["node_cpu_ratio"] == {("n1",): 0.5}


def test_an_event_without_a_field_that_it_must_have_counts_as_in_the_report(running: Path) -> None:
    line = {"event": "failure", "error_type": "E", "message": "m", "writer": "w1", "seq": 0}
    file = layout.stream_file(layout.writer_folder(running, "w1"), "failures")
    append(file, msgspec.json.encode({**line, "timestamp": at(2)}) + b"\n")
    live = FollowedRun(running, now=now)
    counts = [live.update().failures_all, report_on(Run(running)).failures.count]
    _end(running)
    counts += [one.update().failures_all for one in (live, FollowedRun(running, now=now))]
    assert counts == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("stream", "event", "said"),
    [
        ("failures", "failure", {}),
        ("failures", "failure", {"scope": "run"}),
        ("resources", "resource_sample", {}),
        ("resources", "resource_sample", {"scope": "gpu"}),
        ("resources", "resource_sample", {"scope": "worker", "worker": "k"}),
        ("metrics", "metric", {"name": "loss"}),
        ("cache", "cache_lookup", {}),
        ("devices", "device_memory", {"event_type": "critical"}),
        ("devices", "device_memory", {"event_type": "sample", "timestamp_ns": 1}),
        ("tasks", "task_failed", {"task_id": "a"}),
        ("spans", "span_open", {"span_id": "s"}),
    ],
)
def test_an_event_that_says_next_to_nothing_is_shown_while_the_run_goes_on_and_after(
    running: Path, stream: str, event: str, said: dict[str, object]
) -> None:
    line = {"event": event, "writer": "w1", "seq": 0, "timestamp": at(2), **said}
    file = layout.stream_file(layout.writer_folder(running, "w1"), stream)
    append(file, msgspec.json.encode(line) + b"\n")
    watch, observer = RunWatch(running), Observer(now=now(), host="here")
    looks = [(FollowedRun(running, now=now).update(), watch.look(observer))]
    _end(running)
    info = WriterInfo(writer="w1", pid=1, host="elsewhere", closed=True, owner=True, lines={stream: 1})
    write_document(running / layout.RECORDER, {"writers": [info]})
    looks.append((FollowedRun(running, now=now).update(), watch.look(observer)))
    states = [(state.failures_all, len(state.metrics), len(state.hosts)) for state, _ in looks]
    assert states[0] == states[1]
    assert looks[0][1].values["failures"] == looks[1][1].values["failures"]


def _end(run: Path, **facts: object) -> None:
    info = msgspec.json.decode((run / layout.RUN).read_bytes())
    ended = {"status": "completed", "end_time": at(10), "duration_s": 10.0}
    write_document(run / layout.RUN, info | ended | facts)


def test_a_run_that_lost_the_lines_of_its_tasks_shows_what_it_counted(tmp_path: Path) -> None:
    run = make_run(tmp_path, [submitted("a")], tasks_submitted=9, tasks_completed=6, tasks_failed=1)
    (run / "tasks.jsonl").unlink()
    state = FollowedRun(run, now=now).update()
    found = state.progress
    assert (found.submitted, found.completed, found.failed, found.waiting) == (9, 6, 1, 2)
    assert state.problems == ["tasks: 1 line of writer w0000001 lost: no. 0"]
    values = RunWatch(run).look(Observer(now=now(), host="here")).values
    assert (values["tasks"], values["tasks_completed"]) == (None, None)


def test_a_run_that_is_over_is_shown_anew_when_only_its_document_changes(running: Path) -> None:
    append(tasks_of(running), *numbered(submitted("a"), started("a", 1.0)))
    live = FollowedRun(running, now=now)
    live.update()
    _end(running)
    ends = [live.update().log[0].at for _ in range(2)]
    _end(running, end_time=at(20), status="failed")
    state = live.update()
    assert [*ends, state.log[0].at, state.end_time] == [at(10), at(10), at(20), at(20)]


def test_counts_that_a_summary_does_not_know_are_not_0(tmp_path: Path) -> None:
    run = make_run(tmp_path, [submitted("a"), completed("a", 2.0, 1.0)])
    state = FollowedRun(run, now=now).update()
    (run / layout.SUMMARY).write_bytes(b'{"tasks": {"submitted": 5, "completed": null}}')
    assert with_headline(state, run) == state


def test_lines_that_stand_twice_are_told_when_a_followed_run_is_over(running: Path) -> None:
    lines = numbered(submitted("a"), submitted("b"), submitted("c"))
    append(tasks_of(running), *lines[:2])
    live = FollowedRun(running, now=now)
    live.update()
    append(tasks_of(running), lines[2], lines[0])
    assert live.update().problems == []
    _end(running)
    assert but_unclosed(live.update().problems) == ["tasks: 1 line standing twice, taken once"]
    assert live.update().progress.submitted == 3
