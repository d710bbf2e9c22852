"""Durations of two sides as the tables that `match` reads, and runs on disk that hold them."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
from builders.runs import at, make_run

from flightlog.events import Event, TaskCompleted, TaskStarted, TaskSubmitted
from flightlog.store.integrity import write_checksums

Rows = Iterable[tuple[int, int, str, str | None, float]]
"""Side, run, name, digest of the arguments, seconds; in order of time."""


@contextmanager
def tables(rows: Rows, spared: Sequence[str] = ()) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with completed tasks that took so long; tasks of the names in `spared` found all in a
    cache."""
    found = [(f"run-{side}-{run}", side, run, name, digest, s) for side, run, name, digest, s in rows]
    runs = sorted({row[:3] for row in found})
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE sides AS SELECT unnest(?::VARCHAR[]) AS run_id, unnest(?::INT[]) AS side, "
            "unnest(?::INT[]) AS run",
            [list(column) for column in zip(*runs, strict=True)],
        )
        connection.execute(
            """
            CREATE TABLE compared AS SELECT *, 'completed' AS state, 1 AS attempt, run_id || nth AS task_id,
                NULL::VARCHAR AS span_id,
                TIMESTAMP '2026-05-20 03:52:00' + to_milliseconds(nth) AS started_at,
                    NULL::TIMESTAMP AS ended_at
            FROM (SELECT unnest(?::VARCHAR[]) AS run_id, unnest(?::VARCHAR[]) AS task, unnest(?::VARCHAR[]) AS
                args_digest,
                unnest(?::DOUBLE[]) AS duration_s, unnest(?::BIGINT[]) AS nth)
            """,
            [
                [row[0] for row in found],
                [row[3] for row in found],
                [row[4] for row in found],
                [row[5] for row in found],
                list(range(len(found))),
            ],
        )
        connection.execute(
            "CREATE TABLE lookups AS SELECT run_id, task_id, 1 AS hits, 0 AS misses, 0 AS saved_ns FROM "
            "compared "
            "WHERE list_contains(?::VARCHAR[], task)",
            [list(spared)],
        )
        connection.execute(
            "CREATE TABLE compared_spans (run_id VARCHAR, name VARCHAR, span_id VARCHAR, parent_id VARCHAR, "
            "started_at TIMESTAMP, duration_s DOUBLE)"
        )
        yield connection


def noisy(
    chance: random.Random, count: int, typical: float, noise: float, *, outliers: float = 0.01
) -> list[float]:
    """Log-normal durations around a typical one; a few are three to thirty times as long."""
    return [
        typical
        * math.exp(chance.gauss(0, noise))
        * (chance.uniform(3, 30) if chance.random() < outliers else 1.0)
        for _ in range(count)
    ]


def task_events(
    name: str,
    number: int,
    started: float,
    took: float,
    *,
    queue_s: float = 0.0,
    worker: str = "w1",
    **ended: Any,
) -> list[Event]:
    """The life of one completed task."""
    common = {"task": name, "task_id": f"{name}-{number}"}
    args = ended.pop("args", {"number": number})
    digest = ended.pop("args_digest", f"{name}-{number}")
    return [
        TaskSubmitted(timestamp=at(started - queue_s), args=args, args_digest=digest, **common),
        TaskStarted(timestamp=at(started), worker=worker, queue_s=queue_s, **common),
        TaskCompleted(
            timestamp=at(started + took),
            args=args,
            args_digest=digest,
            worker=worker,
            duration_s=took,
            queue_s=queue_s,
            **common,
            **ended,
        ),
    ]


def closed_run(runs_dir: Path, events: Iterable[Event], **options: Any) -> Path:
    """A run that closed in good order: with checksums, so that its files are read as they are."""
    path = make_run(runs_dir, events, **options)
    write_checksums(path)
    return path
