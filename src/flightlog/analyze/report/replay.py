"""A run once more under other conditions: what shorter tasks, or the end of a delay, would save."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heapreplace
from typing import TYPE_CHECKING, Any, NamedTuple

from flightlog.analyze.limits import ReportLimits
from flightlog.analyze.tallies import grouped

if TYPE_CHECKING:
    from flightlog.store.tables.run_tables import RunTables


class Changes(NamedTuple):
    """What is different in a replay."""

    lasts: Mapping[int, int] = {}
    """Nanoseconds that attempts take, by their number; of others as they did."""
    delays: Mapping[int, int] = {}
    """Nanoseconds from when all that an attempt waited for was over to its start; of others as they were."""
    latency: float = 1.0
    """The part of these delays that remains; before further attempts of a task, which wait on purpose, all
    of it does."""
    start_up: bool = True
    """Whether workers take time to start, and have to be waited for before they are launched."""
    program: float = 1.0
    """The part of the program's own time between tasks that remains."""
    dependencies: bool = True
    """Whether tasks wait for those that they need."""
    workers: int = 0
    """Workers that there are at least, for runs that did not need all that they could have had."""
    gathering: bool = True
    """Whether the program waits for tasks before it submits others; if not, what it did itself between them
    still comes one after the other."""


AS_IT_WAS = Changes()


