"""Histories with known truth: run directories of made-up workloads, and what every attempt of them really
needed.

    python -m bench.truth FOLDER            every workload below, 20 runs of 60 tasks each, a folder each

What a task needs is a median, a function of its arguments, times noise whose logarithm is normal. So the
truth is known in closed form at any quantile, and attempts that were killed at their limit have a need that
only this module knows.
"""

from __future__ import annotations

import heapq
import math
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import NormalDist
from typing import Any

import msgspec

from flightlog.events import (
    Event,
    Failure,
    ResourceRequest,
    TaskCompleted,
    TaskFailed,
    TaskStarted,
    TaskSubmitted,
    WorkerLaunched,
    WorkerLost,
    WorkerReady,
    WorkerRemoved,
)
from flightlog.session.client import digest
from flightlog.store import layout

MB, GB = 10**6, 10**9
Args = dict[str, Any]
KILLED = "its process was killed by SIGKILL by the kernel's OOM killer: oom_kill of its cgroup rose"
_FIRST = datetime(2026, 5, 1, 6, 0, tzinfo=UTC)
_NORMAL = NormalDist()


@dataclass(frozen=True)
class Kind:
    """Tasks of one name: how their arguments are drawn, and the medians of what they need."""

    task: str
    args: Callable[[random.Random], Args]
    duration: Callable[[Args], float]
    """Seconds, the median, on a host of speed 1."""
    memory: Callable[[Args], float]
    """Bytes, the median."""
    duration_noise: float = 0.1
    memory_noise: float = 0.03
    """Standard deviations of the logarithms."""
    weight: float = 1.0
    cpus: float = 1.0
    """CPUs kept busy."""
    component: str = "sim"

    def duration_at(self, args: Args, q: float, factor: float = 1.0) -> float:
        """The true quantile of the duration, in seconds."""
        return self.duration(args) * factor * math.exp(self.duration_noise * _NORMAL.inv_cdf(q))

    def memory_at(self, args: Args, q: float, factor: float = 1.0) -> float:
        """The true quantile of the peak memory, in bytes."""
        return self.memory(args) * factor * math.exp(self.memory_noise * _NORMAL.inv_cdf(q))


@dataclass(frozen=True)
class Workload:
    """Kinds of tasks, the hosts that they run on, and what is asked for."""

    name: str
    kinds: tuple[Kind, ...]
    hosts: Mapping[str, float] = field(default_factory=lambda: {"node-1": 1.0})
    """Seconds on each are those of speed 1 over this."""
    workers: int = 8
    cpus: float = 4.0
    memory_limit: int | None = 16 * GB
    """What a worker asks for: an attempt that needs more is killed there. None: nothing is asked for."""
    drift: float = 0.0
    """By how much needs grow from the first run to the last: 0.5 is by half. That of `write_history` is
    added."""
    failures: float = 0.0
    """Share of attempts that raise on their way. That of `write_history` is added."""

    def kind(self, task: str) -> Kind:
        """The kind of this name."""
        return next(kind for kind in self.kinds if kind.task == task)


@dataclass(frozen=True)
class TrueAttempt:
    """One attempt: what it needed, and what was recorded of it."""

    run: int
    """Number of the run, from 0."""
    run_id: str
    task_id: str
    task: str
    args: Args
    host: str
    state: str
    """`completed`, `failed` (it raised) or `killed` (at its memory limit)."""
    factor: float
    """What drift made of its needs."""
    speed: float
    duration_s: float
    """What it needed, or would have needed."""
    memory_bytes: int
    """The same; for one that was killed more than anybody saw."""


def write_history(
    folder: Path,
    workload: Workload,
    *,
    runs: int = 20,
    tasks: int = 60,
    seed: int = 1,
    drift: float = 0.0,
    failures: float = 0.0,
    first_run: int = 0,
    of_runs: int | None = None,
) -> list[TrueAttempt]:
    """Write closed runs of a workload, a day after another, and give the truth of every attempt in order of
    its end.

    The same arguments give the same bytes. `first_run` and `of_runs` continue a history: with `first_run=20,
    of_runs=40` come runs 20 and on of 40, over which the drift is spread. Recorded peaks are exact, with
    scope `tree`.
    """
    total = of_runs or first_run + runs
    found: list[TrueAttempt] = []
    for number in range(first_run, first_run + runs):
        dice = random.Random(f"{workload.name} {seed} {number}")
        grown = 1.0 + (workload.drift + drift) * number / max(1, total - 1)
        found += _Run(folder, workload, number, dice, grown, workload.failures + failures).write(tasks)
    return found


