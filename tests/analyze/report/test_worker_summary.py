from __future__ import annotations

from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from builders.examples import FEW
from builders.runs import at, make_run
from builders.task_events import completed, failed, started, submitted
from hypothesis import given
from hypothesis import strategies as st

from flightlog.analyze.report.summary import summarize
from flightlog.analyze.report.workers import Worker, WorkerSummary
from flightlog.events import Event, WorkerEvent, WorkerLaunched, WorkerLost, WorkerReady, WorkerRemoved
from flightlog.store.run import Run


def ready(worker: str, when: float) -> WorkerEvent:
    return WorkerReady(timestamp=at(when), worker=worker, host="n1", pid=1)


def removed(worker: str, when: float, **more: float) -> WorkerEvent:
    return WorkerRemoved(timestamp=at(when), worker=worker, host="n1", pid=1, reason="done", **more)


def workers(*events: Event, until: float = 60.0) -> WorkerSummary:
    with TemporaryDirectory(prefix="flightlog-test-") as folder:
        run = make_run(Path(folder), list(events), end_time=at(until), duration_s=until)
        return summarize(Run(run)).workers


def test_the_tutorials_example_of_75_percent_efficiency() -> None:
    events: list[Event] = [ready(f"w{n}", 0) for n in range(4)]
    events += [completed(f"t{n}", 45, 45.0, f"w{n}") for n in range(4)]
    summary = workers(*events)
    assert (summary.peak, summary.uptime_s, summary.busy_s) == (4, 240.0, 180.0)
    assert (summary.efficiency, summary.utilization) == (0.75, 0.75)


def test_without_workers_nothing_is_known_of_their_use() -> None:
    assert workers(submitted("a")) == WorkerSummary(
        count=0,
        peak=0,
        peak_busy=0,
        lost=0,
        uptime_s=0.0,
        busy_s=0.0,
        utilization=None,
        efficiency=None,
        by_worker={},
    )


def test_failed_attempts_occupy_a_worker_and_are_no_useful_work() -> None:
    summary = workers(ready("w1", 0), failed("a", 30, 30.0), completed("b", 45, 15.0))
    assert (summary.utilization, summary.efficiency) == (0.75, 0.25)


def test_a_worker_that_only_tasks_name_is_up_from_its_first_start_to_its_last_end() -> None:
    summary = workers(completed("a", 4, 2.0), completed("b", 10, 4.0))
    assert summary.by_worker == {
        "w1": Worker(host=None, tasks=2, busy_s=6.0, uptime_s=8.0, utilization=0.75, lost=None)
    }


def test_an_attempt_in_flight_holds_its_worker_to_the_end() -> None:
    summary = workers(ready("w1", 0), started("a", 15))
    assert (summary.busy_s, summary.utilization, summary.efficiency) == (45.0, 0.75, 0.0)
    assert summary.by_worker["w1"].tasks == 1


def test_tasks_side_by_side_on_one_worker_count_once_in_its_utilization() -> None:
    summary = workers(ready("w1", 0), completed("a", 30, 30.0), completed("b", 30, 30.0), until=30)
    assert (summary.utilization, summary.efficiency) == (1.0, 2.0)


def test_a_worker_counts_from_ready_and_not_from_launched() -> None:
    launched = WorkerLaunched(timestamp=at(0), worker="w1", host="n1", pid=1)
    assert workers(launched, ready("w1", 20)).uptime_s == 40.0
    assert workers(launched).uptime_s == 60.0


def test_a_worker_that_came_back_under_its_name_was_down_in_between() -> None:
    lost = WorkerLost(timestamp=at(10), worker="w1", host="n1", pid=1, reason="killed for memory")
    summary = workers(ready("w1", 0), lost, ready("w1", 20), removed("w1", 50))
    assert (summary.uptime_s, summary.lost, summary.by_worker["w1"].lost) == (40.0, 1, "killed for memory")


def test_a_removed_worker_whose_beginning_is_unknown_tells_its_own_uptime() -> None:
    assert workers(removed("w1", 50, uptime_s=30.0)).uptime_s == 30.0


def test_the_peak_is_of_workers_up_at_once_and_the_busy_peak_of_those_at_work() -> None:
    summary = workers(
        ready("w1", 0),
        removed("w1", 10),
        ready("w2", 10),
        ready("w3", 12),
        completed("a", 5, 5.0, "w1"),
        completed("b", 20, 5.0, "w2"),
    )
    assert (summary.count, summary.peak, summary.peak_busy) == (3, 2, 1)


seconds = st.integers(0, 60)


@FEW
@given(
    st.lists(st.tuples(seconds, seconds, st.sampled_from(["w1", "w2"]), st.booleans()), max_size=12),
    st.lists(st.tuples(st.sampled_from(["w1", "w2", "w3"]), seconds, seconds), max_size=4),
)
def test_utilization_never_passes_one_and_busy_time_never_uptime(attempts: list, ups: list) -> None:
    events: list[Event] = []
    for number, (end, duration, worker, good) in enumerate(attempts):
        made = completed if good else failed
        events.append(made(f"t{number}", 60 + end, float(duration), worker))
    for worker, start, lasted in ups:
        events += [ready(worker, 60 + start), removed(worker, 60 + start + lasted)]
    summary = workers(*events, until=180)
    assert 0 <= summary.busy_s <= summary.uptime_s
    assert summary.utilization is None or 0 <= summary.utilization <= 1
    assert summary.peak_busy <= summary.peak <= summary.count
    for worker in summary.by_worker.values():
        assert worker.busy_s <= worker.uptime_s


@pytest.mark.parametrize("order", list(product([False, True], repeat=2)))
def test_the_order_of_worker_events_changes_nothing(order: tuple[bool, bool]) -> None:
    life = [ready("w1", 0), removed("w1", 10), ready("w1", 20), removed("w1", 30)]
    tasks = [started("a", 1), completed("a", 5, 4.0)]
    events = [*(reversed(life) if order[0] else life), *(reversed(tasks) if order[1] else tasks)]
    assert workers(*events) == workers(*life, *tasks)
