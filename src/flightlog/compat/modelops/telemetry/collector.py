"""Spans by context manager: collected in memory, and recorded in the active run, if any."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Protocol

from flightlog.compat.limits import CompatLimits
from flightlog.core.intervals import length, union
from flightlog.core.redaction import redact_text
from flightlog.export.modelops import span_line
from flightlog.record.collector import CollectedSpan, Collector
from flightlog.record.span import NoopSpan as RunNoopSpan
from flightlog.record.span import Span, add_metric, span
from flightlog.record.values import clean, encodable, text_of

__all__ = ["NOOP_SPAN", "NoopSpan", "SpanLike", "TelemetryCollector", "TelemetrySpan"]

SWITCH = "MODELOPS_TELEMETRY_ENABLED"
OFF_WORDS = frozenset({"0", "false", "off", "no"})


class SpanLike(Protocol):
    """What `TelemetryStorage` saves of a span, whoever made it."""

    name: str
    start_time: float
    end_time: float | None
    metrics: dict[str, Any]
    tags: dict[str, Any]


class HasSpans(Protocol):
    """A collector, ours or another."""

    @property
    def spans(self) -> Sequence[SpanLike]:
        """The spans that ended."""


class TelemetryCollector:
    """Collects spans; thread-safe, also in asyncio and generators.

    `spans` holds those that ended, in order of their ends; `open_spans` the others, in order of their starts.
    Each is also a span of the active run, if any, and is on disk there from its start.
    """

    def __init__(self, enabled: bool | None = None, *, environ: Mapping[str, str] | None = None) -> None:
        """`enabled=False` makes every span a no-op; the default is `MODELOPS_TELEMETRY_ENABLED`."""
        environ = os.environ if environ is None else environ
        switched = environ.get(SWITCH, "").strip().lower() not in OFF_WORDS
        self.enabled = switched if enabled is None else enabled
        self.spans: list[TelemetrySpan] = []
        self._open: dict[CollectedSpan, TelemetrySpan] = {}
        self._lock = threading.Lock()
        self._collector = Collector()

    def span(self, name: str | None = None, /, **tags: Any) -> AbstractContextManager[Any]:
        """A span around a block, or around each call of a decorated function.

        The block gets a `TelemetrySpan`, or the `NoopSpan` where the collector is switched off. An exception
        adds the tags `error` and `error_msg`, and passes through. Tags may have any name; a tag `name` is the
        span's name only where no other is given.
        """
        if not self.enabled:
            return NOOP_SPAN
        return self._span(text_of(tags.pop("name", "") if name is None else name), tags)

    @contextmanager
    def _span(self, name: str, tags: dict[str, Any]) -> Iterator[TelemetrySpan]:
        made, in_run = self.begin(name, dict(tags))  # each call of a decorated function has tags of its own
        try:
            yield made
        except BaseException as error:
            self.end(made, in_run, error)
            raise
        else:
            self.end(made, in_run)

    def begin(self, name: str, tags: dict[str, Any]) -> tuple[TelemetrySpan, Span | None]:
        """Open a span without `with`; returns it, and the span of the active run, if any."""
        recorded = span(name, **tags)
        in_run = recorded.__enter__() if isinstance(recorded, Span) else None
        measured = self._collector.begin(name, tags)
        made = TelemetrySpan(name, measured.start_ns / 1e9, None, measured.metrics, tags)
        made.zero_ns = self._collector.clock.anchor_ns
        made.span_id, made.parent_id = measured.span_id, measured.parent_id
        made.start_ns, made.measured = measured.start_ns + made.zero_ns, measured
        with self._lock:
            self._open[measured] = made
        if in_run is not None:  # one set of values for both
            in_run.metrics, in_run.tags = made.metrics, tags
        return made, in_run

    def end(self, made: TelemetrySpan, in_run: Span | None, error: BaseException | None = None) -> None:
        """End a span that `begin` opened, with its exception, if any."""
        measured = made.measured
        if measured is None or made.start_ns is None:
            return
        self._collector.end(measured, error)
        assert measured.end_ns is not None
        made.end_ns = made.start_ns + measured.end_ns - measured.start_ns
        made.end_time, made.measured = measured.end_ns / 1e9, None
        # Replaced by something else; an exception on its way out must not change.
        if not isinstance(made.tags, dict):
            made.tags = {"tags": made.tags}
        if error is not None:
            made.tags["error"] = type(error).__name__
            made.tags["error_msg"] = (measured.error_message or "")[: CompatLimits.max_error_message]
        with self._lock:
            self._open.pop(measured, None)
            self.spans.append(made)
        if in_run is None:
            return
        in_run.metrics, in_run.tags = made.metrics, made.tags  # they may have been replaced
        if error is None and "error" in made.tags:  # an error that was returned, and not raised
            in_run.set_status("error", text_of(made.tags.get("error_msg", made.tags["error"])))
        in_run.__exit__(None if error is None else type(error), error, None)

    @property
    def open_spans(self) -> list[TelemetrySpan]:
        """Spans that have begun and not ended, in any thread."""
        with self._lock:
            return list(self._open.values())

    def add_metric(self, key: str, value: float) -> None:
        """Add a value to the innermost open span of this context; nothing outside any span, or when switched
        off.

        A second value of the same key makes a list.
        """
        here = self._collector.current() if self.enabled else None
        if here is not None:
            add_metric(self._open[here].metrics, key, value)

    def all_spans(self) -> list[TelemetrySpan]:
        """The spans that ended, then those that are open."""
        with self._lock:
            return [*self.spans, *self._open.values()]

    def to_dict(self) -> dict[str, Any]:
        """All spans as JSON values, open ones last, and two totals.

        `total_duration` is the time in seconds that ended spans cover: nested and parallel spans count once.
        """
        spans = self.all_spans()
        ended = [(start, end) for start, end in (one.interval_ns() for one in spans) if end is not None]
        return {
            "spans": [one.to_dict() for one in spans],
            "total_spans": len(spans),
            "total_duration": length(union(ended)) / 1e9,
        }

    def __getstate__(self) -> dict[str, Any]:
        """For pickling: the spans that ended."""
        return {"enabled": self.enabled, "spans": list(self.spans)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["enabled"])  # type: ignore[misc] # a new one, with those spans
        self.spans = state["spans"]


class NoopSpan(RunNoopSpan):
    """The span of a collector that is switched off: discards metrics and tags; a context manager and a
    decorator, too.
    """

    __slots__ = ()

    def __init__(
        self, metrics: Mapping[str, float] | None = None, tags: Mapping[str, str] | None = None
    ) -> None:
        """Ignores both arguments."""

    def duration(self) -> None:  # type: ignore[override] # ModelOps says None where a run says NaN
        """None: nothing was measured."""

    def to_dict(self) -> dict[str, Any]:
        """Nothing, as an empty object."""
        return {}

    def __repr__(self) -> str:
        return "NoopSpan()"


NOOP_SPAN = NoopSpan()


@dataclass
class TelemetrySpan:
    """A span, with metrics and tags of any value.

    Times are seconds: of the machine's monotonic clock for a collector's spans, of any clock for spans
    created by hand.
    """

    name: str
    start_time: float
    end_time: float | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    tags: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Set attributes for a collector; not fields, so that the fields are those of ModelOps."""
        self.span_id: int | None = None
        """Number of the span within its collector; None for one created by hand."""
        self.parent_id: int | None = None
        """Number of its parent span."""
        self.start_ns: int | None = None
        """Its start in Unix nanoseconds; None for one created by hand."""
        self.end_ns: int | None = None
        self.zero_ns = 0
        """Offset of `start_time` and `end_time` from Unix time, in nanoseconds."""
        self.measured: CollectedSpan | None = None
        """The collected span, while it is open."""

    def duration(self) -> float | None:
        """Seconds, so far for an open span; None for one created by hand without an end."""
        if self.measured is not None:
            return self.measured.duration()
        if self.start_ns is not None and self.end_ns is not None:
            return (self.end_ns - self.start_ns) / 1e9
        return None if self.end_time is None else self.end_time - self.start_time

    def to_dict(self) -> dict[str, Any]:
        """The span as JSON values: bounded, secrets redacted; NaN and infinities are null and named in
        `nonfinite`.

        `duration` and `end_time` are null while it is open. A collector's spans also have `span_id`,
        `parent_id` and `started_at`, in Unix seconds.
        """
        metrics, odd = clean(_mapping("metrics", self.metrics), keys_secret=False)
        tags, more = clean(_mapping("tags", self.tags))
        name, nonfinite = encodable(redact_text(text_of(self.name))), {**odd, **more}
        if self.start_ns is not None:
            kept = ("start_ns", "end_ns", "span_id", "parent_id", "zero_ns")
            facts = {field: getattr(self, field) for field in kept}
            return span_line(name=name, metrics=metrics, tags=tags, nonfinite=nonfinite, **facts)
        times = {"start_time": self.start_time, "end_time": self.end_time, "duration": self.duration()}
        line: dict[str, Any] = {"name": name, **{field: _seconds(value) for field, value in times.items()}}
        line |= {"metrics": metrics, "tags": tags}
        return {**line, "nonfinite": nonfinite} if nonfinite else line

    def interval_ns(self) -> tuple[int, int | None]:
        """Start and end in nanoseconds, of Unix time or of the user's clock; the end is None while it is
        open.
        """
        if self.start_ns is not None:
            return self.start_ns, self.end_ns
        start, end = _seconds(self.start_time), _seconds(self.end_time)
        if start is None or end is None:
            return round((start or 0) * 1e9), None
        return round(start * 1e9), round(end * 1e9)

    def __getstate__(self) -> dict[str, Any]:
        """For pickling: without the collected span, which stays in its process."""
        return {**self.__dict__, "measured": None}


def _mapping(name: str, value: Any) -> dict[str, Any]:
    """Metrics or tags as a dict, whatever the user replaced them by."""
    if isinstance(value, Mapping):
        return dict(value)
    return {} if value is None else {name: value}


def _seconds(value: Any) -> float | None:
    """A finite time; None for anything else."""
    return value if isinstance(value, int | float) and isfinite(value) else None
