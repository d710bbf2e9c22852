"""The lives of watched Dask tasks: what the plugins tell becomes task events, one end for each task.

A key that is executed again after its end (its result was lost with a worker, or `client.retry`, or the same
pure call later) is a further submission: its id is the key with `#2`, `#3`, … behind it.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dask.utils import key_split
from msgspec import Struct

from flightlog.core.redaction import redact_text
from flightlog.engines.dask import messages as m
from flightlog.engines.dask.worker_plugin import span_id
from flightlog.engines.limits import DaskLimits
from flightlog.engines.processes import ExitReason
from flightlog.events import (
    DEPENDENCY_FAILED,
    Event,
    Failure,
    TaskCancelled,
    TaskCompleted,
    TaskFailed,
    TaskQueued,
    TaskRetried,
    TaskStarted,
    TaskSubmitted,
    UserEvent,
)
from flightlog.record.fast_values import are_harmless, learn
from flightlog.record.values import bounded, clean

if TYPE_CHECKING:
    from flightlog.engines.dask.watched_workers import Workers


class Lives:
    """Turns messages into task events; one thread at a time.

    `workers` are those of the cluster, which know how each ended. `requests` says how often this client asked
    for a key.
    """

    def __init__(self, token: str, workers: Workers, requests: Callable[[str], int]) -> None:
        self._token, self._trace_id, self._parent_id = token, workers.trace_id, workers.parent_id
        self._iso, self._workers, self._requests = workers.iso, workers, requests
        workers.parent_of_transfer = self.parent_of_transfer
        self._lives: dict[str, Life] = {}
        self._ended: OrderedDict[str, tuple[int, str | None]] = OrderedDict()
        self._failures: OrderedDict[int, m.Message] = OrderedDict()
        self._removals: OrderedDict[str, set[str]] = OrderedDict()
        """Workers that went away, by the stimulus that their tasks are released with."""
        self._parents: OrderedDict[tuple[str, float], str] = OrderedDict()
        """Spans of tasks by worker and start of the transfers that were made for them."""
        self._on: dict[str, Callable[[m.Message], Iterable[Event]]] = {
            m.SUBMITTED: self._submitted,
            m.ANEW: self._anew,
            m.QUEUED: self._queued,
            m.ASSIGNED: self._assigned,
            m.RUNNING: self._running,
            m.DONE: self._done,
            m.ERRED: self._erred,
            m.RELEASED: self._released,
            m.FORGOTTEN: self._forgotten,
            m.FAILED: self._failed,
            m.WORKER_GONE: self._worker_gone,
        }

    @property
    def in_flight(self) -> int:
        """How many tasks have not ended."""
        return len(self._lives)

    def take(self, message: m.Message) -> Iterable[Event]:
        """The events that a message means; none where it is not about tasks."""
        handle = self._on.get(message[0])
        return handle(message) if handle is not None else ()

    def parent_of_transfer(self, worker: str, start: float) -> str | None:
        """The span of the task that a transfer was made for, as far as it has been told."""
        return self._parents.get((worker, start))

    def task_id_of(self, key: str) -> str:
        """The id of the latest life of a key."""
        life = self._lives.get(key)
        if life is not None:
            return life.task_id
        lives = self._ended[key][0] if key in self._ended else 1
        return key if lives == 1 else f"{key}#{lives}"

    # --- on the way: named one by one where every task passes, for a `**` costs more than the event itself

    def _submitted(self, message: m.Message) -> Iterable[Event]:
        _, at, by, tasks = message
        stamp = self._iso(at)
        for key, _, args, *size in tasks:
            life = self._new(key, at)
            life.parent = by or self._parent_id
            life.call_bytes = next(iter(size), None)  # of a scheduler with an older version unknown
            if args:
                life.args = _cleaned(args)
        for key, depends_on, *_ in tasks:
            life = self._lives[key]
            before = [self.task_id_of(other) for other in depends_on or ()]
            yield TaskSubmitted(
                timestamp=stamp,
                task=life.task,
                task_id=life.task_id,
                attempt=life.attempt,
                trace_id=self._trace_id,
                parent_id=life.parent,
                args=life.args,
                args_digest=life.digest,
                depends_on=before,
            )

    def _anew(self, message: m.Message) -> Iterable[Event]:
        _, at, key, stimulus = message
        life = self._new(key, at)
        why = "its result was lost with a worker" if stimulus in self._removals else plain_stimulus(stimulus)
        fields = {"task_id": life.task_id, "reason": why}
        yield UserEvent(timestamp=self._iso(at), name="dask.executed_again", fields=fields)
        yield TaskSubmitted(timestamp=self._iso(at), args={}, args_digest=life.digest, **self._ids(life))

    def _queued(self, message: m.Message) -> Iterable[Event]:
        _, at, key, attempt = message
        life = self._life(key)
        life.attempt = attempt
        return (self._queue(life, at),)

    def _assigned(self, message: m.Message) -> Iterable[Event]:
        _, at, key, attempt, worker, run_id = message
        life = self._life(key)
        life.attempt, life.assigned, life.worker, life.run_id = attempt, at, worker, run_id
        return () if life.queued is not None else (self._queue(life, at),)

    def _queue(self, life: Life, at: float) -> Event:
        life.queued = at
        return TaskQueued(
            timestamp=self._iso(at),
            task=life.task,
            task_id=life.task_id,
            attempt=life.attempt,
            trace_id=self._trace_id,
            parent_id=life.parent,
        )

    def _running(self, message: m.Message) -> Iterable[Event]:
        _, _, key, run_id, worker, start, fetched, delay = message
        life = self._lives.get(key)
        if life is None:
            return
        self._adopt(worker, run_id, fetched)
        if life.started is None:
            yield self._start(life, Steps([["compute", start, start]], delay), worker, run_id)

    def _start(self, life: Life, spent: Steps, worker: str | None, run_id: int | None) -> Event:
        assert spent.start is not None
        on_schedulers_clock = (
            spent.start if self._workers.is_beside_scheduler(worker) else spent.start + spent.delay
        )
        life.started, life.worker, life.run_id = spent.start, worker, run_id
        life.queue_s = since(life.submitted, on_schedulers_clock)
        span = span_id(self._token, run_id) if run_id is not None else None
        return TaskStarted(
            timestamp=self._iso(spent.start),
            task=life.task,
            task_id=life.task_id,
            attempt=life.attempt,
            trace_id=self._trace_id,
            span_id=span,
            parent_id=life.parent,
            worker=worker,
            queue_s=life.queue_s,
        )

    def _caught_up(self, life: Life, spent: Steps, worker: str | None, run_id: int) -> Iterable[Event]:
        """Say that an attempt started, if its worker had no time to."""
        if spent.fetched:
            self._adopt(worker, run_id, spent.fetched)
        began: tuple[Event, ...] = ()
        if spent.start is not None and (life.started is None or life.run_id != run_id):
            began = (self._start(life, spent, worker, run_id),)
        life.worker, life.run_id = worker or life.worker, run_id
        return began

    # --- ends

    def _done(self, message: m.Message) -> Iterable[Event]:
        _, at, key, attempt, run_id, worker, nbytes, wanted, steps, delay = message
        life, spent = self._end(key, attempt), Steps(steps, delay)
        began = self._caught_up(life, spent, worker, run_id)
        ended = TaskCompleted(
            timestamp=self._iso(spent.stop if spent.stop is not None else at),
            call_bytes=life.call_bytes,
            result_bytes=nbytes,
            requests=max(self._requests(key) + max(wanted - 1, 0), 1),
            **self._ended_facts(life, spent),
        )
        return (*began, ended)

    def _erred(self, message: m.Message) -> Iterable[Event]:
        _, at, key, attempt, run_id, worker, blame, text, steps = message
        life = self._end(key, attempt)
        report = self._failures.pop(run_id, None) if run_id is not None else None
        if blame != key:
            why = (
                f"{key_split(blame)} ({self.task_id_of(blame)}), which it depends on, failed: "
                f"{text or 'unknown'}"
            )
            yield from self._ended_by(
                life, at, DEPENDENCY_FAILED, bounded(redact_text(why), 2000), Steps(None, None)
            )
        elif report is not None:
            spent, stamp, began = self._reported(life, report, steps, at)
            yield from began
            yield TaskFailed(
                timestamp=stamp,
                error_type=report[5],
                error_message=report[6],
                fingerprint=report[8],
                **self._ended_facts(life, spent),
            )
            yield self._failure(life, stamp, *report[5:9])
        elif worker is not None and not steps:
            life.lost.append(worker)
            self._workers.defer(worker, lambda death: self._killed(life, at, worker, death.reason))
        else:
            spent = Steps(steps, None)
            yield from self._caught_up(life, spent, worker, run_id)
            words = None if text is None else bounded(redact_text(text), 2000)
            kind = None if words is None else words.partition("(")[0]
            yield from self._ended_by(life, spent.stop if spent.stop is not None else at, kind, words, spent)

    def _reported(
        self, life: Life, report: m.Message, steps: Any, at: float
    ) -> tuple[Steps, str, Iterable[Event]]:
        """The steps of an attempt whose failure its worker reported, its end, and its start if it is news."""
        spent = Steps(steps or [["compute", report[9], report[10]]], report[11])
        stamp = self._iso(spent.stop if spent.stop is not None else at)
        return spent, stamp, self._caught_up(life, spent, report[4], report[3])

    def _killed(self, life: Life, at: float, worker: str, reason: str) -> Iterable[Event]:
        """Dask gives a task up that several workers died with."""
        times = "once" if len(life.lost) == 1 else f"{len(life.lost)} times"
        who = ", ".join(life.lost)
        words = f"its worker died {times} while it had this task, the last time: {reason}; workers: {who}"
        life.worker, spent = worker, Steps(None, None)
        spent.compute_s = since(life.started, at)
        yield from self._ended_by(life, at, "KilledWorker", words, spent)

    def _ended_by(
        self, life: Life, at: float, kind: str | None, words: str | None, spent: Steps
    ) -> Iterable[Event]:
        """The end of a task by something that the task itself could not tell of."""
        stamp = self._iso(at)
        yield TaskFailed(
            timestamp=stamp, error_type=kind, error_message=words, **self._ended_facts(life, spent)
        )
        yield self._failure(life, stamp, kind, words)

    def _released(self, message: m.Message) -> Iterable[Event]:
        """An attempt is over without a result; if the task is given up altogether, that is said next."""
        _, at, key, attempt, run_id, stimulus = message
        life = self._life(key)
        life.attempt = attempt
        report = self._failures.pop(run_id, None)
        gone = self._removals.get(stimulus)
        if report is not None:
            _, stamp, began = self._reported(life, report, None, at)
            yield from began
            yield self._failure(life, stamp, *report[5:9])
            yield TaskRetried(timestamp=stamp, reason=f"{report[5]}: {report[6]}", **self._ids(life))
        elif gone:
            worker = life.worker if life.worker in gone else min(gone)
            life.lost.append(worker)
            ids, stamp = self._ids(life), self._iso(at)
            failure = self._failure(life, stamp, "WorkerLost", worker=worker)

            def lost(death: ExitReason) -> Iterable[Event]:
                failure.message = death.reason
                yield failure
                yield TaskRetried(
                    timestamp=stamp, reason=f"its worker {worker} was lost: {death.reason}", **ids
                )

            self._workers.defer(worker, lost)
        elif meaning_of(stimulus, _GIVEN_UP):
            return  # its end follows
        else:
            why = f"Dask: {plain_stimulus(stimulus)}"
            yield TaskRetried(timestamp=self._iso(at), reason=why, **self._ids(life))
        life.begin_again(attempt + 1, at)

    def _forgotten(self, message: m.Message) -> Iterable[Event]:
        _, at, key, stimulus = message
        life, spent = self._end(key, None), Steps(None, None)
        spent.compute_s = since(life.started, at)
        facts = self._ended_facts(life, spent)
        why = meaning_of(stimulus, _GIVEN_UP) or f"Dask: {plain_stimulus(stimulus)}"
        yield TaskCancelled(timestamp=self._iso(at), reason=why, **facts)

    def _failed(self, message: m.Message) -> Iterable[Event]:
        self._failures[message[3]] = message
        bound(self._failures, DaskLimits.max_remembered_keys)
        return ()

    def _worker_gone(self, message: m.Message) -> Iterable[Event]:
        self._removals.setdefault(message[3], set()).add(message[2])
        bound(self._removals, DaskLimits.max_remembered_keys)
        return ()

    # --- what they are made of

    def _new(self, key: str, at: float | None) -> Life:
        self._lives.pop(key, None)
        number, parent = self._ended.get(key, (0, self._parent_id))
        number += 1
        life = self._lives[key] = Life(key, key if number == 1 else f"{key}#{number}", at, parent)
        return life

    def _life(self, key: str) -> Life:
        """The task of a key, made up where its submission was not heard of."""
        return self._lives.get(key) or self._new(key, None)

    def _end(self, key: str, attempt: int | None) -> Life:
        life = self._life(key)
        del self._lives[key]
        if attempt:
            life.attempt = attempt
        number, _ = self._ended.pop(key, (0, None))
        self._ended[key] = number + 1, life.parent
        bound(self._ended, DaskLimits.max_remembered_keys)
        return life

    def _adopt(self, worker: str | None, run_id: int, fetched: Iterable[float]) -> None:
        for start in fetched:
            self._parents[worker or "", start] = span_id(self._token, run_id)
        bound(self._parents, DaskLimits.max_remembered_keys)

    def _ids(self, life: Life) -> dict[str, Any]:
        return {
            "task": life.task,
            "task_id": life.task_id,
            "attempt": life.attempt,
            "trace_id": self._trace_id,
            "span_id": self._span_id(life),
            "parent_id": life.parent,
        }

    def _ended_facts(self, life: Life, spent: Steps) -> dict[str, Any]:
        return {
            **self._ids(life),
            "args": life.args,
            "args_digest": life.digest,
            "worker": life.worker,
            "duration_s": spent.compute_s,
            "transfer_s": spent.transfer_s,
            "spill_s": spent.spill_s,
            "queue_s": life.queue_s,
            "scheduler_s": since(life.queued, life.assigned),
        }

    def _failure(
        self,
        life: Life,
        stamp: str,
        kind: str | None,
        words: str | None = None,
        traceback: str | None = None,
        fingerprint: str | None = None,
        worker: str | None = None,
    ) -> Failure:
        return Failure(
            timestamp=stamp,
            scope="task",
            error_type=kind,
            message=words,
            traceback=traceback,
            fingerprint=fingerprint,
            task=life.task,
            task_id=life.task_id,
            attempt=life.attempt,
            worker=worker or life.worker,
            span_id=self._span_id(life),
        )

    def _span_id(self, life: Life) -> str | None:
        return None if life.run_id is None else span_id(self._token, life.run_id)


def _cleaned(args: dict[str, Any]) -> dict[str, Any]:
    """Arguments as they may be written; most tasks of a graph have the same names and harmless values."""
    floats = {name: value for name, value in args.items() if type(value) is float}
    others = {name: value for name, value in args.items() if name not in floats} if floats else args
    if are_harmless(others, floats) and (not floats or are_harmless(dict.fromkeys(floats), {})):
        return args
    cleaned, _ = clean(args)
    learn(args, cleaned)
    return cleaned


def bound(known: OrderedDict[Any, Any], most: int) -> None:
    """Forget the oldest of more than so many."""
    while len(known) > most:
        known.popitem(last=False)


_PURE = re.compile(r"-[0-9a-f]{32}\b")
_STAMP = re.compile(r"-?\d+(\.\d+)?$")


@lru_cache(maxsize=10_000)
def _is_pure(key: str) -> bool:
    return _PURE.search(key) is not None


class Life(Struct, eq=False):
    """One task from submission to end. Times are Unix seconds: of the scheduler, but `started` of the
    worker.
    """

    key: str
    task_id: str
    submitted: float | None
    parent: str | None
    args: dict[str, Any] = {}
    call_bytes: int | None = None
    lost: list[str] = []
    """The workers that died while they had it."""
    attempt: int = 1
    # Of the attempt.
    queued: float | None = None
    assigned: float | None = None
    started: float | None = None
    queue_s: float | None = None
    worker: str | None = None
    run_id: int | None = None
    task: str = ""
    digest: str | None = None
    """Of a pure call Dask's key is a digest of function and arguments."""

    def __post_init__(self) -> None:
        # Of the tasks of one `client.map` all but the number at the end of the key is the same.
        head, _, number = self.key.rpartition("-")
        kind = self.key if not head or not number.isdecimal() else head
        self.task = key_split(kind)
        self.digest = self.key if _is_pure(kind) else None

    def begin_again(self, attempt: int, at: float) -> None:
        """Another attempt is submitted, of which nothing else is known yet."""
        self.attempt, self.submitted = attempt, at
        self.queued = self.assigned = self.started = self.queue_s = self.worker = self.run_id = None


