"""Task attempts, recorded spans and the run itself as OpenTelemetry spans.

An attempt is put together from events that come in any order and from several processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from flightlog import events
from flightlog.core.time import moment, nanoseconds
from flightlog.events import Event, SpanEvent, SpanOpened, TaskEnded, TaskEvent, TaskRetried, TaskStarted
from flightlog.events.base import Json
from flightlog.events.codec import UnknownEvent
from flightlog.export.limits import ExportLimits
from flightlog.export.otlp import metrics, model
from flightlog.export.otlp.metrics import TaskCounters
from flightlog.export.otlp.model import Attributes, Ids, Link, OtlpEvent, OtlpSpan, hex_id, known
from flightlog.store.layout import RunInfo

_SCOPE = "otel.scope.name"
_KINDS = {"server": 2, "client": 3, "producer": 4, "consumer": 5}
RESULTS = {"completed": "success", "failed": "failure", "interrupted": "cancellation", "crashed": "error"}


class RecordedSpans:
    """The recorded spans of a run: takes every span event, returns spans that ended, and holds open ones."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self._open: dict[str, SpanOpened] = {}

    def take(self, event: Event | UnknownEvent) -> OtlpSpan | None:
        """An event; gives the span that ended with it."""
        since = moment(event.timestamp)
        if isinstance(event, SpanOpened):
            self._open[event.span_id] = event
        elif isinstance(event, SpanEvent):
            self._open.pop(event.span_id, None)  # a writer's lines come in order: the end after the opening
        if since is None or not isinstance(event, SpanEvent):
            return None
        until = since + nanoseconds(event.duration_s or 0.0)
        error = exception(event.error_type, event.error_message, None, until)
        failed = event.status == "error"
        tags, links, kind = _restored(event.tags)
        prefix = "" if _SCOPE in tags else "flightlog.metrics."
        said = {
            **known(tags),
            **model.prefixed(prefix, event.metrics),
            **known({"thread.id": event.thread, "error.type": event.error_type if failed else None}),
            "flightlog.kind": "span",
        }
        return OtlpSpan(
            **self._ids.of(event, event.writer, event.seq),
            name=event.name,
            start_ns=since,
            end_ns=until,
            attributes=said,
            events=(error,) if event.error_type or event.error_message else (),
            links=links,
            kind=kind,
            status="error" if failed else "ok" if event.status == "ok" else "unset",
            message=(event.error_message or "") if failed else "",
        )

    def unfinished(self, until_ns: int, last_signs: Mapping[str, int]) -> Iterator[OtlpSpan]:
        """The spans without an end, in a fixed order: up to the last sign of life of their process, which
        `last_signs` has by writer, or else to `until_ns`.
        """
        for event in sorted(self._open.values(), key=lambda one: (one.timestamp, one.span_id)):
            since = moment(event.timestamp)
            if since is None:
                continue
            yield OtlpSpan(
                **self._ids.of(event, event.writer, event.seq),
                name=event.name,
                start_ns=since,
                end_ns=max(since + nanoseconds(event.elapsed_s), last_signs.get(event.writer, until_ns)),
                attributes={**known(event.tags), "flightlog.kind": "span", "flightlog.unfinished": True},
            )


def _restored(tags: Json) -> tuple[Json, tuple[Link, ...], int]:
    """Tags, links and kind of a span that was made with OpenTelemetry's API, as they were before it was
    recorded.
    """
    if "otel.scope" not in tags:
        return tags, (), 1
    left = dict(tags)
    scope, kind, named = (left.pop(f"otel.{name}", None) for name in ("scope", "kind", "links"))
    pairs = [str(link).partition("-")[::2] for link in named] if isinstance(named, list) else []
    links = tuple(
        Link(trace_id=trace_id, span_id=span_id)
        for trace_id, span_id in pairs
        if hex_id(trace_id, 32) and hex_id(span_id, 16)
    )
    return {**left, _SCOPE: scope}, links, _KINDS.get(str(kind), 1)


_RUN_FACTS = (
    *("target", "provider", "error", "signal", "manifest_hash", "git_dirty"),
    *("tasks_submitted", "tasks_completed", "tasks_failed"),
)
"""Fields of `run.json` that are attributes of the root span."""


