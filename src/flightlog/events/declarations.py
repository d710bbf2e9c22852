"""The events of a run: what each says, field by field.

A task is submitted, queued, started, and one of completed, failed, retried, cancelled. A worker is launched,
ready, and lost or removed. User code records spans, metrics, free events, and events that users define. There
are cache lookups, failures, artifacts, cost, batch jobs with what the batch system accounts for them, and
resources that were used (samples) and requested. Device memory is in `events.devices`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast, get_type_hints

import msgspec

from flightlog.core.errors import UsageError
from flightlog.events.base import (
    Bytes,
    BytesPerSecond,
    Celsius,
    Event,
    Joules,
    Json,
    Megahertz,
    Percent,
    Seconds,
    Watts,
    class_of,
    doc,
    kind_of,
    learned,
    register,
)

__all__ = [
    "DEPENDENCY_FAILED",
    "ArtifactRecorded",
    "CacheLookup",
    "CostEstimate",
    "CostRates",
    "EventDefined",
    "Failure",
    "JobAccounted",
    "JobEvent",
    "JobStarted",
    "Metric",
    "ResourceRequest",
    "ResourceSample",
    "SpanEvent",
    "SpanOpened",
    "TaskCancelled",
    "TaskCompleted",
    "TaskEnded",
    "TaskEvent",
    "TaskFailed",
    "TaskQueued",
    "TaskRetried",
    "TaskStarted",
    "TaskSubmitted",
    "Usage",
    "UserEvent",
    "WorkerEvent",
    "WorkerLaunched",
    "WorkerLost",
    "WorkerReady",
    "WorkerRemoved",
    "define_event",
    "definition_of",
    "usage_of",
]


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
    computed_s: Annotated[Seconds | None, doc("time the computation took now, unless it was a hit")] = None
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


@register
class ResourceSample(Event, kw_only=True, tag="resource_sample"):
    """A measurement of a node, a cgroup, a process tree, a worker process, a task or a GPU, at one moment.

    In scope `worker` stands the whole tree of a process that records, the run's own with every process below
    it; in scope `worker_process` a part of that tree, one worker process of an engine under the worker's own
    name, or without a name where it samples itself.

    Rates cover `interval_s`, the time since the sampler's previous sample; the first sample has none.
    """

    stream: ClassVar[str] = "resources"

    scope: Annotated[
        Literal["node", "cgroup", "worker", "worker_process", "task", "gpu"], doc("what was measured")
    ]
    host: Annotated[str | None, doc("where")]
    cpu_percent: Annotated[Percent | None, doc("share of the `cpus` in use over the interval, 0 to 100")]
    worker: Annotated[str | None, doc("worker, in scope `worker` and `worker_process`")] = None
    pid: Annotated[
        int | None, doc("root of the process tree, in scope `worker`, `worker_process` and `task`")
    ] = None
    task_id: Annotated[str | None, doc("task, in scope `task`")] = None
    interval_s: Annotated[Seconds | None, doc("time the rates cover; null in a first sample")] = None
    final: Annotated[bool, doc("the last sample of this sampler")] = False
    cpu_s: Annotated[Seconds | None, doc("CPU time so far, exited children included")] = None
    cpu_cores: Annotated[float | None, doc("cores in use on average over the interval")] = None
    cpus: Annotated[
        float | None,
        doc("cores there are to use: of the node, of the processes' affinity, of the cgroup's quota"),
    ] = None
    load_1m: Annotated[float | None, doc("load average over one minute")] = None
    cpu_wait_s: Annotated[
        Seconds | None,
        doc(
            "time that the main thread of the process at the root was ready to run and waited for a CPU, "
            "so far, in scope `worker` and `worker_process`"
        ),
    ] = None
    children_cpu_wait_s: Annotated[
        Seconds | None, doc("the same, added up, of all other processes that the tree had, in scope `worker`")
    ] = None
    interpreter_wait_s: Annotated[
        Seconds | None,
        doc("how long a thread of the process that was ready to run waited for Python's interpreter lock"),
    ] = None
    memory_used_bytes: Annotated[Bytes | None, doc("memory in use, reclaimable cache not counted")] = None
    memory_total_bytes: Annotated[Bytes | None, doc("memory there is, or the cgroup's limit")] = None
    memory_peak_bytes: Annotated[
        Bytes | None, doc("the kernel's own high-water mark, where it keeps one")
    ] = None
    swap_used_bytes: Annotated[Bytes | None, doc("swap in use")] = None
    rss_bytes: Annotated[Bytes | None, doc("resident memory, summed over the process tree")] = None
    peak_rss_bytes: Annotated[Bytes | None, doc("largest rss_bytes seen by this sampler")] = None
    managed_bytes: Annotated[
        Bytes | None,
        doc("results that the engine keeps on the worker, in memory and on disk, by its own count"),
    ] = None
    spilled_bytes: Annotated[Bytes | None, doc("those of them that it has moved to disk, as stored")] = None
    processes: Annotated[int | None, doc("processes in the tree")] = None
    threads: Annotated[int | None, doc("threads in the tree")] = None
    disk_read_bytes_per_s: Annotated[BytesPerSecond | None, doc("read from storage")] = None
    disk_write_bytes_per_s: Annotated[BytesPerSecond | None, doc("written to storage")] = None
    read_bytes: Annotated[Bytes | None, doc("read from storage so far")] = None
    write_bytes: Annotated[Bytes | None, doc("written to storage so far")] = None
    net_recv_bytes_per_s: Annotated[BytesPerSecond | None, doc("received, loopback not counted")] = None
    net_sent_bytes_per_s: Annotated[BytesPerSecond | None, doc("sent, loopback not counted")] = None
    energy_j: Annotated[
        Joules | None,
        doc(
            "energy the processors and their memory used, by everyone on the node: a counter of this "
            "sampler, whose differences count; null where the kernel has or shows none"
        ),
    ] = None
    throttled_s: Annotated[Seconds | None, doc("time the cgroup was held back by its CPU quota, so far")] = (
        None
    )
    throttled_percent: Annotated[Percent | None, doc("share of CPU periods throttled in the interval")] = None
    steal_s: Annotated[
        Seconds | None, doc("CPU time that the hypervisor gave to other machines, over all cores, so far")
    ] = None
    cpu_pressure_s: Annotated[
        Seconds | None,
        doc("time that at least one thread of the node or cgroup was ready and waited for a CPU, so far"),
    ] = None
    memory_pressure_s: Annotated[
        Seconds | None,
        doc("time that at least one thread of the node or cgroup waited for memory to be freed, so far"),
    ] = None
    io_pressure_s: Annotated[
        Seconds | None, doc("time that at least one thread of the node or cgroup waited for storage, so far")
    ] = None
    oom_events: Annotated[int | None, doc("times the cgroup hit its memory limit, so far")] = None
    oom_kills: Annotated[int | None, doc("processes of the cgroup killed for memory, so far")] = None
    gpu_index: Annotated[int | None, doc("index of the GPU on its host")] = None
    gpu_uuid: Annotated[str | None, doc("UUID of the GPU")] = None
    gpu_name: Annotated[str | None, doc("what the GPU is called")] = None
    gpu_mig: Annotated[str | None, doc("UUID of the instance, where it is one of a partitioned GPU")] = None
    gpu_percent: Annotated[
        Percent | None,
        doc(
            "share of time a kernel ran since the previous sample; over the driver's own last period, of up "
            "to a second, where it knows no more"
        ),
    ] = None
    gpu_memory_used_bytes: Annotated[Bytes | None, doc("device memory in use by everyone")] = None
    gpu_memory_free_bytes: Annotated[Bytes | None, doc("device memory that is free")] = None
    gpu_memory_total_bytes: Annotated[Bytes | None, doc("device memory there is")] = None
    gpu_process_memory_bytes: Annotated[
        Bytes | None,
        doc(
            "device memory in use by the run's process tree; null where the driver cannot tell, "
            "as in containers"
        ),
    ] = None
    gpu_memory_bus_percent: Annotated[
        Percent | None, doc("share of time the memory bus was busy; not fill")
    ] = None
    gpu_power_w: Annotated[Watts | None, doc("power drawn")] = None
    gpu_energy_j: Annotated[Joules | None, doc("energy used since the driver was loaded: a counter")] = None
    gpu_temperature_c: Annotated[Celsius | None, doc("temperature")] = None
    gpu_clock_mhz: Annotated[Megahertz | None, doc("clock of the processors")] = None
    gpu_memory_clock_mhz: Annotated[Megahertz | None, doc("clock of the memory")] = None
    gpu_throttle_reasons: Annotated[
        list[str] | None,
        doc(
            "what holds the clocks back, such as `power_cap` or `thermal_hardware`; empty where nothing does"
        ),
    ] = None
    gpu_ecc_corrected: Annotated[int | None, doc("memory errors corrected since the driver was loaded")] = (
        None
    )
    gpu_ecc_uncorrected: Annotated[
        int | None, doc("memory errors not corrected since the driver was loaded")
    ] = None
    gpu_pcie_sent_bytes_per_s: Annotated[BytesPerSecond | None, doc("sent by the GPU to the host")] = None
    gpu_pcie_received_bytes_per_s: Annotated[
        BytesPerSecond | None, doc("received by the GPU from the host")
    ] = None


@register
class ResourceRequest(Event, kw_only=True, tag="resource_request"):
    """What a task or component asked for."""

    stream: ClassVar[str] = "resources"

    task: Annotated[str | None, doc("task name the request is for")]
    cpus: Annotated[float | None, doc("CPUs")]
    memory_bytes: Annotated[Bytes | None, doc("memory")]
    component: Annotated[str | None, doc("component the request is for")] = None
    gpus: Annotated[float | None, doc("GPUs")] = None
    walltime_s: Annotated[Seconds | None, doc("wall time")] = None
    task_id: Annotated[str | None, doc("the one submission it is for; null means all of that name")] = None


class Usage(msgspec.Struct, kw_only=True):
    """What one attempt of a task used; None is unknown.

    Its meter gives it, outcomes carry it to the session, and the events of ends have its fields among their
    own: a new measured field is one line here.
    """

    cpu_s: Annotated[Seconds | None, doc("CPU time, user and system, of what `cpu_scope` says")] = None
    cpu_scope: Annotated[
        Literal["thread", "process", "tree"] | None,
        doc("what cpu_s covers: the executing thread, its process, or the process tree"),
    ] = None
    thread_cpu_s: Annotated[
        Seconds | None,
        doc(
            "CPU time of the executing thread alone; what it and cpu_wait_s leave of the duration was blocked"
        ),
    ] = None
    cpu_wait_s: Annotated[
        Seconds | None,
        doc("time that the executing thread was ready to run and waited for a CPU; null where unknown"),
    ] = None
    sleep_s: Annotated[
        Seconds | None,
        doc(
            "part of its blocked time that the executing thread slept; this and the next two are shares by "
            "samples every 0.4 s, and null where there was none"
        ),
    ] = None
    lock_wait_s: Annotated[
        Seconds | None,
        doc("part that it waited for a lock, the interpreter's included, or for other threads"),
    ] = None
    io_wait_s: Annotated[
        Seconds | None, doc("part that it waited for files, sockets, pipes, memory or other processes")
    ] = None
    voluntary_switches: Annotated[
        int | None, doc("times the executing thread gave its CPU up to wait for something")
    ] = None
    involuntary_switches: Annotated[
        int | None, doc("times the executing thread lost its CPU to another although it could have gone on")
    ] = None
    major_faults: Annotated[
        int | None, doc("pages of memory the executing thread had to wait for: swapped out, or of a file")
    ] = None
    rss_before_bytes: Annotated[
        Bytes | None, doc("resident memory of the process when it began: what earlier tasks left there")
    ] = None
    call_bytes: Annotated[Bytes | None, doc("size of the serialized call: its function and arguments")] = None
    serialize_s: Annotated[
        Seconds | None, doc("time its worker took to read the serialized call and to serialize the result")
    ] = None
    session_serialize_s: Annotated[
        Seconds | None, doc("time the session took to serialize the call and to read the serialized result")
    ] = None
    peak_rss_bytes: Annotated[Bytes | None, doc("largest resident memory seen while it ran")] = None
    rss_scope: Annotated[
        Literal["process", "process_at_least", "tree", "tree_at_least"] | None,
        doc(
            "whose memory; `process_at_least` is a lower bound: the process had peaked higher before; so is "
            "`tree_at_least`: the largest process that it started, alone"
        ),
    ] = None
    read_bytes: Annotated[Bytes | None, doc("read from storage")] = None
    write_bytes: Annotated[Bytes | None, doc("written to storage")] = None
    gpu_peak_bytes: Annotated[
        Bytes | None, doc("largest memory seen on one GPU while it ran, of what `gpu_memory_scope` says")
    ] = None
    gpu_memory_scope: Annotated[
        Literal["allocator", "allocator_at_least", "process", "device"] | None,
        doc(
            "whose memory: what PyTorch's allocator of the process had handed out (exact; "
            "`allocator_at_least` is a lower bound: it had peaked higher before), "
            "the process tree's by the driver, or everyone's on the device; the last two from samples, "
            "so peaks in between are missed"
        ),
    ] = None
    gpu_s: Annotated[
        Seconds | None,
        doc(
            "time that kernels ran, from samples, the GPUs' added up; null for less than a second of "
            "execution"
        ),
    ] = None
    gpu_scope: Annotated[
        Literal["process", "device"] | None,
        doc(
            "whose kernels: those of the process tree, alone on its GPUs, or everyone's on the GPUs it "
            "can see"
        ),
    ] = None


def usage_of(measured: Usage) -> dict[str, Any]:
    """What was used, as the events of ends take it."""
    if type(measured) is Usage:
        return msgspec.structs.asdict(measured)
    return {name: getattr(measured, name) for name in Usage.__struct_fields__}


class TaskEvent(Event, kw_only=True):
    """Something happened to one attempt of one task."""

    stream: ClassVar[str] = "tasks"

    task: Annotated[str, doc("name of the task: the function or command")]
    task_id: Annotated[str, doc("one submission of it; unique within the run")]
    attempt: Annotated[int, doc("which try this is, from 1")] = 1
    component: Annotated[str | None, doc("component of the manifest it runs on")] = None
    trace_id: Annotated[str | None, doc("W3C trace id")] = None
    span_id: Annotated[str | None, doc("W3C span id of the task; spans inside it have it as parent")] = None
    parent_id: Annotated[str | None, doc("span id of what submitted it")] = None


def attempt_key(event: TaskEvent) -> str:
    """What starts and ends of one attempt share."""
    return event.task_id if event.attempt == 1 else f"{event.task_id}\0{event.attempt}"


@register
class TaskSubmitted(TaskEvent, kw_only=True, tag="task_submitted"):
    """A task was handed over for execution."""

    args: Annotated[Json, doc("arguments by name, bounded and redacted")]
    args_digest: Annotated[
        str | None, doc("digest of the arguments: tasks of one name with the same one match between runs")
    ] = None
    depends_on: Annotated[list[str], doc("task ids it waits for, where the engine knows them")] = []


@register
class TaskQueued(TaskEvent, kw_only=True, tag="task_queued"):
    """The engine accepted the task and holds it until a worker is free."""


@register
class TaskStarted(TaskEvent, kw_only=True, tag="task_started"):
    """A worker began to execute the task."""

    worker: Annotated[str | None, doc("worker that executes it")]
    queue_s: Annotated[Seconds | None, doc("from submission to start; null where the engine hides it")]


class _AttemptOver(TaskEvent, kw_only=True):
    """An attempt is over."""

    args: Annotated[Json, doc("arguments by name, bounded and redacted")]
    worker: Annotated[str | None, doc("worker that executed it; null if it never started")]
    duration_s: Annotated[Seconds | None, doc("execution alone, on the worker's monotonic clock")]
    args_digest: Annotated[
        str | None, doc("digest of the arguments: tasks of one name with the same one match between runs")
    ] = None
    queue_s: Annotated[Seconds | None, doc("from submission to start; null where the engine hides it")] = None


class _AttemptRepeated(TaskEvent, kw_only=True):
    """An attempt is over, and the task is not."""

    reason: Annotated[str | None, doc("the error of the failed attempt")]
    delay_s: Annotated[Seconds | None, doc("wait before the next attempt")] = None
    worker: Annotated[str | None, doc("worker that executed it; null if it never started")] = None
    duration_s: Annotated[Seconds | None, doc("execution alone, on the worker's monotonic clock")] = None
    queue_s: Annotated[Seconds | None, doc("from submission to start; null where the engine hides it")] = None


if TYPE_CHECKING:

    class _AttemptMeasured(_AttemptOver, Usage, kw_only=True):
        """An attempt is over, with what it used."""

    class _RepeatedMeasured(_AttemptRepeated, Usage, kw_only=True):
        """As that, of one that is followed by another."""

else:
    # A struct has one base of fields: those of the second are declared once more, from its own declaration.
    _AttemptMeasured, _RepeatedMeasured = (
        msgspec.defstruct(
            name,
            [(name, hint, None) for name, hint in get_type_hints(Usage, include_extras=True).items()],
            bases=(base,),
            kw_only=True,
        )
        for name, base in (("_AttemptMeasured", _AttemptOver), ("_RepeatedMeasured", _AttemptRepeated))
    )


class TaskEnded(_AttemptMeasured, kw_only=True):
    """An attempt is over, with what it used."""

    scheduler_s: Annotated[
        Seconds | None,
        doc("part of queue_s: held by the engine's scheduler, ready to run, until a worker had room for it"),
    ] = None
    transfer_s: Annotated[Seconds | None, doc("time spent fetching what it needs from other workers")] = None
    spill_s: Annotated[
        Seconds | None, doc("time its worker spent for it on moving data between memory and disk")
    ] = None
    requests: Annotated[
        int | None, doc("how often its result was asked for by its end: identical pure calls are one task")
    ] = None
    tags: Annotated[Json, doc("what the code inside tagged the task with")] = {}
    metrics: Annotated[Json, doc("what the code inside measured")] = {}
    nonfinite: Annotated[dict[str, str], doc("values that were NaN or infinite, and stand as null")] = {}


@register
class TaskCompleted(TaskEnded, kw_only=True, tag="task_completed"):
    """A task ran to its end and returned."""

    result_bytes: Annotated[Bytes | None, doc("size of the serialized result")] = None
    exit_code: Annotated[int | None, doc("exit code of a command")] = None


DEPENDENCY_FAILED = "DependencyFailed"
"""The `error_type` of tasks that failed because one that they depend on did."""


@register
class TaskFailed(TaskEnded, kw_only=True, tag="task_failed"):
    """A task ended with an error. The traceback stands in `failures`, under the same task_id."""

    error_type: Annotated[str | None, doc("class of the exception")]
    error_message: Annotated[str | None, doc("its text, bounded and redacted")]
    exit_code: Annotated[int | None, doc("exit code of a command")] = None
    fingerprint: Annotated[str | None, doc("the same for failures with the same cause")] = None


@register
class TaskCancelled(TaskEnded, kw_only=True, tag="task_cancelled"):
    """A task was given up before it ended by itself."""

    reason: Annotated[str | None, doc("who or what cancelled it")] = None


@register
class TaskRetried(_RepeatedMeasured, kw_only=True, tag="task_retried"):
    """An attempt failed and the task will be retried; `attempt` is the one that failed."""


class WorkerEvent(Event, kw_only=True):
    """Something happened to one worker."""

    stream: ClassVar[str] = "workers"

    worker: Annotated[str, doc("name of the worker; task events refer to it")]
    host: Annotated[str | None, doc("host it runs on")]
    pid: Annotated[int | None, doc("its process id on that host")]
    component: Annotated[str | None, doc("component of the manifest it serves")] = None


@register
class WorkerLaunched(WorkerEvent, kw_only=True, tag="worker_launched"):
    """A worker's process or thread was started."""

    cpus: Annotated[float | None, doc("CPUs it was given")] = None
    memory_bytes: Annotated[Bytes | None, doc("memory it was given")] = None
    gpus: Annotated[float | None, doc("GPUs it was given")] = None


