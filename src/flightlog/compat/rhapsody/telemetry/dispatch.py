"""Counts of tasks; and a thread that delivers events to the checkpoint file and to subscribers."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, cast

import msgspec

from flightlog.compat.limits import CompatLimits
from flightlog.compat.rhapsody.telemetry.bus import Bus
from flightlog.compat.rhapsody.telemetry.events import BaseEvent, ResourceUpdate, SessionStarted, duration_of
from flightlog.core.descriptors import Descriptor
from flightlog.record.subscribers import is_coroutine_function
from flightlog.record.values import clean

if TYPE_CHECKING:
    from flightlog.compat.rhapsody.telemetry.otel import Providers

log = logging.getLogger(__name__)

_Labels = tuple[str, str, str, str]
"""Session, backend, executable and type of a task."""


@dataclasses.dataclass(eq=False, slots=True)
class TaskRecord:
    """What telemetry knows of a task from its first event on."""

    name: str
    backend: str
    trace_id: int
    span_id: int
    parent: Any
    """The span context around the task's span."""
    submitted_at: float
    args: dict[str, Any] = dataclasses.field(default_factory=dict)
    queue_s: float | None = None
    created: bool = False
    started_at: float | None = None
    labels: _Labels | None = None
    """Of its metrics."""
    ids: dict[str, str] = dataclasses.field(init=False)
    """As they are in the events of a run."""
    attributes: dict[str, Any] | None = None
    """Of its span; None before that begins."""
    start_ns: int = 0
    moments: list[tuple[str, int]] = dataclasses.field(default_factory=list)
    """Names and times of the events in its span."""
    end_ns: int | None = None
    span: Any = None
    """OpenTelemetry's, once somebody wants it."""
    span_ended: bool = False

    def __post_init__(self) -> None:
        self.ids = {
            "trace_id": f"{self.trace_id:032x}",
            "span_id": f"{self.span_id:016x}",
            "parent_id": f"{self.parent.span_id:016x}",
        }


QueuedEvent = tuple[BaseEvent, TaskRecord | None]
"""An event, and the task it is of."""


_FLAGS = os.O_WRONLY | os.O_APPEND
COUNTED = {
    "TaskSubmitted": "submitted",
    "TaskStarted": "started",
    "TaskCompleted": "completed",
    "TaskFailed": "failed",
    "TaskCanceled": "canceled",
}
ENDS = frozenset({"TaskCompleted", "TaskFailed", "TaskCanceled"})

_NODE = ("cpu_percent", "memory_percent", "gpu_percent")
_KEPT = (*_NODE, "disk_read_bytes", "disk_write_bytes", "net_sent_bytes", "net_recv_bytes")
_TASK_SPAN = (
    *("task_id", "backend", "executable", "task_type", "status", "error_type", "incomplete_lifecycle"),
)


class Subscribers:
    """The subscribers of one session; thread-safe. Each gets every event in order, late
    ones the session's start all the same.

    Functions are called on a thread of their own, coroutine functions on `loop`. A slow one delays nobody;
    one that raises misses that event.
    """

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._bus = Bus()
        self._first: Any = None
        self._pending: set[Future[Any]] = set()
        self._warned = False
        self.there = False
        """Whether there is one."""

    def add(self, callback: Callable[[BaseEvent], Any]) -> None:
        """Deliver all later events to a function."""
        deliver: Any = partial(self._call_on_loop, callback) if is_coroutine_function(callback) else callback
        with self._lock:
            subscription = self._bus.subscribe(deliver)
            self.there = True
            if self._first is not None:
                subscription.offer(self._first)

    def begin(self, first: SessionStarted) -> None:
        """Keep the session's first event for those that come later."""
        with self._lock:
            self._first = first
            self._bus.publish(cast(Any, first))

    def publish(self, event: Any) -> None:
        """Queue an event for all subscribers; never waits."""
        with self._lock:
            self._bus.publish(event)

    async def finish(self) -> None:
        """Deliver what is queued, and then nothing more."""
        limit_s = CompatLimits.subscriber_timeout_s
        dropped: list[int] = []
        await on_own_thread(lambda: dropped.append(self._bus.close(limit_s)))
        if pending := [asyncio.wrap_future(one) for one in list(self._pending)]:
            await asyncio.wait(pending, timeout=limit_s)
        left = sum(dropped) + len(self._pending)
        if left:
            log.warning("a subscriber is too slow: it did not take %d events in %g s", left, limit_s)

    def _call_on_loop(self, callback: Callable[[BaseEvent], Any], event: BaseEvent) -> None:
        if self.loop is None or self.loop.is_closed():
            return
        future = asyncio.run_coroutine_threadsafe(callback(event), self.loop)
        self._pending.add(future)
        future.add_done_callback(self._called)

    def _called(self, future: Future[Any]) -> None:
        self._pending.discard(future)
        if future.cancelled() or (error := future.exception()) is None or self._warned:
            return
        self._warned = True
        log.warning("a subscriber raised; its later errors are not logged", exc_info=error)


