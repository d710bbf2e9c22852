"""Runs whose shape is known: calls given to workers in turn, as an engine does, and written as events."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from builders.runs import at, make_run

from flightlog.events import (
    Event,
    ResourceSample,
    TaskCompleted,
    TaskFailed,
    TaskQueued,
    TaskRetried,
    TaskStarted,
    TaskSubmitted,
    WorkerLaunched,
    WorkerReady,
    WorkerRemoved,
)
from flightlog.session.client import digest
from flightlog.store.run import Run

GB = 10**9


class Call(NamedTuple):
    """One task: how long it takes, and how its attempts end before the last one."""

    task: str
    duration_s: float
    args: dict[str, Any] = {}
    errors: Sequence[tuple[str, str]] = ()
    """Type and message of the errors of its first attempts."""
    completes: bool = True
    """Whether it does after these, or the last of them is for good."""
    cpu: float = 1.0
    """CPU seconds in a second."""
    result_bytes: int | None = 100
    more: dict[str, Any] = {}


def write_shape(
    runs_dir: Path,
    number: int,
    waves: Iterable[Sequence[Call]],
    *,
    workers: int = 4,
    handover_s: float = 0.0,
    startup_s: float = 0.0,
    between_s: float = 0.0,
    threads: bool = False,
    machine: tuple[float, float] | None = None,
    interpreter_wait_s: float | None = None,
    plan: dict[str, Any] | None = None,
    events: Iterable[Event] = (),
    **info: Any,
) -> Run:
    """A closed run of these waves of calls, each submitted at once when the one before is over.

    `machine` is its cores, and how many percent of them are in use; `interpreter_wait_s` how long a thread
    waits for the interpreter. The rest is as `make_run` has it.
    """
    made: list[Event] = []
    names = [f"w{n}" for n in range(workers)]
    free = [(startup_s, name) for name in names]
    for n, name in enumerate(names):
        who: dict[str, Any] = {"worker": name, "host": "node-1", "pid": 100 if threads else 100 + n}
        made += [
            WorkerLaunched(timestamp=at(0), **who),
            WorkerReady(timestamp=at(startup_s), launch_s=startup_s, **who),
        ]
    now, count = 0.0, 0
    for wave in waves:
        waiting: list[tuple[float, int, Call, str, int]] = []
        for call in wave:
            heapq.heappush(waiting, (now, count, call, f"t{count}", 1))
            made += list(_submitted(call, f"t{count}", now))
            count += 1
        while waiting:
            since, order, call, task_id, attempt = heapq.heappop(waiting)
            ready, name = heapq.heappop(free)
            began = max(ready + handover_s, since)
            ended = began + call.duration_s
            heapq.heappush(free, (ended, name))
            made += list(_attempt(call, task_id, attempt, name, since, began, ended))
            if attempt <= len(call.errors) - (not call.completes):
                heapq.heappush(waiting, (ended, order, call, task_id, attempt + 1))
        now = max(moment for moment, _ in free) + between_s
        free = [(now if moment < now else moment, name) for moment, name in free]
    end = now - between_s
    for n, name in enumerate(names):
        pid = 100 if threads else 100 + n
        made.append(WorkerRemoved(timestamp=at(end), worker=name, host="node-1", pid=pid, reason=None))
    if machine is not None:
        made.append(
            ResourceSample(
                timestamp=at(end),
                scope="node",
                host="node-1",
                cpu_percent=machine[1],
                cpus=machine[0],
                interval_s=end,
                memory_used_bytes=2 * GB,
                memory_total_bytes=64 * GB,
            )
        )
    if interpreter_wait_s is not None:
        made += [
            ResourceSample(
                timestamp=at(end * n / 10),
                scope="worker",
                host="node-1",
                pid=100,
                interval_s=end / 10,
                cpu_percent=None,
                interpreter_wait_s=interpreter_wait_s,
            )
            for n in range(1, 11)
        ]
    facts = {"target": "here", "provider": "local", "end_time": at(end), "duration_s": end, **info}
    path = make_run(
        runs_dir,
        [*made, *events],
        token=f"{number:08x}",
        tasks_submitted=count,
        tasks_completed=count,
        **facts,
    )
    if plan is not None:
        document = {"target": facts["target"], "provider": facts["provider"], **plan}
        (path / "plan.json").write_bytes(msgspec.json.encode(document))
    return Run(path)


def _submitted(call: Call, task_id: str, now: float) -> Iterable[Event]:
    yield TaskSubmitted(
        timestamp=at(now), task=call.task, task_id=task_id, args=call.args, args_digest=digest(call.args)
    )
    yield TaskQueued(timestamp=at(now), task=call.task, task_id=task_id)


def _attempt(
    call: Call, task_id: str, attempt: int, worker: str, since: float, began: float, ended: float
) -> Iterable[Event]:
    ids: dict[str, Any] = {"task": call.task, "task_id": task_id, "attempt": attempt}
    if attempt > 1:
        yield TaskQueued(timestamp=at(since), **ids)
    yield TaskStarted(timestamp=at(began), worker=worker, queue_s=began - since, **ids)
    if attempt <= len(call.errors):
        kind, message = call.errors[attempt - 1]
        if attempt < len(call.errors) or call.completes:
            yield TaskRetried(timestamp=at(ended), reason=f"{kind}: {message}", **ids)
            return
        yield TaskFailed(
            timestamp=at(ended),
            args=call.args,
            args_digest=digest(call.args),
            worker=worker,
            duration_s=call.duration_s,
            queue_s=began - since,
            error_type=kind,
            error_message=message,
            **ids,
        )
        return
    yield TaskCompleted(
        timestamp=at(ended),
        args=call.args,
        args_digest=digest(call.args),
        worker=worker,
        duration_s=call.duration_s,
        queue_s=began - since,
        cpu_s=call.cpu * call.duration_s,
        cpu_scope="thread",
        result_bytes=call.result_bytes,
        **ids,
        **call.more,
    )
