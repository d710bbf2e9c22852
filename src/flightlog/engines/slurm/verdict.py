"""How a Slurm job ended, in plain words: from its state, its exit code, its signal and its memory."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from flightlog.core.units import format_bytes, format_duration
from flightlog.engines.slurm.accounting import SlurmJob

NEAR = 0.9
"""A job that was seen with this share of the memory it may use may have been ended for it."""
KILLED_CODES = frozenset({9, 128 + 9})
"""Exit codes behind which SIGKILL may stand; a program may also end with one of its own accord."""


class Verdict(Struct, frozen=True):
    """What became of one attempt of a job."""

    end: Literal["completed", "failed", "cancelled"]
    error_type: str | None
    """Slurm's word for what it did to the job; `ExitCode` or a signal's name for what the job did itself."""
    message: str
    by_slurm: bool
    """Whether the end came from outside: the program in the job cannot know why."""


def verdict(job: SlurmJob) -> Verdict:
    """The verdict on an attempt that is over."""
    name, state = f"Slurm job {job.job_id}", job.state
    if state == "COMPLETED":
        return Verdict("completed", None, f"{name} completed", False)
    if state == "CANCELLED":
        who = f" by {job.killed_by}" if job.killed_by else ""
        when = "" if job.start is not None else " before it started"
        return Verdict("cancelled", state, f"{name} was cancelled{who}{when}", True)
    if state == "OUT_OF_MEMORY" or _outgrew(job):
        return Verdict("failed", "OUT_OF_MEMORY", f"{name} was ended for its memory: {_memory(job)}", True)
    if state == "TIMEOUT":
        limit = f" of {format_duration(job.walltime_s)}" if job.walltime_s is not None else ""
        return Verdict("failed", state, f"{name} was ended at its time limit{limit}", True)
    if state in {"PREEMPTED", "REQUEUED"}:
        what = (
            "was ended for a job of higher priority"
            if state == "PREEMPTED"
            else "was put back into the queue"
        )
        return Verdict("failed", state, f"{name} {what}", True)
    if state in {"NODE_FAIL", "BOOT_FAIL"}:
        where = (
            f" among {job.nodes}" if job.nodes and any(c in job.nodes for c in "[,") else f" ({job.nodes})"
        )
        return Verdict("failed", state, f"{name} lost a node{where if job.nodes else ''}", True)
    if state == "FAILED" and job.exit_code is not None:
        message = f"{name} ended with exit code {job.exit_code}{_hint(job)}"
        return Verdict("failed", "ExitCode", message, False)
    if state == "FAILED":
        how = f"was ended by {job.signal}" if job.signal else "failed; its exit code is not in the accounting"
        return Verdict("failed", job.signal or state, f"{name} {how}{_hint(job)}", False)
    return Verdict("failed", state, f"{name} was ended by Slurm: {state}", True)


def _outgrew(job: SlurmJob) -> bool:
    """Killed, and seen with more memory than the whole job may use: what plugins without cgroups do says no
    more.
    """
    return _was_killed(job) and (job.max_rss_bytes or 0) > (job.memory_bytes or 1 << 62)


def _hint(job: SlurmJob) -> str:
    """That one that was killed had been near its limit, which may be why: nobody says so, and others kill as
    well.
    """
    near = (job.max_rss_bytes or 0) >= NEAR * (job.memory_bytes or 1 << 62)
    return f"; {_memory(job)}, which may be why" if near and _was_killed(job) else ""


def _was_killed(job: SlurmJob) -> bool:
    """By SIGKILL, in any of the forms that Slurm writes it: a signal, a shell's exit code, or the number for
    the code.
    """
    return job.state == "FAILED" and (job.signal == "SIGKILL" or job.exit_code in KILLED_CODES)


def _memory(job: SlurmJob) -> str:
    if job.max_rss_bytes is None:
        return f"it may use {format_bytes(job.memory_bytes)}" if job.memory_bytes else "how much is not known"
    limit = f" and may use {format_bytes(job.memory_bytes)}" if job.memory_bytes else ""
    return f"it was seen with {format_bytes(job.max_rss_bytes)}{limit}"
