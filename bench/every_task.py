"""A thousand finished tasks are a thousand completed ones: in every run, with processes and with threads.

python -m bench.every_task            # 50 runs of each kind
python -m bench.every_task 5          # 5 of each
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import flightlog
from flightlog.analyze.report.summary import summarize
from flightlog.events import TaskCompleted, TaskQueued, TaskStarted, TaskSubmitted
from flightlog.store.run import Run

RUNS = 50
TASKS = 1000
ONCE = (TaskSubmitted, TaskQueued, TaskStarted, TaskCompleted)
MANIFEST = """\
version: 1
project: {{name: every-task}}
targets:
  local: {{provider: local, max_workers: 4, processes: {processes}}}
"""


def shortfall(folder: Path) -> str | None:
    """One run of a thousand tasks in a folder with a manifest; what is missing from its record, None if
    nothing is."""
    with flightlog.Session.from_yaml(folder, runs_dir=folder / "runs", progress=False) as session:
        futures = session.client.map(abs, range(-TASKS, 0))
        finished = sum(value == TASKS - i for i, value in enumerate(session.client.gather(futures)))
    run = Run(session.path)
    events = Counter((type(event), getattr(event, "task_id", None)) for event in run.events("tasks"))
    wanted = Counter({(kind, future.task_id): 1 for kind in ONCE for future in futures})
    tasks, lost = summarize(run).tasks, sum(run.completeness().lost.values())
    found = (finished, tasks.completed, run.info.tasks_completed, run.info.status, lost)
    if found == (TASKS, TASKS, TASKS, "completed", 0) and events == wanted:
        return None
    too_few, too_many = (
        sum(kind is TaskCompleted for kind, _ in one) for one in (wanted - events, events - wanted)
    )
    return (
        f"{run.info.run_id}: finished, completed, in run.json, status and lines lost are {found}; "
        f"{too_few} completions missing, {too_many} too many, "
        f"{sum(((wanted - events) | (events - wanted)).values())} events off"
    )


def check(runs: int, processes: bool) -> list[str]:
    """What was missing in so many runs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "flightlog.yaml").write_text(MANIFEST.format(processes=str(processes).lower()))
        return [text for _ in range(runs) if (text := shortfall(folder)) is not None]


def main(runs: int = RUNS) -> int:
    """Check both kinds, and say what came of it; 1 if any run fell short."""
    missing = []
    for processes, what in ((True, "processes"), (False, "threads")):
        began = time.perf_counter()
        found = check(runs, processes)
        missing += found
        print(
            f"{what}: {runs - len(found)} of {runs} runs of {TASKS} tasks are complete, in "
            f"{time.perf_counter() - began:.0f} s"
        )
    for text in missing:
        print(text)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