async def on_own_thread(work: Callable[[], object]) -> None:
    """Wait for a function on a thread of its own: those of the loop may all be busy, or gone."""
    done: Future[None] = Future()

    def run() -> None:
        try:
            work()
        finally:
            done.set_result(None)

    threading.Thread(target=run, daemon=True).start()
    await asyncio.wait([asyncio.wrap_future(done)])


class Dispatch:
    """Delivers events, on a thread whose target is `run`, until None comes: to the file and to subscribers.

    Metrics are written to the file every `interval_s` seconds, if set, and at the end; each span once, when
    it has ended.
    """

    def __init__(
        self,
        queue: SimpleQueue[QueuedEvent | None],
        subscribers: Subscribers,
        file: CheckpointFile | None,
        interval_s: float | None,
    ) -> None:
        self._queue, self._subscribers, self._file = queue, subscribers, file
        self._interval_s = None if file is None else interval_s
        self._lines: list[dict[str, Any]] = []
        self._warned = False

    @property
    def wanted(self) -> bool:
        """Whether there is anybody to deliver events to."""
        return self._file is not None or self._subscribers.there

    def span_ended(self, span: Any) -> None:
        """Write a span that has ended with the next batch; from any thread."""
        if self._file is not None:
            self._lines.append(span_line(span))

    def run(self, otel: Providers, tasks: Mapping[str, TaskRecord]) -> None:
        """Deliver all events, then end the spans, also those of tasks that are open still, and metrics."""
        due = time.monotonic() + (self._interval_s or 0.0)
        batch: list[QueuedEvent | None] = []
        while None not in batch:
            batch = self._next_batch(None if self._interval_s is None else max(0.0, due - time.monotonic()))
            for number, queued in enumerate(batch):
                if queued is not None:
                    self._deliver(otel, *queued)
                if not number % CompatLimits.events_between_yields:
                    time.sleep(0)
            if self._interval_s is not None and time.monotonic() >= due:
                self._go_on_after(self._measure, otel)
                due = time.monotonic() + self._interval_s
            self._write()
        self._go_on_after(otel.end, time.time(), list(tasks.values()))
        self._go_on_after(self._measure, otel)
        self._write()
        if self._file is not None:
            self._file.close()
        self._go_on_after(otel.shut_down)

    def _measure(self, otel: Providers) -> None:
        self._lines.append(metric_line(otel.metrics()))

    def _go_on_after(self, step: Callable[..., None], *args: Any) -> None:
        """Run a step in which the user's processors and readers may raise; a failure is logged."""
        try:
            step(*args)
        except Exception:
            log.warning("a processor or reader of OpenTelemetry's failed", exc_info=True)

    def _next_batch(self, timeout_s: float | None) -> list[QueuedEvent | None]:
        """Queued events, a bounded number; None among them is the end."""
        batch: list[QueuedEvent | None] = []
        with suppress(Empty):
            batch.append(self._queue.get(timeout=timeout_s))
            if None not in batch and self._queue.qsize() < CompatLimits.max_batch_events:
                time.sleep(CompatLimits.batch_wait_s)
            while len(batch) < CompatLimits.max_batch_events:
                batch.append(self._queue.get_nowait())
        return batch

    def _deliver(self, otel: Providers, event: BaseEvent, task: TaskRecord | None) -> None:
        if self._file is not None:
            try:
                self._lines.append(event_line(event, *otel.ids(task)))
                if task is not None and event.event_type in ENDS:
                    span = otel.span_of(task, keep=False)
                    self._lines += [] if span is None else [span_line(span)]
            except Exception:
                # Whatever it is, it may be so every time.
                level = logging.DEBUG if self._warned else logging.WARNING
                self._warned = True
                log.log(level, "an event of type %s is not in the file", event.event_type, exc_info=True)
        if not isinstance(event, SessionStarted):  # they have that
            self._subscribers.publish(event)

    def _write(self) -> None:
        lines = self._lines[:]
        del self._lines[: len(lines)]  # others append meanwhile
        if self._file is not None:
            self._file.write(lines)


