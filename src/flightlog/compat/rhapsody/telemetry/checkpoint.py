"""The file of JSON lines that holds a session's events, metrics and spans."""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from pathlib import Path
from typing import Any

import msgspec

from flightlog.compat.rhapsody.telemetry.events import BaseEvent
from flightlog.descriptors import Descriptor
from flightlog.record.values import clean

log = logging.getLogger(__name__)

_MAX_TEXT = 1 << 20
_FLAGS = os.O_WRONLY | os.O_APPEND


class CheckpointFile:
    """`<session>.<time>.telemetry.jsonl` in a folder, which is made; for one thread.

    Every line is with the kernel when `write` returns, so that a killed program loses none. Lines are JSON,
    whatever they hold: numbers that are none are null, and what JSON has no word for is text. A disk that
    refuses costs the lines and is said once. Raises OSError where the file cannot be made.
    """

    def __init__(self, folder: str | Path, session_id: str, started_at: float) -> None:
        where = Path(folder)
        where.mkdir(parents=True, exist_ok=True)
        stem = f"{session_id.replace('/', '_')}.{int(started_at)}"
        self.lost = 0
        for number in range(1, 1000):
            self.path = where / f"{stem}{'' if number == 1 else f'-{number}'}.telemetry.jsonl"
            try:
                self._out: Descriptor | None = Descriptor.open(self.path, _FLAGS | os.O_CREAT | os.O_EXCL)
                return
            except FileExistsError:
                continue
        raise FileExistsError(f"{where} holds too many files of {stem}")

    def write(self, lines: list[dict[str, Any]]) -> None:
        """Append lines."""
        if self._out is None or not lines:
            return
        text = b"".join([_encode(line) + b"\n" for line in lines])
        try:
            while text:
                if not self._out.still_ours():  # the program has closed it
                    self._out = Descriptor.open(self.path, _FLAGS)
                text = text[os.write(self._out.number, text) :]
        except OSError as error:
            self.lost += len(lines)
            if self.lost == len(lines):
                log.warning(
                    "%s cannot be written: %s; what is lost there stands in the run", self.path, error
                )

    def close(self) -> None:
        """No more lines; may be called again."""
        if self._out is not None:
            self._out.close()
            self._out = None


def event_line(event: BaseEvent, trace_id: int | None, span_id: int | None) -> dict[str, Any]:
    """An event with the span it belongs to."""
    line = {one.name: getattr(event, one.name) for one in dataclasses.fields(event)}
    line |= {"trace_id": hexadecimal(trace_id), "span_id": hexadecimal(span_id)}
    return line | {"name": event.event_type, "section": "event"}


def span_line(span: Any) -> dict[str, Any]:
    """A span that has ended."""
    return {
        "name": span.name,
        "span_id": hexadecimal(span.context.span_id),
        "trace_id": hexadecimal(span.context.trace_id),
        "parent_span_id": hexadecimal(span.parent.span_id) if span.parent else None,
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
    """All metrics in one line: counts added up, percentages of nodes as their mean."""
    line: dict[str, Any] = {"checkpoint_time": time.time(), "section": "metric"}
    for metric in metrics_of(metrics):
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


def metrics_of(data: Any) -> list[Any]:
    """The metrics in OpenTelemetry's nesting of them; none of None."""
    return [
        metric
        for resource in (data.resource_metrics if data is not None else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
    ]


def hexadecimal(number: int | None) -> str | None:
    """An id as it is written."""
    return None if number is None else hex(number)


def _encode(line: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(line, enc_hook=str)
    except Exception:  # noqa: BLE001 - somebody's `__str__`, keys or half a character: as good as it gets
        plain, _ = clean(line, limit=_MAX_TEXT, keys_secret=False)
        return msgspec.json.encode(plain)


def task_span(span: Any) -> dict[str, Any]:
    """A task's span as `TelemetryManager.task_spans` gives it."""
    attributes = dict(span.attributes or {})
    seconds = attributes.get("duration_seconds", (span.end_time - span.start_time) / 1e9)
    told = {
        "task_id": attributes.get("task_id"),
        "backend": attributes.get("backend"),
        "executable": attributes.get("executable", ""),
        "task_type": attributes.get("task_type", ""),
        "status": attributes.get("status"),
        "duration_seconds": round(seconds, 6),
        "span_id": hexadecimal(span.context.span_id),
        "trace_id": hexadecimal(span.context.trace_id),
    }
    if "error_type" in attributes:
        told["error_type"] = attributes["error_type"]
    if attributes.get("incomplete_lifecycle"):
        told["incomplete_lifecycle"] = True
    return told
