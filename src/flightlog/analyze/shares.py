"""Where worker time went, split so that every moment of every worker counts once: run, failed, scheduler,
idle, …
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec import Struct

from flightlog.analyze.intervals import length, overlap, union
from flightlog.analyze.moments import seconds
from flightlog.analyze.sweep import TRANSFER, lay_out, sweep
from flightlog.analyze.workers import WorkerTally

if TYPE_CHECKING:
    import duckdb

__all__ = [
    "LISTED",
    "TRANSFER",
    "Life",
    "Measured",
    "Shares",
    "TimeSplit",
    "measure",
    "shares",
    "shares_of",
    "worked",
]

LISTED = 1000
"""How many workers are listed, the longest at work first; the whole is of all."""


class TimeSplit(Struct, frozen=True, kw_only=True):
    """The time of one worker or of all; the parts add up to `total_s`, to the nanosecond.

    `uptime_s` and `busy_s` are those of the summary's `workers`: utilization is busy_s / uptime_s. Where
    tasks run side by side on one worker, a moment is `run` if any of them completed, `unfinished` if none did
    and one has not ended, and `failed` otherwise. For a worker with one task at a time run_s / uptime_s is
    its efficiency.
    """

    total_s: float
    """From launch to removal, loss, or the run's end or last sign of life."""
    run_s: float
    """Held by attempts that completed."""
    unfinished_s: float
    """Held by attempts whose end was not recorded: in flight."""
    failed_s: float
    """Held by attempts that failed, were retried or cancelled."""
    retried_s: float
    """Of `failed_s`, by attempts that were tried again."""
    transfer_s: float | None
    """In spans named transfer, serialize or deserialize directly inside a task; null where none was
    recorded."""
    scheduler_s: float
    """Free, while a task that this worker could have run was queued."""
    startup_s: float
    """From launch to ready, and up to its first task for a worker that never said it was ready."""
    idle_s: float
    """Free, with nothing queued: idle_behind_s and idle_alone_s."""
    idle_behind_s: float
    """Idle while another worker was busy: behind the last tasks of a batch."""
    idle_alone_s: float
    """Idle while no worker was busy: the program itself was at work, or waiting."""
    uptime_s: float
    busy_s: float
    attempts: int


class Shares(Struct, frozen=True, kw_only=True):
    """Where the time went. Null parts are unknown, not nothing."""

    basis: Literal["workers", "wall"]
    """What is split: the time of workers or, where no worker is known, the run's time on the clock."""
    workers: int
    whole: TimeSplit
    by_worker: dict[str, TimeSplit]
    without_worker: int
    """Attempts that ran, but nobody knows where: they are in no worker's time."""


class Measured(NamedTuple):
    """The time of each worker, before it is put into seconds."""

    basis: Literal["workers", "wall"]
    lives: dict[str, Life]
    transfer_known: bool
    without_worker: int


def shares(
    connection: duckdb.DuckDBPyConnection, workers: WorkerTally, window: tuple[int | None, int | None]
) -> Shares | None:
    """The split of one run's time, from its `held` and `timed` tables; None where nothing was recorded to
    split.

    `window` is the run's start, and its end or last sign of life, in nanoseconds. Without workers the clock
    time between them is split: attempts and spans are work, the rest is scheduler or idle.
    """
    measured = measure(connection, workers, window)
    return None if measured is None else shares_of(measured)


def measure(
    connection: duckdb.DuckDBPyConnection, workers: WorkerTally, window: tuple[int | None, int | None]
) -> Measured | None:
    """As `shares`, of each worker in nanoseconds."""
    start, until = window
    ups = workers.uptimes(worked(connection), until)
    basis: Literal["workers", "wall"] = "workers" if ups else "wall"
    if not ups:
        if start is None or until is None or start >= until or not _anything(connection):
            return None
        ups = {"": [(start, until)]}
    launches = workers.launches()
    lay_out(connection, ups, launches, workers.components(), until)
    measured = sweep(connection, wall=basis == "wall")
    lives = {name: Life(ups[name], launches.get(name, []), measured.get(name)) for name in ups}
    known = bool(connection.execute("SELECT count(*) FROM pieces WHERE layer = 0").fetchone()[0])  # type: ignore[index]
    [(lost,)] = connection.execute(
        "SELECT count(*) FROM held WHERE worker IS NULL AND began IS NOT NULL"
    ).fetchall()
    return Measured(basis, lives, known, lost if basis == "workers" else 0)


def worked(connection: duckdb.DuckDBPyConnection) -> dict[str, tuple[int, int] | None]:
    """The first start and the last end of the attempts on each worker; None where no time is known."""
    return {
        name: (began, stopped) if began is not None else None
        for name, began, stopped in connection.execute(
            "SELECT worker, min(began), max(stopped) FROM held WHERE worker IS NOT NULL AND state <> "
            "'pending' GROUP BY ALL"
        ).fetchall()
    }


def shares_of(measured: Measured) -> Shares:
    """The same in seconds, the workers longest at work first."""
    lives, known = measured.lives, measured.transfer_known
    order = sorted(lives, key=lambda name: (-lives[name].busy, name))[:LISTED]
    of_workers = measured.basis == "workers"
    return Shares(
        basis=measured.basis,
        workers=len(lives) if of_workers else 0,
        whole=_split(list(lives.values()), known),
        by_worker={name: _split([lives[name]], known) for name in order} if of_workers else {},
        without_worker=measured.without_worker,
    )


class Life:
    """One worker's time in nanoseconds, by part; `failed` holds `retried`, `idle` holds `behind`."""

    def __init__(
        self,
        ups: list[tuple[int, int]],
        launches: list[tuple[int, int | None]],
        measured: tuple[int, ...] | None,
    ) -> None:
        starting = union((launched, ready) for launched, ready in launches if ready is not None)
        before = length(starting) - length(overlap(starting, ups))
        self.up = length(ups)
        (
            self.transfer,
            run,
            unfinished,
            retried,
            failed,
            self.busy,
            unready,
            queued,
            others,
            self.attempts,
        ) = measured or (0,) * 10
        self.run, self.unfinished, self.failed = run - self.transfer, unfinished - run, failed - unfinished
        self.retried = retried - unfinished
        self.startup = before + unready
        self.scheduler, self.behind = queued, others - queued
        self.idle = self.up - failed - unready - queued
        self.total = self.up + before


def _split(lives: list[Life], transfer_known: bool) -> TimeSplit:
    def of(part: str) -> float:
        return seconds(sum(getattr(life, part) for life in lives))

    return TimeSplit(
        total_s=of("total"),
        run_s=of("run"),
        unfinished_s=of("unfinished"),
        failed_s=of("failed"),
        retried_s=of("retried"),
        transfer_s=of("transfer") if transfer_known else None,
        scheduler_s=of("scheduler"),
        startup_s=of("startup"),
        idle_s=of("idle"),
        idle_behind_s=of("behind"),
        idle_alone_s=seconds(sum(life.idle - life.behind for life in lives)),
        uptime_s=of("up"),
        busy_s=of("busy"),
        attempts=sum(life.attempts for life in lives),
    )


def _anything(connection: duckdb.DuckDBPyConnection) -> bool:
    row = connection.execute(
        "SELECT (SELECT count(*) FROM held WHERE began IS NOT NULL) + (SELECT count(*) FROM timed WHERE "
        "began IS NOT NULL)"
    ).fetchone()
    return bool(row and row[0])
