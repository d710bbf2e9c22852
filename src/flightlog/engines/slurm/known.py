"""What a run has recorded already that accounting may add to: its jobs, its workers, its tasks without an
end.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct, field

from flightlog.analyze.report.attempts import Attempts
from flightlog.events import (
    JobAccounted,
    JobStarted,
    TaskEnded,
    TaskEvent,
    TaskRetried,
    TaskStarted,
    TaskSubmitted,
    WorkerEvent,
    WorkerLost,
    WorkerReady,
    WorkerRemoved,
)
from flightlog.record.array_run import array_of
from flightlog.store.run import Run


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


class Known(Struct):
    """What a run knows of itself. Empty, as it stands here, of a run that is about to be made."""

    trace_id: str = ""
    span_id: str = ""
    array_id: str | None = None
    """The array that the run is of, as a whole."""
    jobs: list[JobStarted] = field(default_factory=list)
    accounted: dict[tuple[str, str | None], str] = field(default_factory=dict)
    """Attempts whose accounting is there: number of the job and its start, with the state."""
    workers: dict[str, KnownWorker] = field(default_factory=dict)
    open_tasks: list[OpenTask] = field(default_factory=list)
    tasks: dict[str, TaskEvent] = field(default_factory=dict)
    """Of each task that a job names, one event: the end, where it is recorded."""
    ended: set[str] = field(default_factory=set)
    """Of the tasks that a job names, those whose end is recorded."""
    _by_number: dict[str, list[JobStarted]] | None = None

    def bound_to(self, raw_id: str, cluster: str | None) -> list[JobStarted]:
        """The processes that found themselves in a job, each once."""
        if self._by_number is None:
            self._by_number = {}
            for job in self.jobs:
                self._by_number.setdefault(job.raw_job_id or job.job_id, []).append(job)
        found = {
            (job.worker, job.task_id): job
            for job in self._by_number.get(raw_id, ())
            if job.cluster is None or cluster is None or job.cluster == cluster
        }
        return list(found.values())

    def array_size(self) -> int | None:
        """How many elements the array has that the run is of; None where it is of none, or nobody knows."""
        return next((job.array_size for job in self.jobs if job.array_job_id == self.array_id), None)


def read_known(run: Run) -> Known:
    """Everything accounting needs to know of a run; goes twice through its tasks if some are in flight."""
    known = Known(trace_id=run.info.trace_id, span_id=run.info.span_id, array_id=array_of(run.info))
    for event in run.events("jobs"):
        if isinstance(event, JobStarted):
            known.jobs.append(event)
        elif isinstance(event, JobAccounted):
            known.accounted[event.raw_job_id or event.job_id, event.started] = event.state
    for event in run.events("workers"):
        if isinstance(event, WorkerEvent):
            _add_worker(known, event)
    attempts, named = Attempts(), {job.task_id for job in known.jobs if job.task_id is not None}
    for task in _task_events(run):
        if isinstance(task, TaskEnded):
            attempts.ended(task)
        elif isinstance(task, TaskStarted):
            attempts.started(task)
        elif isinstance(task, TaskRetried):
            attempts.retried(task)
        if task.task_id in named and (isinstance(task, TaskEnded) or task.task_id not in known.ended):
            known.tasks[task.task_id] = task
            if isinstance(task, TaskEnded):
                known.ended.add(task.task_id)
    flying = {start.task_id: start for start in attempts.in_flight()}
    submitted: dict[str, TaskSubmitted] = {}
    if flying:
        for task in _task_events(run):
            if isinstance(task, TaskSubmitted) and task.task_id in flying:
                submitted[task.task_id] = task
    known.open_tasks = [OpenTask(start, submitted.get(task_id)) for task_id, start in sorted(flying.items())]
    return known


def _task_events(run: Run) -> Iterator[TaskEvent]:
    return (event for event in run.events("tasks") if isinstance(event, TaskEvent))


def _add_worker(known: Known, event: WorkerEvent) -> None:
    worker = known.workers.setdefault(event.worker, KnownWorker())
    worker.host, worker.pid = event.host or worker.host, event.pid or worker.pid
    worker.component = event.component or worker.component
    if isinstance(event, WorkerLost | WorkerRemoved):
        worker.ended = True
    elif isinstance(event, WorkerReady) or worker.since is None:
        worker.since = event.timestamp
