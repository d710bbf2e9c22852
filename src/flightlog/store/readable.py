"""The tables and events of a run, of whatever stands for it: one that is recorded, or one that was opened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, overload

if TYPE_CHECKING:
    from flightlog.analyze.report.summary import Summary
    from flightlog.store.read.follow import EventStream, Kinds
    from flightlog.store.read.lines import AnyEvent
    from flightlog.store.run import Run
    from flightlog.store.tables.query import Parameters, Table


class _TableOf:
    """One of a run's tables, as an attribute of the run; read when it is asked for rows or a frame."""

    def __init__(self, view: str) -> None:
        self._view = view

    @overload
    def __get__(self, run: None, of: type[Readable]) -> _TableOf: ...
    @overload
    def __get__(self, run: Readable, of: type[Readable]) -> Table: ...
    def __get__(self, run: Readable | None, of: type[Readable]) -> Table | _TableOf:
        return self if run is None else run.sql(f"FROM {self._view}")


class Readable:
    """What a run can be asked. Of a run that is being recorded the answer has everything that was recorded
    before the question, by workers on other hosts too: all there is of a task that was awaited.
    """

    __slots__ = ()

    tasks = _TableOf("tasks")
    attempts = _TableOf("attempts")
    spans = _TableOf("spans")
    concurrency = _TableOf("concurrency")
    workers = _TableOf("workers")
    jobs = _TableOf("jobs")
    resources = _TableOf("resources")
    cache = _TableOf("cache")
    failures = _TableOf("failures")
    artifacts = _TableOf("artifacts")
    cost = _TableOf("cost")
    metrics = _TableOf("metrics")
    devices = _TableOf("devices")
    task_events = _TableOf("task_events")
    span_events = _TableOf("span_events")

    path: Path
    learns_events: ClassVar[bool] = True
    """Whether events that users defined elsewhere become known to this process when they are followed."""

    def follow(
        self,
        *,
        events: Kinds | None = None,
        where: Callable[[AnyEvent], object] | None = None,
        since: str | None = None,
        from_now: bool = False,
    ) -> EventStream:
        """Every event of every process of the run as it happens, for `for` and `async for`; see
        `EventStream`. It ends when the run has ended, and a run that has ended gives what it holds.

        `events` are kinds, `where` tells which of them to give. Raises `UsageError` for kinds and positions
        that are none.
        """
        from flightlog.store.read.follow import EventStream

        return EventStream(
            self.path,
            events=events,
            where=where,
            since=since,
            from_now=from_now,
            learn=self.learns_events,
        )

    def opened(self) -> Run:
        """The run as it is now, as `flightlog.open_run` gives it; raises as that does."""
        raise NotImplementedError

    def sql(self, query: str, params: Parameters | None = None) -> Table:
        """The answer to a SELECT over the tables of this run, with `?` or `$name` for the parameters.

        `.rows()`, `.df()`, `.pl()` or `.arrow()` of it reads the run; a query that makes no sense is a
        `UsageError` then. A query reads this run's tables and nothing else, and writes nothing.
        """
        return self.opened().sql(query, params)

    def summary(self) -> Summary:
        """The numbers of the run: tasks, workers, resources and so on, as in the JSON of its report."""
        from flightlog.analyze.report.summary import summarize

        return summarize(self.opened())