@register
class WorkerReady(WorkerEvent, kw_only=True, tag="worker_ready"):
    """A worker can take tasks from now on."""

    launch_s: Annotated[Seconds | None, doc("from launch to ready")] = None


@register
class WorkerLost(WorkerEvent, kw_only=True, tag="worker_lost"):
    """A worker went away without being asked to."""

    reason: Annotated[str | None, doc("what the engine and the kernel say of it")]
    exit_code: Annotated[int | None, doc("its exit code")] = None
    signal: Annotated[str | None, doc("the signal that ended it")] = None


@register
class WorkerRemoved(WorkerEvent, kw_only=True, tag="worker_removed"):
    """A worker was shut down in good order."""

    reason: Annotated[str | None, doc("why")]
    uptime_s: Annotated[Seconds | None, doc("from ready to now")] = None


_COMMON = {*Event.__struct_fields__, "event"}
_NAME = re.compile(r"^[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)+$")


@register
class Metric(Event, kw_only=True, tag="metric"):
    """One value of a series, such as the loss at a step."""

    stream: ClassVar[str] = "metrics"

    name: Annotated[str, doc("the series")]
    value: Annotated[float | None, doc("its value; null where it was NaN or infinite")]
    step: Annotated[int | None, doc("position in the series")] = None
    span_id: Annotated[str | None, doc("span it was measured in")] = None
    nonfinite: Annotated[str | None, doc("`nan`, `inf` or `-inf` where value is null for that reason")] = None


