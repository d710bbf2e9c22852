"""The recorder of one run in one process: events in, numbered lines out, and nothing ever raised."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from contextvars import Context
from copy import copy
from itertools import chain, count, cycle, groupby, islice, repeat
from operator import add, attrgetter
from pathlib import Path
from typing import Any

import msgspec

from flightlog.core.interruption import is_interruption, pass_interruption
from flightlog.core.redaction import own_patterns
from flightlog.core.settings import redact_patterns
from flightlog.events import Event, Metric, SpanEvent, SpanOpened, definition_of, kind_of
from flightlog.events.base import copy_event
from flightlog.record.clock import Clock, monotonic_ns
from flightlog.record.failure import tell_out_of_memory
from flightlog.record.fast_values import (
    are_harmless,
    forget,
    is_harmless,
    known_names,
    learn,
    redact_event,
    redacted_name,
)
from flightlog.record.limits import RecordLimits
from flightlog.record.span import RootSpan, Span, current
from flightlog.record.subscribers import Subscribers
from flightlog.record.values import ask, bounded, class_name, clean, error_text, nonfinite_name, text_of
from flightlog.store.write.stream import StreamWriter
from flightlog.store.write.writer import RunWriter, make_writer_info, new_token

log = logging.getLogger("flightlog")

_get = current.get
_MAX_LINE_BYTES = RecordLimits.max_line_bytes  # read for every line: looking it up in the class costs
get_ident = threading.get_ident
_encode_lines = msgspec.json.Encoder().encode_lines  # given lists alone: of a tuple it leaks the iterator
_HEX = [f"{i:02x}" for i in range(256)]


class Recorder:
    """What one process records of one run; thread-safe, and safe to use at any time, also after it closed.

    Numbers, times and writes events; keeps the register of open spans; counts what went wrong and says so
    once. A forked child calls `after_fork` and goes on as a writer of its own.
    """

    def __init__(self, path: Path, host: str, trace_id: str, *, owner: bool) -> None:
        self.path, self.host, self.trace_id = path, host, trace_id
        self.clock = Clock()
        self._iso = self.clock.iso
        self.subscribers = Subscribers(path)
        self.open: dict[str, Span] = {}
        self.counts: dict[str, int] = {}
        self.problems: list[str] = []
        self.worker_processes: dict[int, str] = {}
        """The names of worker processes of engines on this host, by process id, while they live."""
        self.closed = False
        self.on_open: Callable[[], None] = lambda: None
        self._announced: set[str] = set()
        self._warned: set[str] = set()
        if own_patterns(redact_patterns()):
            forget()
        self._begin(owner)

    def _begin(self, owner: bool) -> None:
        global get_ident
        get_ident = threading.get_ident  # by now that may be gevent's, which tells greenlets apart
        self.writer = writer = new_token()
        self._defined: set[type[Event]] = set()
        info = make_writer_info(
            writer, self.host, owner=owner, started=self.clock.now(), anchor_ns=self.clock.anchor_ns
        )
        self.files = RunWriter(self.path, info, on_trouble=self.trouble, on_open=self._opened)
        self._outs: dict[str, StreamWriter] = {}
        self._spans: StreamWriter = self._out(SpanEvent.stream)
        self._metrics = self._out(Metric.stream)
        # C calls only: an exception of a signal handler inside would end the iterator for good.
        prefixes = chain.from_iterable(map(repeat, map(f"{writer}%06x".__mod__, count(1)), repeat(len(_HEX))))
        self.next_id = map(add, prefixes, cycle(_HEX)).__next__

    def _out(self, stream: str) -> StreamWriter:
        shared = len(self._outs) >= RecordLimits.max_streams and stream.startswith("user.")
        out = self._outs[stream] = self.files.stream("user.others" if shared else stream)
        return out

    def _opened(self) -> None:
        self.on_open()  # looked up when it happens: a joined run sets it later

    def after_fork(self) -> None:
        """Become a writer of its own in a forked child; the parent's open spans stay the parent's to end."""
        self.files.abandon()
        for span in self.open.values():
            span._start = None
        self.open, self.counts, self._announced = {}, {}, set()
        self.subscribers = Subscribers(self.path)
        self._begin(False)

    def finish(self, span: Span, start_ns: int, end_ns: int) -> None:
        """Write a span that ended."""
        try:
            key, name, tags, metrics, status = span.span_id, span.name, span.tags, span.metrics, span.status
            self.open.pop(key, None)
            span.duration_s = seconds = (end_ns - start_ns) / 1e9
            parent = span._parent
            out = self._spans
            event = SpanEvent(
                self._iso(start_ns),
                self.writer,
                out.number(),
                name,
                tags,
                metrics,
                status,
                seconds,
                self.trace_id,
                key,
                parent.span_id if parent is not None else None,
                get_ident(),
            )
            if status != "ok":
                event.error_type = None if span.error_type is None else redacted_name(span.error_type)
                message = span.error_message
                event.error_message = None if message is None else bounded(text_of(message), 2000)
            if type(name) is not str or name not in known_names:
                event.name = redacted_name(name)
            if not are_harmless(tags, metrics):
                self._clean(event)
            try:
                line = _encode_lines([event])
            except BaseException as error:  # noqa: BLE001 - as in `_write`, which is told of it
                pass_interruption(error)
                line = b""
            if not 0 < len(line) <= _MAX_LINE_BYTES:
                self._write(out, event)
                return
            try:
                out.put(line)
            except ValueError:
                out.overflow(line)
        except BaseException as error:  # noqa: BLE001 - nothing on the recording path reaches the user's code
            self._failed(error)

    def emit(self, event: Event) -> None:
        """Number, time and write an event; an event that was emitted before is written again as a new one."""
        try:
            stream = event.stream
            out = self._outs.get(stream) or self._out(stream)
            self._write(out, self._stamped(event, out))
            if stream == "tasks":
                self.count(kind_of(event))
        except BaseException as error:  # noqa: BLE001 - nothing on the recording path reaches the user's code
            self._failed(error)

    def emit_all(self, events: Iterable[Event]) -> None:
        """As `emit`, of many events in order: their lines are written together, at a fraction of the cost."""
        try:
            for stream, group in groupby(events, key=attrgetter("stream")):
                out = self._outs.get(stream) or self._out(stream)
                while batch := list(islice(group, RecordLimits.max_events_written_together)):
                    self._emit_batch(out, batch)
                    if stream == "tasks":
                        for event in batch:
                            self.count(kind_of(event))
        except BaseException as error:  # noqa: BLE001 - nothing on the recording path reaches the user's code
            self._failed(error)

    def metric(self, name: str, value: float, step: int | None = None) -> None:
        """Record one value of a series: in one piece, because training loops do this at full rate."""
        try:
            out = self._metrics
            here = _get()
            event = Metric(
                timestamp=self._iso(monotonic_ns()),
                writer=self.writer,
                seq=out.number(),
                name=name if type(name) is str else text_of(name),
                value=value,
                step=step,
                span_id=None if here is None else here.span_id,
            )
            if event.name not in known_names:
                event.name = redacted_name(event.name)
            if type(value) is not float or value - value != 0:  # as it is of NaN and infinities
                self._settle_value(event, value)
            try:
                line = _encode_lines([event])
            except BaseException as error:  # noqa: BLE001 - a name or a step that does not encode
                pass_interruption(error)
                line = b""
            if not 0 < len(line) <= _MAX_LINE_BYTES:
                self._write(out, event)
                return
            try:
                out.put(line)
            except ValueError:
                out.overflow(line)
        except BaseException as error:  # noqa: BLE001 - nothing on the recording path reaches the user's code
            self._failed(error)

    def _settle_value(self, event: Metric, value: Any) -> None:
        """Make what was given a number; NaN and infinities are null with a mark, and so is what is no
        number.
        """
        event.value = number = ask(float, value, otherwise=None)
        if number is None:
            self.count("metrics_not_numbers")
            self.trouble("metric", f"metric {event.name!r} was given no number: {class_name(type(value))}")
            return
        if number - number != 0:
            event.value, event.nonfinite = None, nonfinite_name(number)

    def _stamped(self, event: Event, out: StreamWriter) -> Event:
        """The event with its time, writer and number."""
        if event.seq >= 0:
            event = copy_event(event)
            event.timestamp = ""
        if not event.of_user:
            redact_event(event)
        if not event.timestamp:
            event.timestamp = self._iso(monotonic_ns())
        event.writer = self.writer
        event.seq = out.number()
        return event

    def _write(self, out: StreamWriter, event: Event) -> None:
        """Encode and write one event."""
        line = b""
        try:
            if event.of_user and type(event) not in self._defined:  # say first what it holds
                self._defined.add(type(event))
                self.emit(definition_of(type(event)))
            if not event.of_user or is_harmless(event):
                line = _encode_lines([event])
        # A lone surrogate, a huge number, a name that is no string.
        except BaseException as error:  # noqa: BLE001
            pass_interruption(error)
            line = b""
        if not 0 < len(line) <= _MAX_LINE_BYTES:
            line = self._encode_cleaned(event)
        try:
            out.put(line)
        except ValueError:
            out.overflow(line)

    def _emit_batch(self, out: StreamWriter, batch: list[Event]) -> None:
        """Events of one stream; those without a time of their own happened now."""
        now, writer, number = self._iso(monotonic_ns()), self.writer, out.number
        for i, event in enumerate(batch):
            if event.seq >= 0:
                batch[i] = self._stamped(event, out)
                continue
            if not event.of_user:
                redact_event(event)
            if not event.timestamp:
                event.timestamp = now
            event.writer = writer
            event.seq = number()
        try:
            lines = b"" if batch[0].of_user else _encode_lines(batch)
        except BaseException as error:  # noqa: BLE001 - one of them needs cleaning
            pass_interruption(error)
            lines = b""
        if not 0 < len(lines) <= _MAX_LINE_BYTES:
            for event in batch:
                self._write(out, event)
            return
        try:
            out.put(lines)
        except ValueError:
            out.overflow(lines)

    def _failed(self, error: BaseException) -> None:
        if is_interruption(error):
            self.count("events_cut_off")  # its number may have been given out, and its line not written
            raise error
        self.count("events_failed")
        self.trouble(
            f"event {class_name(type(error))}", f"an event could not be recorded: {error_text(error)}"
        )

    def describe_error(self, span: Span, kind: type[BaseException], error: BaseException | None) -> None:
        """Write an exception's class and text into a span."""
        span.status = "error"
        span.error_type = class_name(kind)
        if span.error_message is None:
            text = ask(str, error, otherwise=None)
            if text is None:
                self.count("texts_unreadable")
            span.error_message = text
        if error is not None:
            tell_out_of_memory(self, error, span)

    def announce_open(self, *, ending: bool = False) -> None:
        """Write down the spans that have been open for a while, once each, so that a hang shows where it
        hangs.

        At the end of the run, all that are open: they will not be recorded any more.
        """
        now = monotonic_ns()
        spans = [span for span in list(self.open.values()) if span.shown_open]
        if ending and spans:
            self.count("spans_open_at_close", len(spans))
        self._announced.intersection_update([s.span_id for s in spans])
        left = RecordLimits.max_announced_spans
        for span in spans:
            start = span._start
            if start is None or span.span_id in self._announced:
                continue
            if now - start < RecordLimits.announce_after_ns and not ending:
                continue
            if not left:
                break
            left -= 1
            self._announced.add(span.span_id)
            at, name, tags = self.clock.iso(start), text_of(span.name), clean(span.tags)[0]
            ids: dict[str, Any] = {"trace_id": self.trace_id, "span_id": span.span_id}
            ids["parent_id"] = span.parent_id
            self.emit(SpanOpened(timestamp=at, name=name, tags=tags, elapsed_s=(now - start) / 1e9, **ids))

    def count(self, what: str, number: int = 1) -> None:
        """Count something that is worth knowing afterwards."""
        self.counts[what] = self.counts.get(what, 0) + number

    def trouble(self, kind: str, message: str) -> None:
        """Say once for each kind what goes wrong; later ones are only counted. Never raises."""
        if kind in self._warned or len(self._warned) >= RecordLimits.max_warnings:
            return
        self._warned.add(kind)
        message = bounded(message)
        self.problems.append(message)
        try:
            log.warning("%s; the program goes on, what cannot be recorded is counted", message)
        except BaseException as error:  # noqa: BLE001 - a log handler of the user's
            pass_interruption(error)
            self.count("warnings_unheard")

    def _clean(self, span: SpanEvent) -> None:
        """Bound, redact and represent tags and metrics; learn which names and texts are harmless."""
        before = span.tags.copy() if type(span.tags) is dict else {}  # another thread may be changing them
        span.tags, marks = clean(before or span.tags)
        span.metrics, metric_marks = clean(span.metrics, keys_secret=False)
        span.nonfinite = {**marks, **metric_marks}
        learn(before, span.tags)
        for name in span.metrics:
            redacted_name(name)

    def _encode_cleaned(self, event: Event) -> bytes:
        """The line of an event that does not encode as it is, or is too long."""
        self.count("events_cleaned")
        fields = {name: getattr(event, name) for name in event.__struct_fields__}
        for limit in (20_000, 4096, 256, 16):
            cleaned, marks = clean(fields, limit=limit, keys_secret=event.of_user)
            if marks and "nonfinite" not in event.__struct_fields__:
                cleaned["nonfinite"] = marks
            line = _encode_lines([{"event": event.__struct_config__.tag, **cleaned}])
            if len(line) <= _MAX_LINE_BYTES:
                return line
        raise ValueError("the event is too large")


def measure_cost(recorder: Recorder) -> None:
    """Note what a span costs: the best of a few small batches. Takes about a millisecond."""
    probe = copy(recorder)
    nowhere: Any = _DiscardingStream()
    probe.open, probe._spans = {}, nowhere
    context = Context()
    context.run(current.set, RootSpan(probe, recorder.trace_id, "0" * 16))
    recorder.files.info.line_cost_s = min(context.run(_time_spans) for _ in range(5))


class _DiscardingStream:
    """A stream that keeps nothing."""

    def __init__(self) -> None:
        self.number = count().__next__
        self.put = len


def _time_spans(number: int = 40) -> float:
    """Seconds a span with two tags and a metric takes, the tags as most are."""
    before = monotonic_ns()
    for i in range(number):
        with Span("flightlog.probe", {"step": i, "kind": "probe"}) as span:
            span.metrics["loss"] = 0.5
    return (monotonic_ns() - before) / number / 1e9
