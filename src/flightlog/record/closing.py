"""The short end of a run: what must be done before the block ends, and who does the rest.

Beside busy threads each system call may hand the interpreter over to every one of them, at 5 ms each, and
each millisecond of Python takes as many times longer as there are threads. So the end of a run does little:
it brings the last lines into their files and writes `run.json` with the final status. Folding, figures and
checksums come later, see `store/completing.py`.
"""

from __future__ import annotations

import os
import threading
import time
from importlib import import_module
from pathlib import Path

import msgspec

from flightlog.core.descriptors import folder_names
from flightlog.core.settings import Settings
from flightlog.record.background import note_tasks, save_run, save_writer
from flightlog.record.background_imports import loading
from flightlog.record.followers import start_beside
from flightlog.record.limits import RecordLimits
from flightlog.record.run import LiveRun
from flightlog.store import layout

TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - nothing is made there
"""Folders whose content is often removed by the program that made it, while a process beside would still
write there."""

NEEDED = ("subprocess", "flightlog.store.run", "flightlog.store.completing")
"""What completing a small run takes: imported one by one, since a fork waits for an import and so does the
pulse."""


def is_alone() -> bool:
    """Whether no thread of the program's competes with this one for the interpreter; our own threads do not
    count.
    """
    here = threading.current_thread()
    return all(one is here or one.name.startswith("flightlog-") for one in threading.enumerate())


def prepare(module: str) -> None:
    """Import a module in the background, so that the end of a run imports nothing."""
    with loading():
        import_module(module)


def close_run(run: LiveRun, cpu_s: float, began: float) -> None:
    """Close this process's files and write `run.json` with the final status that `run.info` has."""
    close_writer(run, cpu_s)
    files, info = run.recorder.files.info, run.info
    info.heartbeat = files.heartbeat
    info.to_complete = True
    info.overhead = {
        "background_cpu_s": cpu_s,
        "drain_s": files.drain_s,
        "close_s": time.perf_counter() - began,
        "lines": sum(files.lines.values()),
        "lost": sum(files.lost.values()),
        "bytes": files.bytes,
        "problems": run.recorder.problems,
    }
    note_tasks(run)
    info.lines_lost = sum(files.lost.values()) or msgspec.UNSET
    save_run(run)


def close_writer(run: LiveRun, cpu_s: float) -> None:
    """Close this process's files, and note what it did."""
    recorder = run.recorder
    recorder.announce_open(ending=True)
    recorder.open.clear()  # a task that a signal handler cut off would hold its meter for ever
    recorder.subscribers.close()
    recorder.files.close()
    recorder.closed = True
    recorder.files.info.closed = True
    save_writer(run, cpu_s)


def leave_completing(run: LiveRun, settings: Settings) -> None:
    """Complete a run that has ended, have a process beside do it, or leave it to the first reader.

    At once where `FLIGHTLOG_COMPLETE` says so; by default where the run is small, only this process has
    written, and no other thread of the program's runs. Parquet copies, where they are asked for, are always
    left to others: they need DuckDB, which is not loaded here. No process is started for runs in temporary
    folders, unless followers, which are to copy the completed run, write there anyway. Raises OSError.
    """
    mode, tables = settings.complete, settings.parquet
    if mode == "now" or (mode == "auto" and not tables and is_alone() and _is_small(run)):
        from flightlog.store.completing import complete

        complete(run.path, settings)
        beside = tables
    else:
        beside = mode == "auto"
    if beside and (settings.remote is not None or settings.otlp or not _is_temporary(run.path)):
        start_beside(run.path)


def _is_small(run: LiveRun) -> bool:
    files = run.recorder.files
    small = (files.info.bytes or 0) <= RecordLimits.max_bytes_completed_at_end
    return small and folder_names(run.path / layout.SEGMENTS) == [files.info.writer]


def _is_temporary(path: Path) -> bool:
    folders = (*TEMPORARY, *filter(None, map(os.environ.get, ("TMPDIR", "TEMP", "TMP"))))
    return any(path.is_relative_to(folder) for folder in folders)
