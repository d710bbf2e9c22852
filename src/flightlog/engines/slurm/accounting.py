"""What Slurm's accounting says of jobs: `sacct --json` of any version, read with tolerance.

Versions differ. 21.08 and 22.05 write numbers as numbers, a state as text and a signal as `signal_id`; since
23.02 numbers may be objects (`{"set": true, "infinite": false, "number": 3}`), states lists, and step ids
texts with the job in front. 22.05 writes exit code 0 for every code: `ask` asks for those by other means.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.core.errors import UsageError

MB = 1 << 20
FINAL = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "LAUNCH_FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "RECONFIG_FAIL",
        "REQUEUED",
        "REVOKED",
        "SPECIAL_EXIT",
        "TIMEOUT",
    }
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


def signal_name(number: int) -> str:
    """`SIGKILL` of 9; a number without a name stays one."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


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
    for one in listed:
        if _at(one, "type") == kind and (name is None or _at(one, "name") == name):
            return _number(_at(one, "count"))
    return None


def _cpu_s(found: Any) -> float | None:
    whole, part = _number(_at(found, "seconds")), _number(_at(found, "microseconds"))
    return None if whole is None and part is None else (whole or 0.0) + (part or 0.0) / 1e6


def _added(numbers: Iterable[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _most(numbers: Iterable[float | None]) -> float | None:
    return max((number for number in numbers if number is not None), default=None)
