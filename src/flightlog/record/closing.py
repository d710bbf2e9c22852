"""How a run is closed: files folded, summary computed, checksums written, in an order that a crash cannot spoil."""

from __future__ import annotations

import time

from flightlog.analyze.summary import summarize, summary_bytes
from flightlog.record.run import LiveRun
from flightlog.record.upkeep import save_run
from flightlog.settings import Settings
from flightlog.store import layout
from flightlog.store.documents import replace_bytes
from flightlog.store.integrity import write_checksums
from flightlog.store.liveness import here
from flightlog.store.run import Run
from flightlog.store.sealing import seal

SUMMARY_BYTES = 16 << 20
"""A run larger than this is closed without its summary, which the first report computes: closing stays short."""


def close_run(run: LiveRun, settings: Settings, cpu_s: float, began: float) -> None:
    """Write out everything a closed run holds; `run.info` has its final status."""
    recorder = run.recorder
    files = recorder.files
    files.close()
    recorder.closed = True
    files.info.closed = True
    files.info.heartbeat = recorder.clock.now()
    files.info.counts = {**recorder.counts, **recorder.bus.counts()}
    files.info.background_cpu_s = cpu_s
    files.save()
    info = run.info
    info.heartbeat = files.info.heartbeat
    save_run(run)
    observer = here()
    seal(run.path, writers_alive=lambda w: w.writer != recorder.writer and observer.writer_alive(w))
    closed = Run(run.path)
    if closed.size_bytes() <= SUMMARY_BYTES:
        summary = summarize(closed)
        info.tasks_submitted = summary.tasks.submitted
        info.tasks_completed = summary.tasks.completed
        info.tasks_failed = summary.tasks.failed
        replace_bytes(run.path / layout.SUMMARY, summary_bytes(summary))
    if settings.parquet:
        from flightlog.store.parquet import write_snapshot

        write_snapshot(
            {name: [layout.stream_file(run.path, name)] for name in closed.streams()},
            run.path / layout.PARQUET,
        )
    info.overhead = {
        "background_cpu_s": cpu_s,
        "drain_s": files.info.drain_s,
        "close_s": time.perf_counter() - began,
        "lines": sum(files.info.lines.values()),
        "lost": sum(files.info.lost.values()),
        "bytes": files.info.bytes,
        "problems": recorder.problems,
    }
    save_run(run)
    write_checksums(run.path)
