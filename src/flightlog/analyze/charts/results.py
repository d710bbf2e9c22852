"""What is drawn of a run, in columns: seconds after `since`, bytes, and counts.

Every result is bounded: where a run has more than is drawn one by one, it is drawn by levels of detail that
were computed in SQL, and the result says so. Unknown is null.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Unit = Literal["count", "share", "cores", "bytes", "percent", "watts"]


class TimelineRow(Struct, frozen=True, kw_only=True):
    """A row of the timeline: a worker, or one of the places on it where tasks run side by side."""

    label: str
    worker: str | None
    """Null for what ran on no worker that is known."""
    host: str | None = None
    merged: int = 1
    """Number of workers that share this row."""


class Columns(Struct, frozen=True, kw_only=True):
    """Pieces of a timeline in columns; the lists are of one length."""

    lane: list[int]
    start_s: list[float]
    length_s: list[float]
    name: list[int]
    """Which of the names; -1 for all others."""


class Bars(Columns, frozen=True, kw_only=True):
    """Attempts one by one."""

    state: list[str]
    """`completed`, `failed`, `retried`, `cancelled` or `running`."""
    task_id: list[str]
    attempt: list[int]
    args: list[str] = []
    """The arguments of each in a line; empty where none has any."""


class Nested(Columns, frozen=True, kw_only=True):
    """Spans inside of bars, in rows below the bars' own; the lane is the row of the bar they are inside
    of. The lists are of one length but for `names` and `rows`.
    """

    row: list[int]
    """Which of the rows below it."""
    state: list[str]
    """`completed`, `failed` or `running`."""
    names: list[str]
    """Those that took most of the time first."""
    rows: list[int]
    """How many there are below each lane."""


class Cells(Columns, frozen=True, kw_only=True):
    """Attempts by lane and by stretch of time; the name is the one that held the lane longest in this
    stretch.
    """

    attempts: list[int]
    """How many were under way in this stretch."""
    busy: list[float]
    """How many ran at once, on average, for each worker of the lane: 1 for a worker that was never free."""


class TimelineMark(Struct, frozen=True, kw_only=True):
    """A failure or a retry, where and when."""

    lane: int
    at_s: float
    kind: Literal["failed", "retried", "cancelled", "lost"]
    task: str
    task_id: str | None
    text: str
    """The error in a line."""


class Timeline(Struct, frozen=True, kw_only=True):
    """Which tasks ran where, and when. Either `bars` or `cells` is there; neither where nothing ran."""

    since: str
    length_s: float
    names: list[str]
    """Those that took most time first; at most as many as there are colours."""
    lanes: list[TimelineRow]
    bars: Bars | None
    cells: Cells | None
    marks: list[TimelineMark]
    attempts: int
    """All there are, drawn one by one or not."""
    workers: int
    failures: int
    """Failed and retried attempts, marked or not."""
    notes: list[str]
    """Sentences on what is not drawn one by one; none where all is."""
    notes_on_spans: list[str] = []
    """The same of spans inside and outside of what has a lane, for pictures that show them at all."""
    nested: Nested | None = None
    """Null where no span is inside of what is drawn one by one."""
    outside: Nested | None = None
    """Spans outside of all tasks, on rows of their own as if below one lane; null where there are none, or no
    tasks."""


class ChartSeries(Struct, frozen=True, kw_only=True):
    """One line: values at moments. Null where nothing is known; a line is not drawn across it."""

    label: str
    at_s: list[float]
    value: list[float | None]
    limit: float | None = None
    """What it cannot exceed, such as the memory of a host."""


class Chart(Struct, frozen=True, kw_only=True):
    """Lines over the time of the run that have a unit in common."""

    since: str
    length_s: float
    unit: Unit
    series: list[ChartSeries]
    notes: list[str]


class DurationSpread(Struct, frozen=True, kw_only=True):
    """How long tasks of one name took: a histogram over bins that grow by a factor, and quantiles;
    seconds.
    """

    name: str
    count: int
    total_s: float
    edges_s: list[float]
    """One more than `counts`."""
    counts: list[int]
    least_s: float
    p25_s: float
    median_s: float
    p75_s: float
    p95_s: float
    most_s: float


class Waits(Struct, frozen=True, kw_only=True):
    """Queueing time against execution time of attempts: points where they are few, else counts in cells of a
    grid.
    """

    attempts: int
    names: list[str]
    queue_s: list[float] = []
    """Of each point; empty where a grid is drawn."""
    run_s: list[float] = []
    name: list[int] = []
    queue_edges_s: list[float] = []
    run_edges_s: list[float] = []
    grid: list[list[int]] = []
    """Counts by queueing time (rows) and execution time (columns); empty where points are drawn."""
    notes: list[str] = []


class Curve(Struct, frozen=True, kw_only=True):
    """The values of one metric, in order; the lists are of one length but for `lost_at`."""

    name: str
    by: Literal["step", "time"]
    """Whether `at` has steps, or seconds after the start of the run."""
    at: list[float]
    value: list[float | None]
    """The mean where several values are on one point; null where none of them is a number."""
    least: list[float | None]
    """The least of each point, as `most` has the largest; both are empty where each point is one value."""
    most: list[float | None]
    lost_at: list[float]
    """Where values were NaN or infinite: the first place of each point."""
    values: int
    """All there are."""
    lost: int
    """How many of them were NaN or infinite."""


class Curves(Struct, frozen=True, kw_only=True):
    """The metrics of a run, those with the most values first."""

    since: str
    length_s: float
    curves: list[Curve]
    names: int
    """All there are, drawn or not."""
    notes: list[str]


class RunCharts(Struct, frozen=True, kw_only=True):
    """Everything that is drawn of a run beside what its report has; null where nothing was recorded of it."""

    timeline: Timeline | None = None
    concurrency: Chart | None = None
    """Tasks that ran, tasks that waited, and workers that were up."""
    worker_cpu: Chart | None = None
    worker_memory: Chart | None = None
    host_cpu: Chart | None = None
    host_memory: Chart | None = None
    device_memory: Chart | None = None
    """By rank where ranks tracked it, else by device."""
    device_use: Chart | None = None
    durations: list[DurationSpread] = []
    waits: Waits | None = None
    cache: Chart | None = None
    """Lookups that hit and that missed, by stretches of time."""
    metrics: Curves | None = None
