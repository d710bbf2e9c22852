"""One session's events on one device, taken one by one in the order of time; what stays of them is
bounded.
"""

from __future__ import annotations

import collections
import re
from collections import deque
from collections.abc import Mapping
from itertools import chain
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

from flightlog.analyze.devices.results import Counter, Peak
from flightlog.analyze.limits import DeviceLimits
from flightlog.events.devices import DeviceMemory
from flightlog.events.devices.event import TelemetryEventV3, marks_out_of_memory

DRIVER = "driver"
_MARKS = ("peak_allocated_bytes", "peak_reserved_bytes")


class NotInOrder(Exception):  # noqa: N818 - reads as what happened
    """An event is older than the one before it: whoever reads must sort first."""


class MemoryPoint(NamedTuple):
    """What stays of an event; `source` is where the device use came from, where the event says so."""

    time_ns: int
    allocated: int | None
    reserved: int | None
    used: int | None
    source: str | None


class Repetition(NamedTuple):
    """One time through a phase: its start, and the lowest and the last level there."""

    start_ns: int
    low: int | None
    end: int | None


class ErrorSeen(NamedTuple):
    """An `error` event."""

    time_ns: int
    phase: str | None
    span_path: list[str]
    message: str | None
    error_type: str | None
    is_oom: bool
    counters: MemoryCounters


class Phase:
    """What stays of a phase."""

    def __init__(self, first_ns: int) -> None:
        self.first_ns = first_ns
        self.events = self.duration_ns = self.repetitions = 0
        self.peaks: list[int | None] = [None, None, None]
        self.growth: int | None = None
        self.levels: Thinned[Repetition] = Thinned(DeviceLimits.max_repetitions)
        self.span: str | None = None
        """In which the repetition goes on."""
        self._start, self._low, self._end = first_ns, None, None  # type: tuple[int, int | None, int | None]

    def enter(self, time_ns: int, span: str | None) -> None:
        """The phase is entered from another; back in the same span it goes on, in any other it begins
        again.
        """
        if self.repetitions and span is not None and span == self.span:
            return
        self.leave()
        self.span, self._start, self._low, self._end = span, time_ns, None, None
        self.repetitions += 1

    def level(self, value: int | None) -> None:
        """Take the level at an event."""
        if value is not None:
            self._low = value if self._low is None or value < self._low else self._low
            self._end = value

    def leave(self) -> None:
        """The repetition has ended."""
        if self.repetitions:
            self.levels.add(Repetition(self._start, self._low, self._end))


