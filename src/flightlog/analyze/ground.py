"""One reading of a run that reports and drawings are worked out from."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from flightlog.analyze.held import hold, hold_open
from flightlog.analyze.kept import kept_summary
from flightlog.analyze.large import LARGE_BYTES, LargeStreams
from flightlog.analyze.moments import moment
from flightlog.analyze.summary import Summary, summarize
from flightlog.analyze.workers import WorkerTally
from flightlog.events import WorkerEvent
from flightlog.store.tables import open_all

if TYPE_CHECKING:
    import duckdb

    from flightlog.store.run import Run


class Ground(NamedTuple):
    """What was read, while it is open: the tables `held` and `timed` are in the connection."""

    run: Run
    connection: duckdb.DuckDBPyConnection
    summary: Summary
    workers: WorkerTally
    window: tuple[int | None, int | None]
    """The run's start, and its end or last sign of life; nanoseconds since 1970."""
    in_turn: bool = False
    """Whether attempts are known to have taken turns on each worker; there is a table `turns` then."""
    most: tuple[int, int] | None = None
    """How many attempts were at once at most, and when first, where that was found on the way."""


@contextmanager
def ground_of(run: Run, *, views: Collection[str] = (), large_bytes: int = LARGE_BYTES) -> Iterator[Ground]:
    """Read a run in any state; beside `attempts` and `spans` these `views` are in the connection.

    Streams of `large_bytes` or more are read another way, with the same result. The connection is closed when
    the context ends.
    """
    with open_all([run], only={"attempts", "spans", *views}) as tables:
        kept = kept_summary(run)
        large = LargeStreams(run, tables, large_bytes, counted=kept is not None)
        summary = kept or summarize(run, large)
        workers = WorkerTally()
        for event in run.events("workers"):
            if isinstance(event, WorkerEvent):
                workers.add(event)
        window = moment(summary.run.start_time), moment(summary.run.end_time or summary.run.last_seen)
        large.hold_stored(window[1])
        hold(tables.connection, window[1], but=large.held)
        if summary.run.end_time is None and window[1] is not None and summary.spans.in_flight:
            hold_open(tables.connection, window[1])
        yield Ground(run, tables.connection, summary, workers, window, large.in_turn, large.most)
