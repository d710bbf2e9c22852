"""What one process has recorded and lost so far, and how its run ended: a small mapped file that no disk can
refuse.

Its blocks are reserved when it is made, with the writer's folder, so it can be written on a full disk, and
what stands in it survives `kill -9`. It is written on slow paths alone: where a line is lost or waits in
memory, at each heartbeat, and at the end. Each number is one aligned field of eight bytes, so a kill in the
middle of an update leaves the old one or the new one.

    0     16 fields: magic, process, times, status
    128   host, 64 bytes
    192   why the run ended as it did, 192 bytes
    384   48 streams: numbers given out, lines lost, name (48 bytes)
    3456  8 reasons: lines lost, text (64 bytes)
"""

from __future__ import annotations

import signal
import struct
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

from flightlog.core import threads
from flightlog.store.layout import RunInfo, WriterInfo
from flightlog.store.liveness import unix_time
from flightlog.store.write.tail import map_reserved

SIZE = 4096
_MAGIC = int.from_bytes(b"FLPAGE01", "little")
_STATUSES = ("", "running", "completed", "failed", "interrupted", "crashed")
_KNOWN = 1 << 32
"""Added to an exit code, since 0 stands for an unknown one."""

_FIELDS = (
    "magic pid pid_start anchor_ns started_us owner beat_us closed status end_us duration_us exit_code signal"
)
_AT = {name: number for number, name in enumerate(_FIELDS.split())}
_HOST = (128, 64)
_ERROR = (192, 192)
_STREAMS, _STREAM_BYTES, _NAME_BYTES, _MOST_STREAMS = 384, 64, 48, 48
_REASONS, _REASON_BYTES, _TEXT_BYTES, _MOST_REASONS = 3456, 72, 64, 8


