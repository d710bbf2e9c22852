"""Attempts of earlier runs as examples to learn from, and how many are no examples, by reason.

An attempt that completed tells what it took. One that was killed at its memory limit, or ended at its time
limit, tells that it would have taken more: it is kept as such, and never as if it had been complete. One that
failed by itself, was cancelled or never ended tells nothing of what a complete one takes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from flightlog.analyze.past import Past, PastAttempt
from flightlog.analyze.prediction.base import Quantity
from flightlog.analyze.prediction.features import Value, flatten
from flightlog.errors import FlightlogError

DURATIONS = 1e-9, 3.2e9
"""Seconds: from what clocks tell apart to a century. What is outside was not measured, whatever a line
says."""
PEAKS = 1.0, 2.0**60
"""Bytes."""


class Example(Struct, frozen=True):
    """One attempt."""

    name: str
    component: str | None
    host: str | None
    values: dict[str, Value]
    """Arguments, as `features.flatten` gives them."""
    run: int
    """Number of its run, the oldest is 0."""
    log: float
    """Natural logarithm of seconds or bytes."""
    above: bool = False
    """It would have taken more than `log` says, and nobody knows how much."""
    rough: bool = False
    """What was measured is a lower bound, as a process that is used again gives it."""


class Examples(Struct, frozen=True):
    """All examples of one quantity, the oldest first."""

    quantity: Quantity
    found: list[Example]
    left_out: dict[str, int]
    """Attempts that are no examples, by reason."""


def gaps(past: Past) -> list[str]:
    """Sentences on what could not be read of a past, runs without any attempt included."""
    empty = len(past.runs) - len({attempt.run_id for attempt in past.attempts})
    if not empty or not past.attempts:
        return list(past.problems)
    said = (
        f"{empty} of {len(past.runs)} runs hold no attempt that can be read: `flightlog verify RUN` tells "
        "what is wrong"
    )
    return [*past.problems, said]


Saved = Mapping[tuple[str, str], float]
"""Seconds that a cache spared a task, by run and task id."""


def duration_examples(past: Past, saved: Saved = {}) -> Examples:  # noqa: B006 - it is only read
    """How long attempts took to complete, in seconds.

    One that a cache spared more than half of its work is left out: it tells nothing of what the work takes.
    """
    return _examples("duration_s", past, saved)


def memory_examples(past: Past, saved: Saved = {}) -> Examples:  # noqa: B006 - it is only read
    """The peak of memory of attempts that completed, in bytes, whoever's it is: see `rss_scope`."""
    return _examples("peak_memory_bytes", past, saved)


def saved_by_cache(past: Past) -> dict[tuple[str, str], float]:
    """What caches spared the tasks of these runs; nothing where the files of lookups cannot be read."""
    import duckdb

    from flightlog.store.tables import open_tables

    if not past.runs:
        return {}
    try:
        with open_tables(past.runs, only=("cache",)) as connection:
            rows = connection.execute(
                "SELECT run_id, task_id, sum(saved_s) FROM cache "
                "WHERE result = 'hit' AND task_id IS NOT NULL AND saved_s > 0 GROUP BY run_id, task_id"
            ).fetchall()
    except (OSError, FlightlogError, duckdb.Error):
        return {}
    return {(run_id, task_id): saved_s for run_id, task_id, saved_s in rows}


def _examples(quantity: Quantity, past: Past, saved: Saved) -> Examples:
    measure = _duration if quantity == "duration_s" else _memory
    order = {run.run_id: number for number, run in enumerate(reversed(past.runs))}
    left_out: Counter[str] = Counter()
    found: list[Example] = []
    for attempt in in_order(past.attempts, order):
        spared = saved.get((attempt.run_id, attempt.task_id))
        if spared is not None and spared > (attempt.duration_s or math.inf):
            left_out["spared by the cache"] += 1
            continue
        amount, above, why = measure(attempt)
        if amount is None:
            left_out[why] += 1
            continue
        found.append(
            Example(
                name=attempt.name,
                component=attempt.component,
                host=attempt.host,
                values=flatten(attempt.args),
                run=order.get(attempt.run_id, 0),
                log=math.log(amount),
                above=above,
                rough=quantity == "peak_memory_bytes" and attempt.rss_scope == "process_at_least",
            )
        )
    return Examples(quantity, found, dict(sorted(left_out.items())))


def in_order(attempts: Iterable[PastAttempt], order: dict[str, int]) -> Sequence[PastAttempt]:
    """Attempts in order of their runs, and of their ends within a run."""
    return sorted(attempts, key=lambda each: (order.get(each.run_id, 0), each.ended or 0.0, each.task_id))


def _duration(attempt: PastAttempt) -> tuple[float | None, bool, str]:
    """Seconds, whether it would have been more, and why there are none."""
    if attempt.state == "completed":
        usable = _within(attempt.duration_s, DURATIONS)
        unknown = attempt.duration_s is None
        why = (
            "completed, and nobody measured how long it took"
            if unknown
            else "completed, with a duration that is 0 or cannot be"
        )
        return usable, False, why
    if attempt.timed_out:
        limits = [_within(limit, DURATIONS) for limit in (attempt.duration_s, attempt.timeout_s)]
        return max((x for x in limits if x is not None), default=None), True, "ended at an unknown time limit"
    return None, False, _other_end(attempt)


def _memory(attempt: PastAttempt) -> tuple[float | None, bool, str]:
    """Bytes, whether it would have been more, and why there are none."""
    if attempt.state == "completed":
        usable = _within(attempt.peak_rss_bytes, PEAKS)
        unknown = attempt.peak_rss_bytes is None
        why = (
            "completed, and nobody measured memory"
            if unknown
            else "completed, with a peak that is 0 or cannot be"
        )
        return usable, False, why
    if attempt.memory_killed:
        limits = [_within(limit, PEAKS) for limit in (attempt.peak_rss_bytes, attempt.requested_memory_bytes)]
        return (
            max((x for x in limits if x is not None), default=None),
            True,
            "killed at an unknown memory limit",
        )
    return None, False, _other_end(attempt)


def _other_end(attempt: PastAttempt) -> str:
    if attempt.memory_killed:
        return "killed for memory"
    if attempt.timed_out:
        return "ended at its time limit"
    return {"failed": "failed", "cancelled": "cancelled"}.get(attempt.state, "never ended")


def _within(amount: float | None, bounds: tuple[float, float]) -> float | None:
    """The amount where it is one that can be."""
    return float(amount) if amount is not None and bounds[0] <= amount <= bounds[1] else None
