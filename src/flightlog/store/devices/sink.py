"""A folder that device-memory events are appended to: segments of bounded size, of which the oldest are
removed.

One writer at a time holds the folder's lock. Whoever takes it up again repairs what a killed writer left.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import msgspec.structs

from flightlog.core import threads
from flightlog.core.descriptors import Descriptor
from flightlog.core.errors import UsageError
from flightlog.core.locks import holder_of, try_lock
from flightlog.events.devices.event import (
    COMPLETED,
    INCOMPLETE,
    INTERRUPTED,
    RUNNING,
    SessionSummary,
    TelemetryEvent,
    TelemetryEventV3,
    TelemetryEventV4,
    summary_of_events,
)
from flightlog.events.devices.records import check_event, telemetry_event_from_record
from flightlog.store.devices.reading import (
    MANIFEST,
    ROLLUPS,
    SinkManifest,
    SinkSegment,
    TelemetryReading,
    load_telemetry_sessions,
    read_manifest,
    segment_name,
    segment_number,
    segment_paths,
)
from flightlog.store.devices.rollups import rollup_coverage_from_manifest, rollups_of_folder
from flightlog.store.documents import decode_document, is_leftover, write_document
from flightlog.store.liveness import is_same, process_start, this_host
from flightlog.store.read.files import last_newline

_FLAGS = os.O_WRONLY | os.O_APPEND
_ENDINGS = (COMPLETED, INTERRUPTED, INCOMPLETE)


class TelemetrySink:
    """Appends the events of one session to a folder; a context manager, and thread-safe.

    Every event is with the kernel when `append` returns, so that a killed process loses none; a power cut may
    lose what `flush` has not waited for. A reader finds a whole manifest and whole segments at every moment,
    perhaps with one torn line at the end.

    A segment holds at most `rollover_events` events and `rollover_bytes`; only a single event that is larger
    stands in a larger one, alone. The folder holds at most `retain_files` segments and `retain_bytes`: the
    oldest are removed before a new line would go beyond, the one being written never.

    A folder that was written before is resumed: see `resume`. One that is being written raises `UsageError`.
    The session is the one given, or the first event's. Without `rollup_window_s` no rollups are written.
    `clock` gives Unix nanoseconds.
    """

    def __init__(
        self,
        folder: str | Path,
        session: SessionSummary | None = None,
        *,
        rollover_events: int = 10_000,
        rollover_bytes: int = 64 << 20,
        retain_files: int = 8,
        retain_bytes: int = 512 << 20,
        manifest_every_s: float = 2.0,
        rollup_window_s: float | None = 60.0,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        if min(rollover_events, rollover_bytes, retain_files) < 1 or retain_bytes < rollover_bytes:
            raise UsageError(
                "a sink needs room: rollover and retention are 1 at least, and retain_bytes is "
                "not below rollover_bytes"
            )
        self.folder = Path(folder)
        self._limits = rollover_events, rollover_bytes, retain_files, retain_bytes
        self._manifest_every_s, self._window_s, self._clock = manifest_every_s, rollup_window_s, clock
        self._guard = threads.Lock()
        self._out: Descriptor | None = None
        self._pid = os.getpid()
        self._pruned_files = self._pruned_bytes = 0
        self.filled = 0
        """How many segments were written up to a limit since this sink was opened."""
        self.session: SessionSummary | None = None
        """The one being written; None before the first event where none was given, and once closed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock: FolderLock | None = FolderLock(self.folder)
        try:
            self._manifest: SinkManifest = resume(self.folder)
            numbers = [segment_number(segment.filename) for segment in self._manifest.segments]
            self._next = 1 + max(numbers, default=0)  # never one that was used and is still there
            if session is not None:
                self._begin(session)
            else:
                self._write_manifest()
        except BaseException:
            self._lock.release()
            raise

    @property
    def segments(self) -> tuple[SinkSegment, ...]:
        """What the folder holds, in order; the last one is being written unless it is closed."""
        with self._guard:
            return tuple(msgspec.structs.replace(segment) for segment in self._manifest.segments)

    @property
    def pruned(self) -> tuple[int, int]:
        """How many segments were removed to keep within bounds since this sink was opened, and their
        bytes.
        """
        return self._pruned_files, self._pruned_bytes

    def append(self, event: TelemetryEvent | Mapping[str, Any]) -> None:
        """Write one event, or the event of a record of v3, v2 or before.

        Raises ValueError for one that is invalid, of another session, or of schema v4, which is not written;
        `UsageError` once the sink is closed, and in a forked child; OSError where the disk refuses, and then
        the segment is as it was.
        """
        if isinstance(event, TelemetryEventV4):
            raise ValueError(  # noqa: TRY004
                "a sink holds events of schema v3, which has no unknown counters"
            )
        if isinstance(event, TelemetryEventV3):
            check_event(event)
        else:
            default = self.session.session_id if self.session else None
            event = telemetry_event_from_record(event, default_session_id=default)
        line = msgspec.json.encode(event) + b"\n"
        with self._guard:
            session = self._session_or(_session_of(event))
            if event.session_id != session.session_id:
                raise ValueError(f"this sink writes session {session.session_id}, not {event.session_id}")
            self._append(line)

    def append_line(self, line: bytes, session: SessionSummary) -> None:
        """Write a line as it stands, newline included, unchecked; `session` begins with it if none has begun.

        For records that need not be events. Raises as `append` does, but for what it says of invalid events.
        """
        with self._guard:
            self._session_or(session)
            self._append(line)

    def begin(self, session: SessionSummary) -> None:
        """Begin a session, if none has begun; readers see it from now on."""
        with self._guard:
            self._session_or(session)

    def flush(self) -> None:
        """Wait until the disk has every event, and bring the manifest up to date."""
        with self._guard:
            self._require_open()
            if self._out is not None:
                os.fsync(self._number())
            self._write_manifest(durable=True)

    def close(self, status: str = COMPLETED) -> None:
        """End the session with this status, and write the rollups; may be called again."""
        if status not in _ENDINGS:
            raise UsageError(f"a session ends {', '.join(_ENDINGS[:-1])} or {_ENDINGS[-1]}, not {status!r}")
        with self._guard:
            if self._lock is None or self._pid != os.getpid():
                return
            self._end_segment()
            if self.session is not None:
                self._put(msgspec.structs.replace(self.session, status=status, ended_at_ns=self._clock()))
                self.session = None
            self._write_manifest(durable=True)
            if self._window_s is not None:
                self._write_rollups(int(self._window_s * 1e9))
            self._lock.release()
            self._lock = None

    def __enter__(self) -> TelemetrySink:
        return self

    def __exit__(self, kind: object, _error: object, _trace: object) -> None:
        self.close(COMPLETED if kind is None else INTERRUPTED)

    # Everything below runs under the guard.

    def _require_open(self) -> None:
        if self._lock is None:
            raise UsageError(f"the sink of {self.folder} is closed")
        if self._pid != os.getpid():
            raise UsageError(
                f"the sink of {self.folder} belongs to process {self._pid}: open one of your own"
            )
        self._lock.hold_on()

    def _session_or(self, session: SessionSummary) -> SessionSummary:
        """The session that is being written; this one begins where none has."""
        self._require_open()
        if self.session is None:
            self._begin(session)
        assert self.session is not None
        return self.session

    def _begin(self, session: SessionSummary) -> None:
        self.session = msgspec.structs.replace(session, status=RUNNING, ended_at_ns=None)
        self._put(self.session)
        self._write_manifest()

    def _append(self, line: bytes) -> None:
        self._make_room(len(line))
        self._write(line)
        if time.monotonic() - self._manifest_written_s >= self._manifest_every_s:
            self._write_manifest()

    def _put(self, session: SessionSummary) -> None:
        others = [other for other in self._manifest.sessions if other.session_id != session.session_id]
        self._manifest.sessions = sorted(
            [*others, session], key=lambda other: (other.started_at_ns, other.session_id)
        )

    def _make_room(self, size: int) -> None:
        """See to it that a line of this size fits: into the segment, and into the folder."""
        events, most, files, total = self._limits
        segments = self._manifest.segments
        current = segments[-1] if self._out is not None else None
        full = current is not None and (
            current.event_count >= events or (current.event_count and current.size_bytes + size > most)
        )
        if full:
            self._end_segment()
        keep = 1 if self._out is not None else 0
        gone: list[SinkSegment] = []
        while len(segments) > keep and (
            len(segments) + (1 - keep) > files
            or sum(segment.size_bytes for segment in segments) + size > total
        ):
            gone.append(segments.pop(0))
        if self._out is None:
            self._begin_segment()
        elif gone:
            self._write_manifest()
        for segment in gone:  # the manifest does not name them any more
            (self.folder / segment.filename).unlink(missing_ok=True)
            self._pruned_files += 1
            self._pruned_bytes += segment.size_bytes

    def _begin_segment(self) -> None:
        assert self.session is not None
        name = segment_name(self._next)
        self._out = Descriptor.open(self.folder / name, _FLAGS | os.O_CREAT | os.O_EXCL)
        self._next += 1
        self._manifest.segments.append(SinkSegment(name, closed=False, session_id=self.session.session_id))
        self._write_manifest()

    def _end_segment(self) -> None:
        if self._out is not None:
            os.fsync(self._number())
            self._out.close()
            self._out = None
            self._manifest.segments[-1].closed = True

    def _number(self) -> int:
        """The descriptor of the segment; opened again by its path where the program has closed it."""
        assert self._out is not None
        if not self._out.still_ours():
            self._out = Descriptor.open(self.folder / self._manifest.segments[-1].filename, _FLAGS)
        return self._out.number

    def _write(self, line: bytes) -> None:
        segment = self._manifest.segments[-1]
        try:
            written = os.write(self._number(), line)
            while written < len(line):
                written += os.write(self._number(), line[written:])
        except BaseException:
            os.ftruncate(self._number(), segment.size_bytes)
            raise
        segment.event_count += 1
        segment.size_bytes += len(line)
        if segment.event_count >= self._limits[0] or segment.size_bytes >= self._limits[1]:
            self.filled += 1

    def _write_rollups(self, window_ns: int) -> None:
        coverage = rollup_coverage_from_manifest(
            self._manifest, pruned_segment_count=self._pruned_files, pruned_bytes=self._pruned_bytes
        )
        now = self._clock()
        found = rollups_of_folder(
            self.folder, self._manifest, window_ns=window_ns, generated_at_ns=now, coverage=coverage
        )
        write_document(self.folder / ROLLUPS, found)

    def _write_manifest(self, *, durable: bool = False) -> None:
        write_document(self.folder / MANIFEST, self._manifest, durable=durable)
        self._manifest_written_s = time.monotonic()


