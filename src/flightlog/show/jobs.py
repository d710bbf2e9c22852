"""The batch jobs of a run, as a section of its report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flightlog.show.document import Remarks, Section, Table
from flightlog.show.phrases import count_text
from flightlog.show.terminal import clean
from flightlog.units import format_bytes, format_count, format_duration

if TYPE_CHECKING:
    from flightlog.analyze.jobs import JobRow, JobSummary

ROWS = 5
HEAD = ("Job", "State", "Queued", "Elapsed", "Limit", "CPU time", "CPUs", "Peak RSS", "Memory")


def jobs_section(jobs: JobSummary | None, *, running: bool = False) -> Section:
    """How the jobs ended and what they used; of a run that is over, what to do where nobody has asked for
    that yet.
    """
    if jobs is None:
        return Section("Jobs")
    name = "Slurm" if jobs.scheduler == "slurm" else clean(jobs.scheduler)
    note = count_text(jobs.count, f"{name} job")
    if jobs.states:
        note += ": " + ", ".join(f"{format_count(n)} {clean(state)}" for state, n in jobs.states.items())
    if jobs.queue_s.max:
        note += f"; {format_duration(jobs.queue_s.max)} in the queue at most"
    rows = [_row(job) for job in jobs.jobs[:ROWS]]
    left = sum(jobs.states.values()) - len(rows)
    body: list[Table | Remarks] = []
    if rows:
        more = f"and {count_text(left, 'more job')}: flightlog sql 'FROM jobs'" if left else ""
        body.append(Table(HEAD, rows, left=("State",), more=more))
    if jobs.unaccounted and not running:
        shown = ",".join(map(clean, jobs.unaccounted[:ROWS])) + (",…" if len(jobs.unaccounted) > ROWS else "")
        body.append(
            Remarks([f"what Slurm's accounting knows is not here yet: flightlog adopt --slurm {shown}"])
        )
    return Section("Jobs", note, body)


def _row(job: JobRow) -> tuple[str, ...]:
    again = f" (attempt {job.attempt})" if job.attempt > 1 else ""
    return (
        f"{job.job_id}{again}",
        job.state,
        _time(job.queue_s),
        _time(job.elapsed_s),
        _time(job.walltime_s),
        _time(job.cpu_s),
        "" if job.cpus is None else format_count(job.cpus),
        "" if job.max_rss_bytes is None else format_bytes(job.max_rss_bytes),
        "" if job.memory_bytes is None else format_bytes(job.memory_bytes),
    )


def _time(seconds: float | None) -> str:
    return "" if seconds is None else format_duration(seconds)
