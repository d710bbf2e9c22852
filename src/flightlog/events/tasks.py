"""The life of tasks and workers.

A task is submitted, queued, started, and one of completed, failed, retried, cancelled. A worker is launched,
ready, and lost or removed.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from flightlog.events.base import Bytes, Event, Json, Seconds, doc, register


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


class TaskEnded(TaskEvent, kw_only=True):
    """An attempt is over, with what it used."""

    args: Annotated[Json, doc("arguments by name, bounded and redacted")]
    worker: Annotated[str | None, doc("worker that executed it; null if it never started")]
    duration_s: Annotated[Seconds | None, doc("execution alone, on the worker's monotonic clock")]
    args_digest: Annotated[
        str | None, doc("digest of the arguments: tasks of one name with the same one match between runs")
    ] = None
    queue_s: Annotated[Seconds | None, doc("from submission to start; null where the engine hides it")] = None
    cpu_s: Annotated[Seconds | None, doc("CPU time, user and system, of what `cpu_scope` says")] = None
    cpu_scope: Annotated[
        Literal["thread", "process", "tree"] | None,
        doc("what cpu_s covers: the executing thread, its process, or the process tree"),
    ] = None
    peak_rss_bytes: Annotated[Bytes | None, doc("largest resident memory seen while it ran")] = None
    rss_scope: Annotated[
        Literal["process", "process_at_least", "tree"] | None,
        doc("whose memory; `process_at_least` is a lower bound: the process had peaked higher before"),
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
class TaskRetried(TaskEvent, kw_only=True, tag="task_retried"):
    """An attempt failed and the task will be retried; `attempt` is the one that failed."""

    reason: Annotated[str | None, doc("the error of the failed attempt")]
    delay_s: Annotated[Seconds | None, doc("wait before the next attempt")] = None


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
