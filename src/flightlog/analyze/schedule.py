"""How long work takes on so many workers: a list schedule of known durations, pure and exact."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace


def makespan(durations: Sequence[float], workers: int, needs: Sequence[Sequence[int]] = ()) -> float:
    """Seconds from the first start to the last end of tasks that are all there from the start, on workers
    that are, too.

    `durations` are in the order of submission; the rest is as in `replay`. Fewer than 1 worker count as 1.
    """
    there = min(max(1, workers), max(1, len(durations)))
    return replay([0.0] * len(durations), durations, [0.0] * there, needs)


def replay(
    releases: Sequence[float],
    durations: Sequence[float],
    ready: Sequence[float],
    needs: Sequence[Sequence[int]] = (),
) -> float:
    """Seconds from 0 to the last end of tasks that come one after another to workers that come one after
    another.

    Task n can run from `releases[n]` on (in rising order), and from the end of the tasks in `needs[n]`, where
    that is given. What can run first goes first, to the worker that is free first; worker w takes tasks from
    `ready[w]` on, and there has to be one. What waits in a circle, as a damaged line may say, is never begun
    and counts for nothing. No tasks take no time. Takes n log(n + k) steps for n tasks on k workers.
    """
    if not ready:
        raise ValueError("a schedule needs at least 1 worker, not 0")
    free = list(ready)
    heapify(free)
    last = 0.0
    if not any(needs):
        for release, duration in zip(releases, durations, strict=True):
            first = free[0]  # no `max` here, nor below: plans are drawn hundreds of times
            end = (first if first > release else release) + duration
            heapreplace(free, end)
            last = last if last > end else end
        return last
    missing = [len(set(needed)) for needed in needs]
    followers: list[list[int]] = [[] for _ in needs]
    for number, needed in enumerate(needs):
        for other in set(needed):
            followers[other].append(number)
    able = list(releases)
    waiting = [(able[number], number) for number, count in enumerate(missing) if not count]
    heapify(waiting)
    while waiting:
        # What becomes able later does so at the end of one that starts now, or after: the order holds.
        since, number = heappop(waiting)
        first = free[0]
        end = (first if first > since else since) + durations[number]
        heapreplace(free, end)
        last = last if last > end else end
        for follower in followers[number]:
            able[follower] = max(able[follower], end)
            missing[follower] -= 1
            if not missing[follower]:
                heappush(waiting, (able[follower], follower))
    return last
