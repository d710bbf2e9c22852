"""Bring a run that has ended into its final form: segments folded, headline numbers counted, checksums
written.

The end of a run does not wait for this, because it takes long beside busy threads and for large runs.
`run.json` says `to_complete` until it is done: by a process that the end of the run starts, or else by the
first reader. Cut off at any point, it may be done again. Until then readers take the lines from where they
stand, and get the same figures.

The recorded program may do this itself, so it loads neither DuckDB nor the analysis. Parquet copies, where
the run asks for them, are written by the process beside it or by the first reader.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from flightlog.core.settings import Settings, read_settings
from flightlog.store import layout
from flightlog.store.documents import document_bytes, replace_bytes
from flightlog.store.headline import headline_bytes, headline_of
from flightlog.store.integrity import write_checksums
from flightlog.store.limits import StoreLimits
from flightlog.store.liveness import Observer, here
from flightlog.store.readable import Readable
from flightlog.store.run import Run, find_run, open_found
from flightlog.store.runs_folder import Note, is_copy, warn
from flightlog.store.write.finalize import Step, finalizing, is_to_complete, order_tasks, seal


def open_run(
    ref: Readable | str | os.PathLike[str] = "latest",
    *,
    runs_dir: str | os.PathLike[str] | None = None,
    observer: Observer | None = None,
    note: Note = warn,
) -> Run:
    """Open a run: `latest` or `last`, a run id, a unique prefix of one or of its eight hex digits, the id of
    a job, a path or an address; or what is recorded, or was opened, already.

    `latest` is the run that started last, and the id of a job that of the newest run with the tag `job_id`.
    `run-` may stand before the digits. Ids are looked up in `runs_dir`, by default the configured one; an
    address such as `s3://bucket/runs` is read through a local cache, and `note` is told in a sentence where
    that is not up to date; by default a warning. A run of this user's that has ended and is not complete yet
    is completed first. Raises `RunNotFound`, `AmbiguousRun`, `DamagedRun` where nothing of the run can be
    read, and `RemoteError` where a remote cannot be reached and nothing of it is here.
    """
    if isinstance(ref, Readable):
        return ref.opened()
    path = find_run(ref, runs_dir=runs_dir, observer=observer, note=note)
    complete_ended(path)
    return open_found(path, observer=observer, note=note)


def complete_ended(path: Path, *, wait_s: float = StoreLimits.completion_wait_s) -> bool:
    """Complete a run that has ended, where that is still to be done and this user may; whether it was done.
    Raises no error.

    Only for the user that the run belongs to: the files of others are theirs to change. Where another process
    is completing the run, it waits for that, for `wait_s` at most. Parquet copies are written where the run,
    or the environment, asks for them.
    """
    try:
        if not _is_ours(path) or not is_to_complete(path):
            return False
        with finalizing(path, wait_s=wait_s) as alone:
            if not alone or not is_to_complete(path):  # somebody has done it meanwhile
                return False
            _complete(path, read_settings(), closed_here=False, may_snapshot=True)
            return True
    except Exception:  # noqa: BLE001 - full or read-only disk, missing folder, damage
        return False  # readers take the lines as they are


def complete(
    path: Path, settings: Settings, *, snapshot: bool = False, step: Step = lambda _done: None
) -> None:
    """Complete a run that this process writes into no more, whatever `run.json` says of it; nothing where
    another process is doing so for long. Raises OSError.

    `snapshot` says that this process may write the Parquet copies that were asked for, which loads DuckDB;
    otherwise the run stays `to_complete` for one that may. `step` is called with what was just done, for
    tests.
    """
    with finalizing(path, wait_s=StoreLimits.completion_wait_s) as alone:
        if alone:
            _complete(path, settings, closed_here=True, may_snapshot=snapshot, step=step)


def _complete(
    path: Path, settings: Settings, *, closed_here: bool, may_snapshot: bool, step: Step = lambda _done: None
) -> None:
    observer = here()
    me = (os.getpid(), observer.host) if closed_here else None
    seal(path, step=step, writers_alive=lambda w: (w.pid, w.host) != me and observer.writer_alive(w))
    order_tasks(path)
    step("put the tasks in order")
    closed = Run(path)
    info = closed.info
    snapshot = settings.parquet or info.to_snapshot is True
    left = snapshot and not may_snapshot
    info.tasks_submitted, info.tasks_completed, info.tasks_failed = closed.counted_tasks()
    lost = sum(sum(writer.lost.values()) for writer in closed.writers())
    if closed.size_bytes() <= StoreLimits.max_completed_summary_bytes:
        headline = headline_of(closed)
        tasks = headline.tasks
        counts = (tasks.submitted, tasks.completed, tasks.failed)
        info.tasks_submitted, info.tasks_completed, info.tasks_failed = (count or 0 for count in counts)
        lost = headline.lines_lost
        replace_bytes(path / layout.SUMMARY, headline_bytes(headline))
        step("wrote the summary")
    if closed.inferred:  # a disk that refused `run.json` may refuse it again, and must not get a guess
        write_checksums(path)
    else:
        info.to_complete = info.to_snapshot = True if left else msgspec.UNSET
        info.lines_lost = lost or msgspec.UNSET
        final = document_bytes(info)
        write_checksums(path, {layout.RUN: final})
        step("wrote the checksums")
        replace_bytes(path / layout.RUN, final, durable=True)  # last: only now it is complete
    step("wrote run.json")
    if snapshot and not left:
        from flightlog.store.tables.parquet import snapshot_run

        snapshot_run(Run(path))  # after the checksums, which tell that the lines need no second look


def _is_ours(path: Path) -> bool:
    return not is_copy(path) and os.access(path, os.W_OK) and path.stat().st_uid == os.geteuid()