def root_span(info: RunInfo, status: str, ids: Ids, until_ns: int) -> OtlpSpan:
    """The run as root span. `until_ns` is its end, or its last heartbeat."""
    since = moment(info.start_time) or until_ns
    failed = status in {"failed", "crashed"}
    kind, colon, _ = (info.error or "").partition(":")
    named = kind if colon and kind.replace(".", "").isidentifier() else None
    said = known(
        {
            **info.tags,
            "cicd.pipeline.name": info.project,
            "cicd.pipeline.run.id": info.run_id,
            "cicd.pipeline.result": RESULTS.get(status),
            "error.type": (info.signal or "_OTHER") if failed else None,
            "process.exit.code": info.exit_code,
            "flightlog.kind": "run",
            "flightlog.run.status": status,
            **{f"flightlog.run.{name}": getattr(info, name) for name in _RUN_FACTS},
        }
    )
    ended: Literal["unset", "ok", "error"] = "error" if failed else "ok" if status == "completed" else "unset"
    return OtlpSpan(
        trace_id=ids.trace_id,
        span_id=ids.root_id,
        parent_id=ids.outer_id,
        name=info.project or info.run_id,
        start_ns=since,
        end_ns=max(since, until_ns),
        attributes=said,
        events=(exception(named, info.error, None, until_ns),) if info.error and failed else (),
        status=ended,
        message=(info.error or status) if failed else "",
    )


ENDS: dict[type[TaskEvent], tuple[int, str]] = {
    events.TaskCompleted: (metrics.COMPLETED, "success"),
    events.TaskFailed: (metrics.FAILED, "failure"),
    events.TaskCancelled: (metrics.CANCELED, "cancellation"),
    TaskRetried: (metrics.RETRIED, "failure"),
}
"""What each end counts as, and its name in the semantic conventions."""


_OTHERS = {*TaskEvent.__struct_fields__, "args", "worker", "tags", "metrics", "nonfinite"}
_FACTS = [name for name in events.TaskCompleted.__struct_fields__ if name not in _OTHERS]
_USED = {f"flightlog.task.{name}": name for name in _FACTS}
"""Attributes for what an attempt used, and the fields of its end that say it."""


