"""A program for tests of engines: a small sweep with a retry, a failure and spans, on a target of the
manifest beside it.

Called as `sweep_program.py FOLDER TARGET`: FOLDER gets the runs, and the manifest is what MANIFEST holds.
With HIDDEN in the environment, a folder, the program sees a file system of its own there, as if it ran on
another machine.
"""

# ruff: noqa: E402 - what the program sees is changed before anything that it imports starts a thread

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path

NEW_MOUNTS, PRIVATE = 0x20000, (1 << 18) | (1 << 14)


def hide(folder: str) -> None:
    """Have this process see a file system of its own in a folder: what it writes there nobody else sees."""
    libc = ctypes.CDLL(None, use_errno=True)
    for done in (
        libc.unshare(NEW_MOUNTS),
        libc.mount(b"none", b"/", None, PRIVATE, None),
        libc.mount(b"none", folder.encode(), b"tmpfs", 0, None),
    ):
        if done != 0:
            raise OSError(ctypes.get_errno(), "the folder cannot be hidden")


if __name__ == "__main__" and "HIDDEN" in os.environ:
    hide(os.environ["HIDDEN"])  # before there are threads

import flightlog
from flightlog import Session
from flightlog.analyze.report.summary import summarize
from flightlog.events import SpanEvent, TaskStarted


def simulate(seed: int, marks: str) -> int:
    with flightlog.span("simulation.execute", seed=seed) as span:
        span.metrics["loss"] = 1 / (seed + 1)
        mark = Path(marks) / f"tried-{seed}"
        if seed == 3 and not mark.exists():
            mark.touch()
            raise ConnectionError("try again")
        if seed == 5:
            raise ValueError("no such seed")
    return seed * seed


def told(future):
    try:
        return future.result(timeout=60)
    except ValueError as error:
        return str(error)


def recorded(path: Path) -> dict:
    """What the run holds, as far as every engine should agree on it."""
    run = flightlog.open_run(path)
    tasks = summarize(run).tasks
    spans = [event for event in run.events("spans") if isinstance(event, SpanEvent)]
    attempts = {event.span_id for event in run.events("tasks") if isinstance(event, TaskStarted)}
    return {
        "status": run.info.status,
        "tasks": {
            "submitted": tasks.submitted,
            "completed": tasks.completed,
            "failed": tasks.failed,
            "retried": tasks.retried,
            "started": sum(isinstance(event, TaskStarted) for event in run.events("tasks")),
        },
        "spans": sorted(span.tags["seed"] for span in spans),
        "spans_outside_of_tasks": sum(span.parent_id not in attempts for span in spans),
        "failures": sorted(failure.error_type for failure in run.events("failures")),
        "lost": sum(run.completeness().lost.values()),
        "sampled": sorted({event.worker for event in run.events("resources") if event.scope == "worker"}),
        "workers": sorted({event.worker for event in run.events("tasks") if isinstance(event, TaskStarted)}),
    }


def main(folder: Path, target: str) -> None:
    marks = Path(os.environ["MARKS"])
    (folder / "flightlog.yaml").write_text(os.environ["MANIFEST"])
    with Session(folder / "flightlog.yaml", target=target, runs_dir=folder / "runs") as session:
        futures = session.client.map(simulate, range(8), marks=str(marks), retries=1)
        results = [told(future) for future in futures]
        path = session.path
    print(json.dumps({"results": results, "recorded": recorded(path), "program": os.getpid()}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
