"""Slurm's accounting merged into a run, while it is recorded or long after it has ended.

It becomes events of the run: ends and reasons where the run has none, and the accounting of jobs. A run that
is over is written to as by any late process: a writer of its own adds its lines, and `complete` folds them,
computes the summary anew and renews the checksums.

Nothing that the run has recorded is said again or otherwise: a task, a worker that has its end keeps it.
"""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from flightlog.core.errors import FlightlogError
from flightlog.core.grouping import grouped
from flightlog.core.settings import read_settings
from flightlog.core.time import timestamp_of
from flightlog.engines.slurm.accounting import Sacct, SlurmJob, SlurmStep, Verdict, ask, verdict
from flightlog.events import (
    Event,
    Failure,
    JobAccounted,
    JobStarted,
    ResourceRequest,
    SpanEvent,
    TaskCancelled,
    TaskCompleted,
    TaskEnded,
    TaskEvent,
    TaskFailed,
    TaskRetried,
    TaskStarted,
    TaskSubmitted,
    WorkerEvent,
    WorkerLaunched,
    WorkerLost,
    WorkerReady,
    WorkerRemoved,
    kind_of,
)
from flightlog.events.declarations import attempt_key
from flightlog.record.array_run import ENDED, array_of
from flightlog.record.closing import close_writer
from flightlog.record.recorder import Recorder
from flightlog.record.run import LiveRun
from flightlog.store import layout
from flightlog.store.completing import complete
from flightlog.store.documents import write_document
from flightlog.store.liveness import latest, this_host, unix_time
from flightlog.store.run import Run
from flightlog.store.write.finalize import finalizing

_OWN_STEPS = frozenset({"batch", "extern", "interactive"})
"""Steps that are the job itself; all others are spans inside it."""


_OF_JOB = {*SlurmJob.__struct_fields__} & {*JobAccounted.__struct_fields__} - {"reason", "elapsed_s", "steps"}
"""What is said of a job by the names that accounting has it under."""
_OF_TASK = tuple(name for name in TaskEvent.__struct_fields__ if name not in Event.__struct_fields__)
"""What tells one attempt of a task from others."""

ACCOUNTING = "accounting"
"""The target of a run that was made from accounting alone."""


def accounting_events(known: KnownRun, attempts: Sequence[SlurmJob], *, as_tasks: bool) -> list[Event]:
    """The events that all attempts of one job add to a run, in order of time; `attempts` are over, the first
    first.

    A job in which nobody of the run was is a task and a worker of its own `as_tasks`, and a worker alone
    otherwise.
    """
    events: list[Event] = []
    bound = known.bound_to(attempts[0].raw_id, attempts[0].cluster)
    inside = [[one for one in bound if _attempt_of(one, attempts) == i] for i in range(len(attempts))]
    for number, job in enumerate(attempts, 1):
        if (job.raw_id, iso(job.start)) in known.accounted:
            continue
        last, here = number == len(attempts), inside[number - 1]
        ruling = verdict(job)
        events.append(_account(job, number, ruling))
        span_id = known.span_id
        if bound:
            events += _ends(known, here, job, ruling, last=last)
            span_id = next((_span_of(known, one) for one in here if one.task_id), known.span_id)
        else:
            events += _own_life(known, job, number, ruling, last=last, as_tasks=as_tasks)
            if as_tasks:
                span_id = _own_ids(known, job, number)["span_id"]
        inner = [step for step in job.steps if step.step_id not in _OWN_STEPS and step.start is not None]
        events += [_span(known, job, step, span_id) for step in inner]
    return events


def _attempt_of(bound: JobStarted, attempts: Sequence[SlurmJob]) -> int:
    """Which attempt a process was in, from 0: by what Slurm told it, or else by when it was there."""
    if bound.restarts is not None and bound.restarts < len(attempts):
        return bound.restarts
    at = unix_time(bound.timestamp)
    begun = [i for i, job in enumerate(attempts) if at is not None and (job.start or 0.0) <= at + 1.0]
    return begun[-1] if begun else 0


