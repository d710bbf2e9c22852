"""The figures of one run as Prometheus is given them: counts that only grow, and what is so now."""

from __future__ import annotations

from msgspec import Struct

OTHER = "other"
"""The label of everything beyond the names that have one of their own."""
BUCKETS_S = (0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)
"""Upper bounds of the histogram of execution times, in seconds; the last bucket has none."""
TASK_EVENTS = ("submitted", "started", "completed", "failed", "retried", "cancelled")
TASK_STATES = ("pending", "running", "completed", "failed", "cancelled")
CACHE_RESULTS = ("hit", "miss", "bypass")


class Durations(Struct, frozen=True, kw_only=True):
    """A histogram: how many took at most as long as each bound, how many at all, and their sum in seconds."""

    at_most: tuple[int, ...]
    count: int
    sum_s: float


class Gauges(Struct, frozen=True, kw_only=True):
    """The newest sample of a node or of a GPU; None where it does not say. Shares are 0 to 1."""

    host: str
    gpu: str | None
    """Index of the GPU on its host, with the instance of a partitioned one; None for the node itself."""
    gpu_name: str | None
    at_s: float
    """When it was taken, Unix seconds."""
    values: dict[str, float]
    """By the name of the metric, less its `flightlog_node_` or `flightlog_gpu_`."""


class RunFigures(Struct, frozen=True, kw_only=True):
    """One run. Counts are from its events, each taken once; what cannot be known is None and is not
    exported.
    """

    run_id: str
    project: str
    status: str
    target: str | None
    provider: str | None
    host: str
    version: str | None
    started_s: float | None
    """Start and, where it is over, end: Unix seconds."""
    ended_s: float | None
    duration_s: float | None
    heard_s: float | None
    """Its last heartbeat, Unix seconds."""
    task_events: dict[str, int]
    """By `TASK_EVENTS`: attempts that started, failed or were retried, so a task may count more than once."""
    tasks: dict[str, int]
    """By `TASK_STATES`: where the tasks are now."""
    durations: dict[str, Durations]
    """Execution of completed tasks by name; a bounded number of names, and `OTHER`."""
    workers: int
    """Up now."""
    workers_seen: int
    workers_lost: int
    failures: dict[tuple[str, str], int]
    """By scope and class, as they stand in the stream `failures`; a bounded number, and `OTHER`."""
    cache: dict[str, int]
    saved_s: float
    cost: dict[str, float]
    """By currency."""
    gauges: tuple[Gauges, ...]
    """Of nodes, then of GPUs."""
    lines: int
    lost: int
    recorder_cpu_s: float | None
    """None where one of the recording processes has not noted it, as one that was killed."""
    problems: int
    """Sentences there would be on damaged documents and lines that could not be read."""
