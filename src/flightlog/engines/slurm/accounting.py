"""Slurm's accounting: queried with `sacct --json`, read tolerantly whatever its version, and how each job
ended in plain words.

Versions differ. 21.08 and 22.05 write numbers as numbers, a state as text and a signal as `signal_id`; since
23.02 numbers may be objects (`{"set": true, "infinite": false, "number": 3}`), states lists, and step ids
texts with the job in front. 22.05 writes exit code 0 for every code: `ask` asks for those by other means.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from flightlog.core.errors import FlightlogError, UsageError
from flightlog.core.text import first_line, signal_name, words
from flightlog.core.units import format_bytes, format_duration
from flightlog.engines.limits import EngineLimits
from flightlog.store.liveness import unix_time

MB = 1 << 20
FINAL = words(
    "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED LAUNCH_FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED "
    "RECONFIG_FAIL REQUEUED REVOKED SPECIAL_EXIT TIMEOUT"
)
"""States of an attempt that is over."""
_LATEST = 253402300799
"""The last second of the year 9999: no later moment can be written."""


class SlurmStep(Struct, frozen=True, kw_only=True):
    """One step of a job: its batch script, or an `srun` inside it."""

    step_id: str
    """`batch`, `extern`, or the number of the step."""
    name: str | None = None
    state: str | None = None
    nodes: str | None = None
    start: float | None = None
    """Unix seconds, here and below."""
    end: float | None = None
    tasks: int | None = None
    cpu_s: float | None = None
    max_rss_bytes: int | None = None


class SlurmJob(Struct, frozen=True, kw_only=True):
    """One attempt of one job, or of one element of an array. None is what accounting does not say."""

    raw_id: str
    state: str
    """`UNKNOWN` where accounting says nothing that can be read."""
    cluster: str | None = None
    array_id: str | None = None
    array_index: int | None = None
    name: str | None = None
    user: str | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    nodes: str | None = None
    reason: str | None = None
    killed_by: str | None = None
    exit_code: int | None = None
    signal: str | None = None
    submit: float | None = None
    start: float | None = None
    end: float | None = None
    elapsed_s: float | None = None
    walltime_s: float | None = None
    cpus: float | None = None
    memory_bytes: int | None = None
    gpus: float | None = None
    cpu_s: float | None = None
    max_rss_bytes: int | None = None
    steps: tuple[SlurmStep, ...] = ()

    @property
    def job_id(self) -> str:
        """As Slurm writes it: `12`, or `12_3` of an array."""
        return self.raw_id if self.array_id is None else f"{self.array_id}_{self.array_index}"

    @property
    def is_over(self) -> bool:
        """Whether this attempt has ended."""
        return self.state in FINAL

    @property
    def is_whole(self) -> bool:
        """Whether accounting has all parts of an attempt that is over.

        They come one by one: the end at once, the request (partition, name, time limit) within seconds, since
        Slurm collects those, and what a step used when its last process is gone. Every job has a partition.
        """
        used = all(step.cpu_s is not None or step.max_rss_bytes is not None for step in self.steps)
        return self.end is not None and self.partition is not None and used


def parse_accounting(data: bytes, source: str) -> tuple[list[SlurmJob], int]:
    """The jobs of a `sacct --json` document in its order, and the number of entries that are no jobs.

    A `UsageError`, which names the source, for what is no such document at all.
    """
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{source} is not the JSON that `sacct --json` writes: {error}") from None
    listed = found.get("jobs") if isinstance(found, dict) else None
    if not isinstance(listed, list):
        raise UsageError(
            f"{source} holds no list `jobs`, so it is not what `sacct --json` writes. "
            "Save accounting with: sacct --json --duplicates --jobs JOBID > jobs.json"
        )
    jobs = [job for job in map(_job, listed) if job is not None]
    return jobs, len(listed) - len(jobs)


def _job(found: Any) -> SlurmJob | None:
    raw = _whole(_at(found, "job_id"))
    if raw is None or raw <= 0:
        return None
    array_id, index = _whole(_at(found, "array", "job_id")), _whole(_at(found, "array", "task_id"))
    state, by_text = _state(_at(found, "state", "current") or _at(found, "state"))
    steps = tuple(step for step in map(_step, _list(_at(found, "steps"))) if step is not None)
    allocated = _list(_at(found, "tres", "allocated")) or _list(_at(found, "tres", "requested"))
    exit_code, ended_by = _exit(_at(found, "exit_code"), state)
    start, end = _moment(_at(found, "time", "start")), _moment(_at(found, "time", "end"))
    nodes, elapsed_s = _nodes(_at(found, "nodes")), _number(_at(found, "time", "elapsed"))
    if nodes is None and not elapsed_s and state == "CANCELLED":
        start = None  # of a job that never left the queue, the end is written for the start
    minutes, memory_mb = _number(_at(found, "time", "limit")), _count(allocated, "mem")
    in_array = bool(array_id) and index is not None
    name, partition = _text(_at(found, "name")), _text(_at(found, "partition"))
    if partition is None and name == "allocation":
        name = None  # what is written for the name as long as the request of the job has not come
    return SlurmJob(
        raw_id=str(raw),
        state=state or "UNKNOWN",
        cluster=_text(_at(found, "cluster")),
        array_id=str(array_id) if in_array else None,
        array_index=index if in_array else None,
        name=name,
        user=_text(_at(found, "user")) or _text(_at(found, "association", "user")),
        partition=partition,
        account=_text(_at(found, "account")),
        qos=_text(_at(found, "qos")),
        nodes=nodes,
        reason=_reason(_at(found, "state", "reason")),
        killed_by=_text(_at(found, "kill_request_user")) or by_text,
        exit_code=exit_code,
        signal=ended_by,
        submit=_moment(_at(found, "time", "submission")),
        start=start,
        end=end,
        elapsed_s=elapsed_s if start is not None else None,
        walltime_s=minutes * 60.0 if minutes else None,
        cpus=_count(allocated, "cpu"),
        memory_bytes=None if not memory_mb else int(memory_mb) * MB,
        gpus=_count(allocated, "gres", "gpu"),
        # The job's own figure is 0 in versions that reckon it by steps alone.
        cpu_s=_most([_added(step.cpu_s for step in steps), _cpu_s(_at(found, "time", "total")) or None]),
        max_rss_bytes=max((s.max_rss_bytes for s in steps if s.max_rss_bytes is not None), default=None),
        steps=steps,
    )


def _step(found: Any) -> SlurmStep | None:
    named = _at(found, "step", "id")
    if isinstance(named, dict):  # {"job_id": 12, "step_id": "batch"}
        named = named.get("step_id")
    number = _whole(named)
    step_id = str(number) if number is not None else (_text(named) or "").rpartition(".")[2]
    if not step_id:
        return None
    usage = _at(found, "tres", "requested")
    sampled_ms = _count(_list(_at(usage, "total")), "cpu")
    rss = _count(_list(_at(usage, "max")), "mem")
    measured = _cpu_s(_at(found, "time", "total"))
    if not measured and not sampled_ms and not rss:
        measured = sampled_ms = None  # no step used nothing at all: it has not come yet
    return SlurmStep(
        step_id={"4294967291": "batch", "4294967292": "extern"}.get(step_id, step_id.lower()),
        name=_text(_at(found, "step", "name")),
        state=_state(_at(found, "state"))[0],
        nodes=_nodes(_at(found, "nodes")),
        start=_moment(_at(found, "time", "start")),
        end=_moment(_at(found, "time", "end")),
        tasks=_whole(_at(found, "tasks", "count")),
        cpu_s=_most([measured, None if sampled_ms is None else sampled_ms / 1000.0]),
        max_rss_bytes=int(rss) if rss else None,
    )


def _at(found: Any, *names: str) -> Any:
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _list(found: Any) -> list[Any]:
    return found if isinstance(found, list) else []


def _text(found: Any) -> str | None:
    if isinstance(found, str) and found and found not in {"(null)", "None assigned"}:
        return found.encode("utf-8", "backslashreplace").decode()[:500]
    return None


def _number(found: Any) -> float | None:
    """A number, bare or in an object; None where it is not set, infinite, negative, or one of Slurm's marks
    for that.
    """
    if isinstance(found, dict):
        if found.get("set") is False or found.get("infinite") is True:
            return None
        found = found.get("number")
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < 1 << 62:
        return None
    return None if int(found) in {0xFFFFFFFE, 0xFFFFFFFF} else float(found)


def _whole(found: Any) -> int | None:
    if isinstance(found, str) and found.isascii() and found.isdigit() and len(found) < 19:
        return int(found)
    number = _number(found)
    return None if number is None else int(number)


def _moment(found: Any) -> float | None:
    """Unix seconds; Slurm writes 0 for what has not happened."""
    number = _number(found)
    return number if number and number <= _LATEST else None


def _state(found: Any) -> tuple[str | None, str | None]:
    """The state, and the user that the text `CANCELLED by 0` names; flags that follow a state in a list are
    passed over.
    """
    if isinstance(found, list):
        words = [word for word in found if isinstance(word, str)]
        found = next((word for word in words if word.partition(" ")[0].upper() in FINAL), None) or next(
            iter(words), None
        )
    text = _text(found)
    if text is None:
        return None, None
    state, _, by = text.partition(" by ")
    return state.strip().upper() or None, by.strip() or None


def _exit(found: Any, state: str | None) -> tuple[int | None, str | None]:
    """Exit code and signal; a code of 0 that the state contradicts is one that this version has not
    written.
    """
    number = _whole(_at(found, "signal", "signal_id"))
    number = _whole(_at(found, "signal", "id")) if number is None else number
    ended_by = signal_name(number) if number else None
    code = _whole(_at(found, "return_code"))
    if code == 0 and state != "COMPLETED":
        code = None
    return (None, ended_by) if ended_by else (code, None)


def _reason(found: Any) -> str | None:
    text = _text(found)
    return None if text in {None, "None"} else text


def _nodes(found: Any) -> str | None:
    """`n[1-3]`, as text or in the object of a step."""
    text = _text(found) or _text(_at(found, "range"))
    if text is None and (names := [name for name in _list(_at(found, "list")) if isinstance(name, str)]):
        text = _text(",".join(names))
    return text


def _count(listed: Iterable[Any], kind: str, name: str | None = None) -> float | None:
    """The count of one trackable resource; of a named one (`gres/gpu`) without its kinds, which are counted
    in it.
    """
    found = (one for one in listed if _at(one, "type") == kind and name in {None, _at(one, "name")})
    return _number(_at(next(found, None), "count"))


def _cpu_s(found: Any) -> float | None:
    whole, part = _number(_at(found, "seconds")), _number(_at(found, "microseconds"))
    return None if whole is None and part is None else (whole or 0.0) + (part or 0.0) / 1e6


def _added(numbers: Iterable[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _most(numbers: Iterable[float | None]) -> float | None:
    return max((number for number in numbers if number is not None), default=None)


KILLED_CODES = frozenset({9, 128 + 9})
"""Exit codes behind which SIGKILL may stand; a program may also end with one of its own accord."""

_GAVE_WAY = {"PREEMPTED": "was ended for a job of higher priority", "REQUEUED": "was put back into the queue"}


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
    if state in _GAVE_WAY:
        return Verdict("failed", state, f"{name} {_GAVE_WAY[state]}", True)
    if state in {"NODE_FAIL", "BOOT_FAIL"}:
        several = any(mark in (job.nodes or "") for mark in "[,")
        where = f" among {job.nodes}" if several else f" ({job.nodes})" if job.nodes else ""
        return Verdict("failed", state, f"{name} lost a node{where}", True)
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
    near = (job.max_rss_bytes or 0) >= EngineLimits.near_memory_limit * (job.memory_bytes or 1 << 62)
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


_JOB = re.compile(r"[0-9]{1,18}(_[0-9]{1,9})?")

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
        wait_s = max(patience_s, EngineLimits.accounting_completion_s if coming else 0.0)
        if (over and not coming) or waited >= wait_s:
            return jobs
        sleep(EngineLimits.accounting_poll_interval_s)
        waited += EngineLimits.accounting_poll_interval_s


def _all_over(jobs: Sequence[SlurmJob], job_ids: Sequence[str]) -> bool:
    last = {job.job_id: job for job in jobs}
    told = {name for job in jobs for name in (job.raw_id, job.job_id, job.array_id)}
    return told >= set(job_ids) and all(job.is_over and job.end is not None for job in last.values())


def _is_coming(job: SlurmJob, now: float) -> bool:
    fresh = job.end is not None and now - job.end < EngineLimits.accounting_fresh_s
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
            timeout=EngineLimits.sacct_timeout_s,
            check=False,
            env={**plain, "TZ": "UTC", "LC_ALL": "C"},
        )
    except FileNotFoundError:
        raise FlightlogError(
            "there is no `sacct` here. Ask where Slurm is, `sacct --json --duplicates --jobs JOBID > "
            "jobs.json`, and adopt the file: flightlog adopt --slurm-file jobs.json"
        ) from None
    except subprocess.TimeoutExpired:
        within = f"{EngineLimits.sacct_timeout_s:g} s"
        raise FlightlogError(f"sacct gave no answer within {within}; try again later") from None
    except OSError as error:
        raise FlightlogError(f"sacct cannot be run: {error.strerror or error}") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.returncode}"
        raise FlightlogError(f"sacct could not answer: {first_line(said)[:300]}")
    return done.stdout