def _session_of(event: TelemetryEvent) -> SessionSummary:
    """The session that an event begins, whatever its type: the sink itself ends it."""
    summary = summary_of_events([event], source="flightlog.sink")
    return msgspec.structs.replace(summary, status=RUNNING, ended_at_ns=None)


LOCK = ".lock"


class _Holder(msgspec.Struct):
    pid: int
    host: str
    pid_start: float | None = None


class FolderLock:
    """Held from its making to `release`; raises `UsageError` while somebody else holds it, in this process or
    not.

    A forked child does not hold it, and a lock that is forgotten is let go. Where the file system has no
    locks, a writer that lives on this host holds it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._hold()

    def hold_on(self) -> None:
        """Take it again where the program has closed it; raises `UsageError` if somebody else was faster."""
        if not self._lock.still_held():
            self._hold()

    def release(self) -> None:
        """Let go; may be called again."""
        self._lock.release()
        _HELD.discard(self)

    def _hold(self) -> None:
        path = self._folder / LOCK
        lock = try_lock(path, mode=0o644)
        holder = decode_document(holder_of(path, 4096).encode(), _Holder, LOCK).value
        if lock is None or not (
            lock.enforced or holder is None or holder.host != this_host() or not _lives(holder)
        ):
            if lock is not None:
                lock.release()
            who = f"process {holder.pid} on {holder.host}" if holder else "another writer"
            raise UsageError(
                f"{self._folder} is being written by {who}: give every writer a sink folder of its own"
            )
        self._lock = lock
        lock.write(msgspec.json.encode(_Holder(os.getpid(), this_host(), process_start(os.getpid()))))
        _HELD.add(self)


def _lives(holder: _Holder) -> bool:
    started = process_start(holder.pid)
    return started is not None and (holder.pid_start is None or is_same(started, holder.pid_start))


_HELD: weakref.WeakSet[FolderLock] = weakref.WeakSet()


def _let_go_in_child() -> None:
    for lock in list(_HELD):
        lock.release()


os.register_at_fork(after_in_child=_let_go_in_child)


def resume(folder: Path) -> SinkManifest:
    """The folder's manifest, true again; for the holder of its lock.

    A segment that ends in the middle of a line is cut back to its last whole one. Segments that were open are
    closed, those that the manifest does not know are taken up, those that are gone are dropped. A session
    that was running has been interrupted, at its last event as far as anybody knows.
    """
    for leftover in [file for file in folder.iterdir() if is_leftover(file.name)]:
        leftover.unlink(missing_ok=True)
    found = read_manifest(folder)
    known = {segment.filename: segment for segment in found.segments} if found else {}
    segments = [
        _settled(path, known.get(path.name)) for path in segment_paths(folder, found) if path.is_file()
    ]
    sessions = found.sessions if found else []
    if found is None and segments:
        sessions = [loaded.summary for loaded in load_telemetry_sessions(folder)]
    return SinkManifest(
        sessions=[
            _interrupted(summary, folder) if summary.status == RUNNING else summary for summary in sessions
        ],
        segments=segments,
    )


def _settled(path: Path, known: SinkSegment | None) -> SinkSegment:
    size = path.stat().st_size
    if known is not None and known.closed and known.size_bytes == size:
        return known
    if path.suffix == ".jsonl":
        size = _cut_back(path, size)
    reading = TelemetryReading(path)
    sessions = {event.session_id for event in reading}
    named = known.session_id if known else None
    return SinkSegment(
        filename=path.name,
        event_count=reading.read,
        size_bytes=size,
        closed=True,
        session_id=named or (sessions.pop() if len(sessions) == 1 else None),
    )


def _cut_back(path: Path, size: int) -> int:
    """Cut a file behind its last newline; its size then."""
    with path.open("rb+") as file:
        newline = last_newline(file.fileno(), 0, size)
        end = 0 if newline is None else newline + 1
        if end < size:
            os.ftruncate(file.fileno(), end)
            os.fsync(file.fileno())
    return end


def _interrupted(summary: SessionSummary, folder: Path) -> SessionSummary:
    times = (
        event.timestamp_ns for event in TelemetryReading(folder) if event.session_id == summary.session_id
    )
    last = max(times, default=summary.started_at_ns)
    return msgspec.structs.replace(summary, status=INTERRUPTED, ended_at_ns=last)
