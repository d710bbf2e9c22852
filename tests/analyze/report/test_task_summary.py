from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from builders.examples import FEW
from builders.runs import at, make_run
from builders.task_events import completed, failed, started, submitted
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from flightlog.analyze.report.metrics import MetricStats
from flightlog.analyze.report.report import report_on
from flightlog.analyze.report.summary import summarize
from flightlog.analyze.report.tasks import TaskInFlight, TaskRow, TaskSummary
from flightlog.core.stats import Distribution, distribution
from flightlog.events import Event, TaskCancelled, TaskRetried
from flightlog.store.completing import open_run


def tally(*events: Event) -> TaskSummary:
    with TemporaryDirectory(prefix="flightlog-test-") as folder:
        return summarize(
            open_run(make_run(Path(folder), list(events), end_time=at(10), duration_s=10.0))
        ).tasks


def counts(summary: TaskSummary) -> dict[str, int]:
    names = ("submitted", "completed", "failed", "cancelled", "retried", "running", "pending")
    return {name: getattr(summary, name) for name in names if getattr(summary, name)}


def test_a_run_without_tasks_counts_nothing_and_knows_no_duration() -> None:
    nothing = Distribution()
    assert tally() == TaskSummary(
        submitted=0,
        completed=0,
        failed=0,
        cancelled=0,
        retried=0,
        running=0,
        pending=0,
        duration_s=nothing,
        queue_s=nothing,
        failed_s=0.0,
        names=0,
        by_name={},
        slowest=[],
        in_flight=[],
    )


def test_durations_come_from_the_worker_and_not_from_the_timestamps() -> None:
    summary = tally(submitted("a"), started("a", 1), completed("a", 9, 4.2))
    assert summary.duration_s == distribution([4.2])


def test_a_duration_nobody_measured_is_unknown_and_not_guessed() -> None:
    summary = tally(submitted("a"), started("a", 1), completed("a", 9, None))
    assert (summary.completed, summary.duration_s) == (1, Distribution())


def test_failed_and_cancelled_time_is_kept_apart_from_durations() -> None:
    cancelled = TaskCancelled(timestamp=at(3), task="sim", task_id="c", args={}, worker="w1", duration_s=0.5)
    summary = tally(completed("a", 2, 1.0), failed("b", 3, 2.0), cancelled)
    assert summary.duration_s == distribution([1.0])
    assert summary.failed_s == 2.5
    assert counts(summary) == {"completed": 1, "failed": 1, "cancelled": 1}


def test_a_task_that_succeeds_at_the_second_attempt_did_not_fail() -> None:
    summary = tally(
        submitted("a"),
        started("a", 1),
        failed("a", 2, 1.0),
        TaskRetried(timestamp=at(2), task="sim", task_id="a", attempt=1, reason="flaky"),
        started("a", 3, attempt=2),
        completed("a", 4, 1.0, attempt=2),
    )
    assert counts(summary) == {"submitted": 1, "completed": 1, "retried": 1}


def test_an_attempt_that_only_a_retry_ended_is_not_in_flight() -> None:
    retried = TaskRetried(timestamp=at(2), task="sim", task_id="a", attempt=1, reason="lost")
    summary = tally(submitted("a"), started("a", 1), retried)
    assert counts(summary) == {"submitted": 1, "retried": 1}
    assert summary.in_flight == []


def test_a_started_task_without_an_end_is_in_flight_with_its_arguments(tmp_path: Path) -> None:
    path = make_run(
        tmp_path, [submitted("a", seed=7), started("a", 4)], status="crashed", end_time=None, duration_s=None
    )
    summary = summarize(open_run(path))
    assert summary.tasks.in_flight == [
        TaskInFlight(
            task="sim", task_id="a", attempt=1, args={"seed": 7}, worker="w1", since=at(4), elapsed_s=0.0
        )
    ]


def test_a_submitted_task_that_never_started_is_pending() -> None:
    assert counts(tally(submitted("a"), submitted("b"), completed("b", 2, 1.0))) == {
        "submitted": 2,
        "completed": 1,
        "pending": 1,
    }


