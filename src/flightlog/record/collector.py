"""Spans kept in memory, without a run: for code that attaches telemetry to its own results."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from typing import Any

from flightlog.core import threads
from flightlog.core.grouping import grouped
from flightlog.core.intervals import length, overlap, union
from flightlog.core.stats import distribution
from flightlog.record.clock import Clock, monotonic_ns
from flightlog.record.span import NOOP, add_metric, is_error
from flightlog.record.values import ask, bounded, class_name, clean, text_of

_innermost: ContextVar[CollectedSpan | None] = ContextVar("flightlog_collected", default=None)
"""One variable for all collectors: a span knows whose it is, and what it is inside of."""


class CollectedSpan:
    """One thing that code did, kept by a collector."""

    def __init__(
        self, collector: Collector, name: str, tags: dict[str, Any], outer: CollectedSpan | None
    ) -> None:
        self.name, self.tags, self.metrics = name, tags, dict[str, Any]()
        self.status = "ok"
        self.error_type: str | None = None
        self.error_message: str | None = None
        self.start_ns = monotonic_ns()
        self.end_ns: int | None = None
        self.collector, self.outer = collector, outer  # what it is inside of may be another collector's
        self.span_id = next(collector.ids)
        parent = collector._mine(outer)
        self.parent_id = parent.span_id if parent else None

    def duration(self) -> float:
        """Seconds: so far while it is open, in all when it has ended."""
        return ((monotonic_ns() if self.end_ns is None else self.end_ns) - self.start_ns) / 1e9

    def add_metric(self, key: str, value: float) -> None:
        """Add a value; a second one of the same key makes a list, nothing is overwritten."""
        add_metric(self.metrics, key, value)

    def set_status(self, status: str, message: str | None = None) -> None:
        """Say how it ended, for errors that are returned and not raised."""
        self.status, self.error_message = ("error" if is_error(status) else "ok"), message

    def to_dict(self) -> dict[str, Any]:
        """The span as JSON values; `duration_s` is null while it is open."""
        tags, marks = clean(self.tags)
        metrics, metric_marks = clean(self.metrics, keys_secret=False)
        shown: dict[str, Any] = {
            "name": self.name,
            "span_id": self.span_id,
            "parent_id": self.parent_id,
            "timestamp": self.collector.clock.iso(self.start_ns),
            "duration_s": None if self.end_ns is None else self.duration(),
            "status": self.status,
            "tags": tags,
            "metrics": metrics,
        }
        if self.status == "error":
            shown |= {"error_type": self.error_type, "error_message": self.error_message}
        if marks or metric_marks:
            shown["nonfinite"] = {**marks, **metric_marks}
        return shown


class Collector:
    """Keeps the spans opened through it; thread-safe. `enabled=False` makes every span the shared no-op."""

    def __init__(self, enabled: bool = True) -> None:
        self.enabled = enabled
        self.clock = Clock()
        self.ids = count(1)
        self._spans: list[CollectedSpan] = []
        self._lock = threads.Lock()

    @contextmanager
    def span(self, name: str, /, **tags: Any) -> Iterator[CollectedSpan]:
        """A span around the block; any exception ends it with its error and passes through."""
        if not self.enabled:
            yield NOOP  # type: ignore[misc] # the same interface
            return
        span = self.begin(name, tags)
        try:
            yield span
        except BaseException as error:
            self.end(span, error)
            raise
        else:
            self.end(span)

    def begin(self, name: str, tags: dict[str, Any]) -> CollectedSpan:
        """Open a span, the innermost of this context until `end`; whether the collector is enabled or not."""
        span = CollectedSpan(self, name, tags, _innermost.get())
        with self._lock:
            self._spans.append(span)
        _innermost.set(span)
        return span

    def end(self, span: CollectedSpan, error: BaseException | None = None) -> None:
        """End a span that `begin` opened, with the exception that ended it if there is one."""
        span.end_ns = monotonic_ns()
        if _innermost.get() is span:
            _innermost.set(span.outer)
        if error is None:
            return
        span.status, span.error_type = "error", class_name(type(error))
        text = ask(str, error, otherwise=None)
        span.error_message = None if text is None else bounded(text_of(text), 2000)

    def current(self) -> CollectedSpan | None:
        """The innermost open span of this context; None outside any span of this collector."""
        return self._mine(_innermost.get())

    def add_metric(self, key: str, value: float) -> None:
        """Add a value to the innermost open span of this context; nothing outside any span."""
        span = self.current()
        if span is not None:
            span.add_metric(key, value)

    def to_dict(self) -> dict[str, Any]:
        """All spans, in the order they were opened in, and two totals.

        `wall_s` (also `total_duration`) is the time during which any span was open; `busy_s` adds up what
        each span did itself, its children's time taken off, so that work in parallel counts as often as it
        ran.
        """
        spans = self._snapshot()
        return {"spans": [span.to_dict() for span in spans], **_totals(spans)}

    def summary(self) -> dict[str, Any]:
        """Totals, and by name: durations (count, total, mean, min, max, p50, p95), errors and metrics."""
        spans = self._snapshot()
        names = dict.fromkeys(span.name for span in spans)
        return {
            **_totals(spans),
            "open_spans": sum(span.end_ns is None for span in spans),
            "by_name": {name: _summary_of([s for s in spans if s.name == name]) for name in names},
        }

    def _mine(self, span: CollectedSpan | None) -> CollectedSpan | None:
        while span is not None and (span.collector is not self or span.end_ns is not None):
            span = span.outer
        return span

    def _snapshot(self) -> list[CollectedSpan]:
        with self._lock:
            return list(self._spans)


def _totals(spans: list[CollectedSpan]) -> dict[str, Any]:
    ended = [span for span in spans if span.end_ns is not None]
    inside = grouped((span.parent_id, _interval(span)) for span in ended)
    busy_ns = 0
    for span in ended:
        own = _interval(span)
        busy_ns += own[1] - own[0] - length(overlap(union(inside.get(span.span_id, [])), [own]))
    wall = length(union(_interval(span) for span in ended)) / 1e9
    return {"total_spans": len(spans), "total_duration": wall, "wall_s": wall, "busy_s": busy_ns / 1e9}


def _interval(span: CollectedSpan) -> tuple[int, int]:
    return span.start_ns, span.start_ns if span.end_ns is None else span.end_ns


def _summary_of(spans: list[CollectedSpan]) -> dict[str, Any]:
    values: dict[str, list[float]] = {}
    for span in spans:
        for key, value in span.metrics.items():
            numbers = [
                v for v in (value if isinstance(value, list) else [value]) if isinstance(v, int | float)
            ]
            values.setdefault(key, []).extend(numbers)
    shown = distribution([span.duration() for span in spans if span.end_ns is not None])
    return {
        "count": len(spans),
        "errors": sum(span.status == "error" for span in spans),
        **{name: getattr(shown, name) for name in ("total", "mean", "min", "max", "p50", "p95")},
        "metrics": {key: _metric_summary(numbers) for key, numbers in values.items() if numbers},
    }


def _metric_summary(numbers: list[float]) -> dict[str, Any]:
    count, total = len(numbers), sum(numbers)
    shown = {"mean": total / count, "sum": total, "min": min(numbers), "max": max(numbers)}
    return {**shown, "last": numbers[-1], "count": count}