@register
class UserEvent(Event, kw_only=True, tag="user_event"):
    """Something the user's code wants to remember."""

    stream: ClassVar[str] = "events"

    name: Annotated[str, doc("what happened")]
    fields: Annotated[Json, doc("what there is to say of it, bounded and redacted")]
    span_id: Annotated[str | None, doc("span it happened in")] = None


@register
class EventDefined(Event, kw_only=True, tag="event_defined"):
    """What a user's own event holds; written before the first one of its kind, by each process."""

    stream: ClassVar[str] = "definitions"

    name: Annotated[str, doc("kind of the event, `namespace.Name`")]
    fields: Annotated[Json, doc("JSON Schema of each field")]
    required: Annotated[list[str], doc("fields without a default")]
    defaults: Annotated[Json, doc("defaults of the others")]


def definition_of(kind: type[Event]) -> EventDefined:
    """What to write down of a user's own event."""
    _, components = msgspec.json.schema_components([kind])
    schema: dict[str, Any] = next(iter(components.values()))
    fields = {name: found for name, found in schema["properties"].items() if name not in _COMMON}
    required = [name for name in schema.get("required", []) if name in fields]
    defaults = {name: found.get("default") for name, found in fields.items() if name not in required}
    return EventDefined(name=kind_of(kind), fields=fields, required=required, defaults=defaults)


