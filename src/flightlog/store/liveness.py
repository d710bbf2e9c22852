"""Whether a run is still running: what its documents claim, checked against the processes of this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from flightlog.core.descriptors import read_bytes
from flightlog.store.layout import RunInfo, WriterInfo
from flightlog.store.limits import StoreLimits

ProcessStarted = Callable[[int], float | None]


@cache
def this_host() -> str:
    """The name of this host, as it stands in `run.json` and `writer.json`; looked up once, because every task
    tells it.
    """
    return os.uname().nodename


def process_start(pid: int, proc: Path = Path("/proc")) -> float | None:
    """When a process started: clock ticks since boot on Linux, Unix seconds elsewhere; None if it is gone.

    With the process id it names one process for ever: a later one with the same number has another start. A
    zombie is gone: it records nothing any more.
    """
    if pid <= 0:
        return None
    if sys.platform == "linux" or proc != Path("/proc"):
        try:
            stat = read_bytes(proc / str(pid) / "stat")
            state, *fields = stat[stat.rindex(b")") + 1 :].split()  # the name before may hold anything
            return None if state in {b"Z", b"X", b"x"} else float(fields[18])
        except (OSError, ValueError, IndexError):
            return None
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
    except psutil.Error:
        return None


def is_same(started: float | None, noted: float) -> bool:
    """Whether a start is the one that was noted; ticks are whole, and seconds may be rounded."""
    return started is not None and abs(started - noted) <= 0.5


@dataclass(frozen=True)
class Observer:
    """From where and when runs are looked at: this host, this moment, these processes."""

    now: float
    host: str
    process_started: ProcessStarted = process_start

    def is_alive(self, process: RunInfo | WriterInfo) -> bool:
        """Whether the process that owns a run, or writes into one, lives.

        On this host the kernel knows. On another, and where the start of the process was not noted, its
        heartbeat decides.
        """
        since = process.start_time if isinstance(process, RunInfo) else process.started
        beat = unix_time(process.heartbeat or since)
        beating = beat is not None and self.now - beat < StoreLimits.heartbeat_timeout_s
        if process.host != self.host:
            return beating
        started = self.process_started(process.pid)
        if started is None:
            return False
        if process.pid_start is None:
            return beating or beat is None
        return is_same(started, process.pid_start)

    def status(self, info: RunInfo) -> str:
        """The status of a run as of now: a run that claims to be running, and is not, has `crashed`."""
        return info.status if info.status != "running" or self.is_alive(info) else "crashed"

    def writer_alive(self, info: WriterInfo) -> bool:
        """Whether a writer may still write, as seen from here."""
        return not info.closed and self.is_alive(info)


def here() -> Observer:
    """An observer on this host, now."""
    return Observer(now=datetime.now(UTC).timestamp(), host=this_host())


def unix_time(timestamp: str | None) -> float | None:
    """Unix seconds of an ISO 8601 timestamp, UTC where it names no zone; None if it is none."""
    if not timestamp:
        return None
    try:
        moment = datetime.fromisoformat(timestamp)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def latest(*timestamps: str | None) -> str | None:
    """The latest of the timestamps that can be read, as it was written."""
    known = [(unix, text) for text in timestamps if text and (unix := unix_time(text)) is not None]
    return max(known)[1] if known else None
