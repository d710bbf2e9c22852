"""Slurm's accounting merged into a run: while it is recorded, or long after it has ended.

A run that is over is written to as by any late process: a writer of its own adds its lines, and `complete`
folds them, computes the summary anew and renews the checksums.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from flightlog.analyze.completing import complete
from flightlog.core.errors import FlightlogError
from flightlog.core.settings import read_settings
from flightlog.engines.slurm.accounting import Sacct, SlurmJob, ask
from flightlog.engines.slurm.events import Known, accounting_events, iso, read_known
from flightlog.events import Event, JobAccounted, kind_of
from flightlog.record.array_run import ENDED
from flightlog.record.closing import close_writer
from flightlog.record.recorder import Recorder
from flightlog.record.run import LiveRun
from flightlog.store import layout
from flightlog.store.documents import write_document
from flightlog.store.liveness import latest, this_host, unix_time
from flightlog.store.run import Run
from flightlog.store.write.finalize import sole_sealer

ACCOUNTING = "accounting"
"""The target of a run that was made from accounting alone."""


class Merged(Struct, frozen=True, kw_only=True):
    """What a run was told of the jobs it was asked about."""

    run_id: str
    path: str
    made: bool = False
    """Whether the run is new."""
    states: dict[str, int] = {}
    """How the jobs ended whose accounting was added, with counts."""
    already: int = 0
    """Attempts whose accounting the run had."""
    waiting: tuple[str, ...] = ()
    """Jobs that have not ended; nothing was added of them."""
    missing: tuple[str, ...] = ()
    """Jobs that accounting does not know."""
    events: dict[str, int] = {}
    """Events that were added, by kind."""


def merge_accounting(
    run_path: Path,
    job_ids: Sequence[str],
    *,
    emit: Callable[[Event], None] | None = None,
    sacct: Sacct | None = None,
    patience_s: float = 0.0,
) -> Merged:
    """Ask Slurm for its accounting of these jobs, and merge it into a run; again, it changes nothing.

    `emit` is the recorder of a run that this process records; without it the run may be any that is on the
    disk. `patience_s` waits so long for jobs to end. Raises `FlightlogError` where Slurm cannot be asked or
    the run not be written.
    """
    jobs = ask(list(dict.fromkeys(job_ids)), sacct=sacct, patience_s=patience_s)
    told = {name for job in jobs for name in (job.raw_id, job.job_id, job.array_id)}
    missing = tuple(job_id for job_id in dict.fromkeys(job_ids) if job_id not in told)
    return merge_jobs(run_path, jobs, emit=emit, missing=missing)


def merge_jobs(
    run_path: Path,
    jobs: Sequence[SlurmJob],
    *,
    emit: Callable[[Event], None] | None = None,
    missing: tuple[str, ...] = (),
    made: bool = False,
) -> Merged:
    """As `merge_accounting`, of jobs whose accounting is there."""
    if emit is not None:
        told = _told(Run(run_path), jobs)
        for event in told.events:
            emit(event)
    else:
        with sole_sealer(run_path, wait_s=10.0):  # two that adopt at once would both add the same
            told = _told(Run(run_path), jobs)
            if told.events:
                append(run_path, Run(run_path).info, told.events)
        _conclude(run_path, events_added=bool(told.events))
    return Merged(
        run_id=Run(run_path).run_id,
        path=str(run_path),
        made=made,
        states=dict(Counter(event.state for event in told.events if isinstance(event, JobAccounted))),
        already=told.already,
        waiting=told.waiting,
        missing=missing,
        events=dict(Counter(map(kind_of, told.events))),
    )


class _Told(Struct, frozen=True):
    """What accounting adds to a run."""

    events: list[Event]
    already: int
    waiting: tuple[str, ...]


def _told(run: Run, jobs: Sequence[SlurmJob]) -> _Told:
    known = read_known(run)
    events: list[Event] = []
    waiting: list[str] = []
    already = 0
    for attempts in _by_job(jobs):
        over = [job for job in attempts if job.is_over and job.end is not None]
        waiting += [job.job_id for job in attempts if job not in over]
        already += sum((job.raw_id, iso(job.start)) in known.accounted for job in over)
        if over:
            as_tasks = run.info.manifest_hash is None
            events += accounting_events(known, over, as_tasks=as_tasks)
    return _Told(events, already, tuple(dict.fromkeys(waiting)))


def _by_job(jobs: Sequence[SlurmJob]) -> list[list[SlurmJob]]:
    """All attempts of each job, the first first."""
    found: dict[str, list[SlurmJob]] = {}
    for job in jobs:
        found.setdefault(job.raw_id, []).append(job)
    return [sorted(of, key=lambda job: job.start or job.submit or 0.0) for of in found.values()]


def append(path: Path, info: layout.RunInfo, events: Sequence[Event]) -> None:
    """Write events into a run as a process of its own; a `FlightlogError` where not all of them could be
    written.
    """
    recorder = Recorder(path, this_host(), info.trace_id, owner=False)
    recorder.emit_all(events)
    close_writer(LiveRun(path, info, recorder), 0.0)
    # A sign of life of the jobs, and not of this process: by these it is told when a run ended.
    recorder.files.info.heartbeat = latest(*(event.timestamp for event in events)) or ""
    recorder.files.save()
    lost = sum(recorder.files.tally().lost.values()) + recorder.counts.get("events_failed", 0)
    if lost:
        why = "; ".join(recorder.problems) or "no reason is known"
        raise FlightlogError(f"{lost:,} of {len(events):,} events could not be written to {path}: {why}")


def _conclude(path: Path, *, events_added: bool) -> None:
    """End a run whose processes are gone, once accounting knows of every job in it; bring one that is over in
    order.
    """
    run = Run(path)
    info = run.info
    own = info.target == ACCOUNTING
    if not run.inferred and (own or run.status == "crashed") and info.status != "crashed":
        ending = _ending(run, read_known(run))
        if ending is not None and (not own or ending != (info.status, info.error, info.end_time)):
            info.status, info.error, ended = ending
            # Slurm counts whole seconds: the run's own last sign of life may be later.
            info.end_time = ended if own else latest(ended, run.ending().end_time)
            start, end = unix_time(info.start_time), unix_time(info.end_time)
            info.duration_s = None if start is None or end is None else max(0.0, end - start)
            write_document(path / layout.RUN, info)
            shutil.rmtree(
                path / ENDED, ignore_errors=True
            )  # what elements of an array had noted is told in full now
            events_added = True
    if events_added and info.status in layout.ENDED:
        complete(path, read_settings())


def _ending(run: Run, known: Known) -> tuple[str, str | None, str | None] | None:
    """Status, error and end of a run all of whose jobs are accounted for; None where some are not, or tasks
    are open.
    """
    last: dict[str, JobAccounted] = {}
    for event in run.events("jobs"):
        if isinstance(event, JobAccounted):
            key = event.raw_job_id or event.job_id
            if key not in last or (last[key].started or "") <= (event.started or ""):
                last[key] = event
    seen = {job.raw_job_id or job.job_id for job in known.jobs}
    elements = sum(job.array_job_id == known.array_id for job in last.values())
    short = known.array_id is not None and elements < (known.array_size() or elements + 1)
    if not last or not seen <= last.keys() or short or known.open_tasks:
        return None
    ended = max((job.ended for job in last.values() if job.ended), default=None)
    failed = [job for job in last.values() if job.state not in {"COMPLETED", "CANCELLED"}]
    cancelled = [job for job in last.values() if job.state == "CANCELLED"]
    if not failed and not cancelled:
        return "completed", None, ended
    first = min(failed or cancelled, key=lambda job: (job.ended or "", job.job_id))
    more = f", and {len(failed or cancelled) - 1} more jobs" if len(failed or cancelled) > 1 else ""
    return "failed" if failed else "interrupted", f"{first.reason or first.state}{more}", ended
