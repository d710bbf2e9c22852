"""The options of each engine, declared once: manifests are checked against them, their JSON Schema and
documentation follow, and engines with many take them by name.

Attributes bear their units (`memory_bytes`), the keys of a manifest do not (`memory: 16GB`). None is "not
said". Nothing here needs an engine's backend to be installed.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from flightlog.events.base import doc

Kind = Literal[
    "text", "name", "whole", "number", "switch", "size", "duration", "any", "list", "table", "struct"
]
Text = str
"""Free text. Where it comes from a variable, a plan shows the variable."""
Count = Annotated[int, Meta(ge=1)]
"""A whole number of things, one at least."""
Positive = Annotated[float, Meta(gt=0)]


def written(kind: Kind) -> Meta:
    """How a field of another type is written: a number of bytes as `16GB`."""
    return Meta(extra={"kind": kind})


Size = Annotated[int, written("size")]
"""Bytes, written with a unit: `512MiB`, `16G`, `10GB`."""
Duration = Annotated[float, written("duration")]
"""Seconds, written with a unit, `90m`, or as `HH:MM:SS`."""


class LocalOptions(Struct, frozen=True, kw_only=True):
    """Processes or threads of the machine the session runs on."""

    max_workers: Annotated[Count | None, doc("most workers at once; as many as usable CPUs if unset")] = None
    processes: Annotated[bool | None, doc("whether a worker is a process, and not a thread")] = None
    threads_per_worker: Annotated[Count | None, doc("tasks that a worker process runs at once")] = None
    start_method: Annotated[Text | None, doc("how worker processes start: spawn, forkserver or fork")] = None


class DaskOptions(Struct, frozen=True, kw_only=True):
    """A Dask cluster: one that runs, or one started for the session."""

    address: Annotated[Text | None, doc("address of a running scheduler")] = None
    scheduler_file: Annotated[Text | None, doc("file that names a running scheduler")] = None
    n_workers: Annotated[Count | None, doc("workers to start")] = None
    max_workers: Annotated[Count | None, doc("most workers, where the cluster adapts")] = None
    min_workers: Annotated[int | None, doc("fewest workers, where the cluster adapts")] = None
    threads_per_worker: Annotated[Count | None, doc("tasks that a worker runs at once")] = None
    processes: Annotated[bool | None, doc("whether workers are processes")] = None
    memory_limit_bytes: Annotated[Size | None, doc("memory of a worker")] = None
    local_directory: Annotated[Text | None, doc("folder for spilled data")] = None
    interface: Annotated[Text | None, doc("network interface")] = None
    protocol: Annotated[Text | None, doc("tcp, tls, ucx, …")] = None
    dashboard_address: Annotated[Text | None, doc("where the dashboard listens")] = None


class SlurmOptions(Struct, frozen=True, kw_only=True):
    """Jobs of a Slurm cluster."""

    partition: Annotated[Text | None, doc("partition to submit to")] = None
    queue: Annotated[Text | None, doc("another word for partition")] = None
    account: Annotated[Text | None, doc("account to charge")] = None
    qos: Annotated[Text | None, doc("quality of service")] = None
    constraint: Annotated[Text | None, doc("features a node must have")] = None
    reservation: Annotated[Text | None, doc("reservation to use")] = None
    n_workers: Annotated[Count | None, doc("workers to start")] = None
    max_workers: Annotated[Count | None, doc("most workers at once")] = None
    min_workers: Annotated[int | None, doc("fewest workers")] = None
    processes: Annotated[Count | None, doc("worker processes in a job; 1 if unset")] = None
    threads_per_worker: Annotated[Count | None, doc("tasks that a worker runs at once")] = None
    cpus: Annotated[Count | None, doc("CPUs of a job")] = None
    memory_bytes: Annotated[Size | None, doc("memory of a job")] = None
    gpus: Annotated[int | None, doc("GPUs of a job")] = None
    walltime_s: Annotated[Duration | None, doc("time limit of a job")] = None
    interface: Annotated[Text | None, doc("network interface")] = None
    local_directory: Annotated[Text | None, doc("folder for scratch data on the node")] = None
    log_directory: Annotated[Text | None, doc("folder for the jobs' output")] = None
    python: Annotated[Text | None, doc("interpreter on the nodes")] = None
    job_extra_directives: Annotated[tuple[Text, ...], doc("further #SBATCH lines")] = ()
    job_script_prologue: Annotated[tuple[Text, ...], doc("shell lines before the worker starts")] = ()


class RayOptions(Struct, frozen=True, kw_only=True):
    """A Ray cluster: one that runs, or one started for the session."""

    address: Annotated[Text | None, doc("address of a running cluster, or auto")] = None
    namespace: Annotated[Text | None, doc("namespace of the session")] = None
    num_cpus: Annotated[Count | None, doc("CPUs of a cluster that is started")] = None
    num_gpus: Annotated[int | None, doc("GPUs of a cluster that is started")] = None
    object_store_memory_bytes: Annotated[
        Size | None, doc("memory of the object store of a cluster that is started")
    ] = None
    include_dashboard: Annotated[bool | None, doc("whether a cluster that is started has its dashboard")] = (
        None
    )
    max_workers: Annotated[Count | None, doc("maximum concurrency")] = None
    cpus_per_task: Annotated[Positive | None, doc("CPUs that a task asks for; 1 if unset")] = None
    gpus_per_task: Annotated[float | None, doc("GPUs that a task asks for; none if unset")] = None
    env_vars: Annotated[dict[str, Text], doc("variables of the workers' environment")] = {}
    working_dir: Annotated[Text | None, doc("folder that workers get a copy of, and run in")] = None
    log_to_driver: Annotated[bool | None, doc("whether what tasks print is shown here")] = None


class DragonOptions(Struct, frozen=True, kw_only=True):
    """The Dragon runtime that the program was started by; Linux alone."""

    nodes: Annotated[Count | None, doc("nodes to use, of those Dragon runs on; all if unset")] = None
    max_workers: Annotated[Count | None, doc("most workers at once")] = None
    processes_per_node: Annotated[
        Count | None, doc("worker processes on a node; as many as it has CPUs if unset")
    ] = None
    policy: Annotated[
        Literal["block", "spread"] | None,
        doc("one node after the other, or dealt out among them, as is done if unset"),
    ] = None


PROVIDERS: dict[str, type[Struct]] = {
    "local": LocalOptions,
    "dask": DaskOptions,
    "slurm": SlurmOptions,
    "ray": RayOptions,
    "dragon": DragonOptions,
}
"""Providers whose options are known here. Their engines need not be installed for a manifest to be right."""