class _Run:
    """One run while it is made up: its tasks in the order of a queue, on workers that are busy in turn."""

    def __init__(
        self,
        folder: Path,
        workload: Workload,
        number: int,
        dice: random.Random,
        factor: float,
        failures: float,
    ) -> None:
        self._workload, self._number, self._dice = workload, number, dice
        self._factor, self._failures = factor, failures
        self._start = _FIRST + timedelta(days=number)
        self.run_id = layout.make_run_id(workload.name, self._start, f"{dice.getrandbits(32):08x}")
        self._path = folder / self.run_id
        self._events: list[tuple[float, Event]] = []
        self._truth: list[tuple[float, TrueAttempt]] = []
        hosts = list(workload.hosts)
        self._hosts = {f"worker-{n}": hosts[n % len(hosts)] for n in range(workload.workers)}

    def write(self, tasks: int) -> list[TrueAttempt]:
        load = self._workload
        asked: dict[str, Any] = {"cpus": load.cpus, "memory_bytes": load.memory_limit}
        for component in sorted({kind.component for kind in load.kinds}):
            self._add(0.0, ResourceRequest(task=None, component=component, **asked))
        for worker, host in self._hosts.items():
            self._add(0.0, WorkerLaunched(worker=worker, host=host, pid=1, **asked))
            self._add(0.2, WorkerReady(worker=worker, host=host, pid=1, launch_s=0.2))
        kinds = self._dice.choices(load.kinds, [kind.weight for kind in load.kinds], k=tasks)
        free = [(0.2, worker) for worker in self._hosts]
        for n, kind in enumerate(kinds):
            began, worker = heapq.heappop(free)
            heapq.heappush(free, (self._task(n, kind, began, worker), worker))
        end = max(when for when, _ in free)
        for worker, host in self._hosts.items():
            self._add(
                end, WorkerRemoved(worker=worker, host=host, pid=1, reason="closed", uptime_s=end - 0.2)
            )
        self._write_files(end + 0.1, tasks)
        return [attempt for _, attempt in sorted(self._truth, key=lambda pair: pair[0])]

    def _task(self, n: int, kind: Kind, began: float, worker: str) -> float:
        """Make up one task; gives when its worker is free again."""
        dice, limit = self._dice, self._workload.memory_limit
        args = kind.args(dice)
        host = self._hosts[worker]
        speed = self._workload.hosts[host]
        needs_s = kind.duration(args) * self._factor * dice.lognormvariate(0.0, kind.duration_noise) / speed
        needs_bytes = round(kind.memory(args) * self._factor * dice.lognormvariate(0.0, kind.memory_noise))
        state, took_s, peak = "completed", needs_s, needs_bytes
        if dice.random() < self._failures:
            share = dice.random()
            state, took_s, peak = "failed", needs_s * share, round(needs_bytes * (0.3 + 0.7 * share))
        if limit is not None and peak > limit:
            state, took_s = "killed", took_s * limit / peak
        task_id = f"t{n:05d}"
        life: dict[str, Any] = {"task": kind.task, "task_id": task_id, "component": kind.component}
        call: dict[str, Any] = {**life, "args": args, "args_digest": digest(args)}
        self._add(0.1, TaskSubmitted(**call))
        self._add(began, TaskStarted(**life, worker=worker, queue_s=began - 0.1))
        ended = began + took_s
        if state == "killed":
            self._kill(ended, call, worker, took_s)
            free = ended + 0.5
        else:
            free = ended + 0.002
            used: dict[str, Any] = {
                "worker": worker,
                "duration_s": took_s,
                "queue_s": began - 0.1,
                "cpu_s": took_s * kind.cpus,
                "cpu_scope": "tree",
                "peak_rss_bytes": peak,
                "rss_scope": "tree",
            }
            if state == "completed":
                self._add(ended, TaskCompleted(**call, **used))
            else:
                text = f"the solver did not converge for {args}"
                error: dict[str, Any] = {"error_type": "ValueError", "fingerprint": "f00dfeed"}
                self._add(ended, TaskFailed(**call, **used, **error, error_message=text))
                self._fail(ended, life, worker, **error, message=text)
        self._truth.append(
            (
                ended,
                TrueAttempt(
                    self._number,
                    self.run_id,
                    task_id,
                    kind.task,
                    args,
                    host,
                    state,
                    self._factor,
                    speed,
                    needs_s,
                    needs_bytes,
                ),
            )
        )
        return free

    def _kill(self, ended: float, call: dict[str, Any], worker: str, took_s: float) -> None:
        """What a session records of an attempt whose worker the kernel killed: no peak, since nobody saw
        it."""
        host = self._hosts[worker]
        life = {key: call[key] for key in ("task", "task_id", "component")}
        error: dict[str, Any] = {"error_type": "WorkerLost", "fingerprint": "0dd0dead"}
        self._add(ended, TaskFailed(**call, worker=worker, duration_s=took_s, error_message=KILLED, **error))
        self._fail(ended, life, worker, **error, message=KILLED, signal="SIGKILL")
        self._add(ended, WorkerLost(worker=worker, host=host, pid=1, reason=KILLED, signal="SIGKILL"))
        self._add(ended + 0.5, WorkerReady(worker=worker, host=host, pid=2, launch_s=0.4))

    def _fail(self, when: float, life: dict[str, Any], worker: str, **error: Any) -> None:
        who = {key: life[key] for key in ("task", "task_id")}
        self._add(when, Failure(scope="task", traceback=None, attempt=1, worker=worker, **who, **error))

    def _add(self, when: float, event: Event) -> None:
        event.timestamp = self._at(when)
        self._events.append((when, event))

    def _at(self, when: float) -> str:
        return f"{self._start + timedelta(seconds=when):%Y-%m-%dT%H:%M:%S.%fZ}"

    def _write_files(self, end: float, tasks: int) -> None:
        self._path.mkdir(parents=True)
        streams: dict[str, list[Event]] = {}
        for _, event in sorted(self._events, key=lambda pair: pair[0]):
            lines = streams.setdefault(type(event).stream, [])
            event.writer, event.seq = "w0000001", len(lines)
            lines.append(event)
        encode = msgspec.json.Encoder().encode
        for stream, events in streams.items():
            text = b"".join(encode(event) + b"\n" for event in events)
            layout.stream_file(self._path, stream).write_bytes(text)
        completed = sum(attempt.state == "completed" for _, attempt in self._truth)
        info = layout.RunInfo(
            run_id=self.run_id,
            project=self._workload.name,
            status="completed",
            start_time=self._at(0.0),
            end_time=self._at(end),
            duration_s=end,
            target="cluster",
            provider="local",
            tasks_submitted=tasks,
            tasks_completed=completed,
            tasks_failed=tasks - completed,
            host=next(iter(self._workload.hosts)),
            pid=1,
            writer="w0000001",
        )
        (self._path / layout.RUN).write_bytes(encode(info))
        wrote = layout.WriterInfo(
            writer="w0000001",
            pid=1,
            host=info.host,
            closed=True,
            owner=True,
            lines={stream: len(events) for stream, events in streams.items()},
        )
        (self._path / layout.RECORDER).write_bytes(encode({"writers": [wrote]}))