class Track:
    """Takes the events of one session on one device; `finish` it before reading."""

    def __init__(self, first: AnyDeviceEvent) -> None:
        self.first = first
        self.start_ns = self.end_ns = first.timestamp_ns
        self.events = 0
        self.kinds: collections.Counter[str] = collections.Counter()
        """How many there are of each kind but those of plain samples."""
        self.offset_ns: int | None = None
        self.uuid: str | None = None
        self.limit: int | None = None
        """What the framework's pool may hold, where it keeps to a limit of its own."""
        self.capacity: int | None = None
        self.unseen = list(COUNTERS)
        """Counters that no event knew so far."""
        self.peaks: list[Peak | None] = [None, None, None]
        self.at_peak: MemoryCounters | None = None
        """The counters of the event at which most was reserved."""
        self.unused: tuple[int, int, int] | None = None
        """The most that was reserved and not allocated: how much, of how much, when."""
        self.tight, self.tight_first_ns = 0, None  # type: tuple[int, int | None]
        self.phases: dict[str | None, Phase] = {}
        self.phases_left_out: set[str | None] = set()
        self.level_of: Counter | None = None
        self.beyond_allocator = False
        """Whether the device's use was ever more than the allocator holds, where its source is unknown."""
        self.last = MemoryCounters(None, None, None, None, None, None)
        self.points: Thinned[MemoryPoint] = Thinned(DeviceLimits.max_points)
        self.recent: deque[MemoryPoint] = deque(maxlen=DeviceLimits.max_recent_points)
        self.heights = Heights(DeviceLimits.max_curve_points)
        self.seen_errors: list[ErrorSeen] = []
        self._phase: Phase | None = None
        self._name: str | None = None
        self._marks: dict[str, int] = {}

    @property
    def stopped(self) -> bool:
        """Whether the session was ended by its collector."""
        return "stop" in self.kinds

    def add(self, event: AnyDeviceEvent) -> None:
        """Take the next event; raises `NotInOrder`."""
        now, metadata = event.timestamp_ns, event.metadata or {}
        if now < self.end_ns:
            raise NotInOrder
        counters = known(event)
        self._enter(phase_of(event.context), text_in(metadata, "span_id"), now)
        self.end_ns = now
        self.events += 1
        allocated_to, reserved_to = (self._since_last(mark, metadata) for mark in _MARKS)
        self._measure(counters, allocated_to, reserved_to, now=now)
        source = text_in(metadata, "device_used_source")
        if source is None and counters.used is not None:
            held = max(counters.allocated or 0, counters.reserved or 0)
            self.beyond_allocator = self.beyond_allocator or (
                counters.used > held and counters.reserved is not None
            )
        point = MemoryPoint(now, counters.allocated, counters.reserved, counters.used, source)
        self.points.add(point)
        self.recent.append(point)
        self.heights.add(now, (counters.allocated, counters.reserved, counters.used))
        if metadata:
            offset = whole_in(metadata, "clock_offset_ns")
            self.offset_ns = self.offset_ns if offset is None else offset
            self.uuid = self.uuid or text_in(metadata, "device_uuid", "gpu_uuid")
            limit = whole_in(metadata, "limit_bytes")
            self.limit = self.limit if limit is None else limit
        if event.event_type not in {"sample", "allocation", "deallocation"}:
            self._note(event, counters)
        if None in counters:
            counters = MemoryCounters(
                *(new if new is not None else old for new, old in zip(counters, self.last, strict=True))
            )
        self.last = counters

    def before(self, time_ns: int, window_ns: float) -> list[MemoryPoint]:
        """The kept points of the last `window_ns` nanoseconds before a moment, by time."""
        first = self.recent[0].time_ns if self.recent else time_ns
        older = (point for point in self.points.rows if point.time_ns < first)
        return [
            point for point in chain(older, self.recent) if time_ns - window_ns <= point.time_ns <= time_ns
        ]

    def finish(self) -> None:
        """No more events will come."""
        for phase in self.phases.values():
            phase.leave()

    def _enter(self, name: str | None, span: str | None, now: int) -> None:
        """Give the time since the last event to its phase, and go to the phase of this one."""
        phase = self._phase
        if phase is not None:
            phase.duration_ns += now - self.end_ns
            if name == self._name and span == phase.span:
                return
        found = self.phases.get(name)
        if found is None:
            if len(self.phases) >= DeviceLimits.max_phases and name is not None:
                if len(self.phases_left_out) < 100 * DeviceLimits.max_phases:
                    self.phases_left_out.add(name)
                self._phase, self._name = None, name
                return
            found = self.phases[name] = Phase(now)
        found.enter(now, span)
        self._phase, self._name = found, name

    def _since_last(self, mark: str, metadata: Mapping[str, Any]) -> int | None:
        """A framework's own high-water mark where it rose since the event before; one from before says
        nothing.
        """
        now = whole_in(metadata, mark) if mark in metadata else None
        if now is None:
            return None
        before, self._marks[mark] = self._marks.get(mark), now
        return now if before is not None and now > before else None

    def _measure(
        self, counters: MemoryCounters, allocated_to: int | None, reserved_to: int | None, *, now: int
    ) -> None:
        """Take the counters, and what the framework says of the time since the event before."""
        allocated, reserved, _, used, _, total = counters
        if reserved is not None and (self.at_peak is None or reserved > (self.at_peak.reserved or 0)):
            self.at_peak = counters
        if self.unseen:
            self.unseen = [name for name in self.unseen if counters[COUNTERS.index(name)] is None]
        if total is not None and (self.capacity is None or total > self.capacity):
            self.capacity = total
        phase = self._phase
        highest = (_higher(allocated, allocated_to), _higher(reserved, reserved_to), used)
        for n, value in enumerate(highest):
            if value is None:
                continue
            peak = self.peaks[n]
            if peak is None or value > peak.bytes:
                after = (now - self.start_ns) / 1e9
                self.peaks[n] = Peak(bytes=value, at_ns=now, after_s=after, phase=self._name)
            if phase is not None:
                before = phase.peaks[n]
                if before is None or value > before:
                    phase.peaks[n] = value
        if self.level_of is None:
            self.level_of = (
                "allocated" if allocated is not None else "device_used" if used is not None else None
            )
        if phase is not None:
            phase.events += 1
            phase.level(allocated if self.level_of == "allocated" else used)
            if allocated is not None and self.last.allocated is not None:
                phase.growth = (phase.growth or 0) + allocated - self.last.allocated
        if reserved and allocated is not None:
            unused = reserved - allocated
            if self.unused is None or unused > self.unused[0]:
                self.unused = (unused, reserved, now)
            if (
                total is not None
                and reserved >= DeviceLimits.min_reserved_share * total
                and unused >= DeviceLimits.min_unused_share * reserved
            ):
                self.tight += 1
                self.tight_first_ns = now if self.tight_first_ns is None else self.tight_first_ns

    def _note(self, event: AnyDeviceEvent, counters: MemoryCounters) -> None:
        self.kinds[event.event_type] += 1
        if event.event_type == "error" and len(self.seen_errors) < DeviceLimits.max_errors:
            said = text_in(event.metadata, "message", "error", "error_message", "exception", "oom_reason")
            kind = text_in(event.metadata, "error_type", "type")
            oom = event.metadata.get("oom")
            if not isinstance(oom, bool):
                oom = marks_out_of_memory(event) or is_oom(said, kind, event.context)
            phase, path = phase_of(event.context), path_in(event.metadata)
            self.seen_errors.append(ErrorSeen(event.timestamp_ns, phase, path, said, kind, oom, counters))