class CheckpointFile:
    """`<session>.<time>.telemetry.jsonl` in a folder, which is created; for one thread.

    Lines are with the kernel when `write` returns, so that a killed program loses none. NaN and infinities
    become null, and values without a JSON form text. A write error loses the lines and is logged once. Raises
    OSError where the file cannot be created.
    """

    def __init__(self, folder: str | Path, session_id: str, started_at: float) -> None:
        where = Path(folder)
        where.mkdir(parents=True, exist_ok=True)
        stem = f"{session_id.replace('/', '_')}.{int(started_at)}"
        for number in count(1):
            self.path = where / f"{stem}{'' if number == 1 else f'-{number}'}.telemetry.jsonl"
            with suppress(FileExistsError):
                self._out = Descriptor.open(self.path, _FLAGS | os.O_CREAT | os.O_EXCL)
                break
        self._failed = False

    def write(self, lines: list[dict[str, Any]]) -> None:
        """Append lines."""
        text = b"".join([_encode(line) + b"\n" for line in lines])
        try:
            while text:
                if not self._out.still_ours():  # the program has closed it
                    self._out = Descriptor.open(self.path, _FLAGS)
                text = text[os.write(self._out.number, text) :]
        except OSError as error:
            if not self._failed:
                log.warning(
                    "%s cannot be written: %s; what is lost there stands in the run", self.path, error
                )
            self._failed = True

    def close(self) -> None:
        """Close the file; may be called again."""
        self._out.close()


def event_line(event: BaseEvent, trace_id: int, span_id: int) -> dict[str, Any]:
    """The line of an event, with the ids of its span."""
    line = {one.name: getattr(event, one.name) for one in dataclasses.fields(event)}
    line |= {"trace_id": hex(trace_id), "span_id": hex(span_id)}
    return line | {"name": event.event_type, "section": "event"}


def span_line(span: Any) -> dict[str, Any]:
    """The line of a span that has ended."""
    return {
        "name": span.name,
        "span_id": hex(span.context.span_id),
        "trace_id": hex(span.context.trace_id),
        "parent_span_id": hex(span.parent.span_id) if span.parent else None,
        "start_ns": span.start_time,
        "end_ns": span.end_time,
        "start_time_s": span.start_time / 1e9,
        "end_time_s": span.end_time / 1e9,
        "duration_ms": round((span.end_time - span.start_time) / 1e6, 3),
        "status_code": span.status.status_code.name,
        "status_description": span.status.description or None,
        "attributes": dict(span.attributes or {}),
        "section": "span",
    }


def metric_line(metrics: Any) -> dict[str, Any]:
    """All metrics in one line: sums of counts, means of node percentages."""
    line: dict[str, Any] = {"checkpoint_time": time.time(), "section": "metric"}
    found = metrics.resource_metrics if metrics is not None else ()
    for metric in (metric for one in found for scope in one.scope_metrics for metric in scope.metrics):
        points = metric.data.data_points
        if not points:
            continue
        if hasattr(points[0], "count"):
            line[f"{metric.name}_count"] = sum(point.count for point in points)
            line[f"{metric.name}_sum"] = sum(point.sum for point in points)
        else:
            total = sum(point.value for point in points)
            line[metric.name] = total / len(points) if metric.name.startswith("node_") else total
    return line


