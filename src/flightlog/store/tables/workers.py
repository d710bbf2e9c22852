"""The workers of one run: when each was launched, ready and up, and what is known of it.

A worker is up from `worker_ready` (or `worker_launched`) to `worker_lost` or `worker_removed`, else to the
end of the run; it may come back under its name. One that only attempts name is up from its first start to
its last end. Moments and durations are nanoseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from flightlog.core.intervals import length, union
from flightlog.core.time import moment, nanoseconds
from flightlog.events import WorkerEvent, WorkerLaunched, WorkerLost, WorkerReady, WorkerRemoved
from flightlog.events.rates import Sizes
from flightlog.store.tables.connection import create_table

if TYPE_CHECKING:
    from flightlog.store.tables.connection import Executes

Interval = tuple[int, int]
_ORDER = (WorkerLaunched, WorkerReady, WorkerLost, WorkerRemoved)
"""The order of events at one moment."""
LOST_FOR = "coalesce(nullif(reason, ''), nullif(signal, ''), 'unknown')"
"""Why a worker was lost, as its event says, in SQL."""

_WORKED = """
SELECT worker, count(*), min(began), max(stopped) FROM attempt_intervals
WHERE worker IS NOT NULL AND state <> 'pending' GROUP BY worker
"""


class WorkerStep(NamedTuple):
    """One event of a worker; those of one worker are in order if they are sorted."""

    moment: int
    place: int
    seq: int
    event: WorkerEvent


def steps_of(events: Iterable[object]) -> dict[str, list[WorkerStep]]:
    """The events of each worker whose time is known, in order."""
    found: dict[str, list[WorkerStep]] = {}
    for event in events:
        if isinstance(event, WorkerEvent) and (at := moment(event.timestamp)) is not None:
            step = WorkerStep(at, _ORDER.index(type(event)), event.seq, event)
            found.setdefault(event.worker, []).append(step)
    return {worker: sorted(steps, key=lambda step: step[:3]) for worker, steps in found.items()}


def make_workers(
    tables: Executes, until: int | None, events: Iterable[object], *, attempts: bool = True
) -> None:
    """Make the relations of workers from the events of their stream.

    - `worker_launches`: `worker`, `launched`, and when it was `ready` after that, null if it never was.
    - `worker_lives`: `worker`, its `component` ('' where unknown), `since` and `until`, when it was up, in
      pieces that do not touch, whether it had said that it was `ready`, and the number of the piece, `lane`.
    - `worker_facts`: a row per worker that events or attempts name. `recorded` is whether events do; `host`,
      `component`, why it was `lost` last and what it was given (`cpus`, `memory_bytes`, `gpus`) are null
      where they do not say; `executed` counts attempts; `up` is how long it was up, `lived` with
      the time from launch to ready.

    `until` is when the run ended, or its last sign of life. With `attempts`, `attempt_intervals` is asked
    what each worker executed. There are few workers: to go through their events takes less time than to
    plan statements that would do the same.
    """
    worked: dict[str, list[Any]] = {}
    if attempts:
        worked = {worker: rest for worker, *rest in tables.execute(_WORKED).fetchall()}
    steps = steps_of(events)
    launched: list[tuple[Any, ...]] = []
    lived: list[tuple[Any, ...]] = []
    facts: list[tuple[Any, ...]] = []
    for worker in sorted({*steps, *worked}):
        count, began, stopped = worked.get(worker, [0, None, None])
        life = steps.get(worker, [])
        launches = launches_of(life)
        ups = uptimes_of(life, began, until)
        if not life and began is not None and stopped is not None:
            ups = [(began, stopped)]
        said = _facts(life)
        launched += [(worker, *one) for one in launches]
        lived += [(worker, said[1] or "", *up, _said_ready(up, launches)) for up in ups]
        facts.append((worker, bool(life), *said, count, length(ups), lifetime(ups, launches)))
    create_table(
        tables, "worker_launches", {"worker": "VARCHAR", "launched": "BIGINT", "ready": "BIGINT"}, launched
    )
    create_table(tables, "worker_lives", _LIVES, [(*row, number) for number, row in enumerate(lived)])
    create_table(tables, "worker_facts", _FACTS, facts)


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


def _facts(life: Sequence[WorkerStep]) -> tuple[Any, ...]:
    """Host, component, CPUs, memory, GPUs and why it was lost, of one worker."""
    given = given_to(life)
    losses = [
        (step.moment, step.event.reason or step.event.signal or "unknown")
        for step in life
        if isinstance(step.event, WorkerLost)
    ]
    sizes = (given.cpus, given.memory_bytes, given.gpus)
    return (host_of(life), component_of(life), *sizes, max(losses)[1] if losses else None)


def host_of(life: Iterable[WorkerStep]) -> str | None:
    """Where a worker runs, where its events say."""
    return min((step.event.host for step in life if step.event.host is not None), default=None)


def component_of(life: Iterable[WorkerStep]) -> str | None:
    """The component that a worker serves, where its events say."""
    return min((step.event.component for step in life if step.event.component is not None), default=None)


def given_to(life: Iterable[WorkerStep]) -> Sizes:
    """What a worker was given when it was launched, as far as its events say."""
    found = Sizes()
    for *_, event in life:
        if isinstance(event, WorkerLaunched):
            found = Sizes(cpus=event.cpus, memory_bytes=event.memory_bytes, gpus=event.gpus).else_(found)
    return found


def uptimes_of(life: Iterable[WorkerStep], began: int | None, until: int | None) -> list[Interval]:
    """When a worker was up, from its steps in order; `began` is when its first attempt did, where known."""
    found: list[Interval] = []
    since: int | None = None
    for at, _, _, event in life:
        if isinstance(event, WorkerLaunched | WorkerReady):
            if since is None or isinstance(event, WorkerReady):
                since = at
            continue
        if since is None and not found:  # its beginning was not recorded
            up_s = event.uptime_s if isinstance(event, WorkerRemoved) else None
            since = began if up_s is None else at - nanoseconds(up_s)
        if since is not None:
            found.append((since, max(since, at)))
        since = None
    if since is not None and until is not None:
        found.append((since, max(since, until)))
    return union(found)


def launches_of(life: Iterable[WorkerStep]) -> list[tuple[int, int | None]]:
    """When a worker was launched, each time with the moment it was ready; None if it never was."""
    found: list[tuple[int, int | None]] = []
    launched: int | None = None
    for at, _, _, event in life:
        if isinstance(event, WorkerLaunched):
            launched = at if launched is None else launched
            continue
        is_ready = isinstance(event, WorkerReady)
        if launched is None and isinstance(event, WorkerReady) and event.launch_s is not None:
            launched = at - nanoseconds(event.launch_s)
        if launched is not None:
            found.append((launched, at if is_ready else None))
        launched = None
    return found if launched is None else [*found, (launched, None)]


def lifetime(ups: Iterable[Interval], launches: Iterable[tuple[int, int | None]]) -> int:
    """How long a worker lived, from launch to end."""
    return length(union([*ups, *((since, to) for since, to in launches if to is not None)]))


def _said_ready(up: Interval, launches: Iterable[tuple[int, int | None]]) -> bool:
    since, until = up
    return not any(launched == since and (ready is None or ready >= until) for launched, ready in launches)
