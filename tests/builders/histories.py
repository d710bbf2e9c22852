"""Histories of runs whose tasks take what their arguments say, for tests of predictions."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from builders.runs import make_run

from flightlog.events import Event, TaskCompleted, TaskFailed, TaskSubmitted

FIRST = datetime(2026, 5, 1, 6, 0, tzinfo=UTC)
KILLED = "its process was killed by SIGKILL by the kernel's OOM killer: oom_kill of its cgroup rose"


def call(dice: random.Random) -> dict[str, Any]:
    return {"n": dice.randrange(1, 11) * 100, "seed": dice.randrange(10**6)}


def make_history(
    folder: Path,
    *,
    runs: int = 10,
    tasks: int = 20,
    project: str = "demo",
    task: str = "sim",
    seconds: Callable[[dict[str, Any]], float] = lambda args: args["n"] / 100,
    peak: Callable[[dict[str, Any]], float] | None = lambda args: args["n"] * 1e6,
    failed: int = 0,
    first: int = 0,
    **info: Any,
) -> list[str]:
    """Runs a day apart of tasks that take `seconds` and `peak` bytes, give or take 5 %; gives their ids, the
    oldest first.

    The last `failed` tasks of each run raise after a hundredth of a second.
    """
    made = []
    for number in range(first, first + runs):
        dice = random.Random(f"{task} {number}")
        start = FIRST + timedelta(days=number)
        events: list[Event] = []
        for n in range(tasks):
            args = call(dice)
            life: dict[str, Any] = {"task": task, "task_id": f"t{n}", "args": args}
            events.append(TaskSubmitted(**life, timestamp=stamp(start)))
            took = seconds(args) * dice.lognormvariate(0, 0.05)
            ended = {**life, "timestamp": stamp(start + timedelta(seconds=n + 1)), "worker": "w-0"}
            if n >= tasks - failed:
                events.append(
                    TaskFailed(**ended, duration_s=0.01, error_type="ValueError", error_message="no")
                )
                continue
            memory = None if peak is None else round(peak(args) * dice.lognormvariate(0, 0.02))
            events.append(TaskCompleted(**ended, duration_s=took, peak_rss_bytes=memory, rss_scope="tree"))
        path = make_run(
            folder,
            events,
            project=project,
            token=f"{number:08x}",
            **{
                "start_time": stamp(start),
                "end_time": stamp(start + timedelta(seconds=60)),
                "duration_s": 60.0,
                "tasks_submitted": tasks,
                "tasks_completed": tasks - failed,
                "tasks_failed": failed,
                **info,
            },
        )
        made.append(path.name)
    return made


def stamp(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S.%fZ}"
