"""How many tasks ran at once, over the time of the run: a few buckets that draw as one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from flightlog.analyze.islands import most_at_once
from flightlog.analyze.moments import SECOND, seconds, timestamp_of

if TYPE_CHECKING:
    import duckdb

BUCKETS = 60


class Concurrency(Struct, frozen=True, kw_only=True):
    """Attempts running at once: means over equal buckets of the run's time, and the most there ever were.

    An attempt counts while it executes; one that ended the moment another began was not beside it.
    """

    since: str
    bucket_s: float
    running: list[float]
    """Mean number running in each bucket, from `since` on."""
    mean: float
    """Over the whole time of the run."""
    peak: int
    peak_at: str | None
    """When `peak` ran at once for the first time."""


def concurrency(
    connection: duckdb.DuckDBPyConnection,
    window: tuple[int | None, int | None],
    buckets: int = BUCKETS,
    *,
    most: tuple[int, int] | None = None,
) -> Concurrency | None:
    """Concurrency between the run's start and its end, from its `held` table; None where nothing ran or no
    time passed.

    What ran outside of these bounds, by clocks that disagree, is left out of the means. `most` is how many
    ran at once at most, and when first, where that is known.
    """
    start, until = window
    if start is None or until is None or until <= start:
        return None
    most = most or most_at_once(
        connection, "SELECT began AS since, stopped AS until FROM held WHERE began IS NOT NULL"
    )
    if most is None:
        return None
    bounds = [start + (until - start) * n // buckets for n in range(buckets + 1)]
    done = _work_until(connection, bounds)
    running = [
        (done[n + 1] - done[n]) / (bounds[n + 1] - bounds[n]) if bounds[n + 1] > bounds[n] else 0.0
        for n in range(buckets)
    ]
    return Concurrency(
        since=timestamp_of(start),
        bucket_s=(until - start) / buckets / SECOND,
        running=running,
        mean=seconds(done[-1] - done[0]) / seconds(until - start),
        peak=most[0],
        peak_at=timestamp_of(most[1]),
    )


def _work_until(connection: duckdb.DuckDBPyConnection, bounds: list[int]) -> list[int]:
    """Nanoseconds of execution done up to each bound.

    Up to a moment t an attempt has done t - began, less t - stopped once it has stopped: sums over those that
    began and stopped in each bucket are enough, however many attempts there are.
    """
    start, until, buckets = bounds[0], bounds[-1], len(bounds) - 1
    done = [0] * len(bounds)
    for column, sign in (("began", 1), ("stopped", -1)):
        count = total = 0
        found = {
            int(bucket): (int(number), int(sum_))
            for bucket, number, sum_ in connection.execute(
                f"""
                SELECT (greatest(0, {column} - $start)::HUGEINT * $buckets // ($until - $start)) + 1 AS
                    bucket,
                    count(*), sum(greatest(0, {column} - $start))
                FROM held WHERE began IS NOT NULL AND {column} < $until GROUP BY bucket
                """,  # noqa: S608 - the column is one of two
                {"start": start, "until": until, "buckets": buckets},
            ).fetchall()
        }
        for n in range(1, len(bounds)):
            number, sum_ = found.get(n, (0, 0))
            count, total = count + number, total + sum_
            done[n] += sign * (count * (bounds[n] - start) - total)
    return done