def iso(moment: float | None) -> str | None:
    """The timestamp of Unix seconds."""
    return None if moment is None else timestamp_of(round(moment * 1e6) * 1000)


def _account(job: SlurmJob, number: int, ruling: Verdict) -> JobAccounted:
    return JobAccounted(
        **{name: getattr(job, name) for name in _OF_JOB},
        timestamp=iso(job.end or job.start or job.submit) or "",
        job_id=job.job_id,
        raw_job_id=job.raw_id,
        array_job_id=job.array_id,
        attempt=number,
        reason=job.reason or (None if ruling.end == "completed" else ruling.message),
        submitted=iso(job.submit),
        started=iso(job.start),
        ended=iso(job.end),
        queue_s=_between(job.submit, job.start),
        elapsed_s=job.elapsed_s if job.elapsed_s is not None else _between(job.start, job.end),
        steps=len(job.steps),
    )


def _ends(
    known: KnownRun, bound: Sequence[JobStarted], job: SlurmJob, ruling: Verdict, *, last: bool
) -> Iterator[Event]:
    """Ends for what the run saw begin in the job and did not see end, and Slurm's reason where it is news.

    What was in an attempt that is not the `last` was given up: the job ran again.
    """
    given_up = ruling if last else msgspec.structs.replace(ruling, end="cancelled")
    workers = {one.worker for one in bound if one.worker is not None}
    tasks = {one.task_id for one in bound if one.task_id is not None}
    elsewhere = {one.worker for one in known.jobs if one.worker is not None} - workers
    whole = any(one.worker is None and one.task_id is None for one in bound)

    def was_inside(start: TaskStarted) -> bool:
        named = start.task_id in tasks or start.worker in workers
        return named or (whole and start.worker not in elsewhere)

    open_tasks = [task for task in known.open_tasks if was_inside(task.started)]
    left = [name for name in sorted(workers) if name in known.workers and not known.workers[name].ended]
    for task in open_tasks:
        yield from _end_task(task, job, given_up, whole=len(open_tasks) == 1)
    news = ruling.by_slurm and ruling.end == "failed" and not open_tasks
    if news and (left or tasks or whole):
        only = min(tasks) if len(tasks) == 1 else None
        named = known.tasks.get(only) if only is not None else None
        yield _failure(job, ruling, "worker", min(workers, default=None), only, named)
    for name in left:
        yield _end_worker(name, known.workers[name], job, ruling)


def _end_task(task: OpenTask, job: SlurmJob, ruling: Verdict, *, whole: bool) -> Iterator[Event]:
    start, sent = task.started, task.submitted
    rss, cpu = (job.max_rss_bytes, job.cpu_s) if whole else (None, None)  # where it is the task's own
    facts: dict[str, Any] = {
        **{name: getattr(start, name) for name in _OF_TASK},
        "cpu_s": cpu,
        "cpu_scope": None if cpu is None else "tree",
        "peak_rss_bytes": rss,
        "rss_scope": None if rss is None else "tree",
        "timestamp": iso(job.end) or "",
        "worker": start.worker,
        "args": sent.args if sent else {},
        "args_digest": sent.args_digest if sent else None,
        "duration_s": _between(unix_time(start.timestamp), job.end),
        "queue_s": start.queue_s,
    }
    if ruling.end == "completed" and whole:
        yield TaskCompleted(**facts)
    elif ruling.end != "failed":
        yield TaskCancelled(reason=ruling.message, **facts)
    else:
        failure = _failure(job, ruling, "task", start.worker, start.task_id, start)
        yield TaskFailed(
            error_message=ruling.message,
            error_type=ruling.error_type,
            exit_code=job.exit_code,
            fingerprint=failure.fingerprint,
            **facts,
        )
        yield failure


