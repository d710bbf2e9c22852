"""How long work takes on k workers: a list schedule of known durations, pure and exact."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple


class Makespan(NamedTuple):
    """A finished schedule: from the first start to the last end, and what was not used of it."""

    wall_s: float
    idle_s: float
    """Worker-seconds without a task, over all workers; overhead counts as used."""


def makespan(durations: Iterable[float], workers: int, overhead_s: float = 0.0) -> Makespan:
    """`durations` (seconds, in the order of submission), each given to the first worker that is free.

    Each task holds its worker `overhead_s` longer than it runs. All tasks are there from the start, and none
    waits for another's result: a lower bound where they do. Takes n log k steps and k numbers of memory;
    the wall time lies between max(longest, total / k) and total / k + longest. No tasks take no time.
    """
    if workers < 1:
        raise ValueError(f"a schedule needs at least 1 worker, not {workers}")
    if not (math.isfinite(overhead_s) and overhead_s >= 0):
        raise ValueError(f"the overhead of a task is a number of seconds from 0, not {overhead_s}")
    free = [0.0] * workers
    used = 0.0
    for duration in durations:
        held = duration + overhead_s
        if not (math.isfinite(held) and duration >= 0):
            raise ValueError(f"a duration is a number of seconds from 0, not {duration}")
        used += held
        heapreplace(free, free[0] + held)
    wall = max(free)
    return Makespan(wall, max(0.0, wall * workers - used))


def replay(
    releases: Sequence[float],
    durations: Sequence[float],
    ready: Sequence[float],
    needs: Sequence[Sequence[int]] = (),
) -> Makespan:
    """As `makespan`, of tasks that come one after another to workers that come one after another.

    Task n can run from `releases[n]` on (seconds, in rising order), and from the end of the tasks in `needs[n]`, where
    that is given; it goes to the worker that is free first. Worker w takes tasks from `ready[w]` on. The wall time is
    from 0 to the last end. Tasks that need each other in a circle are a ValueError.
    """
    if not ready:
        raise ValueError("a schedule needs at least 1 worker, not 0")
    free = list(ready)
    heapify(free)
    last = 0.0
    if not needs:
        for release, duration in zip(releases, durations, strict=True):
            end = max(free[0], release) + duration
            heapreplace(free, end)
            last = max(last, end)
        return Makespan(last, max(0.0, last * len(ready) - math.fsum(durations)))
    missing = [len(set(needed)) for needed in needs]
    followers: list[list[int]] = [[] for _ in needs]
    for number, needed in enumerate(needs):
        for other in set(needed):
            followers[other].append(number)
    able = list(releases)
    waiting = [(able[number], number) for number, count in enumerate(missing) if not count]
    heapify(waiting)
    done = 0
    while waiting:
        # What becomes able later does so at the end of one that starts now, or after: the order holds.
        since, number = heappop(waiting)
        end = max(free[0], since) + durations[number]
        heapreplace(free, end)
        last, done = max(last, end), done + 1
        for follower in followers[number]:
            able[follower] = max(able[follower], end)
            missing[follower] -= 1
            if not missing[follower]:
                heappush(waiting, (able[follower], follower))
    if done < len(needs):
        raise ValueError(f"{len(needs) - done} tasks need each other in a circle")
    return Makespan(last, max(0.0, last * len(ready) - math.fsum(durations)))


def enough_workers(
    durations: Sequence[float], counts: Iterable[int], overhead_s: float = 0.0, within: float = 0.05
) -> tuple[int, Makespan]:
    """The smallest of `counts` whose wall time is within the share `within` of the best one among them."""
    walls = {count: makespan(durations, count, overhead_s) for count in sorted(set(counts))}
    if not walls:
        raise ValueError("no number of workers to choose from")
    best = min(each.wall_s for each in walls.values())
    for count, found in walls.items():
        if found.wall_s <= best * (1 + within):
            return count, found
    raise AssertionError("the best one is within any share of itself")
