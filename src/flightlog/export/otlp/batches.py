"""A run as batches of spans, points and log records: once, or repeatedly while it is running.

Every event is read once, in any order, and combined in little memory. Whoever takes a batch confirms what was
taken by its marks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from flightlog.core.time import SECOND, moment
from flightlog.events import Event, Failure, TaskFailed, TaskRetried, UserEvent, WorkerLost
from flightlog.events.codec import UnknownEvent
from flightlog.export.limits import ExportLimits
from flightlog.export.otlp import model
from flightlog.export.otlp.metrics import COUNTS, SampleGauges, TaskCounters
from flightlog.export.otlp.model import Attributes, Item, Mark, Signal, hex_id, known
from flightlog.export.otlp.spans import AttemptSpans, RecordedSpans, root_span
from flightlog.store.documents import read_document, write_document
from flightlog.store.read.completeness import Coverage
from flightlog.store.read.events import Following
from flightlog.store.read.lines import AnyEvent
from flightlog.store.run import Run

_SIGNALS: dict[str, Signal] = {
    "tasks": "traces",
    "spans": "traces",
    "resources": "metrics",
    "metrics": "metrics",
}
"""What the events of a stream become; those of others are logs."""
MarkedItem = tuple[Item | None, Mark]
"""An item with the line to mark when it is accepted; None for a line without an item."""


class Batch(Struct, frozen=True, kw_only=True):
    """Items to be sent together, and the lines to mark when they are accepted."""

    signal: Signal
    items: Sequence[Item] = ()
    marks: Sequence[Mark] = ()
    counted_until_ns: int = 0
    """Task counts are reported up to this time."""
    durations_ns: int = 0
    """Histograms of durations are reported as of this time."""
    endings: int = 0
    """How many of the spans that the end of the run makes are in this."""


class Checkpoint(Struct, kw_only=True):
    """The document: lines by stream and writer as ranges of their numbers, and how far the rest has come."""

    address: str = ""
    lines: dict[str, dict[str, list[tuple[int, int]]]] = field(default_factory=dict)
    unnumbered: dict[str, int] = field(default_factory=dict)
    counted_until_ns: int = 0
    durations_ns: int = 0
    endings: int = 0
    taken: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)


class Sent:
    """What the server has accepted so far, and need not be given any more. `problem` says why the checkpoint
    could not be read or written; sending continues.
    """

    def __init__(self, path: Path, *, address: str, again: bool) -> None:
        self.problem: str | None = None
        self._path, self._changed = path, False
        read = None if again else read_document(path, Checkpoint).value
        if read is None and not again and path.is_file():
            self.problem = (
                f"{path} could not be read, where it is noted what was sent before: all of it was sent again"
            )
        self.notes = read or Checkpoint()
        self.notes.address = address
        self._lines = {
            (stream, writer): Coverage.of(ranges)
            for stream, writers in self.notes.lines.items()
            for writer, ranges in writers.items()
        }

    def has(self, stream: str, writer: str, number: int) -> bool:
        """Whether a line was accepted before; lines without a number are counted in order."""
        if not writer:
            return number < self.notes.unnumbered.get(stream, 0)
        return (stream, writer) in self._lines and number in self._lines[stream, writer]

    def accept(self, batch: Batch, refused: int = 0) -> None:
        """Mark a batch as accepted, except this number of items that the server refuses for good."""
        self._changed = True
        for stream, writer, number in batch.marks:
            if writer:
                self._lines.setdefault((stream, writer), Coverage()).add(number)
            else:
                self.notes.unnumbered[stream] = max(self.notes.unnumbered.get(stream, 0), number + 1)
        self.notes.counted_until_ns = max(self.notes.counted_until_ns, batch.counted_until_ns)
        self.notes.durations_ns = max(self.notes.durations_ns, batch.durations_ns)
        self.notes.endings += batch.endings
        taken, signal = self.notes.taken, batch.signal
        taken[signal] = taken.get(signal, 0) + len(batch.items) - refused
        if refused:
            self.notes.refused[signal] = self.notes.refused.get(signal, 0) + refused

    def save(self) -> None:
        """Write the checkpoint; where that fails, `problem` says so."""
        if not self._changed:
            return
        self._changed = False
        for (stream, writer), seen in self._lines.items():
            self.notes.lines.setdefault(stream, {})[writer] = seen.ranges()
        try:
            self._path.parent.mkdir(exist_ok=True)
            write_document(self._path, self.notes)
        except OSError as error:
            self.problem = (
                f"what was sent cannot be noted in {self._path.parent} ({error.strerror or error}): "
                "another export will send it again"
            )


class OtlpReader:
    """Batches of one run. `signals` are those to report; one that is removed is not reported any more."""

    def __init__(
        self,
        run: Run,
        *,
        environ: Mapping[str, str],
        signals: Collection[Signal] = model.SIGNALS,
        sent: Sent | None = None,
    ) -> None:
        info = run.info
        self.signals = set(signals)
        self.resource: model.Resource = model.resource_of(info, environ)
        self._sent = sent
        """What was accepted before, and is not given again."""
        before = Checkpoint() if sent is None else sent.notes
        self._counted_until_ns, self._durations_ns = before.counted_until_ns, before.durations_ns
        self._endings = before.endings
        self._ids = model.Ids(info)
        self._counters = TaskCounters(moment(info.start_time) or 0)
        self._tasks = AttemptSpans(self._ids, self._counters)
        self._spans = RecordedSpans(self._ids)
        self._gauges = SampleGauges(info.host or None)
        self._following: dict[str, Following] = {}
        self._failures_late: list[AnyEvent] = []

    def batches(self, run: Run, *, last: bool) -> Iterator[Batch]:
        """New batches. `last` is the final read; if the run is over then, its unfinished spans and its root
        span are included.
        """
        streams = run.streams()
        over = last and run.status != "running"
        if self.signals & {"logs", "traces"}:
            yield from self._stream(run, "failures", last)
        if self.signals & {"traces", "metrics"}:
            yield from self._stream(run, "tasks", last)
        if last and "traces" in self.signals:
            yield from self._batches("traces", ([one] for one in self._tasks.startless()))
        if "traces" in self.signals:
            yield from self._stream(run, "spans", last)
        until_ns = moment(run.ending().end_time) or self._counters.latest_ns if over else 0
        if over:
            self._tasks.stop_counting(until_ns)
        if "metrics" in self.signals:
            yield from self._counts(last)
            for stream in ("resources", "metrics"):
                yield from self._stream(run, stream, last)
        for stream in streams if "logs" in self.signals else ():
            if stream in {"workers", "events"} or stream.startswith("user."):
                yield from self._stream(run, stream, last)
        if over and "traces" in self.signals:
            yield from self._ending(run, until_ns)

    def notes(self) -> list[str]:
        """What is not in the batches, in sentences."""
        counted = {
            "dependencies have no link: their span is not known": self._tasks.unlinked,
            "tracebacks are only in the logs, and not in the spans of their tasks": self._tasks.omitted,
            "values of more than 1,000 workers or series are left out": self._gauges.left_out,
        }
        return [f"{number:,} {what}" for what, number in counted.items() if number]

    def _stream(self, run: Run, stream: str, last: bool) -> Iterator[Batch]:
        return self._batches(_SIGNALS.get(stream, "logs"), self._read(run, stream, last))

    def _batches(self, signal: Signal, found: Iterable[Sequence[MarkedItem]]) -> Iterator[Batch]:
        """Batches of what was not accepted before; what one line gives is in one batch."""
        items: list[Item] = []
        marks: list[Mark] = []
        for of_line in found:
            for item, mark in of_line:
                if self._sent is not None and self._sent.has(*mark):
                    continue
                if item is not None:
                    items.append(item)
                marks.append(mark)
            if len(items) >= ExportLimits.max_batch_items or len(marks) >= ExportLimits.max_batch_lines:
                if signal in self.signals:
                    yield Batch(signal=signal, items=items, marks=marks)
                items, marks = [], []
        if marks and signal in self.signals:
            yield Batch(signal=signal, items=items, marks=marks)

    def _read(self, run: Run, stream: str, last: bool) -> Iterator[Sequence[MarkedItem]]:
        """What each new line of a stream gives."""
        following = self._following.setdefault(stream, Following(run.path, stream))
        late: list[AnyEvent] = []
        if stream == "failures":
            late, self._failures_late = self._failures_late, late
        numbers = count()
        for event in chain(late, following.new(last=last)):
            numbered = event.writer and event.seq >= 0
            mark = (stream, event.writer, event.seq) if numbered else (stream, "", next(numbers))
            yield self._items(run, event, mark, last)

    def _items(self, run: Run, event: AnyEvent, mark: Mark, last: bool) -> Sequence[MarkedItem]:
        stream = mark[0]
        if stream == "tasks":
            if isinstance(event, TaskFailed | TaskRetried) and not (last or self._tasks.knows_cause(event)):
                # Its failure is written before its end, but their stream was read before that of the tasks.
                failures = self._following.setdefault("failures", Following(run.path, "failures"))
                for failure in failures.new():
                    self._failures_late.append(failure)
                    self._note_failure(failure)
            return self._tasks.take(event, mark)
        if stream == "spans":
            return [(self._spans.take(event), mark)]
        if stream in {"resources", "metrics"}:
            return [(None, mark), *((point, mark) for point in self._gauges.take(event))]
        self._note_failure(event)
        return [(record_of(event, stream, self._ids), mark)]

    def _note_failure(self, event: AnyEvent) -> None:
        if isinstance(event, Failure):
            self._tasks.failed(event)

    def _counts(self, last: bool) -> Iterator[Batch]:
        counters = self._counters
        points = counters.points(
            None if last else counters.latest_ns - round(ExportLimits.late_line_s * SECOND),
            after_ns=self._counted_until_ns,
        )
        most = ExportLimits.max_batch_items // len(COUNTS) * len(COUNTS)  # whole moments only
        while some := list(islice(points, most)):
            yield Batch(signal="metrics", items=some, counted_until_ns=some[-1].time_ns)
        at_ns = counters.latest_ns
        if at_ns > self._durations_ns + (0 if last else round(ExportLimits.histogram_interval_s * SECOND)):
            self._durations_ns = at_ns
            if durations := list(counters.durations(at_ns)):
                yield Batch(signal="metrics", items=durations, durations_ns=at_ns)

    def _ending(self, run: Run, until_ns: int) -> Iterator[Batch]:
        beats = {one.writer: moment(one.heartbeat) for one in run.writers()}
        last_signs = {writer: min(beat, until_ns) for writer, beat in beats.items() if beat is not None}

        def spans() -> Iterator[Item]:
            yield from self._tasks.unfinished(until_ns)
            yield from self._spans.unfinished(until_ns, last_signs)
            yield root_span(run.info, run.status, self._ids, until_ns)

        left = islice(spans(), self._endings, None)
        while some := list(islice(left, ExportLimits.max_batch_items)):
            yield Batch(signal="traces", items=some, endings=len(some))


_LEVELS = {"trace": 1, "debug": 5, "info": 9, "warn": 13, "error": 17, "fatal": 21}
SEVERITIES = {level: (number, level.upper()) for level, number in _LEVELS.items()}
SEVERITIES |= {"warning": SEVERITIES["warn"], "critical": SEVERITIES["fatal"]}
_LEVEL_FIELDS = ("level", "severity")
_COMMON = {"timestamp", "writer", "seq", "event"}


_FAILURE = {
    "exception.type": "error_type",
    "exception.message": "message",
    "exception.stacktrace": "traceback",
    "cicd.pipeline.task.name": "task",
    "cicd.pipeline.task.run.id": "task_id",
    "flightlog.task.attempt": "attempt",
    "cicd.worker.name": "worker",
    "process.exit.code": "exit_code",
    "flightlog.failure.scope": "scope",
    "flightlog.failure.fingerprint": "fingerprint",
    "flightlog.failure.signal": "signal",
    "flightlog.failure.output_tail": "output_tail",
}
_LOST = {
    "cicd.worker.name": "worker",
    "host.name": "host",
    "process.pid": "pid",
    "process.exit.code": "exit_code",
    "flightlog.failure.signal": "signal",
    "flightlog.task.component": "component",
}
"""Attributes of log records, and the fields of events they come from."""


_Entry = tuple[str, str, str, Attributes, Any]
"""What a log record says: its name, level, text and attributes, and the span it is in."""


def record_of(event: Event | UnknownEvent, stream: str, ids: model.Ids) -> model.LogRecord | None:
    """The log record of an event; None for events without one.

    `log.record.uid` is the line's own number, so that duplicates can be recognized.
    """
    at, entry = moment(event.timestamp), _entry(event, stream)
    if at is None or entry is None:
        return None
    name, level, body, attributes, span_id = entry
    uid = f"{event.writer}/{stream}/{event.seq}" if event.writer and event.seq >= 0 else None
    severity, text = SEVERITIES[level]
    inner = hex_id(span_id, 16) if isinstance(span_id, str) else None
    return model.LogRecord(
        time_ns=at,
        severity=severity,
        severity_text=text,
        body=body,
        event_name=name,
        attributes=known({**attributes, "log.record.uid": uid}),
        trace_id=ids.trace_id,
        span_id=inner or ids.root_id,
    )


def _entry(event: Event | UnknownEvent, stream: str) -> _Entry | None:
    if isinstance(event, Failure):
        said = ": ".join(part for part in (event.error_type, event.message) if part)
        about = {name: getattr(event, field) for name, field in _FAILURE.items()}
        return "flightlog.failure", "error", said or f"a {event.scope} failed", about, event.span_id
    if isinstance(event, WorkerLost):
        why = f": {event.reason}" if event.reason else ""
        about = {name: getattr(event, field) for name, field in _LOST.items()}
        return "flightlog.worker_lost", "warning", f"worker {event.worker} was lost{why}", about, None
    if isinstance(event, UserEvent):
        return event.name, _level(event.fields), event.name, event.fields, event.span_id
    if isinstance(event, UnknownEvent):
        if not stream.startswith("user."):
            return None  # a newer version's, of which nobody here knows what it says
        kind, fields = event.kind or stream, event.data
    elif type(event).of_user:
        kind = str(event.__struct_config__.tag)
        fields = {name: getattr(event, name) for name in event.__struct_fields__}
    else:
        return None
    fields = {name: value for name, value in fields.items() if name not in _COMMON}
    return kind, _level(fields), kind, fields, fields.get("span_id")


def _level(fields: Attributes) -> str:
    """The severity that the user gave; `info` by default."""
    said = next((fields[name] for name in _LEVEL_FIELDS if isinstance(fields.get(name), str)), "info").lower()
    return said if said in SEVERITIES else "info"