def _sizes(dice: random.Random) -> Args:
    return {"n": dice.choice((100, 200, 400, 800, 1600)), "seed": dice.randrange(10**6)}


def _any_size(dice: random.Random) -> Args:
    return {"n": round(math.exp(dice.uniform(math.log(100), math.log(5000)))), "seed": dice.randrange(10**6)}


def _with_method(dice: random.Random) -> Args:
    return {"method": dice.choice(("rk4", "euler")), "steps": dice.randrange(1000, 20_000), "tol": 1e-6}


GROWING = Workload(
    "growing",
    (Kind("simulate", _any_size, lambda a: 0.5 + 0.004 * a["n"], lambda a: 150 * MB + 1.6 * MB * a["n"]),),
)
"""Memory and duration grow with `n`."""
NOISY = Workload(
    "noisy",
    (Kind("sample", _sizes, lambda _: 3.0, lambda _: 800 * MB, duration_noise=0.8, memory_noise=0.3),),
)
"""Heavy noise, and nothing in the arguments that explains it."""
METHODS = Workload(
    "methods",
    (
        Kind(
            "integrate",
            _with_method,
            lambda a: a["steps"] * (4e-4 if a["method"] == "rk4" else 1e-4),
            lambda a: (900 if a["method"] == "rk4" else 300) * MB,
            duration_noise=0.15,
            memory_noise=0.05,
        ),
    ),
)
"""A category decides."""
FAILING = Workload(
    "failing",
    (
        Kind(
            "fit",
            _any_size,
            lambda a: 1.0 + 0.002 * a["n"],
            lambda a: 200 * MB + 1.2 * MB * a["n"],
            memory_noise=0.1,
        ),
    ),
    memory_limit=5 * GB,
    failures=0.1,
)
"""One in ten raises, and the largest are killed at their limit."""
DRIFTING = Workload("drifting", GROWING.kinds, drift=0.6)
"""Needs grow by 60 % over the history."""
TWO_HOSTS = Workload(
    "two-hosts",
    (Kind("train", _sizes, lambda a: 0.01 * a["n"], lambda a: 400 * MB + 0.3 * MB * a["n"]),),
    hosts={"fast-1": 2.0, "slow-1": 1.0},
)
"""One host is twice as fast as the other."""
MIXED = Workload(
    "mixed",
    (
        Kind("prepare", _sizes, lambda _: 0.3, lambda _: 120 * MB, duration_noise=0.3, component="small"),
        Kind(
            "simulate",
            _any_size,
            lambda a: 0.2 + 0.003 * a["n"],
            lambda a: 100 * MB + 0.8 * MB * a["n"],
            weight=2.0,
        ),
        Kind(
            "reduce",
            _with_method,
            lambda _: 2.0,
            lambda _: 500 * MB,
            duration_noise=0.5,
            memory_noise=0.2,
            weight=0.5,
        ),
    ),
    failures=0.03,
)
"""Several kinds of tasks, as in most projects."""
WORKLOADS = {
    workload.name: workload for workload in (GROWING, NOISY, METHODS, FAILING, DRIFTING, TWO_HOSTS, MIXED)
}


if __name__ == "__main__":
    for each in WORKLOADS.values():
        made = write_history(Path(sys.argv[1]) / each.name, each)
        print(f"{each.name:<10} {len(made)} attempts, {sum(a.state == 'killed' for a in made)} killed")