class Steps:
    """What Dask says that a worker did for a task, on the worker's own clock; None where it says nothing.

    `delay` is what the worker had added to bring its times to the scheduler's clock. That is an estimate, off
    by milliseconds, and would put a task beside the spans inside it.
    """

    def __init__(self, steps: Any, delay: float | None) -> None:
        self.delay = delay or 0.0
        self.start: float | None = None
        self.stop: float | None = None
        self.compute_s: float | None = None
        self.transfer_s: float | None = None
        self.spill_s: float | None = None
        self.fetched: list[float] = []
        """When its transfers began, as Dask has it."""
        for action, start, stop in steps or ():
            if action == "compute" and start is not None and stop is not None:
                self.start, self.stop = start - self.delay, stop - self.delay
                self.compute_s = max(stop - start, 0.0)
            elif action == "transfer":
                self.transfer_s = (self.transfer_s or 0.0) + max(stop - start, 0.0)
                self.fetched.append(start)
            elif action in ("disk-read", "disk-write"):
                self.spill_s = (self.spill_s or 0.0) + max(stop - start, 0.0)


def plain_stimulus(stimulus: str) -> str:
    """What set Dask going, without the time at its end."""
    return _STAMP.sub("", stimulus) or "unknown"


_GIVEN_UP = {
    "cancel-key": "cancelled by the client",
    "client-releases": "released: nobody wanted its result any more",
    "remove-client": "its client went away",
}
"""Why tasks are released that will not be retried."""


def meaning_of(stimulus: str, meanings: Mapping[str, str]) -> str | None:
    """What a stimulus means, by how it begins; None where that is not among the known ones."""
    return next((text for start, text in meanings.items() if stimulus.startswith(start)), None)


def since(earlier: float | None, later: float | None) -> float | None:
    """Seconds between two times; None where one is unknown."""
    return None if earlier is None or later is None else max(later - earlier, 0.0)
