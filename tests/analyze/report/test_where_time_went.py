"""Shares, concurrency, critical path and span tree against a slow path that shares no code with them."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from tempfile import mkdtemp

import pytest
from builders import slow_report
from builders.drawn_runs import Clock, a_task, a_worker, events_of
from builders.examples import FEW
from builders.runs import at, make_run
from hypothesis import given
from hypothesis import strategies as st

from flightlog.analyze.report.report import Report, report_on
from flightlog.demo.sweep import sweep
from flightlog.events import (
    Event,
    SpanEvent,
    SpanOpened,
)
from flightlog.store.run import Run

PARTS = ("run", "unfinished", "failed", "transfer", "scheduler", "startup", "idle")


def nanoseconds(lasted: float | None) -> int:
    return round((lasted or 0.0) * 1e9)


def check(path: Path) -> Report:
    """Everything a report says of the time, held against the slow path."""
    report = report_on(Run(path))
    check_shares(report, path)
    check_chain(report, path)
    held = [one for one in slow_report.attempts(path) if one["began"] is not None]
    assert (report.concurrency is None) == (not held)
    if report.concurrency is not None:
        assert report.concurrency.running == pytest.approx(slow_report.running(path, 60), abs=1e-9)
    assert report.details is not None
    found = {
        (node.task, tuple(node.path)): (
            node.count,
            *map(nanoseconds, (node.total_s, node.wall_s, node.self_s)),
        )
        for node in report.details.span_tree.nodes
    }
    assert found == slow_report.tree(path)
    return report


def check_shares(report: Report, path: Path) -> None:
    slow = slow_report.shares(path)
    if report.time is None or report.time.basis == "wall":
        assert slow == {}
        return
    assert report.time.by_worker.keys() == slow.keys()
    for name, parts in slow.items():
        split = report.time.by_worker[name]
        found = {part: nanoseconds(getattr(split, f"{part}_s")) for part in PARTS}
        assert found == {
            "run": parts["run"],
            "unfinished": parts["unfinished"],
            "failed": parts["failed"] + parts["retried"],
            "transfer": 0,
            "scheduler": parts["scheduler"],
            "startup": parts["startup"],
            "idle": parts["behind"] + parts["alone"],
        }
        assert (nanoseconds(split.idle_behind_s), nanoseconds(split.idle_alone_s)) == (
            parts["behind"],
            parts["alone"],
        )
        assert nanoseconds(split.retried_s) == parts["retried"]
        assert sum(found.values()) == nanoseconds(split.total_s)
    whole = report.time.whole
    assert sum(nanoseconds(getattr(whole, f"{part}_s")) for part in PARTS) == nanoseconds(whole.total_s)
    assert (whole.uptime_s, whole.busy_s) == (report.workers.uptime_s, report.workers.busy_s)


def check_chain(report: Report, path: Path) -> None:
    held = [one for one in slow_report.attempts(path) if one["began"] is not None]
    if not held:
        assert report.critical_path is None or report.critical_path.of == "spans"
        return
    chain = report.critical_path
    assert chain is not None
    slow = slow_report.Path_(path)
    assert {(part.kind, part.name): nanoseconds(part.seconds) for part in chain.parts} == slow.parts()
    assert sum(nanoseconds(part.seconds) for part in chain.parts) == nanoseconds(chain.wall_s)
    assert nanoseconds(chain.wall_s) == slow.until - slow.start
    for part in chain.parts:
        if part.saves_s is not None:
            assert nanoseconds(part.saves_s) == slow.saved(part.name)
            assert part.kind == "task"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = sweep(tmp_path_factory.mktemp("demo") / "runs", 12, workers=2).path
    assert path is not None
    return path


def test_the_demos_numbers_are_those_of_the_slow_path(demo: Path) -> None:
    report = check(demo)
    assert report.time is not None
    assert report.time.whole.attempts == 14
    assert report.workers.efficiency == pytest.approx(report.time.whole.run_s / report.time.whole.uptime_s)


@pytest.mark.parametrize("seed", range(6))
def test_a_damaged_run_gives_what_is_left_of_it(demo: Path, tmp_path: Path, seed: int) -> None:
    path = tmp_path / demo.name
    shutil.copytree(demo, path)
    dice = random.Random(seed)
    for stream in ("tasks", "workers", "spans"):
        file = path / f"{stream}.jsonl"
        lines = file.read_bytes().splitlines(keepends=True)
        kept = [line for line in lines if dice.random() > 0.15]
        kept += dice.sample(kept, len(kept) // 5)  # some stand twice
        dice.shuffle(kept)
        if kept:
            kept[-1] = kept[-1][: dice.randrange(len(kept[-1]))]  # and the last is torn
        file.write_bytes(b"".join(kept))
    check(path)


@FEW
@given(st.lists(a_task(), max_size=8), st.lists(a_worker(), max_size=3), st.booleans())
def test_runs_of_any_shape_give_the_slow_paths_numbers(tasks: list, crew: list, closed: bool) -> None:
    folder = Path(mkdtemp(prefix="flightlog-test-"))
    facts = {} if closed else {"status": "crashed", "end_time": None, "duration_s": None, "heartbeat": at(12)}
    ends = {"end_time": at(20), "duration_s": 20.0} if closed else {}
    try:
        check(make_run(folder, events_of(tasks, crew), **facts, **ends))
    finally:
        shutil.rmtree(folder)


def test_an_instant_attempt_waited_for_the_task_before_it_on_its_worker(tmp_path: Path) -> None:
    short = {
        "name": "load",
        "worker": "w1",
        "component": None,
        "submitted": 0,
        "queued": False,
        "waits": 0,
        "lasts": 0,
        "ends": "completed",
        "retried": False,
        "measured": False,
        "needs": 0,
    }
    tasks = [short, {**short, "lasts": 2}, {**short, "waits": 1, "retried": True, "measured": True}]
    chain = check(make_run(tmp_path, events_of(tasks, []))).critical_path
    assert chain is not None
    assert [link.task_id for link in chain.longest if link.kind == "task"][:1] == ["t1"]


span = st.tuples(st.integers(0, 50), st.integers(0, 30), st.integers(-1, 8), st.sampled_from("abc"))
seen_open = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40)), max_size=6)


@FEW
@given(st.lists(span, min_size=1, max_size=9), seen_open, st.sets(st.integers(0, 8)))
def test_spans_seen_open_and_never_ended_are_in_the_slow_paths_tree_as_last_seen(
    spans: list, seen: list, ended: set
) -> None:
    folder = Path(mkdtemp(prefix="flightlog-test-"))
    clock = Clock()
    events: list[Event] = []
    for n, (began, lasted, parent, name) in enumerate(spans):
        ids = {
            "timestamp": clock(began),
            "name": name,
            "span_id": f"s{n}",
            "parent_id": f"s{parent}" if 0 <= parent < n else None,
        }
        for which, elapsed in seen:
            if which == n:
                events.append(SpanOpened(tags={}, trace_id="t", elapsed_s=elapsed / 10, **ids))
        if n in ended:
            events.append(SpanEvent(duration_s=lasted / 10, **ids))
    try:
        check(make_run(folder, events))
    finally:
        shutil.rmtree(folder)


@FEW
@given(st.lists(span, min_size=1, max_size=9))
def test_spans_of_any_shape_give_the_slow_paths_tree(spans: list) -> None:
    folder = Path(mkdtemp(prefix="flightlog-test-"))
    clock = Clock()
    events = [
        SpanEvent(
            timestamp=clock(began),
            name=name,
            span_id=f"s{n}",
            duration_s=lasted / 10,
            parent_id=f"s{parent}" if 0 <= parent < n else None,
        )
        for n, (began, lasted, parent, name) in enumerate(spans)
    ]
    try:
        path = make_run(folder, events)
        report = check(path)
        assert report.time is not None
        assert report.time.basis == "wall"
        covered = report.spans.wall_s if max(began + lasted for began, lasted, *_ in spans) < 99 else None
        assert covered is None or report.time.whole.run_s == pytest.approx(covered)
        chain = report.critical_path
        if chain is not None:
            assert sum(nanoseconds(part.seconds) for part in chain.parts) == nanoseconds(chain.wall_s)
    finally:
        shutil.rmtree(folder)
