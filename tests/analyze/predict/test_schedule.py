"""Durations on so many workers: the schedule that advice on workers and forecasts of plans go by."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.analyze.predict.eta import makespan, replay

DURATIONS = st.lists(st.floats(0, 1e6, allow_subnormal=False), max_size=60)
WORKERS = st.integers(1, 20)
TASKS = st.lists(
    st.tuples(
        st.floats(0, 1e3, allow_subnormal=False),
        st.floats(0, 1e3, allow_subnormal=False),
        st.sets(st.integers(0, 40), max_size=3),
    ),
    max_size=40,
)
"""When each can run, how long it takes, and which it needs."""


@given(DURATIONS, WORKERS)
def test_the_wall_time_is_between_what_no_schedule_beats_and_what_no_list_schedule_exceeds(
    durations, workers
):
    wall = makespan(durations, workers)
    longest, even = max(durations, default=0.0), math.fsum(durations) / workers
    assert max(longest, even) <= wall * (1 + 1e-9)
    assert wall <= (even + (1 - 1 / workers) * longest) * (1 + 1e-9)


@given(DURATIONS, WORKERS)
def test_one_worker_more_never_takes_longer(durations, workers):
    assert makespan(durations, workers + 1) <= makespan(durations, workers) * (1 + 1e-9)


@given(TASKS, WORKERS)
def test_no_task_ends_before_what_it_needs_and_its_own_time_are_over(tasks, workers):
    tasks = sorted(tasks, key=lambda task: task[0])
    needs = [
        sorted(other for other in needed if other < number) for number, (_, _, needed) in enumerate(tasks)
    ]
    earliest: list[float] = []
    for (release, duration, _), needed in zip(tasks, needs, strict=True):
        earliest.append(max([release, *(earliest[other] for other in needed)]) + duration)
    releases, durations = [task[0] for task in tasks], [task[1] for task in tasks]
    wall = replay(releases, durations, [0.0] * workers, needs)
    assert wall >= max(earliest, default=0.0) * (1 - 1e-9)
    assert wall <= (max(releases, default=0.0) + math.fsum(durations)) * (1 + 1e-9)
    assert replay(releases, durations, [0.0] * max(1, len(tasks)), needs) == pytest.approx(
        max(earliest, default=0.0)
    )


@given(DURATIONS, WORKERS)
def test_tasks_that_need_nothing_take_as_long_whether_or_not_that_is_said(durations, workers):
    chain_beside = [*durations, 0.0, 0.0]
    needs = [*([] for _ in durations), [], [len(durations)]]
    assert makespan(chain_beside, workers, needs) == makespan(durations, workers)


def test_what_can_run_first_goes_first():
    # The last one waited from 0 on, the third from 1 on: it is the third that runs from 4 to 10.
    assert makespan([1.0, 5.0, 6.0, 3.0], 2, [[], [], [0], []]) == 10.0


def test_a_chain_takes_as_long_on_many_workers_as_on_one():
    assert makespan([5.0] * 4, 8, [[], [0], [1], [2]]) == 20.0


def test_workers_that_come_later_take_tasks_from_then_on():
    assert replay([0.0] * 3, [10.0] * 3, [0.0, 4.0]) == 20.0


def test_tasks_that_wait_in_a_circle_count_for_nothing_and_nobody_waits_for_ever():
    assert makespan([1.0, 2.0, 3.0], 2, [[], [2], [1]]) == 1.0


def test_a_schedule_without_workers_is_refused():
    with pytest.raises(ValueError, match="at least 1 worker, not 0"):
        replay([0.0], [1.0], [])
