"""How a run is closed: files folded, summary computed, checksums written, in an order that a crash cannot spoil."""

from __future__ import annotations

import os
import time
from pathlib import Path

from flightlog.analyze.summary import summarize, summary_bytes
from flightlog.record.run import LiveRun
from flightlog.record.upkeep import save_run
from flightlog.settings import Settings
from flightlog.store import layout
from flightlog.store.documents import replace_bytes, write_document
from flightlog.store.integrity import write_checksums
from flightlog.store.liveness import here
from flightlog.store.run import Run
from flightlog.store.sealing import seal, sole_sealer

SUMMARY_BYTES = 16 << 20
"""A run larger than this is closed without its summary, which the first report computes: closing stays short."""


def close_run(run: LiveRun, settings: Settings, cpu_s: float, began: float) -> None:
    """Write out everything a closed run holds; `run.info` has its final status."""
    close_writer(run, cpu_s)
    files, info = run.recorder.files.info, run.info
    info.heartbeat = files.heartbeat
    info.overhead = {
        "background_cpu_s": cpu_s,
        "drain_s": files.drain_s,
        "close_s": time.perf_counter() - began,
        "lines": sum(files.lines.values()),
        "lost": sum(files.lost.values()),
        "bytes": files.bytes,
        "problems": run.recorder.problems,
    }
    save_run(run)
    complete(run.path, settings)


def close_writer(run: LiveRun, cpu_s: float) -> None:
    """Close this process's files, and note what it did."""
    recorder = run.recorder
    recorder.announce_open(ending=True)
    recorder.bus.close()
    recorder.files.close()
    recorder.closed = True
    info = recorder.files.info
    info.closed = True
    info.heartbeat = recorder.clock.now()
    info.counts = {**recorder.counts, **recorder.bus.counts()}
    info.background_cpu_s = cpu_s
    recorder.files.save()


def complete(path: Path, settings: Settings) -> None:
    """Bring a run that has ended into its final form: by its owner, and again by whoever writes longer than that."""
    with sole_sealer(path, wait_s=10.0) as alone:
        if alone:
            _complete(path, settings)


def _complete(path: Path, settings: Settings) -> None:
    observer = here()
    me = os.getpid(), observer.host
    seal(path, held=True, writers_alive=lambda w: (w.pid, w.host) != me and observer.writer_alive(w))
    closed = Run(path)
    info = closed.info
    counts = [writer.counts for writer in closed.writers()]
    info.tasks_submitted, info.tasks_completed, info.tasks_failed = (
        sum(one.get(kind, 0) for one in counts)
        for kind in ("task_submitted", "task_completed", "task_failed")
    )
    if closed.size_bytes() <= SUMMARY_BYTES:
        summary = summarize(closed)
        tasks = summary.tasks
        info.tasks_submitted, info.tasks_completed, info.tasks_failed = (
            tasks.submitted,
            tasks.completed,
            tasks.failed,
        )
        replace_bytes(path / layout.SUMMARY, summary_bytes(summary))
    if not closed.inferred:  # a disk that refused `run.json` may refuse it again, and must not get a guess
        write_document(path / layout.RUN, info)
    write_checksums(path)
    if settings.parquet:
        from flightlog.analyze.kept import keep_summary
        from flightlog.store.parquet import snapshot_run

        snapshot_run(Run(path))  # after the checksums, which tell that the lines need no second look
        keep_summary(Run(path))