class Page:
    """The page of this process in one run. Safe for threads and signal handlers; raises OSError only when it
    is made.
    """

    def __init__(self, path: Path, info: WriterInfo) -> None:
        self.path = path
        self._map = map_reserved(path, SIZE)
        self._cells = memoryview(self._map).cast("q")
        self._lock = threads.RLock()
        self._streams: dict[str, int] = {}
        self._reasons: dict[str, int] = {}
        self._text(_HOST, info.host)
        self._set("pid", info.pid)
        self._set("pid_start", 0 if info.pid_start is None else _bits(info.pid_start))
        self._set("anchor_ns", info.wall_anchor_ns)
        self._set("started_us", _microseconds(info.started))
        self._set("owner", int(info.owner))
        self.beat(info.heartbeat)
        self._set("magic", _MAGIC)  # last: a page without it says nothing

    def count(self, stream: str, given: int, lost: int) -> None:
        """So many numbers of a stream were given out, and so many of its lines lost."""
        with self._lock:
            at = self._streams.get(stream)
            if at is None:
                if len(self._streams) >= _MOST_STREAMS:
                    return
                at = _STREAMS + len(self._streams) * _STREAM_BYTES
                self._text((at + 16, _NAME_BYTES), _key(stream, _NAME_BYTES))
                self._streams[stream] = at
            self._cells[at // 8] = given
            self._cells[at // 8 + 1] = lost

    def explain(self, reasons: Mapping[str, int]) -> None:
        """Why lines were lost, with counts; 0 for what makes them wait."""
        with self._lock:
            for reason, number in reasons.items():
                at = self._reasons.get(reason)
                if at is None:
                    if len(self._reasons) >= _MOST_REASONS:
                        continue
                    at = _REASONS + len(self._reasons) * _REASON_BYTES
                    self._text((at + 8, _TEXT_BYTES), _key(reason, _TEXT_BYTES))
                    self._reasons[reason] = at
                self._cells[at // 8] = number

    def beat(self, when: str, *, closed: bool = False) -> None:
        """The process lived at this time; `closed` says that it records no more."""
        self._set("beat_us", _microseconds(when))
        if closed:
            self._set("closed", 1)

    def end(self, run: RunInfo) -> None:
        """How the run ended; for its owner."""
        self._text(_ERROR, run.error or "")
        self._set("end_us", _microseconds(run.end_time or ""))
        self._set("duration_us", 0 if run.duration_s is None else round(run.duration_s * 1e6))
        self._set("exit_code", 0 if run.exit_code is None else run.exit_code + _KNOWN)
        self._set("signal", _signal_number(run.signal))
        self._set("status", _STATUSES.index(run.status) if run.status in _STATUSES else 0)

    def _set(self, field: str, value: int) -> None:
        self._cells[_AT[field]] = value

    def _text(self, place: tuple[int, int], text: str) -> None:
        start, size = place
        self._map[start : start + size] = _cut(text, size).ljust(size, b"\0")


class PageInfo(Struct, frozen=True, kw_only=True):
    """What a page says."""

    process: WriterInfo
    """The note that its process would have written of itself, without a name and any counts."""
    closed: bool
    status: str
    """How the run ended; empty while it goes on, and for a process that does not own the run."""
    end_time: str | None
    duration_s: float | None
    exit_code: int | None
    signal: str | None
    error: str | None
    streams: dict[str, tuple[int, int]]
    """Numbers given out and lines lost, by stream; long names are cut."""
    reasons: dict[str, int]
    """Lines lost, by reason; long texts are cut."""

    def writer(self, name: str) -> WriterInfo:
        """The note that the page's process would have written of itself, without any counts."""
        return replace(self.process, writer=name)


def read_page(data: bytes) -> PageInfo | None:
    """What a page says; None if it is none. The numbers may be of any size: whoever made the file is not
    trusted.
    """
    if len(data) != SIZE:
        return None
    cells = memoryview(data).cast("q")
    value = {name: cells[at] for name, at in _AT.items()}
    if value["magic"] != _MAGIC:
        return None
    status, code = value["status"], value["exit_code"]
    return PageInfo(
        process=WriterInfo(
            writer="",
            pid=value["pid"],
            pid_start=_number(value["pid_start"]) if value["pid_start"] else None,
            host=_read_text(data, _HOST),
            wall_anchor_ns=value["anchor_ns"],
            started=_timestamp(value["started_us"]) or "",
            heartbeat=_timestamp(value["beat_us"]) or "",
            owner=bool(value["owner"]),
            drain_s=None,
            background_cpu_s=None,
            bytes=None,
        ),
        closed=bool(value["closed"]),
        status=_STATUSES[status] if 0 <= status < len(_STATUSES) else "",
        end_time=_timestamp(value["end_us"]),
        duration_s=value["duration_us"] / 1e6 if value["duration_us"] > 0 else None,
        exit_code=code - _KNOWN if code else None,
        signal=_signal_name(value["signal"]),
        error=_read_text(data, _ERROR) or None,
        streams={
            name: (max(cells[at // 8], 0), max(cells[at // 8 + 1], 0))
            for at in range(_STREAMS, _STREAMS + _MOST_STREAMS * _STREAM_BYTES, _STREAM_BYTES)
            if (name := _read_text(data, (at + 16, _NAME_BYTES)))
        },
        reasons={
            text: max(cells[at // 8], 0)
            for at in range(_REASONS, _REASONS + _MOST_REASONS * _REASON_BYTES, _REASON_BYTES)
            if (text := _read_text(data, (at + 8, _TEXT_BYTES)))
        },
    )


def named_streams(page: PageInfo, known: Iterable[str]) -> dict[str, tuple[int, int]]:
    """The streams by their full names, where these are known."""
    full = {_key(name, _NAME_BYTES): name for name in known}
    return {full.get(name, name): counts for name, counts in page.streams.items()}


def named_reasons(page: PageInfo, known: Iterable[str]) -> dict[str, int]:
    """The reasons in full, where they are known."""
    full = {_key(text, _TEXT_BYTES): text for text in known}
    return {full.get(text, text): number for text, number in page.reasons.items()}


def _key(text: str, size: int) -> str:
    """A text that fits, and is no other's; it is kept as it is where it can be."""
    data = text.encode(errors="replace")
    if len(data) <= size:
        return data.decode()
    return f"{_cut(text, size - 9).decode(errors='ignore')}~{crc32(data):08x}"


def _cut(text: str, size: int) -> bytes:
    data = text.encode(errors="replace")[:size]
    return data.decode(errors="ignore").encode().replace(b"\0", b" ")


def _read_text(data: bytes, place: tuple[int, int]) -> str:
    start, size = place
    return data[start : start + size].split(b"\0", 1)[0].decode(errors="replace")


def _bits(number: float) -> int:
    return int(struct.unpack("q", struct.pack("d", number))[0])


def _number(bits: int) -> float:
    return float(struct.unpack("d", struct.pack("q", bits))[0])


def _microseconds(timestamp: str) -> int:
    seconds = unix_time(timestamp)
    return 0 if seconds is None else round(seconds * 1e6)


def _timestamp(microseconds: int) -> str | None:
    if microseconds <= 0:
        return None
    try:
        return f"{datetime.fromtimestamp(microseconds / 1e6, UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    except (ValueError, OverflowError, OSError):
        return None


def _signal_number(name: str | None) -> int:
    try:
        return 0 if name is None else int(signal.Signals[name])
    except KeyError:
        return 0


def _signal_name(number: int) -> str | None:
    try:
        return signal.Signals(number).name if number > 0 else None
    except ValueError:
        return None