def _own_life(
    known: KnownRun, job: SlurmJob, number: int, ruling: Verdict, *, last: bool, as_tasks: bool
) -> Iterator[Event]:
    """A job that nobody recorded from inside, as a task on a worker of its own."""
    worker = f"slurm-{job.job_id}" + (f"#{number}" if number > 1 else "")
    ran = job.start is not None
    ids = _own_ids(known, job, number)
    size: dict[str, Any] = {"cpus": job.cpus, "memory_bytes": job.memory_bytes, "gpus": job.gpus}
    args: dict[str, Any] = {} if job.array_index is None else {"array_index": job.array_index}
    sent = TaskSubmitted(timestamp=iso(job.submit or job.start) or "", args=args, **ids)
    if as_tasks and number == 1:
        yield sent
        who = {name: ids[name] for name in ("task", "task_id")}
        yield ResourceRequest(timestamp=sent.timestamp, walltime_s=job.walltime_s, **who, **size)
    if ran:
        yield WorkerLaunched(timestamp=iso(job.start) or "", worker=worker, host=job.nodes, pid=None, **size)
    if as_tasks:
        at, queue_s = iso(job.start or job.end) or "", _between(job.submit, job.start)
        started = TaskStarted(timestamp=at, worker=worker if ran else None, queue_s=queue_s, **ids)
        if ran:
            yield started
        ends = _end_task(OpenTask(started, sent), job, ruling, whole=True)
        if last:
            yield from ends
        else:
            yield from (event for event in ends if isinstance(event, Failure))
            yield TaskRetried(timestamp=iso(job.end) or "", reason=ruling.message, **ids)
    if ran:
        yield _end_worker(worker, KnownWorker(host=job.nodes, since=iso(job.start)), job, ruling)


def _own_ids(known: KnownRun, job: SlurmJob, number: int) -> dict[str, Any]:
    return {
        "task": job.name or "job",
        "task_id": f"slurm-{job.job_id}",
        "attempt": number,
        "trace_id": known.trace_id or None,
        "span_id": _id(job, str(number)),
        "parent_id": known.span_id or None,
    }


def _end_worker(name: str, worker: KnownWorker, job: SlurmJob, ruling: Verdict) -> WorkerLost | WorkerRemoved:
    facts: dict[str, Any] = {
        "timestamp": iso(job.end) or "",
        "worker": name,
        **{field: getattr(worker, field) for field in ("host", "pid", "component")},
        "reason": ruling.message,
    }
    if ruling.end == "failed" and ruling.by_slurm:
        return WorkerLost(exit_code=job.exit_code, signal=job.signal, **facts)
    return WorkerRemoved(uptime_s=_between(unix_time(worker.since), job.end), **facts)


def _failure(
    job: SlurmJob,
    ruling: Verdict,
    scope: Literal["task", "worker"],
    worker: str | None,
    task_id: str | None,
    task: TaskEvent | None,
) -> Failure:
    """Slurm's reason for the end of a task, or for one of a worker that the run has recorded without it."""
    return Failure(
        timestamp=iso(job.end) or "",
        scope=scope,
        error_type=ruling.error_type,
        message=ruling.message,
        traceback=None,
        fingerprint=_cause(job, ruling, task.task if task and scope == "task" else ""),
        task=task.task if task else None,
        task_id=task_id,
        attempt=task.attempt if task else None,
        worker=worker,
        span_id=task.span_id if task else None,
        exit_code=job.exit_code,
        signal=job.signal,
    )


def _span(known: KnownRun, job: SlurmJob, step: SlurmStep, parent_id: str) -> SpanEvent:
    measured = {"cpu_s": step.cpu_s, "max_rss_bytes": step.max_rss_bytes, "tasks": step.tasks}
    failed = step.state not in {None, "COMPLETED"}
    return SpanEvent(
        timestamp=iso(step.start) or "",
        name=f"step {step.name or step.step_id}",
        tags={"step": f"{job.job_id}.{step.step_id}", "nodes": step.nodes},
        metrics={name: value for name, value in measured.items() if value is not None},
        status="error" if failed else "ok",
        duration_s=_between(step.start, step.end),
        trace_id=known.trace_id,
        span_id=_id(job, f"step {step.step_id}"),
        parent_id=parent_id or None,
        error_type=step.state if failed else None,
    )


