"""What is known of a run at a moment, while it goes on. Every list is bounded; unknown is null."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from flightlog.analyze.charts.results import Chart, Curve, Timeline
from flightlog.analyze.limits import LiveLimits
from flightlog.core.text import cut


class LiveCounts(Struct, frozen=True, kw_only=True):
    """Tasks by state, each counted once."""

    submitted: int
    completed: int
    failed: int
    running: int
    cancelled: int = 0
    retried: int = 0
    """Attempts that were retried."""

    @property
    def ended(self) -> int:
        """Tasks that are over."""
        return self.completed + self.failed + self.cancelled

    @property
    def known(self) -> int:
        """Number of tasks, as the summary counts them: submissions may not be recorded."""
        return max(self.submitted, self.ended + self.running)


class Progress(LiveCounts, frozen=True, kw_only=True):
    """All tasks, and how far they are."""

    waiting: int
    done: float | None = None
    """Ended tasks over submitted ones, 0 to 1; null before any was submitted, and while the run is read for
    the first time."""
    per_s: float | None = None
    """Tasks that ended in each of the last seconds, on average."""
    left_s: float | None = None
    """Estimated seconds until everything submitted has ended; null where that is unknown."""
    left_low_s: float | None = None
    left_high_s: float | None = None
    """p5 and p95 of the estimate."""
    left_at_least: bool = False
    """Whether the estimate is a lower bound: it leaves out tasks of names without any known duration."""


class LiveTaskName(LiveCounts, frozen=True, kw_only=True):
    """Tasks of one name."""

    name: str
    mean_s: float | None
    """Of completed ones, as `max_s` and `p95_s`."""
    max_s: float | None
    p95_s: float | None = None
    """While the run goes on, of 99 % of them at least."""
    total_s: float | None = None


class SpanNow(Struct, frozen=True, kw_only=True):
    """Spans of one name."""

    name: str
    ended: int
    errors: int
    open: int
    mean_s: float | None
    max_s: float | None
    total_s: float | None


class OpenSpan(Struct, frozen=True, kw_only=True):
    """A span that is open, as far as is known: short ones are never seen open."""

    name: str
    span_id: str
    tags: str
    since: str
    elapsed_s: float | None
    usual_s: float | None
    stuck: bool | None


class MetricNow(Struct, frozen=True, kw_only=True):
    """A series the code recorded, by its last value."""

    name: str
    value: float | None
    step: int | None
    count: int
    at: str
    points: Curve | None = None
    """Of the series with the most values; null for the others, and where a line would have no two places."""


class WorkerNow(Struct, frozen=True, kw_only=True):
    """A worker, and what it does."""

    worker: str
    host: str | None
    state: Literal["starting", "idle", "busy", "gone", "lost"]
    task: str | None
    task_id: str | None
    since_s: float | None
    """Seconds since that task started."""
    ended: int
    failed: int
    cpu_cores: float | None
    memory_bytes: int | None
    seen_s: float | None
    """Seconds since its last sign of life, as of the run's end where it is over."""
    running: int = 0
    """How many tasks it executes at once; `task` is the one that runs longest."""


class AttemptNow(Struct, frozen=True, kw_only=True):
    """What is shown of any attempt."""

    task: str
    task_id: str
    attempt: int
    args: str
    worker: str | None


class Doing(AttemptNow, frozen=True, kw_only=True):
    """A task that runs."""

    since: str
    elapsed_s: float | None
    usual_s: float | None
    """p95 of the durations of its name."""
    stuck: bool | None
    """By the rule of `flightlog report`; null where fewer than five have ended."""


class EndedTask(AttemptNow, frozen=True, kw_only=True):
    """A task that ended, among the slowest."""

    state: str
    at: str
    duration_s: float | None
    queue_s: float | None


class Failed(Struct, frozen=True, kw_only=True):
    """A failure."""

    at: str
    task: str
    task_id: str | None
    attempt: int
    args: str
    worker: str | None
    error_type: str | None
    message: str
    traceback: str | None
    retried: bool
    fingerprint: str | None


