"""The spans of a collector: the one that measures, and the one that stands in when telemetry is off."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from flightlog.export.modelops_shape import span_line
from flightlog.record.collector import CollectedSpan
from flightlog.record.span import NOOP
from flightlog.record.values import clean, encodable, text_of
from flightlog.redaction import redact_text


class NoopSpan:
    """The span of a collector that is switched off: takes metrics and tags, and keeps none of them."""

    __slots__ = ()

    def __init__(
        self, metrics: Mapping[str, float] | None = None, tags: Mapping[str, str] | None = None
    ) -> None:
        """Both arguments are there for the interface's sake."""

    @property
    def metrics(self) -> dict[str, Any]:
        """Always empty, whatever is put in."""
        return NOOP.metrics

    @metrics.setter
    def metrics(self, _value: object) -> None:
        """Nothing."""

    @property
    def tags(self) -> dict[str, Any]:
        """Always empty, whatever is put in."""
        return NOOP.tags

    @tags.setter
    def tags(self, _value: object) -> None:
        """Nothing."""

    def duration(self) -> None:
        """None: nothing was measured."""

    def to_dict(self) -> dict[str, Any]:
        """Nothing, as an empty object."""
        return {}

    def __repr__(self) -> str:
        return "NoopSpan()"


NOOP_SPAN = NoopSpan()


@dataclass
class TelemetrySpan:
    """One thing that code does, with metrics and tags of any value.

    Times are seconds: of a collector's spans on the machine's monotonic clock, which all its processes share
    and nobody sets; of one that is made by hand on the clock of whoever made it.
    """

    name: str
    start_time: float
    end_time: float | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    tags: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """What a collector fills in; no fields, so that those are what they were in ModelOps."""
        self.span_id: int | None = None
        """Number of the span within its collector; None for one made by hand."""
        self.parent_id: int | None = None
        """Number of the span it happened in."""
        self.start_ns: int | None = None
        """When it began, in nanoseconds since 1970; None for one made by hand."""
        self.end_ns: int | None = None
        self.zero_ns = 0
        """What to take from these for `start_time` and `end_time`."""
        self.measured: CollectedSpan | None = None
        """What measures it while a collector has it open."""

    def duration(self) -> float | None:
        """Seconds: so far while a collector has it open, in all when it has ended; None for one by hand
        without an end.
        """
        if self.measured is not None:
            return self.measured.duration()
        if self.start_ns is not None and self.end_ns is not None:
            return (self.end_ns - self.start_ns) / 1e9
        return None if self.end_time is None else self.end_time - self.start_time

    def to_dict(self) -> dict[str, Any]:
        """The span as JSON values: bounded, secrets redacted; NaN and infinities are null and named in
        `nonfinite`.

        `duration` and `end_time` are null while it is open. A collector's spans have `span_id`, `parent_id`
        and `started_at`, in seconds since 1970, too.
        """
        metrics, odd = clean(_mapping("metrics", self.metrics), keys_secret=False)
        tags, more = clean(_mapping("tags", self.tags))
        nonfinite = {**odd, **more}
        if self.start_ns is not None:
            return span_line(
                name=encodable(redact_text(text_of(self.name))),
                start_ns=self.start_ns,
                end_ns=self.end_ns,
                metrics=metrics,
                tags=tags,
                span_id=self.span_id,
                parent_id=self.parent_id,
                nonfinite=nonfinite,
                zero_ns=self.zero_ns,
            )
        line = {
            "name": encodable(redact_text(text_of(self.name))),
            "start_time": _seconds(self.start_time),
            "end_time": _seconds(self.end_time),
            "duration": _seconds(self.duration()),
            "metrics": metrics,
            "tags": tags,
        }
        return {**line, "nonfinite": nonfinite} if nonfinite else line

    def interval_ns(self) -> tuple[int, int | None]:
        """From when to when, in nanoseconds since 1970 or of its maker's clock; the second is None while it
        is open.
        """
        if self.start_ns is not None:
            return self.start_ns, self.end_ns
        start, end = _seconds(self.start_time), _seconds(self.end_time)
        if start is None or end is None:
            return round((start or 0) * 1e9), None
        return round(start * 1e9), round(end * 1e9)

    def __getstate__(self) -> dict[str, Any]:
        """Without what measures it, which stays in its process."""
        return {**self.__dict__, "measured": None}


def _mapping(name: str, value: Any) -> dict[str, Any]:
    """Metrics or tags, whatever they were replaced by."""
    if isinstance(value, Mapping):
        return dict(value)
    return {} if value is None else {name: value}


def _seconds(value: Any) -> float | None:
    """A time that somebody wrote into a span, if it is one."""
    return value if isinstance(value, int | float) and isfinite(value) else None
