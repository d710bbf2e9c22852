"""The workers of one run: when each was launched, ready and up, and what is known of it.

A worker is up from `worker_ready` (or `worker_launched`) to `worker_lost` or `worker_removed`, else to the
end of the run; it may come back under its name. One that only attempts name is up from its first start to
its last end. Moments and durations are nanoseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from flightlog.core.intervals import length, union
from flightlog.core.time import nanoseconds

if TYPE_CHECKING:
    from flightlog.store.tables.connection import Executes

Interval = tuple[int, int]
STEPS = ("worker_launched", "worker_ready", "worker_lost", "worker_removed")
"""The events of a worker, in the order in which they count at one moment."""

_STEPS = f"""
SELECT worker, at_ns("timestamp") AS moment, event, launch_s, uptime_s, host, component, cpus, memory_bytes,
    gpus, {{reason}} AS reason
FROM ({{events}}) WHERE moment IS NOT NULL AND event IN {STEPS}
ORDER BY worker, moment, list_position({list(STEPS)}, event), seq
"""  # noqa: S608 - constants
LOST_FOR = "coalesce(nullif(reason, ''), nullif(signal, ''), 'unknown')"
"""Why a worker was lost, as its event says."""

_WORKED = """
SELECT worker, count(*), min(began), max(stopped) FROM attempt_intervals
WHERE worker IS NOT NULL AND state <> 'pending' GROUP BY worker
"""


class WorkerStep(NamedTuple):
    """What an event says of the life of its worker."""

    moment: int
    event: str
    launch_s: float | None = None
    uptime_s: float | None = None


def make_workers(tables: Executes, until: int | None, events: str | None, *, attempts: bool = True) -> None:
    """Make the relations of workers from a statement that gives their events; None where there are none.

    - `worker_launches`: `worker`, `launched`, and when it was `ready` after that, null if it never was.
    - `worker_lives`: `worker`, its `component` ('' where unknown), `since` and `until`, when it was up, in
      pieces that do not touch, whether it had said that it was `ready`, and the number of the piece, `lane`.
    - `worker_facts`: a row per worker that events or attempts name. `recorded` is whether events do; `host`,
      `component`, why it was `lost` last and what it was given (`cpus`, `memory_bytes`, `gpus`) are null
      where they do not say; `executed` counts attempts; `up` is how long it was up, `lived` with
      the time from launch to ready.

    `until` is when the run ended, or its last sign of life. With `attempts`, `attempt_intervals` is asked
    what each worker executed. There are few workers: one pass over their events costs less than it takes to
    plan the statements that would do the same.
    """
    worked: dict[str, list[Any]] = {}
    if attempts:
        worked = {worker: rest for worker, *rest in tables.execute(_WORKED).fetchall()}
    steps: dict[str, list[tuple[Any, ...]]] = {}
    if events is not None:
        rows = tables.execute(_STEPS.format(events=events, reason=LOST_FOR)).fetchall()
        steps = {worker: [row[1:] for row in of] for worker, of in groupby(rows, lambda row: row[0])}
    launched: list[tuple[Any, ...]] = []
    lived: list[tuple[Any, ...]] = []
    facts: list[tuple[Any, ...]] = []
    for worker in sorted({*steps, *worked}):
        count, began, stopped = worked.get(worker, [0, None, None])
        life = [WorkerStep(*row[:4]) for row in steps.get(worker, ())]
        launches = launches_of(life)
        ups = uptimes_of(life, began, until)
        if not life and began is not None and stopped is not None:
            ups = [(began, stopped)]
        said = _facts(steps.get(worker, ()))
        launched += [(worker, *one) for one in launches]
        lived += [(worker, said[1] or "", *up, _said_ready(up, launches)) for up in ups]
        facts.append((worker, bool(life), *said, count, length(ups), lifetime(ups, launches)))
    _create(
        tables, "worker_launches", {"worker": "VARCHAR", "launched": "BIGINT", "ready": "BIGINT"}, launched
    )
    _create(tables, "worker_lives", _LIVES, [(*row, number) for number, row in enumerate(lived)])
    _create(tables, "worker_facts", _FACTS, facts)


_LIVES = {
    "worker": "VARCHAR",
    "component": "VARCHAR",
    "since": "BIGINT",
    "until": "BIGINT",
    "ready": "BOOLEAN",
    "lane": "INTEGER",
}
_FACTS = {
    "worker": "VARCHAR",
    "recorded": "BOOLEAN",
    "host": "VARCHAR",
    "component": "VARCHAR",
    "cpus": "DOUBLE",
    "memory_bytes": "BIGINT",
    "gpus": "DOUBLE",
    "lost": "VARCHAR",
    "executed": "BIGINT",
    "up": "BIGINT",
    "lived": "BIGINT",
}


def _create(tables: Executes, name: str, columns: dict[str, str], rows: Sequence[tuple[Any, ...]]) -> None:
    values = [list(column) for column in zip(*rows, strict=True)] or [[]] * len(columns)
    listed = ", ".join(
        f"unnest(${number}::{kind}[]) AS {column}" for number, (column, kind) in enumerate(columns.items(), 1)
    )
    tables.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT {listed}", values)


def _facts(steps: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Host, component, CPUs, memory, GPUs and why it was lost, of the steps of one worker in order."""
    hosts, components, losses = set(), set(), []
    given: list[Any] = [None, None, None]
    for moment, event, _, _, host, component, *sizes, reason in steps:
        hosts.add(host)
        components.add(component)
        if event == "worker_launched":
            given = [old if new is None else new for old, new in zip(given, sizes, strict=True)]
        elif event == "worker_lost":
            losses.append((moment, reason))
    known = (min(found - {None}, default=None) for found in (hosts, components))
    return (*known, *given, max(losses)[1] if losses else None)


def uptimes_of(life: Iterable[WorkerStep], began: int | None, until: int | None) -> list[Interval]:
    """When a worker was up, from its steps in order; `began` is when its first attempt did, where known."""
    found: list[Interval] = []
    since: int | None = None
    for step in life:
        if step.event == "worker_ready" or (step.event == "worker_launched" and since is None):
            since = step.moment
        elif step.event != "worker_launched":
            if since is None and not found:  # its beginning was not recorded
                since = began if step.uptime_s is None else step.moment - nanoseconds(step.uptime_s)
            if since is not None:
                found.append((since, max(since, step.moment)))
            since = None
    if since is not None and until is not None:
        found.append((since, max(since, until)))
    return union(found)


def launches_of(life: Iterable[WorkerStep]) -> list[tuple[int, int | None]]:
    """When a worker was launched, each time with the moment it was ready; None if it never was."""
    found: list[tuple[int, int | None]] = []
    launched: int | None = None
    for step in life:
        if step.event == "worker_launched":
            launched = step.moment if launched is None else launched
            continue
        ready = step.moment if step.event == "worker_ready" else None
        if launched is None and ready is not None and step.launch_s is not None:
            launched = ready - nanoseconds(step.launch_s)
        if launched is not None:
            found.append((launched, ready))
        launched = None
    return found if launched is None else [*found, (launched, None)]


def lifetime(ups: Iterable[Interval], launches: Iterable[tuple[int, int | None]]) -> int:
    """How long a worker lived, from launch to end."""
    return length(union([*ups, *((since, to) for since, to in launches if to is not None)]))


def _said_ready(up: Interval, launches: Iterable[tuple[int, int | None]]) -> bool:
    since, until = up
    return not any(launched == since and (ready is None or ready >= until) for launched, ready in launches)
