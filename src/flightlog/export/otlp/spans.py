"""Recorded spans and the run itself as OpenTelemetry's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from flightlog.core.time import moment, nanoseconds
from flightlog.events import Event, SpanEvent, SpanOpened
from flightlog.events.base import Json
from flightlog.events.codec import UnknownEvent
from flightlog.export.otlp.attributes import known, prefixed
from flightlog.export.otlp.lives import exception
from flightlog.export.otlp.model import Happening, Link, Span
from flightlog.export.otlp.resource import Ids, hex_id
from flightlog.store.layout import RunInfo

_SCOPE = "otel.scope.name"
_KINDS = {"server": 2, "client": 3, "producer": 4, "consumer": 5}
RESULTS = {"completed": "success", "failed": "failure", "interrupted": "cancellation", "crashed": "error"}


class SpanLives:
    """Give it every event of a run's spans; it gives those that ended, and holds those that are open."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self._open: dict[str, SpanOpened] = {}

    def take(self, event: Event | UnknownEvent) -> Span | None:
        """An event; gives the span that ended with it."""
        if isinstance(event, SpanOpened):
            self._open[event.span_id] = event
            return None
        if not isinstance(event, SpanEvent):
            return None
        self._open.pop(event.span_id, None)  # a writer's lines come in order: the end after the opening
        since = moment(event.timestamp)
        if since is None:
            return None
        until = since + nanoseconds(event.duration_s or 0.0)
        happenings: tuple[Happening, ...] = ()
        if event.error_type or event.error_message:
            happenings = (exception(event.error_type, event.error_message, None, until),)
        failed = event.status == "error"
        tags, links, kind = _restored(event.tags)
        said = {
            **known(tags),
            **(known(event.metrics) if _SCOPE in tags else prefixed("flightlog.metrics", event.metrics)),
            **known({"thread.id": event.thread, "error.type": event.error_type if failed else None}),
            "flightlog.kind": "span",
        }
        trace_id = self._ids.trace(event.trace_id)
        return Span(
            trace_id=trace_id,
            span_id=self._ids.span(event.span_id, event.writer, event.seq),
            parent_id=self._ids.parent(event.parent_id, trace_id),
            name=event.name,
            start_ns=since,
            end_ns=until,
            attributes=said,
            happenings=happenings,
            links=links,
            kind=kind,
            status="error" if failed else "ok" if event.status == "ok" else "unset",
            message=(event.error_message or "") if failed else "",
        )

    def unfinished(self, until_ns: int) -> Iterator[Span]:
        """The spans that were open when they were last heard of, in a fixed order."""
        for event in sorted(self._open.values(), key=lambda one: (one.timestamp, one.span_id)):
            since = moment(event.timestamp)
            if since is None:
                continue
            trace_id = self._ids.trace(event.trace_id)
            yield Span(
                trace_id=trace_id,
                span_id=self._ids.span(event.span_id, event.writer, event.seq),
                parent_id=self._ids.parent(event.parent_id, trace_id),
                name=event.name,
                start_ns=since,
                end_ns=max(since + nanoseconds(event.elapsed_s), until_ns),
                attributes={**known(event.tags), "flightlog.kind": "span", "flightlog.unfinished": True},
            )


def _restored(tags: Json) -> tuple[Json, tuple[Link, ...], int]:
    """Tags, links and kind of a span that was made with OpenTelemetry's API, as they were before it was
    recorded.
    """
    if "otel.scope" not in tags:
        return tags, (), 1
    left = {
        name: value for name, value in tags.items() if name not in {"otel.scope", "otel.kind", "otel.links"}
    }
    named = tags.get("otel.links")
    pairs = [str(link).partition("-")[::2] for link in named] if isinstance(named, list) else []
    links = tuple(
        Link(trace_id=trace_id, span_id=span_id)
        for trace_id, span_id in pairs
        if hex_id(trace_id, 32) and hex_id(span_id, 16)
    )
    return {**left, _SCOPE: tags["otel.scope"]}, links, _KINDS.get(str(tags.get("otel.kind")), 1)


def root_span(info: RunInfo, status: str, ids: Ids, until_ns: int) -> Span:
    """The run as the span that all others are in. `until_ns` is when it ended, or was last heard of."""
    since = moment(info.start_time) or until_ns
    failed = status in {"failed", "crashed"}
    happenings: tuple[Happening, ...] = ()
    if info.error and failed:
        kind, colon, _ = info.error.partition(":")
        named = kind if colon and kind.replace(".", "").isidentifier() else None
        happenings = (exception(named, info.error, None, until_ns),)
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
            "flightlog.run.target": info.target,
            "flightlog.run.provider": info.provider,
            "flightlog.run.error": info.error,
            "flightlog.run.signal": info.signal,
            "flightlog.run.manifest_hash": info.manifest_hash,
            "flightlog.run.git_dirty": info.git_dirty,
            "flightlog.run.tasks_submitted": info.tasks_submitted,
            "flightlog.run.tasks_completed": info.tasks_completed,
            "flightlog.run.tasks_failed": info.tasks_failed,
        }
    )
    ended: Literal["unset", "ok", "error"] = "error" if failed else "ok" if status == "completed" else "unset"
    return Span(
        trace_id=ids.trace_id,
        span_id=ids.root_id,
        parent_id=ids.above_id,
        name=info.project or info.run_id,
        start_ns=since,
        end_ns=max(since, until_ns),
        attributes=said,
        happenings=happenings,
        status=ended,
        message=(info.error or status) if failed else "",
    )
