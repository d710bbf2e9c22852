"""The life of a worker: launched, ready, and lost or removed."""

from __future__ import annotations

from typing import Annotated, ClassVar

from flightlog.events.base import Bytes, Event, Seconds, doc, register


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
