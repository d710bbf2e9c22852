"""Durations on so many workers: the schedule that advice on workers and predictions of plans go by."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.analyze.advice.schedule import Makespan, enough_workers, makespan, replay

DURATIONS = st.lists(st.floats(0, 1e6), max_size=60)
WORKERS = st.integers(1, 20)


@given(DURATIONS, WORKERS, st.floats(0, 10))
def test_the_wall_time_is_between_what_no_schedule_beats_and_what_no_list_schedule_exceeds(
    durations, workers, overhead
):
    held = [duration + overhead for duration in durations]
    wall, idle = makespan(durations, workers, overhead)
    longest, even = max(held, default=0.0), math.fsum(held) / workers
    assert max(longest, even) <= wall * (1 + 1e-9)
    assert wall <= (even + longest) * (1 + 1e-9)
    assert idle == pytest.approx(wall * workers - math.fsum(held), abs=1e-3)


@given(DURATIONS, WORKERS)
def test_one_worker_more_never_takes_longer(durations, workers):
    assert makespan(durations, workers + 1).wall_s <= makespan(durations, workers).wall_s * (1 + 1e-9)


@given(DURATIONS, WORKERS)
def test_a_replay_of_tasks_that_are_all_there_is_that_schedule(durations, workers):
    replayed = replay([0.0] * len(durations), durations, [0.0] * workers)
    assert replayed.wall_s == makespan(durations, workers).wall_s


@given(
    st.lists(st.tuples(st.floats(0, 1e3), st.floats(0, 1e3), st.sets(st.integers(0, 40), max_size=3)), max_size=40),
    WORKERS,
)  # fmt: skip
def test_no_task_of_a_replay_ends_before_what_it_needs_and_its_own_time_are_over(tasks, workers):
    tasks = sorted(tasks, key=lambda task: task[0])
    needs = [
        sorted(other for other in needed if other < number) for number, (_, _, needed) in enumerate(tasks)
    ]
    earliest: list[float] = []
    for (release, duration, _), needed in zip(tasks, needs, strict=True):
        earliest.append(max([release, *(earliest[other] for other in needed)]) + duration)
    releases, durations = [task[0] for task in tasks], [task[1] for task in tasks]
    wall = replay(releases, durations, [0.0] * workers, needs).wall_s
    assert wall >= max(earliest, default=0.0) * (1 - 1e-9)
    assert wall <= (max(releases, default=0.0) + math.fsum(durations)) * (1 + 1e-9)
    assert replay(releases, durations, [0.0] * max(1, len(tasks)), needs).wall_s == pytest.approx(
        max(earliest, default=0.0)
    )


def test_a_chain_takes_as_long_on_many_workers_as_on_one():
    chain = [[], [0], [1], [2]]
    assert replay([0.0] * 4, [5.0] * 4, [0.0] * 8, chain) == Makespan(wall_s=20.0, idle_s=140.0)


def test_workers_that_come_later_take_tasks_from_then_on():
    assert replay([0.0] * 3, [10.0] * 3, [0.0, 4.0]) == Makespan(wall_s=20.0, idle_s=10.0)


def test_tasks_that_need_each_other_in_a_circle_are_refused():
    with pytest.raises(ValueError, match="2 tasks need each other in a circle"):
        replay([0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.0], [[], [2], [1]])


@pytest.mark.parametrize(
    ("durations", "workers", "overhead", "message"),
    [
        ([1.0], 0, 0.0, "at least 1 worker, not 0"),
        ([-1.0], 1, 0.0, "a duration is a number of seconds from 0, not -1.0"),
        ([math.nan], 1, 0.0, "not nan"),
        ([1.0], 1, math.inf, "not inf"),
    ],
)
def test_what_is_no_schedule_is_refused(durations, workers, overhead, message):
    with pytest.raises(ValueError, match=message):
        makespan(durations, workers, overhead)


def test_the_fewest_workers_within_a_twentieth_of_the_best_are_enough():
    durations = [100.0] + [10.0] * 14
    assert enough_workers(durations, range(1, 17)) == (3, Makespan(wall_s=100.0, idle_s=60.0))