def _span_of(known: KnownRun, bound: JobStarted) -> str:
    task = known.tasks.get(bound.task_id or "")
    return (task.span_id if task else None) or known.span_id


def _cause(job: SlurmJob, ruling: Verdict, task: str) -> str:
    """The same for the same kind of end; of a program's own failures, for the same program and exit code."""
    if ruling.by_slurm:
        return _hex("slurm", str(ruling.error_type))
    return _hex(task, str(ruling.error_type), str(job.exit_code))


def _id(job: SlurmJob, what: str) -> str:
    return _hex("slurm", job.cluster or "", job.raw_id, str(job.start), what)


def _hex(*words: str) -> str:
    return hashlib.sha256("\n".join(words).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else max(0.0, end - start)


class KnownWorker(Struct):
    """A worker, and whether its end is recorded."""

    host: str | None = None
    pid: int | None = None
    component: str | None = None
    since: str | None = None
    ended: bool = False


class OpenTask(Struct, frozen=True):
    """An attempt that started, and whose end is not recorded; with its submission where that is known."""

    started: TaskStarted
    submitted: TaskSubmitted | None = None


class KnownRun(Struct):
    """What a run knows of itself. Empty, as it stands here, of a run that is about to be made."""

    trace_id: str = ""
    span_id: str = ""
    array_id: str | None = None
    """The array that the run is of, as a whole."""
    jobs: list[JobStarted] = field(default_factory=list)
    accounted: dict[tuple[str, str | None], JobAccounted] = field(default_factory=dict)
    """Attempts whose accounting is there, by the number of the job and its start."""
    workers: dict[str, KnownWorker] = field(default_factory=dict)
    open_tasks: list[OpenTask] = field(default_factory=list)
    tasks: dict[str, TaskEvent] = field(default_factory=dict)
    """Of each task that a job names, one event: the end, where it is recorded."""
    ended: set[str] = field(default_factory=set)
    """Of the tasks that a job names, those whose end is recorded."""
    by_number: dict[str, list[JobStarted]] = field(default_factory=dict)
    """`jobs` by the number of each."""

    def bound_to(self, raw_id: str, cluster: str | None) -> list[JobStarted]:
        """The processes that found themselves in a job, each once."""
        found = {
            (job.worker, job.task_id): job
            for job in self.by_number.get(raw_id, ())
            if job.cluster is None or cluster is None or job.cluster == cluster
        }
        return list(found.values())

    def array_size(self) -> int | None:
        """How many elements the array has that the run is of; None where it is of none, or nobody knows."""
        return next((job.array_size for job in self.jobs if job.array_job_id == self.array_id), None)


def read_known(run: Run) -> KnownRun:
    """Everything accounting needs to know of a run; goes twice through its tasks if some are in flight."""
    known = KnownRun(trace_id=run.info.trace_id, span_id=run.info.span_id, array_id=array_of(run.info))
    for event in run.events("jobs"):
        if isinstance(event, JobStarted):
            known.jobs.append(event)
            known.by_number.setdefault(event.raw_job_id or event.job_id, []).append(event)
        elif isinstance(event, JobAccounted):
            known.accounted[event.raw_job_id or event.job_id, event.started] = event
    for event in run.events("workers"):
        if isinstance(event, WorkerEvent):
            _add_worker(known, event)
    starts: dict[str, TaskStarted] = {}
    over: set[str] = set()
    named = {job.task_id for job in known.jobs if job.task_id is not None}
    for task in _task_events(run):
        if isinstance(task, TaskStarted):
            starts[attempt_key(task)] = task
        elif isinstance(task, TaskEnded | TaskRetried):
            over.add(attempt_key(task))
        if task.task_id in named and (isinstance(task, TaskEnded) or task.task_id not in known.ended):
            known.tasks[task.task_id] = task
            if isinstance(task, TaskEnded):
                known.ended.add(task.task_id)
    flying = {start.task_id: start for key, start in starts.items() if key not in over}
    submitted: dict[str, TaskSubmitted] = {}
    if flying:
        for task in _task_events(run):
            if isinstance(task, TaskSubmitted) and task.task_id in flying:
                submitted[task.task_id] = task
    known.open_tasks = [OpenTask(start, submitted.get(task_id)) for task_id, start in sorted(flying.items())]
    return known


def _task_events(run: Run) -> Iterator[TaskEvent]:
    return (event for event in run.events("tasks") if isinstance(event, TaskEvent))


def _add_worker(known: KnownRun, event: WorkerEvent) -> None:
    worker = known.workers.setdefault(event.worker, KnownWorker())
    worker.host, worker.pid = event.host or worker.host, event.pid or worker.pid
    worker.component = event.component or worker.component
    if isinstance(event, WorkerLost | WorkerRemoved):
        worker.ended = True
    elif isinstance(event, WorkerReady) or worker.since is None:
        worker.since = event.timestamp


class Merged(Struct, frozen=True, kw_only=True):
    """What a run was told of the jobs it was asked about."""

    run_id: str
    path: str
    made: bool = False
    """Whether the run is new."""
    states: dict[str, int] = {}
    """How the jobs ended whose accounting was added, with counts."""
    already: int = 0
    """Attempts whose accounting the run had."""
    waiting: tuple[str, ...] = ()
    """Jobs that have not ended; nothing was added of them."""
    missing: tuple[str, ...] = ()
    """Jobs that accounting does not know."""
    events: dict[str, int] = {}
    """Events that were added, by kind."""


def merge_accounting(
    run_path: Path,
    job_ids: Sequence[str],
    *,
    emit: Callable[[Event], None] | None = None,
    sacct: Sacct | None = None,
    patience_s: float = 0.0,
) -> Merged:
    """Ask Slurm for its accounting of these jobs, and merge it into a run; again, it changes nothing.

    `emit` is the recorder of a run that this process records; without it the run may be any that is on the
    disk. `patience_s` waits so long for jobs to end. Raises `FlightlogError` where Slurm cannot be asked or
    the run not be written.
    """
    jobs = ask(list(dict.fromkeys(job_ids)), sacct=sacct, patience_s=patience_s)
    told = {name for job in jobs for name in (job.raw_id, job.job_id, job.array_id)}
    missing = tuple(job_id for job_id in dict.fromkeys(job_ids) if job_id not in told)
    return merge_jobs(run_path, jobs, emit=emit, missing=missing)


def merge_jobs(
    run_path: Path,
    jobs: Sequence[SlurmJob],
    *,
    emit: Callable[[Event], None] | None = None,
    missing: tuple[str, ...] = (),
    made: bool = False,
) -> Merged:
    """As `merge_accounting`, of jobs whose accounting is there."""
    if emit is not None:
        events, already, waiting = _added(Run(run_path), jobs)
        for event in events:
            emit(event)
    else:
        with finalizing(run_path, wait_s=10.0):  # two that adopt at once would both add the same
            events, already, waiting = _added(Run(run_path), jobs)
            if events:
                append(run_path, Run(run_path).info, events)
        _conclude(run_path, events_added=bool(events))
    return Merged(
        run_id=Run(run_path).run_id,
        path=str(run_path),
        made=made,
        states=dict(Counter(event.state for event in events if isinstance(event, JobAccounted))),
        already=already,
        waiting=waiting,
        missing=missing,
        events=dict(Counter(map(kind_of, events))),
    )


def _added(run: Run, jobs: Sequence[SlurmJob]) -> tuple[list[Event], int, tuple[str, ...]]:
    """What accounting adds to a run, how many attempts the run had, and the jobs that have not ended."""
    known = read_known(run)
    events: list[Event] = []
    waiting: list[str] = []
    already = 0
    for attempts in _by_job(jobs):
        over = [job for job in attempts if job.is_over and job.end is not None]
        waiting += [job.job_id for job in attempts if job not in over]
        already += sum((job.raw_id, iso(job.start)) in known.accounted for job in over)
        if over:
            as_tasks = run.info.manifest_hash is None
            events += accounting_events(known, over, as_tasks=as_tasks)
    return events, already, tuple(dict.fromkeys(waiting))


def _by_job(jobs: Sequence[SlurmJob]) -> list[list[SlurmJob]]:
    """All attempts of each job, the first first."""
    found = grouped((job.raw_id, job) for job in jobs)
    return [sorted(of, key=lambda job: job.start or job.submit or 0.0) for of in found.values()]


def append(path: Path, info: layout.RunInfo, events: Sequence[Event]) -> None:
    """Write events into a run as a process of its own; a `FlightlogError` where not all of them could be
    written.
    """
    recorder = Recorder(path, this_host(), info.trace_id, owner=False)
    recorder.emit_all(events)
    close_writer(LiveRun(path, info, recorder), 0.0)
    # A sign of life of the jobs, and not of this process: by these it is told when a run ended.
    recorder.files.info.heartbeat = latest(*(event.timestamp for event in events)) or ""
    recorder.files.save()
    lost = sum(recorder.files.tally().lost.values()) + recorder.counts.get("events_failed", 0)
    if lost:
        why = "; ".join(recorder.problems) or "no reason is known"
        raise FlightlogError(f"{lost:,} of {len(events):,} events could not be written to {path}: {why}")


def _conclude(path: Path, *, events_added: bool) -> None:
    """End a run whose processes are gone, once accounting knows of every job in it; bring one that is over in
    order.
    """
    run = Run(path)
    info = run.info
    own = info.target == ACCOUNTING
    if not run.inferred and (own or run.status == "crashed") and info.status != "crashed":
        ending = _ending(read_known(run))
        if ending is not None and (not own or ending != (info.status, info.error, info.end_time)):
            info.status, info.error, ended = ending
            # Slurm counts whole seconds: the run's own last sign of life may be later.
            info.end_time = ended if own else latest(ended, run.ending().end_time)
            start, end = unix_time(info.start_time), unix_time(info.end_time)
            info.duration_s = None if start is None or end is None else max(0.0, end - start)
            write_document(path / layout.RUN, info)
            # What elements of an array had noted is told in full now.
            shutil.rmtree(path / ENDED, ignore_errors=True)
            events_added = True
    if events_added and info.status in layout.ENDED:
        complete(path, read_settings())


def _ending(known: KnownRun) -> tuple[str, str | None, str | None] | None:
    """Status, error and end of a run all of whose jobs are accounted for; None where some are not, or tasks
    are open.
    """
    by_start = sorted(known.accounted.items(), key=lambda entry: entry[0][1] or "")
    last = {number: job for (number, _), job in by_start}
    seen = {job.raw_job_id or job.job_id for job in known.jobs}
    elements = sum(job.array_job_id == known.array_id for job in last.values())
    short = known.array_id is not None and elements < (known.array_size() or elements + 1)
    if not last or not seen <= last.keys() or short or known.open_tasks:
        return None
    ended = max((job.ended for job in last.values() if job.ended), default=None)
    failed = [job for job in last.values() if job.state not in {"COMPLETED", "CANCELLED"}]
    unfinished = failed or [job for job in last.values() if job.state == "CANCELLED"]
    if not unfinished:
        return "completed", None, ended
    first = min(unfinished, key=lambda job: (job.ended or "", job.job_id))
    more = f", and {len(unfinished) - 1} more jobs" if len(unfinished) > 1 else ""
    return "failed" if failed else "interrupted", f"{first.reason or first.state}{more}", ended