class AttemptSpans:
    """The attempts of a run as spans, one for each that ended, and their counts; takes every task event.

    An attempt that is recorded twice counts once, as in reports. Holds running attempts, tasks that wait for
    dependencies, and one number for each attempt that ended. `unlinked` counts dependencies whose span is
    unknown.
    """

    def __init__(self, ids: Ids, counters: TaskCounters) -> None:
        self.unlinked = 0
        self.omitted = 0
        """Failures whose tracebacks did not fit into memory."""
        self._ids, self._counters = ids, counters
        self._running: dict[int, tuple[int, TaskStarted]] = {}
        self._ended: set[int] = set()
        self._over: set[int] = set()
        self._failed: dict[int, set[type]] = {}
        self._startless: dict[int, tuple[TaskRetried, int, model.Mark]] = {}
        self._depends: dict[str, list[str]] = {}
        self._span_ids: dict[int, int] = {}
        self._older_span_ids: dict[int, int] = {}
        self._causes: dict[int, OtlpEvent] = {}
        self._causes_bytes = 0

    def failed(self, failure: events.Failure) -> None:
        """The failure of an attempt, for its span, which is made later."""
        if failure.task_id is None:
            return
        size = len(failure.traceback or "") + ExportLimits.error_overhead_bytes
        if self._causes_bytes + size > ExportLimits.max_error_bytes:
            self.omitted += 1
            return
        self._causes_bytes += size
        at_ns = moment(failure.timestamp) or 0
        cause = exception(failure.error_type, failure.message, failure.traceback, at_ns)
        self._causes[hash((failure.task_id, failure.attempt or 1))] = cause

    def take(self, event: Event | UnknownEvent, mark: model.Mark) -> list[tuple[OtlpSpan | None, model.Mark]]:
        """The spans of an event, each with the line of the attempt's end.

        A line without a span comes with None. The line of a retry whose start was not read yet comes later,
        with its span.
        """
        at = moment(event.timestamp)
        if at is None or not isinstance(event, TaskEvent):
            return [(None, mark)]
        key = _key(event)
        if isinstance(event, TaskEnded | TaskRetried):
            return self._take_end(event, at, mark, key)
        waiting = None
        if isinstance(event, events.TaskSubmitted):
            self._counters.count(metrics.SUBMITTED, at)
            if event.depends_on:
                self._depends[event.task_id] = event.depends_on
            self._remember(event)
        elif isinstance(event, TaskStarted):
            waiting = self._started(event, at, key)
        return [(None, mark)] if waiting is None else [waiting, (None, mark)]

    def startless(self) -> list[tuple[OtlpSpan, model.Mark]]:
        """The retried attempts without a recorded start: spans of zero length."""
        waiting, self._startless = self._startless, {}
        return [
            (self._ended_span(event, at, at, key, None), mark) for key, (event, at, mark) in waiting.items()
        ]

    def knows_cause(self, event: TaskEvent) -> bool:
        """Whether it is known already what this attempt failed of."""
        return _key(event) in self._causes

    def stop_counting(self, until_ns: int) -> None:
        """End the counts of running attempts: the run is over."""
        for since, _ in self._running.values():
            self._counters.stopped(since, until_ns)

    def unfinished(self, until_ns: int) -> Iterator[OtlpSpan]:
        """The attempts without an end, up to the last known time, in a fixed order."""
        left = sorted(self._running.values(), key=lambda one: (one[0], one[1].task_id, one[1].attempt))
        for since, event in left:
            yield self._span(event, since, max(since, until_ns), {"flightlog.unfinished": True})

    def _started(self, event: TaskStarted, at: int, key: int) -> tuple[OtlpSpan, model.Mark] | None:
        waiting = self._startless.pop(key, None)
        if waiting is None and key not in self._ended and (key in self._over or key in self._failed):
            return None  # told twice
        self._counters.count(metrics.STARTED, at)
        if waiting is not None:
            retry, until, mark = waiting
            self._counters.ran(at, until)
            return self._ended_span(retry, at, until, key, event), mark
        if key in self._ended:
            self._ended.remove(key)
            return None
        if key in self._running:  # begun once more, as an engine does whose worker died
            self._counters.stopped(self._running[key][0], at)
        self._running[key] = at, event
        self._counters.ran(at, None)
        return None

    def _take_end(
        self, event: TaskEnded | TaskRetried, at: int, mark: model.Mark, key: int
    ) -> list[tuple[OtlpSpan | None, model.Mark]]:
        told = self._failed.setdefault(key, set()) if ENDS[type(event)][1] == "failure" else None
        if key in self._over if told is None else type(event) in told:
            return [(None, mark)]  # told twice
        self._counters.count(ENDS[type(event)][0], at)
        if told is None:
            self._over.add(key)
        else:
            told.add(type(event))
            if len(told) == 2:  # an attempt may have both an end and a retry, and is one span
                return [(None, mark)]
        since, start = self._running.pop(key, (at, None))
        if start is not None:
            self._counters.stopped(since, at)
        elif isinstance(event, TaskRetried):
            self._startless[key] = event, at, mark
            return []
        if isinstance(event, TaskEnded):
            lasted = event.duration_s
            since = since if lasted is None else max(0, at - nanoseconds(lasted))
            if start is None and (lasted is not None or event.worker is not None):
                self._ended.add(key)
                self._counters.ran(since, at)
            if lasted is not None and not isinstance(event, events.TaskCancelled):
                self._counters.took(event.task, lasted)
        return [(self._ended_span(event, since, at, key, start), mark)]

    def _ended_span(
        self, event: TaskEnded | TaskRetried, since: int, at: int, key: int, began: TaskStarted | None
    ) -> OtlpSpan:
        self._remember(event)
        said: Attributes = {"cicd.pipeline.task.run.result": ENDS[type(event)][1]}
        more: dict[str, Any] = {"status": "ok"} if isinstance(event, events.TaskCompleted) else {}
        links = self._links(self._depends.get(event.task_id, ()))
        if isinstance(event, TaskEnded):
            said |= _used(event)
        if isinstance(event, events.TaskFailed | TaskRetried):
            cause = self._cause(event, key, at)
            said["error.type"] = cause.attributes.get("exception.type", "_OTHER")
            message = str(cause.attributes.get("exception.message", ""))
            more = {"status": "error", "message": message, "events": (cause,)}
        if isinstance(event, events.TaskFailed):
            said |= known(
                {"process.exit.code": event.exit_code, "flightlog.failure.fingerprint": event.fingerprint}
            )
        elif isinstance(event, events.TaskCancelled):
            said |= known({"flightlog.task.cancel_reason": event.reason})
        elif isinstance(event, TaskRetried):
            worker = began.worker if began else None
            said |= known({"flightlog.task.retry_delay_s": event.delay_s, "cicd.worker.name": worker})
            return self._span(event, since, at, {**said, "flightlog.task.retried": True}, links, **more)
        made = self._span(event, since, at, said, links, **more)
        self._depends.pop(event.task_id, None)
        return made

    def _cause(self, event: events.TaskFailed | TaskRetried, key: int, at: int) -> OtlpEvent:
        """The error that an attempt failed of: as its failure says, else as its end does."""
        cause = self._causes.pop(key, None)
        if cause is not None:
            traceback = str(cause.attributes.get("exception.stacktrace", ""))
            self._causes_bytes -= len(traceback) + ExportLimits.error_overhead_bytes
            return cause
        if isinstance(event, events.TaskFailed):
            return exception(event.error_type, event.error_message, None, at)
        return exception(None, event.reason, None, at)

    def _span(
        self,
        event: TaskEvent,
        since: int,
        until: int,
        said: Attributes,
        links: tuple[Link, ...] = (),
        **more: Any,
    ) -> OtlpSpan:
        worker = event.worker if isinstance(event, TaskStarted | TaskEnded) else None
        about = {
            "cicd.pipeline.task.name": event.task,
            "cicd.pipeline.task.run.id": event.task_id,
            "cicd.worker.name": worker,
            "flightlog.kind": "task",
            "flightlog.task.attempt": event.attempt,
            "flightlog.task.component": event.component,
            "flightlog.task.depends_on": self._depends.get(event.task_id, [])[: ExportLimits.max_items],
        }
        return OtlpSpan(
            **self._ids.of(event, event.task_id, event.attempt),
            name=event.task,
            start_ns=since,
            end_ns=max(since, until),
            attributes=known(about) | said,
            links=links,
            **more,
        )

    def _remember(self, event: TaskEvent) -> None:
        """Note the span of a task, the latest attempt's, for those that depend on it."""
        span_id = self._ids.span(event.span_id, event.task_id, event.attempt)
        self._span_ids[hash(event.task_id)] = int(span_id, 16)
        if len(self._span_ids) > ExportLimits.max_linked_tasks // 2:
            self._older_span_ids, self._span_ids = self._span_ids, {}

    def _links(self, task_ids: Sequence[str]) -> tuple[Link, ...]:
        found = []
        for task_id in task_ids[: ExportLimits.max_items]:
            key = hash(task_id)
            span_id = self._span_ids.get(key) or self._older_span_ids.get(key)
            if span_id is None:
                self.unlinked += 1
                continue
            about = {"flightlog.link": "depends_on", "cicd.pipeline.task.run.id": task_id}
            found.append(Link(trace_id=self._ids.trace_id, span_id=f"{span_id:016x}", attributes=about))
        self.unlinked += max(0, len(task_ids) - ExportLimits.max_items)
        return tuple(found)


def _key(event: TaskEvent) -> int:
    """What the events of one attempt share, in little memory."""
    return hash((event.task_id, event.attempt))


def exception(kind: str | None, message: str | None, traceback: str | None, at_ns: int) -> OtlpEvent:
    """An error as OpenTelemetry notes it in a span."""
    about = {"exception.type": kind, "exception.message": message, "exception.stacktrace": traceback}
    return OtlpEvent(name="exception", time_ns=at_ns, attributes=known(about))


def _used(event: TaskEnded) -> Attributes:
    """The resource usage of an attempt, under the events' own names."""
    return {
        **known(event.tags),
        **known({name: getattr(event, field, None) for name, field in _USED.items()}),
        **model.prefixed("flightlog.args.", event.args),
        **model.prefixed("flightlog.metrics.", event.metrics),
    }