def define_event(name: str, /, **fields: Any) -> type[Event]:
    """A new event class of the user's own, `"ns.Name"`, recorded in the stream `user.ns`.

    Each field is a type (`loss=float`: required) or a pair of type and default (`step=(int, -1)`). Defining
    the same event twice with the same fields gives the same class; with other fields it is a `UsageError`.
    """
    if not _NAME.match(name):
        raise UsageError(
            f"event name {name!r} is not of the form 'namespace.Name', letters, digits and '_' only"
        )
    reserved = sorted(fields.keys() & _COMMON)
    if reserved:
        raise UsageError(
            f"event {name!r} may not define {', '.join(reserved)}: every event has these already"
        )
    declared = [
        (key, spec[0], spec[1]) if isinstance(spec, tuple) else (key, spec) for key, spec in fields.items()
    ]
    namespace, _, title = name.rpartition(".")
    known = class_of(name)
    if known is not None and known not in learned:
        if getattr(known, "declared", None) == declared:
            return known
        raise UsageError(f"event {name!r} is already defined with other fields")
    try:
        about = {"stream": f"user.{namespace}", "declared": declared, "of_user": True}
        made = msgspec.defstruct(title, declared, bases=(Event,), namespace=about, tag=name, kw_only=True)
        msgspec.json.schema(made)
    except (TypeError, ValueError) as error:
        raise UsageError(f"event {name!r} cannot be defined: {error}") from error
    return register(cast(type[Event], made))


