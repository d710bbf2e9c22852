"""Counts of tasks by name."""

from __future__ import annotations

import hashlib

from flightlog.analyze.eta import ENOUGH, Known, from_durations, of_mean
from flightlog.analyze.live.durations import Durations
from flightlog.analyze.live.newest import Newest
from flightlog.analyze.live.results import TaskName
from flightlog.analyze.live.words import NAME, cut
from flightlog.analyze.moments import SECOND, moment
from flightlog.events import TaskCompleted

NAMES = 2_000
"""So many names are told apart; all further ones count together."""
LISTED = 200
OTHERS = "(other names)"
LONG = 400
RECENT = 100
"""So many of the tasks that completed last are known with their times, of each name."""


class NameTally:
    """Tasks of one name."""

    __slots__ = (
        "cancelled",
        "completed",
        "durations",
        "failed",
        "name",
        "recent",
        "retried",
        "running",
        "submitted",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.submitted = self.completed = self.failed = self.cancelled = self.retried = self.running = 0
        self.durations = Durations()
        self.recent: Newest[tuple[str, float]] = Newest(RECENT)
        """When a task completed, and how long it took."""

    def took(self, event: TaskCompleted, duration_s: float) -> None:
        """A task completed, after so long."""
        self.durations.add(duration_s)
        at = event.timestamp
        if self.recent.would_keep(at):
            self.recent.add((at, event.writer, event.seq, event.task_id), (at, duration_s))

    def known(self, until: int) -> Known | None:
        """What they say of how long the next one takes; null where they are too few."""
        ends = [
            ((until - at) / SECOND, took)
            for when, took in self.recent.items()
            if (at := moment(when)) is not None
        ]
        whole = self.durations.count <= len(ends)
        return from_durations(ends, whole=whole, spread=() if whole else self.durations.sample())

    def known_roughly(self) -> Known | None:
        """What their mean says, for a name that is one of very many."""
        mean = self.durations.mean
        return None if mean is None or self.durations.count < ENOUGH else of_mean(mean)

    @property
    def size(self) -> int:
        """How much there is of it, as the summary reckons."""
        return max(self.submitted, self.ended + self.running)

    @property
    def ended(self) -> int:
        """Tasks that are over."""
        return self.completed + self.failed + self.cancelled

    def result(self) -> TaskName:
        """The counts, and how long it takes."""
        spread = self.durations
        known = spread.count > 0
        return TaskName(
            name=cut(self.name, NAME),
            submitted=self.submitted,
            completed=self.completed,
            failed=self.failed,
            running=self.running,
            mean_s=spread.mean,
            max_s=spread.max if known else None,
            cancelled=self.cancelled,
            retried=self.retried,
            p95_s=spread.quantile(0.95),
            total_s=spread.total if known else None,
        )


class TaskNames:
    """All names."""

    def __init__(self) -> None:
        self.tallies: dict[str, NameTally] = {}
        self._others = NameTally(OTHERS)

    def of(self, name: str) -> NameTally:
        """The tally of a name; a very long one is known by its beginning and a digest."""
        found = self.tallies.get(name)
        if found is not None:
            return found
        if len(name) > LONG:
            digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
            return self.of(f"{name[: LONG - 20]} {digest}")
        if len(self.tallies) >= NAMES:
            return self._others
        found = self.tallies[name] = NameTally(name)
        return found

    def __len__(self) -> int:
        return len(self.tallies)

    @property
    def has_others(self) -> bool:
        """Whether there are more names than are told apart."""
        return self._others.size > 0

    def all(self) -> list[NameTally]:
        """Every tally, that of all further names last."""
        return [*self.tallies.values(), *([self._others] if self.has_others else [])]

    def results(self) -> list[TaskName]:
        """The largest first."""
        most = sorted(self.all(), key=lambda one: (one is self._others, -one.size, one.name))[:LISTED]
        return [one.result() for one in most]

    def busiest(self, limit: int) -> list[str]:
        """The names that took most of the time, in order of the alphabet, so that colours stay what they
        are.
        """
        most = sorted(self.tallies.values(), key=lambda one: (-one.durations.total, -one.size, one.name))[
            :limit
        ]
        return sorted(one.name for one in most)
