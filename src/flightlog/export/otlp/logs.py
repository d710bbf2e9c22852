"""Failures, lost workers and what users noted, as log records."""

from __future__ import annotations

from typing import Any

from flightlog.core.time import moment
from flightlog.events import Event, Failure, UserEvent, WorkerLost
from flightlog.events.codec import UnknownEvent
from flightlog.export.otlp.attributes import known
from flightlog.export.otlp.model import Attributes, LogRecord
from flightlog.export.otlp.resource import Ids, hex_id

SEVERITIES = {
    "trace": (1, "TRACE"),
    "debug": (5, "DEBUG"),
    "info": (9, "INFO"),
    "warning": (13, "WARN"),
    "warn": (13, "WARN"),
    "error": (17, "ERROR"),
    "critical": (21, "FATAL"),
    "fatal": (21, "FATAL"),
}
_LEVEL_FIELDS = ("level", "severity")
_COMMON = {"timestamp", "writer", "seq", "event"}


def record_of(event: Event | UnknownEvent, stream: str, ids: Ids) -> LogRecord | None:
    """The log record of an event; None for events that are none.

    `log.record.uid` is the line's own number: a record that came twice can be told.
    """
    at = moment(event.timestamp)
    if at is None:
        return None
    uid = f"{event.writer}/{stream}/{event.seq}" if event.writer and event.seq >= 0 else None
    if isinstance(event, Failure):
        said = {
            "exception.type": event.error_type,
            "exception.message": event.message,
            "exception.stacktrace": event.traceback,
            "cicd.pipeline.task.name": event.task,
            "cicd.pipeline.task.run.id": event.task_id,
            "flightlog.task.attempt": event.attempt,
            "cicd.worker.name": event.worker,
            "process.exit.code": event.exit_code,
            "flightlog.failure.scope": event.scope,
            "flightlog.failure.fingerprint": event.fingerprint,
            "flightlog.failure.signal": event.signal,
            "flightlog.failure.output_tail": event.output_tail,
        }
        text = (
            ": ".join(part for part in (event.error_type, event.message) if part) or f"a {event.scope} failed"
        )
        return _record(at, "error", text, "flightlog.failure", said, ids, event.span_id, uid)
    if isinstance(event, WorkerLost):
        said = {
            "cicd.worker.name": event.worker,
            "host.name": event.host,
            "process.pid": event.pid,
            "process.exit.code": event.exit_code,
            "flightlog.failure.signal": event.signal,
            "flightlog.task.component": event.component,
        }
        why = f": {event.reason}" if event.reason else ""
        return _record(
            at,
            "warning",
            f"worker {event.worker} was lost{why}",
            "flightlog.worker_lost",
            said,
            ids,
            None,
            uid,
        )
    if isinstance(event, UserEvent):
        return _record(
            at, _level(event.fields), event.name, event.name, event.fields, ids, event.span_id, uid
        )
    if isinstance(event, UnknownEvent):
        if not stream.startswith("user."):
            return None  # a newer version's, of which nobody here knows what it says
        kind = event.kind or stream
        fields = {name: value for name, value in event.data.items() if name not in _COMMON}
        return _record(at, _level(fields), kind, kind, fields, ids, fields.get("span_id"), uid)
    if type(event).of_user:
        kind = str(event.__struct_config__.tag)
        fields = {name: getattr(event, name) for name in event.__struct_fields__ if name not in _COMMON}
        return _record(at, _level(fields), kind, kind, fields, ids, fields.get("span_id"), uid)
    return None


def is_logged(stream: str) -> bool:
    """Whether events of this stream may be log records."""
    return stream in {"failures", "workers", "events"} or stream.startswith("user.")


def _record(
    at: int, level: str, body: str, name: str, said: Attributes, ids: Ids, span_id: Any, uid: str | None
) -> LogRecord:
    severity, text = SEVERITIES[level]
    inner = hex_id(span_id, 16) if isinstance(span_id, str) else None
    return LogRecord(
        time_ns=at,
        severity=severity,
        severity_text=text,
        body=body,
        event_name=name,
        attributes=known({**said, "log.record.uid": uid}),
        trace_id=ids.trace_id,
        span_id=inner or ids.root_id,
    )


def _level(fields: Attributes) -> str:
    """How serious the user says it is; information where nothing is said."""
    said = next((fields[name] for name in _LEVEL_FIELDS if isinstance(fields.get(name), str)), "info").lower()
    return said if said in SEVERITIES else "info"
