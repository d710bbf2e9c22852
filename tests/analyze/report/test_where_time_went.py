"""Shares, concurrency, critical path and span tree of runs of which it is known where the time went."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from builders import drawn_runs
from builders.examples import FEW
from builders.pictures import SECONDS, STATES, Row, counted, drawn_run, pictures
from builders.runs import at, make_run
from builders.task_events import completed, failed, span, started, submitted
from hypothesis import given
from hypothesis import strategies as st

from flightlog.analyze.report.report import Report, report_on
from flightlog.analyze.report.time_shares import TimeSplit
from flightlog.events import Event, SpanOpened, TaskRetried, WorkerReady
from flightlog.store.run import Run

PARTS = ("run", "unfinished", "failed", "transfer", "scheduler", "startup", "idle")


def nanoseconds(lasted: float | None) -> int:
    return round((lasted or 0.0) * 1e9)


def parts_of(split: TimeSplit) -> dict[str, int]:
    """The seconds of a split, in the words of `pictures`."""
    found = {
        "run": split.run_s,
        "unfinished": split.unfinished_s,
        "failed": split.failed_s - split.retried_s,
        "retried": split.retried_s,
        "scheduler": split.scheduler_s,
        "startup": split.startup_s,
        "behind": split.idle_behind_s,
        "alone": split.idle_alone_s,
    }
    return {part: round(lasted, 9) for part, lasted in found.items() if lasted}


def check_sums(report: Report) -> None:
    """What adds up in every report."""
    if report.time is not None:
        for split in (report.time.whole, *report.time.by_worker.values()):
            assert sum(nanoseconds(getattr(split, f"{part}_s")) for part in PARTS) == nanoseconds(
                split.total_s
            )
            assert nanoseconds(split.idle_s) == nanoseconds(split.idle_behind_s) + nanoseconds(
                split.idle_alone_s
            )
    if report.time is not None and report.time.basis == "workers":
        whole = report.time.whole
        assert (whole.uptime_s, whole.busy_s) == (report.workers.uptime_s, report.workers.busy_s)
    chain = report.critical_path
    if chain is not None:
        assert sum(nanoseconds(part.seconds) for part in chain.parts) == nanoseconds(chain.wall_s)
        assert all(0 <= (part.saves_s or 0.0) <= chain.wall_s for part in chain.parts)


def check_picture(path: Path, rows: list[Row]) -> Report:
    report = report_on(Run(path))
    assert report.time is not None
    assert {name: parts_of(split) for name, split in report.time.by_worker.items()} == counted(rows)
    check_sums(report)
    return report


def test_every_second_of_a_worker_goes_to_what_it_did_or_waited_for(tmp_path: Path) -> None:
    rows = [
        Row("w1", "ssrrrrqqffRR....rrcc"),
        Row("w2", "  SSSRRRttqrr..uuuuu"),
        Row("w3", "...qqrrr   "),
    ]
    report = check_picture(drawn_run(tmp_path, *rows), rows)
    assert report.time is not None
    split = report.time.by_worker["w1"]
    assert parts_of(split) == {
        "startup": 2,
        "run": 8,
        "failed": 4,
        "scheduler": 2,
        "behind": 2,
        "alone": 2,
    }
    assert (split.total_s, split.uptime_s, split.busy_s, split.attempts) == (20.0, 18.0, 12.0, 5)


def test_a_worker_waits_for_tasks_of_its_own_component(tmp_path: Path) -> None:
    rows = [Row("w1", "qqrr", "cpu"), Row("w2", "....", "gpu"), Row("w3", "....", "cpu"), Row("w4", "....")]
    report = check_picture(drawn_run(tmp_path, *rows), rows)
    assert report.time is not None
    assert parts_of(report.time.by_worker["w2"]) == {"alone": 2, "behind": 2}
    assert parts_of(report.time.by_worker["w3"]) == {"scheduler": 2, "behind": 2}
    assert parts_of(report.time.by_worker["w4"]) == {"scheduler": 2, "behind": 2}


def test_a_worker_that_only_its_tasks_name_is_up_between_them(tmp_path: Path) -> None:
    path = make_run(tmp_path, [completed("a", 3, 1.0), completed("b", 8, 2.0), completed("c", 5, 1.0, "w2")])
    report = report_on(Run(path))
    assert report.time is not None
    assert parts_of(report.time.by_worker["w1"]) == {"run": 3, "behind": 1, "alone": 2}
    assert parts_of(report.time.by_worker["w2"]) == {"run": 1}


def test_of_tasks_at_once_on_one_worker_transfers_count_first_then_useful_work(tmp_path: Path) -> None:
    """Each sign is a second: what it counts as, and the tasks that ran then.

    rxrrrxxfrfttuurruuuu
    aaaaaa                completed, with transfers in its second and last second
        bbbbbb            failed, with a transfer in its second and third second
            c             completed
              ddd         failed, and was retried
                eeeeeeee  in flight
                  ff      completed
    """
    again = TaskRetried(timestamp=at(13), task="sim", task_id="d", attempt=1, delay_s=0.0, reason="bad seed")
    path = make_run(
        tmp_path,
        [
            WorkerReady(timestamp=at(0), worker="w1", host="n1", pid=1),
            completed("a", 6, 6.0, span_id="a" * 16),
            failed("b", 10, 6.0, span_id="b" * 16),
            completed("c", 9, 1.0),
            failed("d", 13, 3.0),
            again,
            started("e", 12),
            completed("f", 16, 2.0),
            span("transfer", 1, 1.0, "1" * 16, "a" * 16),
            span("serialize", 5, 1.0, "3" * 16, "a" * 16),
            span("deserialize", 5, 2.0, "2" * 16, "b" * 16),
        ],
        end_time=at(20),
        duration_s=20.0,
    )
    report = report_on(Run(path))
    check_sums(report)
    assert report.time is not None
    split = report.time.by_worker["w1"]
    assert parts_of(split) == {"run": 7, "failed": 2, "retried": 2, "unfinished": 6}
    assert (split.transfer_s, split.total_s) == (3.0, 20.0)


def test_tasks_of_one_kind_at_once_hold_a_worker_once(tmp_path: Path) -> None:
    attempts = [("a", 0, 6), ("b", 2, 4), ("c", 5, 9), ("d", 12, 15), ("e", 12, 13)]
    path = make_run(
        tmp_path,
        [
            WorkerReady(timestamp=at(0), worker="w1", host="n1", pid=1),
            *(completed(name, until, float(until - since)) for name, since, until in attempts),
        ],
        end_time=at(20),
        duration_s=20.0,
    )
    report = report_on(Run(path))
    check_sums(report)
    assert report.time is not None
    assert parts_of(report.time.by_worker["w1"]) == {"run": 12, "alone": 8}


def test_the_program_was_retrying_while_a_task_waited_to_be_retried(tmp_path: Path) -> None:
    rows = [Row("w1", "tt..rr")]
    report = check_picture(drawn_run(tmp_path, *rows), rows)
    assert report.tasks.retried == 1


@FEW
@given(pictures(), st.booleans(), st.booleans())
def test_seconds_are_counted_in_any_picture(rows: list[Row], closed: bool, measured: bool) -> None:
    with TemporaryDirectory(prefix="flightlog-test-") as folder:
        report = check_picture(drawn_run(Path(folder), *rows, closed=closed, measured=measured), rows)
    at_work = [
        sum((row.signs + " " * SECONDS)[second].lower() in STATES for row in rows)
        for second in range(SECONDS)
    ]
    if report.concurrency is None:
        assert not any(at_work)
    else:
        assert report.concurrency.running == pytest.approx(
            [number for number in at_work for _ in range(60 // SECONDS)]
        )


@FEW
@given(st.lists(drawn_runs.a_task(), max_size=8), st.lists(drawn_runs.a_worker(), max_size=3), st.booleans())
def test_the_parts_of_runs_of_any_shape_add_up(tasks: list, crew: list, closed: bool) -> None:
    facts: dict[str, Any] = {"end_time": at(20), "duration_s": 20.0}
    if not closed:
        facts = {"status": "crashed", "end_time": None, "duration_s": None, "heartbeat": at(12)}
    with TemporaryDirectory(prefix="flightlog-test-") as folder:
        check_sums(report_on(Run(make_run(Path(folder), drawn_runs.events_of(tasks, crew), **facts))))


def chain_parts(report: Report) -> dict[tuple[str, str], tuple[float, float | None]]:
    assert report.critical_path is not None
    return {(part.kind, part.name): (part.seconds, part.saves_s) for part in report.critical_path.parts}


def test_the_chain_goes_back_over_the_worker_that_was_busy_and_its_start_up(tmp_path: Path) -> None:
    rows = [Row("w1", " sssRRRqqr."), Row("w2", "...........")]
    waiting = [submitted("x", 0.0), started("x", 9.0, queue_s=9.0), completed("x", 10, 1.0)]
    early = [*waiting, submitted("t0-4", 0.0, task="load")]
    report = report_on(Run(drawn_run(tmp_path, *rows, more=early)))
    assert chain_parts(report) == {
        ("task", "load"): (3.0, 3.0),
        ("startup", "worker start-up"): (3.0, None),
        ("wait", "sim"): (2.0, None),
        ("program", "before the first task"): (1.0, None),
        ("program", "after the last task"): (1.0, None),
        ("task", "sim"): (1.0, 1.0),
    }


def test_an_instant_attempt_waited_for_the_task_before_it_on_its_worker(tmp_path: Path) -> None:
    again: dict[str, Any] = {"task": "load", "task_id": "t2"}
    events = [
        *(submitted(f"t{number}", 0.0, task="load") for number in range(3)),
        started("t0", 0.0, task="load", queue_s=0.0),
        completed("t0", 0, None, task="load"),
        started("t1", 0.1, task="load", queue_s=0.1),
        completed("t1", 0.3, None, task="load"),
        started("t2", 0.3, task="load", queue_s=0.3),
        TaskRetried(timestamp=at(0.3), reason="OSError", **again),
        started("t2", 0.4, task="load", queue_s=0.1, attempt=2),
        completed("t2", 0.4, 0.0, task="load", attempt=2),
    ]
    chain = report_on(Run(make_run(tmp_path, events))).critical_path
    assert chain is not None
    assert [link.task_id for link in chain.longest if link.kind == "task"] == ["t1"]


Link = tuple[int, int, int, int, str]
"""How long a program does something by itself, its task waits and lasts, and one beside it; and its name."""
link = st.tuples(
    st.integers(0, 3), st.integers(0, 3), st.integers(1, 5), st.integers(0, 4), st.sampled_from("ab")
)


def timetable(links: list[Link], instant: str = "") -> tuple[list[tuple[float, float, float, float]], float]:
    """When each task was submitted, began and ended, and the one beside it ended; and when all had ended."""
    now = latest = 0.0
    found = []
    for alone, waits, lasts, beside, name in links:
        queued, began = now + alone, now + alone + waits
        now = began + (0 if name == instant else lasts)
        found.append((queued, began, now, began + min(beside, lasts - 1)))
        latest = max(latest, *found[-1])
    return found, latest


@FEW
@given(st.lists(link, min_size=1, max_size=6), st.integers(0, 3))
def test_the_chain_is_the_one_that_the_program_went_through(links: list[Link], after: int) -> None:
    """The program does something, submits a task and a shorter one beside it, and waits for both."""
    times, end = timetable(links)
    events: list[Event] = []
    expected = Counter[tuple[str, str]]({("program", "after the last task"): after})
    for number, ((alone, waits, lasts, _, name), when) in enumerate(zip(links, times, strict=True)):
        queued, began, ended, ended_beside = when
        for task, until in ((name, ended), ("beside", ended_beside)):
            ids = f"{task}{number}"
            if until == began:  # of what takes no time nobody can say whether it was waited for
                continue
            events += [submitted(ids, queued, task=task), started(ids, began, ids, task=task)]
            events.append(completed(ids, until, until - began, ids, task=task))
        expected["program", "between tasks" if number else "before the first task"] += alone
        expected["wait", name] += waits
        expected["task", name] += lasts
    with TemporaryDirectory(prefix="flightlog-test-") as folder:
        run = make_run(Path(folder), events, end_time=at(end + after), duration_s=end + after)
        report = report_on(Run(run))
    assert chain_parts(report) == {
        (kind, name): (lasted, end - timetable(links, name)[1] if kind == "task" else None)
        for (kind, name), lasted in expected.items()
        if lasted
    }


# --- the tree of spans ---

Tree = tuple[str, int, list[Any]]
"""The name of a span, its own seconds before and after each span inside, and those."""
tree = st.recursive(
    st.tuples(st.sampled_from("abc"), st.integers(1, 3), st.just([])),
    lambda inside: st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.lists(inside, max_size=3)),
    max_leaves=8,
)


def lay_out(
    node: Tree, since: float, key: str, parent: str | None, above: tuple[str, ...], into: Any
) -> float:
    """The spans of a tree, one after the other; gives when it ended."""
    events, expected = into
    name, own, inside = node
    path, now = (*above, name), since + own
    for number, child in enumerate(inside):
        now = lay_out(child, now, f"{key}-{number}", key, path, into) + own
    events.append(span(name, since, now - since, key, parent))
    for figure, value in zip(
        ("count", "total", "own"), (1, now - since, own * (len(inside) + 1)), strict=True
    ):
        expected[path, figure] += value
    return now


def tree_of(path: Path) -> dict[tuple[str | None, tuple[str, ...]], tuple[int, float, float, float]]:
    details = report_on(Run(path)).details
    assert details is not None
    return {
        (node.task, tuple(node.path)): (node.count, node.total_s, node.wall_s, node.self_s)
        for node in details.span_tree.nodes
    }


@FEW
@given(st.lists(tree, min_size=1, max_size=3))
def test_spans_one_after_the_other_are_a_tree_of_their_own_times(trees: list[Tree]) -> None:
    events: list[Event] = []
    expected = Counter[tuple[tuple[str, ...], str]]()
    now = 0.0
    for number, node in enumerate(trees):
        now = lay_out(node, now, f"s{number}", None, (), (events, expected))
    random.Random(1).shuffle(events)
    paths = {path for path, _ in expected}
    with TemporaryDirectory(prefix="flightlog-test-") as folder:
        run = make_run(Path(folder), events, end_time=at(now + 1), duration_s=now + 1)
        report, found = report_on(Run(run)), tree_of(run)
    figures = {
        (None, path): tuple(expected[path, figure] for figure in ("count", "total", "total", "own"))
        for path in paths
    }
    assert found == figures
    assert report.time is not None
    assert (report.time.basis, report.time.whole.run_s) == ("wall", now)
    check_sums(report)


def test_spans_side_by_side_inside_of_tasks_and_open_ones_have_their_place_in_the_tree(
    tmp_path: Path,
) -> None:
    seen: dict[str, Any] = {"name": "hang", "tags": {}, "trace_id": "t", "span_id": "o", "parent_id": "m"}
    events = [
        span("main", 0, 8, "m"),
        span("part", 1, 3, "p1", "m"),
        span("part", 2, 3, "p2", "m"),
        SpanOpened(timestamp=at(6), elapsed_s=1.0, **seen),
        SpanOpened(timestamp=at(6), elapsed_s=2.5, **seen),
        *(started("t1", 1.0, span_id="a"), completed("t1", 5, 4.0, span_id="a")),
        span("solve", 1, 2, "x", "a"),
    ]
    assert tree_of(make_run(tmp_path, events)) == {
        (None, ("main",)): (1, 8.0, 8.0, 2.0),
        (None, ("main", "part")): (2, 6.0, 4.0, 6.0),
        (None, ("main", "hang")): (1, 4.0, 4.0, 4.0),
        ("sim", ("solve",)): (1, 2.0, 2.0, 2.0),
    }
