"""Asks a Slurm for its accounting: `sacct`, and nothing else of Slurm's."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence

from flightlog.core.errors import FlightlogError, UsageError
from flightlog.engines.slurm.accounting import SlurmJob, parse_accounting, signal_name
from flightlog.store.liveness import unix_time

TIMEOUT_S = 60.0
_JOB = re.compile(r"[0-9]{1,18}(_[0-9]{1,9})?")
_POLL_S = 0.5
WHOLE_S = 10.0
"""How long the parts of an account that has its end already may take: Slurm sends some of them every 5 s."""
_FRESH_S = 60.0
"""What is missing so long after the end of a job will not come any more."""

Sacct = Callable[[Sequence[str]], bytes]
"""Runs `sacct` with these words and gives its output; raises a `FlightlogError` that says why it could
not."""


def ask(
    job_ids: Sequence[str],
    *,
    sacct: Sacct | None = None,
    patience_s: float = 0.0,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.time,
) -> list[SlurmJob]:
    """What accounting knows of these jobs, every attempt of them and every element of an array, in its order.

    Accounting learns of an end a moment after it: with `patience_s` it is asked again until all jobs have
    ended, or so much time has passed. Of jobs that have ended within the last minute by `clock`, parts of the
    account may be on their way: for those it is asked again up to 10 s, whatever the patience, and then given
    without. Jobs that it does not know are missing from the answer. A `UsageError` for what is no job id, a
    `FlightlogError` where there is no Slurm, or none with accounting.
    """
    for job_id in job_ids:
        if not _JOB.fullmatch(job_id):
            raise UsageError(f"{job_id!r} is no Slurm job id; they look like 1234, or 1234_7 in an array")
    if not job_ids:
        return []
    run = sacct or run_sacct
    waited = 0.0
    while True:
        jobs = _asked_once(run, job_ids)
        coming = any(_is_coming(job, clock()) for job in jobs)
        over = bool(jobs) and _all_over(jobs, job_ids)
        if (over and not coming) or waited >= max(patience_s, WHOLE_S if coming else 0.0):
            return jobs
        sleep(_POLL_S)
        waited += _POLL_S


def _all_over(jobs: Sequence[SlurmJob], job_ids: Sequence[str]) -> bool:
    last = {job.job_id: job for job in jobs}
    told = {name for job in jobs for name in (job.raw_id, job.job_id, job.array_id)}
    return told >= set(job_ids) and all(job.is_over and job.end is not None for job in last.values())


def _is_coming(job: SlurmJob, now: float) -> bool:
    fresh = job.end is not None and now - job.end < _FRESH_S
    return job.is_over and fresh and not job.is_whole


def _asked_once(run: Sacct, job_ids: Sequence[str]) -> list[SlurmJob]:
    which = ["--duplicates", "--jobs", ",".join(job_ids)]
    jobs, _ = parse_accounting(run(["--json", *which]), "the answer of sacct")
    if not jobs:
        return []
    fields = ["--allocations", "--noheader", "--parsable2", "--format", "JobIDRaw,Start,ExitCode,State"]
    return with_exit_codes(jobs, run([*fields, *which]).decode("utf-8", "replace"))


def with_exit_codes(jobs: Sequence[SlurmJob], table: str) -> list[SlurmJob]:
    """The jobs with the exit codes of `sacct --format=JobIDRaw,Start,ExitCode,State`, times in UTC.

    The JSON of some versions has 0 for every exit code. Lines that cannot be read say nothing.
    """
    import msgspec

    codes: dict[tuple[str, float | None], tuple[int, int]] = {}
    for line in table.splitlines():
        cells = line.split("|")
        found = re.fullmatch(r"([0-9]{1,9}):([0-9]{1,9})", cells[2]) if len(cells) >= 3 else None
        if found is not None:
            codes[cells[0], unix_time(cells[1])] = int(found[1]), int(found[2])
    told: list[SlurmJob] = []
    for job in jobs:
        code, number = codes.get((job.raw_id, job.start), (0, 0))
        if job.exit_code is None and code:
            job = msgspec.structs.replace(job, exit_code=code)  # noqa: PLW2901 - the same job, better known
        elif job.signal is None and number and job.exit_code is None:
            job = msgspec.structs.replace(job, signal=signal_name(number))  # noqa: PLW2901 - as above
        told.append(job)
    return told


def run_sacct(words: Sequence[str]) -> bytes:
    """The output of the `sacct` that is on the PATH, with times in UTC."""
    import subprocess

    plain = {name: value for name, value in os.environ.items() if not name.startswith("SACCT_")}
    plain.pop("SLURM_TIME_FORMAT", None)  # some versions cannot read what they wrote with it themselves
    try:
        done = subprocess.run(
            ["sacct", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
            env={**plain, "TZ": "UTC", "LC_ALL": "C"},
        )
    except FileNotFoundError:
        raise FlightlogError(
            "there is no `sacct` here. Ask where Slurm is, `sacct --json --duplicates --jobs JOBID > jobs.json`, "
            "and adopt the file: flightlog adopt --slurm-file jobs.json"
        ) from None
    except subprocess.TimeoutExpired:
        raise FlightlogError(f"sacct gave no answer within {TIMEOUT_S:g} s; try again later") from None
    except OSError as error:
        raise FlightlogError(f"sacct cannot be run: {error.strerror or error}") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.returncode}"
        raise FlightlogError(f"sacct could not answer: {said.splitlines()[0][:300]}")
    return done.stdout
