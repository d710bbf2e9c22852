"""The recorder of one run in one process: events in, numbered lines out, and nothing ever raised."""

from __future__ import annotations

import logging
from collections.abc import Callable
from copy import copy
from itertools import chain, count
from pathlib import Path
from threading import get_ident
from typing import Any

import msgspec

from flightlog.events import Event, SpanEvent, SpanOpened, kind_of
from flightlog.record.bus import Bus
from flightlog.record.clock import Clock, monotonic_ns
from flightlog.record.redaction import is_secret_key
from flightlog.record.span import Span
from flightlog.record.values import bounded, clean
from flightlog.store.stream import StreamWriter
from flightlog.store.writer import RunWriter, make_writer_info, new_token

log = logging.getLogger("flightlog")

MAX_LINE = 1 << 15
"""Longest line written as it is; a longer one has its values cut."""
ANNOUNCE_NS = 400_000_000
"""Spans open for longer than this are written down as open at the next beat."""

_encode_lines = msgspec.json.Encoder().encode_lines
_PLAIN: frozenset[Any] = frozenset({str, int, bool, type(None)})
_NUMBERS: frozenset[Any] = frozenset({int, float})
_MAX_KNOWN = 10_000
_SHORT = 16
_known_keys: set[str] = set()
"""Tag names seen to be no secrets; a set, because asking for all keys of a span at once is one C call."""
_known_texts: set[str] = set()
"""Longer texts seen to hold no secret: tags repeat themselves."""
_HEX = [f"{i:03x}" for i in range(4096)]


