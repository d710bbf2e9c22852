"""What a manifest may say: every field declared once.

Attributes bear their units (`memory_bytes`), the file's keys do not (`memory: 16GB`). None is "not said".
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Struct, field

from flightlog.engines.contract import Resources
from flightlog.events.base import doc
from flightlog.session.shapes import Count, Duration, Name, Positive, Size, Text, computed

MANIFEST_VERSION = 1


class Project(Struct, frozen=True, kw_only=True):
    """What the work is called and where its files go."""

    name: Annotated[Name, doc("name of the project; runs bear it")]
    default_storage: Annotated[Text | None, doc("folder or address for outputs")] = None
    local_cache: Annotated[Text | None, doc("folder of the result cache")] = None


class Rates(Struct, frozen=True, kw_only=True):
    """What a target costs. GB are 1000s."""

    currency: Annotated[Name | None, doc("ISO 4217 code; that of the price table, or USD, if not said")] = (
        None
    )
    instance: Annotated[
        Name | None,
        doc("instance type of the price table, such as aws/m6i.xlarge, in place of rates by the hour"),
    ] = None
    workers_per_instance: Annotated[
        Count | None, doc("workers that share an instance; 1, but on the local provider all, if not said")
    ] = None
    prices: Annotated[Text | None, doc("file of the price table, in place of the one that ships")] = None
    per_worker_hour: Annotated[float | None, doc("for each worker")] = None
    per_cpu_hour: Annotated[float | None, doc("for each CPU of a worker")] = None
    per_gpu_hour: Annotated[float | None, doc("for each GPU of a worker")] = None
    per_gb_hour: Annotated[float | None, doc("for each GB (1000s) of memory of a worker")] = None
    per_gb_month: Annotated[float | None, doc("for keeping a GB of artifacts for a month")] = None
    per_gb_egress: Annotated[float | None, doc("for each GB that leaves the provider's network")] = None
    per_kwh: Annotated[float | None, doc("for a kilowatt-hour of what energy counters show")] = None


class Target(Struct, frozen=True, kw_only=True):
    """Where to run: a provider with its options."""

    provider: Annotated[
        Name, doc("engine that runs the tasks: local, dask, slurm, ray, dragon or a plugin's")
    ]
    overlay: Annotated[Name | None, doc("overlay that applies whenever this target is picked")] = None
    cost: Annotated[Rates | None, doc("what it costs, in place of the manifest's own cost")] = None
    options: Annotated[dict[str, Any], computed()] = {}
    """The provider's own keys that were written, checked and converted: sizes in bytes, durations in
    seconds."""


class Component(Struct, frozen=True, kw_only=True):
    """What a kind of worker is made of."""

    cpus: Annotated[Positive | None, doc("CPUs of a worker")] = None
    memory_bytes: Annotated[Size | None, doc("memory of a worker")] = field(name="memory", default=None)
    gpus: Annotated[float | None, doc("GPUs of a worker")] = None
    walltime_s: Annotated[Duration | None, doc("longest life of a worker")] = field(
        name="walltime", default=None
    )
    image: Annotated[Text | None, doc("container image")] = None
    runtime: Annotated[Text | None, doc("what runs the image: docker, apptainer, …")] = None
    env: Annotated[dict[str, Text], doc("environment variables of a worker")] = {}
    mounts: Annotated[dict[str, Text], doc("folders of the host, and where the container sees them")] = {}
    tags: Annotated[tuple[Text, ...], doc("words to find it by")] = ()
    preload_script: Annotated[Text | None, doc("Python file a worker executes when it starts")] = None

    @property
    def needs(self) -> Resources:
        """What its workers need, for engines that launch workers to measure."""
        return Resources(
            cpus=self.cpus, memory_bytes=self.memory_bytes, gpus=self.gpus, walltime_s=self.walltime_s
        )


class Cache(Struct, frozen=True, kw_only=True):
    """How a task's results are kept."""

    version: Annotated[Text | None, doc("part of the key: a new one makes old results miss")] = None
    ttl_s: Annotated[Duration | None, doc("how long a result is good for")] = field(name="ttl", default=None)
    ignore: Annotated[tuple[Name, ...], doc("arguments that are no part of the key")] = ()
    store: Annotated[Text | None, doc("folder of the results")] = None


class Task(Struct, frozen=True, kw_only=True):
    """How a function or command of this name is run."""

    component: Annotated[Name | None, doc("component whose workers run it")] = None
    cache: Annotated[bool | Cache | None, doc("whether, and how, results are kept")] = None
    retries: Annotated[int | None, doc("further attempts after a failed one")] = None
    timeout_s: Annotated[Duration | None, doc("longest an attempt may run")] = field(
        name="timeout", default=None
    )
    outputs: Annotated[tuple[Text, ...], doc("files it makes")] = ()


class Otel(Struct, frozen=True, kw_only=True):
    """Where the run goes while it runs, by OpenTelemetry's protocol over HTTP; what is not said, `OTEL_*`
    variables say.
    """

    endpoint: Annotated[
        Text | None,
        doc("address of the server, such as http://localhost:4318; /v1/traces and so on are added"),
    ] = None
    headers: Annotated[dict[str, Text], doc("headers of every request; secrets as variables: ${TOKEN}")] = {}
    traces: Annotated[bool | None, doc("whether tasks and spans are sent; they are if not said")] = None
    metrics: Annotated[bool | None, doc("whether counts and measurements are sent; they are if not said")] = (
        None
    )
    logs: Annotated[bool | None, doc("whether failures and events are sent; they are if not said")] = None


class Contents(Struct, frozen=True, kw_only=True):
    """A Flightlog manifest: what runs where, and with what."""

    version: Annotated[int, doc("version of the manifest's form: 1")]
    project: Project
    targets: Annotated[dict[str, Target], doc("places to run, by name")] = {}
    components: Annotated[dict[str, Component], doc("kinds of workers, by name")] = {}
    tasks: Annotated[dict[str, Task], doc("how tasks are run, by name")] = {}
    cost: Annotated[Rates | None, doc("what targets cost that have no cost of their own")] = None
    otel: Annotated[
        bool | Otel | None,
        doc(
            "whether, and where, the run is sent to an OpenTelemetry server while it runs; true: as the OTEL_* variables say"
        ),
    ] = None


OVERLAID = ("project", "targets", "components", "tasks", "cost", "otel")
"""The keys an overlay may hold, each in part."""