def _encode(line: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(line, enc_hook=str)
    except Exception:  # noqa: BLE001 - somebody's `__str__`, keys or half a character: as good as it gets
        plain, _ = clean(line, limit=CompatLimits.max_line_text, keys_secret=False)
        return msgspec.json.encode(plain)


def task_span(task: TaskRecord) -> dict[str, Any]:
    """The span of a task that has ended as `TelemetryManager.task_spans` gives it."""
    assert task.attributes is not None
    assert task.end_ns is not None
    found = task.attributes
    seconds = found.get("duration_seconds", (task.end_ns - task.start_ns) / 1e9)
    return {
        **dict.fromkeys(("task_id", "backend", "status")),
        **dict.fromkeys(("executable", "task_type"), ""),
        **{name: found[name] for name in _TASK_SPAN if name in found},
        "duration_seconds": round(seconds, 6),
        "span_id": hex(task.span_id),
        "trace_id": hex(task.trace_id),
    }


class SessionCounts:
    """Counts of tasks and the latest samples of nodes; one thread adds, any may read.

    A task counts once as running, from its start to its end, so that the gauge is never below 0. Memory grows
    with running tasks, executables and nodes, not with the number of tasks.
    """

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, _Labels]] = Counter()
        self._running: dict[str, _Labels] = {}
        self._nodes: dict[str, tuple[dict[str, str], ResourceUpdate]] = {}
        self._executables: set[str] = set()
        self.timed = 0
        self.total_s = self.least_s = self.most_s = 0.0
        self.record: Callable[[float, dict[str, str]], None] = lambda seconds, labels: None  # noqa: ARG005
        self._unrecorded: deque[tuple[float, _Labels]] = deque()

    def add(self, event: BaseEvent, task: TaskRecord | None) -> None:
        """Process one event."""
        kind = event.event_type
        if isinstance(event, ResourceUpdate) and event.gpu_id is None:
            key, labels = _node(event)
            self._nodes[key] = (labels, event)
        elif kind in COUNTED:
            of_task = None if task is None else task.labels
            if of_task is None or of_task[1] != event.backend:
                of_task = self._labels(event)
                if task is not None:
                    task.labels = of_task
            self._counts[COUNTED[kind], of_task] += 1
            if kind == "TaskStarted" and event.task_id is not None:
                self._running.setdefault(event.task_id, of_task)
            elif kind in ENDS:
                self._running.pop(event.task_id or "", None)
                self._time(event, of_task)

    def record_durations(self) -> None:
        """Record the durations since the last call in the histogram; whoever reads it calls this before."""
        with suppress(IndexError):
            while True:
                seconds, labels = self._unrecorded.popleft()
                self.record(seconds, _named(labels))

    def count(self, what: str) -> int:
        """How many tasks were submitted, started, completed, failed or canceled, or are running."""
        return int(sum(number for number, _ in self.observed(what)))

    def nodes(self) -> dict[str, dict[str, Any]]:
        """The latest sample of each node, or worker where a backend samples those."""
        return {
            key: {name: getattr(event, name) for name in ("backend", "node_id", *_KEPT)}
            for key, (_, event) in self._nodes.copy().items()
        }

    def observed(self, what: str) -> list[tuple[float, dict[str, str]]]:
        """A metric's values with their labels."""
        if what in _NODE:
            found = ((getattr(event, what), labels) for labels, event in list(self._nodes.values()))
            return [(value, labels) for value, labels in found if value is not None]
        counts = self._counts.copy()
        if what == "running":
            now = Counter({labels: 0 for kind, labels in counts if kind == "started"})
            now.update(list(self._running.values()))
            return [(number, _named(labels)) for labels, number in now.items()]
        return [(number, _named(labels)) for (kind, labels), number in counts.items() if kind == what]

    def _labels(self, event: BaseEvent) -> _Labels:
        executable = str(event.attributes.get("executable", ""))
        if len(self._executables) < CompatLimits.max_executable_labels:
            self._executables.add(executable)
        if executable not in self._executables:
            executable = "other"
        return event.session_id, event.backend or "", executable, str(event.attributes.get("task_type", ""))

    def _time(self, event: BaseEvent, labels: _Labels) -> None:
        seconds = duration_of(event)
        if seconds is None or event.attributes.get("incomplete_lifecycle"):
            return
        self.least_s = min(self.least_s, seconds) if self.timed else seconds
        self.most_s = max(self.most_s, seconds)
        self.timed += 1
        self.total_s += seconds
        self._unrecorded.append((seconds, labels))
        if len(self._unrecorded) >= CompatLimits.max_unrecorded_durations:
            self.record_durations()


def _named(labels: _Labels) -> dict[str, str]:
    return dict(zip(("session_id", "backend", "executable", "task_type"), labels, strict=True))


def _node(event: ResourceUpdate) -> tuple[str, dict[str, str]]:
    key = f"{event.backend}/{event.node_id}"
    labels = {
        "session_id": event.session_id,
        "backend": event.backend or "",
        "node_id": str(event.node_id or ""),
    }
    if (worker := event.attributes.get("worker")) is not None:
        return f"{key}/{worker}", {**labels, "worker": str(worker)}
    return key, labels
