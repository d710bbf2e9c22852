"""Where worker time went, split so that every moment of every worker counts once: run, failed, scheduler,
idle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from flightlog.analyze.limits import ReportLimits
from flightlog.core.time import seconds

if TYPE_CHECKING:
    from flightlog.store.tables.run_tables import RunTables


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
    """The part of `failed_s` by attempts that were retried."""
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
    """Idle while no worker was busy: the program itself was running, or waiting, or tasks that had failed
    waited to be retried."""
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
    """Attempts without a known worker: they are in no worker's time."""


def shares(tables: RunTables) -> Shares | None:
    """The split of one run's time (`store.tables.worker_time`); None where nothing was recorded to split.

    Without workers the clock time from the run's start to its end or last sign of life is split: attempts and
    spans are work, the rest is scheduler or idle.
    """
    return shares_and_lives(tables)[0]


_WORKERS = """
SELECT worker, up, lived FROM worker_facts ANTI JOIN outer_workers USING (worker) ORDER BY worker
"""


def shares_and_lives(tables: RunTables) -> tuple[Shares | None, dict[str, WorkerLife]]:
    """The same, the busiest workers first, and the time of each worker."""
    start, until = tables.window
    workers = tables.execute(_WORKERS).fetchall()
    of_workers = bool(workers)
    if not of_workers:
        if start is None or until is None or start >= until or not tables.scalar(_ANYTHING):
            return None, {}
        workers = [("", until - start, until - start)]
    parts = [name for name in WorkerLife.__struct_fields__ if name not in {"up", "total"}]
    sums = ", ".join(f"coalesce(sum({part}), 0)::BIGINT AS {part}" for part in parts)
    measured = {row.pop("worker"): row for row in tables.records(_BY_WORKER.format(parts=sums))}
    lives = {name: WorkerLife(up=up, total=lived, **measured.get(name, {})) for name, up, lived in workers}
    lost = tables.scalar("SELECT count(*) FROM attempt_intervals WHERE worker IS NULL AND began IS NOT NULL")
    known = any(life.transfer for life in lives.values())
    order = sorted(lives, key=lambda name: (-lives[name].busy, name))[: ReportLimits.max_listed_workers]
    found = Shares(
        basis="workers" if of_workers else "wall",
        workers=len(lives) if of_workers else 0,
        whole=_split(list(lives.values()), known),
        by_worker={name: _split([lives[name]], known) for name in order} if of_workers else {},
        without_worker=lost if of_workers else 0,
    )
    return found, lives


_ANYTHING = """
SELECT EXISTS (FROM attempt_intervals WHERE began IS NOT NULL)
    OR EXISTS (FROM span_intervals WHERE began IS NOT NULL)
"""
_BY_WORKER = """
WITH startups AS (
    SELECT lane, sum(CASE WHEN ready THEN 0 ELSE until - since END) AS unready FROM gaps GROUP BY lane
), free AS (
    SELECT lane, sum(queued) AS scheduler, sum(astir - queued) AS behind FROM measured GROUP BY lane
)
SELECT uptimes.worker, {parts}
FROM uptimes JOIN held USING (lane) JOIN startups USING (lane) LEFT JOIN free USING (lane)
GROUP BY uptimes.worker
"""

_STAFFED = """
WITH found AS (
    SELECT since, until FROM uptimes
    UNION ALL
    SELECT launched, ready FROM worker_launches WHERE ready IS NOT NULL
), ordered AS (
    SELECT *, max(until) OVER (ORDER BY since, until ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
        AS reached FROM found
)
SELECT coalesce(sum(greatest(0, until - greatest(since, coalesce(reached, since)))), 0) FROM ordered
"""


def staffed(tables: RunTables, shares: Shares | None) -> float:
    """The part of the wall time in which any worker was starting or up; 1 where none is known."""
    start, until = tables.window
    if shares is None or shares.basis != "workers" or start is None or until is None or until <= start:
        return 1.0
    return min(1.0, int(tables.scalar(_STAFFED)) / (until - start))


class WorkerLife(Struct, frozen=True, kw_only=True):
    """One worker's time in nanoseconds, by part; `failed` holds `retried`, `idle` holds `behind`."""

    up: int
    total: int
    transfer: int = 0
    run: int = 0
    unfinished: int = 0
    retried: int = 0
    failed: int = 0
    busy: int = 0
    unready: int = 0
    scheduler: int = 0
    behind: int = 0
    attempts: int = 0

    @property
    def startup(self) -> int:
        """From launch to ready."""
        return self.total - self.up + self.unready

    @property
    def idle(self) -> int:
        """Free, with nothing queued."""
        held = self.transfer + self.run + self.unfinished + self.failed
        return self.up - held - self.unready - self.scheduler


def _split(lives: list[WorkerLife], transfer_known: bool) -> TimeSplit:
    def of(part: str) -> float:
        return seconds(sum(getattr(life, part) for life in lives))

    alike = ("total", "run", "unfinished", "failed", "retried", "scheduler", "startup", "idle", "busy")
    return TimeSplit(
        **{f"{part}_s": of(part) for part in alike},
        transfer_s=of("transfer") if transfer_known else None,
        idle_behind_s=of("behind"),
        idle_alone_s=seconds(sum(life.idle - life.behind for life in lives)),
        uptime_s=of("up"),
        attempts=sum(life.attempts for life in lives),
    )