class Replay:
    """The attempts of one run by number, in the order in which they began, to be executed once more.

    `saved` keeps every attempt on the worker that it ran on. `saved_by` gives each to the worker that is
    free first, in the same order, as an engine does.
    """

    def __init__(self, tables: RunTables, start: int) -> None:
        self._start = start
        [columns] = tables.execute(_COLUMNS).fetchall()
        self._began, self._stopped, self._moment, self._name, self._before, self._ready = columns[:6]
        self._launched, self._submitted, self._base, self._base_stopped = columns[6:10]
        self._worker, self._pool, self._again = columns[10:]
        self._needs: dict[int, list[int]] = grouped(tables.rows("SELECT n, other FROM needs ORDER BY ALL"))
        self._as_it_was: int | None = None

    def saved(self, *, name: str | None = None, node: int | None = None) -> int:
        """By how many nanoseconds the run would be shorter, were one attempt, or all of a name, instant."""
        ends: list[int] = []
        for n, (began, stopped, moment, task) in enumerate(
            zip(self._began, self._stopped, self._moment, self._name, strict=True)
        ):
            begins = began if moment is None else max(self._bounds(n, ends)) + began - moment
            ends.append(begins if n == node or task == name else begins + stopped - began)
        return int(max(self._stopped) - max(ends))

    def _bounds(self, n: int, ends: Sequence[int]) -> Iterator[int]:
        """When each thing that the attempt waited for is over."""
        for other in self._needs.get(n, ()):
            yield ends[other]
        before, ready, submitted, base = (
            column[n] for column in (self._before, self._ready, self._submitted, self._base)
        )
        if before is not None:
            yield ends[before]
        if ready is not None:
            yield ready
        if submitted is not None:
            yield submitted if base is None else ends[base] + submitted - self._base_stopped[n]

    def saved_by(self, changes: Changes) -> int | None:
        """By how many nanoseconds the run would be shorter so; None where a replay without changes is far
        from what was recorded, so that nothing can be said.
        """
        if self._as_it_was is None:
            self._as_it_was = self._end(AS_IT_WAS)
        recorded = max(self._stopped)
        if abs(self._as_it_was - recorded) > ReportLimits.max_replay_error * (recorded - self._start):
            return None
        return max(0, self._as_it_was - self._end(changes))

    def _end(self, changes: Changes) -> int:
        pools = self._places(changes)
        if len(pools) == 1:
            [places] = pools.values()
            places.extend([self._start] * (changes.workers - len(places)))
            heapify(places)
        ends: list[int] = []
        alone = {} if changes.gathering else self._submitted_without_waiting()
        for n, began in enumerate(self._began):
            moment, pool, again = self._moment[n], pools.get(self._pool[n]), self._again[n]
            delay = changes.delays.get(n)
            if delay is None:
                part = 1.0 if again else changes.latency
                delay = 0 if moment is None else round((began - moment) * part)
            begins = self._released(n, ends, changes, alone) + delay
            if pool is not None:
                begins = max(begins, pool[0] + (0 if again else delay))
            lasts = changes.lasts.get(n)
            ends.append(begins + (self._stopped[n] - began if lasts is None else lasts))
            if pool is not None:
                heapreplace(pool, ends[-1])
        return max(ends)

    def _submitted_without_waiting(self) -> dict[int, int]:
        """When each attempt would be submitted by a program that waits for none: after all that it did itself
        until then.
        """
        known = [n for n, submitted in enumerate(self._submitted) if submitted is not None]
        found: dict[int, int] = {}
        clock = before = self._start
        for n in sorted(known, key=lambda n: (self._submitted[n], n)):
            waited_until = before if self._base[n] is None else max(before, self._base_stopped[n])
            clock += max(0, self._submitted[n] - waited_until)
            found[n], before = clock, self._submitted[n]
        return found

    def _released(self, n: int, ends: Sequence[int], changes: Changes, alone: Mapping[int, int]) -> int:
        """When an attempt could begin, were a worker free: after what it needs, and when it was submitted."""
        if self._moment[n] is None:
            return int(self._began[n])
        released = self._start
        if changes.dependencies:
            released = max((ends[other] for other in self._needs.get(n, ())), default=released)
        submitted, base = self._submitted[n], self._base[n]
        if submitted is None:
            return released
        if not changes.gathering:
            submitted = alone[n]
        elif base is not None:
            submitted = ends[base] + round((submitted - self._base_stopped[n]) * changes.program)
        return max(released, int(submitted))

    def _places(self, changes: Changes) -> dict[Any, list[int]]:
        """For each pool, when its places become free: as many for each worker as it had attempts at once."""
        attempts: dict[str, list[int]] = {}
        for n, worker in enumerate(self._worker):
            if worker is not None:
                attempts.setdefault(worker, []).append(n)
        pools: dict[Any, list[int]] = {}
        ends = [] if changes.start_up else sorted(self._stopped)
        for numbers in attempts.values():
            first = numbers[0]
            launched, ready, submitted = self._launched[first], self._ready[first], self._submitted[first]
            free = launched if not changes.start_up else ready
            if (
                not changes.start_up
                and None not in (launched, submitted)
                and submitted < launched
                and bisect_right(ends, submitted) == bisect_right(ends, launched)
            ):
                free = submitted  # it was waited for; had a task ended meanwhile, it might replace its worker
            if changes.workers and None not in (launched, ready):
                free = self._start + ready - launched  # what was launched when it was needed is needed sooner
            free = self._start if free is None else max(self._start, int(free))
            places = max(1, self._at_once(numbers))
            pools.setdefault(self._pool[first], []).extend([free] * places)
        for pool in pools.values():
            heapify(pool)
        return pools

    def _at_once(self, numbers: Sequence[int]) -> int:
        """How many of these attempts ran at once, at most."""
        steps = [(self._began[n], 1) for n in numbers] + [(self._stopped[n], -1) for n in numbers]
        most = now = 0
        for _, step in sorted(steps):
            now += step
            most = max(most, now)
        return most


_COLUMNS = """
SELECT list(bound.began ORDER BY n), list(bound.stopped ORDER BY n), list(moment ORDER BY n),
    list(task ORDER BY n), list(before ORDER BY n), list(ready ORDER BY n), list(launched ORDER BY n),
    list(bound.submitted ORDER BY n), list(base ORDER BY n), list(base_stopped ORDER BY n),
    list(worker_name ORDER BY n), list(CASE WHEN worker_name IS NOT NULL THEN coalesce(component, '') END
        ORDER BY n), list(attempt > 1 ORDER BY n)
FROM bound LEFT JOIN bases USING (n) JOIN (
    SELECT n, attempt, task, worker_name, component FROM nodes JOIN attempt_intervals USING (task_id, attempt)
) AS nodes USING (n)
"""
