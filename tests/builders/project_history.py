"""Histories built in code, for tests of what learns from the past."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from builders.runs import at, make_run

from flightlog.analyze.history.attempts import PastAttempt, Requested
from flightlog.events import Event, ResourceRequest, TaskCompleted, TaskFailed

GB = 10**9
KILLED = "its process was killed by SIGKILL by the kernel's OOM killer: oom_kill of its cgroup rose"


def completed(number: int, task: str = "sim", *, gb: float = 2.0, **fields: Any) -> TaskCompleted:
    """A task that took 10 s, one CPU and so much memory, measured over its process tree."""
    given: dict[str, Any] = {
        "timestamp": at(10 + number),
        "task": task,
        "task_id": f"{task}-{number}",
        "component": "model",
        "args": {},
        "worker": "w1",
        "duration_s": 10.0,
        "cpu_s": 10.0,
        "cpu_scope": "tree",
        "peak_rss_bytes": round(gb * GB),
        "rss_scope": "tree",
    }
    return TaskCompleted(**(given | fields))


def killed(number: int, task: str = "sim", **fields: Any) -> TaskFailed:
    """A task whose worker the kernel killed for its memory; nobody saw how much it had."""
    given: dict[str, Any] = {
        "timestamp": at(10 + number),
        "task": task,
        "task_id": f"{task}-{number}",
        "component": "model",
        "args": {},
        "worker": "w1",
        "duration_s": 5.0,
        "error_type": "WorkerLost",
        "error_message": KILLED,
    }
    return TaskFailed(**(given | fields))


def request(cpus: float | None = 4, memory_bytes: int | None = 16 * GB, **fields: Any) -> ResourceRequest:
    """What the component `model` asks for."""
    given: dict[str, Any] = {"task": None, "component": "model", "cpus": cpus, "memory_bytes": memory_bytes}
    return ResourceRequest(**(given | fields))


def write_run(runs: Path, number: int, events: Iterable[Event], **info: Any) -> Path:
    """A closed run, started so many days into May 2026."""
    start = f"2026-05-{1 + number:02d}T03:52:00.000000Z"
    return make_run(runs, list(events), token=f"{number:08x}", **({"start_time": start} | info))


def run_id(number: int, project: str = "demo") -> str:
    """The id of the run that `write_run` writes."""
    return f"run-20260520T035200Z-{project}-{number:08x}"


def attempt(number: int = 0, **fields: Any) -> PastAttempt:
    """An attempt of `sim` that completed, in memory alone."""
    given: dict[str, Any] = {
        "run_id": "r0",
        "name": "sim",
        "task_id": f"t{number}",
        "attempt": 1,
        "component": "model",
        "host": None,
        "worker": "w1",
        "args": {},
        "state": "completed",
        "ended": number + 10.0,
        "duration_s": 10.0,
        "cpu_s": 10.0,
        "cpu_scope": "tree",
        "peak_rss_bytes": 2 * GB,
        "rss_scope": "tree",
        "gpu_peak_bytes": None,
        "gpu_memory_scope": None,
        "memory_killed": False,
        "gpu_memory_killed": False,
        "timed_out": False,
        "requested": Requested(cpus=4.0, memory_bytes=16 * GB),
        "node_memory_bytes": None,
        "node_cpu_percent": None,
        "saved_s": None,
        "timeout_s": None,
    }
    return PastAttempt(**(given | fields))