class HostNow(Struct, frozen=True, kw_only=True):
    """A machine, by its last sample."""

    host: str
    cpu_percent: float | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    seen_s: float | None


class DeviceNow(Struct, frozen=True, kw_only=True):
    """A GPU, or a rank's share of one, by its last sample."""

    label: str
    host: str | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    percent: float | None
    scope: str
    """Whose memory: `device`, `process` or `allocator`."""
    seen_s: float | None


class LogLine(Struct, frozen=True, kw_only=True):
    """An event, in words."""

    at: str
    kind: str
    text: str
    level: Literal["info", "warning", "error"]


class LiveState(Struct, frozen=True, kw_only=True):
    """A run at a moment."""

    run_id: str
    project: str
    status: str
    start_time: str
    end_time: str | None
    elapsed_s: float | None
    host: str
    target: str | None
    error: str | None
    progress: Progress
    names: list[LiveTaskName] = []
    workers: list[WorkerNow] = []
    """Busy workers first; `workers_all` counts all."""
    workers_all: int = 0
    hosts: list[HostNow] = []
    devices: list[DeviceNow] = []
    doing: list[Doing] = []
    """Running tasks, those that may be stuck first, then the longest; `progress.running` counts all."""
    failures: list[Failed] = []
    """The newest first."""
    slowest: list[EndedTask] = []
    timeline: Timeline | None = None
    """The last attempts, one by one, and what runs."""
    concurrency: Chart | None = None
    """Tasks that run, tasks that wait and workers that are up, on average over each stretch of time.

    This chart and the others are of the last ten minutes, or of the whole run where it is shorter.
    """
    cpu: Chart | None = None
    memory: Chart | None = None
    device_memory: Chart | None = None
    cache_hits: int | None = None
    cache_lookups: int | None = None
    cost: float | None = None
    currency: str | None = None
    log: list[LogLine] = []
    """The newest first: lifecycle, failures, retries, workers that come and go, alerts and the user's own
    events."""
    problems: list[str] = []
    """What is wrong with the recording, in sentences."""
    changed: int = 0
    """Grows when something new was read; the same number means the same content, clocks aside."""
    reading: float | None = None
    """How much of the files was read so far, 0 to 1, while a reading goes on; null when all was.

    During the first one all counts are those so far, or the summary's of a run that is over; what runs, what
    workers do, how fast it goes and how long it takes is unknown, and left out.
    """
    failures_all: int = 0
    """As `flightlog report` counts them: each once, wherever it was found."""
    names_all: int = 0
    spans: list[SpanNow] = []
    """Names that took most of the time first."""
    spans_all: int = 0
    """Spans that ended."""
    open_spans: list[OpenSpan] = []
    """Those that may be stuck first, then the longest."""
    metrics: list[MetricNow] = []
    tags: dict[str, str] = {}
    command: str = ""

    @property
    def over(self) -> bool:
        """Whether nothing more is to come."""
        return self.status != "running"


TASK_COUNTS = LiveCounts.__struct_fields__


def progress_of(**counts: Any) -> Progress:
    """The progress that these counts are."""
    found = Progress(**counts)
    return msgspec.structs.replace(found, done=found.ended / found.known if found.known else None)


def update_pause_s(every_s: float, cpu_s: float) -> float:
    """How long to wait after an update that took so much CPU time: following takes a fifth of a core at
    most.
    """
    return max(every_s, cpu_s / LiveLimits.max_cpu_share)


def args_text(args: Mapping[str, Any] | None, limit: int = LiveLimits.max_args_chars) -> str:
    """`scenario_id=47, name=base`; nothing for no arguments."""
    if not args:
        return ""
    parts: list[str] = []
    left = limit
    for name, value in args.items():
        said = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        part = cut(f"{cut(name, LiveLimits.max_name_chars)}={said[: limit + 1]}", limit + 1)
        parts.append(part)
        left -= len(part)
        if left < 0:
            break
    return cut(", ".join(parts), limit)
