"""Slurm's accounting: merged into the runs that were recorded inside the jobs, or made into a run of its
own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from flightlog.adopt.run_maker import Adopter, RunMaker, SourceRecording
from flightlog.adopt.source_files import head
from flightlog.core.errors import FlightlogError, RunNotFound, UsageError
from flightlog.core.redaction import redact_text
from flightlog.engines.slurm.accounting import Sacct, SlurmJob, ask, parse_accounting
from flightlog.engines.slurm.events import ACCOUNTING, Merged, iso, merge_jobs
from flightlog.events import JobEvent
from flightlog.store import layout
from flightlog.store.catalogue import run_paths
from flightlog.store.documents import write_document
from flightlog.store.read.files import find_parts
from flightlog.store.run import Run
from flightlog.version import __version__

SLURM = "slurm"


class SlurmAccounting(Adopter):
    """Accounting saved with `sacct --json`, which is merged into runs rather than made into one."""

    name = SLURM
    title = "Slurm accounting saved with sacct --json"

    def recognize(self, path: Path) -> str | None:
        """By the list of jobs and fields that only Slurm has; its name may come at the very end."""
        start = head(path)
        marks = (b'"slurm', b'"het_job', b'"derived_exit_code"')
        if start.lstrip()[:1] == b"{" and b'"jobs"' in start and any(mark in start.lower() for mark in marks):
            return "a JSON document with jobs, written by Slurm"
        return None

    def sources(self, path: Path) -> Sequence[SourceRecording]:
        """Always a `UsageError`: see `adopt_slurm_file`."""
        raise UsageError(f"{path} is {self.title}: it is merged into runs, by flightlog.adopt.slurm")

    def adopt(self, source: SourceRecording, maker: RunMaker) -> None:
        """Nothing: there are no sources."""


adopter = SlurmAccounting()

_Key = tuple[str, str]
"""`("job", "15")` or `("array", "14")`: the last element of an array has the array's own number."""


def adopt_slurm(
    job_ids: Sequence[str], runs_dir: Path, *, into: Path | None = None, sacct: Sacct | None = None
) -> list[Merged]:
    """Query the accounting of this machine's Slurm and adopt the jobs; one result per run.

    `into` names the run; without it each job goes to the runs that were recorded inside it, and jobs without
    one become a new run together. Adopting again changes nothing. Raises `FlightlogError` where Slurm cannot
    be queried, knows none of the jobs, or none has ended.
    """
    wanted = list(dict.fromkeys(job_ids))
    jobs = ask(wanted, sacct=sacct)
    known_ids = {name for job in jobs for name in (job.raw_id, job.job_id, job.array_id)}
    missing = tuple(job_id for job_id in wanted if job_id not in known_ids)
    if not jobs:
        raise RunNotFound(
            f"Slurm's accounting knows no job {', '.join(wanted)}. `sacct --jobs {','.join(wanted)}` shows "
            "what it knows; other users' jobs may be hidden from you, and old ones purged"
        )
    return _adopt(jobs, runs_dir, into, missing)


def adopt_slurm_file(file: Path, runs_dir: Path, *, into: Path | None = None) -> list[Merged]:
    """As `adopt_slurm`, from a file that `sacct --json` wrote, perhaps on another machine."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror or error}") from None
    jobs, odd = parse_accounting(data, str(file))
    if not jobs:
        what = f"{odd} entries that are no jobs" if odd else "an empty list of jobs"
        raise UsageError(f"{file} holds {what}: there is nothing to adopt")
    return _adopt(jobs, runs_dir, into, ())


def _adopt(
    jobs: Sequence[SlurmJob], runs_dir: Path, into: Path | None, missing: tuple[str, ...]
) -> list[Merged]:
    homes: dict[Path, list[SlurmJob]] = {}
    alone: list[SlurmJob] = []
    known = {} if into is not None else _runs_in_jobs(runs_dir)
    for job in jobs:
        found = [into] if into is not None else _homes(known, job)
        for path in found:
            homes.setdefault(path, []).append(job)
        if not found:
            alone.append(job)
    merged = [merge_jobs(path, of, missing=missing) for path, of in homes.items()]
    ended = [job for job in alone if job.is_over and job.end is not None]
    if ended:
        path = _make_run(runs_dir, ended)
        merged.append(merge_jobs(path, alone, missing=missing, made=True))
    elif alone and not merged:
        states = ", ".join(sorted({f"{job.job_id} is {job.state}" for job in alone})[:5])
        raise FlightlogError(f"no job has ended yet: {states}. Adopt again when one has")
    return merged


def _runs_in_jobs(runs_dir: Path) -> dict[_Key, list[tuple[Path, str | None]]]:
    """Runs with events of a job or an array, each with the name of the cluster."""
    found: dict[_Key, list[tuple[Path, str | None]]] = {}
    for path in sorted(run_paths(runs_dir)):
        if JobEvent.stream not in find_parts(path):
            continue
        for event in Run(path).events(JobEvent.stream):
            if isinstance(event, JobEvent):
                for key in (("job", event.raw_job_id or event.job_id), ("array", event.array_job_id or "")):
                    if key[1] and (path, event.cluster) not in found.setdefault(key, []):
                        found[key].append((path, event.cluster))
    return found


def _homes(known: dict[_Key, list[tuple[Path, str | None]]], job: SlurmJob) -> list[Path]:
    """The runs a job belongs to; an array element without a run goes to the one run of its array, if it is
    one.
    """

    def of(key: _Key) -> list[Path]:
        there = known.get(key, [])
        return list(
            dict.fromkeys(path for path, of in there if None in (of, job.cluster) or of == job.cluster)
        )

    others = of(("array", job.array_id or ""))
    return of(("job", job.raw_id)) or (others if len(others) == 1 else [])


def _make_run(runs_dir: Path, jobs: Sequence[SlurmJob]) -> Path:
    """A run for these jobs, without events yet; the same jobs give the same name."""
    first = min(jobs, key=lambda job: (job.submit or job.start or 0.0, int(job.raw_id)))
    started = first.submit or first.start or first.end or 0.0
    base = f"slurm\n{first.cluster or ''}\n{first.array_id or first.raw_id}\n{first.submit}"
    digest = hashlib.sha256(base.encode("utf-8", "surrogateescape")).hexdigest()
    names = {job.name for job in jobs}
    project = redact_text(first.name or "slurm") if len(names) == 1 else "slurm"
    run_id = layout.make_run_id(project, datetime.fromtimestamp(started, UTC), digest[:8])
    path = Path(runs_dir).absolute() / run_id
    info = layout.RunInfo(
        run_id=run_id,
        project=project,
        status="running",  # until all jobs are in it
        start_time=iso(started) or "",
        target=ACCOUNTING,
        provider="slurm",
        host=f"slurm:{first.cluster}" if first.cluster else "slurm",
        trace_id=digest[8:40],
        span_id=digest[40:56],
        flightlog_version=__version__,
    )
    try:
        path.mkdir(parents=True, exist_ok=True)
        write_document(path / layout.RUN, info)
    except OSError as error:
        raise FlightlogError(f"cannot write {path}: {error.strerror or error}") from None
    return path