class Recorder:
    """What one process records of one run; thread-safe, and safe to use at any time, also after it closed.

    Numbers, times and writes events; keeps the register of open spans; counts what went wrong and says so once.
    A forked child calls `after_fork` and goes on as a writer of its own.
    """

    def __init__(self, path: Path, host: str, *, owner: bool, writer: str | None = None) -> None:
        self.path, self.host = path, host
        self.clock = Clock()
        self._iso = self.clock.iso
        self.bus = Bus()
        self.open: dict[str, Span] = {}
        self.counts: dict[str, int] = {}
        self.problems: list[str] = []
        self.closed = False
        self.on_open: Callable[[], None] = lambda: None
        self._announced: set[str] = set()
        self._warned: set[str] = set()
        self._begin(owner, writer or new_token())

    def _begin(self, owner: bool, writer: str) -> None:
        self.writer = writer
        info = make_writer_info(
            writer, self.host, owner=owner, started=self.clock.now(), anchor_ns=self.clock.anchor_ns
        )
        self.files = RunWriter(self.path, info, on_trouble=self.trouble, on_open=self._opened)
        self._outs: dict[str, StreamWriter] = {}
        self._spans = self._out(SpanEvent.stream)
        prefixes = map(f"{writer}%05x".__mod__, count(1))
        self.next_id = chain.from_iterable(map(lambda p: map(p.__add__, _HEX), prefixes)).__next__  # noqa: C417 - C calls only

    def _out(self, stream: str) -> StreamWriter:
        out = self._outs[stream] = self.files.stream(stream)
        return out

    def _opened(self) -> None:
        self.on_open()  # looked up when it happens: a joined run sets it later

    def after_fork(self) -> None:
        """Become a writer of its own in a forked child; the parent's open spans stay the parent's to end."""
        self.files.abandon()
        for span in self.open.values():
            span._start = msgspec.UNSET
        self.open, self.counts, self._announced = {}, {}, set()
        self.bus = Bus()
        self._begin(False, new_token())

    def finish(self, span: Span, start_ns: int, end_ns: int) -> None:
        """Write a span that ended."""
        try:
            span.duration_s = (end_ns - start_ns) / 1e9
            span.timestamp = self._iso(start_ns)
            span.thread = get_ident()
            span.writer = self.writer
            out = self._spans
            span.seq = out.number()
            if not _harmless(span.tags, span.metrics):
                self._clean(span)
            try:
                line = _encode_lines((span,))
            except Exception:  # noqa: BLE001 - a lone surrogate, a huge number, a name that is no string
                line = self._encode_cleaned(span)
            if len(line) > MAX_LINE:
                line = self._encode_cleaned(span)
            try:
                out.put(line)
            except ValueError:
                out.overflow(line)
            if self.bus.subscriptions:
                self.bus.publish(snapshot(span))
        except Exception as error:  # noqa: BLE001 - nothing on the recording path reaches the user's code
            self.count("events_failed")
            self.trouble(f"a span could not be recorded: {type(error).__name__}")

    def emit(self, event: Event) -> None:
        """Number, time and write an event; an event that was emitted before is written again as a new one."""
        try:
            if event.seq >= 0:
                event = copy(event)
                event.timestamp = ""
            stream = event.stream
            out = self._outs.get(stream) or self._out(stream)
            if not event.timestamp:
                event.timestamp = self._iso(monotonic_ns())
            event.writer = self.writer
            event.seq = out.number()
            try:
                line = _encode_lines((event,))
            except Exception:  # noqa: BLE001 - whatever the user's event holds
                line = self._encode_cleaned(event)
            if len(line) > MAX_LINE:
                line = self._encode_cleaned(event)
            try:
                out.put(line)
            except ValueError:
                out.overflow(line)
            if stream == "tasks":
                self.count(kind_of(event))
            if self.bus.subscriptions:
                self.bus.publish(event)
        except Exception as error:  # noqa: BLE001 - nothing on the recording path reaches the user's code
            self.count("events_failed")
            self.trouble(f"an event could not be recorded: {type(error).__name__}: {error}")

    def describe_error(self, span: Span, kind: type[BaseException], error: BaseException | None) -> None:
        """Write an exception's class and text into a span."""
        span.error_type = kind.__name__
        if span.error_message is None:
            try:
                span.error_message = bounded(str(error), 2000)
            except Exception:  # noqa: BLE001 - the user's __str__ may raise; the user's own exception goes on
                span.error_message = None
                self.count("texts_unreadable")

    def announce_open(self) -> None:
        """Write down the spans that have been open for a while, once each, so that a hang shows where it hangs."""
        now = monotonic_ns()
        spans = [span for span in list(self.open.values()) if span.shown_open]
        self._announced.intersection_update([s.span_id for s in spans])
        for span in spans:
            start = span._start
            if start is msgspec.UNSET or now - start < ANNOUNCE_NS or span.span_id in self._announced:
                continue
            self._announced.add(span.span_id)
            tags, _ = clean(dict(span.tags))
            self.emit(
                SpanOpened(
                    timestamp=self.clock.iso(start),
                    name=span.name,
                    tags=tags,
                    trace_id=span.trace_id,
                    span_id=span.span_id,
                    parent_id=span.parent_id,
                    elapsed_s=(now - start) / 1e9,
                )
            )

    def count(self, what: str, number: int = 1) -> None:
        """Count something that is worth knowing afterwards."""
        self.counts[what] = self.counts.get(what, 0) + number

    def trouble(self, message: str) -> None:
        """Say once what goes wrong; counts go on without a word."""
        kind = message.partition(":")[0]
        if kind in self._warned:
            return
        self._warned.add(kind)
        self.problems.append(message)
        log.warning("%s; the program goes on, what cannot be recorded is counted", message)

    def _clean(self, span: Span) -> None:
        """Bound, redact and represent tags and metrics; learn which names and texts are harmless."""
        before: dict[str, Any] = dict(span.tags)
        span.tags, marks = clean(before)
        span.metrics, metric_marks = clean(dict(span.metrics), keys_secret=False)
        span.nonfinite = {**marks, **metric_marks}
        for known in (_known_keys, _known_texts):
            if len(known) > _MAX_KNOWN:
                known.clear()
        _known_keys.update(key for key in before if isinstance(key, str) and not is_secret_key(key))
        _known_texts.update(str(v) for k, v in before.items() if v.__class__ is str and span.tags.get(k) is v)

    def _encode_cleaned(self, event: Event) -> bytes:
        """The line of an event that does not encode as it is, or is too long."""
        self.count("events_cleaned")
        fields = {name: getattr(event, name) for name in event.__struct_fields__ if not name.startswith("_")}
        cleaned: dict[str, Any] = {}
        for limit in (20_000, 4096, 256, 16):
            cleaned, marks = clean(fields, limit=limit, keys_secret=False)
            if marks and "nonfinite" not in event.__struct_fields__:
                cleaned["nonfinite"] = marks
            line = _encode_lines(({"event": event.__struct_config__.tag, **cleaned},))
            if len(line) <= MAX_LINE:
                return line
        raise ValueError("the event is too large")


def _harmless(tags: Any, metrics: Any) -> bool:
    """Whether everything in them can be written as it is: the hot path's one look at the values."""
    if not _known_keys.issuperset(tags):
        return False
    for value in tags.values():
        kind = value.__class__
        if kind is str:
            if (len(value) > _SHORT or "=" in value or ":" in value) and value not in _known_texts:
                return False
        elif kind not in _PLAIN:
            return False
    number: Any
    for number in metrics.values():  # noqa: SIM110 - a generator costs more than the loop
        if number.__class__ not in _NUMBERS or number - number != 0:  # as it is of NaN and infinities
            return False
    return True


def snapshot(span: Span) -> SpanEvent:
    """A finished span as a plain event, which nobody changes any more."""
    return SpanEvent(*[getattr(span, name) for name in SpanEvent.__struct_fields__])
