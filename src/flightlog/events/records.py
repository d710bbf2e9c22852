"""Cache lookups, failures, artifacts, cost, and batch jobs with what the batch system accounts for them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from flightlog.events.base import Bytes, Event, Json, Seconds, doc, register


@register
class CacheLookup(Event, kw_only=True, tag="cache_lookup"):
    """A cache was asked for a result."""

    stream: ClassVar[str] = "cache"

    task: Annotated[str, doc("function whose result was looked up")]
    result: Annotated[Literal["hit", "miss", "bypass"], doc("`bypass` is a cache that was switched off")]
    key: Annotated[str | None, doc("key that was looked up")]
    reason: Annotated[str | None, doc("why a miss was a miss, or a bypass a bypass")] = None
    duration_s: Annotated[Seconds | None, doc("time the lookup took")] = None
    saved_s: Annotated[Seconds | None, doc("time the computation took when the result was made")] = None
    size_bytes: Annotated[Bytes | None, doc("size of the cached result")] = None
    task_id: Annotated[str | None, doc("task that asked")] = None
    span_id: Annotated[str | None, doc("span that asked")] = None


@register
class Failure(Event, kw_only=True, tag="failure"):
    """Something failed: a task, a worker, a command or the run itself."""

    stream: ClassVar[str] = "failures"

    scope: Annotated[Literal["run", "task", "worker", "command"], doc("what failed")]
    error_type: Annotated[str | None, doc("class of the exception, or of the exit")]
    message: Annotated[str | None, doc("its text, bounded and redacted")]
    traceback: Annotated[str | None, doc("where it came from, causes included, bounded and redacted")]
    fingerprint: Annotated[str | None, doc("the same for failures with the same cause")]
    task: Annotated[str | None, doc("name of the task")] = None
    task_id: Annotated[str | None, doc("the submission that failed")] = None
    attempt: Annotated[int | None, doc("the attempt that failed")] = None
    worker: Annotated[str | None, doc("where it ran")] = None
    span_id: Annotated[str | None, doc("innermost span it came through")] = None
    exit_code: Annotated[int | None, doc("exit code of a process")] = None
    signal: Annotated[str | None, doc("signal that ended a process")] = None
    output_tail: Annotated[str | None, doc("last lines a command printed")] = None


@register
class ArtifactRecorded(Event, kw_only=True, tag="artifact_recorded"):
    """An output was registered: a file, a folder or an address."""

    stream: ClassVar[str] = "artifacts"

    name: Annotated[str, doc("what the user calls it")]
    uri: Annotated[str, doc("absolute path, or the address given")]
    kind: Annotated[str | None, doc("what it is: result, figure, model, log, …")]
    size_bytes: Annotated[Bytes | None, doc("size; null where it cannot be seen from here")]
    sha256: Annotated[str | None, doc("checksum of a file's content")]
    files: Annotated[int | None, doc("number of files, for a folder")] = None
    task_id: Annotated[str | None, doc("task that made it")] = None
    span_id: Annotated[str | None, doc("span that made it")] = None
    error: Annotated[str | None, doc("why size or checksum are missing")] = None
    metadata: Annotated[Json, doc("what the user said of it")] = {}


@register
class CostRates(Event, kw_only=True, tag="cost_rates"):
    """What things cost in this run, by its manifest or a price table; the latest counts.

    What a run cost is worked out from the rates and from the time its workers lived. Null rates are not
    named.
    """

    stream: ClassVar[str] = "cost"

    currency: Annotated[str, doc("ISO 4217 code")]
    source: Annotated[str, doc("who says so: the manifest, or a price table by its name")]
    provider: Annotated[str | None, doc("who bills it")] = None
    instance: Annotated[str | None, doc("instance type of a price table, `aws/m6i.xlarge`")] = None
    prices_of: Annotated[str | None, doc("day of the table's price, `2026-06-17`")] = None
    per_worker_hour: Annotated[float | None, doc("for an hour of a worker")] = None
    per_cpu_hour: Annotated[float | None, doc("for an hour of a CPU of a worker")] = None
    per_gb_hour: Annotated[float | None, doc("for an hour of a GB (1000s) of memory of a worker")] = None
    per_gpu_hour: Annotated[float | None, doc("for an hour of a GPU of a worker")] = None
    per_gb_month: Annotated[float | None, doc("for keeping a GB (1000s) of artifacts for a month")] = None
    per_gb_egress: Annotated[float | None, doc("for a GB (1000s) that leaves the provider's network")] = None
    per_kwh: Annotated[float | None, doc("for a kilowatt-hour")] = None
    components: Annotated[
        Json, doc("what a worker of each component has: `cpus`, `memory_bytes` and `gpus`, by component")
    ] = {}


@register
class CostEstimate(Event, kw_only=True, tag="cost_estimate"):
    """What an item of the run has cost so far. A later estimate of the same item replaces the earlier one."""

    stream: ClassVar[str] = "cost"

    item: Annotated[str, doc("what it is for: a worker, a component, storage, …")]
    amount: Annotated[float | None, doc("cost so far; null where no rate is known")]
    currency: Annotated[str, doc("ISO 4217 code")]
    provider: Annotated[str | None, doc("who bills it")] = None
    rate: Annotated[float | None, doc("price of one unit")] = None
    quantity: Annotated[float | None, doc("units so far")] = None
    quantity_unit: Annotated[str | None, doc("the unit, such as `worker-hour`")] = None


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