def _higher(counted: int | None, mark: int | None) -> int | None:
    return counted if mark is None or counted is None or counted > mark else mark


def is_oom(*texts: str | None) -> bool:
    """Whether any of these says that memory ran out, in the words of the frameworks."""
    said = " ".join(text for text in texts if text).lower()
    signs = ("out of memory", "outofmemory", "resource_exhausted", "oom when allocating", "resourceexhausted")
    return any(sign in said for sign in signs)


AnyDeviceEvent = DeviceMemory | TelemetryEventV3

COUNTERS = (
    *("allocator_allocated", "allocator_reserved", "allocator_inactive"),
    *("device_used", "device_free", "device_total"),
)
"""The counters in the order of `MemoryCounters`."""

_COUNTED = attrgetter(*(f"{name}_bytes" for name in COUNTERS))
_NUMBERED = re.compile(r"(?<=[ =#:])\d+$|(?<=\[)\d+(?=\]$)")


class MemoryCounters(NamedTuple):
    """The counters of one event, in bytes; None is unknown."""

    allocated: int | None
    reserved: int | None
    inactive: int | None
    used: int | None
    free: int | None
    total: int | None


def known(event: AnyDeviceEvent) -> MemoryCounters:
    """The event's counters, without those that its `memory_capabilities` deny.

    A device of 0 bytes is none that is known.
    """
    found = MemoryCounters(*_COUNTED(event))
    found = found if found.total else found._replace(total=None)
    able = event.metadata.get("memory_capabilities") if event.metadata else None
    if not isinstance(able, Mapping):
        return found
    pairs = zip(COUNTERS, found, strict=True)
    return MemoryCounters(*(None if _is_denied(able, name) else value for name, value in pairs))


def _is_denied(able: Mapping[str, Any], name: str) -> bool:
    short = name.removeprefix("allocator_")
    return able.get(f"supports_{name}", able.get(f"supports_{short}")) is False


def phase_of(context: str | None) -> str | None:
    """The phase that a context names: `step 7` and `step 8` are one, `step #`; so are `sim[3]` and `epoch=2`.

    `layer3` stays what it is: a number that belongs to a name is part of it.
    """
    if context is None or not (context := context.strip()):
        return None
    return _NUMBERED.sub("#", context) if context[-1:].isdigit() or context[-1] == "]" else context


def text_in(metadata: Mapping[str, Any], *names: str) -> str | None:
    """The first of these that is a text and says anything."""
    values = (metadata.get(name) for name in names)
    return next((value for value in values if isinstance(value, str) and value.strip()), None)


def whole_in(metadata: Mapping[str, Any], name: str) -> int | None:
    """What is called so, if it is a whole number."""
    value = metadata.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def path_in(metadata: Mapping[str, Any]) -> list[str]:
    """The open spans, the outermost first, as `span_path` or `spans` has them; none where it does not say."""
    path = metadata.get("span_path") or metadata.get("spans")
    if isinstance(path, str):
        return [part for part in re.split(r"\s*[/>]\s*", path) if part]
    if not isinstance(path, list):
        return []
    names = (text_in(part, "name", "span") if isinstance(part, Mapping) else part for part in path)
    return [name for name in names if isinstance(name, str)]


Row = TypeVar("Row")


class Thinned(Generic[Row]):
    """The rows of a series with the numbers 0, `stride`, 2 `stride`, …: all of them up to `most`, then ever
    fewer.
    """

    def __init__(self, most: int) -> None:
        self.rows: list[Row] = []
        self.stride, self.count = 1, 0
        self._most = most

    def add(self, row: Row) -> None:
        """Take the next row."""
        if self.count % self.stride == 0:
            if len(self.rows) == self._most:
                self.rows = self.rows[::2]
                self.stride *= 2
            if self.count % self.stride == 0:
                self.rows.append(row)
        self.count += 1


class Heights:
    """The highest values of groups of as many rows each, with the time of each group's first row.

    Groups are of one row up to `most` of them, then of 2, 4, …; at least half of `most` stay.
    """

    def __init__(self, most: int) -> None:
        self.groups: list[tuple[int, list[int | None]]] = []
        self.size = 1
        self._most, self._in_last = most, 0

    def add(self, time: int, values: tuple[int | None, ...]) -> None:
        """Take the next row."""
        if self.groups and self._in_last < self.size:
            _highest_of(self.groups[-1][1], values)
            self._in_last += 1
            return
        if len(self.groups) == self._most:
            pairs = zip(self.groups[::2], self.groups[1::2], strict=True)
            self.groups = [(at, _highest_of(left, right)) for (at, left), (_, right) in pairs]
            self.size *= 2
        self.groups.append((time, list(values)))
        self._in_last = 1


def _highest_of(
    into: list[int | None], values: tuple[int | None, ...] | list[int | None]
) -> list[int | None]:
    for n, value in enumerate(values):
        have = into[n]
        if value is not None and (have is None or value > have):
            into[n] = value
    return into