def test_queueing_is_counted_once_an_attempt_whoever_tells_it() -> None:
    summary = tally(
        started("a", 1, queue_s=1.0),
        completed("a", 2, 1.0, queue_s=1.0),
        started("b", 1, queue_s=2.0),
        completed("b", 2, 1.0),
        completed("c", 2, 1.0, queue_s=3.0),
        started("d", 1, queue_s=4.0),
    )
    assert summary.queue_s == distribution([1.0, 2.0, 3.0, 4.0])


def test_the_slowest_are_ten_and_in_order() -> None:
    summary = tally(*(completed(f"t{n:02d}", 5, float(n), args={"n": n}) for n in range(30)))
    assert [row.duration_s for row in summary.slowest] == [float(n) for n in range(29, 19, -1)]
    assert summary.slowest[0] == TaskRow(
        task="sim", task_id="t29", args={"n": 29}, duration_s=29.0, worker="w1"
    )


def test_a_whole_report_lists_the_three_slowest_of_each_name(tmp_path: Path) -> None:
    events = [completed(f"{task}{n}", 5, n / 4, task=task, args={"n": n}) for task in "ab" for n in range(5)]
    events += [failed("a9", 5, 3.0, task="a"), completed("b9", 5, None, task="b")]
    details = report_on(open_run(make_run(tmp_path, events))).details
    assert details is not None
    assert details.slowest == {
        task: [
            TaskRow(task=task, task_id=f"{task}{n}", args={"n": n}, duration_s=n / 4, worker="w1")
            for n in (4, 3, 2)
        ]
        for task in "ab"
    }


def test_each_name_has_its_own_figures_use_and_metrics() -> None:
    summary = tally(
        completed(
            "a", 2, 1.0, cpu_s=0.5, cpu_scope="thread", peak_rss_bytes=10, rss_scope="process", read_bytes=3
        ),
        completed(
            "b", 3, 3.0, cpu_s=1.5, cpu_scope="thread", peak_rss_bytes=30, metrics={"loss": [0.5, 0.25]}
        ),
        completed("c", 3, 7.0, task="other"),
    )
    sim, other = summary.by_name["sim"], summary.by_name["other"]
    assert sim.completed == 2
    assert asdict(sim.duration_s) == pytest.approx(asdict(distribution([1.0, 3.0])))
    assert (sim.cpu_s, sim.cpu_scopes, sim.peak_rss_bytes, sim.rss_scopes) == (
        2.0,
        ["thread"],
        30,
        ["process", "unknown"],
    )
    assert (sim.read_bytes, sim.write_bytes) == (3, None)
    assert sim.metrics == {"loss": MetricStats(count=2, sum=0.75, mean=0.375, min=0.25, max=0.5, last=0.25)}
    assert (other.cpu_s, other.peak_rss_bytes, other.metrics) == (None, None, {})


lives = st.lists(
    st.tuples(
        st.sampled_from(["pending", "running", "completed", "failed", "retried"]),
        st.integers(0, 400).map(lambda n: n / 100),
        st.integers(0, 500).map(lambda n: n / 100),
        st.sampled_from(["w1", "w2", None]),
    ),
    max_size=15,
)


def events_of(life: list[tuple[str, float, float, str | None]]) -> list[Event]:
    events: list[Event] = []
    for number, (fate, start, duration, worker) in enumerate(life):
        key = f"t{number}"
        events.append(submitted(key, n=number))
        if fate == "pending":
            continue
        events.append(started(key, start, worker, queue_s=start))
        if fate == "completed":
            events.append(completed(key, start + duration, duration, worker))
        if fate in {"failed", "retried"}:
            events.append(failed(key, start + duration, duration, worker))
        if fate == "retried":
            events.append(TaskRetried(timestamp=at(start + duration), task="sim", task_id=key, reason="x"))
            events.append(completed(key, start + duration, 0.0, worker, attempt=2))
    return events


@given(lives, st.randoms(use_true_random=False))
@FEW
def test_the_order_of_events_changes_nothing(life: list, chance: random.Random) -> None:
    events = events_of(life)
    mixed = list(events)
    chance.shuffle(mixed)
    assert tally(*mixed) == tally(*events)


@given(lives)
@FEW
def test_every_submitted_task_is_counted_in_exactly_one_fate(life: list) -> None:
    summary = tally(*events_of(life))
    fates = summary.completed + summary.failed + summary.cancelled + summary.running + summary.pending
    assert fates == summary.submitted == len(life)