@register
class SpanEvent(Event, tag="span"):
    """A span that ended; `timestamp` is its start."""

    stream: ClassVar[str] = "spans"

    name: Annotated[str, doc("what was done, such as `simulation.execute`")] = ""
    tags: Annotated[Json, doc("what it was done to, bounded and redacted")] = {}
    metrics: Annotated[Json, doc("what was measured inside")] = {}
    status: Annotated[Literal["ok", "error"] | None, doc("how it ended")] = None
    duration_s: Annotated[Seconds | None, doc("from enter to exit, on the monotonic clock")] = None
    trace_id: Annotated[str, doc("W3C trace id, one a run")] = ""
    span_id: Annotated[str, doc("W3C span id")] = ""
    parent_id: Annotated[str | None, doc("span, task or run it happened in")] = None
    thread: Annotated[
        int | None,
        doc("thread it ended on, as the interpreter numbers them; a greenlet where threads are green"),
    ] = None
    error_type: Annotated[str | None, doc("class of the exception it ended with")] = None
    error_message: Annotated[str | None, doc("its text, bounded and redacted")] = None
    nonfinite: Annotated[dict[str, str], doc("values that were NaN or infinite, and stand as null")] = {}


@register
class SpanOpened(Event, kw_only=True, tag="span_open"):
    """A span was still open when the recorder looked; `timestamp` is its start.

    The span's end follows as `span` with the same span_id. If it does not, the span was in flight when its
    process ended.
    """

    stream: ClassVar[str] = "spans"

    name: Annotated[str, doc("what was being done")]
    tags: Annotated[Json, doc("what it was done to, as known so far")]
    trace_id: Annotated[str, doc("W3C trace id")]
    span_id: Annotated[str, doc("W3C span id")]
    parent_id: Annotated[str | None, doc("span, task or run it happens in")]
    elapsed_s: Annotated[Seconds, doc("how long it had been open")]
