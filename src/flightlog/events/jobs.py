"""Batch jobs: which ones the run executed in, and what the batch system's accounting says of them."""

from __future__ import annotations

from typing import Annotated, ClassVar

from flightlog.events.base import Bytes, Event, Seconds, doc, register


class JobEvent(Event, kw_only=True):
    """Something is known of one job of a batch system."""

    stream: ClassVar[str] = "jobs"

    job_id: Annotated[str, doc("the job, as the batch system writes it: `1234`, or `1234_7` in an array")]
    scheduler: Annotated[str, doc("the batch system")] = "slurm"
    cluster: Annotated[str | None, doc("its name for the cluster")] = None
    raw_job_id: Annotated[str | None, doc("the number of an array's element by itself")] = None
    array_job_id: Annotated[str | None, doc("the array it is an element of")] = None
    array_index: Annotated[int | None, doc("which element")] = None
    name: Annotated[str | None, doc("what the job is called")] = None
    user: Annotated[str | None, doc("who submitted it")] = None
    partition: Annotated[str | None, doc("partition or queue")] = None
    account: Annotated[str | None, doc("account it is charged to")] = None
    qos: Annotated[str | None, doc("quality of service")] = None
    nodes: Annotated[str | None, doc("the nodes it has, as the batch system lists them: `n[1-3]`")] = None
    cpus: Annotated[float | None, doc("CPUs it has, on all nodes")] = None
    memory_bytes: Annotated[Bytes | None, doc("memory it may use, on all nodes")] = None
    gpus: Annotated[float | None, doc("GPUs it has, on all nodes")] = None
    walltime_s: Annotated[Seconds | None, doc("its time limit; null where it has none, or none is known")] = (
        None
    )


@register
class JobStarted(JobEvent, kw_only=True, tag="job_started"):
    """A process that records found itself inside a job.

    With `worker`, what that worker executes belongs to the job; with `task_id`, that task alone; with
    neither, all that the process recorded.
    """

    worker: Annotated[str | None, doc("worker that lives in the job")] = None
    task_id: Annotated[str | None, doc("task that is executed by the job")] = None
    host: Annotated[str | None, doc("host of the process")] = None
    array_size: Annotated[int | None, doc("elements of the array")] = None
    restarts: Annotated[int | None, doc("how often the job had been put back into the queue before")] = None
    submit_host: Annotated[str | None, doc("host it was submitted from")] = None
    submit_dir: Annotated[str | None, doc("folder it was submitted from")] = None


@register
class JobAccounted(JobEvent, kw_only=True, tag="job_accounted"):
    """What accounting says of one attempt of a job; `timestamp` is its end, or else its start or
    submission.
    """

    state: Annotated[
        str, doc("the batch system's word: `COMPLETED`, `FAILED`, `OUT_OF_MEMORY`, `TIMEOUT`, …")
    ]
    attempt: Annotated[int, doc("which try this is, from 1; a job that was put back into the queue has more")]
    reason: Annotated[str | None, doc("why, as far as the batch system says or its figures show")] = None
    exit_code: Annotated[int | None, doc("exit code of the job's script")] = None
    signal: Annotated[str | None, doc("signal that ended it")] = None
    submitted: Annotated[str | None, doc("when it was submitted: ISO 8601, UTC")] = None
    started: Annotated[str | None, doc("when it started, as `submitted`")] = None
    ended: Annotated[str | None, doc("when it ended, as `submitted`")] = None
    queue_s: Annotated[Seconds | None, doc("from submission to start")] = None
    elapsed_s: Annotated[Seconds | None, doc("from start to end")] = None
    cpu_s: Annotated[Seconds | None, doc("CPU time of all its steps, by the larger of two accounts")] = None
    max_rss_bytes: Annotated[
        Bytes | None,
        doc("largest resident memory of one of its tasks, as sampled: null in jobs shorter than a sample"),
    ] = None
    steps: Annotated[int | None, doc("steps it was made of, the batch script included")] = None
